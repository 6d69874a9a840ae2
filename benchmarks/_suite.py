"""A suite: the cases of a script, its contenders in processes of their own, and one way to run them.

A script subclasses :class:`Suite` and ends in ``sys.exit(SUITE.main())``. A case is a key of plain values: the script
plans the keys, and the process of each contender makes the case of a key with itself as the only contender.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import _machine
from _apart import Apart, Child, Desk, Link, serve
from _cases import NOT_INSTALLED, OURS, Case, Effort
from _report import Form
from harness import QUICK, Session, arguments

Key = tuple[Any, ...]
HERE = Path(__file__).resolve().parent
NOT_READY = 2
"""Exit status without PyTorch, or without a GPU, where nothing can be measured without it."""

SPARE = 0.85
"""Share of the free memory that a case may take."""


def installed(name: str) -> bool:
    """Whether there is a library of this name; nothing is imported."""
    return importlib.util.find_spec(name) is not None


def numbers(text: str) -> tuple[int, ...]:
    """The type of an option that takes positive numbers with commas between them."""
    found = tuple(int(part) for part in text.split(","))
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {text}")
    return found


def lacks_memory(title: str, need: int, spare: float = SPARE) -> str:
    """Why a case is left out; empty if there is memory enough, or nobody can tell."""
    free = _machine.free_memory()
    if free is None or need <= spare * free:
        return ""
    return f"{title}: left out, as it needs about {need / 2**30:.0f} GiB of memory and {free / 2**30:.0f} GiB are free"


class Suite:
    """The cases of a script, and the way to measure them.

    Attributes
    ----------
    name : str
        Of the script and of its section of RESULTS.md.
    text : str
        The script's docstring.
    contenders : sequence of str
        Those whose names begin with ours get a backend.
    efforts : (Effort, Effort)
        Of a quick run, and of a full one.
    libraries : sequence of str
        Libraries whose contenders are named and left out where they are not installed.
    needs_torch : bool
        Without PyTorch there is nothing to compare with.
    """

    name = text = ""
    contenders: Sequence[str] = (OURS,)
    efforts: tuple[Effort, Effort] = (QUICK, Effort())
    libraries: Sequence[str] = ()
    needs_torch = False

    # To be filled in ----------------------------------------------------------------------------------------------

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add the script's own options."""

    def settle(self, options: argparse.Namespace) -> str:
        """Fill in what options leave open; the text of an error, if there is one."""
        return "" if self.plan(options) else f"no case has {options.only} in its name"

    def plan(self, options: argparse.Namespace) -> list[Key]:
        """The keys of the cases to measure."""
        raise NotImplementedError

    def make(self, be: Any, who: str, *key: Any) -> Case:
        """The case of a key with one contender; ``be`` is a backend for ours."""
        raise NotImplementedError

    def taking(self, options: argparse.Namespace) -> Sequence[str]:
        """The contenders of a run."""
        return self.contenders

    def set_up(self, who: str, options: argparse.Namespace) -> None:
        """Set up a peer's library in its process."""

    def settings(self, who: str, options: argparse.Namespace) -> dict[str, Any]:
        """Settings of the backend of one of ours."""
        return {}

    def fits(self, *key: Any) -> str:
        """Why a case is left out, such as for lack of memory; else empty."""
        return ""

    def form(self, options: argparse.Namespace) -> Form:
        """How results are shown."""
        return Form()

    def facts(self, options: argparse.Namespace) -> dict[str, str]:
        """Facts added to the description of the machine."""
        return {"threads": f"{_machine.cores()} for everyone"}

    def before(self, session: Session, index: int) -> None:
        """Called before each case."""

    def verdicts(self, session: Session) -> list[str]:
        """A line for each target of a run: met or missed."""
        return []

    # The run ------------------------------------------------------------------------------------------------------

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The command line."""
        parser = arguments(self.text.partition("\n")[0], bench=True)
        parser.add_argument("--child", metavar="NAME", help=argparse.SUPPRESS)
        self.options(parser)
        options = parser.parse_args(argv)
        if why := self.settle(options):
            parser.error(why)
        return options

    @contextmanager
    def desk(self, options: argparse.Namespace, who: str) -> Iterator[Any]:
        """The desk of the process of contender ``who``: it makes, checks and times cases."""
        self.set_up(who, options)
        if not who.startswith(OURS):
            yield Desk(partial(self.make, None, who))
            return
        from neonlike.backends import gen_backend

        with gen_backend("cpu", rng_seed=0, **self.settings(who, options)) as be:
            yield Desk(partial(self.make, be, who), {"engine": be.engine.name})

    def start(self, argv: Sequence[str], who: str) -> Link:
        """The process of the contender ``who``."""
        return Child(who, HERE / f"{self.name}.py", argv)

    def measure(self, session: Session, argv: Sequence[str]) -> None:
        """Measure all that the options ask for, each contender in one process."""
        absent = {name: NOT_INSTALLED for name in self.libraries if not installed(name)}
        able = [name for name in self.taking(session.options) if name not in absent]
        with Apart(able, partial(self.start, argv)) as apart:
            session.tell(apart.facts)
            for index, key in enumerate(self.plan(session.options)):
                self.before(session, index)
                if why := self.fits(*key):
                    session.skip(why)
                    continue
                session.run(apart.case(*key, *self.also(argv, key)), absent)

    def effort(self, options: argparse.Namespace) -> Effort:
        """How long to measure a case."""
        return self.efforts[0 if options.quick else 1]

    def subject(self, options: argparse.Namespace) -> str:
        """Section of RESULTS.md."""
        return self.name

    def ready(self, options: argparse.Namespace) -> bool:
        """Whether a run is possible; if not, the user is told why."""
        if not self.needs_torch or installed("torch"):
            return True
        text = f"benchmarks/{self.name}.py compares with PyTorch, which is not installed: pip install .[bench-torch]"
        print(text, file=sys.stderr)
        return False

    def also(self, argv: Sequence[str], key: Key) -> Key:
        """Arguments for the processes beside the key."""
        return ()

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run what the command line asks for; the status is 1 if a result of ours was wrong, 2 without PyTorch."""
        argv = sys.argv[1:] if argv is None else argv
        options = self.parse(argv)
        if options.child:
            with self.desk(options, options.child) as desk:
                return serve(desk)
        if not self.ready(options):
            return NOT_READY
        session = Session(self.subject(options), options, self.facts(options), self.form(options), self.effort(options))
        self.measure(session, argv)
        return session.finish(self.verdicts(session))
