"""How computed values become elements of an array of another dtype: the rules of assignment, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.optree.dtypes import I64, U64, DType, is_float
from neonlike.optree.npfuncs import Array


def converter(dtype: DType) -> Callable[[Any, Array], None]:
    """The function that stores computed values in an array of ``dtype``."""
    if dtype.kind == "V":
        return _store_bfloat16
    if is_float(dtype):
        return cast_into
    return _store_bool if dtype.kind == "b" else store_integer


def _store_bool(source: Any, out: Array) -> None:
    np.not_equal(source, 0, out)


def store_integer(source: Any, out: Array) -> None:
    """Store in an integer array: halves round to even, values outside saturate, nan becomes 0."""
    values = np.asarray(source)
    info = np.iinfo(out.dtype)
    wide = U64 if U64 in (values.dtype, out.dtype) else I64
    most = wide.type(info.max)
    if values.dtype == U64:
        np.copyto(out, np.minimum(values, most), casting="unsafe")
        return
    if not is_float(values.dtype):
        least, largest = I64.type(info.min), I64.type(min(info.max, np.iinfo(I64).max))
        np.copyto(out, np.clip(values.astype(I64), least, largest), casting="unsafe")
        return
    rounded = np.rint(values.astype(np.float64))
    inside = np.nan_to_num(np.clip(rounded, float(info.min), math.nextafter(float(info.max) + 1.0, 0)))
    result = np.minimum(inside.astype(wide), most)
    np.copyto(out, np.where(rounded >= float(info.max), most, result), casting="unsafe")


def _store_bfloat16(source: Any, out: Array) -> None:
    """Store in an array of bfloat16, rounded once: ml_dtypes goes by way of float32, which rounds ties up to it too."""
    values = np.asarray(source)
    if values.dtype.itemsize > 4 or (values.dtype.kind in "iu" and values.dtype.itemsize == 4):
        values = _odd_float32(values)
    cast_into(values, out)


def _odd_float32(values: Array) -> Array:
    """float64 and integers as float32, rounded to odd where inexact: what is rounded again then is rounded as they are.

    Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (2008).
    """
    if values.dtype.kind in "iu":
        size = values.astype(np.uint64)  # of negative numbers the complement
        negative = values < 0
        size = np.where(negative, np.uint64(0) - size, size)
        odd = (size >> np.uint64(20)) | (size & np.uint64(0xFFFFF) != 0)
        wide = np.where(size < 1 << 44, size.astype(np.float64), odd.astype(np.float64) * 2.0**20)
        values = np.where(negative, -wide, wide)
    with np.errstate(over="ignore"):
        near = np.atleast_1d(values).astype(np.float32)
    back, bits = near.astype(np.float64), near.view(np.uint32)
    odd = (bits - (np.abs(back) > np.abs(values))) | np.uint32(1)
    exact = (back == values) | np.isnan(back)
    return np.where(exact, bits, odd).astype(np.uint32).view(np.float32).reshape(values.shape)


def cast_into(source: Array, out: Array) -> None:
    """Convert ``source`` to the dtype of ``out`` and store it there."""
    np.copyto(out, source, casting="unsafe")
