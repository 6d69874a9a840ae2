"""Division of a convolution's weight gradient into units of work: the meta array of ``conv/update.c.j2``.

Fields and terms are those of ``conv/plan.py``, with the single phase of a forward convolution. Strips of a single image
have all columns, also those that a stride passes over: taps are broadcast, so that positions may be any distance apart.
"""

from __future__ import annotations

from functools import lru_cache

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind, Tile
from neonlike.backends.cpu.primitives.conv.plan import (
    TILE_SIDE,
    Blocks,
    Phase,
    block_phase,
    flatten,
    forward_axis,
    image_block,
    phase_records,
    shapes,
)
from neonlike.backends.cpu.primitives.conv.pointwise import flattened, pointwise
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, even, power_of_two, round_up

AREA_LANES = 2048
"""Maximum number of lanes in an area."""
UPDATE_BYTES = 2 << 20
"""Maximum bytes of a unit's sums; each is read and written once per area."""
UPDATE_STRIPS = 256 << 10
"""Maximum bytes of the strips of a block of channels, to stay in the L2 cache."""
UPDATE_UNITS, UNCACHED_UNITS = 8, 4
"""Minimum number of units, if there are enough areas; up to this many threads share them evenly."""
CACHED_SUMS = 512 << 10
"""Maximum bytes of a unit's sums that stay in the L2 cache until they are added. Larger ones are written to memory and
read again, which takes as long as some 100 lanes: then the number of units is halved."""
LEAST_LANES = 128
"""Minimum number of lanes in areas that are reduced for more units: each unit has separate sums, which are added up."""
LIST_BYTES = 128
"""Bytes of the description of a list of tiles, in front of it."""
TILES_OF_UPDATE = Tile(2 * TILE_SIDE, 2 * TILE_SIDE, TILE_SIDE)
"""Maps and channels of four of the processor's tiles."""
UPDATE_TAPS = 144
"""Minimum number of taps per unit: with fewer, packing its errors takes longer than its products."""


def update_tile(vector_bytes: int, itemsize: int) -> Tile:
    """Tile of the weight gradient: about as many accumulators as registers allow beside the operands."""
    lanes = vector_bytes // itemsize
    return Tile(2 * lanes, 12 if vector_bytes == 64 else 6, lanes)


def _unit_channels(channels: int, taps: int, areas: int, channel_bytes: int, at_once: int) -> int:
    """Channels per unit, such that there are 1, 2, 4 or a multiple of 8 blocks, which threads share evenly.

    Where so many channels are multiplied ``at_once``, blocks are rounded up to these.
    """
    needed = min(ceil_div(UPDATE_UNITS, areas), channels * taps // UPDATE_TAPS)
    blocks = max(1, needed, ceil_div(channels * channel_bytes, UPDATE_BYTES))
    blocks = round_up(blocks, UPDATE_UNITS) if blocks > UPDATE_UNITS // 2 else power_of_two(blocks)
    return min(channels, round_up(ceil_div(channels, min(blocks, channels)), at_once))


def _list_bytes(block: Blocks, channels: int) -> int:
    """Bytes of the list of tiles of a block of channels."""
    width = block.tile.width
    return LIST_BYTES + (channels * block.taps // width + 1) * (width * (block.rows + 1) + 6) * 4


def _strips(g: ConvGeometry, block: Blocks, channels: int, itemsize: int) -> tuple[int, int, int]:
    """Elements between lanes, elements of a strip, and channels of a block, whose strips stay in the L2 cache."""
    step = g.strides[2] if g.N == 1 and not pointwise(g) else 1
    strip = block.whole_strip([block.phase]) if step > 1 else block.strip
    fitting = max(1, UPDATE_STRIPS // (block.strips * strip * itemsize))
    return step, strip, min(channels, round_up(even(channels, fitting), block.tile.width))


@lru_cache(maxsize=512)
def update_plan(g: ConvGeometry, vector_bytes: int, itemsize: int, tiles: bool = False) -> ConvPlan:
    """Plan of the weight gradient; neither it nor results depend on the number of threads.

    Parameters
    ----------
    g : ConvGeometry
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    tiles : bool
        Whether the processor's tiles multiply, which have the channels of one tap.
    """
    g = flattened(g)
    axes = zip(g.MPQ, g.TRS, g.padding, g.strides, g.dilation)
    fields = shapes(g, False)
    channels, maps = fields["CHANNELS"], fields["MAPS"]
    tile = TILES_OF_UPDATE if tiles else update_tile(vector_bytes, itemsize)
    all_maps, images = round_up(maps, tile.maps), image_block(g.N, tile.lanes)
    phase: Phase = tuple(forward_axis(*axis)[0] for axis in axes)  # type: ignore[assignment]
    block = block_phase(phase, images, AREA_LANES, tile, itemsize)
    areas = block.units(1, ceil_div(g.N, images))
    row_bytes = all_maps * block.taps * itemsize
    each = _unit_channels(channels, block.taps, g.groups * areas, row_bytes, tile.width if tiles else 1)
    unit_blocks = ceil_div(channels, each)
    units = UPDATE_UNITS if each * row_bytes <= CACHED_SUMS else UNCACHED_UNITS
    few = ceil_div(units, g.groups * areas * unit_blocks)
    if few > 1:
        block = block_phase(phase, images, max(LEAST_LANES, block.rows * block.lanes // few), tile, itemsize)
        areas = block.units(1, ceil_div(g.N, images))
    parts = min(areas, ceil_div(units, g.groups * unit_blocks))
    step, strip, some = _strips(g, block, each, itemsize)
    records, tails = phase_records([block], [areas])
    read = round_up(some, TILE_SIDE) if tiles else some  # channels
    direct = pointwise(g) and not tiles and images == g.N and some * g.DHW[2] * g.N < 1 << 31
    fields |= {
        "IMAGE_BLOCK": images,
        "IMAGE_BLOCKS": ceil_div(g.N, images),
        "CHANNEL_BLOCK": some,
        "DIRECT": int(direct),
        "UNIT_CHANNELS": each,
        "UNIT_BLOCKS": unit_blocks,
        "UNIT_PARTS": parts,
        "FILTERS_SIZE": round_up(g.groups * unit_blocks * parts * each * all_maps * block.taps, 64),
        "STRIPS_SIZE": round_up((read * block.strips + 1) * strip + tile.lanes, 64),
        "SUMS_SIZE": round_up(block.rows * all_maps * block.lanes, 64),
        "LIST_SIZE": round_up(ceil_div(_list_bytes(block, some), itemsize), 64),
        "ALL_UNITS": areas,
    }
    private = fields["STRIPS_SIZE"] + fields["SUMS_SIZE"] + fields["LIST_SIZE"]
    meta, shared = flatten(fields, records, tails), fields["FILTERS_SIZE"]
    return ConvPlan(Kind.DIRECT, tile, meta, 0, shared, private, (("step", step),))
