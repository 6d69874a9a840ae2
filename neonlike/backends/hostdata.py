"""Checks of user data: NumPy arrays, nested lists, numbers, and arrays of other libraries.

One rule for one-dimensional data: it has no orientation, so it fills but is never broadcast. A tensor of ``n`` numbers
is a column (n, 1); assigned to a tensor of ``n`` elements, they fill it in order; beside a tensor in an expression,
where a row and a column would differ, they are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends.dlpack import import_bfloat16
from neonlike.errors import DTypeError, NeonlikeError
from neonlike.optree.dtypes import SUPPORTED, as_dtype, holds
from neonlike.optree.shapes import Shape, ShapeTypeError, as_shape, is_regrouped

Array = npt.NDArray[Any]

_RAISED_BY_PEERS = (ValueError, TypeError, RuntimeError, AttributeError, BufferError)


def host_array(operation: str, value: Any) -> Array:
    """Convert ``value`` to a NumPy array of numbers in this machine's byte order.

    Accepted are numbers, nested lists, and objects with ``__array__`` or, on the CPU, ``__dlpack__``.

    Raises
    ------
    DTypeError
        If it is not a regular array of real numbers.
    """
    if value.__class__ is np.ndarray and value.dtype.kind in "fiub" and value.dtype.isnative:
        return value  # type: ignore[no-any-return]  # the common case
    name = type(value).__name__
    _refuse_masked(operation, value)
    try:
        host: Array = np.asarray(value)
        reason = ""
    except NeonlikeError:
        raise
    except _RAISED_BY_PEERS as error:  # nested lists of different lengths, or data that another library does not export
        host, reason = np.asarray(None), f": {str(error)[:200]}"
    if host.dtype == object and hasattr(value, "__dlpack__"):
        host = _from_dlpack(value, host)
    if host.dtype == object:
        host = _large_integers(host)
    elif host.dtype == np.float64 and isinstance(value, (list, tuple)):
        host = _unsigned_integers(host, value)
    if host.dtype.kind in "fiub" or holds(host.dtype):
        return native(host)
    if reason:
        raise DTypeError(f"{operation}: {name} is no regular array of numbers{reason}")
    raise DTypeError(f"{operation}: cannot store {name} of dtype {host.dtype}; expected real numbers")


def _refuse_masked(operation: str, value: Any) -> None:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        name = type(value).__name__
        raise DTypeError(f"{operation}: some elements of the {name} are masked; give them values with filled(...)")


def _from_dlpack(value: Any, otherwise: Array) -> Array:
    """Memory of an object with ``__dlpack__`` as an array, or ``otherwise``."""
    try:
        return np.from_dlpack(value)
    except _RAISED_BY_PEERS:
        found = import_bfloat16(value)
        return otherwise if found is None else found


def _large_integers(host: Array) -> Array:
    """Convert an array of Python numbers with integers beyond 64 bits to float64; leave others unchanged."""
    if not host.size or not all(isinstance(number, (int, float)) for number in host.flat):
        return host
    try:
        return host.astype(np.float64)
    except OverflowError:  # larger than any float
        return host


def _unsigned_integers(host: Array, value: Any) -> Array:
    """Lists of whole numbers from 0 to 2**64 - 1 as uint64; NumPy uses floats for lists that span 2**63."""
    if not host.size or not (host.min() >= 0 and 2.0**63 <= host.max() <= 2.0**64):
        return host
    numbers = np.array(value, object)
    if not all(isinstance(number, (int, np.integer)) and number < 2**64 for number in numbers.flat):
        return host
    return numbers.astype(np.uint64)


def native(host: Array) -> Array:
    """``host``, or a copy in this machine's byte order."""
    return host if host.dtype.isnative else host.astype(host.dtype.newbyteorder("="))


def as_column(host: Array) -> Array:
    """View of ``host`` with at least two axes: (n,) as (n, 1), and a number as (1, 1)."""
    return host.reshape(as_shape(host.shape or (1, 1)))


def array_to_wrap(value: Any) -> Array:
    """Check a NumPy array for wrapping: supported dtype, converted to native byte order, as a column.

    Raises
    ------
    DTypeError
        If it is anything else, or has masked elements.
    """
    if value.__class__ is np.ndarray and value.ndim > 1 and value.dtype in SUPPORTED:  # the common case
        return value.view()  # type: ignore[no-any-return]  # one whose shape is nobody else's to change
    if not isinstance(value, np.ndarray):
        raise DTypeError(f"wrap: needs a NumPy array, to share its memory, got {type(value).__name__}; use be.array")
    as_dtype(value.dtype, "wrap")
    _refuse_masked("wrap", value)
    return as_column(native(value.view(np.ndarray)))


def check_fills(operation: str, shape: Shape, target: Shape) -> None:
    """Raise ShapeTypeError unless data of ``shape`` fills a tensor of shape ``target`` in C order.

    One shape must split or merge axes of the other: (C, H, W, N) for (C*H*W, N), (n,) for (n, 1) or (1, n).

    Parameters
    ----------
    operation : str
        Method, for messages.
    shape, target : tuple of int
    """
    if not is_regrouped(shape, target):
        size, wanted = math.prod(shape), math.prod(target)
        raise ShapeTypeError(
            f"{operation}: got {size} elements of shape {shape}, expected {wanted} of shape {target}; "
            "reshape or transpose the array first"
        )
