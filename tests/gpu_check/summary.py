"""Summary of a run from its facts: failures first, then speed, in at most 12,000 characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tests.gpu_check.record import Fact, Record
from tests.gpu_check.switches import text_of

MOST = 11_500
"""Characters: whoever runs this elsewhere may see the last 12,000 only."""
BAD = ("wrong", "failed", "hung", "crashed", "not run")


def line(record: Record, part: str) -> str:
    """How a part of the plan went, in a line."""
    steps = [fact for fact in record.of("step") if fact["name"] == part]
    last = steps[-1] if steps else {"state": "ok", "seconds": 0.0, "text": ""}
    return f"{last['state']:8} {part:14}{last.get('seconds', 0.0):6.1f} s  {last.get('text', '')}"[:200]


def status(facts: Iterable[Fact]) -> int:
    """1 if anything is bad."""
    return int(any(fact.get("state") in BAD for fact in facts if fact["kind"] in ("case", "step", "stage", "checked")))


def text(facts: Iterable[Fact]) -> str:
    """The whole summary: sections in the order of their worth, the last ones cut where there is no more room."""
    found = list(facts)
    parts = [
        _section("WHERE IT STANDS", _state(found)),
        _section("CASES THAT ARE NOT RIGHT", _bad_cases(found)),
        _section("WHAT GOES ROUND THEM", _cures(found)),
        _section("STEPS THAT DID NOT DO WELL", _bad_steps(found)),
        _section("FOUND BY MEMORY CHECKERS", _checked(found)),
        _section("TIMES BESIDE OTHERS (theirs divided by ours; above 1 we are faster)", _ratios(found)),
        _section("TARGETS", _verdicts(found)),
        _section("KERNELS SEEN BY THE PROFILER", _profiled(found)),
        _section("COPIES", _copies(found)),
        _section("MACHINE", _machine(found)),
    ]
    whole, room = "", MOST
    for part in parts:
        if not part:
            continue
        if len(part) > room:
            part = part[: max(room - 40, 0)].rsplit("\n", 1)[0] + "\n... cut: see facts.jsonl\n"
        whole += part
        room -= len(part)
        if room < 100:
            break
    return whole


def _section(title: str, lines: Iterator[str]) -> str:
    found = list(lines)
    return f"\n{title}\n" + "".join(f"  {each}\n" for each in found) if found else ""


def _of(facts: list[Fact], kind: str) -> list[Fact]:
    return [fact for fact in facts if fact["kind"] == kind]


def _state(facts: list[Fact]) -> Iterator[str]:
    for stage in _of(facts, "stage"):
        if stage["state"] != "right":
            yield f"{stage['name']}: {stage['state']}: {stage['text']}"[:900]
    stages = [stage["name"] for stage in _of(facts, "stage") if stage["state"] == "right"]
    yield f"first steps that worked: {', '.join(stages) or 'none'}"
    counts = Counter(fact["state"] for fact in _of(facts, "case"))
    yield "cases: " + (", ".join(f"{count} {state}" for state, count in counts.most_common()) or "none was run")


def _bad_cases(facts: list[Fact]) -> Iterator[str]:
    for fact in _of(facts, "case"):
        if fact["state"] in BAD:
            yield f"{fact['state']:8} {fact['name']}: {fact.get('text', '')}"[:420]


def cures(facts: list[Fact]) -> dict[str, list[str]]:
    """For each case that failed the switches with which it is right, as a user sets them."""
    tried: dict[str, list[str]] = {}
    for fact in _of(facts, "switch"):
        found = tried.setdefault(fact["case"], [])
        if fact["state"] == "right":
            found.append(text_of(fact["name"]))
    return tried


def _cures(facts: list[Fact]) -> Iterator[str]:
    for case, found in cures(facts).items():
        yield f"{case}: {'right with ' + ' or with '.join(found) if found else 'no switch helps'}"[:420]


def _bad_steps(facts: list[Fact]) -> Iterator[str]:
    for fact in _of(facts, "step"):
        if fact["state"] not in ("ok", "right"):
            yield f"{fact['state']:8} {fact['name']}: {fact.get('text', '')}"[:300]


def _checked(facts: list[Fact]) -> Iterator[str]:
    for fact in _of(facts, "checked"):
        yield f"{fact['tool']}: {fact['name']}: {fact['state']}: {fact['text']}"[:300]


class Row(NamedTuple):
    """A case that was timed: our best time in seconds, and the times of others divided by it."""

    section: str
    name: str
    size: int | None
    ours: float
    ratios: dict[str, float]


def rows(facts: list[Fact]) -> Iterator[Row]:
    """Rows of the timed cases, in the order of the run."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for fact in _of(facts, "figure"):
        if fact.get("median"):
            found.setdefault((fact["section"], fact["name"], fact.get("size")), {})[fact["contender"]] = fact["median"]
    for key, medians in found.items():
        ours = [seconds for who, seconds in medians.items() if who.startswith("neonlike")]
        if ours:
            others = {who: s / min(ours) for who, s in medians.items() if not who.startswith("neonlike")}
            yield Row(*key, min(ours), others)


def _ratios(facts: list[Fact]) -> Iterator[str]:
    for row in rows(facts):
        ratios = "  ".join(f"{who} {ratio:.2f}" for who, ratio in row.ratios.items())
        yield f"{row.section:13} {row.name[:48]:48} {row.size or '':>9}  {row.ours * 1e6:10.1f} us  {ratios}".rstrip()


def _verdicts(facts: list[Fact]) -> Iterator[str]:
    for fact in _of(facts, "verdict"):
        if fact["name"].endswith((": met", ": MISSED")):
            yield fact["name"][:200]


def _profiled(facts: list[Fact]) -> Iterator[str]:
    seen: set[str] = set()
    for fact in _of(facts, "profile"):
        if fact["name"] not in seen:
            seen.add(fact["name"])
            values = ", ".join(f"{k} {v}" for k, v in fact.items() if k not in ("kind", "name", "at"))
            yield f"{fact['name'][:70]}: {values}"


def _copies(facts: list[Fact]) -> Iterator[str]:
    for fact in _of(facts, "figure"):
        if fact["section"] == "copies":
            yield f"{fact['name']}: {fact['value']} {fact['unit']}"


def _machine(facts: list[Fact]) -> Iterator[str]:
    for fact in _of(facts, "machine"):
        yield ", ".join(f"{k} {v}" for k, v in fact.items() if k not in ("kind", "name", "at", "state"))
