"""Builders of reductions. Reduced axes keep size 1, unless ``keepdims=False`` drops them.

A tensor has at least two dimensions, so axes can be dropped if two remain: from 3-D tensors on. Elsewhere
``keepdims=False`` is refused. In neon's dialect (:mod:`neonlike.optree.dialect`) it is ignored, as in neon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, ArgumentTypeError, ShapeError
from neonlike.optree import along, arrange, dialect, functions, op_examples, shapes
from neonlike.optree.builders import reduce
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.forms import mark, owner
from neonlike.optree.node import Expression, OpTreeNode, expression
from neonlike.optree.ops import OPS, Kind, OpSpec


@owner
class ReductionFamily(Family, builds_nodes=True):
    """``be.sum(a, axis=None, out=None, keepdims=True)`` and similar.

    ``axis`` is an int, a tuple, or None for all, an empty tuple for none; ``argmax`` and ``argmin`` take one axis, 1 by
    default, or None for the position among all elements in C order. Reduced axes keep size 1; ``keepdims=False`` drops
    them if two remain, and is refused elsewhere (:class:`ShapeError`).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.ones((2, 3, 4))
    >>> be.sum(x, axis=2).shape, be.sum(x, axis=2, keepdims=False).shape
    ((2, 3, 1), (2, 3))
    """

    def mean(self, a: Any, axis: Any = None, partial: Any = None, out: Any = None, keepdims: bool = True) -> Any:
        """Arithmetic mean over ``axis``.

        ``partial``, accepted and ignored in neon, must be None. ``keepdims``: see the class.

        Parameters
        ----------
        a : tensor, expression, array or number
        axis : int, tuple of int, or None
            None: all elements.
        partial : None
            neon's argument, without effect.
        out : tensor, optional
            Receives the result at once, instead of an expression.
        keepdims : bool
            False drops the reduced axes, see the class.

        Raises
        ------
        ShapeError
            If an axis does not exist, or ``keepdims=False`` leaves fewer than two axes.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.mean(be.array([[1., 2.], [3., 6.]]), axis=1).tolist()
        [[1.5], [4.5]]
        """
        node: Any = functions.mean(a if isinstance(a, Expression) else self._array(a), axis)
        if partial is not None or keepdims is not True:
            node = _as_asked("mean", node, a, axis, keepdims, partial)
        return node if out is None else self._finish(node, out)

    mark(mean, "composed", functions.mean)

    def var(
        self,
        a: Any,
        axis: Any = None,
        partial: Any = None,
        out: Any = None,
        keepdims: bool = True,
        binary: bool = False,
    ) -> Any:
        """Biased variance over ``axis``; ``binary`` replaces the square by a shift. Otherwise as :meth:`mean`.

        Parameters
        ----------
        a, axis, partial, out, keepdims
            As in :meth:`mean`.
        binary : bool
            Replace the square of a deviation by its product with the nearest power of two, see ``be.shift``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.var(be.array([[1., 3.], [2., 6.]]), axis=1).tolist()
        [[1.0], [4.0]]
        """
        if not isinstance(binary, (bool, int, np.bool_)):
            raise ArgumentTypeError(f"var: binary must be True or False, got {shown(binary)}")
        node = functions.var(self._array(a), axis, bool(binary))
        return self._finish(_as_asked("var", node, a, axis, keepdims, partial), out)

    mark(var, "composed", functions.var)

    def std(self, a: Any, axis: Any = None, partial: Any = None, out: Any = None, keepdims: bool = True) -> Any:
        """Square root of the biased variance over ``axis``; as :meth:`mean`.

        Parameters
        ----------
        a, axis, partial, out, keepdims
            As in :meth:`mean`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.std(be.array([[1., 3.], [2., 6.]]), axis=1).tolist()
        [[1.0], [2.0]]
        """
        node = functions.std(self._array(a), axis)
        return self._finish(_as_asked("std", node, a, axis, keepdims, partial), out)

    mark(std, "composed", functions.std)

    def norm2(self, a: Any, axis: Any = None, out: Any = None) -> Any:
        """Euclidean norm over ``axis``.

        Parameters
        ----------
        a, axis, out
            As in :meth:`mean`; integers are computed in float64.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.norm2(be.array([[3., 4.], [6., 8.]]), axis=1).tolist()
        [[5.0], [10.0]]
        """
        return self._finish(functions.norm2(self._array(a), axis), out)

    mark(norm2, "composed", functions.norm2)

    def logsumexp(self, a: Any, axis: Any = None, out: Any = None) -> Any:
        """log(sum(exp(a))) over ``axis``, without overflow.

        Parameters
        ----------
        a, axis, out
            As in :meth:`mean`.

        Returns
        -------
        expression, or ``out``
            -inf where all elements are -inf, or there are none.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.logsumexp(be.array([[1000., -1000.]]), axis=1).tolist()
        [[1000.0]]
        """
        return self._finish(functions.logsumexp(self._array(a), axis), out)

    mark(logsumexp, "composed", functions.logsumexp)

    def _array(self, a: Any) -> Any:
        return expression("reduction", a, self)


def _as_asked(name: str, node: OpTreeNode, a: Any, axis: Any, keepdims: Any, partial: Any = None) -> Expression:
    """Return ``node``, which reduces ``a`` over ``axis``, with the reduced axes dropped if ``keepdims`` is false.

    Raises
    ------
    ShapeError
        If fewer than two axes would remain.
    ArgumentError
        If ``partial`` is not None.
    """
    if dialect.is_neon():
        return node
    if not isinstance(keepdims, (bool, int, np.bool_)):
        raise ArgumentTypeError(f"{name}: keepdims must be True or False, got {shown(keepdims)}")
    if partial is not None and partial is not False:
        raise ArgumentError(f"{name}: partial={brief(partial)} has no effect, as in neon; leave it out")
    if keepdims:
        return node
    axes = shapes.normalize_axes(name, axis, node.shape)
    left = len(node.shape) - len(axes)
    if left < 2:
        raise ShapeError(
            f"{name}: keepdims=False over axis {axis} of {getattr(a, 'shape', ())} leaves {left} dimension"
            f"{'s' * (left != 1)}, and a tensor has at least two; leave keepdims out: the result is {node.shape}"
        )
    return arrange.squeeze(node, axes)


def builder(spec: OpSpec, name: str) -> Callable[..., Any]:
    """Create the method ``name`` of a reduction row."""
    default = 1 if spec.dtype is DTypeRule.INDEX else None
    method = _method(spec, name, default)
    over = "int or None\n    None: among all elements in C order." if default else "int, tuple of int, or None"
    method.__doc__ = (
        f"{spec.doc}\n\nParameters\n----------\na : tensor, expression or array\naxis : {over}\n"
        "out : tensor, optional\n    Receives the result at once, instead of an expression.\n"
        "keepdims : bool\n    False drops the reduced axes where two are left, and is refused elsewhere."
    )
    method.__name__ = name
    method.__qualname__ = f"{ReductionFamily.__name__}.{name}"
    return method


def _method(spec: OpSpec, name: str, default: int | None) -> Callable[..., Any]:
    made = along.position if spec.dtype is DTypeRule.INDEX else reduce

    def method(self: Any, a: Any, axis: Any = default, out: Any = None, keepdims: bool = True) -> Any:
        node: Any = made(spec, a, axis, self)
        if keepdims is not True:
            node = _as_asked(name, node, a, axis, keepdims)
        return node if out is None else self._finish(node, out)

    return method if made is along.position else mark(method, "reduction", spec)


Family.builders[Kind.REDUCTION] = builder
for _spec in OPS.values():
    for _name in _spec.builders if _spec.kind is Kind.REDUCTION else ():
        _example = op_examples.of_rows(_spec, f"be.{_name}")
        setattr(ReductionFamily, _name, op_examples.added(builder(_spec, _name), _example))
