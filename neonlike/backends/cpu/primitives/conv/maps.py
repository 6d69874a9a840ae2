"""Convolution of few images, vectorized over output maps: meta arrays of ``conv/maps.c.j2``.

If images do not fill vectors, the lanes of ``conv/plan.py`` are positions of an output row: some at its end are empty,
and their input has to be contiguous. Here lanes are output maps: a tile has as many positions as suit the length of
rows, and the input of a position is broadcast. Fields and phases are those of ``conv/plan.py``.

Filters are packed once for all units. Where a single area has all positions, each unit reads the filters of other maps,
and packs them itself, a block of channels at a time.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import accumulate

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind, Tile
from neonlike.backends.cpu.primitives.conv.plan import (
    DATA_UNITS,
    GAP_BYTES,
    SUMS_BYTES,
    Blocks,
    Phase,
    block_phase,
    column_reaches,
    data_phases,
    data_tile,
    flat_phases,
    flatten,
    image_block,
    phase_records,
    shapes,
)
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, even, round_up

VECTORS = 2
"""Vectors of maps per tile."""
POSITIONS = {64: (14, 13, 12, 11, 10, 9, 8, 7, 6), 32: (6, 5, 4), 16: (6, 5, 4)}
"""Positions per tile, by vector size in bytes: as many accumulators as registers allow beside the operands, or
fewer."""
AREA_LANES, LEAST_LANES = 1024, 64
"""Maximum number of lanes of an area, and number below which areas are not halved to get more of them."""
PANEL_BYTES = 20 << 10
"""Maximum bytes of filters for a tile's maps and a block of channels, to stay in the L1 cache with the tile's input."""


def map_tile(phases: list[Phase], images: int, maps: int, vector_bytes: int, itemsize: int) -> Tile:
    """Tile of maps by positions that computes the fewest positions beyond the ends of rows.

    Parameters
    ----------
    phases : list of Phase
    images, maps : int
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    """
    lanes = vector_bytes // itemsize
    rows = [phase[2].length * images for phase in phases]
    wide = min(POSITIONS[vector_bytes], key=lambda positions: sum(round_up(row, positions) for row in rows))
    return Tile(lanes * min(VECTORS, ceil_div(maps, lanes)), wide, lanes)


@lru_cache(maxsize=512)
def map_lanes(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int) -> bool:
    """Whether this kernel is used: images do not fill vectors, and it takes fewer products.

    Products of empty lanes and padded maps count. With fewer products it was 1.05 to 2.3 times as fast as
    ``conv/plan.py`` on a Zen 4 with N from 1 to 8. With equally many it was as fast, and with a stride 1.05 to 1.6
    times as fast, because input and filters take less packing: then it is used, too.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    """
    if g.N % (vector_bytes // itemsize) == 0:
        return False
    phases, maps = data_phases(g, backward), (g.C if backward else g.K) // g.groups
    ours, theirs = map_tile(phases, g.N, maps, vector_bytes, itemsize), data_tile(maps, vector_bytes, itemsize)
    width = theirs.width * theirs.lanes
    flat = flat_phases(phases, g.N, width)
    made = needed = 0
    for depth, height, columns in phases:
        rows = len(depth.taps) * len(height.taps) * len(columns.taps) * depth.length * height.length
        row = columns.length * g.N
        made += rows * round_up(row, ours.width)
        needed += rows * (row + sum(column_reaches(columns)) * g.N if flat else round_up(row, width))
    gain = needed * round_up(maps, theirs.maps) - made * round_up(maps, ours.maps)
    return gain > 0 or (gain == 0 and max(g.strides) > 1)


def _groups(phases: list[Phase]) -> list[list[Phase]]:
    """Groups of phases that differ only along the width: a unit computes a whole group."""
    side = len({phase[2] for phase in phases})
    return [phases[i : i + side] for i in range(0, len(phases), side)]


def _blocks(groups: list[list[Phase]], images: int, times: int, area: int, tile: Tile, itemsize: int) -> list[Blocks]:
    """Areas of each group's first and longest phase: of ``area`` lanes, or fewer if that gives few units.

    ``times`` is the number of groups of channels times blocks of images, each with its own units.
    """
    while True:
        blocks = [block_phase(group[0], images, area, tile, itemsize) for group in groups]
        if sum(block.units(times, 1) for block in blocks) >= DATA_UNITS or area <= LEAST_LANES:
            return blocks
        area = max(LEAST_LANES, area // 2)


def _strip(group: list[Phase], block: Blocks, whole_rows: bool) -> int:
    """Elements of a packed input row; whole_rows: all columns from the first to the last one read."""
    return block.strip if group[0][2].in_step > 1 and not whole_rows else block.whole_strip(group)


def step(g: ConvGeometry, backward: bool) -> int:
    """Elements between positions of a packed row: the stride for a single image, whose rows are copied unchanged."""
    return g.strides[2] if g.N == 1 and not backward else 1


@lru_cache(maxsize=512)
def maps_plan(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, threads: int) -> ConvPlan:
    """Plan of the forward pass or data gradient; neither results nor bsum partial sums depend on ``threads``.

    Parameters
    ----------
    g, backward, vector_bytes, itemsize
        As of :func:`map_lanes`.
    threads : int
    """
    phases, fields, lanes = data_phases(g, backward), shapes(g, backward), vector_bytes // itemsize
    channels, maps = fields["CHANNELS"], fields["MAPS"]
    images = image_block(g.N, lanes)
    image_blocks, apart, gap = ceil_div(g.N, images), step(g, backward), GAP_BYTES // itemsize
    tile = map_tile(phases, images, maps, vector_bytes, itemsize)
    tiles, groups = ceil_div(maps, tile.maps), _groups(phases)
    side = len(groups[0])
    area = min(AREA_LANES, SUMS_BYTES // (tiles * tile.maps * itemsize)) // side
    blocks = _blocks(groups, images, g.groups * image_blocks, max(LEAST_LANES // side, area), tile, itemsize)
    counts = [block.units(g.groups * image_blocks, 1) for block in blocks]
    parts = min(tiles, max(1, ceil_div(4 * threads, sum(counts)))) if threads > 1 else 1
    cut = [replace(block, phase=phase) for group, block in zip(groups, blocks) for phase in group]
    taps = max(1, *(block.taps for block in cut))
    some = even(channels, PANEL_BYTES // (taps * tile.maps * itemsize))
    some = min(channels, round_up(some, lanes)) if backward else some  # filters are transposed by vectors of channels
    units = [count * parts if i == 0 else 0 for count in counts for i in range(side)]
    filters = [0, *accumulate(g.groups * tiles * tile.maps * channels * block.taps for block in cut)]
    shared = round_up(filters.pop(), 64) + gap if sum(counts) > 1 else 0
    records, tails = phase_records(cut, units, filters)
    strips = max(
        some * len(block.phase[0].taps) * block.row_range[1] * _strip(group, block, apart > 1)
        for group, block in zip(groups, blocks)
    )
    length = max(block.rows * (block.lanes * side + tile.width) for block in blocks)
    fields |= {
        "IMAGE_BLOCK": images,
        "IMAGE_BLOCKS": image_blocks,
        "CHANNEL_BLOCK": some,
        "MAP_PARTS": parts,
        "SIDE": side,
        "FILTERS_SIZE": shared,
        "PANEL_SIZE": 0 if shared else round_up(tiles * tile.maps * some * taps, 64),
        "STRIPS_SIZE": round_up(max(strips + tile.width * apart, tile.maps * round_up(length, lanes)), 64),
        "SUMS_SIZE": round_up((tiles * length + lanes) * tile.maps, 64),
        "LIST_SIZE": round_up(ceil_div(some * taps * 8, itemsize), 64) + gap,
        "ALL_UNITS": sum(counts) * parts,
    }
    private = sum(fields[name] for name in ("PANEL_SIZE", "STRIPS_SIZE", "SUMS_SIZE", "LIST_SIZE"))
    return ConvPlan(Kind.MAPS, tile, flatten(fields, records, tails), sum(counts), shared, private, (("step", apart),))
