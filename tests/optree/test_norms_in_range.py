"""Norms and deviations of float32 whose squares leave its range in some places and not in others.

Squares are summed in float32 first, in float64 where that is out of range: each row, block of columns or part decides
by itself. The reference is NumPy's float64.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c.fit import SPLIT
from neonlike.optree.dtypes import F64
from neonlike.optree.functions import F
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS

pytestmark = pytest.mark.engines("numpy", "c")

SHAPES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((5, 3), 1),
    ((5, 3), 0),
    ((7, 129), 1),
    ((7, 129), 0),
    ((9, 2500), 1),
    ((2500, 9), 0),
    ((700, 40), 0),
    ((40, 700), 0),
    ((3, 2 * SPLIT + 77), 1),
    ((2 * SPLIT + 77, 3), 0),
    ((100000, 2), 0),
    ((33, 65), None),
    ((1, 3 * SPLIT + 5), None),
    ((4, 6, 5, 7), (0, 3)),
    ((4, 6, 5, 7), (1, 2)),
    ((30, 4, 300), (0, 2)),
)
"""Rows that are short and long, few and many columns, axes that alternate: each form of a kernel."""
PLACES = {
    "large": lambda x: x * np.float32(3e19),
    "small": lambda x: x * np.float32(3e-25),
    "subnormal": lambda x: x * np.float32(1e-41),
    "nothing": lambda x: x * 0,
    "just within": lambda x: x * np.float32(1e-13),
    "equal": lambda x: np.full_like(x, 3.5),
}


def norm(x: Any, axis: Any) -> Any:
    return np.sqrt((x * x).sum(axis, keepdims=True))


def deviation(x: Any, axis: Any) -> Any:
    return x.std(axis, keepdims=True)


FUNCTIONS = {"norm2": norm, "std": deviation}


def agrees(be: Backend, x: Any, axis: Any, dtype: Any = np.float32) -> None:
    """Compare both functions with their reference in float64."""
    tensor = be.array(x, dtype=dtype)
    for name, reference in FUNCTIONS.items():
        found = getattr(be, name)(tensor, axis)
        out = be.empty(found.shape, dtype=np.float32)
        out[:] = found
        expected = reference(x.astype(np.float64), axis).reshape(found.shape).astype(np.float32)
        # A deviation is as exact as its mean, whose rounding is corrected for, and as numbers that have few digits.
        np.testing.assert_allclose(out.get(), expected, 1e-6 if dtype == np.float32 else 8e-3, 2e-43, err_msg=name)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("name", PLACES)
def test_some_rows_are_out_of_range(be: Backend, rng: Any, shape: Any, axis: Any, name: str) -> None:
    """In a first, a middle and a last place of each axis."""
    for place in ("nowhere", 0, -1, "middle", "everywhere"):
        x = rng.standard_normal(shape).astype(np.float32)
        for k, length in enumerate(shape) if place not in ("nowhere", "everywhere") else ():
            at = [slice(None)] * len(shape)
            at[k] = slice(length // 2, length // 2 + 1) if place == "middle" else slice(place, place + 1 or None)
            part = x.copy()
            part[tuple(at)] = PLACES[name](part[tuple(at)])
            agrees(be, part, axis)
        if place == "everywhere":
            x = PLACES[name](x)
        agrees(be, x, axis)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_what_is_not_finite(be: Backend, rng: Any, shape: Any, axis: Any) -> None:
    for value in (np.nan, np.inf, -np.inf):
        x = rng.standard_normal(shape).astype(np.float32)
        x[tuple(length // 2 for length in shape)] = value
        tensor, wide = be.array(x), x.astype(np.float64)
        found = be.norm2(tensor, axis)
        out = be.empty(found.shape)
        out[:] = found
        np.testing.assert_allclose(out.get(), norm(wide, axis).reshape(found.shape), 1e-6)


def test_bfloat16(be: Backend, rng: Any) -> None:
    x = rng.standard_normal((6, 300)).astype(ml_dtypes.bfloat16).astype(np.float32)
    for scale in (1, 2.0**66, 2.0**-80):
        for axis in (0, 1):
            agrees(be, x * np.float32(scale), axis, ml_dtypes.bfloat16)


def test_a_norm_beside_other_sums(be: Backend, rng: Any) -> None:
    """In one pass with a maximum, a sum and a variance of the same rows, and with a result of the whole space."""
    x = rng.standard_normal((6, 300)).astype(np.float32)
    x[2] *= np.float32(1e20)
    tensor, wide = be.array(x), x.astype(np.float64)
    length, most, total, unit = be.empty((6, 1)), be.empty((6, 1)), be.empty((6, 1)), be.empty((6, 300))
    be.assign_many([
        (length, be.norm2(tensor, 1)), (most, be.max(tensor, 1)), (total, be.sum(tensor, 1)),
        (unit, tensor / be.norm2(tensor, 1)),
    ])  # fmt: skip
    np.testing.assert_allclose(length.get(), norm(wide, 1), 1e-6)
    np.testing.assert_array_equal(most.get(), x.max(1, keepdims=True))
    np.testing.assert_allclose(total.get(), wide.sum(1, keepdims=True), 1e-5, 1e-4)
    np.testing.assert_allclose(unit.get(), wide / norm(wide, 1), 2e-6)


def test_two_norms_in_one_pass(be: Backend, rng: Any) -> None:
    """One is in range and the other is not, in one row or the other."""
    x, y = (rng.standard_normal((6, 300)).astype(np.float32) for _ in range(2))
    x[1] *= np.float32(1e25)
    y[:, 7] *= np.float32(1e25)
    y[4] *= np.float32(1e-35)
    a, b = be.array(x), be.array(y)
    for axis, shape in ((1, (6, 1)), (0, (1, 300)), (None, (1, 1))):
        first, second = be.empty(shape), be.empty(shape)
        be.assign_many([(first, be.norm2(a, axis)), (second, be.norm2(b, axis))])
        np.testing.assert_allclose(first.get(), norm(x.astype(np.float64), axis).reshape(shape), 1e-6)
        np.testing.assert_allclose(second.get(), norm(y.astype(np.float64), axis).reshape(shape), 1e-6)


def test_norms_of_what_rows_and_columns_are_computed_with(be: Backend, rng: Any) -> None:
    """An expression is normed in which a value of the row is computed first."""
    x, c, r = rng.standard_normal((6, 300)), rng.standard_normal((6, 1)), rng.standard_normal((1, 300))
    x[1] *= 1e20
    x[:, 11] *= 1e15
    tensor, column, row = be.array(x), be.array(c), be.array(r)
    for axis, shape in ((1, (6, 1)), (0, (1, 300))):
        out = be.empty(shape)
        out[:] = be.norm2(tensor * be.exp(column) * be.exp(row) + 2 * be.sin(column), axis)
        wanted = norm(x * np.exp(c) * np.exp(r) + 2 * np.sin(c), axis)
        np.testing.assert_allclose(out.get(), wanted, 3e-6)
        out[:] = be.norm2(tensor * (column * 3 + 1) * (row * row), axis)
        np.testing.assert_allclose(out.get(), norm(x * (c * 3 + 1) * r * r, axis), 3e-6)


def test_float64_stays_what_it_was(be: Backend, rng: Any) -> None:
    """Values that are computed of a norm in float64 have float64's digits, whatever the squares were summed in."""
    x = rng.standard_normal((6, 300)).astype(np.float32)
    tensor = be.array(x)
    for axis, shape in ((1, (6, 1)), (0, (1, 300))):
        length, parts = be.empty(shape), be.empty(x.shape, dtype=np.float64)
        length[:] = be.norm2(tensor, axis)
        parts[:] = tensor.astype(np.float64) / (be.norm2(tensor, axis).astype(np.float64) / 3 + 1)
        np.testing.assert_allclose(parts.get(), x / (length.get().astype(np.float64) / 3 + 1), 1e-15)


def test_other_uses_of_widened_squares(be: Backend, rng: Any) -> None:
    """A pass that also takes their maximum has no narrow form."""
    x = rng.standard_normal((6, 300)).astype(np.float32)
    tensor, total, most = be.array(x), be.empty((6, 1)), be.empty((6, 1), dtype=np.float64)
    squares = F.sqr(OpTreeNode(OPS["widen"], (tensor,), {"bits": 64}, tensor.shape, F64, be))
    be.assign_many([(total, F.sum(squares, 1)), (most, F.max(squares, 1))])
    wide = x.astype(np.float64) ** 2
    np.testing.assert_allclose(total.get(), wide.sum(1, keepdims=True), 1e-6)
    np.testing.assert_array_equal(most.get(), wide.max(1, keepdims=True))


def test_a_tensor_that_is_normed_in_place(be: Backend, rng: Any) -> None:
    x = rng.standard_normal((4, 500)).astype(np.float32)
    x[1] *= np.float32(1e25)
    x[3] *= np.float32(1e-30)
    for axis in (0, 1):
        tensor, wide = be.array(x), x.astype(np.float64)
        tensor[:] = tensor / be.norm2(tensor, axis)
        np.testing.assert_allclose(tensor.get(), wide / norm(wide, axis), 2e-6, 2e-45)


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.engines("c")
def test_what_is_tried_in_float32(be: Backend) -> None:
    x = be.ones((64, 1000))
    for axis in (None, 0, 1):
        assert "IN_RANGE(" in be.explain(be.norm2(x, axis)) and "IN_RANGE(" in be.explain(be.std(x, axis))
    wide = x.astype(np.float64)
    for expression in (be.sqrt(be.sum(be.square(wide), 1)), be.norm2(wide, 1), be.var(x, 1), be.sum(x * x, 0)):
        assert "IN_RANGE(" not in be.explain(expression)
