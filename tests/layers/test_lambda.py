"""Functions of variables as layers: passes, gradients through networks, storage, and errors."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, Conv, GeneralizedCost, Lambda, Linear, MergeSum, Sequential
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, RMSProp
from neonlike.transforms import CrossEntropyMulti, Softmax, Tanh
from tests.layers.layering import check_gradients, ready
from tests.support.numbers import close, numbers

N = 4
pytestmark = [pytest.mark.engines("numpy"), pytest.mark.samples(N)]


def swish(x: Any, w: Any) -> Any:
    return x * ag.sigmoid(w * x)


def halves(x: Any) -> Any:
    return x[:3] * x[3:]


def scale_of_maps(x: Any, w: Any) -> Any:
    """A weight a map, by the mean of the map: images (C, H, W, N)."""
    return x * ag.sigmoid(w * ag.mean(x, axis=(1, 2)))


SWISH = {"w": (lambda shape: (shape[0], 1), Gaussian())}


@pytest.mark.engines("numpy", "c")
@pytest.mark.compiles(1)
@pytest.mark.parametrize(
    ("make", "shape", "out"),
    [
        (lambda: [Linear(6, Gaussian()), Lambda(swish, SWISH), Linear(2, Gaussian())], (5,), (6, 1)),
        (lambda: [Linear(6, Gaussian()), Lambda(halves), Linear(2, Gaussian())], (5, 2), (3, 2)),
        (lambda: [Conv((3, 3, 2), Gaussian()), Lambda(scale_of_maps, {"w": (2, 1, 1, 1)}), Linear(2, Gaussian())],
         (1, 5, 4), (2, 3, 2)),
        (lambda: [Linear(6, Gaussian()), MergeSum([Lambda(swish, SWISH), [Linear(6, Gaussian())]]),
                  Linear(2, Gaussian())], (5,), (6, 1)),
    ],
)  # fmt: skip
def test_gradients_through_a_network(be64: Any, make: Any, shape: Any, out: Any) -> None:
    net = ready(Sequential(make()), shape)
    assert net.layers[1].out_shape == out
    rows = shape[0] if len(shape) == 2 else int(np.prod(shape))
    columns = N * shape[1] if len(shape) == 2 else N
    check_gradients(net, numbers(rows, columns), np.random.default_rng(1))


@pytest.mark.engines("numpy", "c")
def test_it_computes_what_the_function_says(be64: Any) -> None:
    layer = ready(Lambda(swish, {"w": np.full((5, 1), 2.0)}), 5)
    x, error = numbers(5, N), numbers(5, N, seed=1)
    y = layer.fprop(be64.array(x))
    s = 1 / (1 + np.exp(-2 * x))
    close(y, x * s)
    close(layer.fprop(be64.array(x[:, :2]), inference=True), (x * s)[:, :2])
    layer.fprop(be64.array(x))
    before = layer.deltas.fill(1).get().copy()
    deltas = layer.bprop(be64.array(error), 2.0, 3.0)
    close(deltas, 2 * error * (s + 2 * x * s * (1 - s)) + 3 * before)
    wanted = (error * x * x * s * (1 - s)).sum(axis=1, keepdims=True)
    close(layer.gradients["w"], wanted)
    layer.allocate(accumulate_updates=True)
    layer.set_acc_on(True)
    layer.bprop(be64.array(error))
    close(layer.gradients["w"], 2 * wanted)


def test_functions_know_whether_the_network_is_trained(be64: Any) -> None:
    def noisy(x: Any, inference: bool) -> Any:
        return x if inference else ag.dropout(x, 0.5)

    before = be64.rng_get_state()
    layer = ready(Lambda(noisy), 5)
    assert np.array_equal(before[1], be64.rng_get_state()[1])  # asking for the shape draws nothing
    x = be64.array(numbers(5, N))
    close(layer.fprop(x, inference=True), x.get(), 0)
    y = layer.fprop(x).get().copy()
    assert (y == 0).any() and not layer.has_params
    close(layer.bprop(be64.ones((5, N))).get() * x.get(), y)  # with the same elements


def test_on_variables(be64: Any) -> None:
    net = Sequential([Linear(6, Gaussian()), Lambda(swish, SWISH, name="gate"), Linear(2, Gaussian())])
    x = ag.param(numbers(5, N))
    ((net(x) * net(x * 2)) ** 2).sum().backprop()
    assert [p.name for p in net.parameters()][1] == "gate.w"
    first, gate, last = net.parameters()
    weights = [ag.param(p.get()) for p in (first, gate, last)]

    def chain(v: Any) -> Any:
        return weights[2] @ swish(weights[0] @ v, weights[1])

    other = ag.param(numbers(5, N))
    ((chain(other) * chain(other * 2)) ** 2).sum().backprop()
    close(x.partial_derivative, other.partial_derivative.get())
    for p, weight in zip((first, gate, last), weights):
        close(p.partial_derivative, weight.partial_derivative.get())


def make_model(function: Any = swish) -> Model:
    gate = Lambda(function, {"w": ((8, 1), Constant(1.0))}, name="gate")
    return Model([Affine(8, Gaussian(), activation=Tanh()), gate, Affine(3, Gaussian(), activation=Softmax())])


def test_training_saving_and_loading(be: Any, tmp_path: Path) -> None:
    data: Any = ArrayIterator(np.float32(numbers(4 * N, 5)), np.arange(4 * N) % 3, nclass=3)
    model, cost = make_model(), GeneralizedCost(CrossEntropyMulti())
    model.fit(data, cost, RMSProp(learning_rate=0.01), num_epochs=2)
    gate = model.layers.layers[2]
    assert len(gate.states) == 1 and len(gate.states[0]) == 1 and np.abs(gate.w.get() - 1).max() > 1e-3
    assert "gate" in model.explain() and "runs swish with w 8x1" in model.explain()
    described = model.get_description()["model"]["config"]["layers"][2]
    assert described["type"] == "neonlike.layers.layer.Lambda"
    assert described["config"] == {
        "name": "gate", "function": f"{__name__}.swish", "parameters": {"w": [8, 1]}, "out_shape": (8, 1)
    }  # fmt: skip
    for name in ("model.prm", "model.pkl"):
        model.save_params(tmp_path / name)
        built = Model(str(tmp_path / name))  # from its description, with the function that is known
        built.initialize(data)
        close(built.layers.layers[2].w, gate.w.get(), 0)
        close(built.layers.layers[2].states[0][0], gate.states[0][0].get(), 0)
        close(built.get_outputs(data), model.get_outputs(data), 0)
    other = make_model(lambda x, w: x * ag.sigmoid(w * x))
    other.load_params(tmp_path / "model.prm")
    other.initialize(data)
    close(other.get_outputs(data), model.get_outputs(data), 0)
    other.fit(data, cost, RMSProp(learning_rate=0.01), num_epochs=3)
    other.save_params(tmp_path / "other.prm")
    with pytest.raises(ArgumentError, match="the function without a name of a saved Lambda is not known here"):
        Model(str(tmp_path / "other.prm"))
    with pytest.raises(ShapeError, match=r"saved parameter 'w' has shape \(8, 1\), the layer's has \(7, 1\)"):
        wrong = Model([Lambda(swish, {"w": np.ones((7, 1))})])
        wrong.layers.configure(7)
        wrong.layers.allocate()
        wrong.layers.layers[0].load_weights({"params": {"w": np.ones((8, 1))}})


def test_copies_compute_and_learn_apart(be64: Any) -> None:
    """Also after a pass, whose graph stays behind."""
    network, x = Sequential([Affine(5, Gaussian()), Lambda(swish, {"w": (5, 1)})]), ag.param(numbers(5, N))
    network(x).sum().backprop()
    for made in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert np.array_equal(made(x).get(), network(x).get())
        made(x).sum().backprop()
        gradient = made.layers[-1].gradients["w"]
        assert np.abs(gradient.get()).max() > 0 and gradient is not network.layers[-1].gradients["w"]


def test_an_optimizer_sees_its_parameters(be64: Any) -> None:
    layer = ready(Lambda(swish, {"w": np.ones((5, 1))}), 5)
    layer.fprop(be64.array(numbers(5, N)))
    layer.bprop(be64.ones((5, N)))
    gradient = layer.gradients["w"].get().copy()
    GradientDescentMomentum(0.5, 0.0).optimize([layer], 0)
    close(layer.w, 1 - 0.5 / N * gradient)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Lambda(3), DTypeError, "function must be a function of variables, got"),
        (lambda: Lambda(lambda x, w, b: x * w + b, {"w": (5, 1)}), ArgumentError,
         r"with x and the parameters \['w'\]: missing a required argument: 'b'; declare its arguments behind x"),
        (lambda: Lambda(lambda x: x, {"w": (5, 1)}), ArgumentError, "got an unexpected keyword argument 'w'"),
        (lambda: Lambda(swish, {"outputs": (5, 1)}), ArgumentError, "'outputs' cannot be the name of a parameter"),
        (lambda: Lambda(swish, {"w": (5,)}).configure(5), ShapeError, "w needs a shape of two sizes at least"),
        (lambda: Lambda(lambda x: x.T).configure(5), ShapeError, r"makes \(4, 5\) of an input \(5, 4\); its last"),
        (lambda: Lambda(lambda x: 1.0).configure(5), DTypeError, "must return a variable, got 1.0"),
        (lambda: Lambda("nowhere.f"), ArgumentError, "the function nowhere.f of a saved Lambda is not known here"),
        (lambda: ready(Lambda(lambda x: x, out_shape=6), 5).fprop(ag.const(numbers(5, N)).value), ShapeError,
         r"made \(5, 4\) of \(5, 4\), not \(6, 4\)"),
        (lambda: ready(Lambda(lambda x: x), 5).bprop(ag.const(numbers(5, N)).value), ArgumentError,
         "nothing to differentiate; call fprop"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(be: Any, make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_undeclared_parameters_are_refused(be: Any) -> None:
    w = ag.param(np.ones((5, 1)))
    with pytest.raises(ArgumentError, match="uses parameters of autograd that the layer does not know"):
        Lambda(lambda x: x * w).configure(5)
    assert Lambda(lambda x: x * w.detach()).configure(5).out_shape == (5, 1)
