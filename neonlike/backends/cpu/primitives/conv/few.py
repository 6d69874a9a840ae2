"""Forward convolution with few output positions: the meta array of ``conv/few.c.j2``.

The last layers of a network have many channels and maps and small images. For one or a few images, other kernels pack
or transform filters that are then used only a few times. Here each filter is read once, in place.
"""

from __future__ import annotations

import math
from functools import lru_cache

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind, Tile
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, round_up

META = (
    "CHANNELS", "MAPS", "IMAGES", "POSITIONS", "TILES", "IN_D", "IN_H", "IN_W", "OUT_D", "OUT_H", "OUT_W",
    "T", "R", "S", "STEP_D", "STEP_H", "STEP_W", "PAD_D", "PAD_H", "PAD_W", "DILATION_D", "DILATION_H", "DILATION_W",
    "BLOCK", "UNIT_MAPS", "READS_SIZE", "COLUMNS_SIZE", "SUMS_SIZE", "SCRATCH_SIZE", "ALL_UNITS", "META_SIZE",
)  # fmt: skip
"""Fields of the meta array."""

MOST_POSITIONS, LEAST_FILTERS = 64, 4096
"""Maximum output positions, images included, and minimum elements of filters.

On a Zen 4 at N=1 it was 4 times as fast as the kernels of conv/plan.py and conv/maps.py for 512 channels and maps of
4 x 4, and 1.3 times for 128 channels and 256 maps of 8 x 8.
"""
VECTORS = 2
"""Vectors of maps per tile."""
POSITIONS = {64: (2, 4, 8, 14), 32: (2, 4, 6), 16: (2, 4, 6)}
"""Positions per tile, by vector size in bytes: as many accumulators as registers allow beside the operands, or
fewer."""
BLOCK_BYTES = 128 << 10
"""Maximum bytes of a block's filters, so that they and those of the next block stay in the L2 cache."""
PARTS = 2
"""Units of work per thread: few, so that each reads long runs of a row of filters."""


def few_positions(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int) -> bool:
    """Whether this kernel is used: few positions, many filters, and images that do not fill vectors.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    """
    lanes = vector_bytes // itemsize
    if backward or g.groups > 1 or g.N % lanes == 0 or g.K < lanes:
        return False
    return math.prod(g.MPQ) * g.N <= MOST_POSITIONS and g.sizeF >= LEAST_FILTERS and g.sizeI // g.C < 1 << 31


@lru_cache(maxsize=512)
def few_plan(g: ConvGeometry, vector_bytes: int, itemsize: int, threads: int) -> ConvPlan:
    """Plan of the convolution; results do not depend on ``threads``, because each is a sum in fixed order.

    Parameters
    ----------
    g, vector_bytes, itemsize
        As of :func:`few_positions`.
    threads : int
    """
    lanes, positions = vector_bytes // itemsize, math.prod(g.MPQ) * g.N
    sizes = POSITIONS[vector_bytes]
    each = ceil_div(positions, ceil_div(positions, sizes[-1]))
    tile = Tile(lanes * min(VECTORS, ceil_div(g.K, lanes)), next(size for size in sizes if size >= each), lanes)
    tiles, units = ceil_div(positions, tile.width), min(PARTS * threads, ceil_div(g.K, tile.maps))
    maps = round_up(ceil_div(g.K, units), tile.maps)
    depth, taps = g.C * math.prod(g.TRS), math.prod(g.TRS)
    block = max(1, min(depth, BLOCK_BYTES // (maps * itemsize)))
    three = {
        "IN": g.DHW, "OUT": g.MPQ, "STEP": g.strides, "PAD": g.padding, "DILATION": g.dilation,
    }  # fmt: skip
    fields = {f"{name}_{axis}": size for name, triple in three.items() for axis, size in zip("DHW", triple)}
    fields |= dict(zip("TRS", g.TRS)) | {
        "CHANNELS": g.C, "MAPS": g.K, "IMAGES": g.N, "POSITIONS": positions, "TILES": tiles,
        "BLOCK": block, "UNIT_MAPS": maps,
        "READS_SIZE": round_up(ceil_div(tiles * taps * tile.width * 4, itemsize), 64),
        "COLUMNS_SIZE": round_up(tiles * depth * tile.width, 64),
        "SUMS_SIZE": round_up(tiles * tile.width * maps, 64),
        "SCRATCH_SIZE": round_up(tile.maps * max(block, tiles * tile.width + lanes), 64),
        "ALL_UNITS": ceil_div(g.K, maps),
    }  # fmt: skip
    shared, private = fields["READS_SIZE"] + fields["COLUMNS_SIZE"], fields["SUMS_SIZE"] + fields["SCRATCH_SIZE"]
    return ConvPlan(Kind.FEW, tile, tuple(fields[name] for name in META[:-1]), 1, shared, private)
