"""How ``autograd.py`` shows what it found, and whether its targets were met."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from _cases import Result
from _models_report import cell_text, ours
from _terms import OURS, met, time_text
from _trained import TRAINED

EAGER = "torch"
"""The peer that targets are about: it is defined by running too."""

LARGE = 64
"""Samples from which a minibatch has the first target."""

EACH_LARGE, EACH_SMALL = 1.2, 1.0
"""Time of PyTorch eager divided by ours, at least, in large minibatches and in others."""

OVERHEAD = 10e-6
"""Seconds that an operation on a few elements may take, forward and backward together."""


def by_case(results: Sequence[Result]) -> dict[tuple[str, int], list[Result]]:
    """(network, minibatch) -> what was measured of it."""
    found: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        found.setdefault((result.case, result.size), []).append(result)
    return found


def operations(result: Result) -> int:
    """How many operations a step has, in cases that are about these; else 0."""
    count: int = TRAINED[result.case][0].operations
    return count


def case_text(cells: Sequence[Result]) -> str:
    """One case: a line for each contender."""
    count = operations(cells[0])
    lines = [f"\n{cells[0].case}, N = {cells[0].size}: {cells[0].text}"]
    heading = f"  {'':14}{'median':>10}{'quartiles':>24}{'/ ours':>9}{'error':>9}"
    lines.append(f"{heading}{'an operation':>14}" if count else heading)
    for cell in cells:
        if cell.median is None or cell.low is None or cell.high is None:
            lines.append(f"  {cell.contender:<14}  {cell.note or 'not measured'}")
            continue
        shown = [f"{time_text(cell.median):>10}", f"{f'{time_text(cell.low)} to {time_text(cell.high)}':>24}"]
        shown.append(f"{'-' if cell.ratio is None else f'{cell.ratio:.2f}x':>9}")
        shown.append(f"{'-' if cell.error is None else f'{cell.error:.0e}':>9}")
        shown.append(f"{time_text(cell.median / count) if count else '':>14}")
        lines.append(f"  {cell.contender:<14}" + "".join(shown).rstrip())
    return "\n".join(lines)


def tables(results: Sequence[Result]) -> dict[str, list[str]]:
    """Markdown by heading: training steps, and bare operations."""
    names = list(dict.fromkeys(cell.contender for cell in results))
    made = {}
    for heading, bare in (("A training step", False), ("Operations on 4x4 elements, forward and backward", True)):
        lines = ["| | N | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
        for (_, N), cells in by_case(results).items():
            if bool(operations(cells[0])) == bare:
                row = {cell.contender: cell for cell in cells}
                texts = [cell_text(row.get(name), ours(cells)) for name in names]
                lines.append(f"| {cells[0].case}: {cells[0].text} | {N} | " + " | ".join(texts) + " |")
        if len(lines) > 2:
            made[heading] = lines
    return made


# Verdicts -------------------------------------------------------------------------------------------------------


def verdicts(results: Sequence[Result]) -> list[str]:
    """All targets that this run says something about."""
    steps = {key: cells for key, cells in by_case(results).items() if not operations(cells[0])}
    bare = [cells for cells in by_case(results).values() if operations(cells[0])]
    lines = [line for key, cells in steps.items() for line in _step(*key, cells)]
    for large, words in ((True, f"N >= {LARGE}"), (False, f"N < {LARGE}")):
        lines += _means(words, [cells for (_, N), cells in steps.items() if (N >= LARGE) == large])
    return lines + [line for cells in bare for line in _operation(cells)]


def _step(name: str, N: int, cells: Sequence[Result]) -> list[str]:
    ratio = next((cell.ratio for cell in cells if cell.contender == EAGER), None)
    if ratio is None:
        return []
    target = EACH_LARGE if N >= LARGE else EACH_SMALL
    return [f"{name}, N = {N}: {EAGER} takes {ratio:.2f} times as long (target >= {target:g}): {met(ratio >= target)}"]


def _means(words: str, cases: Sequence[Sequence[Result]]) -> list[str]:
    """The geometric mean of each peer."""
    ratios: dict[str, list[float]] = {}
    for cells in cases:
        for cell in cells:
            if cell.ratio and cell.contender != OURS:
                ratios.setdefault(cell.contender, []).append(cell.ratio)
    means = {who: (len(found), statistics.geometric_mean(found)) for who, found in ratios.items()}
    return [
        f"training steps, {words}, geometric mean over {count}: {who} takes {mean:.2f} times as long"
        for who, (count, mean) in means.items()
    ]


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
