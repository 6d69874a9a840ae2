"""Plans of convolutions: the kernel and its arguments, created by the files that ``Kind`` names."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple


class Tile(NamedTuple):
    """Register accumulators: output maps by vectors (for the weight gradient by taps), and lanes per vector."""

    maps: int
    width: int
    lanes: int


class Kind(Enum):
    """Kernel of a plan; ``conv/hooks.py`` names its template, and the file named here creates the plan."""

    DIRECT = "conv/plan.py, conv/update.py"
    WINOGRAD = "conv/winograd.py"
    POINTWISE = "conv/pointwise.py"
    DEPTHWISE = "conv/depthwise.py"
    MAPS = "conv/maps.py"
    THIN = "conv/thin.py"
    FEW = "conv/few.py"


@dataclass(frozen=True)
class ConvPlan:
    """A convolution divided into units of work: compile-time context and arguments of its kernel.

    Attributes
    ----------
    kind : Kind
    tile : Tile
    fields : tuple of int
        The meta array.
    units : int
        Number of units of work; also the rows of partial sums of a bsum.
    shared, private : int
        Elements of workspace, shared by all threads and per thread.
    variant : tuple of (name, value)
        Context of the kernel's template in addition to the tile; described in the kind's file.
    stored : bool
        Whether the kernel reads its two operands as bfloat16, of which it makes pairs.
    """

    kind: Kind
    tile: Tile
    fields: tuple[int, ...]
    units: int
    shared: int
    private: int
    variant: tuple[tuple[str, int | str], ...] = ()
    stored: bool = False

    @cached_property
    def meta(self) -> Any:
        """The meta array in the kernels' format."""
        return (ctypes.c_int64 * len(self.fields))(*self.fields)

    def work(self, threads: int) -> int:
        """Elements of workspace per call."""
        return self.shared + threads * self.private
