"""Suites of whole steps, such as those of training: each contender makes steps for some time, the median is a sample.

Two steps of everyone are compared with a reference, computed by a process of its own, before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from _apart import Apart, Link
from _cases import OURS, Case, Contender, Effort, Result, fastest, markdown, text, time_text
from _precision import WAYS
from _report import Form
from _suite import Key, Suite
from harness import Session

REFERENCE = "reference"
STEPS = 2
"""Steps before results are compared: the second uses the momentum that the first made."""

Step = Callable[[], object]


def some(array: Any, most: int = 2000) -> list[float]:
    """Values spread over all of ``array``."""
    flat = np.asarray(array, np.float64).ravel()
    return [float(value) for value in flat[:: -(-flat.size // most)]]


def sample(
    step: Step, seconds: float, least: int, before: Step | None = None, warm: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:  # fmt: skip
    """The median time of a step, of those that ``seconds`` have time for, each after ``before``, which is not counted.

    ``warm`` steps come first, and at least ``least`` are counted.
    """
    taken: list[float] = []
    for _ in range(warm):
        step()
    end = clock() + seconds
    while len(taken) < least or clock() < end:
        if before is not None:
            before()
        start = clock()
        step()
        taken.append(clock() - start)
    return statistics.median(taken)


def in_steps(
    who: str, step: Step, changed: Callable[[], Sequence[Any]], sampled: Callable[[], float], then: Step = list
) -> Contender:
    """The contender that makes steps; ``changed`` gives what two of them have changed, ``then`` follows a third."""

    def result() -> list[Any]:
        for _ in range(STEPS - 1):
            step()
        found = [np.asarray(some(array)) for array in changed()]
        step()
        then()
        return found

    return Contender(who, step, result, ours=who.startswith(OURS), sample=sampled)


@dataclass
class Steps(Form):
    """A line a contender, below a line about the case; tables with a row a case and a column a contender."""

    about: Callable[[Result], str]
    """The line about the case of a result."""
    table_of: Callable[[Result], str]
    """The table of a result; empty for none."""
    titles: tuple[str, str]
    """Of the first two columns."""
    row: Callable[[Result], tuple[str, str]]
    """First two cells of the row of a result."""
    more: Mapping[str, Callable[[Result], str]] = field(default_factory=dict)
    """Further columns of the lines: title -> text of a result."""
    besides: Callable[[Result], str] = lambda result: ""
    """More words in a cell of the table."""

    baseline, by_size, copies = OURS, False, False

    def case(self, results: list[Result]) -> str:
        """One case."""
        width = max(20, *(len(r.contender) for r in results))
        titles = f"{'median':>10}{'from':>10}{'to':>10}{'/ ours':>9}{'error':>9}"
        lines = [f"\n{self.about(results[0])}", f"  {'':{width}}{titles}{''.join(f'{name:>14}' for name in self.more)}"]
        for r in results:
            if r.median is None:
                lines.append(f"  {r.contender:<{width}}  {r.note or 'not measured'}")
                continue
            cells = [f"{time_text(seconds):>10}" for seconds in (r.median, r.low, r.high)]
            cells += [f"{text(r.ratio, '.2f', 'x'):>9}", f"{text(r.error, '.0e'):>9}"]
            cells += [f"{made(r):>14}" for made in self.more.values()]
            lines.append(f"  {r.contender:<{width}}{''.join(cells)}".rstrip())
        return "\n".join(lines)

    def tables(self, results: Sequence[Result]) -> dict[str, list[str]]:
        """A table for each heading."""
        made = {}
        for heading in dict.fromkeys(map(self.table_of, results)):
            here = [r for r in results if heading and self.table_of(r) == heading]
            names = list(dict.fromkeys(r.contender for r in sorted(here, key=lambda r: r.contender != OURS)))
            cells = {(self.row(r), r.contender): self.cell(r) for r in here}
            rows = dict.fromkeys(map(self.row, here))
            if here:
                lines = [[*row, *(cells.get((row, name), "") for name in names)] for row in rows]
                made[heading] = markdown([*self.titles, *names], lines)
        return made

    def cell(self, result: Result) -> str:
        """Median, lowest and highest of the rounds; how many times as long as ours."""
        if result.median is None:
            return "-"
        words = f"{time_text(result.median)} ({time_text(result.low)} to {time_text(result.high)})"
        words += self.besides(result)
        return words if result.contender == OURS or result.ratio is None else f"{words}; {result.ratio:.2f}x"


class Reference:
    """The desk of the process that says what is right.

    Parameters
    ----------
    result : callable
        The arrays that two steps change, as lists, of a key.
    """

    def __init__(self, result: Callable[..., Any]) -> None:
        self.result = result


class StepSuite(Suite):
    """Steps beside those of a reference; each case has processes of its own.

    Attributes
    ----------
    rounds : (int, int)
        In a quick run, and in a full one.
    seconds : (float, float)
        Length of a sample.
    keeps_reference : bool
        Its process lives as long as the run, not only until it has answered: it keeps the memory that it used.
    """

    rounds, seconds = (3, 9), (0.2, 0.4)
    keeps_reference = False

    def __init__(self) -> None:
        self._expected: dict[Key, Any] = {}
        self._reference: Link | None = None

    def options(self, parser: argparse.ArgumentParser) -> None:
        quick, full = self.rounds
        parser.add_argument("--rounds", type=int, metavar="N", help=f"default {full}, {quick} with --quick")

    def settle(self, options: argparse.Namespace) -> str:
        at = 0 if options.quick else 1
        options.seconds = self.seconds[at]
        options.rounds = self.rounds[at] if options.rounds is None else options.rounds
        return f"--rounds: at least one, got {options.rounds}" if options.rounds < 1 else super().settle(options)

    def effort(self, options: argparse.Namespace) -> Effort:
        return Effort(pause=0.0, min_rounds=options.rounds, max_rounds=options.rounds, extremes=True)

    def truth(self, options: argparse.Namespace, *key: Any) -> Any:
        """In the process of the reference: the arrays that two steps change, as lists."""
        raise NotImplementedError

    def same(self, key: Key) -> Key:
        """The part of a key that the reference depends on; empty for a case without one."""
        return key

    def taking_part(self, key: Key, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
        """Contenders of a case, and why others are absent."""
        return list(self.contenders), {}

    def judge(self, case: Case) -> None:
        """Leave contenders out of a case that was checked."""

    def afterwards(self, apart: Apart, session: Session, results: list[Result]) -> None:
        """Ask the contenders for more than times."""

    @contextmanager
    def desk(self, options: argparse.Namespace, who: str) -> Iterator[Any]:
        if who == REFERENCE:
            yield Reference(partial(self.truth, options))
            return
        with super().desk(options, who) as desk:
            yield desk

    def expected(self, argv: Sequence[str], key: Key) -> Any:
        """The results of the reference, whose process is started when it is needed."""
        part = self.same(key)
        if part and part not in self._expected:
            self._reference = self._reference or self.start(argv, REFERENCE)
            self._expected[part] = self._reference.ask("result", *part)
            if not self.keeps_reference:
                self.close()
        return self._expected.get(part)

    def close(self) -> None:
        """End the process of the reference."""
        if self._reference is not None:
            self._reference.close()
        self._reference = None

    def measure(self, session: Session, argv: Sequence[str]) -> None:
        try:
            for key in self.plan(session.options):
                if why := self.fits(*key):
                    session.skip(why)
                else:
                    self.measure_case(session, argv, key, *self.taking_part(key, session.options))
        finally:
            self.close()

    def measure_case(
        self, session: Session, argv: Sequence[str], key: Key, names: Sequence[str], absent: Mapping[str, str]
    ) -> list[Result]:
        """Check and measure one case."""
        with Apart(names, partial(self.start, argv)) as apart:
            session.machine |= apart.facts
            case = apart.case(*key, self.expected(argv, key))
            self.judge(case)
            return session.run(case, absent, partial(self.afterwards, apart, session))


def drop_wrong(case: Case, allowed: Callable[[Result], float]) -> None:
    """Leave out of a checked case who has a larger error than it is allowed."""
    for result in case.checked or ():
        if result.error is not None and not result.error <= allowed(result):
            result.refuse(result.error, allowed(result))
            result.wrong = result.contender.startswith(OURS)
            case.contenders = [c for c in case.contenders if c.name != result.contender]


def ours(results: Sequence[Result]) -> Result | None:
    """Ours in the faster of its ways to a precision, if it was measured."""
    return fastest(r for r in results if r.contender in WAYS)


def best_peer(results: Sequence[Result]) -> Result | None:
    """The fastest of the others."""
    return fastest(r for r in results if not r.contender.startswith(OURS))


def groups(results: Sequence[Result], by: Callable[[Result], Any]) -> dict[Any, list[Result]]:
    """Results by a property, in the order of their first."""
    found: dict[Any, list[Result]] = {}
    for result in results:
        found.setdefault(by(result), []).append(result)
    return found
