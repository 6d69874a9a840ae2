"""Sparse matrices with values that are differentiated: few elements of a matrix, by their rows and columns.

Their products are computed on the host, by SciPy where it is installed; on a GPU from copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.autograd.ops.common import F, derived, plain, variable
from neonlike.autograd.ops.shape import index_add, reshape, transpose
from neonlike.autograd.variable import Variable
from neonlike.errors import DTypeError, IndexRangeError, ShapeError
from neonlike.optree import moves
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.node import Expression

__all__ = ["SparseMatrix", "sparse_from_value_and_index", "to_dense"]


class SparseMatrix:
    """A matrix of which few elements are not 0; made by :func:`sparse_from_value_and_index`.

    Attributes
    ----------
    values : Variable (n, 1)
    rows, columns : int64 arrays (n,)
        Where the values are; several in one place are added up.
    shape : (m, k)

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> m = autograd.sparse_from_value_and_index([[5.0], [7.0]], [[0, 1], [1, 0]], (2, 2))
    >>> (m @ be.array([[1.], [2.]])).tolist()
    [[10.0], [7.0]]
    """

    def __init__(self, values: Variable, rows: Any, columns: Any, shape: tuple[int, int]) -> None:
        self.values, self.rows, self.columns, self.shape = values, rows, columns, shape

    @property
    def T(self) -> SparseMatrix:
        """The transposed matrix."""
        return SparseMatrix(self.values, self.columns, self.rows, self.shape[::-1])

    def __matmul__(self, dense: Any) -> Variable:
        """The product (m, n) with a matrix (k, n).

        Raises
        ------
        ShapeError
            If the inner sizes differ.
        DTypeError
            If the other factor is sparse too, or no matrix at all.
        """
        dense = variable("sparse product", dense, self.values)
        if dense.ndim != 2 or dense.shape[0] != self.shape[1]:
            raise ShapeError(f"sparse product: {self.shape} times {dense.shape}; the inner sizes must be equal")
        places = self.rows, self.columns
        return derived("sparse product", lambda v, b: _product(v, b, places, self.shape), self.values, dense)

    __array_ufunc__ = None
    """NumPy's arrays leave their product with it to it."""

    def __rmatmul__(self, dense: Any) -> Variable:
        """The product (n, k) of a matrix (n, m) with this one."""
        return transpose(self.T @ transpose(dense))

    def __repr__(self) -> str:
        return f"<SparseMatrix {self.shape[0]}x{self.shape[1]}, {len(self.rows)} values, {self.values.dtype.name}>"


def sparse_from_value_and_index(values: Any, positions: Any, shape: tuple[int, int]) -> SparseMatrix:
    """The matrix of ``shape`` with ``values`` at ``positions``.

    Parameters
    ----------
    values : (n, 1) or (1, n)
    positions : integers (2, n)
        Rows and columns.
    shape : (m, k)

    Raises
    ------
    IndexRangeError
        If a position is outside.
    ShapeError, DTypeError

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.sparse_from_value_and_index([[5.0], [7.0]], [[0, 1], [1, 0]], (2, 3))
    <SparseMatrix 2x3, 2 values, float32>
    """
    values = variable("sparse_from_value_and_index", values)
    known = isinstance(positions, (Variable, Expression))
    places = plain("sparse_from_value_and_index", positions).get() if known else np.asarray(positions)
    if places.dtype.kind not in "iu":
        raise DTypeError(f"sparse_from_value_and_index: positions must be integers, got {places.dtype}")
    if values.ndim != 2 or 1 not in values.shape or places.shape != (2, values.size):
        raise ShapeError(
            f"sparse_from_value_and_index: needs values (n, 1) and positions (2, n), got {values.shape}, {places.shape}"
        )
    for what, found, size in zip(("row", "column"), places, shape):
        if found.size and not 0 <= found.min() <= found.max() < size:
            raise IndexRangeError(f"sparse_from_value_and_index: {what}s must be in [0, {size}), got {found}")
    rows, columns = places.astype(np.int64)
    return SparseMatrix(reshape(values, (values.size, 1)), rows, columns, (int(shape[0]), int(shape[1])))


def to_dense(matrix: SparseMatrix) -> Variable:
    """The matrix with all its elements.

    Raises
    ------
    DTypeError
        If it is not sparse.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> autograd.to_dense(autograd.sparse_from_value_and_index([[5.0]], [[0], [1]], (1, 3))).tolist()
    [[0.0, 5.0, 0.0]]
    """
    if not isinstance(matrix, SparseMatrix):
        raise DTypeError(f"to_dense: needs a SparseMatrix, got {matrix!r}")
    m, k = matrix.shape
    return reshape(index_add(matrix.values, matrix.rows * k + matrix.columns, 0, m * k), (m, k))


def _product(values: Any, dense: Any, places: tuple[Any, Any], shape: tuple[int, int]) -> Any:
    """The expression of sparse times dense."""
    rows, columns = places

    def forward(out: Any, values: Any, dense: Any) -> None:
        kind = compute_dtype(dense.dtype)
        weights, matrix = (tensor.get().astype(kind, copy=False) for tensor in (values, dense))
        out.set(_times(weights.ravel(), matrix, places, shape))

    def backward(d: Any, z: Any, values: Any, dense: Any) -> tuple[Any, ...]:
        met = moves.take(d, rows, 0) * moves.take(dense, columns, 0)
        return F.sum(met, axis=1), _product(values, d, (columns, rows), shape[::-1])

    size = (shape[0], dense.shape[1])
    return values.backend.primitive(forward, backward, lambda *_: size, name="sparse product")(values, dense)


def _times(weights: Any, matrix: Any, places: tuple[Any, Any], shape: tuple[int, int]) -> Any:
    rows, columns = places
    try:
        from scipy.sparse import csr_matrix
    except ImportError:
        found = np.zeros((shape[0], matrix.shape[1]), matrix.dtype)
        np.add.at(found, rows, weights[:, None] * matrix[columns])
        return found
    return np.asarray(csr_matrix((weights, (rows, columns)), shape=shape) @ matrix)


DOCUMENT_NAMES = {"SparseFromValueAndIndex": sparse_from_value_and_index, "ToDense": to_dense}
"""The source document's names."""
