"""Variables that were made of no others: constants and parameters; and what makes constants of other operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.autograd import lifetimes
from neonlike.autograd.variable import Variable, leaf_of, made
from neonlike.checks import shown
from neonlike.errors import BackendUnavailable, DTypeError
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.dtypes import F64, is_float
from neonlike.optree.node import Expression, OpTreeNode

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


def _tensor_of(operation: str, value: Any, dtype: Any, backend: Backend | None) -> Any:
    """``value`` as a tensor; tensors as they are, unless they have another dtype."""
    if isinstance(value, Variable):
        value = value.value
    be = getattr(value, "backend", None) or backend or NervanaObject.be
    if be is None:
        raise BackendUnavailable(f"{operation}: there is no backend; make one first: gen_backend('cpu')")
    if isinstance(value, OpTreeNode):
        value = value.astensor()
    if isinstance(value, Expression):
        return value if dtype is None or value.dtype == np.dtype(dtype) else be.array(value, dtype=dtype)
    if dtype is None and isinstance(value, np.ndarray) and value.dtype.kind in "iub":
        dtype = value.dtype  # positions and masks
    return be.array(value, dtype=dtype)


def const(value: Any, dtype: Any = None, backend: Backend | None = None, name: str | None = None) -> Variable:
    """A variable that no derivative is computed for.

    Parameters
    ----------
    value : number, tensor, expression, array or nested lists
        A tensor is used as it is, not copied. Arrays of integers stay integers; all else gets the backend's dtype.
    dtype : dtype, optional
    backend : Backend, optional
        For what is no tensor; default: the current one.
    name : str, optional
        Shown by ``repr`` and reports.

    Raises
    ------
    BackendUnavailable
        If there is none.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.const([[1, 2]])
    >>> x.needs_grad, (x + 1).tolist()
    (False, [[2.0, 3.0]])
    """
    variable = made(None, _tensor_of("const", value, dtype, backend), (), name)
    variable._tensor = variable._expr
    lifetimes.register(variable)
    return variable


def param(value: Any, dtype: Any = None, backend: Backend | None = None, name: str | None = None) -> Variable:
    """A variable whose derivative :meth:`Variable.backprop` fills in; arguments as of :func:`const`.

    Parameters
    ----------
    value, dtype, backend, name
        As of :func:`const`; the values must be floats.

    Raises
    ------
    DTypeError
        If the values are integers.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> w = autograd.param([[3.0]])
    >>> (w * w).backprop()
    >>> w.partial_derivative.item()
    6.0
    """
    tensor = _tensor_of("param", value, dtype, backend)
    if not is_float(tensor.dtype):
        raise DTypeError(f"param: needs floats to differentiate by, got {shown(value)} of {tensor.dtype.name}")
    if not tensor.is_contiguous:
        tensor = tensor.backend.array(tensor, dtype=tensor.dtype)
    variable = made(None, leaf_of(tensor), (), name)
    variable._tensor = tensor
    variable.needs_grad = variable._wanted = True
    lifetimes.register(variable)
    return variable


def zero_grad(variables: Iterable[Variable]) -> None:
    """Forget the derivatives that ``variables`` have gathered.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> w = autograd.param([[3.0]])
    >>> (w * w).backprop()
    >>> autograd.zero_grad([w])
    >>> w.partial_derivative.item()
    0.0
    """
    for variable in variables:
        variable.zero_grad()


def const_beside(value: Any, others: Iterable[Any]) -> Variable:
    """``value`` as a constant for an op with ``others``: of their backend, and of float64 where one of them is.

    The backend's dtype, which other values get, may be float32, and would round them.
    """
    known = [one for one in others if isinstance(one, (Variable, Expression))]
    wide = any(one.dtype == F64 for one in known)
    exact = isinstance(value, (Variable, Expression)) or (isinstance(value, np.ndarray) and value.dtype.kind in "iub")
    return const(value, dtype=F64 if wide and not exact else None, backend=known[0].backend if known else None)


def derived(op: str, build: Callable[..., Any], *operands: Any) -> Variable:
    """``build`` of the expressions of ``operands``: variables, and what can be made constants; numbers stay.

    Parameters
    ----------
    op : str
        Name of the op, for ``repr`` and messages.
    build : callable
        Builds an expression of the operands' expressions.
    *operands : variables, tensors, arrays or numbers

    Returns
    -------
    Variable
        Made by ``op`` of the operands that are no numbers.

    Raises
    ------
    DTypeError
        If ``build`` returns no expression.
    """
    parents: list[Variable] = []
    expressions = []
    for operand in operands:
        if operand.__class__ in (int, float):
            expressions.append(operand)
            continue
        variable = operand if isinstance(operand, Variable) else const_beside(operand, operands)
        parents.append(variable)
        expressions.append(variable._expr)
    value = build(*expressions)
    if not isinstance(value, Expression):
        raise DTypeError(f"{op}: the function must return an expression of its operands, got {shown(value)}")
    return made(op, value, tuple(parents))
