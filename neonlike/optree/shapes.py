"""Shape rules: broadcasting, reduction axes, matrix products. Pure functions on tuples, errors with the shapes in them.

Shapes have at least two dimensions and broadcast as in NumPy (aligned on the last axis, 1 stretches).
"""

from __future__ import annotations

import itertools
import math
import operator
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from neonlike.checks import brief
from neonlike.errors import ShapeError

Shape: TypeAlias = tuple[int, ...]


class FreeShape(tuple[int, ...]):
    """Shape of a node that adapts to its use (``rand``, ``onehot``); equals ``(0, 0)``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(any shape)"


FREE: Shape = FreeShape((0, 0))
"""The one free shape; compare with ``is``, since an empty (0, 0) tensor has an equal but fixed shape."""


def broadcast(name: str, shapes: Sequence[Shape]) -> Shape:
    """Common shape of ``shapes``; free shapes fit everything.

    Raises
    ------
    ShapeTypeError
        If two sizes differ and neither is 1.
    """
    fixed = [shape for shape in shapes if shape is not FREE]
    if not fixed:
        return FREE
    return _broadcast(name, tuple(fixed))


@lru_cache(maxsize=4096)
def broadcast_two(name: str, a: Shape, b: Shape) -> Shape:
    """:func:`broadcast` for two shapes that are not free.

    Parameters
    ----------
    name : str
        Operation, for messages.
    a, b : tuple of int
    """
    return _broadcast(name, (a, b))


@lru_cache(maxsize=4096)
def _broadcast(name: str, fixed: tuple[Shape, ...]) -> Shape:
    ndim = max(map(len, fixed))
    out = [1] * ndim
    for shape in fixed:
        for axis, size in enumerate(shape, ndim - len(shape)):
            if size == 1 or size == out[axis]:
                continue
            if out[axis] != 1:
                listed = " and ".join(str(s) for s in fixed)
                raise ShapeTypeError(
                    f"{name}: shapes {listed} do not broadcast: axis {axis - ndim} is {out[axis]} and {size}; "
                    "sizes must be equal or 1 (use .T or reshape)"
                )
            out[axis] = size
    return tuple(out)


def stretches_to(shape: Shape, target: Shape) -> bool:
    """True if ``shape`` can be broadcast to exactly ``target``."""
    if len(shape) > len(target):
        extra = len(shape) - len(target)
        if any(size != 1 for size in shape[:extra]):
            return False
        shape = shape[extra:]
    return all(a == b or a == 1 for a, b in zip(reversed(shape), reversed(target)))


@lru_cache(maxsize=4096)
def contiguous_strides(shape: Shape, itemsize: int = 1) -> tuple[int, ...]:
    """Strides of elements in C order along each axis, in elements or in bytes of ``itemsize``."""
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_gapless(shape: Shape, strides: Sequence[int], itemsize: int = 1) -> bool:
    """Whether elements fill their memory from the first one on, in any order of the axes, none of them reversed.

    Parameters
    ----------
    shape : tuple of int
    strides : sequence of int
        In units of which an element has ``itemsize``.
    itemsize : int
    """
    axes = [(size, step) for size, step in zip(shape, strides) if size > 1]
    last = sum((size - 1) * step for size, step in axes)
    return all(step > 0 for _, step in axes) and last == (math.prod(shape) - 1) * itemsize


def is_reshape(layout: tuple[Any, ...]) -> bool:
    """Whether a window (shape, strides in elements, offset) covers the first elements in order."""
    shape, strides, offset = layout
    return not offset and tuple(strides) == contiguous_strides(shape)


def normalize_axes(name: str, axis: Any, shape: Shape) -> tuple[int, ...]:
    """Sorted non-negative axes from an int, a sequence of ints or None (all axes).

    Parameters
    ----------
    name : str
        Operation, for messages.
    axis : int, sequence of int, or None
    shape : tuple of int

    Raises
    ------
    ShapeError
        If an axis is out of range, repeated or not an integer.
    """
    ndim = len(shape)
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = []
    for item in given:
        try:
            index = operator.index(item)
        except TypeError:
            raise ShapeError(f"{name}: axis must be an int, a tuple of ints or None, got {brief(axis)}") from None
        if not -ndim <= index < ndim:
            raise ShapeError(f"{name}: axis {index} is out of range for shape {shape}; use {-ndim} to {ndim - 1}")
        axes.append(index % ndim)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis {brief(axis)} names an axis of shape {shape} twice")
    return tuple(sorted(axes))


def reduced(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """``shape`` with ``axes`` set to 1; dimensions are always kept."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def dot(left: Shape, right: Shape) -> Shape:
    """Shape of a matrix product of two 2-D operands.

    Raises
    ------
    ShapeError
        If an operand is not 2-D or the inner sizes differ.
    """
    if len(left) != 2 or len(right) != 2:
        raise ShapeError(f"dot: needs two 2-D operands, got {left} and {right}; reshape, or use batched_dot")
    if left[1] != right[0]:
        raise ShapeError(
            f"dot: {left} x {right}: inner sizes {left[1]} and {right[0]} differ; transpose one side with .T"
        )
    return (left[0], right[1])


def permutation(name: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes of a transpose; None swaps the last two.

    Parameters
    ----------
    name : str
        Operation, for messages.
    axes : sequence of int, or None
    ndim : int

    Raises
    ------
    ShapeError
        If ``axes`` is not a permutation of ``range(ndim)``.
    """
    if axes is None:
        return (*range(ndim - 2), ndim - 1, ndim - 2)
    try:
        given = tuple(operator.index(axis) for axis in axes)
    except TypeError:
        raise ShapeTypeError(f"{name}: axes must be integers, got {brief(axes)}") from None
    order = tuple(axis % ndim if -ndim <= axis < ndim else ndim for axis in given)
    if sorted(order) != list(range(ndim)):
        raise ShapeError(f"{name}: axes {brief(axes)} are not a permutation of {tuple(range(ndim))}")
    return order


def as_shape(value: Any, operation: str = "shape") -> Shape:
    """Convert ``value`` (int or sequence of ints) to a shape of at least two dimensions; ``(n,)`` becomes ``(n, 1)``.

    Raises
    ------
    ShapeError
        For a negative size.
    TypeError
        For anything but integers or a sequence of them.
    """
    if value.__class__ is tuple and len(value) > 1 and all([n.__class__ is int and n >= 0 for n in value]):
        if max(value) <= sys.maxsize:
            return value  # the common case
    items = value if isinstance(value, (tuple, list)) else (value,)
    try:
        shape = tuple(operator.index(item) for item in items)
    except TypeError:
        raise ShapeTypeError(f"{operation}: shape must be integers, got {brief(value)}") from None
    if any(not 0 <= size <= sys.maxsize for size in shape):
        raise ShapeError(f"{operation}: sizes must not be negative, nor larger than any memory, got {str(shape)[:80]}")
    return shape + (1,) * (2 - len(shape))


def regrouped(shape: Shape, wanted: tuple[Any, ...]) -> Shape:
    """Shape after ``reshape(*wanted)``: sizes, or one sequence of them; one may be -1. At least 2-D.

    Raises
    ------
    ShapeError
        If the sizes do not multiply to the number of elements.
    ShapeTypeError
        If they are not integers.
    """
    given = wanted[0] if len(wanted) == 1 and isinstance(wanted[0], (tuple, list)) else wanted
    try:
        sizes = tuple([operator.index(n) for n in given])
    except TypeError:
        raise ShapeTypeError(f"reshape: shape must be integers, got {brief(given)}") from None
    return _regrouped(shape, sizes)


@lru_cache(maxsize=4096)
def _regrouped(shape: Shape, sizes: tuple[int, ...]) -> Shape:
    size = math.prod(shape)
    if sizes.count(-1) == 1:
        known = math.prod(n for n in sizes if n != -1)
        if known and size % known == 0:
            sizes = tuple(size // known if n == -1 else n for n in sizes)
    new = sizes + (1,) * (2 - len(sizes))
    if any(n < 0 for n in new) or math.prod(new) != size:
        raise ShapeError(f"reshape: cannot make {sizes} of {shape} with {size} elements; sizes must multiply to that")
    return new


def is_regrouped(shape: Shape, target: Shape) -> bool:
    """Whether one shape splits or merges axes of the other: (C, H, W, N) and (C*H*W, N), but not (N, C, H, W)."""
    if shape == target:
        return True
    size = math.prod(shape)
    if size != math.prod(target):
        return False
    ends = [set(itertools.accumulate(sizes, operator.mul, initial=1)) for sizes in (shape, target)]
    return size == 0 or ends[0] <= ends[1] or ends[1] <= ends[0]


class ShapeTypeError(ShapeError, TypeError):
    """A shape error that is a TypeError on one of neon's backends: not made of integers, or not fitting."""
