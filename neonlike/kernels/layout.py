"""How arrays lie over a stage's space: axes of size 1 dropped, neighbours merged where every array allows it.

Fewer axes mean longer inner loops. The result also says which kernel form fits: flat, nested, rows or columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from neonlike.errors import OutOfMemory
from neonlike.kernels.lower import Perm
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape


@dataclass(frozen=True, slots=True)
class Axis:
    """One merged axis: its size, whether it is reduced, and each array's step along it in elements."""

    size: int
    reduced: bool
    steps: tuple[int, ...]


LINE, ALIGNED_FROM = 64, 4096
"""Bytes of a cache line, and of arrays small enough to lie anywhere."""
PAGE, PAGED_FROM, HUGE_PAGE = 4096, 1 << 16, 1 << 21
"""Bytes of a page, of arrays that begin at one, and of huge pages, at which arrays of that size begin.

A load waits for an earlier store at the same place of another page. Where all arrays begin at the same place this does
not happen, where an allocator puts one behind the other it does: int8 a + b of 1 MB took 0.7 of the time. Huge pages,
which NumPy asks the system for from 4 MiB on, need fewer look-ups: 0.8.
"""


class Counter:
    """Stands where an array would for positions: same attributes, address 0, steps that count elements."""

    itemsize = 1
    __array_interface__: ClassVar[dict[str, Any]] = {"data": (0, False)}

    def __init__(self, shape: Shape, strides: Sequence[int]) -> None:
        self.shape, self.strides, self.ndim = shape, tuple(strides), len(shape)


def steps_over(array: np.ndarray[Any, Any] | Counter, space: Shape) -> tuple[int, ...]:
    """Steps of a NumPy ``array`` along each axis of ``space``, 0 where it is broadcast."""
    missing = len(space) - array.ndim
    assert all(n in (1, wide) for n, wide in zip(array.shape, space[missing:])), (array.shape, space)
    own = [0 if size == 1 else int(stride // array.itemsize) for size, stride in zip(array.shape, array.strides)]
    return (0,) * missing + tuple(own)


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
        memory, first = np.frombuffer(memory.data[first : first + size], np.uint8), 0
    return memory[first : first + size].view(dtype).reshape(shape)


def collapse(space: Shape, axes: tuple[int, ...], arrays: Sequence[Any]) -> list[Axis]:
    """Merged axes of ``space`` for ``arrays``, outermost first."""
    all_steps = [steps_over(array, space) for array in arrays]
    return merged(
        [Axis(size, k in axes, tuple([steps[k] for steps in all_steps])) for k, size in enumerate(space) if size != 1]
    )


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """``axes``, outermost first, neighbours made one where they are for all arrays."""
    found: list[Axis] = []
    for axis in axes:
        if found and found[-1].reduced == axis.reduced:
            before = found[-1]
            if all(outer == inner * axis.size for outer, inner in zip(before.steps, axis.steps)):
                found[-1] = Axis(before.size * axis.size, axis.reduced, axis.steps)
                continue
        found.append(axis)
    return found


def element_strides(space: Shape, perm: Perm) -> list[int]:
    """Stride of each axis in the numbering of elements, which follows the unpermuted shape in C order."""
    extra = len(space) - len(perm or space)
    order = (*range(extra), *(extra + axis for axis in perm)) if perm else tuple(range(len(space)))
    strides, step = [0] * len(space), 1
    for axis in sorted(range(len(space)), key=lambda a: order[a], reverse=True):
        strides[axis] = step
        step *= space[axis]
    return strides
