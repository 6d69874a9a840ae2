"""Methods of neon's MKL backend, with their meaning for a single data layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neonlike.backends.family import Family
from neonlike.backends.tensors.operands import require_tensors
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree.arrange import reshape
from neonlike.optree.moves import transpose
from neonlike.optree.node import expression


class MklFamily(Family):
    """Conversions without effect, and reorderings.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.trans2d(be.array([[1., 2.]])).shape
    (2, 1)
    """

    def convert(self, a: Any) -> Any:
        """Return ``a``: neon's MKL backend converts it to NumPy's layout, which all tensors have here.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> be.convert(t) is t
        True
        """
        return a

    def convert_mkl(self, a: Any) -> Any:
        """Return ``a``: neon's MKL backend converts it to its engine's layout.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> be.convert_mkl(t) is t
        True
        """
        return a

    def get_numpy(self, a: Any) -> Any:
        """Host copy of the tensor or expression ``a``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.get_numpy(be.ones((1, 2)) * 2).tolist()
        [[2.0, 2.0]]
        """
        found: Any = expression("get_numpy", a, self)
        return found.get()

    def sum_tensor(self, tensors: Sequence[Any], out: Any = None) -> Any:
        """Sum ``tensors``, a sequence of tensors of one shape, in one pass: lazy, or into ``out``.

        Raises
        ------
        ArgumentError
            If there are no tensors.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> be.sum_tensor([t, t, t]).tolist()
        [[3.0, 3.0]]
        """
        terms: list[Any] = [expression("sum_tensor", tensor, self) for tensor in tensors]
        if not terms:
            raise ArgumentError("sum_tensor: needs at least one tensor")
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return self._finish(total, out)

    def trans2d(self, a: Any, out: Any = None) -> Any:
        """Transpose the matrix ``a``: lazy, or into ``out``, which may be ``a``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.trans2d(be.array([[1., 2.]])).tolist()
        [[1.0], [2.0]]
        """
        return self._finish(transpose(a), out)

    def change_data_store_order(self, a: Any, a_row: int, a_col: int, a_len: int, axis: int = 1, b: Any = None) -> Any:
        """Store the runs of a matrix of runs column by column, or row by row again.

        Parameters
        ----------
        a : tensor of a_row * a_col * a_len elements
            In C order: for axis 1, a_row rows of a_col runs with a_len elements each; for axis 0, a_col columns of
            a_row runs each.
        a_row, a_col, a_len : int
            Rows and columns of runs, and elements of a run.
        axis : 0 or 1
            1: store column by column; 0: store row by row, the inverse of 1.
        b : tensor, optional
            Receives the result and has as many elements; default: ``a``.

        Returns
        -------
        ``b``, or ``a``

        Raises
        ------
        ArgumentError, ShapeError
            For another axis, or if sizes do not fit; nothing is written then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.change_data_store_order(be.array([[1., 2., 3., 4.]]), 2, 2, 1).tolist()
        [[1.0, 3.0, 2.0, 4.0]]
        """
        name, target = "change_data_store_order", a if b is None else b
        require_tensors(self, name, a=a, b=target)
        sizes = (a_row, a_col, a_len)
        if not isinstance(axis, int) or axis not in (0, 1):
            raise ArgumentError(f"{name}: axis must be 0 or 1, got {brief(axis)}")
        if a.size != math.prod(sizes) or target.size != a.size:
            raise ShapeError(f"{name}: {sizes} do not make up a {a.shape} and b {target.shape}")
        runs = reshape(a, sizes if axis == 1 else (a_col, a_row, a_len))
        target[:] = reshape(transpose(runs, (1, 0, 2)), target.shape)
        return target
