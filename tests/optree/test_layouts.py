"""Elementwise expressions on operands and targets that lie in memory in any direction and order of axes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import stage as stage_c
from neonlike.kernels.c.fit import fit
from neonlike.kernels.c.schedule import REVERSED, TURNED, CSchedule
from neonlike.kernels.planning.plan import StageKind
from tests.support.engines import use_threads

pytestmark = pytest.mark.optree

DTYPES = ("float32", "float16", "int8")
SHAPES = ((5, 37), (3, 12, 5, 29), (40, 70), (2, 3000))
"""Odd sizes; rows shorter and longer than a vector and than a strip."""
ORDERS = {2: ((0, 1), (1, 0)), 4: ((0, 2, 1, 3), (1, 0, 3, 2), (3, 1, 2, 0))}


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    """Whole numbers, whose sums every dtype holds."""
    return rng.integers(-50, 50, shape).astype(dtype)


def directions(rank: int) -> list[tuple[slice, ...]]:
    return [tuple(slice(None, None, step) for step in steps) for steps in itertools.product((1, -1), repeat=rank)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_direction_in_any_order(be: Backend, rng: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Inputs, and then the target, run backwards along any of their axes, beside operands that do not."""
    x, y = whole(rng, shape, dtype), whole(rng, shape, dtype)
    a, b = be.array(x, dtype=dtype), be.array(y, dtype=dtype)
    for at, order in itertools.product(directions(len(shape)), ORDERS[len(shape)]):
        expected = x.transpose(order)[at] + y.transpose(order)
        out = be.zeros(expected.shape, dtype=dtype)
        out[:] = be.transpose(a, order)[at] + be.transpose(b, order)
        np.testing.assert_array_equal(out.get(), expected, f"{at} of {order}")
        out[at] = be.transpose(a, order) - 1
        np.testing.assert_array_equal(out.get()[at], x.transpose(order) - 1, f"written {at} of {order}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_windows_that_begin_anywhere_and_run_backwards(be: Backend, rng: Any, dtype: str, step: int) -> None:
    x = whole(rng, (70, 1000), dtype)
    a, out = be.array(x, dtype=dtype), be.zeros((70, 1000), dtype=dtype)
    for first, last in ((999, 0), (998, 1), (700, 689), (300, 33), (16, 0)):
        at = np.s_[::-step, first:last:-step]
        part = x[at]
        window = np.s_[: part.shape[0], 1 : 1 + part.shape[1]]
        out[:] = 7
        out[window] = a[at] + a[window]
        expected = np.full((70, 1000), 7, dtype)
        expected[window] = part + x[window]
        np.testing.assert_array_equal(out.get(), expected, f"{first} to {last}, {step} apart")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("shape", [(6, 5), (300, 333)], ids=str)
def test_what_is_turned_round_in_place(be: Backend, rng: Any, shape: Any, axes: Any, dtype: str) -> None:
    """The target is under the operand that is read backwards."""
    x = whole(rng, shape, dtype)
    at = tuple(slice(None, None, -1) if axis in axes else slice(None) for axis in (0, 1))
    a = be.array(x, dtype=dtype)
    a[:] = a[at]
    np.testing.assert_array_equal(a.get(), np.ascontiguousarray(x[at]))
    a[at] = a * 2
    np.testing.assert_array_equal(a.get(), x * 2)
    a[:, :-1] = a[:, :0:-1]
    np.testing.assert_array_equal(a.get()[:, :-1], (x * 2)[:, :0:-1])


@pytest.mark.compiles(8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (0, 2, 3, 1), (3, 2, 1, 0)], ids=str)
@pytest.mark.parametrize("count", [1, 3])
def test_short_rows_in_any_order_on_any_threads(
    be: Backend, rng: Any, monkeypatch: Any, count: int, order: tuple[int, ...], dtype: str
) -> None:
    """Threads begin in the middle of axes, and go on from one to the next."""
    use_threads(monkeypatch, count)
    monkeypatch.setattr(stage_c, "PARALLEL_WORK", 1)
    x = whole(rng, (23, 9, 31, 8), dtype)
    copied = be.transpose(be.array(x, dtype=dtype), order)
    out = be.zeros(copied.shape, dtype=dtype)
    out[:] = copied
    np.testing.assert_array_equal(out.get(), x.transpose(order))
    out[:, 1:-1, :, ::2] = copied[:, 1:-1, :, ::2] * 2
    np.testing.assert_array_equal(out.get()[:, 1:-1, :, ::2], x.transpose(order)[:, 1:-1, :, ::2] * 2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_past_the_caches_backwards(be: Backend, rng: Any, monkeypatch: Any, dtype: str) -> None:
    monkeypatch.setattr(stage_c, "STREAMED_BYTES", 0)
    for shape in ((3, 777), (40, 1024)):
        x, y = whole(rng, shape, dtype), whole(rng, shape, dtype)
        a, b = be.array(x, dtype=dtype), be.array(y, dtype=dtype)
        for at in directions(2):
            out = be.zeros(shape, dtype=dtype)
            out[:] = a[at] + b
            np.testing.assert_array_equal(out.get(), x[at] + y)
            out[at] = a + b[at]
            np.testing.assert_array_equal(out.get()[at], x + y[at])


def test_axes_are_put_in_the_order_of_memory() -> None:
    """The target's axes are ordered; an operand along another axis than the innermost is turned."""

    class Stage:
        kind, axes = StageKind.ELEMENTWISE, ()

    x = np.zeros((16, 32, 48), np.float32)

    def schedule(*arrays: Any) -> CSchedule:
        found = fit(Stage(), arrays[-1].shape, list(arrays), len(arrays) - 1)  # type: ignore[arg-type]
        assert found is not None
        return found.schedule

    assert schedule(x, x) == CSchedule("flat", 1, (1, 1))
    assert schedule(x[::-1, ::-1, ::-1], x) == CSchedule("flat", 1, (REVERSED, 1))
    assert schedule(x, x[::-1, ::-1, ::-1]) == CSchedule("flat", 1, (1, REVERSED))
    assert schedule(x.transpose(2, 0, 1), x.transpose(2, 0, 1)) == CSchedule("flat", 1, (1, 1))
    assert schedule(x[:, ::-1], x) == CSchedule("nested", 3, (1, 1))
    assert schedule(x[:, :, ::-1], x) == CSchedule("nested", 2, (REVERSED, 1))
    assert schedule(x[:, :, ::2], np.zeros((16, 32, 24), np.float32)) == CSchedule("flat", 1, (2, 1))
    y = np.zeros((48, 32, 16), np.float32)
    assert schedule(x.transpose(2, 1, 0), y) == CSchedule("turned", 3, (TURNED, 1))
    assert schedule(x.transpose(2, 1, 0)[::-1], y) == CSchedule("turned", 3, (-TURNED, 1))
    assert schedule(x.transpose(2, 1, 0), y, y) == CSchedule("turned", 3, (TURNED, 1, 1))


def test_a_schedule_says_what_is_special_of_it() -> None:
    """It is a key, and short where people read it."""
    plain = CSchedule("columns", 1, (1, 0))
    packed = CSchedule("columns", 1, (1, 0), packed=True, streamed=True)
    assert repr(plain) == "CSchedule('columns', 1, (1, 0))"
    assert repr(packed) == "CSchedule('columns', 1, (1, 0), streamed=True, packed=True)"
    assert eval(repr(packed)) == packed != plain
    assert len({plain, packed, CSchedule("columns", 1, (1, 0))}) == 2
