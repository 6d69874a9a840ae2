"""Python's value protocols on expressions: truth, numbers, rows, sizes. Using one computes the expression.

A node is read as the tensor that it would be assigned to. In neon's dialect (:mod:`.dialect`) truth, length, members
and iteration are those of neon's tuple ``(op_dict, left, right)``, see :mod:`.neonform`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy.typing as npt

from neonlike.errors import DTypeError, ShapeError
from neonlike.optree import dialect, neonform, windows
from neonlike.optree.functions import F
from neonlike.optree.hostvalues import HostValues
from neonlike.optree.node import Expression, OpTreeNode, is_number, is_operand, number_value
from neonlike.optree.shapes import FREE


def truth(node: OpTreeNode) -> bool:
    """``bool(node)``: whether its single element, computed now, is not zero. True in neon's dialect.

    Raises
    ------
    ShapeError
        If there is not exactly one element, or the shape is free.
    """
    if dialect.is_neon():
        return True
    if not is_number(node) and size_of(node, "bool") != 1:
        raise ShapeError(
            f"bool: an expression of shape {node.shape} has no truth value of its own; ask for be.any(expression) or "
            "be.all(expression), and compare tensors themselves by `is`"
        )
    return bool(number(node, "bool"))


def contains(self: Expression, value: Any) -> bool:
    """``value in self``: whether any element equals ``value``; computed now.

    For a node in neon's dialect: whether ``value`` is a member of its tuple.
    """
    if dialect.is_neon() and isinstance(self, OpTreeNode):
        return any(member is value for member in neonform.as_tuple(self))
    if not is_operand(value):
        return False  # consistent with ``self == value``
    return bool(number(F.any(F.equal(self, value)), "in"))


def size_of(node: OpTreeNode, operation: str) -> int:
    """Number of elements; ShapeError if the shape is free."""
    if node.shape is FREE:
        raise ShapeError(
            f"{operation}: {node} has no shape of its own (rand and onehot take that of what they meet); "
            "assign it to a tensor: out[:] = expression"
        )
    return math.prod(node.shape)


def number(node: OpTreeNode, operation: str) -> int | float | bool:
    """The single element as a Python number; computed now, unless it is known.

    Raises
    ------
    ShapeError
        If there is not exactly one element.
    """
    if is_number(node):
        return number_value(node)
    size_of(node, operation)
    found: int | float | bool = HostValues._number(node, operation)
    return found


def get(self: OpTreeNode, stream: Any = None) -> npt.NDArray[Any]:
    """The elements as a host array of this shape and dtype; computed now. ``stream`` is accepted, as in neon.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> (be.array([[1., 2.]]) + 1).get().tolist()
    [[2.0, 3.0]]
    """
    return self.asnumpyarray()


def length(node: OpTreeNode) -> int:
    """``len(node)``: the size of the first axis; in neon's dialect 3, the length of its tuple."""
    if dialect.is_neon():
        return 3
    size_of(node, "len")
    return node.shape[0]


def members(node: OpTreeNode) -> Iterator[Any]:
    """``iter(node)``: rows along the first axis, lazy; in neon's dialect the members of its tuple."""
    if dialect.is_neon():
        return iter(neonform.as_tuple(node))
    size_of(node, "iteration")
    return (windows.index(node, position) for position in range(node.shape[0]))


def member(node: OpTreeNode, index: Any) -> Any:
    """``node[index]``: the elements of such a tensor at ``index``, lazy; in neon's dialect a member of its tuple."""
    return neonform.as_tuple(node)[index] if dialect.is_neon() else windows.index(node, index)


def take(self: OpTreeNode, indices: Any, axis: int, out: Any = None) -> Any:
    """Gather slices along ``axis`` by integer ``indices`` (vector), as an expression, or assigned to ``out``.

    Parameters
    ----------
    indices : integers
    axis : int
    out : tensor, optional

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> (be.array([[1., 2., 3.]]) + 1).take([2, 0], axis=1).tolist()
    [[4.0, 2.0]]
    """
    picked: Any = F.take(self, indices, axis)
    return picked if out is None else picked.backend.assign(out, picked)


def copy(self: OpTreeNode, *values: Any) -> Any:
    """Copy the values to a new tensor, as :meth:`OpTreeNode.astensor`; an argument is an error, as in ``set``.

    Raises
    ------
    DTypeError
        If a value to write is given.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> (be.array([[1., 2.]]) + 1).copy().tolist()
    [[2.0, 3.0]]
    """
    return _unwritable("copy")(self) if values else self.astensor()


def _unwritable(name: str, call: str = "") -> Callable[..., Any]:
    """Create a method that refuses to write; ``call`` is the tensor's form of the call, unless ``t.name(...)``."""

    def write(self: OpTreeNode, *values: Any) -> Any:
        raise DTypeError(
            f"{name}: an expression cannot be written to: {str(self)[:60]}; "
            f"compute it into a tensor first: t = expression.astensor(), then {call or f't.{name}(...)'}"
        )

    write.__name__ = name
    write.__doc__ = "Always DTypeError: only tensors can be written to."
    return write


def dlpack(self: OpTreeNode, **options: Any) -> Any:
    """DLPack capsule of a new tensor with the values; options are those of the tensor's ``__dlpack__``."""
    return self.astensor().__dlpack__(**options)


def dlpack_device(self: OpTreeNode) -> tuple[int, int]:
    """Device of that tensor in DLPack's terms: kind and number."""
    backend = self._evaluated().backend if self.backend is None else self.backend  # or raises the same error
    found: tuple[int, int] = backend.fresh((1, 1), self.dtype).__dlpack_device__()
    return found


METHODS: dict[str, Any] = {
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__len__": length,
    "__iter__": members,
    "__getitem__": member,
    "get": get,
    "copy": copy,
    "take": take,
    "__setitem__": _unwritable("set item", "t[index] = values"),
    "set": _unwritable("set"),
    "fill": _unwritable("fill"),
    "copy_from": _unwritable("copy_from"),
    "reshape": windows.reshape,
    "size": property(lambda self: size_of(self, "size"), doc="Number of elements."),
    "ndim": property(lambda self: len(self.shape), doc="Number of axes."),
}
"""Methods that ``methods`` attaches to nodes."""
