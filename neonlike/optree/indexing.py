"""Meaning of ``tensor[index]``: neon's indexing, which never drops below two dimensions.

An integer keeps its axis (size 1) in 2-D; in more dimensions it removes the axis, as long as two remain. A list, array
or integer tensor on one axis gathers; a bool vector on an axis selects slices. Masks in the shape of a whole tensor are
handled in :mod:`neonlike.backends.masks`.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.checks import brief
from neonlike.errors import IndexRangeError, IndexTypeError
from neonlike.optree.dtypes import BOOL
from neonlike.optree.node import Expression
from neonlike.optree.npfuncs import check_range
from neonlike.optree.shapes import Shape

_EXPECTED = "expected an integer, slice, list or integer tensor"


@dataclass(slots=True)
class Selection:
    """A basic NumPy index, optionally followed by a gather along one axis of its result."""

    basic: tuple[Any, ...]
    gather_axis: int | None = None
    gather: npt.NDArray[np.int64] | None = None


def basic_index(index: Any, shape: Shape) -> Any:
    """NumPy's index that selects the same from an array, if all items are slices and integers in range; else None.

    These are nearly all selections. The ends of slices are not looked at: NumPy refuses wrong ones, and :func:`select`
    says what is wrong.
    """
    if index.__class__ is slice:
        return index
    items = index if index.__class__ is tuple else (index,)
    if len(items) > len(shape):
        return None
    removable, found = len(shape) - 2, []
    for item, size in zip(items, shape):
        if item.__class__ is int and -size <= item < size:
            position = item % size
            item = position if removable > 0 else slice(position, position + 1)
            removable -= 1
        elif item.__class__ is not slice:
            return None
        found.append(item)
    return tuple(found)


def select(index: Any, shape: Shape) -> Selection:
    """Interpret ``index`` for a tensor of ``shape``.

    Raises
    ------
    IndexRangeError
        If an integer is out of range, or there are too many indices, ellipses or lists.
    IndexTypeError
        If an index is not an integer, slice, ellipsis, list, array or integer tensor.
    """
    items = _expand(index, shape)
    removable = len(shape) - 2
    basic: list[Any] = []
    gather: npt.NDArray[np.int64] | None = None
    gather_axis: int | None = None
    kept = 0
    for axis, item in enumerate(items):
        if isinstance(item, slice):
            basic.append(_checked_slice(item, shape[axis]))
        elif isinstance(item, (list, np.ndarray, Expression)) and not _is_scalar_array(item):
            if gather is not None:
                raise IndexRangeError(f"index {brief(index)}: only one axis can take a list; index twice")
            gather, gather_axis = _positions(item, shape[axis]), kept
            basic.append(slice(None))
        else:
            position = _integer(item, axis, shape)
            if removable > 0:
                removable -= 1
                basic.append(position)
                continue
            basic.append(slice(position, position + 1))
        kept += 1
    return Selection(tuple(basic), gather_axis, gather)


def _is_scalar_array(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.ndim == 0


def _expand(index: Any, shape: Shape) -> list[Any]:
    """One item per axis: ellipsis and missing axes become full slices."""
    items = list(index) if isinstance(index, tuple) else [index]
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexRangeError(f"index {brief(index)}: only one ellipsis is allowed")
    if len(items) - len(ellipses) > len(shape):
        raise IndexRangeError(f"index {brief(index)}: {len(items)} indices for shape {shape} with {len(shape)} axes")
    missing = [slice(None)] * (len(shape) - len(items) + len(ellipses))
    if ellipses:
        return items[: ellipses[0]] + missing + items[ellipses[0] + 1 :]
    return items + missing


def _checked_slice(item: slice, size: int) -> slice:
    try:
        item.indices(size)
    except TypeError:
        raise IndexTypeError(f"index {brief(item)}: the ends and the step of a slice must be integers") from None
    except ValueError:
        raise IndexRangeError(f"index {brief(item)}: the step of a slice must not be 0") from None
    return item


def _integer(item: Any, axis: int, shape: Shape) -> int:
    if isinstance(item, (bool, np.bool_)) or item is None:
        instead = "be.expand_dims adds an axis" if item is None else "a mask has an element for each of the axis"
        raise IndexTypeError(f"index {brief(item)}: {_EXPECTED}; {instead}")
    try:
        position = operator.index(item)
    except TypeError:
        raise IndexTypeError(f"index {brief(item)} of type {type(item).__name__}: {_EXPECTED}") from None
    if not -shape[axis] <= position < shape[axis]:
        raise IndexRangeError(f"index {position} is out of range for axis {axis} of shape {shape}")
    return position % shape[axis]


def _positions(item: Any, size: int) -> npt.NDArray[np.int64]:
    """Read a vector of positions from a list, array or integer tensor."""
    try:
        host = np.asarray(item.get() if isinstance(item, Expression) and hasattr(item, "get") else item)
    except ValueError:  # lists of different lengths
        raise IndexTypeError(f"index {str(item)[:60]}: {_EXPECTED}") from None
    if host.dtype == BOOL:
        if host.size != size or host.size != max(host.shape):
            raise IndexRangeError(f"bool index of shape {host.shape}: expected a vector of {size}, one for each slice")
        return np.flatnonzero(host)
    if host.size == 0:
        host = host.astype(np.int64)
    if host.dtype.kind not in "iu":
        raise IndexTypeError(f"index array of dtype {host.dtype}: positions must be integers, masks bool: t[t > 0]")
    if host.ndim > 1 and host.size != max(host.shape):
        raise IndexRangeError(f"index array of shape {host.shape}: expected a vector")
    check_range("index array", host, size)
    vector: npt.NDArray[np.int64] = host.reshape(-1).astype(np.int64) % max(size, 1)
    return vector
