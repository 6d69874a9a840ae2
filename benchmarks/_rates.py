"""How the benchmarks of compound primitives show what they found: rates, ratios to PyTorch, geometric means."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import _ratio_picture
import numpy as np
from _cases import Record, Result
from _report import Form
from _rows import Row, geometric_mean, rate
from _terms import COPIES, OURS, met, time_text

SGEMM_SIZE = 2048
TITLE = 46
"""Characters of a line before its figures."""


class Rates(Form):
    """The rows of a run in order, and how they are shown.

    Parameters
    ----------
    targets : dict
        Direction -> least geometric mean of the ratios, or None.
    compute : bool
        Rates are GFLOP/s and shares are SGEMM's; otherwise GB/s and a memory copy's.
    """

    baseline = OURS

    def __init__(self, targets: dict[str, float | None], compute: bool = True) -> None:
        self.targets, self.compute = targets, compute
        self.unit = "GFLOP/s" if compute else "GB/s"
        self.rows: list[Row] = []
        self.sgemm_samples: list[float] = []

    def add(self, layer: Any, N: int, direction: str) -> None:
        """Begin the row that the next results belong to."""
        self.rows.append(Row(layer, N, direction))

    # SGEMM ------------------------------------------------------------------------------------------------------

    def sample_sgemm(self) -> None:
        """Measure NumPy's product of two square float32 matrices: the best of three, after one that does not count."""
        a, b, out = (np.ones((SGEMM_SIZE, SGEMM_SIZE), np.float32) for _ in range(3))
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            np.matmul(a, b, out)
            seconds.append(time.perf_counter() - start)
        self.sgemm_samples.append(2 * SGEMM_SIZE**3 / min(seconds[1:]) / 1e9)

    @property
    def sgemm(self) -> float:
        """GFLOP/s, the median of the samples in this run."""
        return statistics.median(self.sgemm_samples) if self.sgemm_samples else float("nan")

    def share(self, row: Row) -> float | None:
        """Our rate as a share of SGEMM's, or of a memory copy's."""
        if row.ours is None:
            return None
        if not self.compute:
            return row.ours.of_memory_copy
        return (rate(row.ours) or 0.0) / self.sgemm if self.sgemm_samples else None

    # The terminal -----------------------------------------------------------------------------------------------

    def title(self, size: int) -> str:
        """Name of a minibatch: the heading of its table."""
        return f"N = {size}" if size else "Without minibatch"

    def heading(self, size: int) -> str:
        """Heading of the lines of a minibatch, with the columns."""
        columns = [f"{'ours':>10}{self.unit:>9}{'error':>8}{'of SGEMM' if self.compute else 'of copy':>10}"]
        columns.append(f"{'torch/ours':>12}  torch's time and {self.unit} by layout")
        return f"{self.title(size):<{TITLE}}" + "".join(columns)

    def case(self, results: list[Result]) -> str:
        """One line, and another for each contender that could not be measured."""
        row = self.rows[-1]
        row.results = {r.contender: r for r in results if r.contender not in COPIES}
        ours = row.ours
        cells = [
            f"{time_text(ours.median) if ours and ours.median is not None else '-':>10}",
            f"{_text(rate(ours), '.1f'):>9}",
            f"{_text(ours.error if ours else None, '.0e'):>8}",
            f"{_text(self.share(row), '.0%'):>10}",
            f"{_text(row.ratio, '.2f', 'x'):>12}",
        ]
        peers = [
            f"{name.removeprefix('torch ')} {time_text(r.median)} {_text(rate(r), '.1f')}"
            for name, r in row.results.items()
            if name != OURS and r.median is not None
        ]
        names = f"{row.layer.title}, {row.direction}"
        lines = [f"{names[: TITLE - 1]:<{TITLE}}" + "".join(cells) + "  " + ", ".join(peers)]
        lines += [f"  {n}: {r.note or 'not measured'}" for n, r in row.results.items() if r.median is None]
        return "\n".join(lines)

    # RESULTS.md -------------------------------------------------------------------------------------------------

    def table(self, record: Record, size: int) -> list[str]:
        """A line a layer: a cell for each direction."""
        here = [row for row in self.rows if row.N == size]
        directions = [d for d in self.targets if any(row.direction == d for row in here)]
        by_layer: dict[Any, dict[str, Row]] = {}
        for row in here:
            by_layer.setdefault(row.layer, {})[row.direction] = row
        share = "of SGEMM" if self.compute else "of a memory copy"
        lines = [
            f"Ours and PyTorch's faster layout in {self.unit}; its time divided by ours; ours as a share {share}.",
            "",
            "| layer | | times | " + " | ".join(directions) + " |",
            "|---|---|---|" + "---|" * len(directions),
        ]
        for layer, rows in by_layer.items():
            cells = [self._cell(rows.get(direction)) for direction in directions]
            lines.append(f"| {layer.title} | {layer.text} | {layer.count} | " + " | ".join(cells) + " |")
        return lines

    def _cell(self, row: Row | None) -> str:
        if row is None:
            return ""
        if row.ours is None:
            return row.results[OURS].note.partition(":")[0] if OURS in row.results else "-"
        parts = [f"{_text(rate(row.ours), '.1f')} / {_text(rate(row.best), '.1f')}", _text(row.ratio, ".2f", "x")]
        return "; ".join([*parts, _text(self.share(row), ".0%")])

    def draw(self, record: Record, path: Path) -> None:
        """Draw the ratios of all layers."""
        _ratio_picture.draw(self.rows, self.targets, self.title, record, path)

    # Verdicts ---------------------------------------------------------------------------------------------------

    def summary(self, results: Sequence[Result] = ()) -> list[str]:
        """Geometric means by direction with their targets, the same by minibatch, and times of whole networks."""
        lines = [f"SGEMM of NumPy at {SGEMM_SIZE}: {self.sgemm:.1f} GFLOP/s"] if self.sgemm_samples else []
        for direction, target in self.targets.items():
            rows = [row for row in self.rows if row.direction == direction]
            lines += self._mean(direction, rows, target)
        return lines + self._networks()

    def _mean(self, direction: str, rows: Sequence[Row], target: float | None) -> list[str]:
        found = geometric_mean(rows)
        if found is None:
            return [f"{direction}: nothing to compare"] if rows else []
        mean, count = found
        by_batch = []
        for N in sorted({row.N for row in rows}):
            part = geometric_mean([row for row in rows if row.N == N])
            by_batch += [f"{part[0]:.2f} {f'at {self.title(N)}' if N else 'without minibatch'}"] if part else []
        worst = min((row for row in rows if row.ratio is not None), key=lambda row: row.ratio or 0.0)
        line = f"{direction}, geometric mean over {count}: PyTorch takes {mean:.2f} times as long"
        line += f" ({', '.join(by_batch)}; lowest {worst.ratio:.2f}, {worst.layer.title}"
        missing = f", {len(rows) - count} not measured" if count < len(rows) else ""
        return [line + missing + (f"; target {target:g}): {met(mean >= target)}" if target else ")")]

    def _networks(self) -> list[str]:
        """What all layers of a network take together, each as often as it occurs."""
        lines = []
        for N in sorted({row.N for row in self.rows}):
            for network in dict.fromkeys(row.layer.network for row in self.rows if row.N == N):
                parts = []
                for direction in self.targets:
                    rows = [
                        r for r in self.rows if (r.N, r.layer.network, r.direction) == (N, network, direction)
                    ]
                    parts += _total(direction, rows)
                if parts:
                    where = f"{network}, {self.title(N)}" if N else network
                    lines.append(f"{where}, ours / torch: {', '.join(parts)}")
        return lines


def _total(direction: str, rows: Iterable[Row]) -> list[str]:
    """``fprop 12.3 / 14.5 ms``, of the layers that both were measured on."""
    ours = theirs = 0.0
    for row in rows:
        if row.ours is not None and row.best is not None:
            ours += row.layer.count * (row.ours.median or 0.0)
            theirs += row.layer.count * (row.best.median or 0.0)
    return [f"{direction} {time_text(ours)} / {time_text(theirs)}"] if ours else []


def _text(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
