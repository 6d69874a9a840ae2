"""How computed values become elements of an array of another dtype: the rules of assignment, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.optree.dtypes import DType, is_float
from neonlike.optree.npfuncs import Array


def converter(dtype: DType) -> Callable[[Any, Array], None]:
    """The function that stores computed values in an array of ``dtype``."""
    if is_float(dtype):
        return cast_into
    return _store_bool if dtype.kind == "b" else store_integer


def _store_bool(source: Any, out: Array) -> None:
    np.not_equal(source, 0, out)


def store_integer(source: Any, out: Array) -> None:
    """Store in an integer array: halves round to even, values outside saturate, nan becomes 0."""
    values = np.asarray(source)
    info = np.iinfo(out.dtype)
    if not is_float(values.dtype):
        if values.dtype == np.uint64:  # from outside; tensors hold none
            values = np.minimum(values, np.uint64(info.max))
        np.copyto(out, np.clip(values.astype(np.int64), info.min, info.max), casting="unsafe")
        return
    rounded = np.rint(values.astype(np.float64))
    inside = np.nan_to_num(np.clip(rounded, float(info.min), math.nextafter(float(info.max) + 1.0, 0)))
    result = np.minimum(inside.astype(np.int64), info.max)
    np.copyto(out, np.where(rounded >= float(info.max), info.max, result), casting="unsafe")


def cast_into(source: Array, out: Array) -> None:
    np.copyto(out, source, casting="unsafe")
