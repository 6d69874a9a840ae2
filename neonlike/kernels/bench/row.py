"""Counts of one kernel in bench mode."""

from __future__ import annotations

from collections import deque

from neonlike.optree.shapes import Shape

SAMPLES = 1000
"""Number of latest calls in the median of a row."""


class Row:
    """All calls of one kernel on one set of shapes.

    Attributes
    ----------
    name : str
        Name of a primitive, or expression of a stage.
    inside : str
        The surrounding primitive, "" if none.
    kind : "loop" or "product"
    dtype : str
        Dtype of the result.
    shapes : tuple of shapes
        Operands, then results.
    calls, seconds, nbytes, flops : totals
    """

    __slots__ = ("calls", "dtype", "flops", "inside", "kind", "name", "nbytes", "samples", "seconds", "shapes")

    def __init__(self, name: str, inside: str, kind: str, dtype: str, shapes: tuple[Shape, ...]) -> None:
        self.name, self.inside, self.kind, self.dtype, self.shapes = name, inside, kind, dtype, shapes
        self.calls = self.nbytes = self.flops = 0
        self.seconds = 0.0
        self.samples: deque[float] = deque(maxlen=SAMPLES)

    @property
    def median(self) -> float:
        """Median seconds per call."""
        from statistics import median

        return median(self.samples)

    def rate(self, total: int) -> float | None:
        """``total`` (bytes or flops of all calls) per call and median time, in 1e9 per second; None if unknown."""
        return total / self.calls / self.median / 1e9 if total and self.median else None
