"""Convolution by single elements (1 x 1 filters that move by one): the meta array of ``conv/pointwise.c.j2``.

All positions and images of a channel are one run of lanes, so that it is a matrix product, with filters of any
convolution and no regard to where rows or images end.
"""

from __future__ import annotations

import math
from functools import lru_cache

from neonlike.backends.cpu.conv_kind import ConvPlan, Kind
from neonlike.backends.cpu.conv_plan import APART, CACHE_WAY, SECOND_WAY, WAYS, ceil_div, data_tile, even, whole
from neonlike.backends.geometry.conv import ConvGeometry

META = (
    "CHANNELS", "MAPS", "GROUPS", "ALL_MAPS", "ALL_LANES", "FILTER_GROUP", "FILTER_CHANNEL", "FILTER_MAP",
    "BLOCK", "BLOCKS", "CHANNEL_BLOCK", "COPY", "MAP_PARTS", "FILTERS_SIZE", "PANEL_SIZE", "SUMS_SIZE", "ALL_UNITS",
    "META_SIZE",
)  # fmt: skip
"""What the meta array holds."""

BLOCKS = 128
"""Blocks of lanes at most: each has its row of sums for a bsum."""
LEAST_UNITS = 64
"""Units of work at least, where there are as many tiles: threads share them evenly then."""
CHANNEL_BLOCK = 2048
"""Channels of a panel, which stays in the second-level cache."""


def pointwise(g: ConvGeometry) -> bool:
    """A convolution by single elements: each output position reads its own input position."""
    return max(*g.TRS, *g.strides) == 1 and not any(g.padding)


def _copied(step: int, channels: int) -> bool:
    """Whether tiles of maps read a copy of the lanes: channels are ``step`` bytes apart, and fall on too few places.

    Where they have one of the first-level cache, reading them as they are took up to 1.15 times as long, where they
    have two, 0.8 to 1.05 times.
    """
    return step % CACHE_WAY == 0 or channels > WAYS * SECOND_WAY // math.gcd(step, SECOND_WAY)


@lru_cache(maxsize=512)
def pointwise_plan(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, threads: int) -> ConvPlan:
    """Forward, or data gradient. Results do not depend on ``threads``, nor do the blocks by which a bsum is cut."""
    channels, all_maps = (g.K, g.C) if backward else (g.C, g.K)
    channels, maps = channels // g.groups, all_maps // g.groups
    tile, lanes = data_tile(maps, vector_bytes, itemsize), math.prod(g.DHW) * g.N
    width, tiles = tile.width * tile.lanes, ceil_div(maps, tile.maps)
    block = whole(ceil_div(lanes, BLOCKS), width)
    blocks = ceil_div(lanes, block)
    units = blocks * g.groups
    parts = min(tiles, ceil_div(max(LEAST_UNITS, 4 * threads), units)) if threads > 1 else 1
    some = even(channels, CHANNEL_BLOCK)
    steps = (1, g.K) if backward else (g.K, 1)
    apart = APART // itemsize
    fields = {
        "CHANNELS": channels, "MAPS": maps, "GROUPS": g.groups, "ALL_MAPS": all_maps, "ALL_LANES": lanes,
        "FILTER_GROUP": g.K // g.groups, "FILTER_CHANNEL": steps[0], "FILTER_MAP": steps[1],
        "BLOCK": block, "BLOCKS": blocks, "CHANNEL_BLOCK": some, "COPY": int(_copied(lanes * itemsize, channels)),
        "MAP_PARTS": parts,
        "FILTERS_SIZE": whole(g.groups * tiles * tile.maps * channels, 64) + apart,
        "PANEL_SIZE": some * width,
        "SUMS_SIZE": tile.maps * width * (tiles if some < channels else 1) + apart,
        "ALL_UNITS": units * parts,
    }  # fmt: skip
    private = fields["PANEL_SIZE"] + fields["SUMS_SIZE"]
    meta = tuple(fields[name] for name in META[:-1])
    return ConvPlan(Kind.POINTWISE, tile, meta, units, fields["FILTERS_SIZE"], private)
