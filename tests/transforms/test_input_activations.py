"""Activations whose derivative needs their input: Swish, SiLU, GELU and those of users, alone and in networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from neonlike.data import ArrayIterator
from neonlike.errors import GradientError, MissingArgument, ShapeError
from neonlike.initializers import Gaussian, Uniform
from neonlike.layers import Activation, Affine, Bias, Dropout, GeneralizedCost, Linear, Sequential
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import GELU, Identity, Rectlin, SiLU, SumSquared, Swish, Tanh
from neonlike.transforms.transform import Transform

N = 6
VALUES: dict[str, Any] = {
    "Swish": lambda f, x: x * special.expit(f.beta * x),
    "SiLU": lambda f, x: x * special.expit(x),
    "GELU": lambda f, x: x * special.ndtr(x),
}


def slope(f: Any, x: Any) -> Any:
    """Derivative in float64, by formulas other than those of the classes."""
    if isinstance(f, GELU):
        return special.ndtr(x) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    s = special.expit(f.beta * x)
    return s * (1 + f.beta * x * special.expit(-f.beta * x))


@pytest.mark.engines("numpy", "c")
@pytest.mark.parametrize("f", [Swish(), Swish(2.5), SiLU(), GELU()], ids=lambda f: f"{f.classnm}")
def test_values_and_derivatives(any_be: Any, f: Transform) -> None:
    x = np.array([[-30.0, -3.0, -0.7, 0.0, 0.4, 1.2, 9.0, 30.0]])
    tensor, y, d = any_be.array(x), any_be.empty(x.shape), any_be.empty(x.shape)
    x = tensor.get().astype(np.float64)
    y[:] = f(tensor)
    any_be.bprop_transform(None, f, y, any_be.ones(x.shape), d, inputs=tensor)
    close = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}[tensor.dtype.name]
    np.testing.assert_allclose(y.get(), VALUES[f.classnm](f, x), rtol=close, atol=close)
    np.testing.assert_allclose(d.get(), slope(f, x), rtol=close, atol=close)


class Named(Transform):
    """x ** 2, whose derivative is written in each way that ``bprop`` may have parameters."""

    def __call__(self, x: Any) -> Any:
        return x * x


class ByOutput(Named):
    def bprop(self, x: Any) -> Any:
        return 2 * self.be.sqrt(x)


class ByNamedOutput(Named):
    def bprop(self, outputs: Any) -> Any:
        return 2 * self.be.sqrt(outputs)


class ByInput(Named):
    def bprop(self, inputs: Any) -> Any:
        return 2 * inputs


class ByBoth(Named):
    def bprop(self, inputs: Any, outputs: Any) -> Any:
        return 2 * outputs / inputs


class ByKeywords(Named):
    def bprop(self, *, outputs: Any = None, inputs: Any = None) -> Any:
        return inputs + outputs / inputs


class NeonsAndInput(Named):
    def bprop(self, x: Any, inputs: Any = None) -> Any:
        return x / inputs + inputs


WAYS = [ByOutput, ByNamedOutput, ByInput, ByBoth, ByKeywords, NeonsAndInput]


@pytest.mark.parametrize("way", WAYS)
def test_parameters_get_what_they_name(be: Any, way: type[Named]) -> None:
    x = be.array(np.random.default_rng(0).uniform(0.5, 2, (3, 4)))
    y, d, error = be.empty(x.shape), be.empty(x.shape), be.array(np.full((3, 4), 3.0))
    y[:] = way()(x)
    be.bprop_transform(None, way(), y, error, d, inputs=x)
    np.testing.assert_allclose(d.get(), 6 * x.get(), rtol=1e-5)
    assert be.check_grad(way(), x) < 1e-6


@pytest.mark.parametrize("way", WAYS)
def test_layers_keep_the_input_where_it_is_needed(be64: Any, way: type[Named]) -> None:
    """And only there: the others work in place on the buffer of the layer before."""
    be64.bsz = N
    linear, activation = Linear(3, Uniform(0.5, 1)), Activation(way())
    chain = Sequential([Linear(5, Uniform(0.5, 1)), linear, activation, Linear(2, Uniform(0.5, 1))])
    chain.configure(4)
    chain.allocate()
    chain.allocate_deltas()
    x = be64.array(np.random.default_rng(1).uniform(0.5, 2, (4, N)))
    before, after = (layer.W.get() for layer in (linear, chain.layers[3]))
    hidden = chain.layers[0].W.get() @ x.get()
    found = chain.fprop(x).get()
    np.testing.assert_allclose(found, after @ (before @ hidden) ** 2, rtol=1e-12)
    in_place = way in (ByOutput, ByNamedOutput)
    assert (activation.outputs is linear.outputs) is in_place
    assert activation.owns_output is not in_place
    error = np.random.default_rng(2).normal(size=(2, N))
    chain.bprop(be64.array(error))
    wanted = (2 * (before @ hidden) * (after.T @ error)) @ hidden.T
    np.testing.assert_allclose(linear.dW.get(), wanted, rtol=1e-12)


@pytest.mark.engines("numpy", "c")
@pytest.mark.parametrize("f", [Swish(1.5), GELU(), SiLU()], ids=lambda f: f.classnm)
def test_gradients_of_a_network_on_every_engine(be64: Any, f: Transform) -> None:
    be, rng = be64, np.random.default_rng(3)
    be.bsz = N
    model = Model([
        Affine(7, Gaussian(), bias=Uniform(-1, 1), activation=f),
        Affine(5, Gaussian(), activation=Rectlin(0.1)),
        Affine(3, Gaussian(), bias=Uniform(-1, 1), activation=f),
    ])  # fmt: skip
    x, t = be.array(rng.normal(size=(4, N))), be.array(rng.normal(size=(3, N)))
    cost = GeneralizedCost(SumSquared())
    model.initialize(4, cost)
    model.bprop(cost.get_errors(model.fprop(x), t))
    weights = [layer.W for layer in model.layers_to_optimize]
    found = [layer.dW.get() for layer in model.layers_to_optimize]

    def loss(w1: Any, b1: Any, w2: Any, w3: Any, b3: Any) -> Any:
        hidden = be.dot(w2, f(be.dot(w1, x) + b1))
        return 0.5 * be.sum(be.square(f(be.dot(w3, be.leaky_relu(hidden, 0.1)) + b3) - t))

    for gradient, wanted in zip(found, be.grad(loss)(*weights), strict=True):
        np.testing.assert_allclose(gradient, wanted.get(), rtol=1e-9, atol=1e-12)


def test_alpha_and_beta_of_the_backward_pass(be64: Any) -> None:
    be64.bsz = N
    layer = Activation(Swish())
    chain = Sequential([Linear(3, Gaussian()), layer])
    chain.configure(4)
    chain.allocate()
    chain.allocate_deltas()
    x, error = np.random.default_rng(4).normal(size=(2, 3, N))
    inputs = be64.array(x)
    layer.fprop(inputs)
    np.testing.assert_array_equal(inputs.get(), x)
    layer.deltas.fill(2.0)
    got = layer.bprop(be64.array(error), alpha=0.5, beta=3.0).get()
    np.testing.assert_allclose(got, 0.5 * slope(Swish(), x) * error + 6, rtol=1e-12)
    with pytest.raises(ShapeError, match="allocated for 6 columns"):
        layer.fprop(be64.zeros((3, N + 1)))


def test_in_place_layers_after_it_leave_its_input_alone(be64: Any) -> None:
    be64.bsz = N
    chain = Sequential([Linear(3, Uniform(0.5, 1)), Activation(Swish()), Bias(Uniform(1, 2)), Dropout(1.0)])
    chain.configure(4)
    chain.allocate()
    chain.allocate_deltas()
    x, error = np.random.default_rng(5).normal(size=(4, N)), np.random.default_rng(6).normal(size=(3, N))
    chain.fprop(be64.array(x))
    chain.bprop(be64.array(error))
    linear = chain.layers[0]
    wanted = (slope(Swish(), linear.W.get() @ x) * error) @ x.T
    np.testing.assert_allclose(linear.dW.get(), wanted, rtol=1e-10)


def test_training_and_saving(be: Any, tmp_path: Any) -> None:
    be.bsz = 16
    rng = np.random.default_rng(7)
    x = rng.normal(size=(64, 2)).astype(np.float32)
    y = (x[:, :1] * x[:, 1:]).astype(np.float32)
    data = ArrayIterator(x, y, make_onehot=False)
    model = Model([
        Affine(12, Gaussian(scale=0.5), bias=Uniform(-0.5, 0.5), activation=Swish(1.2)),
        Affine(1, Gaussian(scale=0.5), activation=Identity()),
    ])  # fmt: skip
    cost = GeneralizedCost(SumSquared())
    model.fit(data, cost, GradientDescentMomentum(0.05, 0.9), 1)
    first = model.total_cost.item()
    model.fit(data, cost, GradientDescentMomentum(0.05, 0.9), 15)
    assert model.total_cost.item() < first / 2
    model.save_params(str(tmp_path / "swish.p"))
    again = Model(str(tmp_path / "swish.p"))
    transform = again.layers.layers[2].transform
    assert isinstance(transform, Swish) and transform.beta == 1.2
    np.testing.assert_array_equal(again.get_outputs(data), model.get_outputs(data))


def test_where_the_input_is_not_kept_it_is_refused(be: Any) -> None:
    x = be.ones((2, 2))
    with pytest.raises(MissingArgument, match="derivative of Swish needs the inputs"):
        be.bprop_transform(None, Swish(), x, x, be.empty((2, 2)))
    h, deltas, w = be.ones((3, 4)), be.ones((3, 4)), be.ones((3, 3))
    steps = [h[:, :2], h[:, 2:]], [deltas[:, :2], deltas[:, 2:]]
    with pytest.raises(MissingArgument, match=r"compound_rnn_unroll_bprop.*GELU needs the inputs"):
        be.compound_rnn_unroll_bprop(w, steps[1], steps[1], steps[0], 3, 2, 2, GELU())
    assert (deltas.get() == 1).all()


def test_a_wrong_derivative_by_the_input_is_found(be: Any) -> None:
    class Forgets(Swish):
        def bprop(self, inputs: Any) -> Any:
            return self.be.sig(inputs)

    with pytest.raises(GradientError, match=r"Forgets\.bprop by tensor 0"):
        be.check_grad(Forgets(), be.array(np.random.default_rng(8).normal(size=(3, 4))))
    assert be.check_grad(Tanh(), be.array([[0.5, 1.0]])) < 1e-6
