"""Ops of your own: a value, and for each parent the increment that its derivative gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neonlike.autograd.leaves import const_beside, derived
from neonlike.autograd.variable import Variable, made
from neonlike.backends.primitives.lazy.requests import check_increment
from neonlike.checks import brief
from neonlike.errors import DTypeError, GradientError, NotDefined
from neonlike.optree import tape
from neonlike.optree.node import Expression
from neonlike.optree.ops import Kind
from neonlike.optree.shapes import Shape


class Op:
    """An operation with a gradient of its own. Subclass it, and call an object of it with variables.

    A subclass defines :meth:`value` in expressions, which fuse with what is around, or :meth:`forward`, which writes a
    tensor by any means; and :meth:`increments`. What it needs besides its parents it keeps as attributes.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> class Cube(autograd.Op):
    ...     def value(self, x):
    ...         return x * x * x
    ...     def increments(self, d, z, x):
    ...         return d * 3 * x * x
    >>> x = autograd.param([[2.0]])
    >>> Cube()(x).backprop()
    >>> x.partial_derivative.item()
    12.0
    """

    def value(self, *parents: Any) -> Any:
        """The value as an expression of ``parents``, which are expressions.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> class Double(autograd.Op):
        ...     def value(self, x):
        ...         return x * 2
        >>> Double()(autograd.const([[3.0]])).item()
        6.0
        """
        raise NotDefined(f"{self.name}: defines neither value() in expressions nor forward() that writes a tensor")

    forward: Callable[..., None] | None = None
    """``forward(out, *parents)`` writes the tensor ``out``, in place of :meth:`value`; all are tensors."""

    def shape(self, *shapes: Shape) -> Shape:
        """The shape of what :meth:`forward` writes, from those of the parents.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> class Total(autograd.Op):
        ...     def forward(self, out, x):
        ...         out[:] = be.sum(x)
        ...     def shape(self, x):
        ...         return (1, 1)
        >>> Total()(autograd.const([[3.0, 4.0]])).item()
        7.0
        """
        return shapes[0]

    def increments(self, d: Any, z: Any, *parents: Any) -> Any:
        """An expression for each parent, or None: what its derivative gets of the upstream derivative ``d``.

        ``z`` is the value. Each is summed to its parent's shape where broadcasting stretched that.

        Parameters
        ----------
        d : expression
            Derivative of the result by the value, of the value's shape.
        z : expression
            The value.
        *parents : expressions
            What the op was called with.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> class Double(autograd.Op):
        ...     def value(self, x):
        ...         return x * 2
        ...     def increments(self, d, z, x):
        ...         return d * 2
        >>> x = autograd.param([[3.0]])
        >>> Double()(x).backprop()
        >>> x.partial_derivative.item()
        2.0
        """
        raise GradientError(f"{self.name}: defines no increments(), so it has no derivative")

    @property
    def name(self) -> str:
        """The name in ``variable.op`` and messages: the class's name."""
        return type(self).__name__

    def __call__(self, *inputs: Any) -> Variable:
        parents = as_variables(self.name, inputs)
        expressions = [parent._expr for parent in parents]
        be = expressions[0].backend
        if self.forward is None:
            value = self.value(*expressions)
            if not isinstance(value, Expression):
                raise DTypeError(f"{self.name}: value() must return an expression of its parents, got {brief(value)}")
            inside = [node for node in tape.order_of([value], {id(one) for one in expressions}) if tape.is_dear(node)]
            heavy = any(node.spec.kind is not Kind.REDUCTION for node in inside)
            expr = tape.ruled(value, tape.Rule(self.name, tuple(expressions), self._grad, inside != [], heavy))
        else:
            run = be.primitive(self.forward, self._backward, self.shape, name=self.name)
            expr = run(*expressions)
        return made(self.name, expr, tuple(parents))

    def _backward(self, d: Any, z: Any, *parents: Any) -> Any:
        return self.increments(d, z, *parents)

    def _grad(self, F: Any, d: Any, z: Any, *parents: Any) -> tuple[Any, ...]:
        """The rule: :meth:`increments`, checked."""
        given = self.increments(d, z, *parents)
        found = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(found) != len(parents):
            raise GradientError(
                f"{self.name}: increments() returned {len(found)}; expected {len(parents)}, one for each parent (None "
                "where there is none)"
            )
        for parent, increment in zip(parents, found):
            check_increment(f"increments() of {self.name}", parent, increment)
        return found


def as_variables(operation: str, inputs: Sequence[Any]) -> list[Variable]:
    """``inputs`` as variables, what is none of them as constants beside the others."""
    if not inputs:
        raise DTypeError(f"{operation}: needs a variable at least")
    return [one if isinstance(one, Variable) else const_beside(one, inputs) for one in inputs]


def op(
    value: Callable[..., Any] | None = None, increments: Callable[..., Any] | None = None, name: str | None = None
) -> Any:
    """Make a function of variables of two functions of expressions; also a decorator of the first.

    Parameters
    ----------
    value : callable
        The value, of the parents.
    increments : callable
        ``increments(d, z, *parents)``, as :meth:`Op.increments`. Without it the derivative is that of the expression.
    name : str, optional

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> @autograd.op(increments=lambda d, z, x: d)
    ... def straight_through(x):
    ...     return be.rint(x)
    >>> x = autograd.param([[0.2, 1.7]])
    >>> autograd.sum(straight_through(x) * 3).backprop()
    >>> x.partial_derivative.tolist()
    [[3.0, 3.0]]
    """
    if value is None:
        return lambda function: op(function, increments, name)
    if not callable(value) or not (increments is None or callable(increments)):
        raise DTypeError(f"op: value and increments must be functions, got {brief(value)} and {brief(increments)}")
    found = str(name or getattr(value, "__name__", type(value).__name__))
    if increments is None:

        def build(*inputs: Any) -> Variable:
            return derived(found, value, *as_variables(found, inputs))

        build.__name__, build.__doc__ = found, value.__doc__
        return build
    body = {"value": staticmethod(value), "increments": staticmethod(increments), "__doc__": value.__doc__}
    return type(found, (Op,), body)()
