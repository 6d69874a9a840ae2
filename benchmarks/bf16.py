"""Products, convolutions, attention, unrolls and training steps in bfloat16 on a CPU, against PyTorch's faster way.

Each part is a script of its own, run with ``--precision bfloat16``; with ``--results`` it writes its own section too.
PyTorch's ways are autocast on float32 tensors, and tensors of bfloat16; ours are float32 tensors whose products are in
bfloat16, and tensors of bfloat16. Training steps have the first of each. The summary has geometric means of the faster
ways, the slowest case, and how long ours takes in float32. ``--quick``: some cases of each part.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import models
from _cases import OURS, Result, geometric_mean, markdown, met, text, times
from _precision import BFLOAT16, IN_FLOAT32, LEAST, facts
from _report import Form
from _steps import best_peer, groups, ours
from _suite import HERE, Key, Suite
from harness import Session, some_of


@dataclass(frozen=True)
class Part:
    """A script and its arguments; targets: the least geometric mean, and the least ratio of a case, if there is one."""

    script: str
    arguments: Sequence[str] = ()
    least: float = LEAST
    each: float | None = None


PARTS = {
    "products": Part("gemm_shapes", ("--list", "all")),
    "convolutions of shapes": Part("conv_shapes"),
    "convolutions of networks": Part("conv", ("--batches", "32")),
    "attention": Part("attention"),
    "LSTM": Part("rnn", ("--only", "lstm")),
    "training steps": Part("models", ("--modes", models.TRAINING), models.ALL_HALF, models.EACH),
}


@dataclass
class Line:
    """A line of the summary: a direction of a part, ratios and gains by case."""

    part: str
    direction: str
    ratios: dict[str, float | None] = field(default_factory=dict)
    gains: list[float | None] = field(default_factory=list)

    @property
    def lowest(self) -> tuple[float, str]:
        """The least ratio, and its case."""
        return min((ratio, case) for case, ratio in self.ratios.items() if ratio is not None)

    def cells(self) -> list[str]:
        """Its row of the table; ``-`` for what was not measured."""
        mean, gain = geometric_mean(self.ratios.values()), geometric_mean(self.gains)
        ratio, case = self.lowest if mean else (None, "")
        theirs, plain = (text(found[0] if found else None, ".2f", "x") for found in (mean, gain))
        lowest = f"{text(ratio, '.2f', 'x')} {case}".rstrip()
        return [self.part, self.direction, str(mean[1] if mean else 0), theirs, lowest, plain]

    def verdicts(self) -> list[str]:
        """Whether its targets were met."""
        part, mean, gain = PARTS[self.part], geometric_mean(self.ratios.values()), geometric_mean(self.gains)
        about = f"{self.part}, {self.direction}"
        if mean is None:
            return [f"{about}: nothing to compare"]
        ratio, case = self.lowest
        line = f"{about}, geometric mean over {mean[1]}: PyTorch takes {mean[0]:.2f} times as long"
        line += f", ours in float32 {gain[0]:.2f} times" if gain else ""
        found = [f"{line} (lowest {ratio:.2f}, {case}; target {part.least:g}): {met(mean[0] >= part.least)}"]
        if part.each is not None:
            found.append(f"{about}, lowest: {ratio:.2f}, {case} (target {part.each:g}): {met(ratio >= part.each)}")
        return found


def lines_of(results: Sequence[Result]) -> Iterator[Line]:
    """The lines of the summary; the text of a result is its part, its case that of the part's script."""
    for part, found in groups(results, lambda r: r.text).items():
        lines: dict[str, Line] = {}
        for (case, size, direction), cells in groups(found, _place).items():
            line = lines.setdefault(direction, Line(part, direction))
            first, plain = ours(cells), next((cell for cell in cells if cell.contender == IN_FLOAT32), None)
            line.ratios[f"{case} at {size}" if size else case] = times(first, best_peer(cells))
            line.gains.append(times(first, plain))
        yield from lines.values()


def _place(result: Result) -> tuple[str, int, str]:
    """Case, minibatch and direction; a network of ``models.py`` has one, and threads instead of a minibatch."""
    case, _, direction = result.case.rpartition(": ")
    return (case, result.size, direction) if case else (result.case, 0, "all")


class Summary(Form):
    """A table of all parts."""

    baseline, by_size, copies = OURS, False, False

    def tables(self, results: Sequence[Result]) -> dict[str, list[str]]:
        """Ratios are PyTorch's time divided by ours, and gains are that of ours in float32."""
        titles = ["part", "direction", "cases", "PyTorch", "lowest", "ours in float32"]
        words = f"How many times as long as ours in {BFLOAT16}, on the geometric mean."
        return {"Summary": [words, "", *markdown(titles, [line.cells() for line in lines_of(results)])]}


class Halves(Suite):
    """A key is the name of a part."""

    name, text = "bf16", f"{__doc__}"
    needs_torch = True

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", type=some_of(PARTS), metavar="NAME,NAME", help=f"some of {', '.join(PARTS)}")

    def plan(self, options: argparse.Namespace) -> list[Key]:
        return [(part,) for part in options.only or PARTS]

    def facts(self, options: argparse.Namespace) -> dict[str, str]:
        return super().facts(options) | facts(BFLOAT16)

    def form(self, options: argparse.Namespace) -> Form:
        return Summary()

    def measure(self, session: Session, argv: Sequence[str]) -> None:
        options = session.options
        switches = [f"--{name}" for name in ("quick", "results", "bench") if getattr(options, name)]
        for (part,) in self.plan(options):
            made = PARTS[part]
            session.say(f"\n== {part}\n")
            status, written = run(made.script, ["--precision", BFLOAT16, *made.arguments, *switches])
            for result in [Result(**found) for found in [*written["results"], *written["beside"]]]:
                result.text = part
                session.beside.append(result)
            if status and not any(result.wrong for result in session.beside if result.text == part):
                note = f"benchmarks/{made.script}.py ended with status {status}"
                session.beside.append(Result(part, part, 0, OURS, note=note, wrong=True))

    def verdicts(self, session: Session) -> list[str]:
        return [verdict for line in lines_of(session.beside) for verdict in line.verdicts()]


def run(script: str, arguments: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Run a script to its end: its status and what it measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        command = [sys.executable, str(HERE / f"{script}.py"), *arguments, "--json", str(path)]
        status = subprocess.run(command, check=False).returncode
        written = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"results": [], "beside": []}
        return status, written


SUITE = Halves()

if __name__ == "__main__":
    sys.exit(SUITE.main())
