"""Error bounds of ops along axes: reductions, matrix products, running sums and products, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.optree.dtypes import F32, compute_dtype
from neonlike.optree.ops import OPS, Kind
from tests.fuzz.values import WHOLE, Val, convert, formula, in_range, is_whole, unit

NARROW_SUMS = 256 + 16
"""Additions in a row in float32: the longest run in the C engine's column form, and the folds that follow."""


# Reductions and products --------------------------------------------------------------------------------------------


def _count(node: Any) -> int:
    return int(np.prod([node.operands[0].shape[axis] for axis in node.attrs["axis"]]))


def _sum(node: Any, x: Val) -> Val:
    kind, axes = compute_dtype(node.dtype), node.attrs["axis"]
    v = x.v.sum(axis=axes, keepdims=True)
    size = np.abs(x.v.astype(np.float64)).sum(axis=axes, keepdims=True)
    e = x.e.sum(axis=axes, keepdims=True)
    if kind in WHOLE:
        return Val(v, np.where((e > 0) | (size >= 2.0**62), np.inf, 0.0))
    exactly = is_whole(v, e, size, kind) & (x.v == np.rint(x.v)).all(axis=axes, keepdims=True)
    run = min(_count(node), NARROW_SUMS) if kind == F32 else _count(node)
    e = e + np.where(exactly | ~np.isfinite(size), 0, run * unit(kind) * size)
    finite = np.where(np.isfinite(x.v), np.abs(x.v), 0).sum(axis=axes, keepdims=True)
    partly = finite + np.where(np.isfinite(e), e, 0) > float(np.finfo(kind).max) / 2
    return in_range(Val(v, np.where(partly, np.inf, e)), kind, size)


def _prod(node: Any, x: Val) -> Val:
    kind, axes = compute_dtype(node.dtype), node.attrs["axis"]
    wide = np.abs(x.v.astype(np.float64))
    v = x.v.prod(axis=axes, keepdims=True)
    doubt, whole = x.e.sum(axis=axes, keepdims=True), (x.v == np.rint(x.v)).all(axis=axes, keepdims=True)
    large = np.maximum(wide + x.e, 1).prod(axis=axes, keepdims=True)
    if kind in WHOLE:
        return Val(v, np.where((doubt > 0) | ~(large < 2.0**62), np.inf, 0.0))
    small = np.where(wide > 0, np.minimum(wide - np.where(x.e < wide, x.e, 0), 1), 1).prod(axis=axes, keepdims=True)
    top, tiny = (1e38, 1e-37) if kind == F32 else (1e307, 1e-306)
    moved = (wide + x.e).prod(axis=axes, keepdims=True) - np.abs(v)
    exactly = is_whole(v, doubt, large, kind) & whole
    e = moved + np.where(exactly, 0, (_count(node) + 1) * unit(kind) * (np.abs(v) + moved))
    lost = ~((large < top) & (small > tiny))  # some order of multiplying may overflow or underflow on its way
    certain = (np.isnan(x.v) & (x.e == 0)).any(axis=axes, keepdims=True)
    return Val(v, np.where(certain, 0, np.where(lost | np.isnan(e), np.inf, e)))


def _extreme(node: Any, x: Val) -> Val:
    function, axes = formula(node.spec), node.attrs["axis"]
    v = function(x.v, axis=axes)
    if not x.e.any():
        return Val(v, np.zeros(v.shape))
    low, high = (function(x.v + np.where(x.e > 0, s * x.e, 0), axis=axes) for s in (-1, 1))
    same = (low == high) | (np.isnan(v) & np.isnan(low) & np.isnan(high))
    off = np.where(same, 0, np.maximum(high - v, v - low))
    off = np.where(np.isfinite(off), off, np.inf)
    return Val(v, np.where(np.isinf(x.e).any(axis=axes, keepdims=True), np.inf, off))


def _position(node: Any, x: Val) -> Val:
    axes = node.attrs["axis"]
    v = formula(node.spec)(x.v, axis=axes).astype(np.int64)
    if not x.e.any():
        return Val(v, np.zeros(v.shape))
    sign = 1 if node.spec.name == "argmax" else -1
    best = (sign * x.v - x.e).max(axis=axes, keepdims=True)
    possible = (sign * x.v + x.e >= best).sum(axis=axes, keepdims=True)
    return Val(v, np.where(possible == 1, 0.0, np.inf))


def _truth(node: Any, x: Val) -> Val:
    axes = node.attrs["axis"]
    doubt = (x.e > 0) & ~(np.abs(x.v) > x.e)
    least, most = (formula(node.spec)(np.where(doubt, s, x.v != 0), axis=axes).astype(np.float64) for s in (0, 1))
    return Val(least, most - least)


REDUCTIONS: dict[str, Callable[[Any, Val], Val]] = {
    "sum": _sum, "prod": _prod, "max": _extreme, "min": _extreme,
    "any": _truth, "all": _truth, "argmax": _position, "argmin": _position,
}  # fmt: skip
assert set(REDUCTIONS) == {s.name for s in OPS.values() if s.kind is Kind.REDUCTION}, "write the bound of a new row"


def dot(node: Any, x: Val, y: Val) -> Val:
    kind = compute_dtype(node.dtype)
    x, y = convert(x, kind), convert(y, kind)
    v = x.v @ y.v
    a, b = np.abs(x.v.astype(np.float64)), np.abs(y.v.astype(np.float64))
    size, e = a @ b, x.e @ b + a @ y.e + x.e @ y.e
    if kind in WHOLE:
        return Val(v, np.where((e != 0) | ~(size < 2.0**62), np.inf, 0.0))
    whole = is_whole(v, e, size, kind) & bool((x.v == np.rint(x.v)).all() and (y.v == np.rint(y.v)).all())
    e = e + np.where(whole, 0, (x.v.shape[1] + 1) * unit(kind) * size)
    return in_range(Val(v, np.where(np.isfinite(e) & np.isfinite(v), e, np.inf)), kind, size)


# Along an axis ------------------------------------------------------------------------------------------------------


def running(node: Any, x: Val) -> Val:
    """Sums or products in float64: of each result one rounding more, and one for each element before it in float64."""
    kind, function, size = compute_dtype(node.dtype), formula(node.spec), node.shape[node.attrs["axis"]]
    x = convert(x, kind)
    wide = np.abs(x.v.astype(np.float64))
    v, large = function(x.v, node), function(wide + x.e, node)
    moved = function(x.e, node) if node.spec.name == "cumsum" else large - function(wide, node)
    if kind in WHOLE:
        whole = function(np.maximum(wide, 1), node) if node.spec.name == "cumprod" else large
        return Val(v, np.where((moved != 0) | ~(whole < 2.0**62), np.inf, 0.0))
    rounding = (size + 1) * 2.0**-52 + (unit(kind) if kind == F32 else 0)
    grown = function(np.where(np.isfinite(wide), np.maximum(wide + x.e, 1), np.inf), node)
    lost = ~(grown < 1e300) if node.spec.name == "cumprod" else ~np.isfinite(large)
    tiny = float(np.finfo(np.float32 if kind == F32 else np.float64).tiny)
    small = 1e-290 * grown if node.spec.name == "cumprod" else 0.0
    e = moved + rounding * (large if node.spec.name == "cumsum" else np.abs(v) + moved) + small
    e = e + np.where((v != 0) & (np.abs(v) < 2 * tiny), 2 * tiny, 0)
    return in_range(Val(v, np.where(lost | np.isnan(e), np.inf, e)), kind, large)


def order(node: Any, x: Val) -> Val:
    """Order of lines with known values; the order of others is open."""
    axis = node.attrs["axis"]
    v = formula(node.spec)(x.v, node)
    return Val(v, np.where(np.broadcast_to((x.e > 0).any(axis=axis, keepdims=True), v.shape), np.inf, 0.0))
