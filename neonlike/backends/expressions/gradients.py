"""Gradients for users: ``be.grad(f)``, ``be.value_and_grad(f)``, ``be.check_grad(f, tensors)``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neonlike.backends.expressions.grad_check import check, differentiating, is_differentiating
from neonlike.backends.family import Family
from neonlike.backends.tensor import Tensor, put
from neonlike.backends.tensors.operands import as_numbers
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, GradientError, ShapeError
from neonlike.optree.autodiff import Autodiff
from neonlike.optree.dtypes import is_float
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS


class GradientFamily(Family):
    """``grad``, ``value_and_grad`` and ``check_grad``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.grad(lambda x: x * x)(be.array([[3.]])).tolist()
    [[6.0]]
    """

    def grad(self, f: Callable[..., Any], argnums: int | Sequence[int] | None = None) -> Callable[..., Any]:
        """Return the function that computes the gradient of ``f``.

        Parameters
        ----------
        f : callable
            Takes tensors (and any other arguments), returns an expression. If that has several elements, the gradient
            is that of their sum: for an elementwise function, the derivative at each element.
        argnums : int or sequence of int, optional
            Positions of the arguments to differentiate by; default: all float tensors.

        Returns
        -------
        callable
            Takes the arguments of ``f``; returns a new tensor of the argument's shape and dtype, or a tuple of tensors
            if there are several arguments to differentiate by, or ``argnums`` is a sequence. ``f`` is called each time;
            anything it reads besides its arguments is constant.

        Raises
        ------
        DTypeError, ArgumentError
            If ``f`` is not callable, or ``argnums`` are not positions.
        GradientError
            When called: if ``f`` returns no expression of floats or does not use an argument, or an argument is not a
            float tensor.

        Notes
        -----
        Inside a function whose gradient is taken, ``be.grad`` returns lazy expressions and ``f`` receives them, so that
        second derivatives are written ``be.grad(be.grad(f))``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[1.0, 2.0]])
        >>> be.grad(lambda x: be.sum(x * x * x))(x).get().tolist()
        [[3.0, 12.0]]
        >>> be.grad(be.grad(lambda x: x * x * x))(x).get().tolist()
        [[6.0, 12.0]]
        """
        return self._gradient_function("grad", f, argnums, with_value=False)

    def value_and_grad(self, f: Callable[..., Any], argnums: int | Sequence[int] | None = None) -> Callable[..., Any]:
        """As :meth:`grad`, with the value of ``f`` in addition: the result returns ``(value, gradient)``.

        The value is a new tensor. Both are computed together, sharing common parts.

        Parameters
        ----------
        f, argnums
            As in :meth:`grad`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> w, x = be.array([[1.0, 2.0]]), be.array([[3.0], [4.0]])
        >>> loss, (dw, dx) = be.value_and_grad(lambda w, x: be.square(be.dot(w, x)))(w, x)
        >>> loss.get().item(), dw.get().tolist()
        (121.0, [[66.0, 88.0]])
        """
        return self._gradient_function("value_and_grad", f, argnums, with_value=True)

    def check_grad(self, f: Any, tensors: Any, rtol: float = 1e-5, seed: int = 0) -> float:
        """Compare a gradient with central differences, in float64, along random directions.

        Parameters
        ----------
        f : callable or Transform or Cost
            A function of the tensors that returns an expression of any shape: its gradient is Autodiff's, including
            :meth:`primitive`. It is called several times, with the same random numbers. Or an activation (of one
            tensor) or cost (of outputs and targets): then its ``bprop`` is compared with its value.
        tensors : tensor or sequence of tensors
            Points of comparison. They are copied, in float64, and not changed; integers are passed unchanged.
        rtol : float
            Allowed difference, relative to the size of the gradient along a direction.
        seed : int
            Seed of the random directions.

        Returns
        -------
        float
            The largest relative difference.

        Raises
        ------
        GradientError
            If the gradient is wrong: names the element with the largest difference, with both values. Also if
            differences are undecidable, at a kink or at values that are not finite.
        DTypeError
            If there is nothing to compare, or ``f`` computes in another dtype than float64.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[0.5, -1.0, 2.0]])
        >>> be.check_grad(lambda x: be.tanh(x) * x, x) < 1e-5
        True
        """
        given = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
        if not given or not all(isinstance(tensor, Tensor) and tensor.backend is self for tensor in given):
            raise DTypeError(f"check_grad: needs tensors of this backend to compare at, got {brief(tensors)}")
        if not callable(f) or isinstance(f, type):
            raise DTypeError(f"check_grad: f must be a function, an activation or a cost, got {brief(f)}")
        (tolerance,) = as_numbers("check_grad", rtol=rtol)
        if not isinstance(seed, (int, np.integer)) or seed < 0 or not tolerance > 0:
            raise ArgumentError(
                f"check_grad: seed={brief(seed)}, rtol={brief(rtol)}; expected a whole number, one above 0"
            )
        if not all(tensor.size for tensor in given):
            raise ShapeError("check_grad: a tensor without elements has no gradient to check; pass some")
        return check(self, f, given, tolerance, int(seed))

    def _gradient_function(self, name: str, f: Any, argnums: Any, with_value: bool) -> Callable[..., Any]:
        if not callable(f) or isinstance(f, Expression):
            raise DTypeError(f"{name}: f must be a function that returns an expression, got {brief(f)}")
        wanted = _positions(name, argnums)

        def gradient(*arguments: Any, **options: Any) -> Any:
            at = _chosen(name, self, arguments, wanted)
            lazy = is_differentiating()
            replaced = list(arguments)
            for position in at:
                replaced[position] = _itself(arguments[position]) if lazy else _stand_in(self, arguments[position])
            with differentiating():
                value = f(*replaced, **options)
            places = [replaced[position] for position in at]
            found = _differentiate(name, self, value, dict(zip(at, places)))
            if not lazy:
                value, found = self._computed(value if with_value else None, places, found)
            result = found[0] if len(at) == 1 and (wanted is None or isinstance(argnums, int)) else tuple(found)
            return (value, result) if with_value else result

        gradient.__name__ = gradient.__qualname__ = f"{name}({getattr(f, '__name__', type(f).__name__)})"
        return gradient

    def _computed(self, value: Any, places: list[Any], gradients: list[Any]) -> tuple[Any, list[Any]]:
        """Compute ``value``, unless it is None, and ``gradients`` into new tensors, by one plan."""
        pairs = [(self.fresh(place.shape, place.dtype), gradient) for place, gradient in zip(places, gradients)]
        if value is not None:
            pairs.insert(0, (self.fresh(value.shape, value.dtype), value))
        made = self.assign_many(pairs)
        return (None, made) if value is None else (made[0], made[1:])


def _positions(name: str, argnums: Any) -> tuple[int, ...] | None:
    if argnums is None:
        return None
    try:
        return tuple(operator.index(n) for n in (argnums if isinstance(argnums, (tuple, list)) else (argnums,)))
    except TypeError:
        raise DTypeError(f"{name}: argnums must be a position or several, got {brief(argnums)}") from None


def _chosen(name: str, be: Any, arguments: tuple[Any, ...], wanted: tuple[int, ...] | None) -> list[int]:
    """Check and return the positions of the arguments to differentiate by."""
    if wanted is None:
        at = [n for n, value in enumerate(arguments) if isinstance(value, Expression) and is_float(value.dtype)]
        if not at:
            raise GradientError(f"{name}: no argument is a tensor of floats; make them with be.array(values)")
    else:
        at = [n + len(arguments) if n < 0 else n for n in wanted]
        if not at or len(set(at)) != len(at) or not all(0 <= n < len(arguments) for n in at):
            raise ArgumentError(f"{name}: argnums={wanted} do not name arguments; the function got {len(arguments)}")
    for n in at:
        value = arguments[n]
        if not isinstance(value, Expression) or not is_float(value.dtype):
            what = value.dtype.name if isinstance(value, Expression) else type(value).__name__
            raise GradientError(
                f"{name}: argument {n} must be a tensor of floats to differentiate by, got {what}; make one with "
                "be.array(values), or leave it out of argnums"
            )
        if value.backend is not be:
            raise DTypeError(f"{name}: argument {n} belongs to another backend; copy it: be.array(x.get())")
    return at


def _itself(value: Any) -> OpTreeNode:
    """Wrap ``value`` in a separate node, so that other uses of it are constant.

    It is a broadcast to its own shape: it does nothing at run time, and windows are not pushed past it to the tensor.
    """
    return OpTreeNode(OPS["broadcast"], (value,), {"shape": value.shape}, value.shape, value.dtype, value.backend)


def _stand_in(be: Any, value: Any) -> Any:
    """A separate tensor over the memory of ``value``, or a copy if that is strided or lazy."""
    if isinstance(value, OpTreeNode) or not value.is_contiguous:
        return be.assign(be.fresh(value.shape, value.dtype), value)
    made = be.tensor_cls(be, value.array, value.name)
    put(made, "root", value.root)  # it aliases whatever ``value`` aliases
    return made


def _differentiate(name: str, be: Any, value: Any, places: dict[int, Any]) -> list[Any]:
    """Gradients of ``value`` by ``places``, tensors or nodes, as expressions; 0 for those that it does not use."""
    if not isinstance(value, Expression):
        raise GradientError(f"{name}: f must return an expression of tensors, got {type(value).__name__}")
    autodiff = Autodiff(value, be)
    found = []
    for position, place in places.items():
        try:
            if not isinstance(place, OpTreeNode):
                found += autodiff.get_grad_op_tree([place])
                continue
            gradient = autodiff.gradient_at(place)
        except GradientError as error:
            raise GradientError(f"{name}, by argument {position}: {error}") from error
        found.append(be.zeros(place.shape, dtype=place.dtype) if gradient is None else gradient)
    return found
