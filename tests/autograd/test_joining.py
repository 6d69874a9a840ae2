"""Gradients of values that were read in parts: one concatenation where the parts are all of the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.optree.joining import joined
from neonlike.optree.moves import unview
from neonlike.optree.node import OpTreeNode
from neonlike.optree.walk import postorder
from tests.support.numbers import numbers

pytestmark = pytest.mark.engines("numpy", "c")

PARTS: dict[str, tuple[bool, Callable[[Any], list[Any]]]] = {
    "columns": (True, lambda h: [h[:, :3], h[:, 3:10], h[:, 10:]]),
    "in another order": (True, lambda h: [h[:, 10:], h[:, :3], h[:, 3:10]]),
    "rows": (True, lambda h: [h[:2], h[2:]]),
    "of heads": (True, lambda h: [h.reshape(-1, 2, 3, 2, 2)[:, :, i] for i in range(3)]),
    "one twice": (False, lambda h: [h[:, :6], h[:, 6:], h[:, 6:]]),
    "overlapping": (False, lambda h: [h[:, :7], h[:, 5:]]),
    "with a gap": (False, lambda h: [h[:, :5], h[:, 6:]]),
    "backwards": (False, lambda h: [h[:, 5::-1], h[:, 6:]]),
    "every other": (False, lambda h: [h[:, ::2], h[:, 1::2]]),
    "quarters": (False, lambda h: [h[:2, :6], h[:2, 6:], h[2:, :6], h[2:, 6:]]),
}
"""Name -> whether the gradient is a concatenation, and parts of a (6, 12) value."""


@pytest.mark.compiles(3)
@pytest.mark.parametrize("name", PARTS)
def test_gradients_of_parts(be: Any, name: str) -> None:
    joins, parts_of = PARTS[name]
    x, w = ag.param(numbers(6, 5)), ag.param(numbers(5, 12, seed=1))
    parts = parts_of(x @ w)
    factors = [numbers(*part.shape, seed=n) for n, part in enumerate(parts, 2)]
    total = sum(((part * factor).sum() for part, factor in zip(parts, factors)), ag.const(np.zeros((1, 1))))
    lazy = ag.grad(total, [x], create_graph=True)[0]
    total.backprop()
    gradient = np.zeros((6, 12))
    places = np.arange(72.0).reshape(6, 12)
    for where, factor in zip(parts_of(ag.const(places)), factors):
        np.add.at(gradient.reshape(-1), where.get().astype(int).reshape(-1), factor.reshape(-1))
    np.testing.assert_allclose(x.partial_derivative.get(), gradient @ w.get().T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(w.partial_derivative.get(), x.get().T @ gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(lazy.get(), gradient @ w.get().T, rtol=1e-4, atol=1e-5)
    names = {node.spec.name for node in postorder(lazy._expr)}
    assert ("concat" in names, "unview" in names) == (joins, not joins)


def test_derivatives_of_joined_gradients(be: Any) -> None:
    def function(x: Any, w: Any) -> Any:
        h = x @ w
        q, k = h[:, :2], h[:, 2:]
        (gradient,) = ag.grad((q * k * k).sum(), [x], create_graph=True)
        return gradient * gradient

    assert ag.check_gradient(function, numbers(3, 2), numbers(2, 4, seed=1)) < 1e-5


def test_what_is_no_sum_of_windows_stays(be: Any) -> None:
    x, y = be.array(numbers(2, 3)), be.array(numbers(2, 3, seed=1))
    left, right = unview(x * 2, (2, 6), ((2, 3), (6, 1), 0)), unview(y * 2, (2, 6), ((2, 3), (6, 1), 3))
    for total in (x, left, left + be.ones((2, 6)), left + right * 2, left + left, left + right + be.ones((1, 1))):
        assert joined(total) is total
    found = joined(right + left)
    assert isinstance(found, OpTreeNode) and found.shape == (2, 6)
    np.testing.assert_array_equal(found.get(), 2 * np.hstack([x.get(), y.get()]))
