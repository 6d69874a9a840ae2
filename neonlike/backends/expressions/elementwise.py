"""Builders of elementwise expressions, one method per builder name of the op table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.hostdata import host_array
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree import functions, op_examples, operators
from neonlike.optree.forms import form_of, mark, owner, recalled
from neonlike.optree.functions import F
from neonlike.optree.node import Expression, adapt, apply, expression
from neonlike.optree.ops import OPS, Kind, OpSpec

_LETTERS = ("a", "b", "c")


@owner
class ElementwiseFamily(Family):
    """``be.sig(a)``, ``be.add(a, b)`` ...: lazy without ``out``; with ``out`` they compute and return it.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> out = be.empty((1, 2))
    >>> be.square(be.array([[1., 2.]]), out=out) is out, out.tolist()
    (True, [[1.0, 4.0]])
    """

    @recalled
    def clip(self, a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:
        """minimum(maximum(a, a_min), a_max); bounds may be tensors, and either may be None for no bound.

        Parameters
        ----------
        a : tensor, expression, array or number
        a_min, a_max : number, tensor, expression or None
            Bounds; they broadcast.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.clip(be.array([[-3., 0.5, 3.]]), -1, 1).tolist()
        [[-1.0, 0.5, 1.0]]
        """
        operands = [value if value is None else self._operand("clip", value) for value in (a, a_min, a_max)]
        return self._finish(functions.clip(*operands), out)

    @recalled
    def reciprocal(self, a: Any, out: Any = None) -> Any:
        """1 / a.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.reciprocal(be.array([[2., 4.]])).tolist()
        [[0.5, 0.25]]
        """
        return self._finish(functions.reciprocal(self._operand("reciprocal", a)), out)

    @recalled
    def gelu(self, a: Any, out: Any = None) -> Any:
        """a * Phi(a), Phi the normal distribution function (exact, by erf).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.gelu(be.array([[0., 1.]])).get().round(4).tolist()[0][0]
        0.0
        """
        return self._finish(functions.gelu(self._operand("gelu", a)), out)

    @recalled
    def silu(self, a: Any, out: Any = None) -> Any:
        """a * sig(a), also called swish.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.silu(be.array([[0., 100.]])).tolist()
        [[0.0, 100.0]]
        """
        return self._finish(functions.silu(self._operand("silu", a)), out)

    swish = silu

    def softmax(self, a: Any, axis: Any = 0, out: Any = None) -> Any:
        """exp(a) / sum(exp(a)) along ``axis``, without overflow; lazy, or computed into ``out``.

        Axis 0 is the features' axis, since activations are (features, N).

        Parameters
        ----------
        a : tensor, expression or array
        axis : int, tuple of int, or None
            Axes of one distribution.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.softmax(be.array([[0., 0.], [0., 1000.]])).tolist()
        [[0.5, 0.0], [0.5, 1.0]]
        """
        return self._finish(functions.softmax(expression("softmax", a, self), axis), out)

    mark(softmax, "composed", functions.softmax)

    def log_softmax(self, a: Any, axis: Any = 0, out: Any = None) -> Any:
        """log(softmax(a)) along ``axis``, without the underflow; as :meth:`softmax`.

        Parameters
        ----------
        a, axis, out
            As in :meth:`softmax`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.log_softmax(be.array([[0.], [1000.]])).tolist()
        [[-1000.0], [0.0]]
        """
        return self._finish(functions.log_softmax(expression("log_softmax", a, self), axis), out)

    mark(log_softmax, "composed", functions.log_softmax)

    def leaky_relu(self, a: Any, slope: Any = 0.01, out: Any = None) -> Any:
        """a where a > 0, else slope * a.

        Parameters
        ----------
        a : tensor, expression, array or number
        slope : number, tensor or expression
            One number, or one for each element.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.leaky_relu(be.array([[-2., 3.]]), 0.5).tolist()
        [[-1.0, 3.0]]
        """
        return self._finish(F.leaky_relu(self._operand("leaky_relu", a), slope), out)  # type: ignore[attr-defined]

    def Relu(self, ary: Any, out: Any = None) -> Any:  # noqa: N802  (neon's name)
        """max(ary, 0); for an array, computed at once as an array, like neon's CPU backend.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.Relu(be.array([[-2., 3.]])).tolist()
        [[0.0, 3.0]]
        """
        if isinstance(ary, np.ndarray) and (out is None or isinstance(out, np.ndarray)):
            return _relu_of_array(host_array("Relu", ary), out)
        return self._finish(F.relu(self._operand("Relu", ary)), out)  # type: ignore[attr-defined]

    def _operand(self, name: str, value: Any) -> Any:
        return value if isinstance(value, Expression) else adapt(name, value, self)


def _relu_of_array(ary: Any, out: Any) -> Any:
    """Compute max(ary, 0), in the array ``out`` if there is one."""
    if out is None:
        return np.maximum(ary, 0)
    if out.shape != ary.shape:
        raise ShapeError(f"Relu: out has shape {out.shape} and ary {ary.shape}; give an out of the same shape")
    if not np.can_cast(ary.dtype, out.dtype, "same_kind"):
        raise DTypeError(f"Relu: ary is {ary.dtype}, which out of {out.dtype} cannot hold; give an out of {ary.dtype}")
    if not out.flags.writeable:
        raise ArgumentError("Relu: out is a read-only array; give one that may be written, such as out.copy()")
    return np.maximum(ary, 0, out=out)


def builder(spec: OpSpec, name: str) -> Callable[..., Any]:
    """Create the method ``name`` of an elementwise row."""
    build = operators.builder(spec)
    method = {1: _unary, 2: _binary, 3: _ternary}[spec.arity](spec, build)
    if form := form_of(build):
        mark(method, form.kind, *form.specs)
    arguments = ", ".join(_LETTERS[: spec.arity])
    method.__doc__ = (
        f"{spec.doc}\n\nParameters\n----------\n{arguments} : tensor, expression, array or number\n"
        "    Shapes broadcast.\nout : tensor, optional\n    Receives the result at once, instead of an expression."
    )
    method.__name__ = name
    method.__qualname__ = f"{ElementwiseFamily.__name__}.{name}"
    return method


def _unary(spec: OpSpec, build: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, a: Any, out: Any = None) -> Any:
        node = build(a) if isinstance(a, Expression) else apply(spec, (a,), self)
        return node if out is None else self._finish(node, out)

    return method


def _binary(spec: OpSpec, build: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, a: Any, b: Any, out: Any = None) -> Any:
        node = build(a, b) if isinstance(a, Expression) else apply(spec, (a, b), self)
        return node if out is None else self._finish(node, out)

    return method


def _ternary(spec: OpSpec, build: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, a: Any, b: Any, c: Any, out: Any = None) -> Any:
        node = build(a, b, c) if isinstance(a, Expression) else apply(spec, (a, b, c), self)
        return node if out is None else self._finish(node, out)

    return method


Family.builders[Kind.ELEMENTWISE] = builder
for _spec in OPS.values():
    for _name in _spec.builders if _spec.kind is Kind.ELEMENTWISE else ():
        if _name not in vars(ElementwiseFamily):
            _example = op_examples.of_elements(_spec, f"be.{_name}")
            setattr(ElementwiseFamily, _name, op_examples.added(builder(_spec, _name), _example))
