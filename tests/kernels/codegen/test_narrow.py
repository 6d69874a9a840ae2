"""Integer expressions in lanes of 8, 16 and 32 bits: the same bits as int64, saturated when stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.codegen.emit import make_kernel
from neonlike.kernels.codegen.narrow import find_narrow
from neonlike.kernels.planning.graph import linearize

pytestmark = pytest.mark.optree

EXPRESSIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a*b + a": lambda F, a, b: a * b + a,
    "a + b": lambda F, a, b: a + b,
    "a - b": lambda F, a, b: a - b,
    "numbers": lambda F, a, b: a * 3 - b + 100,
    "clip": lambda F, a, b: F.minimum(F.maximum(a, -5), 7) + b,
    "bits": lambda F, a, b: (a & b) ^ (~a | b),
    "many": lambda F, a, b: -a * a + abs(b) * 2 - F.sign(a) * b,
    "cube": lambda F, a, b: a * a * a * b,
}
"""Of the backend's functions or NumPy's."""
DTYPES = (
    ("int8", "int8", "int8"), ("uint8", "uint8", "uint8"), ("int16", "int16", "int16"), ("int32", "int32", "int32"),
    ("uint32", "uint32", "uint32"), ("int8", "uint8", "int16"), ("uint16", "int16", "uint16"),
    ("uint32", "int32", "uint8"), ("int32", "int8", "int64"), ("int8", "int16", "bool"),
)  # fmt: skip
"""Of a, b and the target."""
ROWS, COLUMNS = 3, 1100
"""Columns: more than are checked at once, and no multiple of a vector."""


def saturated(wide: Any, dtype: str) -> Any:
    """Expected values of int64 numbers stored as ``dtype``."""
    if dtype == "bool":
        return wide != 0
    limits = np.iinfo(dtype)
    return np.clip(wide, limits.min, limits.max).astype(dtype)


def small(rng: Any, dtype: str) -> Any:
    return np.clip(rng.integers(-9, 10, (ROWS, COLUMNS)), np.iinfo(dtype).min, None).astype(dtype)


def any_size(rng: Any, dtype: str) -> Any:
    """All that the dtype holds, its ends too."""
    limits = np.iinfo(dtype)
    made = rng.integers(limits.min, limits.max, (ROWS, COLUMNS), dtype=dtype, endpoint=True)
    made.flat[:6] = [limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1]
    return made


def exact(name: str, a: Any, b: Any) -> Any:
    with np.errstate(over="ignore"):
        return EXPRESSIONS[name](np, a.astype(np.int64), b.astype(np.int64))


@pytest.mark.parametrize("dtypes", DTYPES, ids="-".join)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_results_are_those_of_int64(be: Backend, rng: Any, name: str, dtypes: tuple[str, str, str]) -> None:
    for make in (small, any_size):
        x, y = make(rng, dtypes[0]), make(rng, dtypes[1])
        a, b, out = be.array(x, dtype=dtypes[0]), be.array(y, dtype=dtypes[1]), be.zeros(x.shape, dtype=dtypes[2])
        out[:] = EXPRESSIONS[name](be, a, b)
        np.testing.assert_array_equal(out.get(), saturated(exact(name, x, y), dtypes[2]), make.__name__)


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("in_place", [False, True])
def test_one_large_number_anywhere(be: Backend, rng: Any, dtype: str, in_place: bool) -> None:
    """Whatever was stored before it was found is stored again; in place it is found before."""
    for at in (0, 15, 1023, 1024, COLUMNS - 1, ROWS * COLUMNS - 1):
        for size in (1 << 14, 1 << 15, 1 << 16, 1 << 24, (1 << 31) - 1):
            x, y = small(rng, dtype), small(rng, dtype)
            x.flat[at] = size
            y.flat[at] = 60000
            a, b = be.array(x, dtype=dtype), be.array(y, dtype=dtype)
            out = a if in_place else be.zeros(x.shape, dtype=dtype)
            out[:] = a * b + a
            np.testing.assert_array_equal(out.get(), saturated(exact("a*b + a", x, y), dtype), f"{size} at {at}")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_numbers_of_any_size(be: Backend, rng: Any, dtype: str) -> None:
    x = any_size(rng, dtype)
    a, out = be.array(x, dtype=dtype), be.zeros(x.shape, dtype=dtype)
    for number in (0, 1, -1, 127, 128, -128, -129, 255, 1 << 15, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1, 1 << 40):
        for name, made, expected in (
            ("+", a + number, x.astype(np.int64) + number),
            ("*", a * number, x.astype(np.int64) * number),
            ("-", number - a, number - x.astype(np.int64)),
            ("max", be.maximum(a, number), np.maximum(x.astype(np.int64), number)),
        ):
            out[:] = made
            np.testing.assert_array_equal(out.get(), saturated(expected, dtype), f"{name} {number}")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8"])
def test_views_and_stretched_operands(be: Backend, rng: Any, dtype: str) -> None:
    x, y = any_size(rng, dtype), any_size(rng, dtype)
    a, b = be.array(x, dtype=dtype), be.array(y, dtype=dtype)
    out = be.zeros(x.shape, dtype=dtype)
    for at in (np.s_[:, ::-1], np.s_[:, :1], np.s_[:1], np.s_[1:2, 5:6]):
        out[:] = a * b[at] + a
        np.testing.assert_array_equal(out.get(), saturated(exact("a*b + a", x, y[at]), dtype), str(at))
        out[:, ::-1] = a - b[at]
        np.testing.assert_array_equal(out.get()[:, ::-1], saturated(exact("a - b", x, y[at]), dtype), str(at))


@pytest.mark.cpu_only("the lanes of C kernels")
def test_the_narrowest_lanes_are_taken(be: Backend) -> None:
    """Bits of the lanes and, where operands have to be checked, of these."""

    def lanes(name: str, a: str, b: str, out: str) -> Any:
        x, y, target = (be.zeros((2, 3), dtype=dtype) for dtype in (a, b, out))
        graph = linearize(((target, EXPRESSIONS[name](be, x, y)),))
        plan = be.plans.find(graph)
        found = find_narrow(make_kernel(plan, plan.stages[0], graph))
        return None if found is None else (found.dtype.name, found.bits if found.checked or found.numbers else 0)

    assert lanes("a*b + a", "int8", "int8", "int8") == ("int16", 0)
    assert lanes("a + b", "int8", "int8", "int8") == ("int8", 0), "which saturates"
    assert lanes("a + b", "int8", "int8", "int32") == ("int16", 0)
    assert lanes("a - b", "uint8", "uint8", "uint8") == ("uint8", 0)
    assert lanes("a - b", "int8", "uint8", "uint8") == ("int16", 0)
    assert lanes("bits", "int32", "int8", "int32") == ("int32", 0)
    assert lanes("a*b + a", "int16", "int16", "int8") == ("int32", 0)
    assert lanes("a*b + a", "int32", "int32", "int32") == ("int32", 15)
    assert lanes("a*b + a", "uint32", "int8", "int32") == ("int32", 24)
    assert lanes("numbers", "int8", "int8", "int8") == ("int16", 7)
    assert lanes("cube", "int32", "int32", "int32") is None, "k would be 7"
    assert lanes("a + b", "int64", "int8", "int64") is None
    assert lanes("a + b", "float32", "int8", "int8") is None
