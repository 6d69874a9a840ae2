"""Joining, cutting and rearranging tensors and expressions: lazy and differentiable, views where nothing moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.families.base import Family
from neonlike.checks import brief
from neonlike.errors import OutOfMemory, ShapeError
from neonlike.optree import arrange, moves
from neonlike.optree import einsum as sums
from neonlike.optree.node import expression


class ArrangeFamily(Family):
    """``concatenate``, ``stack``, ``split`` and what is made of them, with NumPy's arguments.

    Results are lazy, or computed into ``out``. Parts and other shapes of tensors are views of their memory, as
    slices are; those of expressions are expressions. Nothing has fewer than two axes.
    """

    def concatenate(self, parts: Any, axis: int | None = 0, out: Any = None) -> Any:
        """``parts`` one after the other along ``axis``; assigned to a tensor, each is computed straight into its place.

        Parameters
        ----------
        parts : list or tuple of tensors, expressions and 2-D arrays
            Of equal sizes but for ``axis``. The result has the dtype that arithmetic on them would give.
        axis : int or None
            None: the elements of each in C order, as a column (n, 1).
        out : tensor, optional
            May share memory with the parts.

        Raises
        ------
        ShapeError
            If sizes do not fit, or a part is a number.
        ArgumentError
            If there is no part.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend('cpu')
        >>> a = be.array([[1., 2.], [3., 4.]])
        >>> be.concatenate([a, a * 10], axis=1).asnumpyarray().tolist()
        [[1.0, 2.0, 10.0, 20.0], [3.0, 4.0, 30.0, 40.0]]
        """
        return self._finish(arrange.concat(parts, axis, self), out)

    def stack(self, parts: Any, axis: int = 0, out: Any = None) -> Any:
        """``parts``, all of one shape, along a new axis, which is ``axis`` of the result; see :meth:`concatenate`."""
        return self._finish(arrange.stack(parts, axis, self), out)

    def split(self, a: Any, where: Any, axis: int = 0) -> list[Any]:
        """Parts of ``a`` along ``axis``: views of a tensor, lazy windows of an expression.

        Parameters
        ----------
        where : int or sequence of int
            A number of equal parts, or the positions to cut at: ``[2, 5]`` gives ``a[:2]``, ``a[2:5]`` and ``a[5:]``.

        Raises
        ------
        ShapeError
            If the axis cannot be cut into equal parts.
        """
        return arrange.split(expression("split", a, self), where, axis)

    def flip(self, a: Any, axis: Any = None, out: Any = None) -> Any:
        """``a`` with the order along ``axis`` (int, tuple, or None for all axes) reversed."""
        return self._finish(arrange.flip(expression("flip", a, self), axis), out)

    def roll(self, a: Any, shift: Any, axis: Any = None, out: Any = None) -> Any:
        """``a`` moved on by ``shift`` along ``axis``; what leaves at one end comes back at the other.

        Parameters
        ----------
        shift : int or tuple of int
        axis : int or tuple of int, optional
            As many as shifts, or one of either for all of the other. Without it, the elements in C order are moved on.

        Raises
        ------
        ShapeError
            If an axis does not exist, or their number is not that of the shifts.
        DTypeError
            If a shift is no integer.
        """
        return self._finish(arrange.roll(expression("roll", a, self), shift, axis), out)

    def tile(self, a: Any, counts: Any, out: Any = None) -> Any:
        """``a`` as a whole ``counts[i]`` times along each axis; fewer counts than axes are for the last ones."""
        return self._finish(arrange.tile(expression("tile", a, self), counts), out)

    def repeat(self, a: Any, counts: Any, axis: int | None = None, out: Any = None) -> Any:
        """Each slice of ``a`` along ``axis`` so many times: one number for all, or one for each slice.

        Without an axis, each element, in C order: the result is a vector (n, 1), as ``a.reshape(-1)`` is.

        Raises
        ------
        ShapeError
            If a number is negative, or there are neither one nor as many as slices.
        """
        a, axis = arrange.in_line(expression("repeat", a, self), axis)
        axis = arrange.one_axis("repeat", axis, a.shape)
        given = np.atleast_1d(counts) if isinstance(counts, np.ndarray) else counts
        given = given if isinstance(given, (list, tuple, np.ndarray)) else [given]
        times = [arrange.whole_number("repeat", "each count", n) for n in given]
        size = a.shape[axis]
        if len(times) not in (1, size) or any(n < 0 for n in times):
            raise ShapeError(f"repeat: needs one count or {size} of them, none negative, got {brief(counts)}")
        try:
            positions = np.repeat(np.arange(size), times)
        except (MemoryError, OverflowError):
            raise OutOfMemory(f"repeat: no memory for slices repeated {brief(counts)} times; repeat fewer") from None
        return self._finish(moves.take(a, positions, axis), out)

    def pad(
        self,
        a: Any,
        widths: Any,
        value: Any = 0,
        out: Any = None,
        *,
        mode: str = "constant",
        constant_values: Any = None,
    ) -> Any:
        """``a`` with ``value`` around it, or with elements of its own.

        Parameters
        ----------
        widths : int, pair (before, after) for all axes, or such a pair for each axis
        value : number, or pairs as ``widths`` are
        out : tensor, optional
        constant_values : number or pairs, optional
            NumPy's name of ``value``.
        mode : "constant", "edge", "reflect", "symmetric" or "wrap"
            As NumPy's: all but the first go without a value. Edge repeats the outermost element, reflect mirrors at it,
            symmetric at its outer side, wrap goes on at the other end.

        Raises
        ------
        ShapeError
            On widths that are negative, where either does not fit the axes, and where there is nothing to repeat.
        DTypeError
            If a value is no number.
        ArgumentError
            On an unknown mode.
        """
        value = value if constant_values is None else constant_values
        return self._finish(arrange.pad(expression("pad", a, self), widths, value, mode), out)

    def expand_dims(self, a: Any, axis: Any) -> Any:
        """``a`` with a new axis of size 1, ``axis`` of the result (int, or tuple for several); a view of a tensor."""
        return arrange.expand_dims(expression("expand_dims", a, self), axis)

    def squeeze(self, a: Any, axis: Any = None) -> Any:
        """``a`` without the axes of size 1 that ``axis`` names (None: any), as long as two remain; a view of a tensor.

        Raises
        ------
        ShapeError
            If an axis named has another size, or fewer than two axes would remain.
        """
        return arrange.squeeze(expression("squeeze", a, self), axis)

    def einsum(self, subscripts: str, *operands: Any, out: Any = None) -> Any:
        """Sum of products by subscripts, NumPy's: ``be.einsum("ij,jk->ik", a, b)`` is ``be.dot(a, b)``.

        Lazy and differentiable. Operands are contracted from left to right: by matrix products, or by one kernel of
        products and sums where an axis is shared and kept (unless those are large).

        Parameters
        ----------
        subscripts : str
            A letter for each axis of each operand, the result's after ``->`` (without it, letters that occur once, in
            their order in the alphabet). Repeated letters of one operand take its diagonal. ``...`` stands for the axes
            not named, the same ones in each operand that has it. Axes of one letter have one size: 1 is not stretched.
        operands : tensors, expressions or arrays
            One letter fits a vector (n, 1) or (1, n), none a (1, 1).
        out : tensor, optional

        Returns
        -------
        expression
            Of at least two axes: a vector is (n, 1), a number (1, 1).

        Raises
        ------
        ArgumentError
            If the subscripts are not well formed, or name another number of operands.
        ShapeError
            If they do not fit the operands.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend('cpu')
        >>> a = be.array([[1., 2.], [3., 4.]])
        >>> be.einsum('ij,ij->i', a, a).asnumpyarray().tolist()
        [[5.0], [25.0]]
        """
        return self._finish(sums.einsum(subscripts, operands, self), out)
