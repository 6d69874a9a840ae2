"""``repr`` and ``str`` of a tensor: values in NumPy's format; for a large one, only edge values are fetched."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.errors import NeonlikeError


def line(tensor: Any) -> str:
    """neon's line about ``tensor``, without its values and without waiting for them."""
    kind = "contiguous" if tensor.is_contiguous else "strided"
    return (
        f"{type(tensor).__name__}(base 0x{tensor._original_base.ptr:x}) name:{tensor.name} shape:{tensor.shape} "
        f"dtype:{tensor.dtype.name} strides:{tensor.strides} {kind}"
    )


def describe(tensor: Any) -> str:
    """Values, name if there is one, shape and dtype of ``tensor``; neon's line if the values are unavailable.

    NumPy's ``np.printoptions`` apply: with more than ``threshold`` elements, ``edgeitems`` at both ends of an axis.
    """
    options = np.get_printoptions()
    large = tensor.size > options["threshold"]
    try:
        host = _ends(tensor, options["edgeitems"]) if large else tensor.get()
    except NeonlikeError:  # a closed backend, a lost GPU
        return line(tensor)
    head = f"{type(tensor).__name__}("
    values = np.array2string(host, separator=", ", prefix=head, threshold=0 if large else None)
    name = "" if tensor.name is None else f"name={tensor.name!r}, "
    return f"{head}{values}, {name}shape={tensor.shape}, dtype={tensor.dtype.name})"


def _ends(tensor: Any, count: int) -> npt.NDArray[Any]:
    """The first and last ``count`` along each axis, plus one in between where NumPy prints "..."."""
    axis = next((axis for axis, size in enumerate(tensor.shape) if size > 2 * count + 1), None)
    if axis is None:
        host: npt.NDArray[Any] = tensor.get()
        return host
    before = (slice(None),) * axis
    size = tensor.shape[axis]
    parts = [tensor[(*before, slice(0, count + 1))], tensor[(*before, slice(size - count, size))]]
    return np.concatenate([_ends(part, count) for part in parts], axis)
