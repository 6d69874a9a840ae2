"""The harness of all benchmarks: check first, then measure all contenders in turns, beside a memory copy.

A subject (``expressions.py``, ...) describes :class:`_cases.Case` objects, each with contenders that compute the same.
Before anything is timed, each contender's result is compared with a float64 reference. Then they run round-robin, so
that a slow moment of the machine hits all of them; libraries with threads run in processes of their own
(``_apart.py``). Two copies on all threads run in the same rounds:
one that moves the same number of bytes, which may stay in the caches, and one too large for them. Run by itself, this
file shows the machine and the bandwidth of its memory.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import _machine
import _report
import numpy as np
from _cases import COPY, MEMORY_COPY, NOT_BUILT, Case, Contender, Effort, Record, Result, times
from _report import Form

from neonlike.kernels.bench.machine_rates import copier

Clock = Callable[[], float]
ROOFLINE_BYTES = 4 << 20
"""Cases that move fewer bytes get no memory copy beside them: they stay in L1 and L2."""

MEMORY_BYTES = 256 << 20
"""Bytes that the memory copy reads and writes: more than any cache holds."""

BUSY = 0.05
"""If other programs take a larger share of the processors, the run is called rough."""

QUICK = Effort(sample=1e-3, min_rounds=5, max_rounds=15, budget=0.6)


# Checking -------------------------------------------------------------------------------------------------------


def check(case: Case, clock: Clock = time.perf_counter) -> tuple[list[Contender], list[Result]]:
    """Run every contender once and compare; returns those to measure, and a result for each."""
    if case.checked is not None:
        return case.contenders, list(case.checked)
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
            expected = contender.reference() if contender.reference else reference
            result.error = error(contender.result(), expected)
        except NotImplementedError as failure:
            result.note = f"{NOT_BUILT}: {failure}".splitlines()[0].rstrip(": ")
            continue
        except Exception as failure:
            said = f"{type(failure).__name__}: {failure}".splitlines()[0]
            result.note, result.wrong = f"failed: {said}", contender.ours
            continue
        allowed = contender.tolerance or (case.tolerance if contender.ours else 100 * case.tolerance)
        if result.error <= allowed:
            able.append(contender)
        else:
            result.refuse(result.error, allowed)
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
    """Seconds a call for each contender: the loops of a sample, and one sample a round, in an order of its own."""
    loops = {contender.name: _loops(contender, effort, clock) for contender in contenders}
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    start = clock()
    for turn in range(effort.max_rounds):
        if turn >= effort.min_rounds and clock() - start > effort.budget:
            break
        for contender in random.Random(turn).sample(contenders, len(contenders)):
            before = samples[contender.name]
            warm = not before or before[-1] < effort.long
            before.append(_sample(contender, loops[contender.name], clock, effort.pause, warm))
    return {name: (loops[name], samples[name]) for name in samples}


def _loops(contender: Contender, effort: Effort, clock: Clock) -> int:
    """Calls a sample needs to last as long as ``effort.sample``."""
    if contender.sample is not None or _elapsed(contender, 1, clock) >= max(effort.long, effort.sample):
        return 1
    count = 1
    while (elapsed := _sample(contender, count, clock, 0.0) * count) < effort.sample and count < 1 << 20:
        count = max(2 * count, int(count * effort.sample / elapsed) if elapsed > 0 else 0)
    return count


def _elapsed(contender: Contender, loops: int, clock: Clock) -> float:
    """Seconds that ``loops`` runs take."""
    if contender.elapsed is not None:
        return contender.elapsed(loops)
    run, start = contender.run, clock()
    for _ in itertools.repeat(None, loops):
        run()
    return clock() - start


def _sample(contender: Contender, loops: int, clock: Clock, pause: float, warm: bool = True) -> float:
    """Seconds a call, averaged over ``loops`` calls."""
    time.sleep(pause)
    if contender.sample is not None:
        return contender.sample()
    if warm:
        contender.run()  # what ran before has filled the caches with its own data and code
    return timed(contender, loops, clock) / loops


def timed(contender: Contender, loops: int, clock: Clock = time.perf_counter) -> float:
    """Seconds that ``loops`` runs take, without garbage collection."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return _elapsed(contender, loops, clock)
    finally:
        if enabled:
            gc.enable()


def run_case(
    case: Case,
    effort: Effort,
    clock: Clock = time.perf_counter,
    baseline: str = "numpy",
    copies: Callable[[int], dict[str, tuple[Contender, int]]] | None = None,
) -> list[Result]:
    """Check and measure ``case``; the last results are those of ``copies`` where they make sense."""
    able, results = check(case, clock)
    moved = dict.fromkeys((c.name for c in able), case.nbytes)
    if case.nbytes >= ROOFLINE_BYTES and not case.flops:
        beside = (copies or host_copies)(case.nbytes)
        able += [contender for contender, _ in beside.values()]
        moved |= {name: nbytes for name, (_, nbytes) in beside.items()}
        results += [Result(case.name, case.text, case.size, name) for name in beside]
    measured = measure(able, effort, clock)
    found = {r.contender: r for r in results if r.contender in measured}
    for name, result in found.items():
        _fill(result, *measured[name], moved[name], case.flops, effort.extremes)
    for result in found.values():
        result.ratio = times(found.get(baseline), result)
        result.of_copy = times(result, found.get(COPY))
        share = times(result, found.get(MEMORY_COPY))
        result.of_memory_copy = None if share is None else share * moved[result.contender] / moved[MEMORY_COPY]
    return results


def _fill(result: Result, loops: int, samples: list[float], nbytes: int, flops: int, extremes: bool) -> None:
    result.loops, result.rounds, result.samples = loops, len(samples), samples
    result.median, result.low, result.high = statistics.median(samples), min(samples), max(samples)
    if not extremes and len(samples) > 1:
        result.low, _, result.high = statistics.quantiles(samples, n=4)
    result.gb_per_s = nbytes / result.median / 1e9 if result.median else None
    result.gflop_per_s = flops / result.median / 1e9 if result.median and flops else None


# The roofline ---------------------------------------------------------------------------------------------------


def copy_contender(nbytes: int, threads: int | None = None, name: str = COPY) -> Contender:
    """A copy that reads half of ``nbytes`` and writes the other half, split over ``threads`` (default: all)."""
    source = np.ones(max(nbytes // 8, 1), np.float32)
    return _copier(source, np.zeros_like(source), threads or _machine.cores(), name)


def host_copies(nbytes: int) -> dict[str, tuple[Contender, int]]:
    """The copies that run beside a case that moves ``nbytes``, by name, and what each moves."""
    return {COPY: (copy_contender(nbytes), nbytes), MEMORY_COPY: (memory_copy(), MEMORY_BYTES)}


def _copier(source: Any, target: Any, threads: int, name: str) -> Contender:
    return Contender(name, copier(source, target, threads), lambda: [target])


@lru_cache(maxsize=1)
def memory_copy() -> Contender:
    """A copy larger than the caches; its arrays are allocated once."""
    return copy_contender(MEMORY_BYTES, name=MEMORY_COPY)


def roofline(effort: Effort) -> dict[str, float]:
    """Bandwidth of a copy in memory in GB/s, bytes read and bytes written both counted."""
    nbytes = MEMORY_BYTES
    source = np.ones(nbytes // 8, np.float32)
    target = np.zeros_like(source)
    counts = sorted({1, _machine.cores()})
    contenders = [_copier(source, target, n, f"copy on {n} thread{'s' * (n > 1)}") for n in counts]
    return {name: nbytes / statistics.median(s) / 1e9 for name, (_, s) in measure(contenders, effort).items()}


# A run of a subject ---------------------------------------------------------------------------------------------


class BenchMode(argparse.Action):
    """Turns bench mode on for the backends that are made from now on, here or in processes with the same arguments."""

    def __call__(self, parser: Any, options: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Set the environment variable that backends look at."""
        from neonlike import settings  # which versions to compare with may lack

        settings.BENCH.put("1")
        setattr(options, self.dest, True)


def arguments(description: str, bench: bool = False) -> argparse.ArgumentParser:
    """The options all subjects share; with ``bench`` that of bench mode too, whose figures are not for the record."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds: under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw bandwidth over size (with matplotlib)"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--results", action="store_true", help="write this subject's section of benchmarks/RESULTS.md"
    )
    if bench:
        text = "report at the end which kernels of ours took the time; ours is slower then"
        either.add_argument("--bench", action=BenchMode, nargs=0, default=False, help=text)
    return parser


def without_json(argv: Sequence[str]) -> list[str]:
    """Arguments without where a file of what was measured goes, which does not change what is."""
    found = list(argv)
    while "--json" in found:
        at = found.index("--json")
        del found[at : at + 2]
    return found


def some_of(known: Iterable[str], kind: str = "") -> Callable[[str], list[str]]:
    """The type of an option that takes some of ``known``, with commas between them."""

    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no {kind}{', '.join(unknown)}; there are {', '.join(known)}")
        return names

    return chosen


class Session(Record):
    """Runs the cases of one subject, shows each as it is done, and writes what the options ask for.

    Parameters
    ----------
    subject : str
    options : namespace of :func:`arguments`
    facts : dict
        Added to the description of the machine, such as the engine in use.
    form : Form
        How results are shown.
    effort : Effort, optional
    """

    form = Form()
    copies = staticmethod(host_copies)

    def __init__(
        self,
        subject: str,
        options: argparse.Namespace,
        facts: dict[str, str] | None = None,
        form: Form | None = None,
        effort: Effort | None = None,
    ) -> None:
        self.options, self.form = options, form or self.form
        effort = effort or (QUICK if options.quick else Effort())
        command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *without_json(sys.argv[1:])])
        super().__init__(subject, command, effort)
        self.tell(self.describe() | (facts or {}))
        self.others = _machine.Others()
        self.copy = self.roofline()
        self.say("\n" + "\n".join(f"{name}: {rate:.1f} GB/s" for name, rate in self.copy.items()))

    def describe(self) -> dict[str, str]:
        """Facts of the machine and the software."""
        return _machine.describe()

    def roofline(self) -> dict[str, float]:
        """Bandwidth of copies in GB/s."""
        return roofline(self.effort)

    def write_results(self) -> None:
        """Write this subject's section of the recorded results."""
        _report.update_results(self, self.form)

    @staticmethod
    def say(text: str) -> None:
        """Print ``text`` and flush, so that a run can be followed."""
        print(text, flush=True)

    def skip(self, why: str) -> None:
        """Leave a case out, and say so now and at the end."""
        self.skipped.append(why)
        self.say(f"\n{why}")

    def tell(self, facts: Mapping[str, str]) -> None:
        """Add facts to the description of the machine, and show them."""
        self.machine |= facts
        width = max(map(len, self.machine)) + 2
        self.say("\n".join(f"{name:<{width}}{value}" for name, value in facts.items()))

    def run(
        self, case: Case, absent: Mapping[str, str] = MappingProxyType({}),
        finish: Callable[[list[Result]], object] = list,
    ) -> list[Result]:  # fmt: skip
        """Check, measure and show one case.

        ``absent`` says of contenders why they take no part; ``finish`` adds to the results before they are shown.
        """
        copies = self.copies if self.form.copies else lambda nbytes: {}
        results = run_case(case, self.effort, baseline=self.form.baseline, copies=copies)
        results += [Result(case.name, case.text, case.size, who, note=why) for who, why in absent.items()]
        finish(results)
        if self.form.by_size and (not self.results or self.results[-1].size != case.size):
            self.say("\n" + self.form.heading(case.size))
        (self.results if self.form.by_size else self.beside).extend(results)
        self.say(self.form.case(results))
        return results

    def finish(self, verdicts: Sequence[str] = ()) -> int:
        """Show the verdicts, write the files asked for; returns the exit status, 1 if a result of ours was wrong."""
        self.verdicts = list(verdicts)
        self.tables |= self.form.tables(self.beside)
        share = self.others.share()
        self.machine["other programs"] = "unknown" if share is None else f"{share:.0%} of the processors"
        for line in ["", *self.verdicts, *self.skipped]:
            self.say(line)
        for line in _report.absences([*self.results, *self.beside]):
            self.say(line)
        if share is not None and share > BUSY:
            self.say(
                f"Other programs took {share:.0%} of the processors during this run: its figures are rough."
            )
        if self.options.json:
            _report.write_json(self, self.options.json)
        if self.options.results:
            self.write_results()
        if self.options.picture:  # last: without matplotlib it ends the program
            self.form.draw(self, self.options.picture)
        wrong = [f"{r.case} at {r.size}, {r.contender}: {r.note}" for r in [*self.results, *self.beside] if r.wrong]
        for line in wrong:
            print(line, file=sys.stderr)
        return 1 if wrong else 0


def main() -> int:
    """Show the machine and its roofline."""
    options = arguments("The machine and the bandwidth of a memory copy on it.").parse_args()
    return Session("harness", options).finish()


if __name__ == "__main__":
    sys.exit(main())
