"""Tensors with predefined values: constants, evenly spaced numbers, the identity."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from neonlike.backends.tensors.creation import CreationFamily
from neonlike.backends.tensors.operands import as_numbers, number
from neonlike.errors import ArgumentError
from neonlike.optree.arrange import whole_number


class SeriesFamily(CreationFamily):
    """``full``, ``arange``, ``linspace`` and ``eye``, with NumPy's arguments.

    As in all creation methods, the dtype defaults to the backend's, and n numbers are a column (n, 1), because a tensor
    has at least two dimensions: ``be.arange(5).T`` is a row.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.arange(3).T.tolist()
    [[0.0, 1.0, 2.0]]
    """

    def full(self, shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
        """New tensor of ``shape`` (int or sequence; one dimension becomes (n, 1)) filled with ``fill_value``.

        Parameters
        ----------
        shape : int or sequence of int
            One dimension becomes (n, 1).
        fill_value : number
        dtype : dtype, optional
            None: the backend's default.
        name : str, optional
            Shown by ``repr`` and in reports.

        Raises
        ------
        DTypeError
            If ``fill_value`` is not a number.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.full((1, 3), 7).tolist()
        [[7.0, 7.0, 7.0]]
        """
        value = _number("full", "fill_value", fill_value)
        return self._new(shape, dtype, name, True).fill(value)

    def full_like(self, other: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
        """New tensor in the shape of ``other`` (tensor or array), by default of its dtype; see :meth:`full`.

        Parameters
        ----------
        other : tensor, expression or array
        fill_value : number
        dtype : dtype, optional
            None: the dtype of ``other``.
        name : str, optional

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.full_like(be.zeros((1, 2), dtype="int8"), 3).tolist()
        [[3, 3]]
        """
        shape, own = self._like("full_like", other)
        return self.full(shape, fill_value, own if dtype is None else dtype, name)

    def arange(self, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
        """Numbers from ``start`` in steps of ``step`` to below ``stop``, as a column (n, 1).

        With a single number, from 0 to below it. The dtype is the backend's even for whole numbers; for indices pass
        ``dtype=np.int32``. Fractions in a tensor of integers are rounded, as in every assignment.

        Parameters
        ----------
        start : number
            First value; the bound, if ``stop`` is None.
        stop : number, optional
            Bound, exclusive.
        step : number
            Distance of neighbours, not 0; below 0 it counts down.
        dtype : dtype, optional
            None: the backend's default.
        name : str, optional

        Raises
        ------
        ArgumentError
            If the step is 0, or a number is not finite.
        DTypeError
            If an argument is not a number.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend('cpu')
        >>> be.arange(1, 4).get().tolist()
        [[1.0], [2.0], [3.0]]
        """
        first, last = (0, start) if stop is None else (start, stop)
        values = [_number("arange", n, v) for n, v in (("start", first), ("stop", last), ("step", step))]
        if not all(v == v and abs(v) != math.inf for v in values) or not values[2]:
            raise ArgumentError(f"arange: needs finite numbers and a step other than 0, got {first}, {last}, {step}")
        if max(map(abs, values)) >= 2**62:
            raise ArgumentError(f"arange: needs numbers below 2**62, got {first}, {last}, {step}")
        low, high, apart = values
        whole = all(isinstance(v, int) for v in values)
        count = max(0, math.ceil(_steps(low, high, apart)) if not whole else -int((low - high) // apart))
        made = self._new((count, 1), dtype, name, True)
        places: Any = np.arange(count, dtype=np.int64 if whole else np.float64)
        return made.set((low + places * apart).reshape(-1, 1))

    def linspace(
        self,
        start: float,
        stop: float,
        num: int = 50,
        endpoint: bool = True,
        dtype: Any = None,
        name: str | None = None,
    ) -> Any:
        """``num`` evenly spaced numbers from ``start`` to ``stop``, the latter included if ``endpoint``: (num, 1).

        Parameters
        ----------
        start, stop : number
            First and last value.
        num : int
            How many values.
        endpoint : bool
            False: ``stop`` is not among them.
        dtype : dtype, optional
            None: the backend's default.
        name : str, optional

        Raises
        ------
        ArgumentError
            If ``num`` is negative.
        DTypeError
            If ``start`` or ``stop`` is not a number, or ``num`` not a whole number.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.linspace(0, 1, 5).T.tolist()
        [[0.0, 0.25, 0.5, 0.75, 1.0]]
        """
        low, high = as_numbers("linspace", start=start, stop=stop)
        count = whole_number("linspace", "num", num)
        if count < 0:
            raise ArgumentError(f"linspace: num must be 0 or more, got {num}")
        made = self._new((count, 1), dtype, name, True)
        with np.errstate(all="ignore"):
            return made.set(np.linspace(low, high, count, bool(endpoint)).reshape(-1, 1))

    def eye(self, N: int, M: int | None = None, k: int = 0, dtype: Any = None, name: str | None = None) -> Any:
        """Ones on the diagonal ``k`` (0: main, 1: above it), zeros elsewhere: (N, M), with M = N for None.

        Parameters
        ----------
        N, M : int
            Rows and columns; M is N by default.
        k : int
            Offset of the diagonal, above the main one if positive.
        dtype : dtype, optional
            None: the backend's default.
        name : str, optional

        Raises
        ------
        DTypeError
            If an argument is not a whole number.
        ShapeError
            If a size is negative.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.eye(2, 3, k=1).tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        rows = whole_number("eye", "N", N)
        columns = rows if M is None else whole_number("eye", "M", M)
        made = self._new((rows, columns), dtype, name, True)
        return made.set(np.eye(rows, columns, max(-rows, min(columns, whole_number("eye", "k", k)))))


def _steps(low: float, high: float, apart: float) -> float:
    """Number of steps of ``apart`` from ``low`` to ``high``."""
    steps = (high - low) / apart
    if steps >= 2**62:
        raise ArgumentError(f"arange: {steps:g} numbers from {low} to {high} are too many for a tensor")
    return steps


def _number(operation: str, name: str, value: Any) -> int | float:
    """Convert a whole number to int, and any other to float."""
    return operator.index(value) if isinstance(value, (int, np.integer)) else number(operation, name, value)
