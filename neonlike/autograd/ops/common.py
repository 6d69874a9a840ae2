"""The pieces that ops are made of: see the package's docstring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.autograd.leaves import const_beside, derived
from neonlike.autograd.variable import Variable, made
from neonlike.backends.tensors.operands import as_numbers
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError
from neonlike.optree import tape
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import Expression

__all__ = ["F", "as_numbers", "brief", "derived", "indices", "made", "per_axis", "plain", "variable", "with_rule"]

F: Any = Functions


def variable(operation: str, value: Any, like: Any = None) -> Variable:
    """``value`` as a variable; a constant beside ``like`` if it is none.

    Parameters
    ----------
    operation : str
        Name of the op, for messages.
    value : Variable, tensor, expression, array, number or nested lists
    like : Variable or tensor, optional
        Its backend, and float64 if it has that, are the constant's too.

    Raises
    ------
    DTypeError
        If ``value`` is none of these.
    """
    if value.__class__ is Variable:
        return value  # type: ignore[no-any-return]
    if isinstance(value, (Variable, Expression, int, float, np.ndarray, list, tuple, np.generic)):
        return value if isinstance(value, Variable) else const_beside(value, () if like is None else (like,))
    raise DTypeError(f"{operation}: needs a variable, or values for a constant, got {brief(value)}")


def plain(operation: str, value: Any, like: Any = None) -> Any:
    """``value`` as an expression that no gradient flows to: masks, targets, indices.

    Parameters
    ----------
    operation, value, like
        As of :func:`variable`.
    """
    found = variable(operation, value, like)
    return found._expr if not found.needs_grad else found.value


def indices(operation: str, value: Any, like: Any) -> Any:
    """Positions as what builders take: an integer tensor, or lists and arrays as they are, which are checked there.

    Parameters
    ----------
    operation : str
        Name of the op, for messages.
    value : Variable, tensor, array or nested lists
        Integers.
    like : Variable
        Its backend is used.
    """
    return plain(operation, value, like) if isinstance(value, (Variable, Expression)) else value


def per_axis(operation: str, name: str, value: Any, axes: int) -> tuple[int, ...]:
    """``value``, one number for all axes or one each, as one each.

    Parameters
    ----------
    operation, name : str
        Op and argument, for messages.
    value : int, tuple or list
    axes : int
        How many numbers are wanted.

    Raises
    ------
    ArgumentError
        If ``value`` is neither an integer nor ``axes`` of them.
    """
    each = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(each) != axes or any(not isinstance(size, int) or isinstance(size, bool) for size in each):
        raise ArgumentError(f"{operation}: {name} must be an integer or {axes} of them, got {brief(value)}")
    return each


def with_rule(
    name: str,
    value: Any,
    parents: tuple[Any, ...],
    grad: Callable[..., tuple[Any, ...]],
    dear: bool = True,
    options: tuple[Any, ...] | None = None,
) -> Any:
    """The expression ``value`` of ``parents`` with a gradient of its own.

    ``grad(F, d, z, *parents)`` gives an expression for each parent, or None; ``dear``: whether z is worth keeping where
    the gradient reads it; ``options``: all that ``grad`` depends on besides its arguments, so that a pass through it
    can be repeated without asking it again; None: that is not known.

    Parameters
    ----------
    name : str
        Name of the op.
    value : expression
    parents : tuple of expressions
        Operands that get gradients.
    grad : callable
        ``grad(F, d, z, *parents)``.
    dear : bool
        Whether z costs enough to be kept rather than computed again.
    options : tuple, optional
        Hashable values.
    """
    key = None if options is None else tape.rule_key(name, getattr(grad, "__code__", grad), *options)
    return tape.ruled(value, tape.Rule(name, parents, grad, dear, key=key))
