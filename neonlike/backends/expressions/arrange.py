"""Joining, cutting and rearranging of tensors and expressions: lazy, differentiable, and views where nothing moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.checks import brief
from neonlike.errors import OutOfMemory, ShapeError
from neonlike.optree import arrange, moves
from neonlike.optree import einsum as sums
from neonlike.optree.forms import owner, recalled
from neonlike.optree.node import expression


@owner
class ArrangeFamily(Family):
    """``concatenate``, ``stack``, ``split`` and related methods, with NumPy's arguments.

    Results are lazy, or computed into ``out``. Parts and other shapes of tensors are views of their memory, as slices
    are; those of expressions are expressions. Nothing has fewer than two axes.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.flip(be.array([[1., 2.]])).tolist()
    [[2.0, 1.0]]
    """

    @recalled
    def concatenate(self, parts: Any, axis: int | None = 0, out: Any = None) -> Any:
        """Join ``parts`` along ``axis``; assigned to a tensor, each part is computed directly into its place.

        Parameters
        ----------
        parts : list or tuple of tensors, expressions and 2-D arrays
            Equal sizes except for ``axis``. The result has the dtype of arithmetic on them.
        axis : int or None
            None: the elements of each in C order, as a column (n, 1).
        out : tensor, optional
            May share memory with the parts.

        Raises
        ------
        ShapeError
            If sizes do not fit, or a part is a number.
        ArgumentError
            If there are no parts.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend('cpu')
        >>> a = be.array([[1., 2.], [3., 4.]])
        >>> be.concatenate([a, a * 10], axis=1).asnumpyarray().tolist()
        [[1.0, 2.0, 10.0, 20.0], [3.0, 4.0, 30.0, 40.0]]
        """
        return self._finish(arrange.concat(parts, axis, self), out)

    @recalled
    def stack(self, parts: Any, axis: int = 0, out: Any = None) -> Any:
        """Join ``parts``, all of one shape, along a new axis at ``axis`` of the result; see :meth:`concatenate`.

        Parameters
        ----------
        parts : list or tuple of tensors, expressions and arrays
            All of one shape.
        axis : int
            Position of the new axis in the result.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> a = be.array([[1., 2.]])
        >>> be.stack([a, a * 10]).tolist()
        [[[1.0, 2.0]], [[10.0, 20.0]]]
        """
        return self._finish(arrange.stack(parts, axis, self), out)

    def split(self, a: Any, where: Any, axis: int = 0) -> list[Any]:
        """Split ``a`` along ``axis``: views of a tensor, lazy windows of an expression.

        Parameters
        ----------
        a : tensor, expression or array
        where : int or sequence of int
            Number of equal parts, or the cut positions: ``[2, 5]`` gives ``a[:2]``, ``a[2:5]`` and ``a[5:]``.
        axis : int
            The axis to be cut, also counted from the end.

        Raises
        ------
        ShapeError
            If the axis cannot be cut into equal parts.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> left, right = be.split(be.array([[1., 2., 3.]]), [1], axis=1)
        >>> left.tolist(), right.tolist()
        ([[1.0]], [[2.0, 3.0]])
        """
        return arrange.split(expression("split", a, self), where, axis)

    def flip(self, a: Any, axis: Any = None, out: Any = None) -> Any:
        """Reverse the order of ``a`` along ``axis`` (int, tuple, or None for all axes).

        Parameters
        ----------
        a : tensor, expression or array
        axis : int, tuple of int, or None
            None: all axes.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.flip(be.array([[1., 2.], [3., 4.]]), axis=1).tolist()
        [[2.0, 1.0], [4.0, 3.0]]
        """
        return self._finish(arrange.flip(expression("flip", a, self), axis), out)

    @recalled
    def roll(self, a: Any, shift: Any, axis: Any = None, out: Any = None) -> Any:
        """Shift ``a`` cyclically by ``shift`` along ``axis``.

        Parameters
        ----------
        a : tensor, expression or array
        shift : int or tuple of int
        axis : int or tuple of int, optional
            As many as shifts, or one of either for all of the other. Without it, elements are shifted in C order.
        out : tensor, optional
            Receives the result at once.

        Raises
        ------
        ShapeError
            If an axis does not exist, or the numbers of axes and shifts differ.
        DTypeError
            If a shift is not an integer.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.roll(be.array([[1., 2., 3.]]), 1, axis=1).tolist()
        [[3.0, 1.0, 2.0]]
        """
        return self._finish(arrange.roll(expression("roll", a, self), shift, axis), out)

    @recalled
    def tile(self, a: Any, counts: Any, out: Any = None) -> Any:
        """Repeat ``a`` ``counts[i]`` times along each axis; fewer counts than axes apply to the last axes.

        Parameters
        ----------
        a : tensor, expression or array
        counts : int or sequence of int
            Repetitions along each axis, 0 or more.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.tile(be.array([[1., 2.]]), (2, 2)).tolist()
        [[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
        """
        return self._finish(arrange.tile(expression("tile", a, self), counts), out)

    @recalled
    def repeat(self, a: Any, counts: Any, axis: int | None = None, out: Any = None) -> Any:
        """Repeat each slice of ``a`` along ``axis``: one count for all, or one per slice.

        Without an axis, each element is repeated in C order: the result is a vector (n, 1), as ``a.reshape(-1)`` is.

        Parameters
        ----------
        a : tensor, expression or array
        counts : int or sequence of int
            Repetitions of every slice, or of each of them.
        axis : int, optional
            None: elements in C order.
        out : tensor, optional
            Receives the result at once.

        Raises
        ------
        ShapeError
            If a count is negative, or there is neither one count nor one per slice.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.repeat(be.array([[1., 2.]]), [1, 2], axis=1).tolist()
        [[1.0, 2.0, 2.0]]
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

    @recalled
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
        """Pad ``a`` with ``value``, or with its own elements.

        Parameters
        ----------
        a : tensor, expression or array
        widths : int, pair (before, after) for all axes, or such a pair for each axis
        value : number, or pairs as ``widths`` are
        out : tensor, optional
        mode : "constant", "edge", "reflect", "symmetric" or "wrap"
            As in NumPy; only "constant" uses a value. Edge repeats the outermost element, reflect mirrors at its
            center, symmetric at its outer side, wrap continues from the other end.
        constant_values : number or pairs, optional
            NumPy's name of ``value``.

        Raises
        ------
        ShapeError
            For negative widths, widths or values that do not fit the axes, and modes without an element to repeat.
        DTypeError
            If a value is not a number.
        ArgumentError
            For an unknown mode.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.pad(be.array([[1., 2.]]), ((0, 1), (1, 0))).tolist()
        [[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]
        >>> be.pad(be.array([[1., 2.]]), ((0, 0), (0, 2)), mode="edge").tolist()
        [[1.0, 2.0, 2.0, 2.0]]
        """
        value = value if constant_values is None else constant_values
        return self._finish(arrange.pad(expression("pad", a, self), widths, value, mode), out)

    def expand_dims(self, a: Any, axis: Any) -> Any:
        """Insert a new axis of size 1 at ``axis`` of the result (int, or tuple for several); a view of a tensor.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.expand_dims(be.ones((2, 3)), 1).shape
        (2, 1, 3)
        """
        return arrange.expand_dims(expression("expand_dims", a, self), axis)

    def squeeze(self, a: Any, axis: Any = None) -> Any:
        """Remove the axes ``axis`` of size 1 (None: all), as long as two axes remain; a view of a tensor.

        Raises
        ------
        ShapeError
            If a given axis has another size, or fewer than two axes would remain.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.squeeze(be.ones((2, 1, 3))).shape
        (2, 3)
        """
        return arrange.squeeze(expression("squeeze", a, self), axis)

    @recalled
    def einsum(self, subscripts: str, *operands: Any, out: Any = None) -> Any:
        """Sum of products by subscripts, as in NumPy: ``be.einsum("ij,jk->ik", a, b)`` is ``be.dot(a, b)``.

        Lazy and differentiable. Operands are contracted from left to right: by matrix products, or by one kernel of
        products and sums if an axis is shared and kept (unless those are large).

        Parameters
        ----------
        subscripts : str
            One letter per axis of each operand, with the result's after ``->`` (by default, letters that occur once, in
            alphabetical order). Repeated letters of one operand take its diagonal. ``...`` stands for the unnamed axes,
            which are the same in each operand that has it. Axes with the same letter have equal sizes: 1 is not
            broadcast.
        operands : tensors, expressions or arrays
            One letter matches a vector (n, 1) or (1, n), no letter a (1, 1).
        out : tensor, optional

        Returns
        -------
        expression
            An expression of at least two axes: a vector is (n, 1), a number (1, 1).

        Raises
        ------
        ArgumentError
            If the subscripts are malformed, or name another number of operands.
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
