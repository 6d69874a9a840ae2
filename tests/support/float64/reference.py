"""Reference values for the tests: a graph evaluated node by node in NumPy float64, and how close is close enough.

The formulas here are written independently of ``neonlike.optree.npfuncs``; what NumPy or SciPy has is used as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import special

from neonlike.optree.dtypes import FLOATS, DTypeRule, bfloat16, compute_dtype, is_float
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS, REAL, WHOLE, Kind, OpSpec
from neonlike.optree.walk import postorder

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]

BF16 = bfloat16()
TOLERANCE: dict[Any, tuple[float, float]] = {
    np.dtype(np.float16): (1e-3, 1e-6),
    BF16: (8e-3, 1e-6),
    np.dtype(np.float32): (1e-5, 1e-6),
    np.dtype(np.float64): (1e-12, 1e-13),
}
"""dtype of the result -> relative and absolute tolerance of one op; the only place that says what is close."""

EPSILON = {dtype: float(np.finfo(compute_dtype(dtype)).eps) for dtype in (*FLOATS, BF16)}
"""dtype of a node -> rounding error of one op, in the dtype it is computed in."""


def assert_close(actual: Array, expected: Any, slack: float = 1.0, what: str = "") -> None:
    """``actual`` equals float64 ``expected`` within its dtype's tolerance, times ``slack``; integers are exact."""
    wanted = np.asarray(expected)
    assert actual.shape == wanted.shape, f"{what}: shape {actual.shape}, expected {wanted.shape}"
    with np.errstate(all="ignore"):
        wanted = wanted.astype(actual.dtype)
    if not is_float(actual.dtype):
        np.testing.assert_array_equal(actual, wanted, err_msg=what)
        return
    rtol, atol = TOLERANCE[actual.dtype]
    wide, wanted = actual.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(wide, wanted, rtol * slack, atol * slack, equal_nan=True, err_msg=what)


# What an index means --------------------------------------------------------------------------------------------


def random_index(rng: np.random.Generator, shape: tuple[int, ...], lists: bool = True) -> tuple[Any, ...]:
    """An index of any kind that a tensor of ``shape`` takes: slices, integers, at most one list."""
    items: list[Any] = []
    gathered = int(rng.integers(len(shape))) if lists and rng.random() < 0.3 else -1
    for axis, size in enumerate(shape):
        start, step = int(rng.integers(min(size, 3) + (size == 0))), int(rng.choice((1, 1, 1, 2, -1, -2)))
        if axis == gathered and size:
            items.append([int(i) for i in rng.integers(-size, size, rng.integers(1, 6))])
        elif size and rng.random() < 0.25:
            items.append(int(rng.integers(-size, size)))
        else:
            last = size - 1 - start if start else None
            items.append(slice(start, None, step) if step > 0 else slice(last, None, step))
    while items and items[-1] == slice(0, None, 1) and rng.random() < 0.7:
        items.pop()
    return tuple(items)


def at(host: Array, items: tuple[Any, ...]) -> Array:
    """``host`` at an index by neon's rule: integers keep their axis, but for those that leave two axes."""
    spare, dropped = host.ndim - 2, []
    for axis, item in enumerate(items):
        positions = np.arange(host.shape[axis])[[item] if isinstance(item, int) else item]
        host = np.take(host, positions, axis)
        if isinstance(item, int) and len(dropped) < spare:
            dropped.append(axis)
    return np.squeeze(host, tuple(dropped))


def random_shape(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """A shape of two or three axes for ``size`` elements, one at least; how many axes does not depend on ``size``."""
    shape: list[int] = []
    for _ in range(1 + (rng.random() < 0.3)):
        shape.append(int(rng.choice([n for n in range(1, min(size, 64) + 1) if size % n == 0])))
        size //= shape[-1]
    return (*shape, size) if rng.random() < 0.5 else (size, *shape)


# What each op means ---------------------------------------------------------------------------------------------


def _shift(x: Any, by: Any) -> Any:
    factor = np.where(by == 0, 0.0, np.sign(by) * 2.0 ** np.rint(np.log2(np.abs(by))))
    return x * factor


ELEMENTWISE: dict[str, Function] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: np.true_divide(x, y),
    "pow": lambda x, y: np.asarray(x, np.float64) ** y,
    "floordiv": lambda x, y: np.floor_divide(x, y),
    "mod": lambda x, y: np.mod(x, y),
    "neg": lambda x: -x,
    "abs": np.abs,
    "sgn": np.sign,
    "sqr": lambda x: x * x,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "exp2": lambda x: np.power(2.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "safelog": lambda x: np.log(np.where(x < np.exp(-50.0), np.exp(-50.0), x)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
    "erf": special.erf,
    "sig": special.expit,
    "sig2": lambda x: special.expit(x * np.log(2.0)),
    "tanh": np.tanh,
    "tanh2": lambda x: 2 * special.expit(2 * x * np.log(2.0)) - 1,
    "relu": lambda x: np.where(x < 0, 0, x),
    "leaky_relu": lambda x, slope: np.where(x > 0, x, slope * x),
    "softplus": lambda x: -special.log_expit(-x),
    "rint": np.round,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "binarize": lambda x: np.where(x >= 0, 1.0, -1.0),
    "finite": lambda x: ~(np.isnan(x) | np.isinf(x)),
    "isnan": lambda x: x != x,
    "isinf": lambda x: np.abs(x) == np.inf,
    "shift": _shift,
    "shift_exponent": lambda x, by: x * 2.0 ** np.rint(by),
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "and": lambda x, y: (x != 0) & (y != 0),
    "or": lambda x, y: (x != 0) | (y != 0),
    "not": lambda x: x == 0,
    "xor": lambda x, y: (x != 0) != (y != 0),
    "left_shift": lambda x, y: np.where((y >= 0) & (y < 64), x * 2 ** np.clip(y, 0, 63), 0),
    "right_shift": lambda x, y: x // 2 ** np.where((y >= 0) & (y < 63), y, 62) // np.where((y >= 0) & (y < 63), 1, 2),
    "maximum": lambda x, y: np.where((x > y) | (x != x), x, y),
    "minimum": lambda x, y: np.where((x < y) | (x != x), x, y),
    "spread": lambda squares, total, count: np.where(
        np.isinf(squares), squares, np.maximum((squares - total * (total / count)) / count, 0)
    ),
    "where": lambda c, x, y: np.where(c != 0, x, y),
}
"""Elementwise ops on float64 (or int64) arrays."""

REDUCTIONS: dict[str, Function] = {
    "sum": lambda x, axis: x.sum(axis=axis, keepdims=True),
    "prod": lambda x, axis: x.prod(axis=axis, keepdims=True),
    "max": lambda x, axis: x.max(axis=axis, keepdims=True),
    "min": lambda x, axis: x.min(axis=axis, keepdims=True),
    "any": lambda x, axis: (x != 0).any(axis=axis, keepdims=True),
    "all": lambda x, axis: (x != 0).all(axis=axis, keepdims=True),
    "argmax": lambda x, axis: np.argmax(x, axis=axis[0], keepdims=True),
    "argmin": lambda x, axis: np.argmin(x, axis=axis[0], keepdims=True),
}
"""Reductions; ``axis`` is a tuple."""


def _untake(d: Array, indices: Array, node: OpTreeNode) -> Array:
    out, axis = np.zeros(node.shape, d.dtype), node.attrs["axis"]  # type: ignore[index]
    for position, index in enumerate(indices.reshape(-1)):
        here = (slice(None),) * axis
        out[(*here, int(index))] += d[(*here, position)]
    return out


def _window(node: OpTreeNode) -> tuple[Any, ...]:
    """Element numbers that a ``view`` or ``unview`` node's layout reads, in the shape of the window."""
    shape, strides, offset = node.attrs["layout"]  # type: ignore[index]
    positions = np.full(shape, offset)
    for axis, (size, stride) in enumerate(zip(shape, strides)):
        positions = positions + (np.arange(size) * stride).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return (positions,)


def _unview(d: Array, node: OpTreeNode) -> Array:
    out = np.zeros(node.shape, d.dtype)
    out.reshape(-1)[_window(node)] = d
    return out


def _running(function: Function) -> Function:
    def apply(x: Array, node: OpTreeNode) -> Array:
        axis, reverse = node.attrs["axis"], node.attrs["reverse"]  # type: ignore[index]
        found: Array = function(np.flip(x, axis) if reverse else x, axis=axis)
        return np.flip(found, axis) if reverse else found

    return apply


def _order(x: Array, node: OpTreeNode) -> Array:
    attrs: Any = node.attrs
    order = np.argsort(-x if attrs["descending"] else x, axis=attrs["axis"], kind="stable")
    return np.take(order, range(attrs["count"]), axis=attrs["axis"])


def _untake_along(d: Array, indices: Array, node: OpTreeNode) -> Array:
    out, axis = np.zeros(node.shape, d.dtype), node.attrs["axis"]  # type: ignore[index]
    for place in np.ndindex(d.shape):
        out[(*place[:axis], int(indices[place]), *place[axis + 1 :])] += d[place]
    return out


MOVES: dict[str, Function] = {
    "cumsum": _running(np.cumsum),
    "cumprod": _running(np.cumprod),
    "argsort": _order,
    "take_along": lambda x, i, node: np.take_along_axis(x, i.astype(np.int64), node.attrs["axis"]),
    "untake_along": _untake_along,
    "dot": lambda x, y, node: x @ y,
    "concat": lambda *parts: np.concatenate(parts[:-1], axis=parts[-1].attrs["axis"]),
    "transpose": lambda x, node: x.transpose(node.attrs["axes"]),
    "broadcast": lambda x, node: np.broadcast_to(x.reshape(x.shape[-len(node.shape) :]), node.shape),
    "take": lambda x, i, node: np.take(x, i.reshape(-1).astype(np.int64), axis=node.attrs["axis"]),
    "untake": _untake,
    "view": lambda x, node: x.reshape(-1)[_window(node)],
    "unview": _unview,
}
"""Products and moves; ``node`` has the attributes."""


def formula(spec: OpSpec) -> Function:
    """The float64 meaning of a row; a row without one here is taken at NumPy's word, if NumPy has the function."""
    known = {**ELEMENTWISE, **REDUCTIONS, **MOVES}.get(spec.name)
    if known is None:
        assert isinstance(spec.numpy, np.ufunc), f"write the float64 formula of {spec.name!r} into {__file__}"
        return spec.numpy
    return known


def apply(node: OpTreeNode, operands: list[Any]) -> Array:
    """One node on float64 or int64 operands."""
    function = formula(node.spec)
    with np.errstate(all="ignore"):
        if node.spec.kind is Kind.ELEMENTWISE:
            value = function(*operands)
        elif node.spec.kind is Kind.REDUCTION:
            value = function(operands[0], axis=node.attrs["axis"])  # type: ignore[index]
        else:
            value = function(*operands, node)
    return np.asarray(value).astype(np.int64 if node.dtype.kind in "iu" else np.float64)


def evaluate(root: Any, memo: dict[int, Any] | None = None) -> Array:
    """``root`` node by node: float nodes in float64, integer nodes in int64. ``memo`` keeps values by id."""
    values = {} if memo is None else memo

    def value(operand: Any) -> Any:
        if not isinstance(operand, Expression):
            return operand
        if id(operand) not in values:  # a tensor
            host = operand.get()  # type: ignore[attr-defined]
            values[id(operand)] = host.astype(np.float64 if is_float(host.dtype) else np.int64)
        return values[id(operand)]

    for node in postorder(root):
        if id(node) not in values:
            if node.attrs is not None and "value" in node.attrs:
                values[id(node)] = node.attrs["value"]
            else:
                values[id(node)] = apply(node, [value(operand) for operand in node.operands])
    result: Array = np.asarray(value(root))
    return result


# Samples and layouts --------------------------------------------------------------------------------------------


def sample(domain: tuple[float, float], shape: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> Array:
    """Random values of ``domain`` that ``dtype`` holds exactly; whole numbers for WHOLE and for integers."""
    low, high = domain
    kind = np.dtype(dtype)
    if is_float(kind) and domain is not WHOLE:
        values = rng.uniform(low, high, shape).astype(kind)
        return np.clip(values, np.nextafter(kind.type(low), kind.type(high)), kind.type(high))
    if kind.kind == "u":
        low = max(low, 0)
    elif kind.kind == "b":
        low, high = min(max(low, 0), 1), 1
    return rng.integers(int(np.ceil(low)), int(np.floor(high)), shape, endpoint=True).astype(kind)


def domains(spec: OpSpec) -> tuple[tuple[float, float], ...]:
    """One domain an operand; a row of several operands may give one for all."""
    return spec.domain if len(spec.domain) == spec.arity else (spec.domain[0] if spec.domain else REAL,) * spec.arity


def plain(be: Any, host: Array) -> Any:
    """A tensor of its own."""
    return be.array(host, dtype=host.dtype)


def strided(be: Any, host: Array) -> Any:
    """Every second element of a larger tensor, inside a margin."""
    base = be.zeros([2 * n + 3 for n in host.shape], dtype=host.dtype)
    view = base[tuple(slice(1, 2 * n + 1, 2) for n in host.shape)]
    return view.set(host) if host.size else view


def transposed(be: Any, host: Array) -> Any:
    """The ``.T`` of a tensor."""
    return be.array(np.swapaxes(host, -1, -2), dtype=host.dtype).T


def reordered(be: Any, host: Array) -> Any:
    """A tensor with all axes permuted."""
    order = (*range(1, host.ndim), 0)
    back = tuple(order.index(axis) for axis in range(host.ndim))
    return be.transpose(be.array(host.transpose(order), dtype=host.dtype), back)


def backwards(be: Any, host: Array) -> Any:
    """A tensor read from its end."""
    turn = (slice(None, None, -1),) * host.ndim
    return be.array(host[turn], dtype=host.dtype)[turn]


LAYOUTS: tuple[Function, ...] = (plain, strided, transposed, reordered, backwards)

SHAPES: tuple[tuple[int, ...], ...] = (
    (1, 1),
    (7, 1),
    (1, 6),
    (5, 7),
    (2, 3, 4),
    (2, 1, 3, 2, 4),
    (0, 3),
    (3, 0),
    (0, 0),
    (2, 0, 3),
)
"""One element, column, row, matrix, 3-D, 5-D with a 1, and four ways to be empty."""

BROADCASTS: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((4, 1), (1, 3), (4, 3)),
    ((1, 1), (5, 2), (1, 2)),
    ((5, 2), (1, 1), (5, 1)),
    ((2, 3, 4), (3, 1), (1, 4)),
    ((1, 4), (2, 1, 1), (3, 1)),
    ((2, 1, 3, 1, 2), (4, 1, 2, 1), (1, 1)),
    ((0, 3), (1, 3), (1, 1)),
    ((1, 1), (2, 0), (2, 1)),
)
"""Operand shapes that stretch against each other."""


def axes_of(shape: tuple[int, ...]) -> Iterator[Any]:
    """None, every axis counted from both ends, and every tuple of axes."""
    yield None
    yield from range(-len(shape), len(shape))
    for count in range(1, len(shape) + 1):
        yield from itertools.combinations(range(len(shape)), count)


def rows(*kinds: Kind, whole: bool = False) -> list[Any]:
    """Rows of the op table of these kinds, for ``parametrize``: those that take floats, or those for integers only."""
    return [spec for spec in OPS.values() if spec.kind in kinds and (spec.dtype is DTypeRule.WHOLE) is whole]
