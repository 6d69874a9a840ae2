"""Faults of Winograd convolution on pairs of bfloat16: the kernel's transforms, its plan and its choice."""

# ruff: noqa: E501 - a fault is a line

from __future__ import annotations

from tests.planted.table import Mutant

CONV = "neonlike/kernels/templates/c/conv/conv_winograd_"
PLAN = "neonlike/backends/cpu/primitives/conv/winograd.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("winograd_pairs", name, file, old, new)


MUTANTS = (
    fault("the first channel of a pair twice", CONV + "many.h", "find_rows(g, a, EACH * c + i, &b)", "find_rows(g, a, EACH * c + i / EACH * EACH, &b)"),
    fault("few images: points of the first channel transposed", CONV + "few.h", "paired(first[j][i], points[i])", "paired(first[i][j], points[i])"),
    fault("backward: later pieces of a map's filters in other words", CONV + "filters.h", "point * step + i / EACH, some[point]", "point * step + i, some[point]"),
    fault("the last of an odd number of channels dropped", PLAN, "words = half(channels) if pairs", "words = channels // 2 if pairs"),
    fault("few images: room for the rows of one channel", PLAN, "strips = channels *", "strips ="),
    fault("tiles of 4 x 4", PLAN, "return 2 if direct > _cost_of_pairs", "return (4 if allowed == 4 else 2) if direct > _cost_of_pairs"),
)
