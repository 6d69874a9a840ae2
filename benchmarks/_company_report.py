"""How ``company.py`` shows what it found, and whether its targets were met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from _cases import Result, times
from _sequences import SEQUENCES
from _terms import OURS, met, time_text

ALONE, BUSY, AFTER_NUMPY, AFTER_TORCH = "alone", "busy", "after NumPy", "after PyTorch"
SCENARIOS = {
    ALONE: "alone",
    BUSY: "beside a process that computes all the time",
    AFTER_NUMPY: "each step after a product of NumPy",
    AFTER_TORCH: "each step after a product of PyTorch",
}
WHOLE = f"{OURS}: whole"
"""Name of the contender that runs the whole sequence; it is measured in turns with its parts."""

STEP = "mlp"
"""The sequence that has a target against PyTorch."""

STEP_TARGETS = {ALONE: 1.15, BUSY: 1.0}
"""Time of the faster of PyTorch's ways divided by ours, at least."""

PARTS_TARGET = 1.1
"""Time of the whole divided by the sum of its parts, each alone in a process, at most."""

FAIR_TARGET = 1.5
"""Time beside a busy process divided by that alone, as a multiple of what a fair share of the cores would make it."""


def is_part(result: Result) -> bool:
    """Whether a result is of one part of our sequence."""
    return result.contender.startswith(f"{OURS}: ") and result.contender != WHOLE


def fair(threads: int, cores: int) -> float:
    """How many times as long so many threads take beside one more, if every thread gets an equal share of the cores."""
    beside = min(1.0, cores / (threads + 1))
    return min(threads, cores) / (threads * beside)


def find(results: Iterable[Result], case: str, scenario: str, threads: int) -> dict[str, Result]:
    """Contender -> what was measured of a sequence in a scenario."""
    wanted = (case, scenario, threads)
    return {r.contender: r for r in results if (r.case, r.text, r.size) == wanted and r.median is not None}


def fastest(found: dict[str, Result]) -> Result | None:
    """The fastest of PyTorch's variants (eager, channels last, compiled)."""
    peers = [result for name, result in found.items() if not name.startswith(OURS)]
    return min(peers, key=lambda result: result.median or 0.0, default=None)


# Showing --------------------------------------------------------------------------------------------------------


def threads_text(threads: int) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{threads} thread{'s' * (threads > 1)}"


def group_text(cells: Sequence[Result]) -> str:
    """One sequence in one scenario: a line for each contender or part."""
    first = cells[0]
    lines = [f"\n{first.case}, {first.text}, {threads_text(first.size)}: {SEQUENCES[first.case].text}"]
    lines += [f"  {'':34}{'median':>10}{'min':>10}{'max':>10}{'/ ours':>9}{'error':>9}"]
    ours = cells[0]
    for cell in cells:
        if cell.median is None or cell.low is None or cell.high is None:
            lines.append(f"  {cell.contender:<34}  {cell.note or 'not measured'}")
            continue
        shown = [f"{time_text(seconds):>10}" for seconds in (cell.median, cell.low, cell.high)]
        ratio = times(ours, cell)
        shown.append(f"{'-' if ratio is None else f'{ratio:.2f}x':>9}")
        shown.append(f"{'-' if cell.error is None else f'{cell.error:.0e}':>9}")
        lines.append(f"  {cell.contender:<34}" + "".join(shown))
    return "\n".join(lines)


def tables(results: Sequence[Result]) -> dict[str, list[str]]:
    """Markdown by heading: a table for each scenario, and one of parts."""
    steps = [r for r in results if not r.contender.startswith(f"{OURS}: ")]
    made = {}
    for scenario, text in SCENARIOS.items():
        here = [r for r in steps if r.text == scenario]
        if here:
            made[text[0].upper() + text[1:]] = _table(here)
    parts = [r for r in results if is_part(r) or r.contender == WHOLE]
    if parts:
        lines = ["| sequence | part | threads | time | from | to |", "|---|---|---|---|---|---|"]
        made["Each part of ours alone in a process"] = lines + [
            f"| {r.case} | {r.contender.partition(': ')[2]} | {r.size} | "
            + " | ".join("-" if t is None else time_text(t) for t in (r.median, r.low, r.high))
            + " |"
            for r in parts
        ]
    return made


def _table(here: Sequence[Result]) -> list[str]:
    names = list(dict.fromkeys(r.contender for r in sorted(here, key=lambda r: r.contender != OURS)))
    lines = ["| sequence | threads | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for case, threads in dict.fromkeys((r.case, r.size) for r in here):
        row = {r.contender: r for r in here if (r.case, r.size) == (case, threads)}
        cells = [_cell(row.get(name), row.get(OURS)) for name in names]
        lines.append(f"| {case} | {threads} | " + " | ".join(cells) + " |")
    return lines


def _cell(result: Result | None, ours: Result | None) -> str:
    """Median, smallest and largest of the rounds; how many times as long as ours."""
    if result is None:
        return ""
    if result.median is None or result.low is None or result.high is None:
        return "-"
    text = f"{time_text(result.median)} ({time_text(result.low)} to {time_text(result.high)})"
    ratio = times(ours, result)
    return text if result.contender == OURS or ratio is None else f"{text}; {ratio:.2f}x"


# Verdicts -------------------------------------------------------------------------------------------------------


def verdicts(results: Sequence[Result], cores: int) -> list[str]:
    """All targets that this run says something about."""
    lines = []
    for scenario in SCENARIOS:
        for case, threads in dict.fromkeys((r.case, r.size) for r in results if r.text == scenario):
            lines += _against_torch(results, case, scenario, threads)
    for case, threads in dict.fromkeys((r.case, r.size) for r in results):
        lines += _parts(results, case, threads)
    for case, threads in dict.fromkeys((r.case, r.size) for r in results):
        lines += _company(results, case, threads, cores)
    return lines


def _against_torch(results: Sequence[Result], case: str, scenario: str, threads: int) -> list[str]:
    found = find(results, case, scenario, threads)
    best = fastest(found)
    ratio = times(found.get(OURS), best)
    if best is None or ratio is None:
        return []
    line = f"{case}, {scenario}, {threads_text(threads)}: {best.contender} takes {ratio:.2f} times as long"
    target = STEP_TARGETS.get(scenario) if case == STEP else None
    return [line + (f" (target >= {target:g}): {met(ratio >= target)}" if target else "")]


def _parts(results: Sequence[Result], case: str, threads: int) -> list[str]:
    found = find(results, case, ALONE, threads)
    parts = [result.median or 0.0 for result in found.values() if is_part(result)]
    whole = found[WHOLE].median if WHOLE in found else None
    if not parts or whole is None:
        return []
    share = whole / sum(parts)
    return [
        f"{case}, {threads_text(threads)}: the whole takes {time_text(whole)}, its {len(parts)} parts alone together "
        f"{time_text(sum(parts))}: {share:.2f} times as long (target <= {PARTS_TARGET}): {met(share <= PARTS_TARGET)}"
    ]


def _company(results: Sequence[Result], case: str, threads: int, cores: int) -> list[str]:
    """Our time beside other processes, divided by our time alone."""
    alone, lines = find(results, case, ALONE, threads).get(OURS), []
    for scenario in SCENARIOS:
        ours = find(results, case, scenario, threads).get(OURS)
        if scenario == ALONE or ours is None or alone is None or not alone.median or ours.median is None:
            continue
        longer = ours.median / alone.median
        line = f"{case}, {scenario}, {threads_text(threads)}: ours takes {longer:.2f} times as long as alone"
        if scenario == BUSY:
            share = fair(threads, cores)
            line += f", {longer / share:.2f} of a fair share's {share:.2f} (target <= {FAIR_TARGET}): "
            line += met(longer / share <= FAIR_TARGET)
        lines.append(line)
    return lines
