"""Memory of arrays on the host: where it begins, so that threads share no cache line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.errors import OutOfMemory
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

LINE, ALIGNED_FROM = 64, 4096
"""Bytes of a cache line, and of arrays small enough to lie anywhere."""
PAGE, PAGED_FROM, HUGE_PAGE = 4096, 1 << 16, 1 << 21
"""Bytes of a page, of arrays that begin at one, and of huge pages, at which arrays of that size begin.

A load waits for an earlier store at the same place of another page. Where all arrays begin at the same place this does
not happen, where an allocator puts one behind the other it does: int8 a + b of 1 MB took 0.7 of the time. Huge pages,
which NumPy asks the system for from 4 MiB on, need fewer look-ups: 0.8.
"""


def aligned_empty(shape: Shape, dtype: DType) -> np.ndarray[Any, Any]:
    """Uninitialised C-order array that starts at a cache line, so that no two threads write the same one.

    Larger ones start at a page.
    """
    return _aligned(np.empty, shape, dtype)


def aligned_zeros(shape: Shape, dtype: DType) -> np.ndarray[Any, Any]:
    """As :func:`aligned_empty`, of zeros; large ones are pages that the system clears when they are first touched."""
    return _aligned(np.zeros, shape, dtype)


def _aligned(make: Callable[..., Any], shape: Shape, dtype: DType) -> np.ndarray[Any, Any]:
    size = math.prod(shape) * dtype.itemsize
    try:
        if size < ALIGNED_FROM:
            return make(shape, dtype)  # type: ignore[no-any-return]
        unit = HUGE_PAGE if size >= HUGE_PAGE else PAGE if size >= PAGED_FROM else LINE
        memory: np.ndarray[Any, Any] = make(size + unit, np.uint8)
    except (MemoryError, OverflowError, ValueError) as error:  # the last two: sizes that NumPy cannot count
        raise OutOfMemory(
            f"memory: none for {shape} of {dtype.name}, {size:,} bytes; make it smaller or work in parts ({error})"
        ) from None
    first = -memory.__array_interface__["data"][0] % unit
    if unit != LINE:  # over a buffer, which is what its base is then: statistics count its bytes
        return np.frombuffer(memory.data[first : first + size], dtype).reshape(shape)
    return np.ndarray(shape, dtype, memory, first)
