"""The table of a network: time and rate of each layer and pass, and what all of them take together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from _network_calls import KINDS, PASSES

SUMS = {"forward": PASSES[:1], "backward": PASSES[1:], "both": PASSES}
"""Passes summed in each total: backward is the gradient of the data and that of the weights."""

COLUMNS = ("layer", "geometry", "times", *(column for name in PASSES for column in (f"{name} ms", "rate")))
TOTALS = ("kind", "layers", *(column for name in SUMS for column in (f"{name} ms", "rate")))
FIGURE, RATE = 8, 14
"""Widths of a time and of a rate with its unit."""


@dataclass(frozen=True)
class Figure:
    """One pass of a layer, from what the backend recorded.

    Attributes
    ----------
    seconds : float
        Of the median call.
    nbytes, flops : int
        Of one call.
    product : bool
        Its rate is in FLOP/s, as of all that multiplies matrices; else in bytes a second.
    """

    seconds: float
    nbytes: int
    flops: int
    product: bool

    @property
    def rate(self) -> str:
        """``81.3 GFLOP/s`` or ``40.1 GB/s``."""
        return _rate(self.flops if self.product else self.nbytes, self.seconds, "GFLOP/s" if self.product else "GB/s")


@dataclass(frozen=True)
class Line:
    """A layer of a network and the figures of its passes; ``layer.count`` says how often it occurs."""

    layer: Any
    figures: dict[str, Figure]

    def seconds(self, passes: Sequence[str] = PASSES) -> float:
        """Seconds of these passes, of all layers like this one."""
        return self.layer.count * sum(figure.seconds for name, figure in self.figures.items() if name in passes)

    def flops(self, passes: Sequence[str] = PASSES) -> int:
        """Operations of the matrix products, of all layers like this one."""
        figures = [figure for name, figure in self.figures.items() if name in passes and figure.product]
        return int(self.layer.count * sum(figure.flops for figure in figures))

    def cells(self) -> list[str]:
        """Cells of the columns."""
        found = [self.layer.name, self.layer.text, str(self.layer.count)]
        for name in PASSES:
            figure = self.figures.get(name)
            found += [f"{1e3 * figure.seconds:.3f}", figure.rate] if figure else ["-", "-"]
        return found


def _rate(total: float, seconds: float, unit: str) -> str:
    return f"{total / seconds / 1e9:.1f} {unit}" if seconds else "-"


def totals(lines: Sequence[Line]) -> list[list[str]]:
    """All layers together, each as often as it occurs: a row a kind, then everything."""
    kinds = {kind: [line for line in lines if KINDS[type(line.layer)] == kind] for kind in KINDS.values()}
    return [*(_total(kind, some) for kind, some in kinds.items() if some), _total("total", lines)]


def _total(name: str, lines: Sequence[Line]) -> list[str]:
    cells = [name, str(sum(line.layer.count for line in lines))]
    for passes in SUMS.values():
        seconds, flops = sum(line.seconds(passes) for line in lines), sum(line.flops(passes) for line in lines)
        cells += [f"{1e3 * seconds:.3f}", _rate(flops, seconds, "GFLOP/s") if flops else "-"]
    return cells


def speed(lines: Sequence[Line], N: int) -> str:
    """Images a second, the optimizer's step left out."""
    seconds = sum(line.seconds() for line in lines)
    rate = f": {N / seconds:.1f} a second" if seconds else ""
    return f"{N} images forward and backward in {1e3 * seconds:.1f} ms{rate}"


class Layout:
    """Rows as lines of text, words on the left, figures on the right.

    Parameters
    ----------
    titles : sequence of str
        Of the columns; one called "rate" has room for its unit.
    words : sequence of sequence of str
        All that will stand in each of the first columns.
    """

    def __init__(self, titles: Sequence[str], words: Sequence[Sequence[str]]) -> None:
        self.titles, self.words = titles, len(words)
        self.widths = [max(map(len, (title, *column))) for title, column in zip(titles, words)]
        self.widths += [max(len(t), FIGURE, RATE * (t == "rate")) for t in titles[len(words) :]]

    def heading(self) -> str:
        """The titles, and a line below them."""
        titles = self.line(self.titles)
        return f"{titles}\n{'-' * len(titles)}"

    def line(self, cells: Sequence[str]) -> str:
        """One row."""
        pairs = list(zip(cells, self.widths))
        left = [cell.ljust(width) for cell, width in pairs[: self.words]]
        return "  ".join(left + [cell.rjust(width) for cell, width in pairs[self.words :]])


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The same for RESULTS.md."""
    heading, *others = ["| " + " | ".join(row) + " |" for row in (titles, *rows)]
    return [heading, "|---" * len(titles) + "|", *others]


def as_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The same for programs; times in seconds."""
    return [
        {
            "layer": line.layer.name,
            "kind": KINDS[type(line.layer)],
            "geometry": line.layer.text,
            "times": line.layer.count,
            **{name: dataclasses.asdict(figure) for name, figure in line.figures.items()},
        }
        for line in lines
    ]
