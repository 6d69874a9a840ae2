"""Along one axis: running sums and products, sorting, the largest values, picking by indices of each line's own."""

from __future__ import annotations

from typing import Any

from neonlike.backends.families.base import Family
from neonlike.optree import along
from neonlike.optree.node import expression


class AlongFamily(Family):
    """``cumsum``, ``sort``, ``topk`` and the like: lazy, of tensors and expressions, into ``out`` if it is given.

    With ``axis=None`` they work on all elements in C order, as a column (n, 1).
    """

    def cumsum(self, a: Any, axis: int | None = None, reverse: bool = False, out: Any = None) -> Any:
        """Sums of all elements of ``a`` up to each along ``axis``, itself included; differentiable.

        Added up in float64, or int64 for integers, whatever the dtype: the error of each sum is one rounding.

        Parameters
        ----------
        axis : int or None
        reverse : bool
            Sum all from each element to the end instead.

        Raises
        ------
        ShapeError
            If there is no such axis.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend('cpu')
        >>> be.cumsum(be.array([[1., 2., 3.]]), axis=1).asnumpyarray().tolist()
        [[1.0, 3.0, 6.0]]
        """
        return self._finish(along.cumsum(expression("cumsum", a, self), axis, reverse), out)

    def cumprod(self, a: Any, axis: int | None = None, reverse: bool = False, out: Any = None) -> Any:
        """Products of all elements of ``a`` up to each along ``axis``; as :meth:`cumsum`."""
        return self._finish(along.cumprod(expression("cumprod", a, self), axis, reverse), out)

    def sort(self, a: Any, axis: int | None = -1, descending: bool = False, out: Any = None) -> Any:
        """``a`` in order along ``axis``; nan comes last, also in descending order. Differentiable."""
        return self._finish(along.sort(expression("sort", a, self), axis, descending), out)

    def argsort(self, a: Any, axis: int | None = -1, descending: bool = False, out: Any = None) -> Any:
        """int64 positions along ``axis`` in the order of the values of ``a``: equal ones as they come, nan last."""
        return self._finish(along.argsort(expression("argsort", a, self), axis, descending), out)

    def topk(self, a: Any, k: int, axis: int | None = -1, largest: bool = True) -> tuple[Any, Any]:
        """The ``k`` largest values of ``a`` along ``axis``, the largest first, and their int64 positions.

        Parameters
        ----------
        k : int
        largest : bool
            False: the ``k`` smallest, the smallest first. Of equal values the first counts; nan comes last.

        Returns
        -------
        values, positions : expressions with size ``k`` along ``axis``
            ``be.assign_many([(v, values), (p, positions)])`` computes both from one sort. Values are differentiable.

        Raises
        ------
        ShapeError
            If there are fewer values than ``k``.
        """
        return along.topk(expression("topk", a, self), k, axis, largest)

    def take_along_axis(self, a: Any, indices: Any, axis: int | None = -1, out: Any = None) -> Any:
        """``out[.., j, ..] = a[.., indices[.., j, ..], ..]``: picks what ``argsort`` found, say; differentiable.

        Parameters
        ----------
        indices : integer tensor, expression or array
            Of the shape of ``a`` but for ``axis``, or broadcast with it along the others; negative ones count from the
            end.

        Raises
        ------
        ShapeError
            If the sizes do not fit.
        IndexRangeError
            If an index is out of range: at once for host indices, when computed for tensors.
        """
        return self._finish(along.take_along(expression("take_along_axis", a, self), indices, axis), out)
