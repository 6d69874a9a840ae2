"""Blueprints of single layers, as a user builds them: values against float64 NumPy, gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.descriptors import TensorDesc
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers.blueprint import Blueprint
from neonlike.optimizers import Adam, GradientDescentMomentum
from neonlike.transforms import Logistic, Tanh
from neonlike.transforms.transform import Transform
from tests.layers.blueprint.blueprinted import check_gradients, filled, run
from tests.support.float64.conv_loops import Sizes as ConvSizes
from tests.support.float64.conv_loops import forward as convolved
from tests.support.float64.pool_loops import Sizes as PoolSizes
from tests.support.float64.pool_loops import backward as unpooled
from tests.support.float64.pool_loops import forward as pooled
from tests.support.numbers import close

pytestmark = pytest.mark.engines("numpy", "c")

N = 4


def logistic(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max(axis=0))
    return e / e.sum(axis=0)


ACTIVATIONS: dict[str, tuple[dict[str, float], Any]] = {
    "identity": ({}, lambda z: z),
    "linear": ({"alpha": 2, "beta": -1}, lambda z: 2 * z - 1),
    "relu": ({"alpha": 0.1}, lambda z: np.where(z > 0, z, 0.1 * z)),
    "bounded_relu": ({"alpha": 0.5}, lambda z: np.clip(z, 0, 0.5)),
    "elu": ({"alpha": 2}, lambda z: np.where(z > 0, z, 2 * np.expm1(z))),
    "sigmoid": ({}, logistic),
    "tanh": ({}, np.tanh),
    "softmax": ({}, softmax),
    "swish": ({"alpha": 2}, lambda z: z * logistic(2 * z)),
    "gelu": ({}, lambda z: z * 0.5 * (1 + np.vectorize(__import__("math").erf)(z / np.sqrt(2)))),
}


# Inner products and fully connected layers --------------------------------------------------------------------------


def test_an_inner_product(be64: Backend) -> None:
    """z = W · x + b; the weights' gradient is a sum over the batch."""
    bp = be64.blueprints.inner_product((6, N), 5)
    assert bp.inf_desc == bp.train_desc == bp.diff_desc == TensorDesc((5, N), np.float64)
    assert bp.weights_desc.shape == (5, 6) and bp.bias_desc.shape == (5, 1)
    layer = filled(bp.build())
    W, b, x, e = (t.get() for t in (layer.weights, layer.bias, layer.input, layer.diff_output))
    run(layer)
    close(layer.output, W @ x + b)
    close(layer.diff_weights, e @ x.T)
    close(layer.diff_bias, e.sum(axis=1, keepdims=True))
    close(layer.diff_input, W.T @ e)
    close(layer.diff_z, e)
    assert layer.parameters == (layer.weights, layer.bias)
    np.testing.assert_array_equal(layer.bias.get(), b)  # without an optimizer nothing is updated


def test_the_linear_part_of_the_backward_pass_with_its_scalars(be64: Backend) -> None:
    """diff_weights = scale_dw · dW + scale_g · diff_weights; bias = scale_db · db + scale_b · bias."""
    layer = run(filled(be64.blueprints.inner_product((6, N), 5).build()))
    dW, db, dx, bias = (t.get().copy() for t in (layer.diff_weights, layer.diff_bias, layer.diff_input, layer.bias))
    layer.backward_diff(-0.5, 0.25, 2.0, 3.0)
    close(layer.diff_weights, -0.5 * dW + 0.25 * dW)
    close(layer.bias, 2 * db + 3 * bias)
    close(layer.diff_input, dx)
    layer.diff_weights.fill(np.nan)
    layer.bias.fill(np.nan)
    layer.backward_diff(2.0, 0.0, 1.0, 0.0)  # old values are not read where their factor is 0
    close(layer.diff_weights, 2 * dW)
    close(layer.bias, db)


def test_stochastic_gradient_descent_by_hand_with_the_scalars(be64: Backend) -> None:
    """As documented: (-rate / N, momentum, -rate / N, 1) leaves the velocity in diff_weights and moves the bias."""
    layer = filled(be64.blueprints.inner_product((6, N), 5).build())
    layer.diff_weights.fill(0)
    W, b, v = layer.weights.get(), layer.bias.get(), np.zeros((5, 6))
    x, e = layer.input.get(), layer.diff_output.get()
    for _ in range(3):
        layer.forward()
        layer.backward_diff(-0.1 / N, 0.9, -0.1 / N, 1.0)
        layer.weights[:] = layer.weights + layer.diff_weights
        v = 0.9 * v - 0.1 / N * e @ x.T
        W, b = W + v, b - 0.1 / N * e.sum(axis=1, keepdims=True)
    close(layer.weights, W)
    close(layer.bias, b)


@pytest.mark.compiles(2)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_fully_connected_layer(be64: Backend, name: str) -> None:
    given, f = ACTIVATIONS[name]
    bp = be64.blueprints.fully_connected((6, N), 5, name, **given)
    layer = filled(bp.build())
    W, b, x = (t.get() for t in (layer.weights, layer.bias, layer.input))
    close(layer.forward(), f(W @ x + b))
    check_gradients(layer)
    inference = bp.build(train=False, source=layer.input)
    inference.weights[:], inference.bias[:] = layer.weights, layer.bias
    close(inference(), f(W @ x + b))


def test_the_gradient_before_the_activation(be64: Backend) -> None:
    layer = run(filled(be64.blueprints.fully_connected((6, N), 5, "tanh").build()))
    dz = layer.diff_output.get() * (1 - layer.output.get() ** 2)
    close(layer.diff_z, dz)
    close(layer.diff_weights, dz @ layer.input.get().T)
    layer.diff_output[:] = 2 * layer.diff_output
    close(layer.backward_activation(), 2 * dz)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("transform", [Tanh(), Logistic()])
def test_an_activation_may_be_a_transform(be64: Backend, transform: Transform) -> None:
    layer = filled(be64.blueprints.fully_connected((6, N), 5, transform).build())
    check_gradients(layer)


def test_images_go_into_a_fully_connected_layer_flat(be64: Backend) -> None:
    layer = filled(be64.blueprints.fully_connected((2, 3, 3, N), 5).build())
    close(layer.forward(), layer.weights.get() @ layer.input.get().reshape(18, N) + layer.bias.get())
    layer.backward()
    assert layer.diff_input.shape == (2, 3, 3, N)


# Parameters and optimizers ------------------------------------------------------------------------------------------


def test_weights_are_initialised_by_a_function_or_an_initializer(be: Backend) -> None:
    layer = be.blueprints.fully_connected((6, N), 5).build()
    assert layer.init(lambda tensor: tensor.fill(0.5)) is layer
    assert (layer.weights.get() == 0.5).all() and (layer.bias.get() == 0).all()
    layer.init(GlorotUniform(), bias=Constant(2))
    assert 0 < np.abs(layer.weights.get()).max() <= np.sqrt(6 / 11)
    assert (layer.bias.get() == 2).all()


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_with_momentum_and_decay(be64: Backend, nesterov: bool) -> None:
    """v = m v - rate (g / N + decay p), p += v; with Nesterov's momentum p += m v - rate (...)."""
    rate, m, decay = 0.1, 0.9, 0.01
    layer = filled(be64.blueprints.inner_product((6, N), 5).build())
    hyper = GradientDescentMomentum(rate, m, wdecay=decay, nesterov=nesterov)
    values = [layer.weights.get(), layer.bias.get()]
    velocity = [np.zeros_like(p) for p in values]
    x, e = layer.input.get(), layer.diff_output.get()
    for _ in range(3):
        layer.forward(hyper)
        layer.backward(hyper)
        for k, gradient in enumerate((e @ x.T, e.sum(axis=1, keepdims=True))):
            moved = rate * (gradient / N + decay * values[k])
            velocity[k] = m * velocity[k] - moved
            values[k] = values[k] + (m * velocity[k] - moved if nesterov else velocity[k])
    close(layer.weights, values[0])
    close(layer.bias, values[1])


def adam_steps(p: Any, gradient: Any, steps: int, rate: float) -> Any:
    first = second = 0.0
    for t in range(1, steps + 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        scaled = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        p = p - scaled * first / (np.sqrt(second) + 1e-8)
    return p


def test_adam_counts_the_steps_of_each_layer_apart(be64: Backend) -> None:
    """One optimizer, called for one layer after the other, is to each as if it were its own."""
    make = be64.blueprints.inner_product((6, N), 5)
    layers = [filled(make.build(), seed) for seed in range(2)]
    before = [layer.weights.get() for layer in layers]
    hyper = Adam(learning_rate=0.01)
    for _ in range(3):
        for layer in layers:
            layer.forward(hyper)
            layer.backward(hyper)
    for layer, p in zip(layers, before):
        gradient = layer.diff_output.get() @ layer.input.get().T / N
        close(layer.weights, adam_steps(p, gradient, 3, 0.01))


def test_the_batch_size_is_the_blueprints(be64: Backend) -> None:
    """The backend's batch size, of other layers, stays as it is and does not count."""
    assert be64.bsz == 128
    layer = filled(be64.blueprints.inner_product((6, N), 5).build())
    b, e = layer.bias.get(), layer.diff_output.get()
    layer.forward()
    layer.backward(GradientDescentMomentum(1.0, 0.0))
    close(layer.bias, b - e.mean(axis=1, keepdims=True))
    assert be64.bsz == 128 and be64.default_dtype == np.float64


# Images -------------------------------------------------------------------------------------------------------------


STEPS = {"strides": (2, 1), "padding": (1, 0), "dilation": (1, 2)}


@pytest.mark.compiles(1)
@pytest.mark.parametrize(
    ("shape", "kernel", "options"),
    [
        ((2, 7, 6, N), (3, 2), {**STEPS, "activation": "tanh"}),
        ((2, 4, 5, 5, N), (2, 3, 3), {"padding": 1, "activation": "swish"}),
        ((4, 5, 5, N), 3, {"groups": 2, "activation": "relu"}),
    ],
)
def test_a_convolution(be64: Backend, shape: Any, kernel: Any, options: Any) -> None:
    bp = be64.blueprints.convolution(shape, kernel, 4, **options)
    layer = filled(bp.build())
    layer.forward()
    axes = len(shape) - 2

    def triple(value: Any, filler: int) -> Any:
        each = value if isinstance(value, tuple) else (value,) * axes
        return (filler,) * (3 - axes) + each

    sizes = ConvSizes(
        N, shape[0], 4, triple(shape[1:-1], 1), triple(kernel, 1), triple(options.get("padding", 0), 0),
        triple(options.get("strides", 1), 1), triple(options.get("dilation", 1), 1), options.get("groups", 1),
    )  # fmt: skip
    z = convolved(sizes, layer.input.get().reshape(sizes.shape_i), layer.weights.get().reshape(sizes.shape_f))
    z = z + layer.bias.get().reshape(-1, 1, 1, 1, 1)
    f = ACTIVATIONS[options.get("activation", "identity")][1]
    wanted = np.maximum(z, 0) if options.get("activation") == "relu" else z * logistic(z) if axes == 3 else f(z)
    assert bp.inf_desc.shape == layer.output.shape == (4, *sizes.out[3 - axes :], N)
    close(layer.output, wanted.reshape(layer.output.shape))
    check_gradients(layer)


def test_a_convolutions_weights_and_scalars(be64: Backend) -> None:
    layer = run(filled(be64.blueprints.convolution((2, 7, 6, N), (3, 2), 4, **STEPS).build()))
    dW, db, bias = (t.get().copy() for t in (layer.diff_weights, layer.diff_bias, layer.bias))
    assert layer.weights.shape == (2 * 3 * 2, 4) and layer.bias.shape == (4, 1)
    layer.backward_diff(0.5, 2.0, -1.0, 1.0)
    close(layer.diff_weights, 0.5 * dW + 2 * dW)
    close(layer.bias, bias - db)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("algorithm", ["max", "avg"])
def test_pooling(be64: Backend, algorithm: str) -> None:
    bp = be64.blueprints.pooling((2, 5, 6, N), (3, 2), algorithm, strides=(2, 2), padding=(1, 0))
    layer = run(filled(bp.build()))
    sizes = PoolSizes(N, C=2, D=1, H=5, W=6, R=3, S=2, str_h=2, str_w=2, pad_h=1)
    x = layer.input.get().reshape(sizes.dimI)
    assert bp.inf_desc.shape == layer.output.shape == (2, 3, 3, N)
    close(layer.output, pooled(algorithm, sizes, x).reshape(2, 3, 3, N))
    error = layer.diff_output.get().reshape(sizes.dimO)
    close(layer.diff_input, unpooled(algorithm, sizes, x, error).reshape(2, 5, 6, N))
    assert layer.parameters == () and layer.weights is None


def test_pooling_of_volumes_with_the_kernel_as_strides(be: Backend) -> None:
    assert be.blueprints.pooling((2, 4, 4, 6, N), 2).inf_desc.shape == (2, 2, 2, 3, N)
    assert be.blueprints.pooling((2, 4, 4, 6, N), 2, dst=(2, 2, 2, 3, N)).inf_desc.shape == (2, 2, 2, 3, N)


# Normalization, activation, dropout ---------------------------------------------------------------------------------


@pytest.mark.compiles(1)
@pytest.mark.parametrize("shape", [(5, N), (2, 3, 4, N)])
def test_batch_normalization(be64: Backend, shape: Any) -> None:
    bp = be64.blueprints.batch_norm(shape, "relu", eps=0.01, rho=0.75)
    layer = bp.build()
    assert (layer.weights.get() == 1).all() and (layer.bias.get() == 0).all()
    filled(layer)
    x, gamma, beta = layer.input.get(), layer.weights.get(), layer.bias.get()
    rows = x.reshape(shape[0], -1)
    mean, variance = rows.mean(1, keepdims=True), rows.var(1, keepdims=True)
    wanted = np.maximum(gamma * (rows - mean) / np.sqrt(variance + 0.01) + beta, 0)
    close(layer.forward(), wanted.reshape(shape))
    close(layer.running_mean, 0.25 * mean)
    close(layer.running_variance, 0.25 * variance)
    wanted = np.maximum(gamma * (rows - 0.25 * mean) / np.sqrt(0.25 * variance + 0.01) + beta, 0)
    close(layer(), wanted.reshape(shape))  # inference takes the running statistics
    check_gradients(layer, rtol=1e-5)
    close(layer.diff_z, layer.diff_output.get() * (layer.output.get() > 0))


def test_batch_normalization_of_a_first_layer_leaves_its_error(be64: Backend) -> None:
    layer = filled(be64.blueprints.batch_norm((5, N)).build(input_gradient=False))
    e = layer.diff_output.get().copy()
    layer.forward()
    assert layer.backward() is None
    np.testing.assert_array_equal(layer.diff_output.get(), e)
    dgamma, dbeta = layer.diff_weights.get().copy(), layer.diff_bias.get().copy()
    close(dbeta, e.sum(axis=1, keepdims=True))
    bias = layer.bias.get().copy()
    layer.backward_diff(2.0, -0.5, 1.0, 1.0)
    close(layer.diff_weights, 1.5 * dgamma)
    close(layer.bias, bias + dbeta)


@pytest.mark.compiles(1)
@pytest.mark.parametrize("name", ["softmax", "gelu", "bounded_relu"])
def test_an_activation_alone(be64: Backend, name: str) -> None:
    given, f = ACTIVATIONS[name]
    layer = filled(be64.blueprints.activation((5, N), name, **given).build())
    x = layer.input.get().copy()
    close(layer.forward(), f(x))
    np.testing.assert_array_equal(layer.input.get(), x)
    check_gradients(layer)


def test_the_gradient_before_an_activation_alone_is_the_inputs(be64: Backend) -> None:
    bp = be64.blueprints.activation((5, N), "swish")
    layer = filled(bp.build())
    layer.forward()
    before = layer.backward_activation().get().copy()
    assert layer.diff_z is layer.diff_input and bp.inf_workspace_bytes == 0
    layer.diff_input.fill(np.nan)
    layer.backward()
    close(layer.diff_input, before)


def test_an_identity_is_a_copy(be64: Backend) -> None:
    layer = run(filled(be64.blueprints.activation((5, N), None).build()))
    close(layer.output, layer.input.get())
    close(layer.diff_input, layer.diff_output.get())


def test_a_transform_that_leaves_its_derivative_to_costs_does_so_behind_cross_entropy_alone(be64: Backend) -> None:
    layer = filled(be64.blueprints.fully_connected((6, N), 5, Logistic(shortcut=True)).build())
    check_gradients(layer)


def test_a_softmax_of_a_sequence_is_of_each_step(be64: Backend) -> None:
    layer = filled(be64.blueprints.activation((5, 3, N), "softmax").build())
    close(layer.forward(), softmax(layer.input.get()))
    check_gradients(layer)


def test_gaussian_dropout(be64: Backend) -> None:
    """Times N(1, sd²) in training, in the backward pass times the same numbers; nothing in inference."""
    bp = be64.blueprints.gaussian_dropout((50, 80), sd=0.5)
    layer = run(filled(bp.build()))
    mask, x = layer.mask.get(), layer.input.get()
    assert abs(mask.mean() - 1) < 0.05 and abs(mask.std() - 0.5) < 0.03
    close(layer.output, x * mask)
    close(layer.diff_input, layer.diff_output.get() * mask)
    layer.forward()
    assert (layer.mask.get() != mask).any()
    close(layer(), x)
    inference = bp.build(train=False, source=layer.input)
    assert inference() is inference.input


# Values -------------------------------------------------------------------------------------------------------------


def test_blueprints_are_values(be: Backend) -> None:
    def make(**options: Any) -> Blueprint:
        return be.blueprints.convolution((2, 5, 5, N), 3, 4, "relu", **options)

    assert make() == make() and hash(make()) == hash(make())
    assert make() != make(padding=1) and make() != make(alpha=0.1)
    assert str(make()) == "convolution: (2, 5, 5, 4) -> (4, 3, 3, 4), relu"
    assert make().kernel_bytes == max(
        be.workspace_bytes(make().geometry, operation) for operation in ("fprop", "bprop", "update")
    )


def test_a_layer_built_for_inference_has_no_gradients(be: Backend) -> None:
    layer = be.blueprints.fully_connected((6, N), 5, "swish").build(train=False)
    assert layer.diff_output is layer.diff_input is layer.diff_weights is None
    assert layer.workspace.nbytes == layer.blueprint.inf_workspace_bytes == 128
    assert layer.blueprint.train_workspace_bytes == 0


@pytest.mark.parametrize("kind", ["convolution", "batch_norm", "fully_connected", "rnn", "gru", "both ways"])
def test_inference_takes_no_memory_for_gradients_of_parameters(be: Backend, kind: str) -> None:
    make = be.blueprints
    bp = {
        "convolution": lambda: make.convolution((2, 4, 4, N), 3, 5),
        "batch_norm": lambda: make.batch_norm((2, 4, 4, N)),
        "fully_connected": lambda: make.fully_connected((6, N), 5),
        "rnn": lambda: make.rnn((6, 3, N), 4),
        "gru": lambda: make.rnn((6, 3, N), 4, activation="gru"),
        "both ways": lambda: make.rnn((6, 3, N), 4, 2, "gru", direction="bidirectional_sum", src_iter=True),
    }[kind]()
    layer = bp.build(train=False)
    assert layer.diff_weights is layer.diff_bias is None
    assert all(gradient is None for (_, gradient), _ in layer.get_params())
    assert np.isfinite(layer().get()).all()


@pytest.mark.compiles(1)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_dtype_is_the_descriptors(be: Backend, dtype: str) -> None:
    bp = be.blueprints.batch_norm(be.blueprints.fully_connected(TensorDesc((6, N), dtype), 5), "relu")
    layer = filled(bp.build())
    assert layer.output.dtype == dtype and layer.weights.dtype == np.float32
    run(layer)
    assert layer.diff_input.dtype == dtype and be.default_dtype == np.float32
