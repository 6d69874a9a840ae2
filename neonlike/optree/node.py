"""Expression graphs, as built by ``a*b + c``.

An :class:`OpTreeNode` is immutable and shared: using a node twice gives a DAG, not a copy. Shapes and dtypes are
checked when a node is built. Tensors (in ``backends``) derive from :class:`Expression`, too, so both have the same
operators. Comparisons build nodes, so neither is ever compared by value here: dictionaries are keyed by ``id``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from neonlike.checks import shown
from neonlike.errors import DTypeError, NeonlikeError, ShapeError
from neonlike.optree import shapes
from neonlike.optree.dtypes import F32, F64, DType, DTypeRule, check_whole, holds, is_float, promote, result_dtype
from neonlike.optree.forms import mark
from neonlike.optree.hostvalues import HostValues
from neonlike.optree.ops import OPS, OpSpec
from neonlike.optree.shapes import FREE, Shape
from neonlike.optree.truth import on_bits_or_truth

Number: TypeAlias = "int | float"
Operand: TypeAlias = "Expression | int | float"
_SCALAR_SHAPE: Shape = (1, 1)


class Expression(HostValues):
    """Base of tensors and nodes, the parts of an expression, with a shape, a dtype, a backend and operators.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> a = be.array([[1., 2.]])
    >>> expression = (a + 1) * a
    >>> expression.shape, expression.tolist()
    ((1, 2), [[2.0, 6.0]])
    """

    __slots__ = ()

    if TYPE_CHECKING:  # attached by ``methods``

        def __contains__(self, value: Any) -> bool: ...
        def __matmul__(self, other: Any) -> OpTreeNode: ...
        def __rmatmul__(self, other: Any) -> OpTreeNode: ...

    def __bool__(self) -> bool:
        """Always True for a tensor, so that ``if tensor:`` tests for None; nodes evaluate to their value."""
        return True

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> OpTreeNode:
        return _neg(self)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> OpTreeNode:
        return _abs(self)

    def __add__(self, other: Any) -> OpTreeNode:
        return _add(self, other)

    def __radd__(self, other: Any) -> OpTreeNode:
        return _add(other, self)

    def __sub__(self, other: Any) -> OpTreeNode:
        return _sub(self, other)

    def __rsub__(self, other: Any) -> OpTreeNode:
        return _sub(other, self)

    def __mul__(self, other: Any) -> OpTreeNode:
        return _mul(self, other)

    def __rmul__(self, other: Any) -> OpTreeNode:
        return _mul(other, self)

    def __truediv__(self, other: Any) -> OpTreeNode:
        return _div(self, other)

    def __rtruediv__(self, other: Any) -> OpTreeNode:
        return _div(other, self)

    def __floordiv__(self, other: Any) -> OpTreeNode:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> OpTreeNode:
        return _floordiv(other, self)

    def __mod__(self, other: Any) -> OpTreeNode:
        return _mod(self, other)

    def __rmod__(self, other: Any) -> OpTreeNode:
        return _mod(other, self)

    def __pow__(self, other: Any) -> OpTreeNode:
        return _sqr(self) if other.__class__ in (int, float) and other == 2 else _pow(self, other)

    def __rpow__(self, other: Any) -> OpTreeNode:
        return _pow(other, self)

    def __eq__(self, other: Any) -> Any:
        return _eq(self, other) if is_operand(other) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return _ne(self, other) if is_operand(other) else NotImplemented

    def __lt__(self, other: Any) -> OpTreeNode:
        return _lt(self, other)

    def __le__(self, other: Any) -> OpTreeNode:
        return _le(self, other)

    def __gt__(self, other: Any) -> OpTreeNode:
        return _gt(self, other)

    def __ge__(self, other: Any) -> OpTreeNode:
        return _ge(self, other)


class OpTreeNode(Expression):
    """One op applied to operands; nothing is computed until it is assigned to a tensor.

    Attributes
    ----------
    spec : OpSpec
        The op's row of the table.
    operands : tuple of Expression or Python numbers
    attrs : dict or None
        Parameters of the op besides operands (``axis``, ``axes``, ...); ``value`` marks a tree of numbers only.
    shape : tuple of int
        At least two entries; ``(0, 0)`` for nodes that fit any shape (``rand``, ``onehot``).
    dtype : numpy.dtype
    backend : Backend or None
        Backend of the tensors in the tree; None for trees of numbers.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> a = be.array([[1., 2.]])
    >>> be.sig(a)
    <OpTreeNode sig shape=(1, 2) dtype=float32>
    """

    __slots__ = ("__weakref__", "attrs", "backend", "dtype", "operands", "shape", "spec")

    spec: OpSpec
    operands: tuple[Any, ...]
    attrs: dict[str, Any] | None
    shape: Shape
    dtype: DType
    backend: Any
    if TYPE_CHECKING:  # attached by ``methods``
        T: OpTreeNode
        build: Any
        get: Any
        __len__: Any
        __iter__: Any
        __getitem__: Any

        def astensor(self) -> Any: ...

    def __init__(
        self,
        spec: OpSpec,
        operands: tuple[Any, ...],
        attrs: dict[str, Any] | None,
        shape: Shape,
        dtype: DType,
        backend: Any,
    ) -> None:
        self.spec = spec
        self.operands = operands
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.backend = backend

    def transpose(self, out: Any = None) -> Any:
        """Return ``self.T``, or assign it to ``out`` and return ``out``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> (be.array([[1., 2.]]) + 1).transpose().tolist()
        [[2.0], [3.0]]
        """
        return self.T if out is None else OpTreeNode.build("assign", out, self.T)

    def _evaluated(self) -> Any:
        """Compute a new tensor, without the origin that :meth:`astensor` records for gradients."""
        if self.backend is None:
            raise NoTensorError(f"astensor: {self} holds no tensor; assign it to one: out[:] = expression")
        if self.shape is FREE:
            raise ShapeError(f"astensor: {self} has no shape of its own; assign it to a tensor: out[:] = expression")
        return self.backend.assign(self.backend.fresh(self.shape, self.dtype), self)

    def asnumpyarray(self) -> npt.NDArray[Any]:
        """Compute and return a host array of this shape and dtype.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> (be.array([[1., 2.]]) + 1).asnumpyarray().shape
        (1, 2)
        """
        host: npt.NDArray[Any] = self._evaluated().get()
        return host

    def __repr__(self) -> str:
        return f"<OpTreeNode {self.spec.name} shape={self.shape} dtype={self.dtype.name}>"


class NoTensorError(NeonlikeError, ValueError):
    """An expression of numbers alone cannot be computed, because it has no backend."""


# Building nodes ---------------------------------------------------------------------------------------------------


def is_operand(value: Any) -> bool:
    """True if ``value`` can be an operand: tensor, node, number, NumPy scalar or array, or a foreign 0-d array."""
    return isinstance(value, (Expression, int, float, np.ndarray)) or _is_scalar(value) or _has_no_axes(value)


def _is_scalar(value: Any) -> bool:
    """True for NumPy scalars, including bfloat16, which is not among NumPy's numbers."""
    return isinstance(value, (np.number, np.bool_)) or (isinstance(value, np.generic) and holds(value.dtype))


def _has_no_axes(value: Any) -> bool:
    """True for any library's 0-d arrays, which stand for a number."""
    return getattr(value, "shape", None) == () and hasattr(value, "item")


_NUMBERS = (int, float)
"""Classes of numbers that nodes have as they are; of NumPy's they have the values, float64 too, which is a float."""


def adapt(name: str, value: Any, backend: Any) -> Operand:
    """Convert ``value`` to an operand: expressions pass, scalars become Python numbers, arrays become tensors.

    Parameters
    ----------
    name : str
        Operation, for messages.
    value : object
    backend : Backend or None
        For arrays.

    Raises
    ------
    DTypeError
        For anything else, for complex numbers, or for an array if no backend is known.
    ShapeError
        For a 1-D array of several elements, which could be a row or a column.
    """
    if isinstance(value, Expression) or value.__class__ in _NUMBERS:
        return value
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):  # bool, or a class of the user
        return value
    if _is_scalar(value) or _has_no_axes(value):
        number = value.item()
        if isinstance(number, (int, float)):
            return number
    elif isinstance(value, np.ndarray) and backend is not None:
        if value.ndim == 1 and value.size != 1:
            raise ShapeError(
                f"{name}: a 1-D array of shape {value.shape} is ambiguous beside a tensor; "
                "use v[:, None] for a column or v[None, :] for a row"
            )
        wrapped: Expression = backend.wrap(value)
        return wrapped
    if hasattr(value, "_applied"):  # a variable
        raise DTypeError(f"{name}: is not for {shown(value)}; ops of variables are those of neonlike.autograd")
    raise DTypeError(
        f"{name}: cannot use {shown(value)} as an operand; expected a tensor, an expression, a number or a NumPy array"
    )


def common_backend(name: str, operands: tuple[Any, ...]) -> Any:
    """The one backend of ``operands`` (None if there are only numbers).

    Raises
    ------
    DTypeError
        If tensors belong to two backends.
    """
    found = None
    for operand in operands:
        backend = getattr(operand, "backend", None)
        if backend is None or backend is found:
            continue
        if found is not None:
            raise DTypeError(
                f"{name}: operands belong to two backends, {found!r} and {backend!r}; "
                "copy one over with backend.array(tensor.get())"
            )
        found = backend
    return found


def is_number(operand: Any) -> bool:
    """True for Python numbers and trees of numbers alone; both are weak in promotion."""
    return isinstance(operand, (int, float)) or (
        isinstance(operand, OpTreeNode) and operand.attrs is not None and "value" in operand.attrs
    )


def number_value(operand: Any) -> Number:
    """Value of a number accepted by :func:`is_number`."""
    return operand.attrs["value"] if isinstance(operand, OpTreeNode) and operand.attrs else operand  # type: ignore[no-any-return]


INDEXED = ("take", "untake", "take_along", "untake_along")
"""Ops with indices as their second operand."""


def node_dtype(spec: OpSpec, operands: tuple[Any, ...]) -> DType:
    """dtype of ``spec`` applied to ``operands``; numbers are weak."""
    counted = operands[1:] if spec.name == "where" else operands[:1] if spec.name in INDEXED else operands
    typed: list[DType] = []
    numbers: list[Number] = []
    fractional = False
    for operand in counted:
        if is_number(operand):
            numbers.append(number := number_value(operand))
            fractional = fractional or isinstance(number, float)
        else:
            typed.append(operand.dtype)
    promoted = promote(typed) if typed else F32
    if not is_float(promoted):
        if fractional:
            promoted = F32
        elif spec.dtype is DTypeRule.SAME or spec.dtype is DTypeRule.WHOLE:
            check_whole(spec.name, typed, promoted, numbers)
    return result_dtype(spec.dtype, promoted)


def apply(spec: OpSpec, operands: tuple[Any, ...], backend: Any = None) -> OpTreeNode:
    """Apply the elementwise ``spec`` to any operands, with all checks; builders handle the common cases.

    If an operand has ``_applied(spec, operands)``, as variables of :mod:`neonlike.autograd` do, it builds the result.

    Parameters
    ----------
    spec : OpSpec
        An elementwise row.
    operands : tuple
        As many as the row takes.
    backend : Backend, optional
        For arrays.
    """
    name = spec.name
    if not all(o.__class__ in _NUMBERS or isinstance(o, Expression) for o in operands):
        for operand in operands:
            if (applied := getattr(operand, "_applied", None)) is not None:
                return applied(spec, operands)  # type: ignore[no-any-return]
        backend = backend or next((b for o in operands if (b := getattr(o, "backend", None)) is not None), None)
        operands = tuple(adapt(name, o, backend) for o in operands)
    if spec.dtype is DTypeRule.WHOLE:
        spec = on_bits_or_truth(spec, operands)
    if spec.dtype is DTypeRule.TRUTH:
        operands = _comparable(operands)
    backend = common_backend(name, operands)
    if all(map(is_number, operands)):
        return _number_node(spec, operands)
    shape = shapes.broadcast(name, [o.shape for o in operands if isinstance(o, Expression)])
    return OpTreeNode(spec, operands, None, shape, node_dtype(spec, operands), backend)


def _comparable(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace whole numbers beyond the range of all integers, or of int64 beside int64, by infinity."""
    for operand in operands:
        if isinstance(operand, int) and not -(2**63) <= operand < 2**63:
            break
    else:
        return operands
    typed = [o.dtype for o in operands if not is_number(o)]
    if not typed or is_float(promoted := promote(typed)):
        return operands
    low, high = -(2**63), int(np.iinfo(promoted).max)
    return tuple(
        o if not isinstance(o, int) or low <= o <= high else math.inf if o > high else -math.inf for o in operands
    )


def _number_node(spec: OpSpec, operands: tuple[Any, ...]) -> OpTreeNode:
    """Fold a tree of numbers to its value: in int64 for integer ops, else in float64."""
    dtype = np.int64 if spec.dtype is DTypeRule.WHOLE else np.float64
    out = np.empty((), dtype)
    try:
        values = [np.asarray(number_value(o), dtype=dtype) for o in operands]
    except OverflowError:
        raise DTypeError(f"{spec.name}: a number is larger than any {np.dtype(dtype).name}") from None
    with np.errstate(all="ignore"):
        spec.numpy(*values, out)
    return OpTreeNode(spec, operands, {"value": out.item()}, _SCALAR_SHAPE, F32, None)


Unary: TypeAlias = Callable[[Any], OpTreeNode]
Binary: TypeAlias = Callable[[Any, Any], OpTreeNode]
Ternary: TypeAlias = Callable[[Any, Any, Any], OpTreeNode]


def unary(spec: OpSpec) -> Unary:
    """Create the builder ``f(a)`` of a one-operand elementwise op."""

    def build(a: Any) -> OpTreeNode:
        if isinstance(a, Expression) and (a.dtype is F32 or a.dtype is F64) and a.backend is not None:
            return OpTreeNode(spec, (a,), None, a.shape, a.dtype, a.backend)
        return apply(spec, (a,))

    build.__name__ = build.__qualname__ = spec.name
    return mark(build, "unary", spec)


def binary(spec: OpSpec) -> Binary:
    """Create the builder ``f(a, b)`` of a two-operand elementwise op; common cases are checked first."""

    def build(a: Any, b: Any) -> OpTreeNode:
        if isinstance(a, Expression):
            dtype = a.dtype
            if (dtype is F32 or dtype is F64) and a.backend is not None:
                kind = b.__class__
                if kind is float or kind is int:
                    return OpTreeNode(spec, (a, b), None, a.shape, dtype, a.backend)
                if isinstance(b, Expression) and b.dtype is dtype and b.backend is a.backend:
                    shape, other = a.shape, b.shape
                    if shape is not FREE and other is not FREE:
                        shape = shape if shape == other else shapes.broadcast_two(spec.name, shape, other)
                        return OpTreeNode(spec, (a, b), None, shape, dtype, a.backend)
        elif (a.__class__ is float or a.__class__ is int) and isinstance(b, Expression) and b.backend is not None:
            dtype = b.dtype
            if dtype is F32 or dtype is F64:
                return OpTreeNode(spec, (a, b), None, b.shape, dtype, b.backend)
        return apply(spec, (a, b))

    build.__name__ = build.__qualname__ = spec.name
    return mark(build, "binary", spec)


def ternary(spec: OpSpec) -> Ternary:
    """Create the builder ``f(a, b, c)`` of a three-operand elementwise op."""

    def build(a: Any, b: Any, c: Any) -> OpTreeNode:
        if isinstance(a, Expression) and isinstance(b, Expression) and isinstance(c, Expression):
            dtype, shape, backend = a.dtype, a.shape, a.backend
            if (
                (dtype is F32 or dtype is F64)
                and b.dtype is dtype
                and c.dtype is dtype
                and b.shape == shape == c.shape
                and FREE is not shape
                and b.backend is backend is c.backend
            ):
                return OpTreeNode(spec, (a, b, c), None, shape, dtype, backend)
        return apply(spec, (a, b, c))

    build.__name__ = build.__qualname__ = spec.name
    return mark(build, "ternary", spec)


_neg, _abs, _sqr = (unary(OPS[name]) for name in ("neg", "abs", "sqr"))
_add, _sub, _mul, _div, _pow = (binary(OPS[name]) for name in ("add", "sub", "mul", "div", "pow"))
_floordiv, _mod = binary(OPS["floordiv"]), binary(OPS["mod"])
_eq, _ne, _lt, _le, _gt, _ge = (binary(OPS[name]) for name in ("eq", "ne", "lt", "le", "gt", "ge"))
OPERATORS = (_neg, _abs, _sqr, _add, _sub, _mul, _div, _floordiv, _mod, _pow, _lt, _le, _eq, _ne, _gt, _ge)
"""Operators of arithmetic and comparison; ``operators`` has the others."""


def expression(name: str, value: Any, backend: Any = None) -> Expression:
    """Convert ``value`` to an expression with a definite shape, for ops that need one.

    Parameters
    ----------
    name : str
        Operation, for messages.
    value : object
    backend : Backend, optional
        For arrays.

    Raises
    ------
    ShapeError
        For a number or a free shape, where the op has nothing to work on.
    """
    if isinstance(value, Expression) and value.shape is not FREE:  # the common case
        return value
    adapted = adapt(name, value, backend)
    if not isinstance(adapted, Expression) or adapted.shape is FREE:
        raise ShapeError(f"{name}: needs a tensor or an expression with a shape, got {shown(value)}")
    return adapted
