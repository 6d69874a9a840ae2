"""Memory-mapped files: one mapping for all tensors over a file, and overlap tests where several are needed.

Kernels detect overlapping memory by addresses. So a file is mapped whole and only once, unless it has grown since, or
was mapped for reading and is now to be written. Then the same bytes have two addresses, and :func:`alias_in_files`
compares positions in the file.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape


class Place(NamedTuple):
    """Location of a tensor's file in memory.

    Attributes
    ----------
    file : tuple of int
        Device and number of the file.
    start : int
        Address of its first byte.
    again : bool
        Whether the file was already mapped at another address.
    """

    file: tuple[int, int]
    start: int
    again: bool


_mappings: weakref.WeakValueDictionary[tuple[tuple[int, int], int], Any] = weakref.WeakValueDictionary()
"""Mapped files as arrays of bytes, by file and a number."""
_numbers = itertools.count()
_lock = threading.Lock()


def mapped_part(name: str, dtype: DType, shape: Shape, mode: str, offset: int) -> tuple[Any, Place]:
    """Map a file from byte ``offset`` on as an array of ``shape``, and return its place; modes as in ``np.memmap``.

    Parameters
    ----------
    name : str
        Path of the file.
    dtype : dtype
    shape : tuple of int
    mode : "r", "r+" or "w+"
    offset : int
        In bytes; a multiple of the element size.
    """
    end = offset + math.prod(shape) * dtype.itemsize
    with _lock:
        made = np.memmap(name, np.uint8, "w+", 0, (end,)) if mode == "w+" else None
        status = os.stat(name)
        file = (status.st_dev, status.st_ino)
        live = [bytes_ for (other, _), bytes_ in list(_mappings.items()) if other == file]
        fitting = (m for m in live if end <= min(len(m), status.st_size) and (m.flags.writeable or mode == "r"))
        whole: Any = next(fitting, None)
        again = whole is None and bool(live)
        if whole is None:
            size = max(status.st_size, end)
            whole = np.memmap(name, np.uint8, mode, 0, (size,)) if made is None else made  # type: ignore[call-overload]
            _mappings[file, next(_numbers)] = whole
    part = whole[offset:end].view(dtype).reshape(shape)
    part.flags.writeable = mode != "r"
    return part, Place(file, whole.ctypes.data, again)


def alias_in_files(a: Any, b: Any) -> int:
    """Overlap of tensors at different addresses of one file, as defined by ``Tensor.alias_of``."""
    ours, theirs = (getattr(tensor._original_base, "place", None) for tensor in (a, b))
    if ours is None or theirs is None or ours.file != theirs.file or ours.start == theirs.start:
        return 0
    first, second = a.ptr - ours.start, b.ptr - theirs.start
    if first == second and a.geometry == b.geometry and a.dtype == b.dtype:
        return 1
    (low, high), (other_low, other_high) = extent(first, a), extent(second, b)
    return 2 if low < other_high and other_low < high else 0


def extent(first: int, tensor: Any) -> tuple[int, int]:
    """Range of bytes of the elements of ``tensor``, given the byte of the first."""
    if not tensor.size:
        return first, first
    ways = [step * (size - 1) for size, step in zip(*tensor.geometry)]
    low, high = (first + sum(way for way in ways if way * sign > 0) for sign in (-1, 1))
    return low, high + tensor.dtype.itemsize
