"""Layout of arrays over a stage's space, without axes of size 1 and with neighbours merged where possible.

Fewer axes mean longer inner loops. The result also determines the kernel form: flat, nested, rows or columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from neonlike.kernels.planning.lower import Perm
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape, contiguous_strides


@dataclass(frozen=True, slots=True)
class Axis:
    """One merged axis: its size, whether it is reduced, and each array's step along it, in elements."""

    size: int
    reduced: bool
    steps: tuple[int, ...]


class Counter:
    """Stand-in for an array of positions: same attributes, address 0, steps that count elements."""

    itemsize = 1
    __array_interface__: ClassVar[dict[str, Any]] = {"data": (0, False)}

    def __init__(self, shape: Shape, strides: Sequence[int]) -> None:
        self.shape, self.strides, self.ndim = shape, tuple(strides), len(shape)


class ArrayLayout:
    """Layout of an array without memory, for choosing a kernel before there is data.

    Shape, strides and views are those of a NumPy array; address 0 counts as aligned for any access.

    Parameters
    ----------
    strides : tuple of int, optional
        Strides in bytes. By default elements are contiguous in C order.
    """

    __slots__ = ("dtype", "itemsize", "ndim", "shape", "strides")
    address = 0

    def __init__(self, shape: Shape, dtype: DType, strides: Sequence[int] | None = None) -> None:
        self.shape, self.dtype, self.ndim, self.itemsize = shape, dtype, len(shape), int(dtype.itemsize)
        self.strides = contiguous_strides(shape, self.itemsize) if strides is None else tuple(strides)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.itemsize

    @property
    def T(self) -> ArrayLayout:
        """Axes in reverse order."""
        return self.transpose(range(self.ndim)[::-1])

    def transpose(self, axes: Sequence[int]) -> ArrayLayout:
        """Axes in the order ``axes``."""
        return ArrayLayout(tuple(self.shape[k] for k in axes), self.dtype, [self.strides[k] for k in axes])

    def __getitem__(self, key: tuple[slice, ...]) -> ArrayLayout:
        """Keep or reverse axes, by slices without bounds and with step 1 or -1."""
        turned = [item.step or 1 for item in key] + [1] * (self.ndim - len(key))
        return ArrayLayout(self.shape, self.dtype, [step * sign for step, sign in zip(self.strides, turned)])


def steps_over(array: np.ndarray[Any, Any] | Counter | ArrayLayout, space: Shape) -> tuple[int, ...]:
    """Steps of a NumPy ``array`` along each axis of ``space``, 0 where it is broadcast."""
    missing = len(space) - array.ndim
    assert all(n in (1, wide) for n, wide in zip(array.shape, space[missing:])), (array.shape, space)
    own = [0 if size == 1 else int(stride // array.itemsize) for size, stride in zip(array.shape, array.strides)]
    return (0,) * missing + tuple(own)


def collapse(space: Shape, axes: tuple[int, ...], arrays: Sequence[Any]) -> list[Axis]:
    """Merged axes of ``space`` for ``arrays``, outermost first.

    Parameters
    ----------
    space : tuple of int
    axes : tuple of int
        The reduced ones.
    arrays : sequence of arrays, layouts and counters
    """
    all_steps = [steps_over(array, space) for array in arrays]
    return merged(
        [Axis(size, k in axes, tuple([steps[k] for steps in all_steps])) for k, size in enumerate(space) if size != 1]
    )


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """Merge neighbours in ``axes``, outermost first, where all arrays allow it."""
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
    """Stride of each axis in the numbering of elements, in C order of the unpermuted shape."""
    extra = len(space) - len(perm or space)
    order = (*range(extra), *(extra + axis for axis in perm)) if perm else tuple(range(len(space)))
    strides, step = [0] * len(space), 1
    for axis in sorted(range(len(space)), key=lambda a: order[a], reverse=True):
        strides[axis] = step
        step *= space[axis]
    return strides
