"""Training steps of variables against PyTorch eager and JAX: perceptrons, dropout, encoders, bare operations.

Each network of ``_trained.py`` is one function of a library's operations (``_trainers.py``), so that all compute the
same, from the same weights and data. A step is forward, the loss, which is read, backward, and momentum. JAX compiles
all of it; PyTorch and variables are defined by running. Losses and what steps change are compared with PyTorch in
float64 before anything is timed. ``--quick``: a size of each, under a minute. Libraries that are not there are named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import _suite
import _trainers
import numpy as np
from _cases import OURS, Case, Contender, Effort, Result, geometric_mean, met, takes, time_text
from _libraries import set_torch_up
from _report import Form
from _steps import Steps, StepSuite, groups, ours
from _suite import Key, Suite, numbers
from _trained import TRAINED
from harness import Session, some_of

from neonlike.kernels.run.threads import thread_count

PEERS: dict[str, Callable[..., Any]] = {"torch": _trainers.Torch, "jax": _trainers.Jax}
STEPS = 4
"""Steps whose losses are compared, after a first one; the later ones use the momentum that the earlier made."""

TOLERANCE = 5e-3
"""Largest error of losses and of what steps changed, relative to the largest value of each array.

Rounding decides about rectifiers whose argument is close to 0: of the perceptron with 128 samples, changes differ by
2e-3 from those in float64, PyTorch's and JAX's in float32 as ours.
"""

QUICK_BATCHES = {"mlp": 64, "small mlp": 64, "dropout": 64, "encoder 64": 8, "chain": 1}
EAGER = "torch"
"""The peer that targets are about: it is defined by running too."""

LARGE, EACH_LARGE, EACH_SMALL = 64, 1.2, 1.0
"""Time of PyTorch eager divided by ours, at least, in minibatches of so many samples or more, and in others."""

OVERHEAD = 10e-6
"""Seconds that an operation on a few elements may take, forward and backward together."""


@contextmanager
def in_float64() -> Iterator[Callable[..., Any]]:
    """A maker of trainers of variables in float64."""
    from neonlike.backends import gen_backend

    with gen_backend("cpu", rng_seed=0, datatype=np.float64) as be:
        yield partial(_trainers.Ours, be=be)


def after_a_step(make: Callable[..., Any], name: str, N: int) -> list[Any]:
    """Losses and changes, after a first step."""
    made = make(TRAINED[name][0], N)
    made.step()
    found: list[Any] = made.result(STEPS)
    return found


def operations(result: Result) -> int:
    """How many operations a step has, in cases that are about these; else 0."""
    return TRAINED[result.case][0].operations


class Autograd(StepSuite):
    """A key is a network and a minibatch; a step is timed as any call, and contenders keep their processes."""

    name, text = "autograd", f"{__doc__}"
    contenders, libraries = (OURS, *PEERS), tuple(PEERS)
    efforts = (
        Effort(sample=0.03, min_rounds=3, max_rounds=5, budget=1.0, long=0.2),
        Effort(sample=0.1, min_rounds=5, max_rounds=11, budget=5.0, long=0.2),
    )
    keeps_reference = True
    effort = Suite.effort

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", type=some_of(TRAINED), metavar="NAME,NAME", help=f"some of {', '.join(TRAINED)}")
        parser.add_argument("--batches", type=numbers, metavar="N,N", help="of the networks; default: some of each")

    settle = Suite.settle

    def plan(self, options: argparse.Namespace) -> list[Key]:
        planned = []
        for name in options.only or (QUICK_BATCHES if options.quick else TRAINED):
            known = TRAINED[name][1]
            if options.quick and name in QUICK_BATCHES:
                known = (QUICK_BATCHES[name],)
            planned += [(name, N) for N in (options.batches if options.batches and known != (1,) else known)]
        return planned

    def set_up(self, who: str, options: argparse.Namespace) -> None:
        if who.startswith("torch"):
            set_torch_up(thread_count())

    def truth(self, options: argparse.Namespace, *key: Any) -> list[list[float]]:
        """By PyTorch where it is installed, else by variables."""
        if _suite.installed("torch"):
            set_torch_up(thread_count())
            return [array.tolist() for array in after_a_step(partial(_trainers.Torch, double=True), *key)]
        with in_float64() as own:
            return [array.tolist() for array in after_a_step(own, *key)]

    def make(self, be: Any, who: str, name: str, N: int, expected: Any = None) -> Case:
        """A network's step; without results that are expected, variables in float64 say what is right."""
        net = TRAINED[name][0]
        made = self.trainer(be, who)(net, N)
        contender = Contender(who, made.step, lambda: made.result(STEPS), ours=who == OURS)

        def reference() -> list[Any]:
            if expected is not None:
                return [np.asarray(array, np.float64) for array in expected]
            with in_float64() as own:
                return after_a_step(own, name, N)

        return Case(name, net.text, N, [contender], reference, tolerance=TOLERANCE)

    def trainer(self, be: Any, who: str) -> Callable[..., Any]:
        """The class of trainers of a contender."""
        return partial(_trainers.Ours, be=be) if who == OURS else PEERS[who]

    def also(self, argv: Sequence[str], key: Key) -> Key:
        return (self.expected(argv, key),)

    def measure(self, session: Session, argv: Sequence[str]) -> None:
        try:
            Suite.measure(self, session, argv)
        finally:
            self.close()

    def facts(self, options: argparse.Namespace) -> dict[str, str]:
        return {
            "threads": f"{thread_count()} for everyone",
            "PyTorch's results": "in memory used before",
            "checked against": f"{'PyTorch' if _suite.installed('torch') else 'variables'} in float64",
        }

    def form(self, options: argparse.Namespace) -> Form:
        tables = ("A training step", "Operations on 4x4 elements, forward and backward")
        each = lambda r: time_text(r.median / operations(r)) if operations(r) and r.median else ""  # noqa: E731
        return Steps(
            about=lambda r: f"{r.case}, N = {r.size}: {r.text}",
            table_of=lambda r: tables[bool(operations(r))],
            titles=("", "N"),
            row=lambda r: (f"{r.case}: {r.text}", str(r.size)),
            more={"an operation": each},
        )

    def verdicts(self, session: Session) -> list[str]:
        return verdicts(session.beside)


def verdicts(results: Sequence[Result]) -> list[str]:
    """All targets that this run says something about."""
    cases = groups(results, lambda r: (r.case, r.size))
    steps = {key: cells for key, cells in cases.items() if not operations(cells[0])}
    lines = []
    for (name, N), cells in steps.items():
        if ratio := next((cell.ratio for cell in cells if cell.contender == EAGER), None):
            lines.append(f"{name}, N = {N}: {takes(EAGER, ratio, EACH_LARGE if N >= LARGE else EACH_SMALL)}")
    for large, words in ((True, f"N >= {LARGE}"), (False, f"N < {LARGE}")):
        here = [r for (_, N), cells in steps.items() if (N >= LARGE) == large for r in cells if r.contender != OURS]
        for who, cells in groups(here, lambda r: r.contender).items():
            if found := geometric_mean(r.ratio for r in cells):
                mean, count = found
                lines.append(f"training steps, {words}, geometric mean over {count}: {takes(who, mean)}")
    return lines + [line for cells in cases.values() if operations(cells[0]) for line in _operation(cells)]


def _operation(cells: Sequence[Result]) -> list[str]:
    first, count = ours(cells), operations(cells[0])
    if first is None or first.median is None:
        return []
    each = first.median / count
    peers = [cell for cell in cells if cell is not first]
    others = [f", {cell.contender} {time_text(cell.median / count)}" for cell in peers if cell.median is not None]
    return [
        f"{first.case}: {time_text(each)} an operation, forward and backward{''.join(others)} "
        f"(target < {time_text(OVERHEAD)}): {met(each < OVERHEAD)}"
    ]


SUITE = Autograd()

if __name__ == "__main__":
    sys.exit(SUITE.main())
