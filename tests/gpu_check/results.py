"""Writes benchmarks/RESULTS-gpu.md from the facts of a run: ``python results.py FOLDER``; nothing else goes into it."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.gpu_check.record import Fact, read
from tests.gpu_check.steps import ROOT
from tests.gpu_check.summary import BAD, cures, rows

TARGET = ROOT / "benchmarks" / "RESULTS-gpu.md"
HEAD = """# Results on a GPU

Written by `make gpu-results FOLDER=...` from the facts of a run of `make gpu-first`, never by hand and never from an
emulated GPU. How it is measured is told in [README.md](README.md).
"""


def page(facts: list[Fact]) -> str:
    """The page: machine, cases, times beside others, targets, memory checkers, profiler."""
    return "\n".join([HEAD, *_machine(facts), *_cases(facts), *_times(facts), *_rest(facts)]).rstrip() + "\n"


def is_emulated(facts: list[Fact]) -> bool:
    """Whether the device of the run was the emulated one."""
    return any(fact["kind"] == "stage" and "cuemu" in str(fact.get("text", "")) for fact in facts)


def _of(facts: list[Fact], kind: str) -> list[Fact]:
    return [fact for fact in facts if fact["kind"] == kind]


def _machine(facts: list[Fact]) -> Iterator[str]:
    yield "## Machine\n\n| | |\n|---|---|"
    for fact in _of(facts, "machine"):
        for name, value in fact.items():
            if name not in ("kind", "name", "at", "state"):
                yield f"| {name} | {value} |"
    for fact in _of(facts, "stage"):
        yield f"| {fact['name']} | {fact.get('text', '')} |"
    yield ""


def _cases(facts: list[Fact]) -> Iterator[str]:
    ends = _of(facts, "case")
    counts = Counter(fact["state"] for fact in ends)
    yield "## Kernels against the CPU\n"
    yield (", ".join(f"{count} {state}" for state, count in counts.most_common()) or "None was run") + ".\n"
    bad, found = [fact for fact in ends if fact["state"] in BAD], cures(facts)
    if bad:
        yield "| case | | what | right with |\n|---|---|---|---|"
        for fact in bad:
            text = str(fact.get("text", "")).replace("|", "/").replace("\n", " ")[:200]
            yield f"| {fact['name']} | {fact['state']} | {text} | {', '.join(found.get(fact['name'], ()))} |"
        yield ""


def _times(facts: list[Fact]) -> Iterator[str]:
    """A table for each section: our best time, and those of others divided by it."""
    found = list(rows(facts))
    for section in dict.fromkeys(row.section for row in found):
        yield f"## {section}\n\n| | elements | ours | others' times divided by ours |\n|---|---|---|---|"
        for row in found:
            if row.section == section:
                ratios = ", ".join(f"{who} {ratio:.2f}" for who, ratio in row.ratios.items())
                yield f"| {row.name} | {row.size or ''} | {row.ours * 1e6:.1f} us | {ratios} |"
        yield ""


def _rest(facts: list[Fact]) -> Iterator[str]:
    verdicts = [fact["name"] for fact in _of(facts, "verdict") if fact["name"].endswith((": met", ": MISSED"))]
    copies = [f"{f['name']}: {f['value']} {f['unit']}" for f in _of(facts, "figure") if f.get("unit")]
    checked = [f"{f['tool']}: {f['name']}: {f['state']}: {f['text']}" for f in _of(facts, "checked")]
    checked += [f"{f['name']}: {f['text']}" for f in _of(facts, "step") if f["name"] in ("memcheck", "racecheck")]
    for title, lines in (("Targets", verdicts), ("Copies", copies), ("Memory checkers", checked)):
        if lines:
            yield f"## {title}\n\n" + "".join(f"* {line}\n" for line in lines)
    seen: dict[str, str] = {}
    for fact in _of(facts, "profile"):
        values = ", ".join(f"{k} {v}" for k, v in fact.items() if k not in ("kind", "name", "at"))
        seen.setdefault(fact["name"], values)
    if seen:
        yield "## Profiler\n\n" + "".join(f"* `{name}`: {values}\n" for name, values in seen.items())


def main(argv: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=f"{__doc__}".partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of a run of first.py")
    parser.add_argument("--target", type=Path, default=TARGET, help="default: benchmarks/RESULTS-gpu.md")
    asked = parser.parse_args(argv)
    if not asked.folder.exists():
        parser.error(f"there is no {asked.folder}")
    facts = list(read(asked.folder))
    if not _of(facts, "case") and not _of(facts, "figure"):
        parser.error(f"{asked.folder} has no facts of a run: nothing was measured")
    if is_emulated(facts) and asked.target == TARGET:
        parser.error("the facts are of the emulated GPU, whose times say nothing; --target FILE writes them elsewhere")
    asked.target.write_text(page(facts), encoding="utf-8")
    print(f"{asked.target} has {len(facts)} facts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
