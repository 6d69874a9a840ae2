"""Plans of convolutions: the kernel and its arguments. The files named by ``Kind`` make them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple


class Tile(NamedTuple):
    """Accumulators in registers: output maps by vectors (for the weight gradient by taps), and lanes of a vector."""

    maps: int
    width: int
    lanes: int


class Kind(Enum):
    """The kernel of a plan. ``conv.py`` names its template; the file named here makes the plan."""

    DIRECT = "conv/plan.py, conv/update.py"
    WINOGRAD = "conv/winograd.py"
    POINTWISE = "conv/pointwise.py"
    DEPTHWISE = "conv/depthwise.py"
    MAPS = "conv/maps.py"
    THIN = "conv/thin.py"
    FEW = "conv/few.py"


@dataclass(frozen=True)
class ConvPlan:
    """A convolution divided into units of work: what its kernel is compiled for and called with.

    Attributes
    ----------
    kind : Kind
    tile : Tile
    fields : tuple of int
        The meta array.
    units : int
        Units of work; rows of the partial sums of a bsum.
    shared, private : int
        Elements of workspace, for all threads together and for each.
    variant : tuple of (name, value)
        Context of the kernel's template besides the tile; the kind's file describes it.
    """

    kind: Kind
    tile: Tile
    fields: tuple[int, ...]
    units: int
    shared: int
    private: int
    variant: tuple[tuple[str, int | str], ...] = ()

    @cached_property
    def meta(self) -> Any:
        """The meta array as kernels take it."""
        return (ctypes.c_int64 * len(self.fields))(*self.fields)

    def work(self, threads: int) -> int:
        """Elements of workspace of a call."""
        return self.shared + threads * self.private
