"""Ops along one axis: cumulative sums and products, sorting, top-k, gathers with one index per element."""

from __future__ import annotations

from typing import Any

from neonlike.backends.family import Family
from neonlike.optree import along
from neonlike.optree.forms import owner, recalled
from neonlike.optree.node import expression


@owner
class AlongFamily(Family):
    """``cumsum``, ``sort``, ``topk`` and similar: lazy, on tensors and expressions, or computed into ``out``.

    With ``axis=None`` they work on all elements in C order, as a column (n, 1).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.sort(be.array([[2., 1.]])).tolist()
    [[1.0, 2.0]]
    """

    @recalled
    def cumsum(self, a: Any, axis: int | None = None, reverse: bool = False, out: Any = None) -> Any:
        """Cumulative sums of ``a`` along ``axis``; differentiable.

        Sums are accumulated in float64, or int64 for integers, regardless of the dtype: each has the error of one
        rounding.

        Parameters
        ----------
        a : tensor, expression or array
        axis : int or None
        reverse : bool
            Sum from each element to the end instead.
        out : tensor, optional
            Receives the result at once.

        Raises
        ------
        ShapeError
            If the axis does not exist.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend('cpu')
        >>> be.cumsum(be.array([[1., 2., 3.]]), axis=1).asnumpyarray().tolist()
        [[1.0, 3.0, 6.0]]
        """
        return self._finish(along.cumsum(expression("cumsum", a, self), axis, reverse), out)

    @recalled
    def cumprod(self, a: Any, axis: int | None = None, reverse: bool = False, out: Any = None) -> Any:
        """Cumulative products of ``a`` along ``axis``; otherwise as :meth:`cumsum`.

        Parameters
        ----------
        a, axis, reverse, out
            As in :meth:`cumsum`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.cumprod(be.array([[1., 2., 3.]]), axis=1, reverse=True).tolist()
        [[6.0, 6.0, 3.0]]
        """
        return self._finish(along.cumprod(expression("cumprod", a, self), axis, reverse), out)

    @recalled
    def sort(self, a: Any, axis: int | None = -1, descending: bool = False, out: Any = None) -> Any:
        """Sort ``a`` along ``axis``; nan comes last, also in descending order. Differentiable.

        Parameters
        ----------
        a : tensor, expression or array
        axis : int or None
            None: all elements in C order, as a column (n, 1).
        descending : bool
            Largest first.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.sort(be.array([[2., 3., 1.]]), descending=True).tolist()
        [[3.0, 2.0, 1.0]]
        """
        return self._finish(along.sort(expression("sort", a, self), axis, descending), out)

    @recalled
    def argsort(self, a: Any, axis: int | None = -1, descending: bool = False, out: Any = None) -> Any:
        """int64 positions along ``axis`` in the order of the values of ``a``: stable, nan last.

        Parameters
        ----------
        a, axis, descending, out
            As in :meth:`sort`; ``out`` must hold integers.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.argsort(be.array([[2., 3., 1.]])).tolist()
        [[2, 0, 1]]
        """
        return self._finish(along.argsort(expression("argsort", a, self), axis, descending), out)

    def topk(self, a: Any, k: int, axis: int | None = -1, largest: bool = True) -> tuple[Any, Any]:
        """The ``k`` largest values of ``a`` along ``axis``, largest first, and their int64 positions.

        Parameters
        ----------
        a : tensor, expression or array
        k : int
            Number of values per line, at most the length of the axis.
        axis : int or None
            None: among all elements in C order.
        largest : bool
            False: the ``k`` smallest, smallest first. Among equal values the first wins; nan comes last.

        Returns
        -------
        values, positions : expressions with size ``k`` along ``axis``
            ``be.assign_many([(v, values), (p, positions)])`` computes both from one sort. Values are differentiable.

        Raises
        ------
        ShapeError
            If there are fewer values than ``k``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> values, positions = be.topk(be.array([[2., 3., 1.]]), 2)
        >>> values.tolist(), positions.tolist()
        ([[3.0, 2.0]], [[1, 0]])
        """
        return along.topk(expression("topk", a, self), k, axis, largest)

    @recalled
    def take_along_axis(self, a: Any, indices: Any, axis: int | None = -1, out: Any = None) -> Any:
        """Gather along ``axis``: ``out[.., j, ..] = a[.., indices[.., j, ..], ..]``; differentiable.

        Parameters
        ----------
        a : tensor, expression or array
        indices : integer tensor, expression or array
            The shape of ``a`` except for ``axis``, with broadcasting along the other axes; negative ones count from the
            end.
        axis : int or None
            None: along all elements in C order, as a column (n, 1).
        out : tensor, optional
            Receives the result at once.

        Raises
        ------
        ShapeError
            If the sizes do not fit.
        IndexRangeError
            If an index is out of range: at once for host indices, when computed for tensors.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> rows = be.array([[1., 2.], [3., 4.]])
        >>> be.take_along_axis(rows, be.array([[1], [0]], dtype="int32"), axis=1).tolist()
        [[2.0], [3.0]]
        """
        return self._finish(along.take_along(expression("take_along_axis", a, self), indices, axis), out)
