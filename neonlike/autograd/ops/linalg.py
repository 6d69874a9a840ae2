"""Matrix products."""

from __future__ import annotations

from typing import Any

from neonlike.autograd.ops.common import F, derived, variable
from neonlike.autograd.ops.sparse import SparseMatrix
from neonlike.autograd.variable import Variable

__all__ = ["batched_matmul", "matmul"]


def matmul(a: Any, b: Any) -> Variable:
    """Matrix product (m, k) x (k, n) -> (m, n); one of them may be a :class:`SparseMatrix`.

    Raises
    ------
    ShapeError
        If the inner sizes differ, or an operand is not 2-D.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.matmul([[1.0, 2.0]], [[3.0], [4.0]]).tolist()
    [[11.0]]
    """
    if isinstance(a, SparseMatrix) or isinstance(b, SparseMatrix):
        return a @ b  # type: ignore[no-any-return]
    return derived("matmul", F.dot, a, b)


def batched_matmul(a: Any, b: Any) -> Variable:
    """Matrix products (X, m, k) x (X, k, n) -> (X, m, n); one operand may be 2-D, and is used for every entry.

    Raises
    ------
    ShapeError, DTypeError
        If sizes or dtypes do not fit.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.batched_matmul(be.ones((2, 3, 4)), be.ones((2, 4, 5))).shape
    (2, 3, 5)
    """
    like = a if isinstance(a, Variable) else variable("batched_matmul", b)
    return derived("batched_matmul", like.backend.matmul, a, b)


DOCUMENT_NAMES = {"MatMul": matmul, "BatchedMatMul": batched_matmul}
"""The source document's names."""
