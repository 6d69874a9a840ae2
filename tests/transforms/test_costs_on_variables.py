"""Costs called on variables: their gradients, with and without the activation that they are made for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.errors import ArgumentError, DTypeError, NotDefined, ShapeError
from neonlike.initializers import Gaussian
from neonlike.layers import (
    Activation,
    Affine,
    BranchNode,
    GeneralizedCost,
    GeneralizedCostMask,
    GeneralizedGANCost,
    Linear,
    Multicost,
    Sequential,
    Tree,
)
from neonlike.transforms import CrossEntropyBinary, CrossEntropyMulti, GANCost, Logistic, Softmax, SumSquared, Tanh
from tests.support.numbers import close, numbers

N = 4
pytestmark = [pytest.mark.engines("numpy"), pytest.mark.samples(N)]


@pytest.mark.engines("numpy", "c")
@pytest.mark.compiles(1)
@pytest.mark.parametrize(
    ("activation", "function"),
    [(Softmax(), CrossEntropyMulti(scale=2)), (Logistic(shortcut=True), CrossEntropyBinary()), (Tanh(), SumSquared())],
)
def test_costs_have_the_gradient_of_get_errors(be64: Any, activation: Any, function: Any) -> None:
    net, cost = Sequential([Affine(3, Gaussian(), activation=activation)]), GeneralizedCost(function)
    x, targets = ag.param(numbers(6, N)), np.eye(3)[:, [0, 1, 2, 0]]
    total = cost(net(x), targets)
    total.backprop()
    found = net.layers[0].dW.get().copy()
    cost.initialize(net)
    y = net.fprop(x.value)
    close(total.item(), N * cost.get_cost(y, be64.array(targets)).item())
    net.bprop(cost.get_errors(y, be64.array(targets)))
    close(found, net.layers[0].dW.get())


@pytest.mark.parametrize("activation", [Softmax(), Logistic(shortcut=True)])
def test_other_costs_get_the_true_derivative_of_an_activation(be64: Any, activation: Any) -> None:
    net = Sequential([Linear(3, Gaussian()), Activation(activation)])
    weights, targets = numbers(3, N, seed=1), np.eye(3)[:, [0, 1, 2, 0]]
    net(numbers(6, N))
    W, x = net.parameters()[0], be64.array(numbers(6, N))

    def value(w: Any) -> float:
        z = np.exp(w @ x.get())
        y = z / z.sum(axis=0) if isinstance(activation, Softmax) else z / (1 + z)
        return float((y * weights).sum() + 0.5 * ((y - targets) ** 2).sum())

    y = net(x)
    ((y * weights).sum() + GeneralizedCost(SumSquared())(y, targets)).backprop()
    base, direction = W.get().copy(), numbers(3, 6, seed=4)
    slope = (value(base + 1e-6 * direction) - value(base - 1e-6 * direction)) / 2e-6
    close((W.partial_derivative.get() * direction).sum(), slope, 1e-6)


def test_cross_entropy_behind_an_op_and_masks(be64: Any) -> None:
    z, targets, mask = ag.param(numbers(3, N)), np.eye(3)[:, [0, 1, 2, 0]], np.array([[1.0, 0, 1, 1]])
    y = ag.softmax(z, axis=0)
    GeneralizedCost(CrossEntropyMulti(scale=3))(y, targets).backprop()
    close(z.partial_derivative, 3 * (np.exp(z.get()) / np.exp(z.get()).sum(axis=0) - targets))
    z.zero_grad()
    GeneralizedCostMask(SumSquared(), weights=2.0)(z, (targets, mask)).backprop()
    close(z.partial_derivative, 2 * mask * (z.get() - targets))
    with pytest.raises(DTypeError, match="is called with variables"):
        GeneralizedCost(SumSquared())(be64.zeros((3, N)), targets)
    with pytest.raises(ShapeError, match=r"needs outputs \(features, columns\), got \(1, 3, 4\)"):
        GeneralizedCost(SumSquared())(z.reshape(1, 3, N), targets)
    with pytest.raises(NotDefined, match="a GAN has several gradients"):
        GeneralizedGANCost(GANCost(func="modified"))(z, targets)


def test_a_tree_has_several_results(be64: Any) -> None:
    node = BranchNode("here")
    init = Gaussian(scale=0.5)
    trunk = [Affine(5, init, activation=Tanh()), node, Affine(3, init, activation=Softmax())]
    tree = Tree([trunk, [node, Linear(2, init)]], alphas=[1.0, 1.0])
    x, targets = ag.param(numbers(6, N)), [np.eye(3)[:, [0, 1, 2, 0]], numbers(2, N, seed=1)]
    cost = Multicost([GeneralizedCost(CrossEntropyMulti()), GeneralizedCost(SumSquared())], weights=[1, 0.5])
    outputs = tree(x)
    assert [y.shape for y in outputs] == [(3, N), (2, N)]
    cost(outputs, targets).backprop()
    found = [x.partial_derivative.get().copy(), *(p.partial_derivative.get().copy() for p in tree.parameters())]
    tensors = [be64.array(t) for t in targets]
    cost.initialize(tree)
    deltas = tree.bprop(cost.get_errors(tree.fprop(be64.array(numbers(6, N))), tensors))
    for one, gradient in zip(found, [deltas, *(p.get_params()[0][1] for p in tree.parameters())]):
        close(one, gradient.get())
    with pytest.raises(ArgumentError, match="no output has a target"):
        cost(outputs, [None, None])
