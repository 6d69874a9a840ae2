"""The reverse sweep: in whatever way gradients are asked for, they are the same; what it visits, and where it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Autodiff
from neonlike.optree import walk
from neonlike.optree.functions import F
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS
from neonlike.optree.sweep import Sweep, gradients
from neonlike.optree.tape import Rule, ruled
from tests.support.numbers import numbers
from tests.support.trees import Grower

pytestmark = pytest.mark.engines("numpy")


FUNCTIONS: dict[str, Any] = {
    "used three times": lambda x, y: F.sum(F.sin(x) * x + x),
    "broadcast": lambda x, y: F.sum(F.exp(y) * x / (2 + F.sqr(y[:1]))),
    "views": lambda x, y: F.sum(F.dot(x[:, 1:], x.T[:3, ::-1]) * y[0, 0]),
    "rules of its own": lambda x, y: F.norm2(x * y) + F.sum(F.softmax(x + y, 1) * x),
    "parts": lambda x, y: F.sum(F.sin((x * y)[:, :2]) * F.cos((x * y)[:, 2:])),
    "no gradient": lambda x, y: F.sum(F.rint(x) * x + F.argmax(x, 1) * y),
    "ties and products of zeros": lambda x, y: F.sum(F.maximum(x, 0 * x) * F.cumprod(F.rint(y) * x, 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_front_ends_agree(be64: Any, name: str) -> None:
    hosts, function = (numbers(3, 4), numbers(3, 1, seed=1)), FUNCTIONS[name]
    tensors = [be64.array(host) for host in hosts]
    wanted = [g.get() for g in Autodiff(function(*tensors), be64).get_grad_tensor(tensors)]
    variables = [ag.param(host) for host in hosts]
    root = ag.op(function)(*variables)
    found = [ag.grad(root, variables, absent="zeros", create_graph=lazy) for lazy in (False, True)]
    error = be64.ones(root.shape, dtype=root.dtype)
    leaves = [variable._expr for variable in variables]
    lazy = gradients(root._expr, error, leaves)
    found.append([lazy.get(id(leaf), 0 * leaf).astensor() for leaf in leaves])
    root.backprop()
    found.append([variable.partial_derivative for variable in variables])
    for one in found:
        for gradient, expected in zip(one, wanted):
            np.testing.assert_allclose(gradient.get(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_operands_are_listed_before_their_users(be64: Any, seed: int) -> None:
    root = Grower(be64, np.random.default_rng(seed)).grow(30).node
    listed = Sweep(root).steps.values()
    seen: set[int] = set()
    for step in listed:
        assert seen.issuperset(id(one) for one in (*step.node.operands, *step.inputs) if isinstance(one, OpTreeNode))
        seen.add(id(step.node))
    assert seen >= {id(node) for node in walk.postorder(root)} and len(seen) == len(listed)


def test_only_what_leads_to_something_wanted_is_visited(be64: Any) -> None:
    x, y = be64.array(numbers(2, 2)), be64.array(numbers(2, 2, seed=1))
    aside, way = F.exp(y), F.sin(x)
    root = F.sum(way * aside + F.rint(way))
    visited = []

    class Noting(Sweep):
        def _visit(self, step: Any) -> None:
            visited.append(step.node.spec.name)
            super()._visit(step)

    Noting(root, {id(x)}).run(be64.ones((1, 1)))
    assert visited == ["sum", "add", "mul", "sin"]


def test_partial_derivatives_end_at_what_is_wanted(be64: Any) -> None:
    x = be64.array(numbers(2, 3))
    inner = F.sin(x)
    root, error = F.sum(inner * x), be64.ones((1, 1))
    total, partial = (gradients(root, error, [x, inner], stop=stop) for stop in (False, True))
    np.testing.assert_allclose(total[id(inner)].asnumpyarray(), x.get())
    np.testing.assert_allclose(partial[id(inner)].asnumpyarray(), x.get())
    np.testing.assert_allclose(partial[id(x)].asnumpyarray(), np.sin(x.get()))
    np.testing.assert_allclose(total[id(x)].asnumpyarray(), np.sin(x.get()) + x.get() * np.cos(x.get()))
    assert gradients(root, error, [root], stop=True)[id(root)] is error
    assert gradients(root, error, [be64.ones((2, 3))]) == {}


def test_a_gradient_is_known_at_an_op_that_passes_none_on(be64: Any) -> None:
    x = ag.param([[1.2, 2.7]])
    whole = ag.op(F.rint)(x).keep_derivative()
    (whole * whole + x).sum().backprop()
    assert whole.partial_derivative.tolist() == [[2.0, 6.0]]
    assert x.partial_derivative.tolist() == [[1.0, 1.0]]
    for lazy in (False, True):
        whole = ag.op(F.rint)(x)
        (slope,) = ag.grad((whole * whole + x).sum(), [whole], create_graph=lazy)
        assert slope.tolist() == [[2.0, 6.0]]


def test_rules_may_lead_beside_the_value(be64: Any) -> None:
    """The gradient of a value that was copied goes to what it is a copy of."""
    x = be64.array([[1.0, 2.0]])
    square = x * x
    copied = ruled(square.astensor().copy(), Rule("copy", (square,), lambda F, d, z, x: (d,)))
    assert Autodiff(F.sum(copied), be64).get_grad_tensor([x])[0].tolist() == [[2.0, 4.0]]


def test_the_gradient_of_a_value_read_in_parts_is_one_concatenation(be64: Any) -> None:
    x = be64.array(numbers(4, 6))
    whole = x * 2
    left, right = F.view(whole, ((4, 2), (6, 1), 0)), F.view(whole, ((4, 4), (6, 1), 2))
    root = F.sum(F.sin(left)) + F.sum(F.exp(right))
    (gradient,) = Autodiff(root, be64).get_grad_op_tree([x])
    ops = [node.spec for node in walk.postorder(gradient)]
    assert OPS["concat"] in ops and OPS["unview"] not in ops
    expected = 2 * np.concatenate([np.cos(2 * x.get()[:, :2]), np.exp(2 * x.get()[:, 2:])], 1)
    np.testing.assert_allclose(gradient.asnumpyarray(), expected, rtol=1e-12)
