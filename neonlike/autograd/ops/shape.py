"""Ops that move values: other shapes, joining, cutting, and picking by index. Tensors have two axes at least."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neonlike.autograd.ops.common import F, as_numbers, brief, derived, indices, plain, variable
from neonlike.autograd.variable import Variable
from neonlike.errors import ShapeError
from neonlike.optree import arrange, builders, moves, shapes, windows
from neonlike.optree.arrange import one_axis, whole_number
from neonlike.optree.node import Expression

__all__ = [
    "assign", "concatenate", "diag", "expand", "expand_as", "flatten", "index", "index_add", "index_add_to_target",
    "index_fill", "index_select", "mask_select", "repeat_interleave", "reshape", "scatter_add", "select", "slice",
    "stack", "transpose", "view",
]  # fmt: skip


def transpose(a: Any, axis1: int = 0, axis2: int = 1) -> Variable:
    """a with two axes swapped.

    Parameters
    ----------
    a : variable
    axis1, axis2 : int
        Axes to swap; negative ones count from the end.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.transpose([[1.0, 2.0]]).tolist()
    [[1.0], [2.0]]
    """
    a = variable("transpose", a)
    first, second = (one_axis("transpose", axis, a.shape) for axis in (axis1, axis2))
    order = list(range(a.ndim))
    order[first], order[second] = second, first
    return derived("transpose", lambda a: builders.transpose(a, tuple(order)), a)


def reshape(a: Any, *shape: Any) -> Variable:
    """The elements in C order with another shape, given as sizes or as a tuple; one may be -1. At least 2-D.

    Raises
    ------
    ShapeError
        If the sizes do not match.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.reshape([[1.0, 2.0, 3.0, 4.0]], 2, -1).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    a = variable("reshape", a)
    new = shapes.regrouped(a.shape, shape)
    return a if new == a.shape else derived("reshape", lambda a: moves.view(a, windows.contiguous(new)), a)


view = reshape
"""A view where the value lies in memory: the same as :func:`reshape`."""


def flatten(a: Any, start: int = 0, end: int = -1) -> Variable:
    """a with the axes from ``start`` to ``end`` as one; all of them make a column (n, 1).

    Parameters
    ----------
    a : variable
    start, end : int
        First and last of the axes, both included; negative ones count from the end.

    Raises
    ------
    ShapeError
        If ``start`` lies behind ``end``.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.flatten(be.ones((2, 3, 4)), 1).shape
    (2, 12)
    """
    a = variable("flatten", a)
    first, last = one_axis("flatten", start, a.shape), one_axis("flatten", end, a.shape)
    if first > last:
        raise ShapeError(f"flatten: axis {start} of {a.shape} lies behind axis {end}; swap them")
    merged = (*a.shape[:first], math.prod(a.shape[first : last + 1]), *a.shape[last + 1 :])
    return reshape(a, merged if len(merged) > 1 else (*merged, 1))


def expand(a: Any, shape: Sequence[int]) -> Variable:
    """a stretched to ``shape``, as broadcasting does; -1 leaves a size as it is.

    Raises
    ------
    ShapeError
        If a size is neither 1 nor that of ``shape``.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.expand([[1.0], [2.0]], (-1, 2)).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    a = variable("expand", a)
    wanted = [whole_number("expand", "each size", size) for size in shape]
    before = len(wanted) - a.ndim
    full = tuple(a.shape[i - before] if size == -1 and i >= before else size for i, size in enumerate(wanted))
    return a if full == a.shape else derived("expand", lambda a: moves.broadcast_to(a, full), a)


def expand_as(a: Any, other: Any) -> Variable:
    """a stretched to the shape of ``other``.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.expand_as([[1.0]], be.zeros((1, 2))).tolist()
    [[1.0, 1.0]]
    """
    return expand(a, other.shape)


def concatenate(parts: Sequence[Any], axis: int = 0) -> Variable:
    """Parts one after the other along ``axis``; all other sizes are equal.

    Raises
    ------
    ShapeError
        If they are not, or there are no parts.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.concatenate([[[1.0]], [[2.0]]], axis=1).tolist()
    [[1.0, 2.0]]
    """
    return derived("concatenate", lambda *parts: arrange.concat(parts, axis), *_several("concatenate", parts))


def stack(parts: Sequence[Any], axis: int = 0) -> Variable:
    """Parts of one shape along a new axis.

    Raises
    ------
    ShapeError
        If the shapes differ, or there are no parts.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.stack([[[1.0]], [[2.0]]]).shape
    (2, 1, 1)
    """
    listed = _several("stack", parts)
    if len({part.shape for part in listed}) > 1:
        raise ShapeError(f"stack: parts must have one shape, got {[part.shape for part in listed]}")
    axis = one_axis("stack", axis, (*listed[0].shape, 1))
    new = (*listed[0].shape[:axis], 1, *listed[0].shape[axis:])
    return concatenate([reshape(part, new) for part in listed], axis)


def _several(name: str, parts: Any) -> list[Variable]:
    if not isinstance(parts, (list, tuple)) or not parts:
        raise ShapeError(f"{name}: needs a list of one part at least, got {brief(parts)}")
    like = next((part for part in parts if isinstance(part, (Variable, Expression))), None)
    return [variable(name, part, like) for part in parts]


# Cutting ----------------------------------------------------------------------------------------------------------


def index(a: Any, key: Any) -> Variable:
    """``a[key]``: integers, slices, an ellipsis, and a list of positions on one axis; never below 2-D.

    Raises
    ------
    IndexRangeError, IndexTypeError
        If the key picks no elements.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.const([[1.0, 2.0], [3.0, 4.0]])
    >>> x[0].tolist(), autograd.index(x, [1, 0]).tolist()
    ([[1.0, 2.0]], [[3.0, 4.0], [1.0, 2.0]])
    """
    a = variable("index", a)
    return derived("index", lambda a: windows.index(a, key, moved=False), a)


def slice(a: Any, axis: int, start: int, end: int, step: int = 1) -> Variable:
    """Positions ``start`` up to ``end``, without it, in steps along ``axis``.

    Parameters
    ----------
    a : variable
    axis : int
    start, end, step : int
        As of Python's slices.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.slice([[1.0, 2.0, 3.0, 4.0]], 1, 0, 4, 2).tolist()
    [[1.0, 3.0]]
    """
    a = variable("slice", a)
    before = (builtins.slice(None),) * one_axis("slice", axis, a.shape)
    return index(a, (*before, builtins.slice(start, end, step)))


def select(a: Any, axis: int, position: int) -> Variable:
    """The slice at one position along ``axis``, which is dropped where two axes are left.

    Parameters
    ----------
    a : variable
    axis : int
    position : int
        Negative ones count from the end.

    Raises
    ------
    IndexRangeError
        If there is no such position.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.select([[1.0, 2.0], [3.0, 4.0]], 0, 1).tolist()
    [[3.0, 4.0]]
    """
    a = variable("select", a)
    before = (builtins.slice(None),) * one_axis("select", axis, a.shape)
    return index(a, (*before, position))


# Picking and putting by index -------------------------------------------------------------------------------------


def index_select(a: Any, axis: int, positions: Any) -> Variable:
    """Slices along ``axis`` at ``positions``, integers; one may come several times.

    Parameters
    ----------
    a : variable
    axis : int
    positions : integers
        A list, array or tensor.

    Raises
    ------
    IndexRangeError
        If one is out of range.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.index_select([[1.0, 2.0, 3.0]], 1, [2, 0, 2]).tolist()
    [[3.0, 1.0, 3.0]]
    """
    a = variable("index_select", a)
    places = indices("index_select", positions, a)
    return derived("index_select", lambda a: moves.take(a, places, axis), a)


def index_add(source: Any, positions: Any, axis: int, size: int) -> Variable:
    """Zeros with ``size`` slices along ``axis``, to which the slices of ``source`` are added at ``positions``.

    Parameters
    ----------
    source : variable
    positions : integers
        One for each slice of ``source``.
    axis : int
    size : int
        Slices of the result.

    Raises
    ------
    ShapeError
        If there are not as many positions as slices.
    IndexRangeError
        If one is out of range.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.index_add([[1.0, 2.0, 3.0]], [0, 2, 2], 1, 4).tolist()
    [[1.0, 0.0, 5.0, 0.0]]
    """
    source = variable("index_add", source)
    axis = one_axis("index_add", axis, source.shape)
    places = _positions("index_add", positions, size, source, source.shape[axis])
    shape = (*source.shape[:axis], whole_number("index_add", "size", size), *source.shape[axis + 1 :])
    return derived("index_add", lambda s: moves.untake(s, places, shape, axis), source)


def index_add_to_target(target: Any, source: Any, positions: Any, axis: int) -> Variable:
    """``target`` with the slices of ``source`` added at ``positions`` along ``axis``; see :func:`index_add`.

    Parameters
    ----------
    target, source : variables
        Of equal sizes, except along ``axis``.
    positions : integers
        One for each slice of ``source``.
    axis : int

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.index_add_to_target([[10.0, 10.0]], [[1.0, 2.0]], [1, 1], 1).tolist()
    [[10.0, 13.0]]
    """
    target = variable("index_add_to_target", target)
    size = target.shape[one_axis("index_add_to_target", axis, target.shape)]
    return target + index_add(source, positions, axis, size)


def index_fill(a: Any, axis: int, positions: Any, fill: float) -> Variable:
    """a with ``fill`` in the slices at ``positions`` along ``axis``.

    Parameters
    ----------
    a : variable
    axis : int
        Axis of the slices, also counted from the end.
    positions : integers
        Slices to fill.
    fill : float
        New value of these slices' elements.

    Raises
    ------
    IndexRangeError
        If a position is out of range.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.index_fill([[1.0, 2.0, 3.0]], 1, [0, 2], 9).tolist()
    [[9.0, 2.0, 9.0]]
    """
    (fill,) = as_numbers("index_fill", fill=fill)
    a = variable("index_fill", a)
    axis = one_axis("index_fill", axis, a.shape)
    places = _positions("index_fill", positions, a.shape[axis], a, None)
    shape = tuple(size if i == axis else 1 for i, size in enumerate(a.shape))
    count = math.prod(places.shape)
    ones = a.backend.ones(tuple(count if i == axis else 1 for i in range(a.ndim)), dtype=a.dtype)
    return derived("index_fill", lambda a: F.where(moves.untake(ones, places, shape, axis), fill, a), a)


def _positions(name: str, positions: Any, size: int, like: Variable, count: int | None) -> Any:
    """Integer positions as a tensor (1, n), checked."""
    found = builders.index_operand(name, indices(name, positions, like), size, like.backend)
    if count is not None and math.prod(found.shape) != count:
        raise ShapeError(f"{name}: needs a position for each of {count} slices, got {math.prod(found.shape)}")
    return found


def mask_select(a: Any, mask: Any) -> Variable:
    """The elements where ``mask``, of a's shape, is not 0, in C order as a column (n, 1).

    How many there are depends on values, so the mask is computed at once.

    Raises
    ------
    ShapeError
        If the mask has another shape.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.mask_select([[1.0, 2.0, 3.0]], [[1, 0, 1]]).tolist()
    [[1.0], [3.0]]
    """
    a = variable("mask_select", a)
    host = np.asarray(plain("mask_select", mask, a).get())
    if host.shape != a.shape:
        raise ShapeError(f"mask_select: the mask must have the shape {a.shape}, got {host.shape}")
    return index_select(reshape(a, (a.size, 1)), 0, np.flatnonzero(host))


def scatter_add(source: Any, positions: Any, axis: int, size: int) -> Variable:
    """Zeros with ``size`` slices along ``axis``; each element of ``source`` is added at its own position there.

    Parameters
    ----------
    source : variable
    positions : integers of the shape of ``source``
    axis : int
    size : int
        Length of the result along ``axis``.

    Raises
    ------
    ShapeError
        If the positions have another shape.
    IndexRangeError
        If one is out of range.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.scatter_add([[1.0, 2.0], [3.0, 4.0]], [[0, 0], [1, 0]], 1, 2).tolist()
    [[3.0, 0.0], [4.0, 3.0]]
    """
    source = variable("scatter_add", source)
    axis = one_axis("scatter_add", axis, source.shape)
    given = indices("scatter_add", positions, source)
    places = builders.index_operand("scatter_add", given, size, source.backend, vector=False)
    if places.shape != source.shape:
        raise ShapeError(f"scatter_add: needs a position for each element of {source.shape}, got {places.shape}")
    shape = (*source.shape[:axis], whole_number("scatter_add", "size", size), *source.shape[axis + 1 :])
    return derived("scatter_add", lambda s: F.untake_along(s, places, shape, axis), source)


def repeat_interleave(a: Any, repeats: Any, axis: int) -> Variable:
    """Each slice along ``axis`` so many times: one number for all, or one for each slice.

    Parameters
    ----------
    a : variable
    repeats : int or sequence of int
        Of every slice, or of each.
    axis : int

    Raises
    ------
    ShapeError
        If a number is negative, or there are neither one nor as many as slices.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.repeat_interleave([[1.0, 2.0]], [1, 2], 1).tolist()
    [[1.0, 2.0, 2.0]]
    """
    a = variable("repeat_interleave", a)
    if isinstance(repeats, (Variable, Expression)):  # the shape of the result depends on them
        repeats = np.asarray(plain("repeat_interleave", repeats, a).get()).reshape(-1)
    return derived("repeat_interleave", lambda a: a.backend.repeat(a, repeats, axis), a)


def assign(abandoned: Any, kept: Any) -> Variable:
    """``kept``, in the place of ``abandoned``: derivatives flow to the first only.

    Raises
    ------
    ShapeError
        If their shapes differ.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.assign([[1.0]], [[2.0]]).tolist()
    [[2.0]]
    """
    abandoned = variable("assign", abandoned)
    kept = variable("assign", kept, abandoned)
    if abandoned.shape != kept.shape:
        raise ShapeError(f"assign: {kept.shape} cannot stand in the place of {abandoned.shape}; expand or reshape it")
    return kept


def diag(a: Any, diagonal: int = 0) -> Variable:
    """The diagonal of a matrix as a column (n, 1); or, of a vector (n, 1) or (1, n), the matrix with that diagonal.

    Parameters
    ----------
    a : variable, 2-D
    diagonal : int
        0 is the main one, 1 that above it.

    Raises
    ------
    ShapeError
        If a has more axes, or no such diagonal.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.diag([[1.0, 2.0], [3.0, 4.0]]).tolist(), autograd.diag([[5.0, 6.0]]).tolist()
    ([[1.0], [4.0]], [[5.0, 0.0], [0.0, 6.0]])
    """
    a = variable("diag", a)
    offset = whole_number("diag", "diagonal", diagonal)
    if a.ndim != 2:
        raise ShapeError(f"diag: needs a matrix or a vector (n, 1), got {a.shape}")
    down, right = max(-offset, 0), max(offset, 0)
    if 1 in a.shape:
        n = a.size + abs(offset)
        layout = ((a.size, 1), (n + 1, 0), down * n + right)
        return derived("diag", lambda a: moves.unview(a, (n, n), layout), reshape(a, (a.size, 1)))
    rows, columns = a.shape
    count = min(rows - down, columns - right)
    if count < 1:
        raise ShapeError(f"diag: {a.shape} has no diagonal {offset}")
    layout = ((count, 1), (columns + 1, 0), down * columns + right)
    return derived("diag", lambda a: moves.view(a, layout), a)


DOCUMENT_NAMES = {
    "Transpose": transpose, "Reshape": reshape, "View": view, "Flatten": flatten, "Expand": expand,
    "ExpandAs": expand_as, "Concatenate": concatenate, "Stack": stack, "Slice": slice, "Select": select,
    "IndexSelect": index_select, "IndexAdd": index_add, "IndexAddToTarget": index_add_to_target,
    "IndexFill": index_fill, "MaskSelect": mask_select, "ScatterAdd": scatter_add,
    "RepeatInterleave": repeat_interleave, "Assign": assign, "Diag": diag,
}  # fmt: skip
"""The source document's names."""
