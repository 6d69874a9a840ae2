"""NumPy definitions of the ops: the functions in the ``numpy`` column of the op table.

An elementwise function is called ``f(*operands, out)``, a reduction ``f(x, axes, out)`` with reduced axes kept
as 1. Only functions marked :func:`inplace` may be given an ``out`` that is one of their operands; NumPy's own
ufuncs may too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from neonlike.errors import IndexRangeError
from neonlike.optree.dtypes import wide_dtype
from neonlike.optree.shapes import is_reshape

Array: TypeAlias = np.ndarray[Any, Any]
Function: TypeAlias = Callable[..., Any]

LN2, LN10 = 0.6931471805599453, 2.302585092994046
SAFELOG_FLOOR = -50.0
_SAFELOG_SMALLEST = float(np.exp(SAFELOG_FLOOR))


def inplace(function: Function) -> Function:
    """Mark ``function`` as correct if ``out`` is one of its operands."""
    function.inplace = True  # type: ignore[attr-defined]
    return function


def is_inplace(function: Function) -> bool:
    """True if ``function`` may overwrite an operand."""
    return isinstance(function, np.ufunc) or getattr(function, "inplace", False)


def any_dtype(function: Function) -> Function:
    """Mark ``function`` as accepting operands of any dtype, regardless of ``out``."""
    function.any_dtype = True  # type: ignore[attr-defined]
    return function


def takes_any_dtype(function: Function) -> bool:
    """True if the operands of ``function`` need no conversion to the dtype of ``out``."""
    return getattr(function, "any_dtype", False)


@inplace
def sig(x: Array, out: Array) -> None:
    """1 / (1 + e^-x)."""
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, 1, out)
    np.reciprocal(out, out)


@inplace
def sig2(x: Array, out: Array) -> None:
    """1 / (1 + 2^-x)."""
    np.negative(x, out)
    np.exp2(out, out)
    np.add(out, 1, out)
    np.reciprocal(out, out)


@inplace
def tanh2(x: Array, out: Array) -> None:
    """(2^2x - 1) / (2^2x + 1), which is tanh(x ln 2) without the overflow."""
    np.multiply(x, LN2, out)
    np.tanh(out, out)


@inplace
def safelog(x: Array, out: Array) -> None:
    """log(max(x, e^-50)): -50 for zero and below."""
    np.maximum(x, _SAFELOG_SMALLEST, out=out)
    np.log(out, out)


@inplace
def relu(x: Array, out: Array) -> None:
    """max(x, 0)."""
    np.maximum(x, 0, out=out)


def spread(squares: Array, total: Any, count: Any, out: Array) -> None:
    """Variance of ``count`` numbers from the sum of their squares and their sum; infinite if the squares overflow.

    Parameters
    ----------
    squares, total, count, out : arrays; total and count may be numbers
    """
    np.divide(total, count, out)
    np.multiply(out, total, out)
    np.subtract(squares, out, out)
    np.divide(out, count, out)
    np.maximum(out, 0, out=out)
    np.copyto(out, squares, where=np.isinf(squares))


@inplace
def power(x: Array, y: Any, out: Array) -> None:
    """Power x**y by IEEE 754; NumPy's square root for a scalar y of 1/2 differs at -0 and -infinity.

    Parameters
    ----------
    x, y, out : arrays; y may be a number
    """
    root = np.size(y) == 1 and np.all(np.equal(y, 0.5))
    lowest = np.equal(x, -np.inf) if root else None
    np.power(x, y, out)
    if root:
        np.absolute(out, out)
        np.copyto(out, np.inf, where=lowest)


@inplace
def maximum(x: Array, y: Any, out: Array) -> None:
    """Larger of x and y; nan wins. (``out`` by keyword: NumPy deprecates a third positional argument here.)

    Parameters
    ----------
    x, y, out : arrays; y may be a number
    """
    np.maximum(x, y, out=out)


@inplace
def minimum(x: Array, y: Any, out: Array) -> None:
    """Smaller of x and y; nan wins.

    Parameters
    ----------
    x, y, out : arrays; y may be a number
    """
    np.minimum(x, y, out=out)


def _whole(ufunc: np.ufunc) -> Function:
    @inplace
    def function(x: Array, out: Array) -> None:
        if out.dtype.kind == "f":
            ufunc(x, out)
        else:
            np.copyto(out, x)  # NumPy would round integers as floats

    return function


rint, floor, ceil, trunc = (_whole(ufunc) for ufunc in (np.rint, np.floor, np.ceil, np.trunc))


def _unit(bits: int) -> Function:
    @inplace
    def function(x: Array, out: Array) -> None:
        np.multiply(x, 2.0**bits, out)
        np.floor(out, out)
        np.multiply(out, 2.0**-bits, out)

    return function


unit_float16, unit_bfloat16 = _unit(11), _unit(8)


@inplace
def softplus(x: Array, out: Array) -> None:
    """log(1 + e^x), without overflow."""
    np.logaddexp(x, 0, out)


def leaky_relu(x: Array, slope: Any, out: Array) -> None:
    """x where x > 0, else slope * x.

    Parameters
    ----------
    x, slope, out : arrays; slope may be a number
    """
    np.multiply(x, slope, out)
    np.copyto(out, x, where=np.greater(x, 0))


def binarize(x: Array, out: Array) -> None:
    """+1 where x >= 0, else -1."""
    np.greater_equal(x, 0, out)
    np.multiply(out, 2, out)
    np.subtract(out, 1, out)


@any_dtype
def where(condition: Array, a: Any, b: Any, out: Array) -> None:
    """a where condition is not zero, else b.

    Parameters
    ----------
    condition, a, b, out : arrays; a and b may be numbers
    """
    out[...] = b
    np.copyto(out, a, where=np.not_equal(condition, 0))


def shift(x: Array, by: Any, out: Array) -> None:
    """x * sgn(by) * 2^rint(log2|by|); 0 where by is 0.

    Parameters
    ----------
    x, by, out : arrays; by may be a number
    """
    by = np.asarray(by, dtype=out.dtype)
    np.ldexp(np.sign(by), _exponent(np.rint(np.log2(np.abs(by)))), out)
    np.copyto(out, 0, where=by == 0)
    np.multiply(out, x, out)


def shift_exponent(x: Array, by: Any, out: Array) -> None:
    """x * 2^rint(by).

    Parameters
    ----------
    x, by, out : arrays; by may be a number
    """
    by = np.asarray(by, dtype=out.dtype)
    power = np.ldexp(np.ones_like(by), _exponent(np.rint(by)))  # exact, unlike exp2 in general
    np.multiply(x, np.where(np.isnan(by), by, power), out)


def _exponent(value: Array) -> Array:
    """Convert a float array of whole numbers to int32 for ldexp; nan and inf are clipped."""
    whole: Array = np.nan_to_num(np.clip(value, -10000, 10000)).astype(np.int32)
    return whole


# W. J. Cody, "Rational Chebyshev approximation for the error function", Math. Comp. 23 (1969): three ranges.
_ERF_P = (
    1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3,
)  # fmt: skip
_ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_ERFC_P = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
    8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
_ERFC_Q = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip


def erf(x: Array, out: Array) -> None:
    """Error function, accurate to about 1e-15 in float64."""
    x64 = np.asarray(x, dtype=np.float64)
    a = np.abs(x64)
    small = np.minimum(a, 0.5)
    z = small * small
    inner = x64 * np.polyval(_ERF_P, z) / np.polyval(_ERF_Q, z)
    big = np.clip(a, 0.46875, 6.0)  # erf(6) is 1 to the last bit
    tail = np.exp(-big * big) * np.polyval(_ERFC_P, big) / np.polyval(_ERFC_Q, big)
    result = np.where(a <= 0.46875, inner, np.copysign(1.0 - tail, x64))
    out[...] = np.where(np.isnan(x64), np.nan, result)


# Reductions ---------------------------------------------------------------------------------------------------

_ROWS = 128
"""Rows added sequentially before a wider accumulator takes over; this keeps float32 column sums accurate."""


def sum_(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """Sum in blocks of 128 with a float64 total, so the error does not grow with the length.

    Parameters
    ----------
    x, out : arrays, ``out`` with size 1 along ``axes``
    axes : sorted tuple of int
    """
    if x.dtype != np.float32 or not axes or (axes == (x.ndim - 1,) and x.flags.c_contiguous):
        # float64 and integers, no axis at all, or the contiguous one, which NumPy sums pairwise
        np.add.reduce(x, axes, out=out, keepdims=True)
        return
    lead = axes[0]
    if len(axes) == 1 and x.shape[lead] <= _ROWS:
        np.add.reduce(x, axes, out=out, keepdims=True)
        return
    if x.flags.c_contiguous and axes == tuple(range(x.ndim)):
        out[...] = np.add.reduce(x.reshape(-1))
        return
    total = np.zeros(out.shape, np.float64)
    before = (slice(None),) * lead
    for start in range(0, x.shape[lead], _ROWS):
        part = x[(*before, slice(start, start + _ROWS))]
        total += (
            part.sum(axis=axes, keepdims=True)
            if len(axes) == 1
            else part.sum(axis=axes, keepdims=True, dtype=np.float64)
        )
    out[...] = total


def _forward(x: Array) -> Array:
    """Copy ``x`` if a stride is negative: NumPy 1.26 computes wrong maxima of such arrays."""
    return x.copy() if min(x.strides) < 0 else x


def prod(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """Product over ``axes``.

    Parameters
    ----------
    x, axes, out : as of :func:`sum_`
    """
    np.multiply.reduce(x, axes, out=out, keepdims=True)


def max_(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """Maximum over ``axes``; nan wins.

    Parameters
    ----------
    x, axes, out : as of :func:`sum_`
    """
    np.maximum.reduce(_forward(x), axes, out=out, keepdims=True)


def min_(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """Minimum over ``axes``; nan wins.

    Parameters
    ----------
    x, axes, out : as of :func:`sum_`
    """
    np.minimum.reduce(_forward(x), axes, out=out, keepdims=True)


def any_(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """1 if any element is not zero.

    Parameters
    ----------
    x, axes, out : as of :func:`sum_`
    """
    out[...] = np.any(x, axis=axes, keepdims=True)


def all_(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """1 if all elements are not zero.

    Parameters
    ----------
    x, axes, out : as of :func:`sum_`
    """
    out[...] = np.all(x, axis=axes, keepdims=True)


def argmax(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """First position of the maximum, or of the first nan.

    Parameters
    ----------
    x, axes, out : as of :func:`sum_`, with one axis, and ``out`` of int64
    """
    np.argmax(x, axis=axes[0], out=out, keepdims=True)


def argmin(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """First position of the minimum, or of the first nan.

    Parameters
    ----------
    x, axes, out : as of :func:`argmax`
    """
    np.argmin(x, axis=axes[0], out=out, keepdims=True)


# Moves and products: called with whole arrays ------------------------------------------------------------------


def dot(a: Array, b: Array, out: Array) -> None:
    """Matrix product; float16 accumulates in float32.

    Parameters
    ----------
    a, b, out : arrays (m, k), (k, n), (m, n)
    """
    if a.dtype != out.dtype or b.dtype != out.dtype:
        common = np.promote_types(out.dtype, np.float32) if out.dtype.kind == "f" else out.dtype
        a, b = a.astype(common, copy=False), b.astype(common, copy=False)
        if out.dtype != common:
            out[...] = np.matmul(a, b)
            return
    np.matmul(a, b, out)


@any_dtype
def copy(x: Array, out: Array) -> None:
    """Copy x to out, broadcast to its shape."""
    out[...] = x


def concat(*parts_and_out: Array, axis: int) -> None:
    """Join all arguments but the last along ``axis`` into the last."""
    *parts, out = parts_and_out
    start, before = 0, (slice(None),) * axis
    for part in parts:
        end = start + part.shape[axis]
        out[(*before, slice(start, end))] = part
        start = end


def check_range(name: str, indices: Array, limit: int) -> None:
    """Raise IndexRangeError unless all of ``indices`` lie in [-limit, limit).

    Parameters
    ----------
    name : str
        Operation, for the message.
    indices : integer array
    limit : int
        Size of the axis.
    """
    if indices.size and not (-limit <= indices.min() and indices.max() < limit):
        bad = indices[(indices < -limit) | (indices >= limit)]
        raise IndexRangeError(out_of_range(name, int(bad.flat[0]), limit))


def out_of_range(name: str, index: int | str, limit: int) -> str:
    """Message for an ``index`` out of range.

    Parameters
    ----------
    name, index, limit : as of :func:`check_range`, for one index
    """
    return f"{name}: index {index} is out of range for an axis of size {limit}; use {-limit} to {limit - 1}"


def classes(indices: Array, out: Array, limit: int) -> None:
    """Copy ``indices``, class numbers of :func:`onehot` from 0 on; negative ones are errors.

    Parameters
    ----------
    indices, out : integer arrays of one shape
    limit : int
        Number of classes.
    """
    bad = indices[(indices < 0) | (indices >= limit)]
    if bad.size:
        raise IndexRangeError(no_class(int(bad.flat[0]), limit))
    out[...] = indices


def no_class(index: int | str, limit: int) -> str:
    """Message for an ``index`` that is not a class."""
    return f"onehot: index {index} is out of range for an axis of size {limit}; use 0 to {limit - 1}"


def take(x: Array, indices: Array, out: Array, axis: int) -> None:
    """Gather slices of ``x`` along ``axis``.

    Parameters
    ----------
    x, indices, out : arrays
        ``indices`` are read as a vector.
    axis : int
    """
    check_range("take", indices, x.shape[axis])
    if x.dtype == out.dtype:
        np.take(x, indices.reshape(-1), axis=axis, out=out)
    else:
        out[...] = np.take(x, indices.reshape(-1), axis=axis)


def untake(d: Array, indices: Array, out: Array, axis: int) -> None:
    """Scatter-add slices of ``d`` to their positions along ``axis``: the gradient of :func:`take`.

    Parameters
    ----------
    d, indices, out : arrays
        ``indices`` are read as a vector.
    axis : int
    """
    check_range("take", indices, out.shape[axis])
    out[...] = 0
    np.add.at(np.moveaxis(out, axis, 0), indices.reshape(-1), np.moveaxis(d, axis, 0))


def view(x: Array, out: Array, layout: tuple[Any, ...]) -> None:
    """Elements of ``x`` seen through ``layout`` = (shape, strides in elements, offset).

    Parameters
    ----------
    x, out, layout : arrays and a tuple
    """
    if x.size == out.size and is_reshape(layout):
        same = out.reshape(x.shape)
        if np.may_share_memory(same, out):
            same[...] = x
            return
    out[...] = strided(np.ascontiguousarray(x), layout)


def unview(d: Array, out: Array, layout: tuple[Any, ...]) -> None:
    """Zeros with ``d`` placed where :func:`view` would read: the gradient of ``view``.

    Parameters
    ----------
    d, out, layout : arrays and a tuple
    """
    whole = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)  # the layout counts in C order
    if d.size != whole.size or not is_reshape(layout):
        whole[...] = 0
    strided(whole, layout)[...] = d
    if whole is not out:
        out[...] = whole


def strided(x: Array, layout: tuple[Any, ...]) -> Array:
    """View of contiguous ``x`` with ``layout`` = (shape, strides in elements, offset)."""
    shape, strides, offset = layout
    flat = x.reshape(-1)[offset:]
    return np.lib.stride_tricks.as_strided(flat, shape, [s * x.itemsize for s in strides])


# Along an axis: called with whole arrays -----------------------------------------------------------------------------


def _accumulated(ufunc: np.ufunc, x: Array, out: Array, axis: int, reverse: bool) -> None:
    """Running totals in float64, int64 or uint64, so that each has the error of a single rounding."""
    if reverse:
        x, out = np.flip(x, axis), np.flip(out, axis)
    wide = wide_dtype(out.dtype)
    out[...] = ufunc.accumulate(x.astype(wide, copy=False), axis=axis, dtype=wide)


def cumsum(x: Array, out: Array, axis: int, reverse: bool) -> None:
    """Cumulative sums along ``axis``; ``reverse`` starts from the end.

    Parameters
    ----------
    x, out : arrays of one shape
    axis, reverse : int and bool
    """
    _accumulated(np.add, x, out, axis, reverse)


def cumprod(x: Array, out: Array, axis: int, reverse: bool) -> None:
    """Cumulative products along ``axis``; ``reverse`` starts from the end.

    Parameters
    ----------
    x, out, axis, reverse : as of :func:`cumsum`
    """
    _accumulated(np.multiply, x, out, axis, reverse)


def argsort(x: Array, out: Array, axis: int, descending: bool) -> None:
    """Positions along ``axis`` in the order of the values, as many as fit in ``out``; stable, nan last.

    Parameters
    ----------
    x, out : arrays
        ``out`` of int64.
    axis, descending : int and bool
    """
    keys = x.astype(np.float32) if x.dtype.kind == "V" else x
    if descending:
        keys = np.negative(keys) if keys.dtype.kind == "f" else np.invert(keys)  # the smallest integer has no negative
    order = np.argsort(keys, axis=axis, kind="stable")
    out[...] = order[(*[slice(None)] * axis, slice(out.shape[axis]))]


def take_along(x: Array, indices: Array, out: Array, axis: int) -> None:
    """Gather elements of ``x`` along ``axis``, with one index per element.

    Parameters
    ----------
    x, indices, out : arrays
        ``indices`` and ``out`` of one shape.
    axis : int
    """
    check_range("take_along_axis", indices, x.shape[axis])
    out[...] = np.take_along_axis(x, indices.astype(np.int64, copy=False), axis)


def untake_along(d: Array, indices: Array, out: Array, axis: int) -> None:
    """Scatter-add elements of ``d`` along ``axis``: the gradient of :func:`take_along`.

    Parameters
    ----------
    d, indices, out : arrays
        ``d`` and ``indices`` of one shape.
    axis : int
    """
    limit = out.shape[axis]
    check_range("take_along_axis", indices, limit)
    total = np.zeros(out.shape, wide_dtype(out.dtype))
    where = list(np.ogrid[tuple(slice(n) for n in d.shape)])
    where[axis] = np.where(indices < 0, indices + limit, indices).astype(np.int64, copy=False)
    np.add.at(total, tuple(where), d)
    out[...] = total
