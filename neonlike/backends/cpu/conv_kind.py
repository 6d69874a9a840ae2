"""Plans of convolutions: which kernel, and what it is called with. The files named by ``Kind`` make them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple


class Tile(NamedTuple):
    """Sums kept in registers: output maps by vectors of lanes (by taps, for the weight gradient), lanes of a vector."""

    maps: int
    width: int
    lanes: int


class Kind(Enum):
    """Which kernel a plan is made for. ``conv.py`` has its template, the file named here the plan."""

    DIRECT = "conv_plan.py, conv_update_plan.py"
    WINOGRAD = "conv_winograd.py"
    POINTWISE = "conv_pointwise.py"
    DEPTHWISE = "conv_depthwise.py"
    MAPS = "conv_maps.py"
    THIN = "conv_thin.py"


@dataclass(frozen=True)
class ConvPlan:
    """What a kernel is called with.

    Attributes
    ----------
    kind : Kind
    tile : Tile
    fields : tuple of int
        The meta array.
    units : int
        Units of work; rows of the sums for a bsum.
    shared, private : int
        Elements of working memory, for all and for each thread.
    variant : tuple of (name, value)
        What the kernel's template is told besides the tile, as the kind's file says.
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
        """Elements of working memory of a call."""
        return self.shared + threads * self.private
