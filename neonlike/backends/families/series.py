"""Tensors of given values: a number everywhere, evenly spaced numbers, the identity."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from neonlike.backends.families.creation import CreationFamily
from neonlike.backends.families.operands import as_numbers, number
from neonlike.errors import ArgumentError
from neonlike.optree.arrange import whole_number


class SeriesFamily(CreationFamily):
    """``full``, ``arange``, ``linspace`` and ``eye``, with NumPy's arguments.

    As in everything that makes tensors, the dtype is the backend's unless given, and n numbers are a column (n, 1),
    since a tensor has at least two dimensions: ``be.arange(5).T`` is a row.
    """

    def full(self, shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
        """New tensor of ``shape`` (int or sequence; one dimension becomes (n, 1)) that holds ``fill_value`` everywhere.

        Raises
        ------
        DTypeError
            If ``fill_value`` is no number.
        """
        value = _number("full", "fill_value", fill_value)
        return self._new(shape, dtype, name, True).fill(value)

    def full_like(self, other: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Any:
        """New tensor shaped like ``other`` (tensor or array) and of its dtype unless given, else as :meth:`full`."""
        shape, own = self._like("full_like", other)
        return self.full(shape, fill_value, own if dtype is None else dtype, name)

    def arange(self, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
        """Numbers from ``start`` on, ``step`` apart, as long as they are below ``stop``: a column (n, 1).

        With one number, those from 0 to below it. The dtype is the backend's, also for whole numbers; for indices ask
        for ``dtype=np.int32``. Fractions in a tensor of integers are rounded, as in every assignment.

        Raises
        ------
        ArgumentError
            If the step is 0, or a number is not finite.
        DTypeError
            If one of them is no number.

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
        """``num`` evenly spaced numbers from ``start`` to ``stop``, which is the last one if ``endpoint``: (num, 1).

        Raises
        ------
        ArgumentError
            If ``num`` is below 0.
        DTypeError
            If ``start`` or ``stop`` is no number, or ``num`` no whole one.
        """
        low, high = as_numbers("linspace", start=start, stop=stop)
        count = whole_number("linspace", "num", num)
        if count < 0:
            raise ArgumentError(f"linspace: num must be 0 or more, got {num}")
        made = self._new((count, 1), dtype, name, True)
        with np.errstate(all="ignore"):
            return made.set(np.linspace(low, high, count, bool(endpoint)).reshape(-1, 1))

    def eye(self, N: int, M: int | None = None, k: int = 0, dtype: Any = None, name: str | None = None) -> Any:
        """Ones on the diagonal ``k`` (0 the main one, 1 that above it), zeros elsewhere: (N, M), M being N if None.

        Raises
        ------
        DTypeError
            If one of them is no whole number.
        ShapeError
            If a size is negative.
        """
        rows = whole_number("eye", "N", N)
        columns = rows if M is None else whole_number("eye", "M", M)
        made = self._new((rows, columns), dtype, name, True)
        return made.set(np.eye(rows, columns, max(-rows, min(columns, whole_number("eye", "k", k)))))


def _steps(low: float, high: float, apart: float) -> float:
    """How many steps of ``apart`` lead from ``low`` to ``high``."""
    steps = (high - low) / apart
    if steps >= 2**62:
        raise ArgumentError(f"arange: {steps:g} numbers from {low} to {high} are too many for a tensor")
    return steps


def _number(operation: str, name: str, value: Any) -> int | float:
    """A whole number as an int, another as a float."""
    return operator.index(value) if isinstance(value, (int, np.integer)) else number(operation, name, value)
