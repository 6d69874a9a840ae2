"""All builders by name, derived from the op table, and the functions composed of them.

``F.sig(x)`` builds a node. Gradient rules receive ``F``; ``Backend`` offers the same names as methods with ``out=``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree import along, arrange, builders, dialect, moves, operators, shapes, tape
from neonlike.optree.dtypes import F16, F32, F64, I64, U64, DTypeRule, is_float
from neonlike.optree.forms import mark, owner
from neonlike.optree.node import Expression, OpTreeNode, expression
from neonlike.optree.ops import OPS, Kind, OpSpec
from neonlike.optree.shapes import FREE, Shape


class _Names(type):
    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Callable[..., OpTreeNode]: ...


@owner
class F(metaclass=_Names):
    """Namespace of builders; rows of the op table are added below, as one static method per builder name.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> x = gen_backend("cpu").array([[1., 2.]])
    >>> F.square(x + 1).tolist()
    [[4.0, 9.0]]
    """


def reduction_builder(spec: OpSpec) -> Callable[..., OpTreeNode]:
    """Builder ``f(a, axis)`` of a reduction row."""

    def apply(a: Any, axis: Any = None) -> OpTreeNode:
        return builders.reduce(spec, a, axis)

    def position(a: Any, axis: Any = None) -> Expression:
        return along.position(spec, a, axis)

    chosen: Callable[..., Any] = position if spec.dtype is DTypeRule.INDEX else mark(apply, "reduction", spec)
    chosen.__name__ = chosen.__qualname__ = spec.name
    return chosen


def _operands(spec: OpSpec) -> str:
    """Entries of the section ``Parameters`` of a row's builder."""
    if spec.kind is Kind.REDUCTION:
        return "a : expression\naxis : int, tuple of int, or None"
    return f"{', '.join(ascii_lowercase[: spec.arity])} : expression or number"


def add_row(spec: OpSpec, namespace: type = F) -> None:
    """Give ``namespace`` a builder for each name in ``spec.builders``."""
    makers = {Kind.ELEMENTWISE: operators.builder, Kind.REDUCTION: reduction_builder}
    if spec.kind in makers:
        builder = makers[spec.kind](spec)
        builder.__doc__ = f"{spec.doc}\n\nParameters\n----------\n{_operands(spec)}"
        for name in {spec.name, *spec.builders}:
            setattr(namespace, name, staticmethod(builder))


def register(spec: OpSpec) -> OpSpec:
    """Add a row to the op table: its builders appear in ``F`` and on every backend, including existing ones.

    Raises
    ------
    ArgumentError
        If the name of the op or of a builder is taken.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optree.dtypes import DTypeRule
    >>> from neonlike.optree.ops import Kind, OpSpec
    >>> row = register(
    ...     OpSpec(
    ...         "cube", 1, Kind.ELEMENTWISE, lambda x, out: out.__setitem__(..., x * x * x), "{0} * {0} * {0}",
    ...         DTypeRule.SAME, lambda F, d, z, x: (3 * d * F.square(x),), "a * a * a.", builders=("cube",),
    ...     )
    ... )
    >>> be = gen_backend("cpu")
    >>> be.grad(be.cube)(be.array([[2.0]])).tolist()
    [[12.0]]
    >>> unregister("cube")
    """
    taken = [name for name in dict.fromkeys((spec.name, *spec.builders)) if name in OPS or name in vars(F)]
    if taken:
        raise ArgumentError(f"register: {taken[0]!r} is an op or a builder already; choose another name")
    OPS[spec.name] = spec
    add_row(spec)
    return spec


def unregister(name: str) -> None:
    """Remove the row ``name`` with its builders; existing expressions still work."""
    spec = OPS.pop(name)
    for builder in {spec.name, *spec.builders} & set(vars(F)):
        delattr(F, builder)


_CLASSES, _ONEHOT = OPS["classes"], OPS["onehot"]

# Generators ---------------------------------------------------------------------------------------------------------


def onehot(indices: Any, axis: int, backend: Any = None, checked: bool | None = None) -> OpTreeNode:
    """1 where the position along ``axis`` (0 or 1) equals the index; takes the shape it is used at.

    ``indices`` is an integer vector of shape (1, n) or (n, 1). With ``checked`` (None: unless in neon's dialect), an
    index outside of the axis is an error at computation; otherwise it gives zeros.

    Parameters
    ----------
    indices : integer tensor, array or list
    axis : 0 or 1
    backend : Backend, optional
        For host indices.
    checked : bool, optional

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> t = be.empty((3, 2))
    >>> t[:] = F.onehot(be.array([[2, 0]], dtype="int64"), axis=0)
    >>> t.tolist()
    [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    """
    backend = backend or getattr(indices, "backend", None)
    positions = builders.index_operand("onehot", indices, None, backend)
    if not isinstance(axis, (int, np.integer)) or axis not in (0, 1):
        raise ShapeError(f"onehot: axis must be 0 or 1, got {brief(axis)}")
    if len(positions.shape) != 2 or 1 not in positions.shape:
        raise ShapeError(f"onehot: indices must be a vector (1, n) or (n, 1), got {positions.shape}; reshape them")
    if positions.shape[axis] != 1:
        positions = moves.transpose(positions)
    if not dialect.is_neon() if checked is None else checked:
        positions = OpTreeNode(_CLASSES, (positions,), {"axis": axis}, positions.shape, I64, positions.backend)
    return OpTreeNode(_ONEHOT, (positions,), {"axis": axis}, FREE, F32, positions.backend)


def rand(backend: Any, seed: int, call: int) -> OpTreeNode:
    """U[0, 1) for each element of its target; a node always gives the same numbers.

    Parameters
    ----------
    backend : Backend
    seed, call : int
        Key and counter of the Philox stream.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> node = rand(be, seed=1, call=0)
    >>> numbers, again = be.empty((1, 2)), be.empty((1, 2))
    >>> numbers[:], again[:] = node, node
    >>> numbers.tolist() == again.tolist()
    True
    """
    dtype = F64 if backend.default_dtype == np.float64 else F32
    return OpTreeNode(OPS["rand"], (), {"seed": seed, "call": call}, FREE, dtype, backend)


# Compositions -------------------------------------------------------------------------------------------------------


def reciprocal(a: Any) -> OpTreeNode:
    """1 / a.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.reciprocal(be.array([[2., 4.]])).tolist()
    [[0.5, 0.25]]
    """
    return F.div(1.0, a)


def clip(a: Any, a_min: Any = None, a_max: Any = None) -> Expression:
    """minimum(maximum(a, a_min), a_max); bounds may be tensors, and either may be None for no bound.

    Parameters
    ----------
    a : expression or number
    a_min, a_max : expression, number or None

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.clip(be.array([[-1., 0.5, 3.]]), 0, 1).tolist()
    [[0.0, 0.5, 1.0]]
    """
    a = expression("clip", a) if a_min is a_max is None else a
    above = a if a_min is None else F.maximum(a, a_min)
    return above if a_max is None else F.minimum(above, a_max)


_SUM, _DIV, _SUB, _SQR, _SPREAD, _CAST, _WIDEN = (
    OPS[_name] for _name in ("sum", "div", "sub", "sqr", "spread", "cast", "widen")
)
_TO_F32, _TO_F64 = {"bits": 32}, {"bits": 64}


@lru_cache(maxsize=1024)
def _averaged(name: str, axis: Any, shape: Shape) -> tuple[tuple[int, ...], Shape, float]:
    """Normalized axes, ``shape`` reduced over them, and the number of elements per result."""
    axes = shapes.normalize_axes(name, axis, shape)
    return axes, shapes.reduced(shape, axes), float(math.prod(shape[i] for i in axes))


def _over(name: str, axis: Any, shape: Shape) -> tuple[tuple[int, ...], Shape, float]:
    """As :func:`_averaged`, for lists, too."""
    if axis is not None and axis.__class__ is not int:
        axis = shapes.normalize_axes(name, axis, shape)
    return _averaged(name, axis, shape)


def mean(a: Any, axis: Any = None) -> OpTreeNode:
    """Arithmetic mean over ``axis``; nan for an empty reduction.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.mean(be.array([[1., 2.], [3., 6.]]), axis=1).tolist()
    [[1.5], [4.5]]
    """
    a = expression("mean", a)
    if axis is not None and axis.__class__ is not int:
        axis = shapes.normalize_axes("mean", axis, a.shape)
    axes, small, count = _averaged("mean", axis, a.shape)
    dtype, backend = a.dtype, a.backend
    if (dtype is F32 or dtype is F64) and backend is not None:  # the common case, which needs no further checks
        total = OpTreeNode(_SUM, (a,), {"axis": axes}, small, dtype, backend)
        return OpTreeNode(_DIV, (total, count), None, small, dtype, backend)
    if is_float(dtype):
        return F.div(F.sum(a, axes), count)
    if _sums_fit(a, count):
        return F.div(F.cast(F.sum(a, axes)), count)
    return F.div(F.sum(F.cast(a), axes), count)


mark(mean, "composed", mean)


def _sums_fit(a: Any, count: float) -> bool:
    """Whether the sum of any ``count`` integers of tensor ``a``'s dtype fits in int64."""
    return a.__class__ is not OpTreeNode and a.dtype.itemsize <= 4 and count < 2**31


def moments(a: Any, axis: Any = None) -> tuple[Any, Any, Any]:
    """Mean of ``a`` in two parts, and its biased variance: ``a - mean - rest`` is accurate to the last digits.

    The mean is rounded to the dtype of ``a``; the rest is the mean of a - mean (the corrected two-pass algorithm; Chan,
    Golub & LeVeque, "Algorithms for computing the sample variance", 1983). The rest has no gradient: its derivative is
    0, because the mean of a - mean(a) is 0 for all ``a``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> middle, rest, variance = moments(be.array([[1., 3.]]))
    >>> middle.tolist(), rest.tolist(), variance.tolist()
    ([[2.0]], [[0.0]], [[1.0]])
    """
    apart, total, axes, count = _deviations("moments", a, axis)
    return apart.operands[1], F.div(total, count), _spread(apart, total, axes, count)


def standardized(a: Any, axis: Any, eps: float) -> OpTreeNode:
    """(a - mean) / sqrt(variance + eps), see :func:`moments`.

    Parameters
    ----------
    a : expression
    axis : int, tuple of int, or None
    eps : float
        Added to the variance.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> standardized(be.array([[1., 3.]]), axis=1, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    middle, rest, variance = moments(a, axis)
    return F.div(F.sub(F.sub(a, middle), rest), F.sqrt(F.add(variance, eps)))


def var(a: Any, axis: Any = None, binary: bool = False) -> OpTreeNode:
    """Biased variance mean((a - mean(a))**2); ``binary`` replaces the square by a power-of-two shift.

    Parameters
    ----------
    a : expression
    axis : int, tuple of int, or None
    binary : bool

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.var(be.array([[1., 3.], [2., 6.]]), axis=1).tolist()
    [[1.0], [4.0]]
    """
    apart, total, axes, count = _deviations("var", a, axis)
    if binary:
        return mean(F.shift(apart, apart), axes)
    return _spread(apart, total, axes, count)


mark(var, "composed", var)


def std(a: Any, axis: Any = None) -> OpTreeNode:
    """Square root of the biased variance, without overflow of squares. Its gradient at 0 is 0.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.std(be.array([[1., 3.], [2., 6.]]), axis=1).tolist()
    [[1.0], [2.0]]
    """
    apart, total, axes, count = _deviations("std", a, axis)
    a = apart.operands[0]
    if a.dtype is F32 or a.dtype != F64:
        return _ruled(F.root(_spread(_squarable(apart), _squarable(total), axes, count)), _STD, a)

    def scaled(scale: float) -> Any:
        return F.root(_spread(F.mul(apart, scale), F.mul(total, scale), axes, count))

    return _ruled(_in_range(F.root(_spread(apart, total, axes, count)), scaled), _STD, a)


mark(std, "composed", std)


def norm2(a: Any, axis: Any = None) -> OpTreeNode:
    """Euclidean norm over ``axis``, without overflow of squares. Its gradient at 0 is 0.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.norm2(be.array([[3., 4.]]), axis=1).tolist()
    [[5.0]]
    """
    a = _floats("norm2", a)
    axes, small, _ = _over("norm2", axis, a.shape)

    def root(a: Any) -> Any:
        squares = OpTreeNode(_SQR, (a,), None, a.shape, a.dtype, a.backend)
        return F.root(OpTreeNode(_SUM, (squares,), {"axis": axes}, small, a.dtype, a.backend))

    found = root(_squarable(a))
    if a.dtype is F32 or a.dtype != F64:
        return _ruled(found, _NORM2, a)
    return _ruled(_in_range(found, lambda scale: root(F.mul(a, scale))), _NORM2, a)


mark(norm2, "composed", norm2)


_SCALE = 2.0**600
"""Scale factor: the square of its product with an extreme float64 neither overflows nor underflows."""


def _in_range(found: Any, scaled: Callable[[float], Any]) -> Any:
    """Correct the root ``found`` of a float64 sum of squares for overflow; ``scaled(factor)`` rescales it."""
    large, small = F.mul(scaled(1 / _SCALE), _SCALE), F.mul(scaled(_SCALE), 1 / _SCALE)
    return F.where(F.less_equal(found, 2.0**500), F.where(F.less(found, 2.0**-450), small, found), large)


def _squarable(a: Any) -> Any:
    """Convert ``a`` to a dtype that holds its squares, if there is one; float16 is computed in float32."""
    dtype = a.dtype
    if dtype is F64 or dtype == F16:
        return a
    if is_float(dtype):
        return OpTreeNode(_WIDEN, (a,), _TO_F64, a.shape, F64, a.backend)
    return builders.cast(a)


def _ruled(found: Any, rule: tuple[Any, ...], a: Any) -> OpTreeNode:
    """Return ``found`` in the dtype of ``a``, with ``rule``: name, gradient and key."""
    name, grad, key = rule
    if a.dtype is F32:
        found = OpTreeNode(_CAST, (found,), _TO_F32, found.shape, F32, a.backend)
    return tape.ruled(builders.cast(found, a.dtype), tape.Rule(name, (a,), grad, key=key))


def _norm2_gradient(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
    return (a * (d / F.where(F.equal(z, 0), math.inf, z)),)


_NORM2 = "norm2", _norm2_gradient, tape.rule_key("norm2")


def _std_gradient(F: Any, d: Any, z: Any, a: Any) -> tuple[Any, ...]:
    axes = tuple([axis for axis, (n, m) in enumerate(zip(a.shape, z.shape)) if n != m])
    count = float(math.prod(a.shape[axis] for axis in axes))
    middle, rest, _ = moments(a, axes)
    return (F.sub(F.sub(a, middle), rest) * (d / (count * F.where(F.equal(z, 0), math.inf, z))),)


_STD = "std", _std_gradient, tape.rule_key("std")


# The functions above build nodes without the checks of builders: their operands are compatible floats of one backend.


def _floats(name: str, a: Any) -> Any:
    """Convert ``a`` to an expression of floats; integers become float64."""
    a = expression(name, a)
    return a if is_float(a.dtype) else builders.cast(a)


def _deviations(name: str, a: Any, axis: Any) -> tuple[Any, Any, tuple[int, ...], float]:
    """Deviations a - mean(a) with the rounded mean, their sum, the axes, and the number of elements per result.

    The sum is a constant to gradients: it is 0 except for rounding.
    """
    a = _floats(name, a)
    axes, small, count = _over(name, axis, a.shape)
    apart = OpTreeNode(_SUB, (a, F.mean(a, axis)), None, a.shape, a.dtype, a.backend)
    return apart, OpTreeNode(_SUM, (apart,), {"axis": axes, "constant": True}, small, a.dtype, a.backend), axes, count


def _spread(apart: Any, total: Any, axes: tuple[int, ...], count: float) -> OpTreeNode:
    """The variance in the dtype of ``apart``, the deviations with sum ``total``."""
    small, dtype, backend = total.shape, apart.dtype, apart.backend
    squares = OpTreeNode(_SQR, (apart,), None, apart.shape, dtype, backend)
    squares = OpTreeNode(_SUM, (squares,), {"axis": axes}, small, dtype, backend)
    return OpTreeNode(_SPREAD, (squares, total, count), None, small, dtype, backend)


def _offset(name: str, a: OpTreeNode, axis: Any) -> Any:
    """Maximum over ``axis``, to be subtracted before exp; 0 for an empty reduction.

    It is a constant to gradients: results do not depend on it.
    """
    if 0 in a.shape and any(a.shape[i] == 0 for i in shapes.normalize_axes(name, axis, a.shape)):
        return 0
    most = F.max(a, axis)
    assert most.attrs is not None
    most.attrs["constant"] = True
    return most


def _below(a: Any, top: Any) -> OpTreeNode:
    """The difference a - top, never positive, and so not representable in uint64."""
    if a.dtype is F32 or a.dtype != U64:
        return F.sub(a, top)
    return F.mul(F.sub(top, a), -1.0)


def logsumexp(a: Any, axis: Any = None) -> OpTreeNode:
    """log(sum(exp(a))) over ``axis``, without overflow; -inf where all elements are -inf, or there are none.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.logsumexp(be.array([[1000., -1000.]]), axis=1).tolist()
    [[1000.0]]
    """
    a = expression("logsumexp", a)
    top = _offset("logsumexp", a, axis)
    if isinstance(top, OpTreeNode):
        top = F.where(F.finite(top), top, 0)
    total = F.sum(F.exp(_below(a, top)), axis)
    none = F.equal(total, 0)  # log has an infinite slope there, and no element contributes
    return F.add(F.where(none, -math.inf, F.log(F.where(none, 1, total))), top)


def softmax(a: Any, axis: Any = 0) -> OpTreeNode:
    """exp(a - max) / sum(exp(a - max)) along ``axis``, by default the features' axis.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.softmax(be.array([[1.], [1.]])).tolist()
    [[0.5], [0.5]]
    """
    a = expression("softmax", a)
    powers = F.exp(_below(a, _offset("softmax", a, axis)))
    return F.div(powers, F.sum(powers, axis))


def log_softmax(a: Any, axis: Any = 0) -> OpTreeNode:
    """log(softmax(a)) along ``axis``, without underflow.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.log_softmax(be.array([[0.], [-1000.]])).tolist()
    [[0.0], [-1000.0]]
    """
    a = expression("log_softmax", a)
    below = _below(a, _offset("log_softmax", a, axis))
    return F.sub(below, F.log(F.sum(F.exp(below), axis)))


for _function in (logsumexp, softmax, log_softmax):
    mark(_function, "composed", _function)


def silu(a: Any) -> OpTreeNode:
    """a * sig(a), also called swish; Elfwing et al. 2017.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.silu(be.array([[0., 100.]])).tolist()
    [[0.0, 100.0]]
    """
    return F.mul(a, F.sig(a))


def gelu(a: Any) -> OpTreeNode:
    """a * Phi(a) with the normal distribution function Phi (exact, by erf); Hendrycks & Gimpel 2016.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> F.gelu(be.array([[0., 100.]])).tolist()
    [[0.0, 100.0]]
    """
    return F.mul(F.mul(0.5, a), 1 + F.erf(F.mul(a, math.sqrt(0.5))))


COMPOSED: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (reciprocal, clip, mean, var, std, norm2, logsumexp, softmax, log_softmax, silu, gelu)
}
"""Functions composed of table ops, by builder name."""

for _row in OPS.values():
    add_row(_row)
_others: tuple[Callable[..., Any], ...] = (
    builders.dot, builders.cast, moves.transpose, moves.broadcast_to, moves.take, moves.untake, moves.view,
    moves.unview, onehot,
)  # fmt: skip
_others += (arrange.concat, arrange.parts_of)
_others += (along.cumsum, along.cumprod, along.argsort, along.take_along, along.untake_along)
for _function in (*COMPOSED.values(), *_others):
    setattr(F, _function.__name__, staticmethod(_function))
