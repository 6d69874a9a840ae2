"""Reverse-mode differentiation of expressions. Gradients are expressions again, so they can be differentiated too.

Each op's rule is in its row of the op table, and :mod:`neonlike.optree.sweep` carries gradients through the rules. What
follows here is neon's interface: objects that are found again, questions about tensors, and gradients through copies.
"""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from neonlike.checks import brief, shown
from neonlike.errors import AliasError, GradientError, ShapeError
from neonlike.optree import dialect, origin
from neonlike.optree.dtypes import is_float
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS
from neonlike.optree.shapes import FREE
from neonlike.optree.sweep import GradNode, Sweep, by_memory, memory_of, of_memory
from neonlike.optree.walk import leaves, structure

F: Any = Functions
__all__ = ["Autodiff", "GradNode", "GradUtil", "grad_map"]


class _GradMap(Mapping[str, Any]):
    """The gradient column of the op table as it is now."""

    def __getitem__(self, name: str) -> Any:
        return OPS[name].grad

    def __iter__(self) -> Iterator[str]:
        return iter(OPS)

    def __len__(self) -> int:
        return len(OPS)


grad_map = _GradMap()
"""neon's table: op name -> gradient rule."""


class Autodiff:
    """Gradients of an expression with respect to tensors in it.

    They flow through tensors that were computed from others, such as ``E[[1, 1]]`` and ``expression.astensor()``, as
    long as both still have the values that they had then; :mod:`neonlike.optree.origin` has the rule.

    Parameters
    ----------
    op_tree : expression
        May be of any shape; the gradient is of ``sum(op_tree * next_error)``.
    be : Backend
    next_error : tensor of the shape of ``op_tree``, optional
        Gradient arriving from outside; ones if not given.

    Equal arguments (the same tree of the same tensors) return the same object while it lives. Tensor values may
    change between uses: gradients are evaluated anew each time.

    Raises
    ------
    GradientError
        If ``op_tree`` is not an expression of floats with a shape.
    ShapeError
        If ``next_error`` has another shape.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend('cpu')
    >>> x = be.array([[1., 2.], [3., 4.]])
    >>> Autodiff(be.sum(x * x), be).get_grad_asnumpyarray([x])[0].tolist()
    [[2.0, 4.0], [6.0, 8.0]]
    """

    # Not a WeakValueDictionary: its callbacks run once a training step, and Python swallows a Ctrl-C raised in one.
    _living: ClassVar[dict[Any, weakref.ref[Autodiff]]] = {}
    _most: ClassVar[int] = 64

    op_tree: Any
    be: Any
    next_error: Any
    _found: list[GradNode] | None
    _key: tuple[Any, ...]

    def __new__(cls, op_tree: Any, be: Any, next_error: Any = None) -> Autodiff:
        _check(op_tree, next_error)
        key = (structure(op_tree), id(be), id(next_error), dialect.is_neon())
        found = cls._alive(key)
        if found is None:
            found = super().__new__(cls)
            found.op_tree, found.be, found.next_error, found._found, found._key = op_tree, be, next_error, None, key
            cls._forget_dead()
            cls._living[key] = weakref.ref(found)
        return found

    @classmethod
    def _alive(cls, key: Any) -> Autodiff | None:
        kept = cls._living.get(key)
        return None if kept is None else kept()

    @classmethod
    def _forget_dead(cls) -> None:
        """Drop the entries of collected objects, each time the table has doubled."""
        if len(cls._living) < Autodiff._most:
            return
        for key, kept in list(cls._living.items()):
            if kept() is None:
                cls._living.pop(key, None)
        Autodiff._most = max(64, 2 * len(cls._living))

    def get_grad_op_tree(self, tensors: Sequence[Any], *, absent: str = "zeros") -> list[Any]:
        """Gradients as lazy expressions, one a tensor, each of its tensor's shape.

        Parameters
        ----------
        tensors : sequence of tensors, or one
        absent : "zeros" or "error"
            What a tensor gets that the expression does not contain. Its derivative is 0; an error tells that values
            were assigned to another tensor before, or went through the host, and so are constants.

        Raises
        ------
        GradientError
            For something that is not a tensor of floats, for one that the expression contains through a copy that was
            written to since it was made, and with ``absent="error"`` for one that it does not contain.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[1., 2.]])
        >>> (slope,) = Autodiff(be.sum(x * x), be).get_grad_op_tree([x])
        >>> slope.tolist()
        [[2.0, 4.0]]
        """
        if not isinstance(absent, str) or absent not in ("zeros", "error"):
            raise GradientError(f"Autodiff: absent must be 'zeros' or 'error', got {brief(absent)}")
        if isinstance(tensors, Expression):
            tensors = [tensors]
        elif not isinstance(tensors, (list, tuple)):
            raise GradientError(f"Autodiff: expected a list of tensors, got {type(tensors).__name__}")
        for tensor in tensors:
            _check_tensor(tensor)
        owners = [id(memory_of(tensor)) for tensor in tensors]
        _, views, known = self._gathered(set(owners))
        for tensor, owner in zip(tensors, owners):
            if absent == "error" and owner not in known:
                raise _not_there(tensor, self.op_tree)
        gradients = [of_memory(tensor, views.get(owner, ())) for tensor, owner in zip(tensors, owners)]
        return [self.be.zeros(t.shape, dtype=t.dtype) if one is None else one for t, one in zip(tensors, gradients)]

    def gradient_at(self, node: OpTreeNode) -> Any:
        """Gradient as a lazy expression with respect to ``node``, a part of the expression; None if it is not one.

        The expressions that tensors were computed from hold copies of ``node``; they are recognized by the dict
        ``node.attrs``, which all copies share.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[3.]])
        >>> square = x * x
        >>> Autodiff(square * 2, be).gradient_at(square).tolist()
        [[2.0]]
        """
        if not isinstance(node, OpTreeNode):
            raise GradientError(f"Autodiff: expected a part of the expression, got {type(node).__name__}")
        found, *_ = self._gathered({id(memory_of(leaf)) for leaf in leaves(node)})
        alike = [one for one in found if isinstance(one.node, OpTreeNode) and one.node.attrs is node.attrs]
        totals = [one.total for one in alike if one.total is not None and (node.attrs is not None or one.node is node)]
        return functools.reduce(operator.add, totals) if totals else None

    def _gathered(self, wanted: set[int]) -> tuple[list[GradNode], dict[int, list[GradNode]], set[int]]:
        """Gradients at every node and tensor of the expression, the same by memory, and ids of all tensors it reads.

        Where the origins of its tensors lead to one that is ``wanted``, gradients go on to what these were computed
        from.
        """
        if self.op_tree is None:
            raise GradientError("Autodiff: cleanup() was called; make a new one")
        if self._found is None:
            self._found = _swept(self.op_tree, self._incoming())
        found = list(self._found)
        read = [memory_of(one.node) for one in found if not isinstance(one.node, OpTreeNode)]
        views, known = by_memory(found), {id(base) for base in read}
        for tensor in origin.on_the_way(read, wanted):
            known.update(id(base) for base in tensor.origin.bases())
            if mine := views.get(id(tensor)):
                further = _swept(origin.current_expression(tensor), of_memory(tensor, mine))
                found += further
                for key, more in by_memory(further).items():
                    views.setdefault(key, []).extend(more)
        return found, views, known

    def get_grad_tensor(self, tensors: Sequence[Any], *, absent: str = "zeros") -> list[Any]:
        """Gradients in newly allocated tensors, of their tensors' dtypes; see :meth:`get_grad_op_tree`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[1., 2.]])
        >>> Autodiff(be.sum(x * x), be).get_grad_tensor([x])[0].tolist()
        [[2.0, 4.0]]
        """
        if isinstance(tensors, Expression):
            tensors = [tensors]
        trees = self.get_grad_op_tree(tensors, absent=absent)
        out = [self.be.fresh(tensor.shape, tensor.dtype) for tensor in tensors]
        self.be.assign_many(list(zip(out, trees)))
        return [origin.computed(made, tree) for made, tree in zip(out, trees)]

    def get_grad_asnumpyarray(self, tensors: Sequence[Any], *, absent: str = "zeros") -> list[npt.NDArray[Any]]:
        """Gradients as host arrays of the backend's default dtype; see :meth:`get_grad_op_tree`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[1., 2.]])
        >>> Autodiff(be.sum(x * x), be).get_grad_asnumpyarray([x])[0].shape
        (1, 2)
        """
        made = self.get_grad_tensor(tensors, absent=absent)
        return [g.get().astype(self.be.default_dtype, copy=False) for g in made]

    def back_prop_grad(self, tensors: Sequence[Any], gradients: Sequence[Any], *, absent: str = "zeros") -> None:
        """Evaluate gradients into the given tensors; one of them may be ``next_error``.

        Parameters
        ----------
        tensors : sequence of tensors
        gradients : sequence of tensors
            The buffers, one for each tensor, of its shape.
        absent : "zeros" or "error"
            As in :meth:`get_grad_op_tree`.

        Raises
        ------
        GradientError
            As :meth:`get_grad_op_tree`.
        AliasError
            If a buffer shares memory with a tensor of the expression, which would change the expression.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x, slope = be.array([[1., 2.]]), be.empty((1, 2))
        >>> Autodiff(be.sum(x * x), be).back_prop_grad([x], [slope])
        >>> slope.tolist()
        [[2.0, 4.0]]
        """
        if not isinstance(tensors, (list, tuple)) or not isinstance(gradients, (list, tuple)):
            raise GradientError("back_prop_grad: expected a list of tensors, and one of as many buffers")
        if len(tensors) != len(gradients):
            raise ShapeError(f"back_prop_grad: {len(tensors)} tensors but {len(gradients)} gradient buffers")
        for buffer in gradients:
            for leaf in leaves(self.op_tree):
                if buffer is not self.next_error and (leaf is buffer or leaf.alias_of(buffer)):
                    raise AliasError(
                        f"back_prop_grad: buffer {shown(buffer)} shares memory with {shown(leaf)} of the expression"
                    )
        self.be.assign_many(list(zip(gradients, self.get_grad_op_tree(tensors, absent=absent))))

    def cleanup(self) -> None:
        """Drop the expression and its gradients; the next Autodiff of equal arguments is a new object.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.ones((1, 2))
        >>> Autodiff(be.sum(x * x), be).cleanup()
        """
        if self._alive(self._key) is self:
            self._living.pop(self._key, None)
        self.op_tree = self.next_error = self._found = None

    def _incoming(self) -> Any:
        if self.next_error is not None:
            return self.next_error
        one = self.be.ones((1, 1), dtype=self.op_tree.dtype)
        return F.broadcast_to(one, self.op_tree.shape)


def _check(op_tree: Any, next_error: Any) -> None:
    if not isinstance(op_tree, Expression) or op_tree.shape is FREE or op_tree.backend is None:
        raise GradientError(f"Autodiff: needs an expression with tensors in it, got {op_tree}")
    if not is_float(op_tree.dtype):
        raise GradientError(f"Autodiff: an expression of integers ({op_tree.dtype.name}) has no gradient: {op_tree}")
    if next_error is not None and getattr(next_error, "shape", None) != op_tree.shape:
        raise ShapeError(
            f"Autodiff: next_error must have the expression's shape {op_tree.shape}, "
            f"got {getattr(next_error, 'shape', type(next_error).__name__)}"
        )


def _swept(root: Any, incoming: Any) -> list[GradNode]:
    """Gradients gathered at every node below ``root``, users first, and at every tensor of floats."""
    sweep = Sweep(root)
    sweep.run(incoming)
    return [*reversed(sweep.steps.values()), *sweep.leaves.values()]


def _check_tensor(tensor: Any) -> None:
    if not isinstance(tensor, Expression) or isinstance(tensor, OpTreeNode):
        raise GradientError(f"Autodiff: gradients are taken with respect to tensors, got {shown(tensor)}")
    if not is_float(tensor.dtype):
        raise GradientError(f"Autodiff: no gradient with respect to a tensor of {tensor.dtype.name}: {shown(tensor)}")


def _not_there(tensor: Any, op_tree: Any) -> GradientError:
    return GradientError(
        f"Autodiff: the expression {str(op_tree)[:80]} does not contain {shown(tensor)}, so it has no gradient with "
        "respect to it; values that were assigned to another tensor, or went through the host, are constants. "
        "Differentiate the expression before it is assigned"
    )


class GradUtil:
    """Checks on gradients.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> GradUtil.is_invalid(be.ones((1, 2)), be)
    False
    """

    @staticmethod
    def is_invalid(grad_op_tree: Any, be: Any) -> bool:
        """True if any value is nan or outside (-50000, 50000).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> GradUtil.is_invalid(be.ones((1, 2)) * 1e6, be)
        True
        """
        values = grad_op_tree.asnumpyarray()
        return not bool(np.all(np.abs(values) < 50000))
