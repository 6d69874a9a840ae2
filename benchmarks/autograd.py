"""Training steps of variables against PyTorch eager and JAX: perceptrons, transformer encoders, bare operations.

Each network of ``_trained.py`` is one function of a library's operations (``_trainers.py``), so that all compute the
same, from the same weights and data. A step is forward, the loss, which is read, backward, and momentum. JAX compiles
all of it; PyTorch and variables are defined by running. Losses and what steps change are compared with PyTorch in
float64 before anything is timed. ``--quick``: a size of each, under a minute. Libraries that are not there are named.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import _apart
import _primitives
import _trained_report as report
import _trainers
import numpy as np
from _apart import Apart, Child, Desk, Link
from _cases import Case, Contender, Effort, Result
from _primitives import numbers
from _terms import NOT_INSTALLED, OURS
from _trained import TRAINED
from harness import Session, arguments, run_case, some_of

from neonlike.kernels.run.threads import thread_count

REFERENCE = "reference"
PEERS: dict[str, Callable[..., Any]] = {"torch": _trainers.Torch, "jax": _trainers.Jax}
STEPS = 4
"""Steps whose losses are compared, after a first one; the later ones use the momentum that the earlier made."""

TOLERANCE = 5e-3
"""Largest error of losses and of what steps changed, relative to the largest value of each array.

Rounding decides about rectifiers whose argument is close to 0: of the perceptron with 128 samples, changes differ by
2e-3 from those in float64, PyTorch's and JAX's in float32 as ours.
"""

QUICK_BATCHES = {"mlp": 64, "small mlp": 64, "encoder 64": 8, "chain": 1}
FULL = Effort(sample=0.1, min_rounds=5, max_rounds=11, budget=5.0, long=0.2)
QUICK = Effort(sample=0.03, min_rounds=3, max_rounds=5, budget=1.0, long=0.2)


# In the process of a contender ----------------------------------------------------------------------------------


def make_case(who: str, make: Callable[..., Any], name: str, N: int, expected: Any = None) -> Case:
    """A network's step by the contender ``who``.

    ``expected`` is what :meth:`_trainers.Trainer.result` is to be after a first step; without it, variables in float64
    say so.
    """
    net, _ = TRAINED[name]
    made = make(net, N)
    contender = Contender(who, made.step, lambda: made.result(STEPS), ours=who == OURS)

    def reference() -> list[Any]:
        if expected is not None:
            return [np.asarray(array, np.float64) for array in expected]
        with in_float64() as own:
            return after_a_step(own, name, N)

    return Case(name, net.text, N, [contender], reference, 0, TOLERANCE)


def after_a_step(make: Callable[..., Any], name: str, N: int) -> list[Any]:
    """What :meth:`_trainers.Trainer.result` is then."""
    made = make(TRAINED[name][0], N)
    made.step()
    found: list[Any] = made.result(STEPS)
    return found


@contextmanager
def in_float64() -> Iterator[Callable[..., Any]]:
    """What makes trainers of variables in float64."""
    from neonlike.backends import gen_backend

    with gen_backend("cpu", rng_seed=0, datatype=np.float64) as be:
        yield partial(_trainers.Ours, be=be)


class Reference:
    """The desk of the process that says what is right.

    Parameters
    ----------
    make : callable
        Makes a trainer in float64.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def result(self, name: str, N: int) -> list[list[float]]:
        """Losses and changes, after a first step."""
        return [array.tolist() for array in after_a_step(self._make, name, N)]


@contextmanager
def desk(name: str) -> Iterator[Any]:
    """The desk of the process of contender ``name``, or of the reference: PyTorch where it is installed, else ours."""
    from neonlike.backends import gen_backend

    if name.startswith("torch") or (name == REFERENCE and installed("torch")):
        _primitives.set_torch_up()
    if name in PEERS:
        yield Desk(partial(make_case, name, PEERS[name]))
    elif name == REFERENCE and installed("torch"):
        yield Reference(partial(PEERS["torch"], double=True))
    elif name == REFERENCE:
        with in_float64() as own:
            yield Reference(own)
    else:
        with gen_backend("cpu", rng_seed=0) as be:
            yield Desk(partial(make_case, OURS, partial(_trainers.Ours, be=be)), {"engine": be.engine.name})


# A run ----------------------------------------------------------------------------------------------------------


def installed(name: str) -> bool:
    """Whether there is a library of this name; nothing is imported."""
    return importlib.util.find_spec(name) is not None


def schedule(options: argparse.Namespace) -> list[tuple[str, int]]:
    """(network, minibatch) to measure."""
    chosen = options.only or (QUICK_BATCHES if options.quick else TRAINED)
    planned = []
    for name in chosen:
        known = TRAINED[name][1]
        if options.quick and name in QUICK_BATCHES:
            known = (QUICK_BATCHES[name],)
        planned += [(name, N) for N in (options.batches if options.batches and known != (1,) else known)]
    return planned


def measure(session: Session, apart: Apart, reference: Link, name: str, N: int, absent: Sequence[str]) -> None:
    """Check, measure and show one case."""
    case = apart.case(name, N, reference.ask("result", name, N))
    results = run_case(case, session.effort, baseline=OURS, copies=lambda nbytes: {})
    results += [Result(case.name, case.text, N, who, note=NOT_INSTALLED) for who in absent]
    session.beside += results
    session.say(report.case_text(results))


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0], bench=True)
    _apart.add_option(parser)
    parser.add_argument("--only", type=some_of(TRAINED), metavar="NAME,NAME", help=f"some of {', '.join(TRAINED)}")
    parser.add_argument("--batches", type=numbers, metavar="N,N", help="of the networks; default: some of each")
    return parser.parse_args(argv)


def start(argv: Sequence[str], name: str) -> Link:
    """The process of the contender ``name``, or of the reference."""
    return Child(name, __file__, argv)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong."""
    options = parse(argv)
    if options.child:
        with desk(options.child) as answers:
            return _apart.serve(answers)
    absent = [name for name in PEERS if not installed(name)]
    link = partial(start, sys.argv[1:] if argv is None else argv)
    with Apart([OURS, *(name for name in PEERS if name not in absent)], link) as apart:
        facts = apart.facts | {
            "threads": f"{thread_count()} for everyone",
            "PyTorch's results": "in memory used before",
            "checked against": f"{'PyTorch' if installed('torch') else 'variables'} in float64",
        }
        session = Session("autograd", options, facts, effort=QUICK if options.quick else FULL)
        reference = link(REFERENCE)
        try:
            for name, N in schedule(options):
                measure(session, apart, reference, name, N, absent)
        finally:
            reference.close()
    session.tables = report.tables(session.beside)
    return session.finish(report.verdicts(session.beside))


if __name__ == "__main__":
    sys.exit(main())
