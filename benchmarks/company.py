"""Sequences of calls as networks make them, against PyTorch, alone and in company.

This is what timing single kernels cannot see. A training step, the same kinds of calls bare, a convolution with all
around it, and a recurrent layer, on one thread, on all cores, and on twice as many threads: *alone*; *busy*, beside
a process that computes all the time; *after NumPy* and *after PyTorch*, where before each step a call of somebody else
in the same process leaves its own threads spinning. Every figure comes from a process of its own. Without PyTorch the
exit status is 2. ``python benchmarks/company.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import _apart
import _company_report as report
import _machine
import _primitives
import _sequences
import numpy as np
from _apart import Busy, Child, Link
from _cases import Result
from _company_report import ALONE, BUSY, SCENARIOS, WHOLE
from _contenders import SLOW_TO_COMPILE
from _sequences import SEQUENCES, Made, some
from _terms import LEFT_OUT, OURS
from harness import Session, arguments, error, some_of

TOLERANCE = 1e-3
"""Largest relative error of float32 results after two steps."""

STEPS = 2
"""Steps before results are compared: the second uses the momentum that the first made."""

FOREIGN = 512
"""Rows and columns of the matrix product that another library computes before a step."""

ROUNDS, QUICK_ROUNDS = 9, 3
SECONDS, QUICK_SECONDS = 0.4, 0.2
"""Length of a sample, which is the median of the steps made in this time."""

LEAST = 3
"""Fewest steps of a sample; as many untimed steps come before it."""

QUICK_SCENARIOS = (ALONE, BUSY)
COMPILED_IN_QUICK = "mlp"
REFERENCE = "reference"


# In the process of a contender ----------------------------------------------------------------------------------


class Desk:
    """What the process of a contender answers.

    Parameters
    ----------
    name : str
        ``neonlike``, or a way in which PyTorch does it; ``reference`` is PyTorch in float64.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._parts: list[str] = []
        self._step: _sequences.Call = list
        self._before: _sequences.Call = list

    def make(self, sequence: str, part: str | None, threads: int, scenario: str) -> list[list[float]]:
        """Set everything up and make two steps; some values of each array they have changed."""
        maker = make_ours if self.name == OURS else partial(make_torch, self.name)
        made = maker(sequence, threads)
        step = made.call()
        for _ in range(STEPS):
            step()
        self._parts = list(made.parts)
        self._step, self._before = made.call(part), FOREIGNERS.get(scenario, lambda: list)()
        return [some(array) for array in made.result()]

    def parts(self) -> list[str]:
        """Names of the parts of our sequence."""
        return self._parts

    def sample(self, seconds: float) -> float:
        """The median time of a step, of those that ``seconds`` have time for."""
        return sample(self._step, self._before, seconds)


def sample(
    step: _sequences.Call, before: _sequences.Call, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The median time of ``step``, each after ``before``, which is not counted."""
    taken: list[float] = []
    for _ in range(LEAST):
        step()
    end = clock() + seconds
    while len(taken) < LEAST or clock() < end:
        before()
        start = clock()
        step()
        taken.append(clock() - start)
    return statistics.median(taken)


def make_ours(sequence: str, threads: int) -> Made:
    """Ours, on a backend that the process keeps."""
    from neonlike.backends import gen_backend

    be = gen_backend("cpu", rng_seed=0)
    be.num_threads = threads
    chosen = SEQUENCES[sequence]
    return chosen.ours(be, chosen.operands())


def make_torch(name: str, sequence: str, threads: int) -> Made:
    """PyTorch's."""
    _primitives.set_torch_up()
    import _sequences_torch as steps
    import torch

    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    way = steps.Way(name, double=name == REFERENCE)
    return steps.STEPS[sequence](way, SEQUENCES[sequence].operands())


def numpy_product() -> _sequences.Call:
    """A NumPy matrix product; the threads of its BLAS spin for a while after it."""
    a, out = np.ones((FOREIGN, FOREIGN), np.float32), np.empty((FOREIGN, FOREIGN), np.float32)
    return lambda: np.matmul(a, a, out)


def torch_product() -> _sequences.Call:
    """A PyTorch matrix product; its threads spin for a while after it."""
    import torch

    a = torch.ones(FOREIGN, FOREIGN)
    return lambda: torch.mm(a, a)


FOREIGNERS = {report.AFTER_NUMPY: numpy_product, report.AFTER_TORCH: torch_product}


# A run ----------------------------------------------------------------------------------------------------------


class Run:
    """Measures what the command line asks for.

    Parameters
    ----------
    session : Session
    link : callable
        Makes the link to the process of a contender.
    busy : Busy
        The process beside which steps are measured.
    """

    def __init__(self, session: Session, link: Callable[[str], Link], busy: Busy) -> None:
        self.session, self.link, self.busy = session, link, busy
        self.options = session.options
        self.expected: dict[str, list[Any]] = {}

    def sequence(self, name: str, scenario: str, threads: int) -> None:
        """Measure a step of every contender."""
        cells = [Result(name, scenario, threads, who) for who in (OURS, *SEQUENCES[name].peers)]
        if self.options.quick and name != COMPILED_IN_QUICK:
            for cell in cells:
                if cell.contender in SLOW_TO_COMPILE:
                    cell.note = f"{LEFT_OUT} but for {COMPILED_IN_QUICK}, compiling takes seconds"
        self.measure(cells, {})

    def parts(self, name: str, threads: int) -> None:
        """Measure each part of our sequence in a process of its own, and the whole sequence."""
        link = self.link(OURS)
        try:
            link.ask("make", name, None, threads, ALONE)
            parts = {f"{OURS}: {part}": part for part in link.ask("parts")}
        finally:
            link.close()
        self.measure([Result(name, ALONE, threads, who) for who in (WHOLE, *parts)], parts)

    def measure(self, cells: Sequence[Result], parts: dict[str, str]) -> None:
        """Fill ``cells``, which are of one sequence, scenario and number of threads."""
        links: dict[str, Link] = {}
        with ExitStack() as ending:
            for cell in (cell for cell in cells if not cell.note):
                who = cell.contender
                links[who] = self.link(who.partition(":")[0])
                ending.callback(links[who].close)
                self.check(cell, links[who].ask("make", cell.case, parts.get(who), cell.size, cell.text))
            able = [cell for cell in cells if not cell.note]
            for turn in range(self.options.rounds):
                for cell in random.Random(turn).sample(able, len(able)):
                    cell.samples.append(self.sample(links[cell.contender], cell.text))
        for cell in able:
            cell.rounds, cell.median = len(cell.samples), statistics.median(cell.samples)
            cell.low, cell.high = min(cell.samples), max(cell.samples)
        self.session.beside += cells
        self.session.say(report.group_text(cells))

    def sample(self, link: Link, scenario: str) -> float:
        """One sample, with the busy process beside it where the scenario has one."""
        if scenario == BUSY:
            self.busy.go_on()
        try:
            found: float = link.ask("sample", self.options.seconds)
        finally:
            self.busy.rest()
        return found

    def check(self, cell: Result, made: list[list[float]]) -> None:
        """Compare the results of a contender with those of PyTorch in float64."""
        cell.error = error([np.asarray(array) for array in made], self.reference(cell.case))
        if not cell.error <= TOLERANCE:
            cell.note = f"not timed, because it is wrong: error {cell.error:.1e}, allowed {TOLERANCE:.0e}"
            cell.wrong = cell.contender.startswith(OURS)

    def reference(self, name: str) -> list[Any]:
        """The arrays that two steps change, computed by PyTorch in float64."""
        if name not in self.expected:
            link = self.link(REFERENCE)
            try:
                made = link.ask("make", name, None, _machine.cores(), ALONE)
            finally:
                link.close()
            self.expected[name] = [np.asarray(array) for array in made]
        return self.expected[name]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0], bench=True)
    _apart.add_option(parser)
    parser.add_argument("--only", type=some_of(SEQUENCES), metavar="NAME,NAME", help=f"some of {', '.join(SEQUENCES)}")
    parser.add_argument(
        "--scenarios", type=some_of(SCENARIOS), metavar="NAME,NAME", help=f"some of {', '.join(SCENARIOS)}"
    )
    parser.add_argument("--threads", type=_numbers, metavar="N,N", help="default 1, the cores, and twice as many")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {ROUNDS}, {QUICK_ROUNDS} with --quick")
    parser.add_argument("--no-parts", action="store_true", help="leave out the parts of ours")
    options = parser.parse_args(argv)
    cores = _machine.cores()
    options.only = options.only or list(SEQUENCES)
    options.scenarios = options.scenarios or list(QUICK_SCENARIOS if options.quick else SCENARIOS)
    options.threads = options.threads or ([cores] if options.quick else sorted({1, cores, 2 * cores}))
    options.seconds = QUICK_SECONDS if options.quick else SECONDS
    if options.rounds is None:
        options.rounds = QUICK_ROUNDS if options.quick else ROUNDS
    if options.rounds < 1:
        parser.error(f"--rounds: at least one, got {options.rounds}")
    return options


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"there is at least one thread, got {text}")
    return numbers


def start(argv: Sequence[str], name: str) -> Link:
    """The process of the contender ``name``."""
    return Child(name, __file__, argv)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    options = parse(argv)
    if options.child:
        return _apart.serve(Desk(options.child))
    if not _primitives.has_torch():
        return _primitives.say_what_is_missing("company")
    session = Session("company", options, {"threads": "as told", "checked against": "PyTorch in float64"})
    busy = Busy()
    try:
        run = Run(session, partial(start, sys.argv[1:] if argv is None else argv), busy)
        for name in options.only:
            for scenario in options.scenarios:
                for threads in options.threads:
                    run.sequence(name, scenario, threads)
            if not options.no_parts:
                run.parts(name, _machine.cores())
    finally:
        busy.close()
    session.tables = report.tables(session.beside)
    return session.finish(report.verdicts(session.beside, _machine.cores()))


if __name__ == "__main__":
    sys.exit(main())
