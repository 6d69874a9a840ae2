"""Stores in float16 and bfloat16 round once, to nearest, halves to even; random numbers are below 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.optree.dtypes import as_dtype
from tests.fuzz.stores import STORES, nearest

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.backend]

NARROW = ["float16", "bfloat16"]


def near_ties(name: str) -> tuple[Any, Any]:
    """float64 next to the middles between neighbours of a dtype, of both signs, and their nearest numbers in it.

    Among them subnormals, the largest, and what overflows.
    """
    dtype, rng = as_dtype(name), np.random.default_rng(0)
    last = 0x7BFF if name == "float16" else 0x7F7F
    bits = np.concatenate([np.arange(40), [0x3FF, 0x400, last - 1, last], rng.integers(0, last, 160)]).astype(np.uint16)
    low = bits.view(dtype).astype(np.float64)
    step = np.where(bits == last, low - (bits - 1).astype(np.uint16).view(dtype).astype(np.float64), 0)
    high = np.where(bits == last, low + step, (bits + 1).astype(np.uint16).view(dtype).astype(np.float64))
    middle = low + (high - low) / 2
    above = np.where(bits == last, np.inf, high)
    values, nearest = [], []
    for value in (middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0), middle * (1 + 2.0**-40), low):
        down = (value < middle) | ((value == middle) & (bits % 2 == 0))
        values += [value, -value]
        nearest += [np.where(down, low, above), -np.where(down, low, above)]
    return np.concatenate(values).reshape(1, -1), np.concatenate(nearest).reshape(1, -1)


@pytest.mark.parametrize("how", STORES)
@pytest.mark.parametrize("dtype", NARROW)
def test_float64_is_rounded_once(be: Backend, dtype: str, how: str) -> None:
    values, nearest = near_ties(dtype)
    out = be.zeros(values.shape, dtype=dtype)
    STORES[how](be, out, be.array(values, dtype=np.float64), values)
    np.testing.assert_array_equal(out.get().astype(np.float64), nearest)


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_arrays_and_casts_are_rounded_once(be: Backend, dtype: str) -> None:
    values, nearest = near_ties(dtype)
    np.testing.assert_array_equal(be.array(values, dtype=dtype).get().astype(np.float64), nearest)
    cast = be.array(values, dtype=np.float64).astype(dtype).get()
    np.testing.assert_array_equal(cast.astype(np.float64), nearest)
    one, other = be.empty((1, 1), dtype=dtype), be.empty((1, 2), dtype=dtype)
    for value, wanted in zip(values.ravel()[::41], nearest.ravel()[::41]):
        one.fill(float(value))
        other[:] = float(value)
        assert one.get().astype(np.float64).item() == wanted
        assert (other.get().astype(np.float64) == wanted).all()


WHOLE = np.array(
    [2**24 + 1, 2**40 + 2**32 + 1, 2**62 + 2**54 + 1, 2**62 + 2**54, 2**62 + 2**54 - 1, 2**30 + 2**22 + 1, 257, 259,
     -(2**40) - 2**32 - 1, -(2**63), 2**63 - 1, 2**53 + 1, 0, 2049, 2051, 65504, -65519],
).reshape(1, -1)  # fmt: skip


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("source", ["int64", "int32"])
def test_whole_numbers_are_rounded_once(be: Backend, dtype: str, source: str) -> None:
    whole = WHOLE if source == "int64" else WHOLE[(-(2**31) <= WHOLE) & (WHOLE < 2**31)].reshape(1, -1)
    wanted = [[nearest(int(value), dtype) for value in whole.ravel()]]
    x, out = be.array(whole, dtype=source), be.empty(whole.shape, dtype=dtype)
    for value in (x, be.maximum(x, x), x.get()):
        out[:] = value
        np.testing.assert_array_equal(out.get().astype(np.float64), wanted)


@pytest.mark.parametrize("dtype", NARROW)
def test_whole_numbers_of_python_are_rounded_once(be: Backend, dtype: str) -> None:
    """Beyond 2**53 too, where float64 would have rounded them before."""
    out = be.empty((2, 2), dtype=dtype)
    for value in (2**61 + 2**53 + 1, -(2**61) - 2**53 - 1, 2**62 + 2**54 - 1, 2051, 3):
        out[:1] = value
        out[1:].fill(value)
        np.testing.assert_array_equal(out.get().astype(np.float64), nearest(value, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_random_numbers_are_below_one_with_the_bits_of_their_dtype(be: Backend, dtype: str) -> None:
    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    t = be.empty((60, 300), dtype=dtype)
    t[:] = be.rand()
    drawn = t.get().astype(np.float64)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert (drawn * 2.0**bits == np.floor(drawn * 2.0**bits)).all()
    assert not (drawn * 2.0 ** (bits - 1) == np.floor(drawn * 2.0 ** (bits - 1))).all()
    assert abs(drawn.mean() - 0.5) < 0.01
    t[:] = -be.log(1 - t)
    assert np.isfinite(t.get().astype(np.float64)).all()


def test_streams_of_every_dtype(be: Backend) -> None:
    """float32's numbers are unchanged; those of 16 bits are its upper bits; float64's have 53 bits."""
    stream = be._rand_stream
    drawn = {}
    for dtype in ("float32", *NARROW):
        be._rand_stream = stream
        t = be.empty((9, 31), dtype=dtype)
        t[:] = be.rand()
        drawn[dtype] = t.get().astype(np.float64)
    for dtype, scale in (("float16", 2048), ("bfloat16", 256)):
        np.testing.assert_array_equal(drawn[dtype], np.floor(drawn["float32"] * scale) / scale)
    wide, x = be.empty((9, 31), dtype=np.float64), be.ones((9, 31), dtype=np.float64)
    for expression in (lambda: be.rand(), lambda: 2 * be.rand() - 1, lambda: x - be.rand()):
        wide[:] = expression()
        assert (wide.get() * 2.0**30 != np.floor(wide.get() * 2.0**30)).mean() > 0.9
