"""Op-trees against NumPy, numexpr, PyTorch, Numba and JAX: ``out[:] = be.sig(a*b + c)`` and a dozen other expressions.

At 64 elements the figures show what a call costs from Python, from 16M on how much of the memory's bandwidth a fused
kernel uses. ``python benchmarks/expressions.py --help`` lists the options; the targets are below.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

import _contenders
from _cases import Case, Record, Result, geometric_mean, met, parse_size, size_text, times
from _contenders import ASSIGN, PREPARED
from _expressions import EXPRESSIONS, Expression, footprint
from _suite import Key, Suite, lacks_memory
from harness import Session, some_of

SIZES = (64, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
SMALL, MILLION, LARGE = 64, 1 << 20, 1 << 24
HEADLINE = "sigmoid"
"""The expression whose times at 64 elements have targets, and which a quick run measures at 16M elements too."""

SMALL_TARGETS = {ASSIGN: 2.8, PREPARED: 0.8}
"""Largest share of NumPy's time at 64 elements: 7 and 2 microseconds where NumPy takes 2.5."""

MEAN_TARGETS = {"numpy": 5.0, "numexpr": 3.0, "torch": 2.5, "torch.compile": 1.7}
"""Least geometric mean, over the expressions, of a peer's time divided by ours."""

SLOWER_TARGET = 1.1
"""Largest multiple of the fastest peer's time, for any one expression."""

BANDWIDTH_TARGET = 0.9
"""Least share of the bandwidth of a copy in memory on all threads, from a million elements on."""


def sizes(text: str) -> list[int]:
    """The type of an option that takes numbers of elements."""
    return [parse_size(part) for part in text.split(",")]


def named(name: str) -> Expression:
    """The expression of this name."""
    return next(e for e in EXPRESSIONS if e.name == name)


class Optree(Suite):
    """A key is an expression, its size, and whether libraries that take seconds to compile take part."""

    name, text = "expressions", f"{__doc__}"
    contenders = (*_contenders.OURS, *_contenders.ON_CPU)

    def options(self, parser: argparse.ArgumentParser) -> None:
        names = [e.name for e in EXPRESSIONS]
        parser.add_argument("--sizes", type=sizes, metavar="N,N", help="elements, such as 64,4k,16M")
        parser.add_argument("--only", type=some_of(names), metavar="NAME,NAME", help=f"some of {', '.join(names)}")

    def plan(self, options: argparse.Namespace) -> list[Key]:
        chosen = options.only or [e.name for e in EXPRESSIONS]
        chosen_sizes = options.sizes or ((SMALL, MILLION) if options.quick else SIZES)
        planned = [(name, size) for size in chosen_sizes for name in chosen]
        if options.quick and not options.sizes and HEADLINE in chosen:
            planned.append((HEADLINE, LARGE))
        return [(name, size, not options.quick or name == HEADLINE) for name, size in planned]

    def make(self, be: Any, who: str, name: str, size: int, slow: bool) -> Case:
        return _contenders.make_case(be, named(name), size, slow, who)

    def fits(self, name: str, size: int, slow: bool = False) -> str:
        return lacks_memory(f"{name} at {size_text(size)}", footprint(named(name), size, len(self.contenders)))

    def verdicts(self, session: Session) -> list[str]:
        return verdicts(session)


def verdicts(record: Record) -> list[str]:
    """All targets that this run says something about. Where it matters, ours is the plain assignment."""
    measured = sorted({r.size for r in record.results})
    lines = _small(record)
    for size in (s for s in measured if s in (MILLION, LARGE)):
        lines += [*_means(record, size), *_worst(record, size)]
    for size in (s for s in measured if s >= MILLION):
        lines += _bandwidth(record, size)
    return lines


def _small(record: Record) -> list[str]:
    lines = []
    for name, target in SMALL_TARGETS.items():
        result = record.find(HEADLINE, SMALL, name)
        if result is not None and result.ratio is not None:
            words = f"{SMALL} elements, {HEADLINE}, {name.split()[1]}: {(result.median or 0.0) * 1e6:.2f} us"
            share = f"{result.ratio:.2f} of NumPy's time (target < {target:g})"
            lines.append(f"{words}, {share}: {met(result.ratio < target)}")
    return lines


def _measured(record: Record, size: int) -> dict[str, dict[str, Result]]:
    """Case -> contender -> its result, of the cases in which ours was measured."""
    found: dict[str, dict[str, Result]] = {}
    for result in record.results:
        if result.size == size and result.median is not None:
            found.setdefault(result.case, {})[result.contender] = result
    return {case: by_name for case, by_name in found.items() if ASSIGN in by_name}


def speedups(record: Record, size: int, ours: str) -> dict[str, dict[str, float]]:
    """Peer -> case -> its time divided by that of ``ours``."""
    found: dict[str, dict[str, float]] = {}
    for case, by_name in _measured(record, size).items():
        for name, result in by_name.items():
            value = times(by_name.get(ours), result)
            if value and not name.startswith("neonlike") and "copy" not in name:
                found.setdefault(name, {})[case] = value
    return found


def _means(record: Record, size: int) -> list[str]:
    prepared = speedups(record, size, PREPARED)
    lines = []
    for peer, by_case in speedups(record, size, ASSIGN).items():
        mean = statistics.geometric_mean(by_case.values())
        other, _ = geometric_mean(prepared.get(peer, {}).values()) or (float("nan"), 0)
        line = f"{size_text(size)}, geometric mean over {len(by_case)}: {peer} takes {mean:.2f} times as long"
        line += f" ({other:.2f} prepared"
        target = MEAN_TARGETS.get(peer)
        lines.append(line + (f"; target {target:g}): {met(mean >= target)}" if target else ")"))
    return lines


def _worst(record: Record, size: int) -> list[str]:
    """The expression that is slowest against the best of the peers."""
    best: dict[str, tuple[float, str]] = {}
    for peer, by_case in speedups(record, size, ASSIGN).items():
        for case, value in by_case.items():
            best[case] = max(best.get(case, (0.0, "")), (1 / value, peer))
    if not best:
        return []
    slow = sorted(((share, case, peer) for case, (share, peer) in best.items()), reverse=True)
    shown = [f"{case} {share:.2f} of {peer}" for share, case, peer in slow if share > SLOWER_TARGET]
    shown = shown or [f"{slow[0][1]} {slow[0][0]:.2f} of {slow[0][2]}"]
    words = f"{size_text(size)}, slowest against the best peer's time: {', '.join(shown)} (target <= {SLOWER_TARGET})"
    return [f"{words}: {met(slow[0][0] <= SLOWER_TARGET)}"]


def _bandwidth(record: Record, size: int) -> list[str]:
    """Share of a memory copy's bandwidth; a copy of the same bytes, faster while it fits into a cache, is shown too."""
    measured = {case: by_name[ASSIGN] for case, by_name in _measured(record, size).items()}
    known = sorted((r.of_memory_copy, case) for case, r in measured.items() if r.of_memory_copy is not None)
    if not known:
        return []
    under = [f"{case} {share:.0%}" for share, case in known if share < BANDWIDTH_TARGET]
    same = [r.of_copy for r in measured.values() if r.of_copy is not None]
    reached = sum(share >= BANDWIDTH_TARGET for share in same)
    shown = ", ".join(under) or f"lowest {known[0][1]} {known[0][0]:.0%}"
    return [
        f"{size_text(size)}, share of a memory copy's bandwidth: {shown} (target >= {BANDWIDTH_TARGET:.0%}; "
        f"of a copy of the same bytes, {reached} of {len(same)} reach it): {met(not under)}"
    ]


SUITE = Optree()

if __name__ == "__main__":
    sys.exit(SUITE.main())
