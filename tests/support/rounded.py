"""Factors rounded to bfloat16, and the forms in which kernels of the CPU multiply them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.optree.dtypes import bfloat16
from tests.support.engines import backend, needs_compiler

Array = np.ndarray[Any, Any]
UNIT = 2.0**-24
"""Largest relative error of a number rounded to float32."""
FORMS = (1, 2)
"""Pairs by the processor's instruction where it has one, and by its twin (``PAIRS`` of ``pairs.h``)."""


def rounded(x: Any) -> Array:
    """The bfloat16 nearest to each float32, ties to even, as float64; subnormal numbers become 0, nan stays nan."""
    values = np.ascontiguousarray(x, np.float32)
    bits = values.view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    found = np.where(np.isnan(values), values, nearest.view(np.float32))
    return np.where(np.abs(values) < 2.0**-126, np.copysign(0, values), found).astype(np.float64)


def multiply_in(be: Any, form: int) -> None:
    """Have a backend of the CPU round factors of float32 to pairs of this form; 0: not at all."""
    be.product_precision = "bfloat16" if form else "float32"
    be.executor.own_engine.pairs = form
    be.executor.clear()


def multiply(one: Any, other: Any, terms: int = 0) -> tuple[Array, Array]:
    """The product of matrices rounded to bfloat16, and the largest error of float32 sums of it and ``terms`` more.

    A sum of n numbers, added in any order, is wrong by at most n - 1 roundings of the sum of their magnitudes.
    """
    a, b = rounded(one), rounded(other)
    return a @ b, gamma(a.shape[-1] + terms) * (np.abs(a) @ np.abs(b))


def assert_rounded_once(half: Any, single: Any, sums: bool, where: str) -> None:
    """Assert that numbers of 16 bits are those of float32 rounded to nearest; any of the same dtype are compared.

    Of ``sums`` float32 is known up to a few roundings: a compiler may fuse products and sums in the kernel of one dtype
    and not in that of the other.
    """
    found, nan = half.astype(np.float32), np.isnan(single)
    size = np.maximum(np.abs(np.where(np.isfinite(single), single, 0)), 1).astype(np.float32)
    slack = size * np.float32(2.0**-21 if sums else 0)
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = ((single + way * slack).astype(half.dtype).astype(np.float32) for way in (-1, 1))
    np.testing.assert_array_equal(np.isnan(found), nan, where)
    np.testing.assert_array_equal(found[~nan], np.clip(found, low, high)[~nan], where)


def gamma(count: int) -> float:
    """Bound of the relative error of ``count`` roundings to float32, one after the other."""
    return count * UNIT / (1 - count * UNIT)


def matrix(rng: Any, rows: int, columns: int, turned: bool, wide: int = 0, stored: str = "float32") -> Any:
    """A matrix whose rows, or columns if ``turned``, are contiguous and ``wide`` elements longer than needed."""
    shape = (columns, rows) if turned else (rows, columns)
    dtype = bfloat16() if stored == "bfloat16" else np.float32
    made = rng.standard_normal((shape[0], shape[1] + wide)).astype(np.float32).astype(dtype)[:, : shape[1]]
    return made.T if turned else made


def laid(values: Any, turned: bool, wide: int = 0, stored: str = "float32") -> Any:
    """A copy of float32 ``values`` whose rows, or columns if ``turned``, are as those of ``matrix``."""
    shape = values.T.shape if turned else values.shape
    made = np.empty((shape[0], shape[1] + wide), bfloat16() if stored == "bfloat16" else np.float32)[:, : shape[1]]
    made[...] = values.T if turned else values
    return made.T if turned else made


def bound(a: Any, b: Any) -> Any:
    """The error of float32 sums of these products, in any order: each addition rounds once."""
    return (a.shape[1] + 4) * 2.0**-24 * (np.abs(a) @ np.abs(b)) + 1e-30


@pytest.fixture(params=FORMS)
def in_pairs(request: Any) -> Iterator[Any]:
    """A backend that multiplies in bfloat16, by the processor's instruction and by its twin."""
    needs_compiler()
    for made in backend("c"):
        multiply_in(made, request.param)
        yield made
