"""In-place operators, such as ``t += x``: in place as in NumPy and PyTorch; neon's meaning in its dialect."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from neonlike.optree.dialect import is_neon


def _in_place(op: Callable[[Any, Any], Any], target: Any, other: Any) -> Any:
    """Assign ``op(target, other)`` to ``target`` by one kernel; in neon's dialect, return the expression."""
    value = op(target, other)
    return value if is_neon() else target.backend.assign(target, value)


class InPlaceOperators:
    """Base of tensors: ``w -= 0.1 * g`` is ``w[:] = w - 0.1 * g``, and ``w`` remains the same tensor.

    The result has the tensor's shape and dtype: a right side that does not broadcast to it is a ShapeError, and a
    tensor of integers rounds and saturates as in every assignment. On an expression, which has no elements of its own,
    ``e += x`` creates a new one, as for numbers.
    """

    def __iadd__(self, other: Any) -> Any:
        return _in_place(operator.add, self, other)

    def __isub__(self, other: Any) -> Any:
        return _in_place(operator.sub, self, other)

    def __imul__(self, other: Any) -> Any:
        return _in_place(operator.mul, self, other)

    def __itruediv__(self, other: Any) -> Any:
        return _in_place(operator.truediv, self, other)

    def __ifloordiv__(self, other: Any) -> Any:
        return _in_place(operator.floordiv, self, other)

    def __imod__(self, other: Any) -> Any:
        return _in_place(operator.mod, self, other)

    def __ipow__(self, other: Any) -> Any:
        return _in_place(operator.pow, self, other)

    def __imatmul__(self, other: Any) -> Any:
        return _in_place(operator.matmul, self, other)

    def __iand__(self, other: Any) -> Any:
        return _in_place(operator.and_, self, other)

    def __ior__(self, other: Any) -> Any:
        return _in_place(operator.or_, self, other)

    def __ixor__(self, other: Any) -> Any:
        return _in_place(operator.xor, self, other)

    def __ilshift__(self, other: Any) -> Any:
        return _in_place(operator.lshift, self, other)

    def __irshift__(self, other: Any) -> Any:
        return _in_place(operator.rshift, self, other)
