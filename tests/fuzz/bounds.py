"""Bounds for the value of an expression: for each element a float64 value and the largest effect of rounding.

The rules are forward error bounds: an op adds its own rounding (a stated number of units in the last place), and moves
what its operands carry by evaluating it at the ends of their intervals. Where rounding decides between different
answers (a sign, a step, a pole, an overflow) the error is infinite, and any answer is right. Integers are exact, and so
are whole numbers in floats while they fit, which makes many comparisons here exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neonlike.optree import philox
from neonlike.optree.dtypes import F32, F64, I64, U64, DType, DTypeRule, compute_dtype, is_float
from neonlike.optree.ops import Kind
from tests.fuzz.bounds_axes import REDUCTIONS, dot, order, running
from tests.fuzz.values import WHOLE, Array, Val, convert, exact, formula, in_range, is_whole, unit

FUNCTION_ULPS = 8.0
"""Of a math function: 4 for the function and 4 for what surrounds it (``sig`` is three roundings and an ``exp``)."""
EXACT = frozenset(
    "neg abs sgn relu rint floor ceil trunc binarize finite isnan isinf eq ne lt le gt ge and or not xor maximum "
    "minimum where fmod bitwise_and bitwise_or bitwise_xor invert left_shift right_shift".split()
)
ROUNDED_ONCE = frozenset("add sub mul sqr div sqrt leaky_relu mod floordiv".split())
MONOTONE_STEPS = frozenset("sgn rint floor ceil binarize lt le gt ge".split())


def evaluate(node: Any, operands: Sequence[Any]) -> Val:
    """``node`` of the given operands: Vals, numbers, or None for a ``rand`` or ``onehot``."""
    drawn = F64 if node.dtype == F64 else F32
    operands = [_made(o, node.shape, drawn) if x is None else _number(x) for x, o in zip(operands, node.operands)]
    with np.errstate(all="ignore"):
        if node.spec.kind is Kind.ELEMENTWISE:
            return _elementwise(node, operands)
        if node.spec.kind is Kind.REDUCTION:
            return REDUCTIONS[node.spec.name](node, operands[0])
        if node.spec.name == "dot":
            return dot(node, *operands)
        if node.spec.kind is Kind.SCAN:
            return order(node, operands[0]) if node.spec.name == "argsort" else running(node, operands[0])
        if node.spec.name == "concat":
            converted = [convert(o, compute_dtype(node.dtype)) for o in operands]
            return Val(*(np.concatenate(parts, axis=node.attrs["axis"]) for parts in zip(*converted)))
        function = formula(node.spec)
        rest = [o.v for o in operands[1:]]
        if not node.spec.name.startswith("untake"):
            return Val(*(np.array(function(part, *rest, node)) for part in operands[0]))
        v, e, size = (function(part, *rest, node) for part in (*operands[0], np.abs(operands[0].v).astype(np.float64)))
        kind = compute_dtype(node.dtype)
        rounding = 0.0 if kind in WHOLE else max(node.operands[0].shape[node.attrs["axis"]], 1) * unit(kind)
        return in_range(Val(v, e + np.where(is_whole(v, e, size, kind), 0, rounding * size)), kind, size)


def _number(operand: Any) -> Val:
    return operand if isinstance(operand, Val) else Val(np.asarray(operand), np.zeros(()))


def _made(node: Any, shape: Any, drawn: DType) -> Val:
    """The values of a ``rand``, in the dtype that its reader has, or of a ``onehot``, used at ``shape``."""
    if _is_rand(node):
        made = np.empty(shape, drawn)
        philox.uniform(np.arange(made.size).reshape(shape), node.attrs["call"], node.attrs["seed"], made)
        return exact(made)
    (classes,) = node.operands
    axis, indices = node.attrs["axis"], classes.operands[0].get().astype(np.int64)
    positions = np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(2)])
    return exact(np.broadcast_to((positions == indices).astype(np.float32), shape))


# Elementwise --------------------------------------------------------------------------------------------------------


def _is_rand(operand: Any) -> bool:
    """Whether these are random numbers, whose dtype is that of their reader."""
    return getattr(getattr(operand, "spec", None), "name", "") == "rand"


def _kind_of(node: Any) -> DType:
    """The type operands are compared or computed in."""
    if node.spec.dtype is not DTypeRule.TRUTH:
        return compute_dtype(node.dtype)
    typed = [compute_dtype(node.dtype if _is_rand(o) else o.dtype) for o in node.operands if hasattr(o, "dtype")]
    fractional = any(isinstance(o, float) for o in node.operands)
    if all(t in WHOLE for t in typed) and not fractional:
        return I64
    return F64 if all(t == F64 for t in typed) else F32


def _elementwise(node: Any, operands: Sequence[Any]) -> Val:
    name, kind = node.spec.name, compute_dtype(node.dtype)
    if name == "broadcast":
        return operands[0]  # type: ignore[no-any-return]
    if name == "where":
        return _where([operands[0], *(convert(o, kind) for o in operands[1:])], node.shape)
    inner = _kind_of(node)
    vals = [Val(*(np.broadcast_to(part, node.shape) for part in convert(o, inner))) for o in operands]
    function = formula(node.spec)
    values = [v for v, _ in vals]
    center = np.asarray(function(*values))
    unknown = np.any([np.isinf(e) for _, e in vals], axis=0)
    if inner in WHOLE:
        sizes = [np.abs(v.astype(np.float64)) for v in values]
        large = np.abs(np.asarray(function(*sizes), np.float64)) if name in ("add", "mul", "sqr") else sum(sizes)
        if name == "left_shift":
            large = sizes[0] * np.exp2(np.clip(values[1], 0, 63))
        center = center.astype(np.int64 if kind in WHOLE else np.float64)
        unknown = unknown | np.any([e > 0 for _, e in vals], axis=0) | (large >= 2.0**62)
        unknown = unknown | ((center < 0) & (kind == U64))
        return Val(center, np.where(unknown, np.inf, 0.0))
    error = _moved(name, function, center, vals, inner)
    error = np.where(unknown, np.inf, error + _own(name, center, error, vals, kind))
    error = np.where(_ambiguous(name, center, vals, inner), np.inf, error)
    return in_range(Val(center.astype(np.float64), error), kind, np.abs(center))


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


def _own(name: str, center: Array, moved: Array, vals: Sequence[Val], kind: DType) -> Array:
    """The op's own rounding, of any result that the operands' errors may lead to: within ``moved`` of ``center``."""
    if name in EXACT:
        return np.zeros(center.shape)
    size = np.where(np.isfinite(center), np.abs(center) + np.where(np.isfinite(moved), moved, 0), 0)
    if name in ROUNDED_ONCE:
        errors = np.any([e > 0 for _, e in vals], axis=0)
        operands = np.max([np.abs(v) for v, _ in vals], axis=0)
        whole = is_whole(center, errors, np.maximum(size, operands), kind)
        whole &= all((v == np.rint(v)).all() for v, _ in vals)
        return np.where(whole, 0, 2 * unit(kind) * size + 2.0 ** (-149 if kind == F32 else -1074))
    tiny = float(np.finfo(np.float32 if kind == F32 else np.float64).tiny)
    if name == "spread":  # a difference, of which little may be left
        squares, total, count = (np.abs(v) + e for v, e in vals)
        size = np.where(np.isfinite(center), size + (squares + total * (total / count)) / count, 0)
    return np.where(np.isfinite(center), 2 * FUNCTION_ULPS * unit(kind) * size + tiny, 0)


def _ambiguous(name: str, center: Array, vals: Sequence[Val], kind: DType) -> Array:
    """Elements that depend on the sign of a zero, a pole, or the order of an engine's steps."""
    none = np.zeros(center.shape, bool)
    finite = np.all([np.isfinite(v) for v, _ in vals], axis=0)
    limits = 120 if kind == F32 else 1000
    if name == "spread":
        return ~(np.abs(vals[2].v) > vals[2].e) | ~finite
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
    if name in ("arcsin", "arccos", "arctanh"):  # numbers may lie between, where the middle and both ends give nan
        x = vals[0]
        return (x.e > 0) & (np.abs(x.v) > 1) & (np.abs(x.v) - x.e <= 1)
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
            off = (got != np.clip(v, info.min, min(info.max, 2**63 - 1))) & (e == 0)
        elif not is_float(got.dtype):
            off = (got < saturated(v - e, got.dtype)) | (got > saturated(v + e, got.dtype))
        else:
            low, high = (rounded_once(np.where(np.isfinite(v), v + s * e, v), got.dtype) for s in (-1, 1))
            if v.dtype.kind == "i":
                low = high = v.astype(got.dtype)
            if got.dtype == np.float16 and source != F32:  # rounded to float32 on the way
                low, high = np.nextafter(low, np.float16(-np.inf)), np.nextafter(high, np.float16(np.inf))
            off = ~(((got >= low) & (got <= high)) | (np.isnan(got) & np.isnan(v)))
        return off & ~anything


def rounded_once(x: Array, dtype: DType) -> Array:
    """The numbers of a float ``dtype`` nearest to those of float64, ties to even.

    ml_dtypes converts to bfloat16 by way of float32, where a number close to a tie may become one. Here the one in
    float32 is the neighbour with an odd last bit instead, which is none.
    """
    if dtype.name != "bfloat16":
        return x.astype(dtype)
    near = x.astype(np.float32)
    inner = np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    odd = (inner.view(np.uint32) | (inner != x)).view(np.float32)
    return np.where(np.isfinite(near), odd, near).astype(dtype)


def saturated(x: Array, dtype: DType) -> Array:
    """Whole numbers nearest to ``x`` within the range of an integer ``dtype``; 0 for nan."""
    info = np.iinfo(dtype)
    whole = np.where(np.isnan(x), 0, np.rint(x))
    inside = (whole > float(info.min)) & (whole < float(info.max))
    ends = np.where(whole > 0, dtype.type(info.max), dtype.type(info.min))
    return np.where(inside, np.where(inside, whole, 0).astype(dtype), ends)
