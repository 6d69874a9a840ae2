"""Every pair of a last activation and a cost trains by the gradient of the cost, whatever the targets.

Compared with central differences of the cost by the inputs of the activation, in float64.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend
from neonlike.errors import ArgumentTypeError, DTypeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import (
    Activation,
    Affine,
    BranchNode,
    Dropout,
    GeneralizedCost,
    GeneralizedCostMask,
    Linear,
    Multicost,
    Sequential,
    Tree,
)  # fmt: skip
from neonlike.layers.core import cost as cost_module
from neonlike.models import Model
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import Cost, CrossEntropyMulti, Logistic, SmoothL1Loss, Softmax, SumSquared  # fmt: skip
from tests.fuzz.pairs import ACTIVATIONS, COSTS, differences

ROWS, N = 6, 4
pytestmark = [pytest.mark.samples(N), pytest.mark.engines("numpy", datatype=np.float64), pytest.mark.backend]

TARGETS: dict[str, Any] = {
    "one-hot": np.eye(ROWS)[:, [0, 5, 2, 2]],
    "masked and weighted": np.eye(ROWS)[:, [0, 5, 2, 2]] * [0.0, 1.0, 2.5, 0.0],
    "any": np.random.default_rng(3).uniform(0, 1, (ROWS, N)),
}


def start() -> Any:
    """Inputs of the activation, away from kinks, positive where a logarithm follows the identity."""
    return np.random.default_rng(1).uniform(0.15, 0.8, (ROWS, N))


def network(be: Backend, *layers: Any) -> Model:
    """Inputs go through a unit matrix, so their gradient is the error that the activation passes on."""
    first = Linear(ROWS, init=Gaussian())
    model = Model([first, *layers])
    model.initialize(ROWS)
    first.W[:] = np.eye(ROWS)
    return model


def check(be: Backend, layers: Callable[[], list[Any]], cost: Any, targets: Any) -> None:
    """The gradient of the weights of the first layer, dC/dz x', against differences of the cost by z."""
    x = start()
    model = network(be, *layers())
    cost.initialize(model.layers)

    def value(z: Any) -> float:
        y = model.fprop(be.array(z), inference=True)
        return float(cost.get_cost(y, targets).item()) * N

    wanted = differences(value, x)
    y = model.fprop(be.array(x))
    model.bprop(cost.get_errors(y, targets))
    got = model.layers.layers[0].dW.get()
    np.testing.assert_allclose(got, wanted @ x.T, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_pair(be: Backend, activation: str, cost: str, targets: str) -> None:
    made = GeneralizedCost(COSTS[cost][0]())
    check(be, lambda: [Activation(ACTIVATIONS[activation][0]())], made, be.array(TARGETS[targets]))


@pytest.mark.parametrize("cost", ["CrossEntropyBinary", "CrossEntropyMulti", "SumSquared"])
@pytest.mark.parametrize("activation", ["Softmax", "Logistic", "Logistic(shortcut)", "Tanh"])
@pytest.mark.parametrize("columns", ["columns", "elements"])
def test_pairs_with_a_mask(be: Backend, activation: str, cost: str, columns: str) -> None:
    mask = np.random.default_rng(2).integers(0, 2, (ROWS, N)).astype(float)
    if columns == "columns":
        mask[:] = [1, 0, 0, 1]
    targets = be.array(TARGETS["any"]), be.array(mask)
    made = GeneralizedCostMask(COSTS[cost][0](), weights=0.7)
    check(be, lambda: [Activation(ACTIVATIONS[activation][0]())], made, targets)


@pytest.mark.parametrize("cost", ["CrossEntropyMulti", "SumSquared"])
@pytest.mark.parametrize("activation", ["Softmax", "Logistic(shortcut)"])
def test_activations_within_a_network(be: Backend, activation: str, cost: str) -> None:
    """Behind which no cost comes that contains their derivative."""

    def layers() -> list[Any]:
        return [Activation(ACTIVATIONS[activation][0]()), Linear(ROWS, init=Constant(0.3)), Activation(Logistic())]

    check(be, layers, GeneralizedCost(COSTS[cost][0]()), be.array(TARGETS["any"]))


def test_each_branch_of_a_tree_has_its_pair(be: Backend) -> None:
    softmax, squares = GeneralizedCost(CrossEntropyMulti()), GeneralizedCost(SumSquared())
    first, node = Linear(ROWS, init=Gaussian()), BranchNode("here")
    layers = Tree([[first, node, Activation(Softmax())], [node, Linear(3, Constant(0.2)), Activation(Softmax())]])
    cost = Multicost([softmax, squares])
    model = Model(layers)
    model.initialize(ROWS, cost)
    assert [one.activation is not None for one in cost.costs] == [True, True]
    y = model.fprop(be.array(start()))
    t = [be.array(TARGETS["masked and weighted"]), be.zeros((3, N))]
    errors = cost.get_errors(y, t)
    y0, y1 = (one.get() for one in y)
    t0 = TARGETS["masked and weighted"]
    np.testing.assert_allclose(errors[0].get(), y0 * t0.sum(0) - t0, atol=1e-12)
    np.testing.assert_allclose(errors[1].get(), y1 * (y1 - (y1 * y1).sum(0)), atol=1e-12)


@pytest.mark.parametrize("cost", ["CrossEntropyBinary", "CrossEntropyMulti", "MeanSquared"])
@pytest.mark.parametrize("activation", ["Softmax", "PixelwiseSoftmax", "Logistic(shortcut)", "Logistic", "Tanh"])
@pytest.mark.parametrize("targets", TARGETS)
def test_pairs_on_variables(be: Backend, activation: str, cost: str, targets: str) -> None:
    x, t = start(), TARGETS[targets]
    layer = Sequential([Linear(ROWS, init=Gaussian()), Activation(ACTIVATIONS[activation][0]())])
    function = GeneralizedCost(COSTS[cost][0]())

    def value(z: Any) -> Any:
        return function(layer(z), t)

    variable = ag.param(be.array(x))
    value(variable)
    layer.layers[0].W[:] = np.eye(ROWS)
    value(variable).backprop()
    wanted = differences(lambda z: float(np.asarray(value(ag.const(be.array(z))).value.get()).item()), x)
    np.testing.assert_allclose(variable.partial_derivative.get(), wanted, rtol=1e-6, atol=1e-7)


def test_one_hot_targets_have_the_bits_of_neon(be: Backend) -> None:
    model = network(be, Activation(Softmax()))
    cost = GeneralizedCost(CrossEntropyMulti())
    cost.initialize(model.layers)
    y, t = model.fprop(be.array(start())), be.array(TARGETS["one-hot"])
    assert np.array_equal(cost.get_errors(y, t).get(), y.get() - t.get())


# Cost functions of a user's, and neon's dialect -----------------------------------------------------------------------


class Own(Cost):
    """Written for a softmax before it, as neon's are."""

    def __call__(self, y: Any, t: Any) -> Any:
        return -self.be.sum(t * self.be.safelog(y), axis=0)

    def bprop(self, y: Any, t: Any) -> Any:
        return y - t


class OwnByOutputs(Own):
    """A cost function with the derivative by the outputs."""

    by_outputs = True

    def bprop(self, y: Any, t: Any) -> Any:
        return -t / y


class Changed(CrossEntropyMulti):
    """One of ours with another gradient."""

    def bprop(self, y: Any, t: Any) -> Any:
        return 3 * (y - t)


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Any:
    cost_module._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, "neon"):
        yield lambda: [r.getMessage() for r in caplog.records if "is not the derivative of the two" in r.getMessage()]


def test_cost_functions_of_a_users_are_taken_as_written(be: Backend, warned: Any) -> None:
    t = be.array(TARGETS["any"])
    for function, factor in ((Own(), 1), (Changed(), 3)):
        model = network(be, Activation(Softmax()))
        cost = GeneralizedCost(function)
        cost.initialize(model.layers)
        y = model.fprop(be.array(start()))
        np.testing.assert_allclose(cost.get_errors(y, t).get(), factor * (y.get() - t.get()), atol=1e-12)
        assert f"the gradient of {type(function).__name__} behind Softmax" in warned()[-1]
        cost.initialize(model.layers)
    assert len(warned()) == 2
    check(be, lambda: [Activation(Softmax())], GeneralizedCost(OwnByOutputs()), be.array(TARGETS["any"]))
    assert len(warned()) == 2


@pytest.mark.parametrize(
    ("activation", "cost", "words"),
    [
        ("Softmax", "SumSquared", "SumSquared behind Softmax"),
        ("Logistic", "CrossEntropyBinary", "CrossEntropyBinary behind another activation"),
        ("Softmax", "CrossEntropyMulti", ""),
        ("Logistic(shortcut)", "CrossEntropyBinary", ""),
        ("Tanh", "SumSquared", ""),
    ],
)
def test_neons_dialect_keeps_its_gradient_and_says_so_once(
    be: Backend, warned: Any, activation: str, cost: str, words: str
) -> None:
    with neon_dialect():
        model = network(be, Activation(ACTIVATIONS[activation][0]()))
        made = GeneralizedCost(COSTS[cost][0]())
        for _ in range(2):
            made.initialize(model.layers)
        y, t = model.fprop(be.array(start())), be.array(TARGETS["any"])
        np.testing.assert_allclose(made.get_errors(y, t).get(), y.get() - t.get(), atol=1e-12)
    assert len(warned()) == bool(words)
    assert all(words in text for text in warned())


def test_dropout_behind_a_softmax(be: Backend) -> None:
    """Then the cost is not the softmax's: each has its own derivative."""
    model = network(be, Activation(Softmax()), Dropout(keep=1.0))
    cost = GeneralizedCost(CrossEntropyMulti())
    cost.initialize(model.layers)
    assert cost.activation is None
    x, t = start(), TARGETS["any"]
    y = model.fprop(be.array(x))
    model.bprop(cost.get_errors(y, be.array(t)))
    p = np.exp(x) / np.exp(x).sum(0)
    np.testing.assert_allclose(model.layers.layers[0].dW.get(), (p * t.sum(0) - t) @ x.T, atol=1e-9)


def test_affine_ends_in_its_activation(be: Backend) -> None:
    model = Model([Affine(nout=ROWS, init=Gaussian(), activation=Softmax())])
    cost = GeneralizedCost(SumSquared())
    model.initialize(5, cost)
    assert isinstance(cost.activation, Softmax)


@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_smooth_l1_of_large_and_infinite_differences(be: Backend, sigma: float) -> None:
    x = np.array([[1e20, -1e20, np.inf, -np.inf, 1e200, 0.01, np.nan, 0.0]])
    cost, y, t = SmoothL1Loss(sigma), be.array(x), be.zeros(x.shape)
    size = np.abs(x)
    expected = np.where(size < 1 / sigma**2, 0.5 * (x * sigma) ** 2, size - 0.5 / sigma**2)
    np.testing.assert_allclose(cost(y, t).get(), expected)
    np.testing.assert_allclose(cost.bprop(y, t).get(), np.clip(x * sigma**2, -1, 1))


def test_what_is_no_activation_is_named(be: Backend) -> None:
    """Found by random wrong arguments: the error was that a module has no attribute ``through``."""
    x = be.ones((ROWS, N))
    for wrong in (np, 3, Softmax):
        with pytest.raises(ArgumentTypeError, match=r"slope_before: activation must have through\(\), as Rectlin"):
            GeneralizedCost(SumSquared()).slope_by(wrong, x, x)
    with pytest.raises(DTypeError, match="cannot use"):
        SumSquared().slope_before(Softmax(), [], x, object())
