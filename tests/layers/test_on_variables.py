"""Layers, containers and models called on variables: values, derivatives, and effects of calls on each other."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError, GradientError, ShapeError
from neonlike.initializers import Gaussian
from neonlike.layers import (
    LSTM,
    Activation,
    Affine,
    BatchNorm,
    Bias,
    Conv,
    DataTransform,
    Dropout,
    GeneralizedCost,
    Linear,
    MergeMultistream,
    Pooling,
    RecurrentLast,
    Residual,
    Sequential,
)
from neonlike.layers.layer import ParameterLayer
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Logistic, Normalizer, Rectlin, Softmax, Tanh
from tests.support.numbers import close, numbers

N = 4
pytestmark = [pytest.mark.engines("numpy"), pytest.mark.samples(N)]


def mlp(*more: Any) -> Sequential:
    init = Gaussian(scale=0.5)
    return Sequential([Affine(5, init, bias=init, activation=Tanh()), *more, Affine(3, init)])


def passes(net: Any, x: Any, error: Any) -> tuple[Any, Any, list[Any]]:
    """Results of the network's own passes: outputs, the error at the inputs, gradients."""
    be = net.be
    y = net.fprop(be.array(x)).get().copy()
    deltas = net.bprop(be.array(error)).get().copy()
    return y, deltas, [p.get_params()[0][1].get().copy() for p in net.parameters()]


NETWORKS = {
    "mlp": (mlp, (6, N)),
    "batchnorm": (lambda: mlp(BatchNorm()), (6, N)),
    "images": (lambda: Sequential([Conv((3, 3, 4), Gaussian(), activation=Rectlin()), Pooling(2), *mlp().layers]),
               (2, 6, 6, N)),
    "sequences": (lambda: Sequential([LSTM(5, Gaussian(), activation=Tanh(), gate_activation=Logistic(),
                                           reset_cells=True), RecurrentLast(), Linear(3, Gaussian())]), (2, 3, N)),
    "residual": (lambda: Sequential([Linear(5, Gaussian()), Residual([Linear(5, Gaussian())], activation=Rectlin()),
                                     Linear(3, Gaussian())]), (6, N)),
}  # fmt: skip


# A call ---------------------------------------------------------------------------------------------------------------


@pytest.mark.engines("numpy", "c")
@pytest.mark.compiles(2)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_call_is_fprop_and_its_derivatives_are_bprop(be64: Any, kind: str) -> None:
    make, shape = NETWORKS[kind]
    net, x, error = make(), ag.param(numbers(*shape)), numbers(3, N, seed=1)
    y = net(x)
    (y * error).sum().backprop()
    buffer = x.get().reshape((shape[0], -1) if len(shape) == 3 else (-1, N))
    found = [p.partial_derivative.get().copy() for p in net.parameters()]
    assert [p.name.rpartition(".")[0] for p in net.parameters()]
    wanted, deltas, gradients = passes(net, buffer, error)
    close(y, wanted)
    close(x.partial_derivative, deltas.reshape(shape))
    assert len(found) == len(gradients) >= 2
    for one, gradient in zip(found, gradients):
        close(one, gradient)


def test_derivatives_gather_in_the_layers_gradients(be64: Any) -> None:
    net, x = mlp(), ag.param(numbers(6, N))
    (net(x) * 2).sum().backprop()
    parameters = net.parameters()
    first = [p.partial_derivative.get().copy() for p in parameters]
    assert parameters[0].partial_derivative is net.layers[0].dW and parameters is not net.parameters()
    assert net.parameters()[0] is parameters[0] and parameters[0].value is net.layers[0].W
    net(x).sum().backprop()
    for p, before in zip(parameters, first):
        close(p.partial_derivative, 1.5 * before)
    (by_w,) = ag.grad(net(x).sum(), [parameters[1]])
    close(by_w, 0.5 * first[1])
    close(parameters[1].partial_derivative, 1.5 * first[1])  # grad() changes none
    ag.zero_grad(parameters)
    assert not net.layers[0].dW.get().any() and not parameters[0].partial_derivative.get().any()
    parameters[0].assign(numbers(5, 6, seed=3))
    close(net.layers[0].W, numbers(5, 6, seed=3))


def test_what_a_call_gives_stays(be: Any) -> None:
    net = mlp()
    y = net(ag.const(numbers(6, N)))
    before = y.get().copy()
    net(ag.const(numbers(6, N, seed=1)))
    close(y, before, 0)
    assert net(numbers(6, N)).needs_grad and not Sequential([Affine(5, Gaussian())])(numbers(6, N), True).needs_grad


def test_layers_that_work_in_place_leave_their_input_alone(be64: Any) -> None:
    x = ag.param(numbers(6, N))
    for layer, wanted in ((Activation(Tanh()), np.tanh(x.get())), (Bias(np.ones((6, 1))), x.get() + 1)):
        y = layer(x)
        close(y, wanted)
        close(x, numbers(6, N), 0)
        x.zero_grad()
        (y * numbers(6, N, seed=1)).sum().backprop()
        slope = 1 - wanted**2 if isinstance(layer, Activation) else 1
        close(x.partial_derivative, slope * numbers(6, N, seed=1))


def test_axes_go_in_and_come_out(be: Any) -> None:
    conv = Sequential([Conv((3, 3, 4), Gaussian())])
    assert conv(numbers(2, 6, 6, N)).shape == (4, 4, 4, N)
    assert conv(numbers(72, N)).shape == (64, N)
    lstm = LSTM(5, Gaussian(), activation=Tanh(), gate_activation=Logistic())
    assert lstm(numbers(2, 3, N)).shape == (5, 3, N)
    assert lstm(numbers(2, 3 * N)).shape == (5, 3 * N)
    with pytest.raises(ShapeError, match=r"configured for inputs \(2, 6, 6\) and a last axis.*got \(2, 5, 6, 4\)"):
        conv(numbers(2, 5, 6, N))


def test_a_compound_layer_and_a_model(be: Any) -> None:
    pair = Affine(3, Gaussian(), bias=Gaussian())
    x = ag.param(numbers(6, N))
    pair(x).sum().backprop()
    assert [p.shape for p in pair.parameters()] == [(3, 6), (3, 1)] and pair[1].dW.get().tolist() == [[N]] * 3
    model = Model([Affine(3, Gaussian(), activation=Softmax())])
    with pytest.raises(ArgumentError, match="there are none before the layer is allocated"):
        model.parameters()
    cost = GeneralizedCost(CrossEntropyMulti())
    for _ in range(2):
        cost(model(x), np.eye(3)[:, [0, 1, 2, 0]]).backprop()
    data: Any = ArrayIterator(np.float32(numbers(3 * N, 6)), np.arange(3 * N) % 3, nclass=3)
    model.fit(data, cost, GradientDescentMomentum(0.1, 0.9), num_epochs=2)
    assert model.epoch_index == 2 and len(model.parameters()) == 1
    probabilities = model(numbers(6, 2), inference=True)
    close(probabilities.get().sum(axis=0), np.ones(2), 1e-5)


# Several calls --------------------------------------------------------------------------------------------------------


@pytest.mark.engines("numpy", "c")
def test_one_layer_several_times_in_a_graph(be64: Any) -> None:
    """Each backward pass has the buffers that its call left: activations, a mask, the statistics of the batch."""
    net = mlp(BatchNorm(), Dropout(0.5))
    inputs = [ag.param(numbers(6, N, seed=seed)) for seed in range(3)]
    errors = [numbers(3, N, seed=5 + seed) for seed in range(3)]
    outputs, masks = [], []
    dropout = next(layer for layer in net.layers if isinstance(layer, Dropout))
    for x in inputs:
        outputs.append(net(x))
        masks.append(dropout.keep_mask.get().copy())
    assert not np.array_equal(masks[0], masks[1])
    statistics = net.layers[3].gmean.get().copy()
    sum((y * e).sum() for y, e in zip(outputs, errors)).backprop()
    found = [p.partial_derivative.get().copy() for p in net.parameters()]
    close(net.layers[3].gmean, statistics, 0)
    sums: Any = 0
    for x, e, mask, y in zip(inputs, errors, masks, outputs):
        be64.make_binary_mask = lambda out, keep, mask=mask: out.set(mask)
        try:
            wanted, deltas, gradients = passes(net, x.get(), e)
        finally:
            del be64.make_binary_mask
        close(y, wanted)
        close(x.partial_derivative, deltas)
        sums = gradients if sums == 0 else [a + b for a, b in zip(sums, gradients)]
    for one, gradient in zip(found, sums):
        close(one, gradient)


def test_states_go_on_from_call_to_call_of_a_recurrent_layer(be64: Any) -> None:
    """A backward pass through an older call does not bring its state back for the next batch."""

    def outputs(between: Any) -> Any:
        be64.rng_reset()
        layer = LSTM(5, Gaussian(), activation=Tanh(), gate_activation=Logistic())
        first, second = (layer(ag.param(numbers(2, 3, N, seed=seed))) for seed in range(2))
        between(first, second)
        return layer(numbers(2, 3, N, seed=2)).get()

    wanted = outputs(lambda first, second: None)
    close(outputs(lambda first, second: first.sum().backprop()), wanted)
    close(outputs(lambda first, second: (first.sum() + second.sum()).backprop()), wanted)


def test_inference_is_apart(be64: Any) -> None:
    net, x = mlp(BatchNorm(), Dropout(0.5)), ag.param(numbers(6, N))
    y = net(x)
    seen = net(numbers(6, 2, seed=1), inference=True)
    assert seen.shape == (3, 2) and not seen.needs_grad
    again = net(numbers(6, 2, seed=1), inference=True)
    close(again, seen.get(), 0)
    (y * y).sum().backprop()  # the buffers of the training call are back
    alone = x.partial_derivative.get().copy()
    x.zero_grad()
    loss = (net(x) ** 2).sum()
    loss.backprop()
    assert alone.any() and x.partial_derivative.get().any()
    with pytest.raises(GradientError, match="depends on no parameter"):
        seen.sum().backprop()


def test_running_the_layers_otherwise_is_noticed(be: Any) -> None:
    net, x = mlp(), ag.param(numbers(6, N))
    total = net(x).sum()
    net.fprop(x.value)
    with pytest.raises(GradientError, match="its layers were run otherwise since it was called on variables"):
        total.backprop()
    total = net(x).sum()
    net.layers[0](x)
    with pytest.raises(GradientError, match="its layers were run otherwise"):
        total.backprop()
    assert not x.partial_derivative.get().any() and not net.layers[0].dW.get().any()


def test_going_through_a_call_twice(be64: Any) -> None:
    net, x = mlp(), ag.param(numbers(6, N))
    total = net(x).sum()
    total.backprop(keep_graph=True)
    first = x.partial_derivative.get().copy()
    total.backprop(keep_graph=True)
    close(x.partial_derivative, 2 * first)
    net(x)
    with pytest.raises(GradientError, match="backprop went through this call before"):
        total.backprop()
    (slope,) = ag.grad(net(x).sum(), [x], create_graph=True)
    close(slope, first)
    with pytest.raises(GradientError, match="a layer has a gradient, but no second derivative"):
        slope.sum().backprop()


def test_the_memory_of_a_call_goes_with_its_graph(be64: Any) -> None:
    net, x = mlp(), ag.param(numbers(6, N))
    gc.collect()
    before = ag.memory_report()
    y = net(x)
    assert ag.memory_report().intermediate_bytes - before.intermediate_bytes == y.value.nbytes
    y.sum().backprop()
    del y
    assert ag.memory_report().intermediates == before.intermediates
    net(x)
    assert net._calls.latest is None  # nothing is put aside for a pass that is over


# Optimizers -----------------------------------------------------------------------------------------------------------


@pytest.mark.engines("numpy", "c")
def test_one_optimizer_steps_layers_and_parameters(be64: Any) -> None:
    net, scale = mlp(), ag.param(np.ones((3, 1)))
    x, targets, descent = ag.const(numbers(6, N)), numbers(3, N, seed=1), GradientDescentMomentum(0.1, 0.9)
    losses = []
    for _ in range(20):
        total = ((net(x) * scale - targets) ** 2).sum()
        ag.zero_grad([*net.parameters(), scale])
        total.backprop()
        losses.append(total.item())
        descent.optimize([*net.layers_to_optimize, scale], epoch=0)
    assert losses[-1] < 0.1 * losses[0] and not np.array_equal(scale.get(), np.ones((3, 1)))
    assert len(descent._steps) == 1 and len(net.layers[0].states) == 1
    descent.optimize([*net.parameters(), scale], epoch=0)  # the same tensors, by other names
    assert len(descent._steps) == 1
    with pytest.raises(GradientError, match="is no parameter, which an optimizer could update"):
        descent.optimize([x], epoch=0)


# What is refused ------------------------------------------------------------------------------------------------------


class Doubled(ParameterLayer):
    """A layer of a user's own, which hands no error on."""

    def configure(self, in_obj: Any) -> Any:
        super().configure(in_obj)
        self.out_shape, self.weight_shape = self.in_shape, (1, 1)
        return self

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        self.inputs = inputs
        self.outputs[:] = inputs * self.W
        return self.outputs

    def bprop(self, error: Any) -> Any:
        self.dW[:] = self.be.sum(self.be.sum(error * self.inputs, axis=0), axis=1)


def test_what_has_no_derivative_is_said(be64: Any) -> None:
    own, x = Doubled(np.full((1, 1), 2.0)), ag.param(numbers(6, N))
    own(ag.const(numbers(6, N))).sum().backprop()
    close(own.parameters()[0].partial_derivative, [[numbers(6, N).sum()]])
    for layer in (own, DataTransform(Normalizer())):
        with pytest.raises(GradientError, match="passes no error back, so its input has no derivative"):
            layer(x).sum().backprop()
    close(own.parameters()[0].partial_derivative, [[numbers(6, N).sum()]])
    with pytest.raises(DTypeError, match="is not a transform object"):  # a layer can be called, but is none
        Activation(Linear(2, Gaussian()))
    streams = MergeMultistream([Linear(2, Gaussian()), Linear(3, Gaussian())], merge="stack")
    assert streams([numbers(6, N), numbers(5, N)]).shape == (5, N)
    with pytest.raises(GradientError, match="hands no errors on to several inputs"):
        streams([x, numbers(5, N)])
