"""What an expression may give: for each element a float64 value and how far rounding may move it.

The rules are forward error bounds: an op adds its own rounding (a stated number of units in the last place), and moves
what its operands carry by evaluating it at the ends of their intervals. Where rounding decides between different
answers (a sign, a step, a pole, an overflow) the error is infinite, and any answer is right. Integers are exact, and so
are whole numbers in floats while they fit, which makes many comparisons here exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import reference

from neonlike.optree import philox
from neonlike.optree.dtypes import F32, F64, I64, DType, DTypeRule, compute_dtype, is_float
from neonlike.optree.ops import OPS, Kind

Array = np.ndarray[Any, Any]

NARROW_SUMS = 256 + 16
"""Additions in a row in float32: the longest run in the C engine's column form, and the folds that follow."""
FUNCTION_ULPS = 8.0
"""Of a math function: 4 for the function and 4 for what surrounds it (``sig`` is three roundings and an ``exp``)."""
EXACT = frozenset(
    "neg abs sgn relu rint floor ceil trunc binarize finite isnan isinf eq ne lt le gt ge and or not xor maximum "
    "minimum where fmod bitwise_and bitwise_or bitwise_xor invert left_shift right_shift".split()
)
ROUNDED_ONCE = frozenset("add sub mul sqr div sqrt leaky_relu mod floordiv".split())
MONOTONE_STEPS = frozenset("sgn rint floor ceil binarize lt le gt ge".split())


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
    """What memory holds."""
    return Val(host.astype(np.float64 if is_float(host.dtype) else np.int64), np.zeros(host.shape))


def unit(dtype: DType) -> float:
    """Relative error of one rounding; twice that in float64, in which the value here is rounded too."""
    return 2.0**-24 if dtype == F32 else 2.0**-52


def is_known(val: Val) -> Array:
    """Where the value is finite and the error small: what a comparison is worth something for."""
    with np.errstate(all="ignore"):
        known: Array = np.isfinite(val.v) & (val.e <= 1e-2 * np.abs(val.v) + 1e-3)
    return known


def evaluate(node: Any, operands: Sequence[Any]) -> Val:
    """``node`` of the given operands: Vals, numbers, or None for a ``rand`` or ``onehot``."""
    operands = [_made(o, node.shape) if x is None else _number(x) for x, o in zip(operands, node.operands)]
    with np.errstate(all="ignore"):
        if node.spec.kind is Kind.ELEMENTWISE:
            return _elementwise(node, operands)
        if node.spec.kind is Kind.REDUCTION:
            return _REDUCTIONS[node.spec.name](node, operands[0])
        if node.spec.name == "dot":
            return _dot(node, *operands)
        if node.spec.kind is Kind.SCAN:
            return _order(node, operands[0]) if node.spec.name == "argsort" else _running(node, operands[0])
        if node.spec.name == "concat":
            converted = [_convert(o, compute_dtype(node.dtype)) for o in operands]
            return Val(*(np.concatenate(parts, axis=node.attrs["axis"]) for parts in zip(*converted)))
        function = formula(node.spec)
        rest = [o.v for o in operands[1:]]
        if not node.spec.name.startswith("untake"):
            return Val(*(np.array(function(part, *rest, node)) for part in operands[0]))
        v, e, size = (function(part, *rest, node) for part in (*operands[0], np.abs(operands[0].v).astype(np.float64)))
        kind = compute_dtype(node.dtype)
        rounding = 0.0 if kind == I64 else max(node.operands[0].shape[node.attrs["axis"]], 1) * unit(kind)
        return _in_range(Val(v, e + np.where(_whole(v, e, size, kind), 0, rounding * size)), kind, size)


def _number(operand: Any) -> Val:
    return operand if isinstance(operand, Val) else Val(np.asarray(operand), np.zeros(()))


def _made(node: Any, shape: Any) -> Val:
    """The values of a ``rand`` or ``onehot`` used at ``shape``."""
    if node.spec.name == "rand":
        made = np.empty(shape, np.float32)
        philox.uniform(np.arange(made.size).reshape(shape), node.attrs["call"], node.attrs["seed"], made)
        return exact(made)
    axis, indices = node.attrs["axis"], node.operands[0].get().astype(np.int64)
    positions = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(2)])
    return exact(np.broadcast_to((positions == indices).astype(np.float32), shape))


# Elementwise --------------------------------------------------------------------------------------------------------


def _convert(operand: Val, kind: DType) -> Val:
    """``operand`` in the type that the op is computed in."""
    v, e = operand
    if kind == I64 and v.dtype.kind in "ib":
        return Val(v.astype(np.int64), e)
    wide = v.astype(np.float64)
    if kind == F32:
        rounded = wide.astype(np.float32).astype(np.float64)
        off = np.where(rounded == wide, 0, unit(kind) * np.abs(wide))
        return _in_range(Val(wide, e + np.where(np.isnan(wide), 0, off)), kind, np.abs(wide))
    return Val(wide, e + np.where(np.abs(wide) > 2.0**53, unit(kind) * np.abs(wide), 0) if v.dtype.kind == "i" else e)


def _kind_of(node: Any) -> DType:
    """The type operands are compared or computed in."""
    if node.spec.dtype is not DTypeRule.TRUTH:
        return compute_dtype(node.dtype)
    typed = [compute_dtype(o.dtype) for o in node.operands if hasattr(o, "dtype")]
    fractional = any(isinstance(o, float) for o in node.operands)
    if all(t == I64 for t in typed) and not fractional:
        return I64
    return F64 if all(t == F64 for t in typed) else F32


def _elementwise(node: Any, operands: Sequence[Any]) -> Val:
    name, kind = node.spec.name, compute_dtype(node.dtype)
    if name == "broadcast":
        return operands[0]  # type: ignore[no-any-return]
    if name == "where":
        return _where([operands[0], *(_convert(o, kind) for o in operands[1:])], node.shape)
    inner = _kind_of(node)
    vals = [Val(*(np.broadcast_to(part, node.shape) for part in _convert(o, inner))) for o in operands]
    function = formula(node.spec)
    values = [v for v, _ in vals]
    center = np.asarray(function(*values))
    unknown = np.any([np.isinf(e) for _, e in vals], axis=0)
    if inner == I64:
        sizes = [np.abs(v.astype(np.float64)) for v in values]
        large = np.abs(np.asarray(function(*sizes), np.float64)) if name in ("add", "mul", "sqr") else sum(sizes)
        if name == "left_shift":
            large = sizes[0] * np.exp2(np.clip(values[1], 0, 63))
        center = center.astype(np.int64 if kind == I64 else np.float64)
        unknown = unknown | np.any([e > 0 for _, e in vals], axis=0) | (large >= 2.0**62)
        return Val(center, np.where(unknown, np.inf, 0.0))
    error = _moved(name, function, center, vals, inner)
    error = np.where(unknown, np.inf, error + _own(name, center, vals, kind))
    error = np.where(_ambiguous(name, center, vals, inner), np.inf, error)
    return _in_range(Val(center.astype(np.float64), error), kind, np.abs(center))


def _where(vals: Sequence[Val], shape: Any) -> Val:
    condition, x, y = (Val(*(np.broadcast_to(part, shape) for part in val)) for val in vals)
    chosen = condition.v != 0
    doubt = (condition.e > 0) & ~(np.abs(condition.v) > condition.e)
    apart = np.abs(x.v.astype(np.float64) - y.v.astype(np.float64))
    error = np.where(chosen, x.e, y.e)
    either = np.where(np.isfinite(apart), apart + np.maximum(x.e, y.e), np.inf)
    return Val(np.where(chosen, x.v, y.v), np.where(doubt, either, error))


def _moved(name: str, function: Callable[..., Any], center: Array, vals: Sequence[Val], kind: DType) -> Array:
    """How far the operands' errors move the result."""
    if name in ("eq", "ne"):
        x, y = vals
        return np.where((x.e + y.e > 0) & (np.abs(x.v - y.v) <= x.e + y.e), 1.0, 0.0)
    if name in ("and", "or", "not", "xor"):
        return np.any([(e > 0) & ~(np.abs(v) > e) for v, e in vals], axis=0).astype(np.float64)
    if name in ("sin", "cos"):
        return np.minimum(vals[0].e, 2.0)
    if name in ("mod", "fmod") and any(e.any() for _, e in vals):
        ends = [v + s * e for v, e in vals for s in (-1, 1)]
        whole = np.floor if name == "mod" else np.trunc
        quotients = [whole(a / b) for a in ends[:2] for b in ends[2:]]
        jumps = np.any([q != quotients[0] for q in quotients], axis=0) | ~(np.abs(vals[1].v) > vals[1].e)
        return np.where(jumps, np.inf, vals[0].e + np.abs(quotients[0]) * vals[1].e)
    if name == "shift":  # the step of its rounding lies where the logarithm's rounding puts it
        vals = [vals[0], Val(vals[1].v, vals[1].e + 8 * unit(kind) * np.abs(vals[1].v))]
    if not any(e.any() for _, e in vals):
        return np.zeros(center.shape)
    worst = np.zeros(center.shape)
    for signs in itertools.product((-1, 1), repeat=len(vals)):
        found = np.asarray(function(*(v + np.where(e > 0, s * e, 0) for (v, e), s in zip(vals, signs))), np.float64)
        same = (found == center) | (np.isnan(found) & np.isnan(center))
        off = np.where(same, 0, np.abs(found - center))
        worst = np.maximum(worst, np.where(np.isfinite(off), off, np.inf))
    return worst


def _own(name: str, center: Array, vals: Sequence[Val], kind: DType) -> Array:
    """The op's own rounding."""
    if name in EXACT:
        return np.zeros(center.shape)
    size = np.where(np.isfinite(center), np.abs(center), 0)
    if name in ROUNDED_ONCE:
        errors = np.any([e > 0 for _, e in vals], axis=0)
        operands = np.max([np.abs(v) for v, _ in vals], axis=0)
        whole = _whole(center, errors, np.maximum(size, operands), kind) & all((v == np.rint(v)).all() for v, _ in vals)
        return np.where(whole, 0, 2 * unit(kind) * size + 2.0 ** (-149 if kind == F32 else -1074))
    tiny = float(np.finfo(np.float32 if kind == F32 else np.float64).tiny)
    return np.where(np.isfinite(center), 2 * FUNCTION_ULPS * unit(kind) * size + tiny, 0)


def _whole(v: Array, e: Array, size: Array, kind: DType) -> Array:
    """Where a result is a whole number that arithmetic in ``kind`` gives exactly."""
    whole: Array = (e == 0) & (v == np.rint(v)) & (size < (2.0**24 if kind == F32 else 2.0**53))
    return whole


def _ambiguous(name: str, center: Array, vals: Sequence[Val], kind: DType) -> Array:
    """Where what an engine gives depends on the sign of a zero, a pole, or the order of its steps."""
    none = np.zeros(center.shape, bool)
    finite = np.all([np.isfinite(v) for v, _ in vals], axis=0)
    limits = 120 if kind == F32 else 1000
    if name in ("div", "floordiv"):
        y = vals[1]
        return (np.abs(y.v) <= y.e) & ((y.v != 0) | (vals[0].v != 0) | (y.e > 0))
    if name == "pow":
        x, y = vals
        maybe_whole = (y.e > 0) & (np.floor(y.v + y.e) >= np.ceil(y.v - y.e))
        return ((np.abs(x.v) <= x.e) & ((y.v < 0) | (x.e > 0))) | ((x.v - x.e < 0) & maybe_whole)
    if name == "arctan2":  # across the cut, where the angle jumps by a turn; the sign of a zero chooses the side
        y, x = vals
        return (np.abs(y.v) <= y.e) & (x.v - x.e <= 0)
    if name == "tan":
        return (vals[0].e > 0) & ~(vals[0].e * (1 + center * center) < 0.1)
    if name in ("mul", "sqr"):  # an addition fused with it may bring it back into range
        return finite & (np.abs(center) > (1e38 if kind == F32 else 1e307))
    if name == "shift":
        by = np.abs(vals[1].v)
        return (by != 0) & ~((by > 2.0**-limits) & (by < 2.0**limits))
    if name == "shift_exponent":
        return ~(np.abs(vals[1].v) + vals[1].e < limits)
    return none


def _in_range(val: Val, kind: DType, size: Array) -> Val:
    """Infinite where ``kind`` overflows, unknown where rounding decides whether it does, and for 64-bit integers
    that do not fit. ``size``: the largest that any step on the way may reach."""
    v, e = val
    if kind == I64:
        return Val(v, np.where(size >= 2.0**62, np.inf, e))
    top = float(np.finfo(np.float32 if kind == F32 else np.float64).max)
    finite = np.isfinite(size)
    close = finite & (size + np.where(np.isfinite(e), e, 0) > top * (1 - 1e-5))
    over = finite & (np.abs(v) - e > top) & (np.abs(v) > top * (1 + 1e-5)) & (size == np.abs(v))
    v = np.where(over, np.copysign(np.inf, v), v)
    e = np.where(over, 0.0, np.where(close, np.inf, e))
    return Val(v, np.where(np.isnan(e), np.inf, e))


# Reductions and products --------------------------------------------------------------------------------------------


def _count(node: Any) -> int:
    return int(np.prod([node.operands[0].shape[axis] for axis in node.attrs["axis"]]))


def _sum(node: Any, x: Val) -> Val:
    kind, axes = compute_dtype(node.dtype), node.attrs["axis"]
    v = x.v.sum(axis=axes, keepdims=True)
    size = np.abs(x.v.astype(np.float64)).sum(axis=axes, keepdims=True)
    e = x.e.sum(axis=axes, keepdims=True)
    if kind == I64:
        return Val(v, np.where((e > 0) | (size >= 2.0**62), np.inf, 0.0))
    exactly = _whole(v, e, size, kind) & (x.v == np.rint(x.v)).all(axis=axes, keepdims=True)
    run = min(_count(node), NARROW_SUMS) if kind == F32 else _count(node)
    e = e + np.where(exactly | ~np.isfinite(size), 0, run * unit(kind) * size)
    finite = np.where(np.isfinite(x.v), np.abs(x.v), 0).sum(axis=axes, keepdims=True)
    partly = finite + np.where(np.isfinite(e), e, 0) > float(np.finfo(kind).max) / 2
    return _in_range(Val(v, np.where(partly, np.inf, e)), kind, size)


def _prod(node: Any, x: Val) -> Val:
    kind, axes = compute_dtype(node.dtype), node.attrs["axis"]
    wide = np.abs(x.v.astype(np.float64))
    v = x.v.prod(axis=axes, keepdims=True)
    doubt, whole = x.e.sum(axis=axes, keepdims=True), (x.v == np.rint(x.v)).all(axis=axes, keepdims=True)
    large = np.maximum(wide + x.e, 1).prod(axis=axes, keepdims=True)
    if kind == I64:
        return Val(v, np.where((doubt > 0) | ~(large < 2.0**62), np.inf, 0.0))
    small = np.where(wide > 0, np.minimum(wide - np.where(x.e < wide, x.e, 0), 1), 1).prod(axis=axes, keepdims=True)
    top, tiny = (1e38, 1e-37) if kind == F32 else (1e307, 1e-306)
    moved = (wide + x.e).prod(axis=axes, keepdims=True) - np.abs(v)
    exactly = _whole(v, doubt, large, kind) & whole
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


_REDUCTIONS: dict[str, Callable[[Any, Val], Val]] = {
    "sum": _sum, "prod": _prod, "max": _extreme, "min": _extreme,
    "any": _truth, "all": _truth, "argmax": _position, "argmin": _position,
}  # fmt: skip
assert set(_REDUCTIONS) == {s.name for s in OPS.values() if s.kind is Kind.REDUCTION}, "write the bound of a new row"


def _dot(node: Any, x: Val, y: Val) -> Val:
    kind = compute_dtype(node.dtype)
    x, y = _convert(x, kind), _convert(y, kind)
    v = x.v @ y.v
    a, b = np.abs(x.v.astype(np.float64)), np.abs(y.v.astype(np.float64))
    size, e = a @ b, x.e @ b + a @ y.e + x.e @ y.e
    if kind == I64:
        return Val(v, np.where((e != 0) | ~(size < 2.0**62), np.inf, 0.0))
    whole = _whole(v, e, size, kind) & bool((x.v == np.rint(x.v)).all() and (y.v == np.rint(y.v)).all())
    e = e + np.where(whole, 0, (x.v.shape[1] + 1) * unit(kind) * size)
    return _in_range(Val(v, np.where(np.isfinite(e) & np.isfinite(v), e, np.inf)), kind, size)


# Along an axis ------------------------------------------------------------------------------------------------------


def _running(node: Any, x: Val) -> Val:
    """Sums or products in float64: of each result one rounding more, and one for each element before it in float64."""
    kind, function, size = compute_dtype(node.dtype), formula(node.spec), node.shape[node.attrs["axis"]]
    x = _convert(x, kind)
    wide = np.abs(x.v.astype(np.float64))
    v, large = function(x.v, node), function(wide + x.e, node)
    moved = function(x.e, node) if node.spec.name == "cumsum" else large - function(wide, node)
    if kind == I64:
        whole = function(np.maximum(wide, 1), node) if node.spec.name == "cumprod" else large
        return Val(v, np.where((moved != 0) | ~(whole < 2.0**62), np.inf, 0.0))
    rounding = (size + 1) * 2.0**-52 + (unit(kind) if kind == F32 else 0)
    grown = function(np.where(np.isfinite(wide), np.maximum(wide + x.e, 1), np.inf), node)
    lost = ~(grown < 1e300) if node.spec.name == "cumprod" else ~np.isfinite(large)
    tiny = float(np.finfo(np.float32 if kind == F32 else np.float64).tiny)
    small = 1e-290 * grown if node.spec.name == "cumprod" else 0.0
    e = moved + rounding * (large if node.spec.name == "cumsum" else np.abs(v) + moved) + small
    e = e + np.where((v != 0) & (np.abs(v) < 2 * tiny), 2 * tiny, 0)
    return _in_range(Val(v, np.where(lost | np.isnan(e), np.inf, e)), kind, large)


def _order(node: Any, x: Val) -> Val:
    """Known for lines whose values are; of others anything may come first."""
    axis = node.attrs["axis"]
    v = formula(node.spec)(x.v, node)
    return Val(v, np.where(np.broadcast_to((x.e > 0).any(axis=axis, keepdims=True), v.shape), np.inf, 0.0))


# What memory may hold -----------------------------------------------------------------------------------------------


def wrong(got: Array, val: Val, source: DType) -> Array:
    """Where ``got`` is no possible result of storing ``val``, computed in ``source``, in its dtype."""
    v, e = (np.broadcast_to(part.reshape(part.shape[max(0, part.ndim - got.ndim) :]), got.shape) for part in val)
    anything = np.isinf(e)
    with np.errstate(all="ignore"):
        if got.dtype.kind == "b":
            doubt = (e > 0) & ~(np.abs(v) > e)
            off: Array = (got != (v != 0)) & ~doubt
        elif v.dtype.kind == "i" and not is_float(got.dtype):
            info = np.iinfo(got.dtype)
            off = (got != np.clip(v, info.min, info.max)) & (e == 0)
        elif not is_float(got.dtype):
            off = (got < saturated(v - e, got.dtype)) | (got > saturated(v + e, got.dtype))
        else:
            low, high = (np.where(np.isfinite(v), v + s * e, v).astype(got.dtype) for s in (-1, 1))
            if v.dtype.kind == "i":
                low = high = v.astype(got.dtype)
            if got.dtype == np.float16 and source != F32:  # rounded to float32 on the way
                low, high = np.nextafter(low, np.float16(-np.inf)), np.nextafter(high, np.float16(np.inf))
            off = ~(((got >= low) & (got <= high)) | (np.isnan(got) & np.isnan(v)))
        return off & ~anything


def saturated(x: Array, dtype: DType) -> Array:
    """Whole numbers nearest to ``x`` within the range of an integer ``dtype``; 0 for nan."""
    info = np.iinfo(dtype)
    whole = np.where(np.isnan(x), 0, np.rint(x))
    inside = (whole > float(info.min)) & (whole < float(info.max))
    ends = np.where(whole > 0, info.max, info.min)
    return np.where(inside, np.where(inside, whole, 0).astype(np.int64), ends).astype(dtype)
