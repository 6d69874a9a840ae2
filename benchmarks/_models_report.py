"""How ``models.py`` shows what it found, and whether its targets were met."""

from __future__ import annotations

import math
from collections.abc import Sequence

from _cases import Result, times
from _machine import cores
from _nets import NETS
from _terms import OURS, met, time_text

__all__ = ["INFERENCE", "TF32", "TRAINING", "cores", "group_text", "tables", "verdicts"]

TRAINING, INFERENCE = "training", "inference"
TF32 = ", TF32"
"""Ends a mode in which factors of products are rounded."""
MODES = {
    TRAINING: "A training step", INFERENCE: "One sample forward",
    TRAINING + TF32: "A training step, factors of products in TF32",
    INFERENCE + TF32: "One sample forward, factors of products in TF32",
}  # fmt: skip

EACH, ALL, ALONE = 1.05, 1.25, 1.0
"""Time of the fastest of PyTorch's ways divided by ours, at least: a network's step, all of them on the geometric
mean, and one sample forward."""
EAGER = {("resnet50", TRAINING): 0.8}
"""Time of eager PyTorch's step divided by ours, at least, by network and mode: what is asked for on a GPU."""

OUTSIDE = 0.05
"""The part of a step that is outside of kernels, at most."""


def is_training(mode: str) -> bool:
    """Whether steps are taken in a mode, in whichever precision."""
    return mode.startswith(TRAINING)


def fastest(cells: Sequence[Result]) -> Result | None:
    """The fastest of PyTorch's ways."""
    peers = [cell for cell in cells if cell.contender != OURS and cell.median is not None]
    return min(peers, key=lambda cell: cell.median or 0.0, default=None)


def ours(cells: Sequence[Result]) -> Result | None:
    """Ours, if it was measured."""
    return next((cell for cell in cells if cell.contender == OURS and cell.median is not None), None)


def ratio_of(cells: Sequence[Result]) -> float | None:
    """How many times as long the fastest of PyTorch's ways takes."""
    return times(ours(cells), fastest(cells))


def groups(results: Sequence[Result], mode: str) -> dict[str, list[Result]]:
    """Network -> what was measured of it in a mode."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.text == mode:
            found.setdefault(result.case, []).append(result)
    return found


def group_text(cells: Sequence[Result]) -> str:
    """One network: a line for each contender."""
    first, net = cells[0], NETS[cells[0].case]
    lines = [f"\n{first.case}, {first.text}: {net.text}, N = {net.N if is_training(first.text) else 1}"]
    lines += [f"  {'':20}{'median':>10}{'min':>10}{'max':>10}{'/ ours':>9}{'error':>9}{'memory':>10}{'outside':>9}"]
    for cell in cells:
        if cell.median is None or cell.low is None or cell.high is None:
            lines.append(f"  {cell.contender:<20}  {cell.note or 'not measured'}")
            continue
        ratio = times(ours(cells), cell)
        shown = [f"{time_text(seconds):>10}" for seconds in (cell.median, cell.low, cell.high)]
        shown.append(f"{'-' if ratio is None else f'{ratio:.2f}x':>9}")
        shown.append(f"{'-' if cell.error is None else f'{cell.error:.0e}':>9}")
        shown += [f"{memory_text(cell):>10}", f"{outside_text(cell):>9}"]
        lines.append(f"  {cell.contender:<20}" + "".join(shown))
    return "\n".join(lines)


def memory_text(cell: Result) -> str:
    """How much a process has grown by training."""
    return f"{cell.memory / (1 << 20):.0f} MiB" if cell.memory else "-"


def outside_text(cell: Result) -> str:
    """The part of a step that is outside of kernels."""
    return f"{100 * cell.outside[0]:.1f} %" if cell.outside else "-"


def tables(results: Sequence[Result]) -> dict[str, list[str]]:
    """Markdown by heading: a table for each mode."""
    made = {}
    for mode, heading in MODES.items():
        found = groups(results, mode)
        names = list(dict.fromkeys(cell.contender for cells in found.values() for cell in cells))
        lines = ["| network | N | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
        for network, cells in found.items():
            row = {cell.contender: cell for cell in cells}
            texts = [cell_text(row.get(name), ours(cells)) for name in names]
            size = NETS[network].N if is_training(mode) else 1
            lines.append(f"| {network} | {size} | " + " | ".join(texts) + " |")
        if found:
            made[heading] = lines
    return made


def cell_text(result: Result | None, first: Result | None) -> str:
    """Median, smallest and largest of the rounds, memory; how many times as long as ours."""
    if result is None:
        return ""
    if result.median is None or result.low is None or result.high is None:
        return "-"
    text = f"{time_text(result.median)} ({time_text(result.low)} to {time_text(result.high)})"
    text += f", {memory_text(result)}" if is_training(result.text) else ""
    text += f", {outside_text(result)} outside kernels" if result.outside else ""
    ratio = times(first, result)
    return text if result.contender == OURS or ratio is None else f"{text}; {ratio:.2f}x"


# Verdicts -------------------------------------------------------------------------------------------------------


def verdicts(results: Sequence[Result]) -> list[str]:
    """All targets that this run says something about."""
    lines = []
    for mode in MODES:
        target, ratios = EACH if is_training(mode) else ALONE, []
        for network, cells in groups(results, mode).items():
            best, ratio = fastest(cells), ratio_of(cells)
            if best is None or ratio is None:
                continue
            ratios.append(ratio)
            words = f"{best.contender} takes {ratio:.2f} times as long (target >= {target:g}): {met(ratio >= target)}"
            lines += [f"{network}, {mode}: {words}", *_eager(network, mode, cells)]
            lines += _memory(network, cells) if is_training(mode) else []
            lines += outside_lines(first) if (first := ours(cells)) is not None else []
        if is_training(mode) and len(ratios) > 1:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            words = f"{mean:.2f} on the geometric mean (target >= {ALL:g}): {met(mean >= ALL)}"
            lines.append(f"{len(ratios)} networks, {mode}: {words}")
    return lines


def _eager(network: str, mode: str, cells: Sequence[Result]) -> list[str]:
    """The target of a network beside PyTorch's eager way alone, if it has one."""
    target, eager = EAGER.get((network, mode)), next((cell for cell in cells if cell.contender == "torch"), None)
    ratio = times(ours(cells), eager)
    if target is None or ratio is None:
        return []
    return [f"{network}, {mode}: torch takes {ratio:.2f} times as long (target >= {target:g}): {met(ratio >= target)}"]


def outside_lines(cell: Result) -> list[str]:
    """Whether kernels take nearly all of a step's time."""
    if not cell.outside:
        return []
    by_clock, by_thread = (f"{100 * share:.1f} %" for share in cell.outside)
    words = f"{by_clock} of a step, {by_thread} of its thread's time (target < {100 * OUTSIDE:.0f} %)"
    return [f"{cell.case}, outside kernels: {words}: {met(cell.outside[0] < OUTSIDE)}"]


def _memory(network: str, cells: Sequence[Result]) -> list[str]:
    """Whether ours takes no more memory than the most sparing of PyTorch's eager ways."""
    first = ours(cells)
    peers = [cell.memory for cell in cells if cell.contender != OURS and cell.memory]
    if first is None or not first.memory or not peers:
        return []
    share = first.memory / min(peers)
    return [f"{network}, memory: {share:.2f} of PyTorch's (target <= 1): {met(share <= 1)}"]
