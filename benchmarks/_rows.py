"""A row of the benchmarks of compound primitives: one layer, minibatch and direction, ours beside PyTorch's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from _cases import Result, times
from _terms import OURS


@dataclass
class Row:
    """One layer, minibatch and direction, with what was found about every contender."""

    layer: Any
    N: int
    direction: str
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def ours(self) -> Result | None:
        """Our result; None if it was not measured."""
        found = self.results.get(OURS)
        return found if found is not None and found.median is not None else None

    @property
    def best(self) -> Result | None:
        """The fastest of PyTorch's layouts; None if none was measured."""
        measured = [r for n, r in self.results.items() if n.startswith("torch") and r.median is not None]
        return min(measured, key=lambda result: result.median or 0.0, default=None)

    @property
    def ratio(self) -> float | None:
        """PyTorch's faster time divided by ours."""
        return times(self.ours, self.best)


def rate(result: Result | None) -> float | None:
    """GFLOP/s where operations count, else GB/s."""
    if result is None:
        return None
    return result.gb_per_s if result.gflop_per_s is None else result.gflop_per_s


def geometric_mean(rows: Sequence[Row]) -> tuple[float, int] | None:
    """Geometric mean of the ratios and how many there are; None without any."""
    ratios = [row.ratio for row in rows if row.ratio]
    return (statistics.geometric_mean(ratios), len(ratios)) if ratios else None
