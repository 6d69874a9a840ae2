"""What is compared and what comes out of it: contenders, cases, results, and how long to measure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


def nothing() -> None:
    """The default of ``Contender.reset``."""


@dataclass(frozen=True)
class Contender:
    """One way to compute a case.

    Parameters
    ----------
    name : str
    run : callable
        Computes once.
    result : callable
        The arrays that the last run produced.
    reset : callable
        Restores what ``run`` changes besides its result; called before the check.
    ours : bool
        Ours must work and be right; a peer that fails is reported and left out.
    reference : callable, optional
        The float64 arrays to reproduce, of a library that defines the computation in another way than the case does.
    elapsed : callable, optional
        ``elapsed(n)``: seconds that n runs take on a device, which works on when ``run`` has returned.
    tolerance : float, optional
        Largest error, of a way that rounds more than the others of its case.
    """

    name: str
    run: Callable[[], object]
    result: Callable[[], Sequence[Any]]
    reset: Callable[[], None] = nothing
    ours: bool = False
    elapsed: Callable[[int], float] | None = None
    reference: Callable[[], Sequence[Any]] | None = None
    tolerance: float | None = None


@dataclass
class Case:
    """One computation at one size.

    Parameters
    ----------
    name, text : str
        Short name, and the expression as shown.
    size : int
        Elements.
    contenders : list of Contender
    reference : callable
        float64 arrays that all contenders must reproduce.
    nbytes : int
        Bytes that must move: every input read once, every result written once.
    tolerance : float
        Largest error allowed to ours, relative to the largest value of the reference. Peers may be a hundred times
        worse, as some are that sum in float32; the error is always shown.
    refused : dict
        Contender -> why it does not take part.
    flops : int
        Multiplications and additions, where these count and not the bytes: then no copy runs beside it.
    checked : list of Result, optional
        What a check elsewhere has found; ``contenders`` are then those to measure.
    """

    name: str
    text: str
    size: int
    contenders: list[Contender]
    reference: Callable[[], Sequence[Any]]
    nbytes: int
    tolerance: float = 1e-5
    refused: dict[str, str] = field(default_factory=dict)
    flops: int = 0
    checked: list[Result] | None = None


@dataclass
class Result:
    """What was found out about one contender of one case; times in seconds a call, None if not measured."""

    case: str
    text: str
    size: int
    contender: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    loops: int = 0
    ratio: float | None = None
    """Median over the rounds of this contender's time divided by the baseline's, NumPy's, in the same round."""
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
    """The part of its time in which no kernel runs: by the clock, and by the thread's."""


def times(ours: Result | None, other: Result | None) -> float | None:
    """The time of ``other`` divided by that of ``ours``; None if one of them was not measured.

    It is the median of the ratios within each round, so that a change of the machine's speed between rounds cancels.
    """
    if ours is None or other is None or not ours.samples or not other.samples:
        return None
    return statistics.median(b / a if a else 0.0 for a, b in zip(ours.samples, other.samples))


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


@dataclass
class Record:
    """What a run of one subject has found so far; tables, files and pictures are made of it.

    Attributes
    ----------
    subject : str
        What is measured: the heading of its section of RESULTS.md.
    command : str
        What to type to measure it again.
    effort : Effort
    machine : dict of str
        Facts of the machine and the software, in the order they are shown.
    copy : dict of float
        Bandwidth of copies in GB/s, by name.
    results : list of Result
        In the order they were measured.
    beside : list of Result
        Those that are in ``tables`` instead of the tables by size.
    tables : dict of list of str
        Lines of Markdown that follow the figures of the cases, by heading.
    verdicts, skipped : list of str
        Which targets were met; which cases were left out, and why.
    more : dict
        What the JSON file has besides.
    """

    subject: str
    command: str
    effort: Effort
    machine: dict[str, str] = field(default_factory=dict)
    copy: dict[str, float] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    beside: list[Result] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)
    verdicts: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def find(self, case: str, size: int, contender: str) -> Result | None:
        """A measured result, None if it was not part of this run."""
        wanted = (case, size, contender)
        found = [r for r in self.results if (r.case, r.size, r.contender) == wanted and r.median is not None]
        return found[0] if found else None
