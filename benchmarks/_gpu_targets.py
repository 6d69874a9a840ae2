"""Targets on a GPU: expressions beside copies and torch.compile, calls, products and primitives beside their libraries.

A target of a primitive is of the geometric mean over the cases that ran: of the other's time divided by ours, or of the
share of a copy's bandwidth. PyTorch's own local response normalisation stands for cuDNN's, which it does not call.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from _cases import OURS, Result, met, size_text, takes, times
from _contenders import ASSIGN, PREPARED
from _gpu_cases import CUBLAS, PASSES, SECTIONS, WHOLE, is_one, is_tiled
from _gpu_session import PRODUCTS, GpuSession, title
from expressions import speedups

BANDWIDTH_TARGET, BANDWIDTH_FROM = 0.9, 1 << 24
ASSIGN_TARGET, PREPARED_TARGET = 6e-6, 2e-6
"""Seconds of Python for one call."""
PRODUCT_TARGET = 0.97
"""Least share of the best rate that other callers of the same library reach."""
PEER, PEER_TARGET = "torch.compile", 1.0

TORCH = "torch"
COPY = "a copy"
"""Stands for the peer where a share of the bandwidth has a target."""
NEWER = 9
"""Major compute capability from which on the first of two targets counts (H100), below it the second (A100)."""
CONVOLVED = SECTIONS["convolutions"]
BY_NAME = {layer.name: layer for layer, _ in (*CONVOLVED.layers, *CONVOLVED.emulated)}


@dataclass(frozen=True)
class Target:
    """A target for cases of a kind."""

    text: str
    """The kind."""
    chosen: Callable[[Result], bool]
    """Whether a result is of that kind."""
    least: tuple[float, float]
    """On GPUs of capability ``NEWER``, and on older ones."""
    peer: str = TORCH
    ours: str = OURS


def _convolution(precision: str, kind: str = "", passes: Sequence[str] = PASSES) -> Callable[[Result], bool]:
    """Convolutions in a precision ("": any), of a kind: 1x1, 3x3, others or ("") all."""

    def chosen(result: Result) -> bool:
        words = result.text.replace(",", " ").split()
        layer = BY_NAME.get(result.case.rpartition(" ")[0])
        if layer is None or words[0] != "convolution" or words[1] not in passes or precision not in ("", words[2]):
            return False
        found = "1x1" if is_one(layer) else "3x3" if is_tiled(layer) else "others"
        return kind in ("", found)

    return chosen


def _pooled(result: Result) -> bool:
    return result.text.startswith("images") and "LRN" not in result.text


def _normalized(result: Result) -> bool:
    return result.text.startswith("layer") and "batch norm" in result.text


def _unrolled(result: Result) -> bool:
    """Recurrent layers of 1024 units and 32 samples."""
    return result.text.startswith("layer") and "1024" in result.text and "N = 32" in result.text


TARGETS = (
    Target("1x1, all precisions", _convolution("", "1x1"), (0.95, 0.95), CUBLAS),
    Target("float32, 3x3 without stride, fprop and bprop", _convolution("float32", "3x3", PASSES[:2]), (1.0, 1.0)),
    Target("float32, 3x3 without stride, update", _convolution("float32", "3x3", PASSES[2:]), (0.9, 0.9)),
    Target("float32, other windows", _convolution("float32", "others"), (0.7, 0.7)),
    Target("TF32, all windows", _convolution("tf32"), (0.5, 0.7)),
    Target("float16, all windows", _convolution("float16"), (0.45, 0.7)),
    Target("batch normalization", _normalized, (0.8, 0.8), COPY),
    Target("batch normalization", _normalized, (1.2, 1.2)),
    Target("pooling", _pooled, (0.85, 0.85), COPY),
    Target("pooling", _pooled, (1.2, 1.2)),
    Target("LRN", lambda result: result.text.startswith("images") and "LRN" in result.text, (3.0, 3.0)),
    Target("recurrent layers of 1024 units, N = 32", _unrolled, (0.7, 0.7)),
    Target("recurrent layers of 1024 units, N = 32", _unrolled, (1.0, 1.0), ours=WHOLE),
)  # fmt: skip


def primitive_verdicts(results: Sequence[Result], major: int) -> list[str]:
    """The targets that ``results`` say something about; ``major``: of the compute capability."""
    lines = []
    for target in TARGETS:
        least = target.least[0 if major >= NEWER else 1]
        if found := _reached([result for result in results if target.chosen(result)], target):
            mean = statistics.geometric_mean(found)
            words = f"{target.text}, geometric mean over {len(found)}: {_words(target, mean)}"
            goal = f"{least:.0%}" if target.peer == COPY else f"{least:g}"
            lines.append(f"{words} (target >= {goal}): {met(mean >= least)}")
    return lines


def _words(target: Target, mean: float) -> str:
    if target.peer == COPY:
        return f"{mean:.0%} of a copy's bandwidth"
    who = "" if target.ours == OURS else f" as {target.ours}"
    return takes(target.peer, mean) + who


def _reached(results: Sequence[Result], target: Target) -> list[float]:
    """Ratio or share of each case."""
    cases: dict[tuple[str, int], dict[str, Result]] = {}
    for result in results:
        cases.setdefault((result.text, result.size), {})[result.contender] = result
    found = []
    for by_name in cases.values():
        ours = by_name.get(target.ours)
        value = ours and ours.of_memory_copy if target.peer == COPY else times(ours, by_name.get(target.peer))
        if value:
            found.append(value)
    return found


# Expressions, calls, products --------------------------------------------------------------------------------


def verdicts(session: GpuSession, dispatch: dict[str, dict[str, float]]) -> list[str]:
    """A line for each target of a run. ``dispatch``: expression -> contender -> seconds of Python for one call."""
    sizes = sorted({r.size for r in session.results if r.size >= BANDWIDTH_FROM})
    lines = [line for size in sizes for line in (*_bandwidth(session, size), *_peer(session, size))]
    primitives = primitive_verdicts(session.beside, session.be.compute_capability[0])
    return [*lines, *_dispatch(dispatch), *_products(session), *primitives]


def _bandwidth(session: GpuSession, size: int) -> list[str]:
    shares = {
        r.case: r.of_memory_copy
        for r in session.results
        if r.size == size and r.contender == ASSIGN and r.of_memory_copy is not None
    }
    if not shares:
        return []
    under = [f"{case} {share:.0%}" for case, share in shares.items() if share < BANDWIDTH_TARGET]
    lowest = min(shares, key=lambda case: shares[case])
    shown = ", ".join(under) or f"lowest {lowest} {shares[lowest]:.0%}"
    return [
        f"{size_text(size)}, share of the bandwidth of a copy within the GPU: {shown} "
        f"(target >= {BANDWIDTH_TARGET:.0%}): {met(not under)}"
    ]


def _peer(session: GpuSession, size: int) -> list[str]:
    lines = []
    for peer, by_case in speedups(session, size, ASSIGN).items():
        mean = statistics.geometric_mean(by_case.values())
        line = f"{size_text(size)}, geometric mean over {len(by_case)}: {peer} takes {mean:.2f} times as long"
        if peer == PEER:
            slower = [f"{case} {1 / value:.2f}" for case, value in by_case.items() if value < 1]
            line += f"; slower than it: {', '.join(slower) or 'none'} (target: mean >= {PEER_TARGET:g}): "
            line += met(mean >= PEER_TARGET)
        lines.append(line)
    return lines


def _dispatch(dispatch: dict[str, dict[str, float]]) -> list[str]:
    lines = []
    for name, target in ((ASSIGN, ASSIGN_TARGET), (PREPARED, PREPARED_TARGET)):
        times = {case: by_name[name] for case, by_name in dispatch.items() if name in by_name}
        if times:
            worst = max(times, key=lambda case: times[case])
            lines.append(
                f"Python for one call, {name.split()[1]}: at most {times[worst] * 1e6:.2f} us ({worst}; target "
                f"< {target * 1e6:g}): {met(times[worst] < target)}"
            )
    return lines


def _products(session: GpuSession) -> list[str]:
    lines = []
    for text, size in dict.fromkeys((r.text, r.size) for r in session.beside if r.gflop_per_s and title(r) == PRODUCTS):
        found = [r for r in session.beside if (r.text, r.size) == (text, size)]
        here = {r.contender: r.gflop_per_s for r in found if r.gflop_per_s}
        ours, others = here.get(PREPARED), [rate for name, rate in here.items() if "neonlike" not in name]
        if ours and others:
            share = ours / max(others)
            lines.append(
                f"{text}: {share:.0%} of the library's best rate (target >= {PRODUCT_TARGET:.0%}): "
                f"{met(share >= PRODUCT_TARGET)}"
            )
    return lines
