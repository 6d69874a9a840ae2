"""What every benchmark shares: check first, then measure all contenders in turns, beside a memory copy.

A subject (``optree.py``, ...) describes :class:`Case` objects, each with the contenders that compute the same thing.
Before anything is timed, each contender's result is compared with a float64 reference. Then they run round-robin in
one process, so that a slow moment of the machine hits all of them. The roofline is a copy on all threads that moves
the same number of bytes, measured in the same rounds. Run by itself, this file shows the machine and its roofline.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _machine
import _report
import numpy as np
from _report import COPY

Clock = Callable[[], float]
ROOFLINE_BYTES = 8 << 20
"""Cases that move less stay in the caches, where the bandwidth of memory says nothing."""

BUSY = 0.05
"""Share of the processors taken by other programs from which figures are called rough."""


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
    """

    name: str
    run: Callable[[], object]
    result: Callable[[], Sequence[Any]]
    reset: Callable[[], None] = nothing
    ours: bool = False


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
    """

    name: str
    text: str
    size: int
    contenders: list[Contender]
    reference: Callable[[], Sequence[Any]]
    nbytes: int
    tolerance: float = 1e-5
    refused: dict[str, str] = field(default_factory=dict)


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
    """Median over the rounds of this contender's time divided by NumPy's in the same round."""
    gb_per_s: float | None = None
    of_copy: float | None = None
    """The copy's time divided by this one's: 1 is as fast as memory allows."""
    error: float | None = None
    first_call: float | None = None
    note: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class Effort:
    """How long to measure: seconds a sample lasts at least, rounds, seconds a case may take altogether.

    ``pause`` is slept before each sample: the idle threads of the contender before spin for some milliseconds.
    """

    sample: float = 2e-3
    pause: float = 5e-3
    min_rounds: int = 7
    max_rounds: int = 41
    budget: float = 4.0


QUICK = Effort(sample=1e-3, min_rounds=5, max_rounds=15, budget=0.6)


# Checking -------------------------------------------------------------------------------------------------------


def check(case: Case, clock: Clock = time.perf_counter) -> tuple[list[Contender], list[Result]]:
    """Run every contender once and compare; returns those to measure, and a result for each."""
    reference = [np.asarray(array, np.float64) for array in case.reference()]
    able: list[Contender] = []
    results: list[Result] = []
    for contender in case.contenders:
        result = Result(case.name, case.text, case.size, contender.name)
        results.append(result)
        try:
            contender.reset()
            start = clock()
            contender.run()
            result.first_call = clock() - start
            result.error = error(contender.result(), reference)
        except Exception as failure:
            said = f"{type(failure).__name__}: {failure}".splitlines()[0]
            result.note, result.wrong = f"failed: {said}", contender.ours
            continue
        allowed = case.tolerance if contender.ours else 100 * case.tolerance
        if result.error <= allowed:
            able.append(contender)
        else:
            result.note = f"not timed, because it is wrong: error {result.error:.1e}, allowed {allowed:.0e}"
            result.wrong = contender.ours
    results += [Result(case.name, case.text, case.size, name, note=why) for name, why in case.refused.items()]
    return able, results


def error(arrays: Sequence[Any], reference: Sequence[Any]) -> float:
    """Largest difference, relative to the largest reference value; infinite where something is missing or nan."""
    if len(arrays) != len(reference):
        return float("inf")
    worst = 0.0
    for array, expected in zip(arrays, reference):
        got = np.asarray(array, np.float64)
        if got.shape != expected.shape:
            return float("inf")
        difference = float(np.max(np.abs(got - expected), initial=0.0))
        if not np.isfinite(difference):
            return float("inf")
        worst = max(worst, difference / (float(np.max(np.abs(expected), initial=0.0)) or 1.0))
    return worst


# Measuring ------------------------------------------------------------------------------------------------------


def measure(
    contenders: Sequence[Contender], effort: Effort, clock: Clock = time.perf_counter
) -> dict[str, tuple[int, list[float]]]:
    """Seconds a call for each contender: the loops a sample has, and one sample a round, taken in turns."""
    loops = {contender.name: _loops(contender, effort, clock) for contender in contenders}
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    start = clock()
    for turn in range(effort.max_rounds):
        if turn >= effort.min_rounds and clock() - start > effort.budget:
            break
        first = turn % len(contenders) if contenders else 0
        for contender in (*contenders[first:], *contenders[:first]):
            samples[contender.name].append(_sample(contender.run, loops[contender.name], clock, effort.pause))
    return {name: (loops[name], samples[name]) for name in samples}


def _loops(contender: Contender, effort: Effort, clock: Clock) -> int:
    """Calls that make one sample long enough for the clock."""
    contender.run()
    count = 1
    while (elapsed := _sample(contender.run, count, clock, 0.0) * count) < effort.sample and count < 1 << 20:
        count = max(2 * count, int(count * effort.sample / elapsed) if elapsed > 0 else 0)
    return count


def _sample(run: Callable[[], object], loops: int, clock: Clock, pause: float) -> float:
    """Seconds a call, averaged over ``loops`` calls without garbage collection."""
    time.sleep(pause)
    if loops > 1:
        run()  # what ran before has filled the caches with its own data
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = clock()
        for _ in itertools.repeat(None, loops):
            run()
        return (clock() - start) / loops
    finally:
        if enabled:
            gc.enable()


def run_case(
    case: Case, effort: Effort, clock: Clock = time.perf_counter, baseline: str = "numpy"
) -> list[Result]:
    """Check and measure ``case``; the last result is the copy's where it makes sense."""
    able, results = check(case, clock)
    if case.nbytes >= ROOFLINE_BYTES:
        able.append(copy_contender(case.nbytes))
        results.append(Result(case.name, case.text, case.size, COPY))
    measured = measure(able, effort, clock)
    for result in results:
        if result.contender in measured:
            _fill(result, *measured[result.contender], case.nbytes)
            result.ratio = _paired(measured, result.contender, baseline)
            result.of_copy = _paired(measured, COPY, result.contender)
    return results


def _fill(result: Result, loops: int, samples: list[float], nbytes: int) -> None:
    result.loops, result.rounds = loops, len(samples)
    result.median = statistics.median(samples)
    result.low, _, result.high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
    result.gb_per_s = nbytes / result.median / 1e9 if result.median else None


def _paired(measured: dict[str, tuple[int, list[float]]], above: str, below: str) -> float | None:
    """Median of the quotients within each round, which a change of the machine's speed leaves alone."""
    if above not in measured or below not in measured:
        return None
    return statistics.median(a / b if b else 0.0 for a, b in zip(measured[above][1], measured[below][1]))


# The roofline ---------------------------------------------------------------------------------------------------


def copy_contender(nbytes: int, threads: int | None = None, name: str = COPY) -> Contender:
    """A copy that reads half of ``nbytes`` and writes the other half, split over ``threads`` (default: all)."""
    source = np.ones(max(nbytes // 8, 1), np.float32)
    return _copier(source, np.zeros_like(source), threads or _machine.cores(), name)


def _copier(source: Any, target: Any, threads: int, name: str) -> Contender:
    cuts = [len(source) * i // threads for i in range(threads + 1)]
    parts = [(target[i:j], source[i:j]) for i, j in itertools.pairwise(cuts)]
    pool = ThreadPoolExecutor(max(1, threads - 1))

    def run() -> None:
        others = [pool.submit(np.copyto, *part) for part in parts[1:]]
        np.copyto(*parts[0])
        for other in others:
            other.result()

    return Contender(name, run, lambda: [target])


def roofline(effort: Effort, nbytes: int = 256 << 20) -> dict[str, float]:
    """Bandwidth of a copy of ``nbytes`` in GB/s, bytes read and bytes written both counted."""
    source = np.ones(nbytes // 8, np.float32)
    target = np.zeros_like(source)
    counts = sorted({1, _machine.cores()})
    contenders = [_copier(source, target, n, f"copy on {n} thread{'s' * (n > 1)}") for n in counts]
    return {name: nbytes / statistics.median(s) / 1e9 for name, (_, s) in measure(contenders, effort).items()}


# A run of a subject ---------------------------------------------------------------------------------------------


def arguments(description: str) -> argparse.ArgumentParser:
    """The options all subjects share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the ratios to NumPy (with matplotlib)"
    )
    parser.add_argument(
        "--results", action="store_true", help="write this subject's section of benchmarks/RESULTS.md"
    )
    return parser


class Session:
    """Runs the cases of one subject, shows each as it is done, and writes what the options ask for.

    Parameters
    ----------
    subject : str
    options : namespace of :func:`arguments`
    facts : dict
        Added to the description of the machine, such as the engine in use.
    """

    def __init__(
        self, subject: str, options: argparse.Namespace, facts: dict[str, str] | None = None
    ) -> None:
        self.subject, self.options = subject, options
        self.effort = QUICK if options.quick else Effort()
        self.machine = _machine.describe() | (facts or {})
        self.command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
        self.results: list[Result] = []
        self.verdicts: list[str] = []
        self._say(_report.machine_text(self.machine))
        self.others = _machine.Others()
        self.copy = roofline(self.effort)
        self._say("\n" + "\n".join(f"{name}: {rate:.1f} GB/s" for name, rate in self.copy.items()))

    @staticmethod
    def _say(text: str) -> None:
        print(text, flush=True)

    def run(self, case: Case) -> None:
        """Check, measure and show one case."""
        if not self.results or self.results[-1].size != case.size:
            self._say("\n" + _report.size_heading(case.size))
        results = run_case(case, self.effort)
        self.results += results
        self._say(_report.case_text(results))

    def find(self, case: str, size: int, contender: str) -> Result | None:
        """A measured result, None if it was not part of this run."""
        wanted = (case, size, contender)
        found = [r for r in self.results if (r.case, r.size, r.contender) == wanted and r.median is not None]
        return found[0] if found else None

    def finish(self, verdicts: Sequence[str] = ()) -> int:
        """Show the verdicts, write the files asked for; returns the exit status, 1 if a result of ours was wrong."""
        self.verdicts = list(verdicts)
        share = self.others.share()
        self.machine["other programs"] = "unknown" if share is None else f"{share:.0%} of the processors"
        for line in ["", *self.verdicts]:
            self._say(line)
        for why, names in _report.absences(self.results).items():
            self._say(f"{why}: {', '.join(names)}")
        if share is not None and share > BUSY:
            self._say(
                f"Other programs took {share:.0%} of the processors during this run: its figures are rough."
            )
        if self.options.json:
            _report.write_json(self, self.options.json)
        if self.options.plot:
            _report.plot(self, self.options.plot)
        if self.options.results:
            _report.update_results(self)
        wrong = [f"{r.case} at {r.size}, {r.contender}: {r.note}" for r in self.results if r.wrong]
        for line in wrong:
            print(line, file=sys.stderr)
        return 1 if wrong else 0


def main() -> int:
    """Show the machine and its roofline."""
    options = arguments("The machine and the bandwidth of a memory copy on it.").parse_args()
    return Session("harness", options).finish()


if __name__ == "__main__":
    sys.exit(main())
