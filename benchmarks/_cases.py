"""Contenders, cases, results and records of the benchmarks, and the words that all of them share."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "neonlike"
"""Our contender; names of several ways of ours begin with it."""

COPY, MEMORY_COPY = COPIES = ("copy", "memory copy")
"""Rooflines: a copy of as many bytes as the case moves, and one larger than the caches."""

NOT_INSTALLED, LEFT_OUT, NOT_BUILT = "not installed", "left out by --quick", "not built"
"""How notes of absent contenders begin. Not built: this version of ours lacks the primitive."""


class Refused(Exception):
    """A contender does not take part in a case; the text says why."""


def nothing() -> None:
    """The default of ``Contender.reset``."""


@dataclass(frozen=True)
class Contender:
    """One way to compute a case."""

    name: str
    run: Callable[[], object]
    """Computes once."""
    result: Callable[[], Sequence[Any]]
    """The arrays that the last run produced."""
    reset: Callable[[], None] = nothing
    """Restores what ``run`` changes besides its result; called before the check."""
    ours: bool = False
    """Ours must work and be right; a peer that fails is reported and left out."""
    elapsed: Callable[[int], float] | None = None
    """``elapsed(n)``: seconds of n runs, by the clock of a device or of another process."""
    sample: Callable[[], float] | None = None
    """Seconds a run, measured in the contender's own way; replaces loops and warming up."""
    reference: Callable[[], Sequence[Any]] | None = None
    """Its own float64 reference, of a library that defines the computation in another way than the case does."""
    tolerance: float | None = None
    """Largest error, of a way that rounds more than the others of its case."""


@dataclass
class Case:
    """One computation at one size."""

    name: str
    text: str
    """Short name, and the expression as shown."""
    size: int
    """Elements, samples, or threads."""
    contenders: list[Contender]
    reference: Callable[[], Sequence[Any]]
    """float64 arrays that all contenders must reproduce."""
    nbytes: int = 0
    """Bytes that must move: every input read once, every result written once."""
    tolerance: float = 1e-5
    """Largest error allowed to ours, relative to the largest value of the reference. Peers may be a hundred times
    worse, as some are that sum in float32; the error is always shown."""
    refused: dict[str, str] = field(default_factory=dict)
    """Contender -> why it does not take part."""
    flops: int = 0
    """Multiplications and additions, where these count and not the bytes: then no copy runs beside it."""
    checked: list[Result] | None = None
    """Outcome of a check in other processes; ``contenders`` are then those to measure."""


@dataclass
class Result:
    """Findings about one contender of one case; times in seconds a call, None if not measured."""

    case: str
    text: str
    size: int
    contender: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    """Quartiles of the samples, or their extremes (``Effort.extremes``)."""
    rounds: int = 0
    loops: int = 0
    ratio: float | None = None
    """Median over the rounds of this contender's time divided by the baseline's in the same round."""
    gb_per_s: float | None = None
    gflop_per_s: float | None = None
    of_copy: float | None = None
    """Bandwidth divided by that of a copy of the same bytes, wherever they lie."""
    of_memory_copy: float | None = None
    """Bandwidth divided by that of a copy in memory: 1 is as fast as memory allows."""
    samples: list[float] = field(default_factory=list)
    """Seconds a call, one sample for each round."""
    error: float | None = None
    first_call: float | None = None
    note: str = ""
    wrong: bool = False
    memory: int | None = None
    """Bytes that its process grew by."""
    outside: list[float] | None = None
    """Share of its time in which no kernel runs: by the clock, and by the thread's."""

    @property
    def absent(self) -> bool:
        """Whether it is missing for a reason that has nothing to do with the case; told once, at the end."""
        return self.note.startswith((NOT_INSTALLED, LEFT_OUT, NOT_BUILT))

    @property
    def rate(self) -> float | None:
        """GFLOP/s where operations count, else GB/s."""
        return self.gb_per_s if self.gflop_per_s is None else self.gflop_per_s

    def refuse(self, error: float, allowed: float) -> None:
        """Note that it is not measured, as its error is too large."""
        self.note = f"not timed, because it is wrong: error {error:.1e}, allowed {allowed:.0e}"


def times(ours: Result | None, other: Result | None) -> float | None:
    """The time of ``other`` divided by that of ``ours``; None if one of them was not measured.

    It is the median of the ratios within each round, so that a change of the machine's speed between rounds cancels.
    """
    if ours is None or other is None or not ours.samples or not other.samples:
        return None
    return statistics.median(b / a if a else 0.0 for a, b in zip(ours.samples, other.samples))


def fastest(results: Iterable[Result]) -> Result | None:
    """The fastest of those that were measured."""
    return min((r for r in results if r.median is not None), key=lambda r: r.median or 0.0, default=None)


def geometric_mean(ratios: Iterable[float | None]) -> tuple[float, int] | None:
    """Geometric mean of the ratios that are there, and their number; None without any."""
    found = [ratio for ratio in ratios if ratio]
    return (statistics.geometric_mean(found), len(found)) if found else None


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds a sample lasts at least, rounds, seconds a case may take altogether.

    Before each sample comes a sleep of ``pause``, since idle threads of the previous contender spin for milliseconds,
    and an untimed call to warm up, unless calls take ``long`` or more.
    """

    sample: float = 2e-3
    pause: float = 5e-3
    min_rounds: int = 7
    max_rounds: int = 41
    budget: float = 4.0
    long: float = float("inf")
    extremes: bool = False


@dataclass
class Record:
    """Findings of a run of one subject; tables, files and pictures are made of it."""

    subject: str
    """The heading of its section of RESULTS.md."""
    command: str
    """What to type to measure it again."""
    effort: Effort
    machine: dict[str, str] = field(default_factory=dict)
    """Facts of the machine and the software, in the order they are shown."""
    copy: dict[str, float] = field(default_factory=dict)
    """Bandwidth of copies in GB/s, by name."""
    results: list[Result] = field(default_factory=list)
    """In the order they were measured."""
    beside: list[Result] = field(default_factory=list)
    """Those that are in ``tables`` instead of the tables by size."""
    tables: dict[str, list[str]] = field(default_factory=dict)
    """Lines of Markdown that follow the figures of the cases, by heading."""
    verdicts: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Which targets were met; which cases were left out, and why."""
    more: dict[str, Any] = field(default_factory=dict)
    """What the JSON file has besides."""

    def find(self, case: str, size: int, contender: str) -> Result | None:
        """A measured result, None if it was not part of this run."""
        wanted = (case, size, contender)
        found = [r for r in self.results if (r.case, r.size, r.contender) == wanted and r.median is not None]
        return found[0] if found else None


# Texts ----------------------------------------------------------------------------------------------------------


def size_text(size: int) -> str:
    """64, 4k, 16M: powers of 1024 where they fit, else the number."""
    for unit, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse_size(text: str) -> int:
    """The inverse of :func:`size_text`.

    Raises
    ------
    ValueError
        If ``text`` is not a positive whole number, with k or M after it or not.
    """
    match = re.fullmatch(r"([1-9]\d*)([kM]?)", text.strip())
    if match is None:
        raise ValueError(f"a size is a whole number such as 64, 4k or 16M, got {text!r}")
    return int(match[1]) * {"": 1, "k": 1 << 10, "M": 1 << 20}[match[2]]


def time_text(seconds: float | None) -> str:
    """A time with three digits and its unit, ``-`` for None."""
    if seconds is None:
        return "-"
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            value = seconds / unit
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {name}"
    return f"{seconds * 1e9:.0f} ns"


def text(value: float | None, form: str, unit: str = "") -> str:
    """``value`` in a format, ``-`` for None."""
    return "-" if value is None else f"{value:{form}}{unit}"


def met(yes: bool) -> str:
    """Last word of a verdict: whether its target was met."""
    return "met" if yes else "MISSED"


def takes(who: str, ratio: float, target: float | None = None) -> str:
    """``torch takes 1.20 times as long (target >= 1.1): met``."""
    words = f"{who} takes {ratio:.2f} times as long"
    return words if target is None else f"{words} (target >= {target:g}): {met(ratio >= target)}"


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, a string a line."""
    heading, *others = ["| " + " | ".join(row) + " |" for row in (titles, *rows)]
    return [heading, "|" + "---|" * len(titles), *others]
