"""Values with error bounds, and the effect of each op on them: conversion, range, whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neonlike.optree.dtypes import F32, I64, U64, DType, is_float
from tests.support.float64 import reference

Array = np.ndarray[Any, Any]

WHOLE = (I64, U64)
"""What integers are computed in; of uint64 only what int64 holds is known here."""


def formula(spec: Any) -> Callable[..., Any]:
    """The float64 meaning of a row, as accurate as float64 allows also near 0 and far from it."""
    if spec.name == "tanh2":
        return lambda x: np.tanh(x * np.log(2.0))
    if spec.name == "sig2":
        return lambda x: 1 / (1 + np.exp2(-x))
    return reference.formula(spec)


class Val(NamedTuple):
    """Values (float64 or int64) and the largest error of each (float64, inf: anything may come out)."""

    v: Array
    e: Array


def exact(host: Array) -> Val:
    """Exact contents of memory."""
    return Val(host.astype(np.float64 if is_float(host.dtype) else np.int64), np.zeros(host.shape))


def unit(dtype: DType) -> float:
    """Relative error of one rounding; twice that in float64, in which the value here is rounded too."""
    return 2.0**-24 if dtype == F32 else 2.0**-52


def is_known(val: Val) -> Array:
    """Where the value is finite and its error small enough for a comparison."""
    with np.errstate(all="ignore"):
        known: Array = np.isfinite(val.v) & (val.e <= 1e-2 * np.abs(val.v) + 1e-3)
    return known


def convert(operand: Val, kind: DType) -> Val:
    """``operand`` in the type that the op is computed in."""
    v, e = operand
    if kind in WHOLE and v.dtype.kind in "ib":
        return Val(v.astype(np.int64), e)
    wide = v.astype(np.float64)
    if kind == F32:
        rounded = wide.astype(np.float32).astype(np.float64)
        off = np.where(rounded == wide, 0, unit(kind) * np.abs(wide))
        return in_range(Val(wide, e + np.where(np.isnan(wide), 0, off)), kind, np.abs(wide))
    return Val(wide, e + np.where(np.abs(wide) > 2.0**53, unit(kind) * np.abs(wide), 0) if v.dtype.kind == "i" else e)


def is_whole(v: Array, e: Array, size: Array, kind: DType) -> Array:
    """Where a result is a whole number that arithmetic in ``kind`` gives exactly."""
    whole: Array = (e == 0) & (v == np.rint(v)) & (size < (2.0**24 if kind == F32 else 2.0**53))
    return whole


def in_range(val: Val, kind: DType, size: Array) -> Val:
    """Infinite where ``kind`` overflows, unknown where rounding decides whether it does, and for 64-bit integers
    that do not fit. ``size``: the largest that any step on the way may reach."""
    v, e = val
    if kind in WHOLE:
        return Val(v, np.where((size >= 2.0**62) | ((v < 0) & (kind == U64)), np.inf, e))
    top = float(np.finfo(np.float32 if kind == F32 else np.float64).max)
    finite = np.isfinite(size)
    close = finite & (size + np.where(np.isfinite(e), e, 0) > top * (1 - 1e-5))
    over = finite & (np.abs(v) - e > top) & (np.abs(v) > top * (1 + 1e-5)) & (size == np.abs(v))
    v = np.where(over, np.copysign(np.inf, v), v)
    e = np.where(over, 0.0, np.where(close, np.inf, e))
    return Val(v, np.where(np.isnan(e), np.inf, e))
