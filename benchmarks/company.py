"""Sequences of calls as networks make them, against PyTorch, alone and in company.

This is what timing single kernels cannot see. A training step, the same kinds of calls bare, a convolution with all
around it, and a recurrent layer, on one thread, on all cores, and on twice as many threads: *alone*; *busy*, beside
a process that computes all the time; *after NumPy* and *after PyTorch*, where before each step a call of somebody else
in the same process leaves its own threads spinning. Every figure comes from a process of its own. Without PyTorch the
exit status is 2. ``python benchmarks/company.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import _machine
import numpy as np
from _apart import Busy, Desk
from _cases import LEFT_OUT, OURS, Case, Result, markdown, met, takes, time_text, times
from _contenders import SLOW_TO_COMPILE
from _libraries import set_torch_up
from _report import Form
from _sequences import SEQUENCES, Made
from _steps import REFERENCE, STEPS, Step, Steps, StepSuite, best_peer, groups, in_steps, sample, some
from _suite import Key, numbers
from harness import Session, some_of

TOLERANCE = 1e-3
"""Largest relative error of float32 results after two steps."""

FOREIGN = 512
"""Rows and columns of the matrix product that another library computes before a step."""

LEAST = 3
"""Fewest steps of a sample; as many untimed steps come before it."""

ALONE, BUSY, AFTER_NUMPY, AFTER_TORCH = "alone", "busy", "after NumPy", "after PyTorch"
SCENARIOS = {
    ALONE: "Alone",
    BUSY: "Beside a process that computes all the time",
    AFTER_NUMPY: "Each step after a product of NumPy",
    AFTER_TORCH: "Each step after a product of PyTorch",
}
QUICK_SCENARIOS = (ALONE, BUSY)
PARTS = "Each part of ours alone in a process"
WHOLE = f"{OURS}: whole"
"""The contender that runs the whole sequence in turns with its parts, each of which is a contender too."""

STEP = "mlp"
"""The sequence that has a target against PyTorch, and is compiled by it in a quick run."""

STEP_TARGETS = {ALONE: 1.15, BUSY: 1.0}
"""Time of the faster of PyTorch's ways divided by ours, at least."""

PARTS_TARGET = 1.1
"""Time of the whole divided by the sum of its parts, each alone in a process, at most."""

FAIR_TARGET = 1.5
"""Time beside a busy process divided by that alone, as a multiple of what a fair share of the cores would make it."""


# In the process of a contender ----------------------------------------------------------------------------------


def make_ours(sequence: str, threads: int) -> Made:
    """Ours, on a backend that the process keeps."""
    from neonlike.backends import gen_backend

    be = gen_backend("cpu", rng_seed=0)
    be.num_threads = threads
    return SEQUENCES[sequence].ours(be, SEQUENCES[sequence].operands())


def make_torch(name: str, sequence: str, threads: int) -> Made:
    """PyTorch's; the reference is in float64."""
    set_torch_up(threads, gradients=True)
    import _sequences_torch as steps

    return steps.STEPS[sequence](steps.Way(name, double=name == REFERENCE), SEQUENCES[sequence].operands())


def numpy_product() -> Step:
    """A NumPy matrix product; the threads of its BLAS spin for a while after it."""
    a, out = np.ones((FOREIGN, FOREIGN), np.float32), np.empty((FOREIGN, FOREIGN), np.float32)
    return lambda: np.matmul(a, a, out)


def torch_product() -> Step:
    """A PyTorch matrix product; its threads spin for a while after it."""
    import torch

    a = torch.ones(FOREIGN, FOREIGN)
    return lambda: torch.mm(a, a)


FOREIGNERS: dict[str, Callable[[], Step]] = {AFTER_NUMPY: numpy_product, AFTER_TORCH: torch_product}


class CompanyDesk(Desk):
    """The desk of a contender, who also tells the parts of a sequence."""

    def parts(self, sequence: str) -> list[str]:
        """Names of the parts of ours."""
        return list(make_ours(sequence, 1).parts)


# A run ----------------------------------------------------------------------------------------------------------


class Company(StepSuite):
    """A key is a sequence, a scenario and a number of threads."""

    name, text = "company", f"{__doc__}"
    needs_torch = True
    busy: Any = None
    """The process beside which steps are measured."""

    def options(self, parser: argparse.ArgumentParser) -> None:
        super().options(parser)
        for name, known in (("only", SEQUENCES), ("scenarios", SCENARIOS)):
            text = f"some of {', '.join(known)}"
            parser.add_argument(f"--{name}", type=some_of(known), metavar="NAME,NAME", help=text)
        parser.add_argument("--threads", type=numbers, metavar="N,N", help="default 1, the cores, and twice as many")
        parser.add_argument("--no-parts", action="store_true", help="leave out the parts of ours")

    def settle(self, options: argparse.Namespace) -> str:
        cores = _machine.cores()
        options.only = options.only or list(SEQUENCES)
        options.scenarios = options.scenarios or list(QUICK_SCENARIOS if options.quick else SCENARIOS)
        options.threads = options.threads or ([cores] if options.quick else sorted({1, cores, 2 * cores}))
        return super().settle(options)

    def plan(self, options: argparse.Namespace) -> list[Key]:
        keys = []
        for name in options.only:
            keys += [(name, scenario, threads) for scenario in options.scenarios for threads in options.threads]
            if not options.no_parts:
                keys.append((name, PARTS, _machine.cores()))
        return keys

    def same(self, key: Key) -> Key:
        return key[:1]

    def truth(self, options: argparse.Namespace, *key: Any) -> list[list[float]]:
        made = make_torch(REFERENCE, key[0], _machine.cores())
        for _ in range(STEPS):
            made.call()()
        return [some(array) for array in made.result()]

    @contextmanager
    def desk(self, options: argparse.Namespace, who: str) -> Iterator[Any]:
        if who == REFERENCE:
            with super().desk(options, who) as desk:
                yield desk
        else:
            yield CompanyDesk(partial(self.make, options.seconds, who))

    def make(self, seconds: float, who: str, name: str, scenario: str, threads: int, expected: Any) -> Case:
        made = make_ours(name, threads) if who.startswith(OURS) else make_torch(who, name, threads)
        part = who.partition(": ")[2] if who != WHOLE else ""
        before = FOREIGNERS[scenario]() if scenario in FOREIGNERS else None
        sampled = partial(sample, made.call(part or None), seconds, LEAST, before, LEAST)
        contender = replace(in_steps(who, made.call(), made.result, sampled), tolerance=TOLERANCE)
        return Case(name, scenario, threads, [contender], lambda: [np.asarray(array) for array in expected])

    def taking_part(self, key: Key, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
        name, scenario, _ = key
        if scenario == PARTS:
            link = self.start(self.argv, OURS)
            try:
                return [WHOLE, *(f"{OURS}: {part}" for part in link.ask("parts", name))], {}
            finally:
                link.close()
        peers = SEQUENCES[name].peers
        late = [who for who in peers if options.quick and name != STEP and who in SLOW_TO_COMPILE]
        note = f"{LEFT_OUT} but for {STEP}, compiling takes seconds"
        return [OURS, *(who for who in peers if who not in late)], dict.fromkeys(late, note)

    def judge(self, case: Case) -> None:
        """In the scenario that has one, the busy process goes on during each sample."""

        def beside(sampled: Callable[[], float]) -> float:
            self.busy.go_on()
            try:
                return sampled()
            finally:
                self.busy.rest()

        if case.text == BUSY:
            case.contenders = [replace(c, sample=partial(beside, c.sample)) for c in case.contenders]

    def measure(self, session: Session, argv: Sequence[str]) -> None:
        self.argv, self.busy = argv, Busy()
        try:
            super().measure(session, argv)
        finally:
            self.busy.close()

    def facts(self, options: argparse.Namespace) -> dict[str, str]:
        return {"threads": "as told", "checked against": "PyTorch in float64"}

    def form(self, options: argparse.Namespace) -> Form:
        return CompanyForm(
            about=lambda r: f"{r.case}, {r.text}, {threads_text(r.size)}: {SEQUENCES[r.case].text}",
            table_of=lambda r: SCENARIOS.get(r.text, ""),
            titles=("sequence", "threads"),
            row=lambda r: (r.case, str(r.size)),
        )

    def verdicts(self, session: Session) -> list[str]:
        return verdicts(session.beside, _machine.cores())


class CompanyForm(Steps):
    """The tables of all scenarios, and one of parts."""

    def tables(self, results: Sequence[Result]) -> dict[str, list[str]]:
        made = super().tables(results)
        rows = [
            [r.case, r.contender.partition(": ")[2], str(r.size), *map(time_text, (r.median, r.low, r.high))]
            for r in results
            if r.text == PARTS
        ]
        if rows:
            made[PARTS] = markdown(["sequence", "part", "threads", "time", "from", "to"], rows)
        return made


def threads_text(threads: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{threads} thread{'s' * (threads > 1)}"


# Verdicts -------------------------------------------------------------------------------------------------------


def fair(threads: int, cores: int) -> float:
    """How many times as long so many threads take beside one more, if every thread gets an equal share of the cores."""
    beside = min(1.0, cores / (threads + 1))
    return min(threads, cores) / (threads * beside)


def verdicts(results: Sequence[Result], cores: int) -> list[str]:
    """All targets that this run says something about: against PyTorch, whole and parts, beside other processes."""
    by_key = groups([r for r in results if r.median is not None], lambda r: (r.text, r.case, r.size))
    found = {key: {r.contender: r for r in here} for key, here in by_key.items()}
    lines = []
    for scenario in SCENARIOS:
        for (_, case, threads), by_name in ((key, here) for key, here in found.items() if key[0] == scenario):
            best = best_peer(list(by_name.values()))
            ratio = times(by_name.get(OURS), best)
            if best is not None and ratio is not None:
                target = STEP_TARGETS.get(scenario) if case == STEP else None
                lines.append(f"{case}, {scenario}, {threads_text(threads)}: {takes(best.contender, ratio, target)}")
    for (scenario, case, threads), by_name in found.items():
        lines += _parts(case, threads, by_name) if scenario == PARTS else []
    for case, threads in dict.fromkeys(key[1:] for key in found):
        ours = {scenario: found.get((scenario, case, threads), {}).get(OURS) for scenario in SCENARIOS}
        lines += _company(case, threads, {name: r for name, r in ours.items() if r is not None}, cores)
    return lines


def _parts(case: str, threads: int, by_name: dict[str, Result]) -> list[str]:
    parts = [r.median or 0.0 for name, r in by_name.items() if name != WHOLE]
    whole = by_name[WHOLE].median if WHOLE in by_name else None
    if not parts or whole is None:
        return []
    share = whole / sum(parts)
    return [
        f"{case}, {threads_text(threads)}: the whole takes {time_text(whole)}, its {len(parts)} parts alone together "
        f"{time_text(sum(parts))}: {share:.2f} times as long (target <= {PARTS_TARGET}): {met(share <= PARTS_TARGET)}"
    ]


def _company(case: str, threads: int, ours: dict[str, Result], cores: int) -> list[str]:
    """Our time beside other processes, divided by our time alone."""
    lines = []
    for scenario, result in ours.items():
        if scenario == ALONE or ALONE not in ours:
            continue
        longer = (result.median or 0.0) / (ours[ALONE].median or 1.0)
        line = f"{case}, {scenario}, {threads_text(threads)}: ours takes {longer:.2f} times as long as alone"
        if scenario == BUSY:
            share = fair(threads, cores)
            line += f", {longer / share:.2f} of a fair share's {share:.2f} (target <= {FAIR_TARGET}): "
            line += met(longer / share <= FAIR_TARGET)
        lines.append(line)
    return lines


SUITE = Company()

if __name__ == "__main__":
    sys.exit(SUITE.main())
