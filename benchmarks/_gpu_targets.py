"""What primitives are to reach on a GPU: beside PyTorch, which calls cuDNN, beside cuBLAS, and beside copies of memory.

A target is of the geometric mean over the cases that ran: of how many times as long the other takes, or of the share of
a copy's bandwidth. cuDNN's local response normalisation cannot be reached through PyTorch, whose own stands for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from _cases import Result, times
from _gpu_conv import CUBLAS, PASSES
from _gpu_conv import EMULATED_LAYERS as SMALL_LAYERS
from _gpu_conv import LAYERS as CONVOLVED
from _gpu_layers import WHOLE
from _terms import met

OURS, TORCH = "neonlike", "torch"
COPY = "a copy"
"""Stands for the peer where a share of the bandwidth has a target."""
NEWER = 9
"""Major compute capability from which on the first of two targets counts (H100), below it the second (A100)."""
BY_NAME = {layer.name: layer for layer in (*CONVOLVED, *SMALL_LAYERS)}


@dataclass(frozen=True)
class Target:
    """What cases of a kind are to reach.

    Attributes
    ----------
    text : str
        The kind.
    chosen : callable
        Whether a result is of that kind.
    least : (float, float)
        On GPUs of capability ``NEWER``, and on older ones.
    peer, ours : str
        Who is compared.
    """

    text: str
    chosen: Callable[[Result], bool]
    least: tuple[float, float]
    peer: str = TORCH
    ours: str = OURS


def _convolution(precision: str, kind: str = "", passes: Sequence[str] = PASSES) -> Callable[[Result], bool]:
    """Convolutions in a precision ("": any), of a kind: 1x1, 3x3, others or ("") all."""

    def chosen(result: Result) -> bool:
        words = result.text.replace(",", " ").split()
        layer = BY_NAME.get(result.case.rpartition(" ")[0])
        if layer is None or words[0] != "convolution" or words[1] not in passes or precision not in ("", words[2]):
            return False
        found = "1x1" if layer.window == layer.stride == layer.groups == 1 else "3x3" if layer.tiled else "others"
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
    return f"{target.peer} takes {mean:.2f} times as long{who}"


def _reached(results: Sequence[Result], target: Target) -> list[float]:
    """What each case reached."""
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
