"""``be.blas(dtype)``: vectors, matrices and BLAS operations on them, in one float dtype.

It is for code written in these terms. A vector is a tensor (n, 1) or (1, n), a transposed matrix is its view ``A.T``.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

from neonlike.backends.tensor import Tensor
from neonlike.backends.tensors.operands import check_tensors
from neonlike.checks import brief, shown
from neonlike.errors import DTypeError, ShapeError
from neonlike.optree.dtypes import DType


class Blas:
    """BLAS operations on tensors of ``dtype`` on one backend; the result of ``be.blas(dtype)``.

    Operations return their output; reductions return numbers, which waits on a GPU. Operands are never converted.

    Parameters
    ----------
    be : Backend
    dtype : dtype

    Attributes
    ----------
    dtype : numpy.dtype

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> blas = be.blas("float64")
    >>> x, y = blas.vector([1, 2]), blas.vector([3, 4])
    >>> blas.dot(x, y), blas.axpy(10, x, y).T.tolist()
    (11.0, [[13.0, 24.0]])
    """

    def __init__(self, be: Any, dtype: DType) -> None:
        self.backend, self.dtype = be, dtype

    def __repr__(self) -> str:
        return f"<Blas {self.dtype.name} on {self.backend!r}>"

    # Creation of operands

    def vector(self, values: Any) -> Any:
        """Create a vector (n, 1) from ``values``, or of zeros if it is an integer.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.blas().vector([1, 2]).shape, be.blas().vector(3).T.tolist()
        ((2, 1), [[0.0, 0.0, 0.0]])
        """
        if isinstance(values, numbers.Integral) and not isinstance(values, bool):
            return self.backend.zeros((values, 1), dtype=self.dtype)
        made = self.backend.array(values, dtype=self.dtype)
        if made.ndim != 2 or 1 not in made.shape:
            raise ShapeError(f"blas.vector: needs one dimension, got {made.shape}")
        return made.reshape(-1, 1)

    def matrix(self, values: Any, columns: int | None = None) -> Any:
        """Create a matrix from two-dimensional ``values``; or, from two integers, a matrix of zeros.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.blas().matrix(2, 3).shape
        (2, 3)
        """
        if columns is not None:
            return self.backend.zeros((values, columns), dtype=self.dtype)
        made = self.backend.array(values, dtype=self.dtype)
        if made.ndim != 2:
            raise ShapeError(f"blas.matrix: needs two dimensions, got {made.shape}")
        return made

    # Vectors

    def dot(self, x: Any, y: Any) -> float:
        """Sum of the products of two vectors.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.dot(blas.vector([1, 2]), blas.vector([3, 4]))
        11.0
        """
        x, y = self._vectors("dot", x=x, y=y)
        return float(self.backend.sum(x * y))

    def nrm2(self, x: Any) -> float:
        """Square root of the sum of squares, without overflow of squares.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.nrm2(blas.vector([3, 4]))
        5.0
        """
        be, (x,) = self.backend, self._vectors("nrm2", x=x)
        largest = float(be.max(be.absolute(x))) if x.size else 0.0
        if not 0 < largest < math.inf:
            return largest
        return largest * math.sqrt(float(be.sum(be.square(x / largest))))

    def asum(self, x: Any) -> float:
        """Sum of magnitudes.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.asum(blas.vector([3, -4]))
        7.0
        """
        (x,) = self._vectors("asum", x=x)
        return float(self.backend.sum(self.backend.absolute(x)))

    def iamax(self, x: Any) -> int:
        """Position of the largest magnitude, the first of equal ones.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.iamax(blas.vector([3, -4]))
        1
        """
        (x,) = self._vectors("iamax", x=x)
        if not x.size:
            raise ShapeError("blas.iamax: a vector without elements has no largest one")
        return int(self.backend.argmax(self.backend.absolute(x), axis=0).item())

    def axpy(self, alpha: float, x: Any, y: Any) -> Any:
        """Compute ``y += alpha * x`` and return y.

        Parameters
        ----------
        alpha : float
        x, y : vectors of one size

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.axpy(2, blas.vector([1, 2]), blas.vector([10, 10])).T.tolist()
        [[12.0, 14.0]]
        """
        (a, b) = self._vectors("axpy", x=x, y=y)
        self.backend.assign(b, alpha * a + b)
        return y

    def scal(self, alpha: float, x: Any) -> Any:
        """Compute ``x *= alpha`` and return x, which may be a matrix.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.scal(2, blas.vector([3, -4])).T.tolist()
        [[6.0, -8.0]]
        """
        self._check("scal", x=x)
        return self.backend.assign(x, alpha * x)

    def copy(self, x: Any, y: Any) -> Any:
        """Copy x to y and return y.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.copy(blas.vector([1, 2]), blas.vector(2)).T.tolist()
        [[1.0, 2.0]]
        """
        (a, b) = self._vectors("copy", x=x, y=y)
        self.backend.assign(b, a)
        return y

    def swap(self, x: Any, y: Any) -> None:
        """Exchange the elements of two vectors.

        Raises
        ------
        AliasError
            If they share memory.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> x, y = blas.vector([1, 2]), blas.vector([3, 4])
        >>> blas.swap(x, y)
        >>> x.T.tolist(), y.T.tolist()
        ([[3.0, 4.0]], [[1.0, 2.0]])
        """
        (a, b) = self._vectors("swap", x=x, y=y)
        self.backend.assign_many([(a, b), (b, a)])

    # Matrices

    def gemv(self, A: Any, x: Any, y: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Compute ``y = alpha * A x + beta * y`` for A (m, n), and return y.

        With ``beta`` 0 the old y is not read, not even nan; the same holds for :meth:`gemm`.

        Parameters
        ----------
        A : matrix (m, n)
        x, y : vectors of n and m elements
        alpha, beta : float
            Factors of the product and of the old y.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.gemv(blas.matrix([[1, 2], [3, 4]]), blas.vector([1, 1]), blas.vector(2)).T.tolist()
        [[3.0, 7.0]]
        """
        self._check("gemv", A=A, x=x, y=y)
        (column,), (result,) = self._vectors("gemv", x=x), self._vectors("gemv", y=y)
        self.backend.compound_dot(A, column, result, alpha=alpha, beta=beta)
        return y

    def ger(self, x: Any, y: Any, A: Any, alpha: float = 1.0) -> Any:
        """Compute ``A += alpha * x y^T``, for x of m and y of n elements and A (m, n), and return A.

        Parameters
        ----------
        x, y : vectors of m and n elements
        A : matrix (m, n)
        alpha : float

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.ger(blas.vector([1, 2]), blas.vector([3, 4]), blas.matrix(2, 2)).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
        """
        self._check("ger", x=x, y=y, A=A)
        (column,), (row,) = self._vectors("ger", x=x), self._vectors("ger", y=y)
        self.backend.compound_dot(column, row.T, A, alpha=alpha, beta=1.0)
        return A

    def gemm(self, A: Any, B: Any, C: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Compute ``C = alpha * A B + beta * C``, for A (m, k), B (k, n) and C (m, n), and return C.

        Parameters
        ----------
        A, B, C : matrices (m, k), (k, n), (m, n)
        alpha, beta : float
            Factors of the product and of the old C.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> blas = be.blas()
        >>> blas.gemm(blas.matrix([[1, 2]]), blas.matrix([[3], [4]]), blas.matrix(1, 1)).tolist()
        [[11.0]]
        """
        self._check("gemm", A=A, B=B, C=C)
        self.backend.compound_dot(A, B, C, alpha=alpha, beta=beta)
        return C

    # Checks

    def _check(self, operation: str, **operands: Any) -> None:
        check_tensors(self.backend, f"blas.{operation}", **operands)
        for name, tensor in operands.items():
            if not isinstance(tensor, Tensor) or tensor.dtype != self.dtype:
                found = tensor.dtype.name if isinstance(tensor, Tensor) else shown(tensor)
                raise DTypeError(f"blas.{operation}: {name} must hold {self.dtype.name}, got {found}")

    def _vectors(self, operation: str, **operands: Any) -> list[Any]:
        """Operands as columns of equal size."""
        self._check(operation, **operands)
        sizes = set()
        for name, tensor in operands.items():
            if tensor.ndim != 2 or 1 not in tensor.shape:
                raise ShapeError(f"blas.{operation}: {name} must be a vector (n, 1) or (1, n), got {tensor.shape}")
            sizes.add(tensor.size)
        if len(sizes) > 1:
            listed = {name: tensor.size for name, tensor in operands.items()}
            raise ShapeError(f"blas.{operation}: vectors of one size are needed, got {brief(listed)}")
        return [t if t.shape[1] == 1 else t.T for t in operands.values()]
