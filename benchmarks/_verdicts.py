"""Whether a run of ``optree.py`` met its targets, as lines that end in ``met`` or ``MISSED``."""

from __future__ import annotations

import statistics

from _cases import Record, Result, times
from _contenders import ASSIGN, PREPARED
from _terms import met, size_text

SMALL, MILLION, LARGE = 64, 1 << 20, 1 << 24
HEADLINE = "sigmoid"
"""The expression whose times at 64 elements have targets."""

SMALL_TARGETS = {ASSIGN: 2.8, PREPARED: 0.8}
"""Largest share of NumPy's time at 64 elements: 7 and 2 microseconds where NumPy takes 2.5."""

MEAN_TARGETS = {"numpy": 5.0, "numexpr": 3.0, "torch": 2.5, "torch.compile": 1.7}
"""Least geometric mean, over the expressions, of a peer's time divided by ours."""

SLOWER_TARGET = 1.1
"""Largest multiple of the fastest peer's time, for any one expression."""

BANDWIDTH_TARGET = 0.9
"""Least share of the bandwidth of a copy in memory on all threads, from a million elements on."""


def verdicts(record: Record) -> list[str]:
    """All targets that this run says something about. Where it matters, ours is the plain assignment."""
    sizes = sorted({r.size for r in record.results})
    lines = _small(record)
    for size in (s for s in sizes if s in (MILLION, LARGE)):
        lines += _means(record, size)
        lines += _worst(record, size)
    for size in (s for s in sizes if s >= MILLION):
        lines += _bandwidth(record, size)
    return lines


def _small(record: Record) -> list[str]:
    found = {name: record.find(HEADLINE, SMALL, name) for name in SMALL_TARGETS}
    lines = []
    for name, result in found.items():
        if result is not None and result.ratio is not None and result.median is not None:
            target = SMALL_TARGETS[name]
            lines.append(
                f"{SMALL} elements, {HEADLINE}, {name.split()[1]}: {result.median * 1e6:.2f} us, {result.ratio:.2f} of "
                f"NumPy's time (target < {target:g}): {met(result.ratio < target)}"
            )
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
        other = statistics.geometric_mean(prepared[peer].values()) if peer in prepared else float("nan")
        line = f"{size_text(size)}, geometric mean over {len(by_case)}: {peer} takes {mean:.2f} times as long"
        line += f" ({other:.2f} prepared"
        target = MEAN_TARGETS.get(peer)
        lines.append(line + (f"; target {target:g}): {met(mean >= target)}" if target else ")"))
    return lines


def _worst(record: Record, size: int) -> list[str]:
    """The expression that is slowest against the best of the peers."""
    by_peer = speedups(record, size, ASSIGN)
    best: dict[str, tuple[float, str]] = {}
    for peer, by_case in by_peer.items():
        for case, value in by_case.items():
            best[case] = max(best.get(case, (0.0, "")), (1 / value, peer))
    if not best:
        return []
    slow = sorted(((share, case, peer) for case, (share, peer) in best.items()), reverse=True)
    shown = [f"{case} {share:.2f} of {peer}" for share, case, peer in slow if share > SLOWER_TARGET] or [
        f"{slow[0][1]} {slow[0][0]:.2f} of {slow[0][2]}"
    ]
    return [
        f"{size_text(size)}, slowest against the best peer's time: {', '.join(shown)} (target <= {SLOWER_TARGET}): "
        f"{met(slow[0][0] <= SLOWER_TARGET)}"
    ]


def _bandwidth(record: Record, size: int) -> list[str]:
    """Share of a memory copy's bandwidth; a copy of the same bytes, faster while it fits into a cache, is shown too."""
    measured = _measured(record, size)
    shares = {case: r[ASSIGN].of_memory_copy for case, r in measured.items()}
    known = sorted((share, case) for case, share in shares.items() if share is not None)
    if not known:
        return []
    under = [f"{case} {share:.0%}" for share, case in known if share < BANDWIDTH_TARGET]
    same = [r[ASSIGN].of_copy or 0.0 for r in measured.values() if r[ASSIGN].of_copy is not None]
    reached = sum(share >= BANDWIDTH_TARGET for share in same)
    shown = ", ".join(under) or f"lowest {known[0][1]} {known[0][0]:.0%}"
    return [
        f"{size_text(size)}, share of a memory copy's bandwidth: {shown} (target >= {BANDWIDTH_TARGET:.0%}; "
        f"of a copy of the same bytes, {reached} of {len(same)} reach it): {met(not under)}"
    ]
