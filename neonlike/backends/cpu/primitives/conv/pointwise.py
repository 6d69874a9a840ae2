"""Pointwise convolution (1 x 1 filters, stride 1, no padding): the meta array of ``conv/pointwise.c.j2``.

All positions and images of a channel form one run of lanes, regardless of rows and images: it is a matrix product of
maps x channels by channels x lanes, with the filters in a convolution's layout.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind
from neonlike.backends.cpu.primitives.conv.plan import (
    CACHE_WAY,
    GAP_BYTES,
    OF_TILES,
    SECOND_WAY,
    TILE_SIDE,
    WAYS,
    data_tile,
)
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, even, round_up

META = (
    "CHANNELS", "MAPS", "GROUPS", "ALL_MAPS", "ALL_LANES", "FILTER_GROUP", "FILTER_CHANNEL", "FILTER_MAP",
    "BLOCK", "BLOCKS", "CHANNEL_BLOCK", "COPY", "MAP_PARTS", "FILTERS_SIZE", "PANEL_SIZE", "SUMS_SIZE", "ALL_UNITS",
    "META_SIZE",
)  # fmt: skip
"""Fields of the meta array."""

BLOCKS = 128
"""Maximum number of lane blocks: each has a row of partial sums for a bsum."""
LEAST_UNITS = 64
"""Minimum number of units of work, if there are enough tiles: threads then share them evenly."""
CHANNEL_BLOCK = 2048
"""Maximum number of channels in a panel, which stays in the L2 cache."""


def pointwise(g: ConvGeometry) -> bool:
    """Whether each output position reads only its own input position."""
    return max(*g.TRS, *g.strides) == 1 and not any(g.padding)


def flattened(g: ConvGeometry) -> ConvGeometry:
    """Convert a pointwise convolution to an equal one with a single row, which can be divided anywhere."""
    if not pointwise(g):
        return g
    row = 1, 1, math.prod(g.DHW)
    return replace(g, DHW=row, MPQ=row)


def _copied(step: int, channels: int) -> bool:
    """Whether tiles read a packed copy of the input: channels ``step`` bytes apart would share too few cache sets.

    Relative to the packed copy, reading in place takes up to 1.15 of the time if all channels share one set of the L1
    cache, and 0.8 to 1.05 if they share two.
    """
    return step % CACHE_WAY == 0 or channels > WAYS * SECOND_WAY // math.gcd(step, SECOND_WAY)


@lru_cache(maxsize=512)
def pointwise_plan(
    g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, threads: int, by_tiles: bool = False
) -> ConvPlan:
    """Plan of the forward pass or data gradient; neither results nor bsum partial sums depend on ``threads``.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    threads : int
    by_tiles : bool
        Whether the processor's tiles multiply, ``TILE_SIDE`` channels at once.
    """
    channels, all_maps = (g.K, g.C) if backward else (g.C, g.K)
    channels, maps = channels // g.groups, all_maps // g.groups
    tile, each = (OF_TILES, TILE_SIDE) if by_tiles else (data_tile(maps, vector_bytes, itemsize), 1)
    lanes = math.prod(g.DHW) * g.N
    width, tiles = tile.width * tile.lanes, ceil_div(maps, tile.maps)
    block = round_up(ceil_div(lanes, BLOCKS), width)
    blocks = ceil_div(lanes, block)
    units = blocks * g.groups
    parts = min(tiles, ceil_div(max(LEAST_UNITS, 4 * threads), units)) if threads > 1 else 1
    some = even(ceil_div(channels, each), CHANNEL_BLOCK // each) * each
    steps = (1, g.K) if backward else (g.K, 1)
    apart = GAP_BYTES // itemsize
    fields = {
        "CHANNELS": channels, "MAPS": maps, "GROUPS": g.groups, "ALL_MAPS": all_maps, "ALL_LANES": lanes,
        "FILTER_GROUP": g.K // g.groups, "FILTER_CHANNEL": steps[0], "FILTER_MAP": steps[1],
        "BLOCK": block, "BLOCKS": blocks, "CHANNEL_BLOCK": some, "COPY": int(_copied(lanes * itemsize, channels)),
        "MAP_PARTS": parts,
        "FILTERS_SIZE": round_up(g.groups * tiles * tile.maps * round_up(channels, each), 64) + apart,
        "PANEL_SIZE": some * width,
        "SUMS_SIZE": tile.maps * width * (tiles if some < channels else 1) + apart,
        "ALL_UNITS": units * parts,
    }  # fmt: skip
    private = fields["PANEL_SIZE"] + fields["SUMS_SIZE"]
    meta = tuple(fields[name] for name in META[:-1])
    return ConvPlan(Kind.POINTWISE, tile, meta, units, fields["FILTERS_SIZE"], private)
