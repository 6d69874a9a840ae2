"""This version against another one: what became slower, of all that the benchmarks measure of ours.

``FOLDER`` is a checkout of the other version (``git worktree add ../before v0.1``). The scripts of this one run with
the package of either, in a process each, and both are measured in turns. What seems slower than before is measured
again, twice, and the median of the three counts: of a thousand figures of a shared machine, some are wrong by chance.

    python benchmarks/versus.py ../before conv pool
    python benchmarks/versus.py ../before expressions --only softmax

What a setting costs is found in the same way, with this version on both sides:

    python benchmarks/versus.py . expressions --before NEONLIKE_CONTRACT=1
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from _apart import Apart, Child
from _cases import OURS, Effort, time_text
from _machine import commit_of
from _report import Form
from _suite import HERE, NOT_READY
from harness import QUICK, Session, arguments, run_case

NOW, BEFORE = "now", "before"
LEAST = 0.97
"""A case counts as slower if its time before divided by its time now is below this."""
AGAIN = 2
SUBJECTS = (
    "expressions", "optree_shapes", "autograd", "conv", "conv_shapes", "pool", "pool_shapes", "batchnorm", "lrn", "rnn",
    "gemm", "attention",
)  # fmt: skip
SIZES = {"expressions": ["--sizes", "64,4k,64k,1M,16M"]}
"""Options of a subject in a run that is not quick."""
FULL = Effort(sample=4e-3, min_rounds=5, max_rounds=15, budget=0.5, long=0.1)


@dataclass(frozen=True)
class Planned:
    """A case: the script and contender that make it, and the key they make it from."""

    subject: str
    contender: str
    key: tuple[Any, ...]

    @property
    def title(self) -> str:
        """Name of the case: its key without flags."""
        words = [str(part) for part in self.key if not isinstance(part, bool)]
        words += [self.contender] if self.contender != OURS else []
        return f"{self.subject}: {', '.join(words)}"


class Side(Child):
    """The process of one version, which calls its contender by the version's name.

    Parameters
    ----------
    name : str
    folder : Path
        Of the checkout.
    planned : Planned
        One of the cases it will be asked for.
    more : dict
        Variables of its environment.
    """

    def __init__(self, name: str, folder: Path, planned: Planned, more: dict[str, str]) -> None:
        self._contender = planned.contender
        script = HERE / f"{planned.subject}.py"
        super().__init__(planned.contender, script, [], {"PYTHONPATH": str(folder), **more})
        self.name = name

    def ask(self, verb: str, *given: Any) -> Any:
        """The answer to a request."""
        answer = super().ask(verb, *given)
        if verb == "check":
            mine = [r for r in answer["results"] if r["contender"] == self._contender]
            answer["results"] = [r | {"contender": self.name, "wrong": r["wrong"] and self.name == NOW} for r in mine]
        return answer


class Pairs(Form):
    """A line a case."""

    baseline = NOW

    def heading(self, size: int) -> str:
        """Titles of the columns."""
        return f"{'':72} {NOW:>9}  {BEFORE:>9}   {BEFORE} / {NOW}"


def schedule(options: argparse.Namespace) -> Iterator[Planned]:
    """The cases, those of one process behind each other."""
    for subject in options.subjects:
        for planned in _of(subject, options):
            if not options.only or any(text in planned.title for text in options.only.split(",")):
                yield planned


def _of(subject: str, options: argparse.Namespace) -> Iterator[Planned]:
    suite = importlib.import_module(subject).SUITE
    keys = suite.plan(suite.parse(["--quick"] if options.quick else SIZES.get(subject, [])))
    for contender in (name for name in suite.contenders if name.startswith(OURS)):
        for key in keys:
            yield Planned(subject, contender, key)


def compare(session: Session, apart: Apart, planned: Planned) -> float | None:
    """Measure a case: time before divided by the time now, or None. The result is added to ``session`` and shown."""
    ratios = []
    while not ratios or (len(ratios) <= AGAIN and statistics.median(ratios) < LEAST):
        results = run_case(apart.case(*planned.key), session.effort, baseline=NOW, copies=lambda nbytes: {})
        found = {r.contender: r for r in results}
        session.beside += results
        if found[BEFORE].ratio is None:
            session.say(f"{planned.title:72} {'; '.join(f'{r.contender}: {r.note}' for r in results if r.note)}")
            return None
        ratios.append(found[BEFORE].ratio)
    times = "  ".join(f"{time_text(found[name].median or 0.0):>9}" for name in (NOW, BEFORE))
    ratio = statistics.median(ratios)
    session.say(f"{planned.title:72} {times}   {ratio:.2f}{'  slower' if ratio < LEAST else ''}")
    return ratio


def run(session: Session) -> dict[Planned, float]:
    """Measure every case that the options select in both versions."""
    ratios: dict[Planned, float] = {}
    session.say(session.form.heading(0))
    for _, group in groupby(schedule(session.options), lambda planned: (planned.subject, planned.contender)):
        cases = list(group)
        with Apart((NOW, BEFORE), partial(start, session.options, cases[0])) as apart:
            for planned in cases:
                try:
                    ratio = compare(session, apart, planned)
                except RuntimeError as why:  # one of the versions does not know it
                    session.skip(f"{planned.title}: left out, {str(why).splitlines()[-1]}")
                    continue
                if ratio is not None:
                    ratios[planned] = ratio
    return ratios


def start(options: argparse.Namespace, planned: Planned, name: str) -> Side:
    """The process of the version ``name``."""
    folder, more = (HERE.parent, {}) if name == NOW else (options.folder, options.before)
    return Side(name, folder, planned, more)


def verdicts(ratios: dict[Planned, float]) -> list[str]:
    """Geometric means by subject, and all cases that became slower."""
    lines = []
    for subject in dict.fromkeys(planned.subject for planned in ratios):
        here = [ratio for planned, ratio in ratios.items() if planned.subject == subject]
        slower = sum(ratio < LEAST for ratio in here)
        lines.append(
            f"{subject}: {statistics.geometric_mean(here):.3f} times as fast as before on the geometric mean of "
            f"{len(here)} cases; {slower} more than {1 - LEAST:.0%} slower"
        )
    slow = sorted((ratio, planned.title) for planned, ratio in ratios.items() if ratio < LEAST)
    return lines + [f"    {title}: {ratio:.2f}" for ratio, title in slow]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    return name, value


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="checkout of the version to compare with")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"some of {', '.join(SUBJECTS)}; default: all")
    parser.add_argument("--only", metavar="TEXT,TEXT", help="cases whose title has one of these in it")
    parser.add_argument(
        "--before", type=_variable, action="append", default=[], metavar="NAME=VALUE",
        help="a variable in the environment of the other version's processes",
    )  # fmt: skip
    options = parser.parse_args(argv)
    options.before = dict(options.before)
    options.subjects = options.subjects or list(SUBJECTS)
    if unknown := [name for name in options.subjects if name not in SUBJECTS]:
        parser.error(f"no subject {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    options.folder = options.folder.resolve()
    if not (options.folder / "neonlike").is_dir():
        parser.error(f"{options.folder} is no checkout: it has no folder neonlike")
    if not any(schedule(options)):
        parser.error(f"no case of {', '.join(options.subjects)} has {options.only} in its title")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result was wrong, 2 if a version does not start."""
    options = parse(argv)
    variables = [f"{name}={value}" for name, value in options.before.items()]
    facts = {"before": " ".join([commit_of(options.folder) or options.folder.name, *variables])}
    some = [] if options.subjects == list(SUBJECTS) else options.subjects
    subject = " ".join(["versus", *some, *variables])
    session = Session(subject, options, facts, Pairs(), QUICK if options.quick else FULL)
    try:
        ratios = run(session)
    except RuntimeError as why:
        print(f"nothing to compare: {why}", file=sys.stderr)
        return NOT_READY
    return session.finish(verdicts(ratios))


if __name__ == "__main__":
    sys.exit(main())
