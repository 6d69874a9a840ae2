"""Division of direct convolution into units of work: the meta array of ``conv/direct.c.j2``, and shared helpers.

A *lane* is an output position of one image; images are innermost, so lanes of a row are contiguous. A *tile* is the
accumulators in registers: output maps by vectors of lanes. An *area* is the rows, columns and images of a *unit* of
work, which computes them for all output maps, or for a part. A *strip* is one packed input row of an area. A *tap* is a
position in the filter.

Forward and data gradient are one computation. For each output position of a *phase* along an axis, the taps of the
filter read input positions that move by a fixed step from one output position to the next:

* forward: one phase; output ``p`` reads ``p * stride + tap * dilation - pad``;
* data gradient: one phase for each remainder of the position modulo the stride. Position ``phase + stride * j`` reads
  ``j + (phase + pad - tap * dilation) / stride``, for the taps with an integer quotient.

A phase of the whole convolution is one of each axis. The weight gradient has the forward phase
(``conv/update.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, product, repeat
from typing import NamedTuple, TypeAlias

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind, Tile
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, even, round_up

META = (
    "CHANNELS", "MAPS", "GROUPS", "ALL_MAPS", "IMAGES", "IN_D", "IN_H", "IN_W", "OUT_D", "OUT_H", "OUT_W",
    "FILTER_GROUP", "FILTER_CHANNEL", "FILTER_MAP", "FILTER_TAP", "TAPS_HW", "TAPS_ROW",
    "IMAGE_BLOCK", "IMAGE_BLOCKS", "CHANNEL_BLOCK", "MAP_PARTS", "BY_COLUMN", "BY_TILE", "DIRECT", "FLAT",
    "UP_D", "UP_H", "UP_W", "SIDE",
    "UNIT_CHANNELS", "UNIT_BLOCKS", "UNIT_PARTS",
    "FILTERS_SIZE", "PANEL_SIZE", "STRIPS_SIZE", "SUMS_SIZE", "LIST_SIZE", "ALL_UNITS",
    "PHASES", "PHASES_AT", "META_SIZE",
)  # fmt: skip
"""Leading fields of the meta array; the phases follow, then their taps."""

_AXIS = ("COUNT", "STEP", "OUT_START", "OUT_STEP", "TAPS", "AT")
PHASE = (
    "UNITS", "FILTERS", "ROW_BLOCK", "ROW_BLOCKS", "ROW_LEAST", "ROW_REACH", "COLUMN_BLOCK", "COLUMN_BLOCKS", "REACH_W",
    *(f"{field}_{axis}" for axis in "DHW" for field in _AXIS), "PHASE_SIZE",
)  # fmt: skip
"""Fields of each phase: units of work, start of its packed filters, its areas, its three axes."""

REGISTER_TILES = {
    64: ((12, 2), (8, 2), (10, 2), (4, 4), (2, 4)),
    32: ((6, 2), (4, 2), (2, 4)),
    16: ((12, 2), (8, 2), (10, 2), (4, 4), (2, 4)),
}
"""Maps and vectors of a register tile, by vector size in bytes: each is a separate kernel."""
TILE_SIDE = 16
"""Rows of the processor's tiles (AMX), and words of 32 bits in each."""
OF_TILES = Tile(2 * TILE_SIDE, 2, TILE_SIDE)
"""Four tiles of sums, which have the place of a register tile."""
IMAGE_LANES = 128
"""Maximum number of images in an area. Not fewer: memory is slow to access in short contiguous runs."""
AREA_LANES, IN_PLACE_LANES = 1024, 512
"""Maximum number of lanes in an area. Larger areas reread the input less often; smaller ones keep accumulators in the
L2 cache. The second is for areas with input read in place, if their input of all channels exceeds the L2 cache."""
DATA_UNITS, LEAST_LANES = 8, 128
"""Minimum number of areas, and minimum lanes per area, of forward pass and data gradient. With fewer areas, threads
share one, and each packs its input and lists its taps."""
SUMS_BYTES = 384 << 10
"""Maximum bytes of a unit's accumulators in forward pass and data gradient, to stay in the L2 cache with the strips."""
PACKED_BYTES = 400 << 10
"""Maximum bytes of a block of channels' strips, or of its input if read in place, to stay in the L2 cache as well."""
DEEP, MANY = 300, 128
"""Number of products per result, or of maps, from which each finished tile is stored at once; below, whole rows are."""
IN_PLACE_BYTES = 640 << 10
"""Maximum bytes that a unit reads in place if it reads all channels at once."""
STRIP_BYTES = 32 << 10
"""Maximum bytes of strips that a tile reads per block of channels, to stay in the L1 cache."""
MIN_TAPS = 64
"""Minimum number of taps in a block of channels, even if its strips exceed STRIP_BYTES."""
CACHE_WAY, SECOND_WAY = 4096, 64 << 10
"""Bytes per way of the L1 and L2 cache on most processors: addresses this far apart share a cache set."""
WAYS = 8
"""Maximum number of channels, read in place, that share a set of the L2 cache: half of its ways."""
GAP_BYTES = 4096
"""Bytes between a thread's writes and the data of others: hardware prefetches up to the end of a page, and cores would
take cache lines from each other (false sharing)."""


class AxisPhase(NamedTuple):
    """Outputs ``start + step * j``, j < length, with inputs ``in_step * j + offset`` for each (tap, offset)."""

    start: int
    step: int
    length: int
    in_step: int
    taps: tuple[tuple[int, int], ...]

    @property
    def offsets(self) -> list[int]:
        """Input positions of the first output's taps."""
        return [offset for _, offset in self.taps]


Phase: TypeAlias = tuple[AxisPhase, AxisPhase, AxisPhase]


def forward_axis(outputs: int, window: int, padding: int, stride: int, dilation: int) -> list[AxisPhase]:
    """The one phase of a forward convolution along an axis.

    Parameters
    ----------
    outputs : int
        Positions of the result.
    window, padding, stride, dilation : int
    """
    return [AxisPhase(0, 1, outputs, stride, tuple((s, s * dilation - padding) for s in range(window)))]


def backward_axis(inputs: int, window: int, padding: int, stride: int, dilation: int) -> list[AxisPhase]:
    """The phases of a data gradient along an axis of ``inputs`` positions.

    Parameters
    ----------
    inputs : int
    window, padding, stride, dilation : int
    """
    phases = []
    for start in range(min(stride, inputs)):
        offsets = [(s, start + padding - s * dilation) for s in range(window)]
        taps = tuple((s, offset // stride) for s, offset in offsets if offset % stride == 0)
        phases.append(AxisPhase(start, stride, ceil_div(inputs - start, stride), 1, taps))
    return phases


def data_phases(g: ConvGeometry, backward: bool) -> list[Phase]:
    """The phases of the forward pass or of the data gradient."""
    axes = zip(g.DHW if backward else g.MPQ, g.TRS, g.padding, g.strides, g.dilation)
    return [*product(*[(backward_axis if backward else forward_axis)(*axis) for axis in axes])]  # type: ignore[list-item]


def data_tile(maps: int, vector_bytes: int, itemsize: int) -> Tile:
    """Tile of forward pass and data gradient: the one that fits the registers and pads the maps least.

    Parameters
    ----------
    maps : int
        Of a group.
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    """
    tiles = [Tile(*shape, vector_bytes // itemsize) for shape in REGISTER_TILES[vector_bytes]]
    return min(tiles, key=lambda tile: round_up(maps, tile.maps))


def column_reaches(axis: AxisPhase) -> list[int]:
    """Halo for each residue of the offsets modulo the step: columns read in addition to one per output."""
    least = min(axis.offsets, default=0)
    reach: dict[int, int] = {}
    for offset in axis.offsets:
        at = offset - least
        reach[at % axis.in_step] = max(reach.get(at % axis.in_step, 0), at // axis.in_step)
    return list(reach.values())


@dataclass
class Blocks:
    """Areas of one phase, by rows, columns and images, and the memory per area (in elements)."""

    phase: Phase
    rows: int
    columns: int
    images: int
    tile: Tile
    itemsize: int
    flat: bool = False

    @property
    def lanes(self) -> int:
        """Lanes of an output row."""
        return self.columns * self.images

    @property
    def reach(self) -> int:
        """Halo of a strip: columns in addition to one per output."""
        return sum(column_reaches(self.phase[2]))

    @property
    def run(self) -> int:
        """Lanes tiled as one run: those of an output row, or if flat of all rows, halos included."""
        return self.lanes + ((self.columns + self.reach) * self.images * (self.rows - 1) if self.flat else 0)

    @property
    def run_rows(self) -> int:
        """Number of runs."""
        return 1 if self.flat else self.rows

    @property
    def taps(self) -> int:
        """Taps of the phase per channel."""
        return math.prod(len(axis.taps) for axis in self.phase)

    @property
    def strip(self) -> int:
        """Elements of a strip: an odd number of vectors, which spreads strips over cache sets; without gaps if flat."""
        if self.flat:
            return (self.columns + self.reach) * self.images
        return self._spread(sum(self.columns + reach for reach in column_reaches(self.phase[2])))

    def whole_strip(self, phases: Iterable[Phase]) -> int:
        """Elements of a strip with all columns from the first to the last one that the phases' taps read."""
        offsets = [offset for phase in phases for offset in phase[2].offsets]
        span = max(offsets, default=-1) - min(offsets, default=0) + 1
        return self._spread((self.columns - 1) * self.phase[2].in_step + span)

    def _spread(self, columns: int) -> int:
        """Elements of so many columns of the images, as an odd number of vectors."""
        return (ceil_div(columns * self.images, self.tile.lanes) | 1) * self.tile.lanes

    @property
    def strips(self) -> int:
        """Number of strips per channel."""
        depth, height, _ = self.phase
        rows = {row * height.in_step + offset for row in range(self.rows) for offset in height.offsets}
        return len(depth.taps) * len(rows)

    def units(self, groups: int, image_blocks: int) -> int:
        """Number of areas, given numbers of groups and blocks of images."""
        depth, height, width = self.phase
        blocks = ceil_div(height.length, self.rows) * ceil_div(width.length, self.columns)
        return groups * depth.length * blocks * image_blocks

    @property
    def row_range(self) -> tuple[int, int]:
        """Offset of the first input row read, and number of rows up to the last."""
        offsets = self.phase[1].offsets
        least = min(offsets, default=0)
        return least, (self.rows - 1) * self.phase[1].in_step + max(offsets, default=0) - least + 1

    def record(self, units: int, filters: int, taps_at: int, tails: list[int]) -> list[int]:
        """The phase in the meta array's format; its taps are appended to ``tails``, which starts at ``taps_at``.

        Parameters
        ----------
        units : int
            Units of work of the phase.
        filters : int
            Start of its packed filters.
        taps_at : int
        tails : list of int
            Appended to.
        """
        _, height, width = self.phase
        fields = {
            "UNITS": units,
            "FILTERS": filters,
            "ROW_BLOCK": self.rows,
            "ROW_BLOCKS": ceil_div(height.length, self.rows),
            "ROW_LEAST": self.row_range[0],
            "ROW_REACH": self.row_range[1],
            "COLUMN_BLOCK": self.columns,
            "COLUMN_BLOCKS": ceil_div(width.length, self.columns),
            "REACH_W": self.reach,
        }
        for name, axis in zip("DHW", self.phase):
            values = (axis.length, axis.in_step, axis.start, axis.step, len(axis.taps), taps_at + len(tails))
            fields.update({f"{field}_{name}": value for field, value in zip(_AXIS, values)})
            tails += [number for tap in axis.taps for number in tap]
        return [fields[name] for name in PHASE[:-1]]


def image_block(images: int, unit: int, most: int = IMAGE_LANES) -> int:
    """Images per area: all up to ``most``, else nearly equal blocks that are multiples of ``unit``.

    Parameters
    ----------
    images, unit, most : int
    """
    return images if images <= most else round_up(even(images, most), unit)


def block_phase(phase: Phase, images: int, area: int, tile: Tile, itemsize: int, flat: bool = False) -> Blocks:
    """Areas of about ``area`` lanes: part of a row, or several short rows.

    Parameters
    ----------
    phase : Phase
    images, area : int
    tile : Tile
    itemsize : int
        Bytes of a number.
    flat : bool
        As of :func:`flat_phases`.
    """
    _, height, width = phase
    per_row = (width.length + (sum(column_reaches(width)) if flat else 0)) * images
    rows = even(height.length, area // per_row) if per_row * 2 <= area else 1
    columns = even(width.length, area // rows // images)
    return Blocks(phase, rows, columns, images, tile, itemsize, flat)


def flat_phases(phases: list[Phase], images: int, width: int) -> bool:
    """Whether to tile the rows of an area as one run: their halos then waste fewer lanes than the last tiles of rows.

    Strips of neighbouring rows are then contiguous, so the stride has to be 1 along height and width.

    Parameters
    ----------
    phases : list of Phase
    images : int
    width : int
        Lanes of a tile.
    """
    if any(height.in_step != 1 or columns.in_step != 1 for _, height, columns in phases):
        return False
    lines = [(columns, sum(column_reaches(columns))) for _, _, columns in phases]
    between = sum((columns.length + reach) * images for columns, reach in lines)
    return between < sum(round_up(columns.length * images, width) for columns, _ in lines)


def shapes(g: ConvGeometry, backward: bool) -> dict[str, int]:
    """Fields of the meta array that depend on the geometry alone."""
    taps = math.prod(g.TRS)
    inputs, outputs = (g.MPQ, g.DHW) if backward else (g.DHW, g.MPQ)
    channels, maps = (g.K, g.C) if backward else (g.C, g.K)
    fields = {"CHANNELS": channels // g.groups, "MAPS": maps // g.groups, "GROUPS": g.groups, "ALL_MAPS": maps}
    fields |= {"IMAGES": g.N, "TAPS_HW": g.TRS[1] * g.TRS[2], "TAPS_ROW": g.TRS[2]}
    fields |= dict(zip(("IN_D", "IN_H", "IN_W"), inputs)) | dict(zip(("OUT_D", "OUT_H", "OUT_W"), outputs))
    steps = (1, taps * g.K) if backward else (taps * g.K, 1)
    fields |= dict(zip(("FILTER_CHANNEL", "FILTER_MAP"), steps))
    return fields | {"FILTER_TAP": g.K, "FILTER_GROUP": g.K // g.groups}


def phase_records(
    blocks: list[Blocks], units: list[int], filters: Iterable[int] = repeat(0)
) -> tuple[list[list[int]], list[int]]:
    """The phases in the format of the meta array, with units of work and starts of packed filters; and their taps.

    Parameters
    ----------
    blocks : list of Blocks
        One for each phase.
    units : list of int
    filters : iterable of int
    """
    records, tails = [], list[int]()
    taps_at = len(META) - 1 + len(blocks) * (len(PHASE) - 1)
    for block, count, at in zip(blocks, units, filters):
        records.append(block.record(count, at, taps_at, tails))
    return records, tails


def flatten(fields: dict[str, int], records: list[list[int]], tails: list[int]) -> tuple[int, ...]:
    """The meta array: fields, phases, taps.

    Parameters
    ----------
    fields : dict
        By the names of ``META``.
    records : list of list of int
    tails : list of int
    """
    fields |= {"PHASES": len(records), "PHASES_AT": len(META) - 1}
    return (*(fields.get(name, 0) for name in META[:-1]), *(n for record in records for n in record), *tails)


def _channel_block(channels: int, phases: list[Phase], images: int, tile: Tile, by_column: bool, itemsize: int) -> int:
    """Channels per block: as many strips as a tile can read from the L1 cache."""
    width = tile.width * tile.lanes
    touched, taps = 1, 1
    for depth, height, columns in phases:
        reaches = column_reaches(columns)
        row = sum(width * (reach + 1) if by_column else width + reach * images for reach in reaches)
        touched = max(touched, len(depth.taps) * len(height.taps) * row)
        taps = max(taps, len(depth.taps) * len(height.taps) * len(columns.taps))
    return even(channels, max(STRIP_BYTES // (touched * itemsize), ceil_div(MIN_TAPS, taps)))


def _areas(phases: list[Phase], images: int, times: int, area: int, tile: Tile, itemsize: int) -> list[Blocks]:
    """Areas of each phase, of ``area`` lanes, or fewer if units are few; ``times``: groups times image blocks."""
    flat = images % (tile.width * tile.lanes) > 0 and flat_phases(phases, images, tile.width * tile.lanes)
    while True:
        blocks = [block_phase(phase, images, area, tile, itemsize, flat) for phase in phases]
        if sum(block.units(times, 1) for block in blocks) >= DATA_UNITS or area <= LEAST_LANES:
            return blocks
        area = max(LEAST_LANES, area // 2)


class Cut(NamedTuple):
    """Areas of each phase, channels per block, and whether their input is read in place."""

    blocks: list[Blocks]
    channels: int
    direct: bool


def _in_place(fields: dict[str, int], phases: list[Phase], images: int, tile: Tile, itemsize: int) -> Cut:
    """Division for images that fill whole tiles, so that each tile lies in one column: input is read in place.

    Measured to be 1.0 to 1.5 times as fast as packing, even if channels share sets of the L1 cache; for 3 channels,
    whose results are then streamed from registers to memory, up to 2.8 times.
    """
    channels = fields["CHANNELS"]
    step = math.prod(fields[name] for name in ("IN_D", "IN_H", "IN_W", "IMAGES"))
    places = SECOND_WAY // math.gcd(step * itemsize, SECOND_WAY)
    most = max(1, min(channels, WAYS * places, (1 << 31) // step - 1))
    sums = SUMS_BYTES // (round_up(fields["MAPS"], tile.maps) * itemsize)
    blocks = []
    read = 0
    for phase in phases:
        depth, height, width = phase
        column = max(1, len(depth.taps) * len(height.taps)) * images * itemsize
        reach = max(width.offsets, default=0) - min(width.offsets, default=0) + 1
        fitting = (IN_PLACE_BYTES // (column * channels) - reach) // width.in_step + 1
        columns = even(width.length, max(min(IN_PLACE_LANES, sums) // images, fitting if most == channels else 0))
        blocks.append(Blocks(phase, 1, columns, images, tile, itemsize))
        read = max(read, column * ((columns - 1) * width.in_step + reach))
    some = channels if read * most <= IN_PLACE_BYTES and most == channels else min(most, max(1, PACKED_BYTES // read))
    return Cut(blocks, even(channels, some), True)


def _packed(
    g: ConvGeometry, fields: dict[str, int], phases: list[Phase], images: int, tile: Tile, itemsize: int, each: int
) -> Cut:
    """Division for all other convolutions: the input is packed into strips; ``each``: channels multiplied at once."""
    channels, maps, width = fields["CHANNELS"], fields["MAPS"], tile.width * tile.lanes
    by_column, all_maps = g.N % width == 0, round_up(maps, tile.maps)
    some = _channel_block(channels, phases, images, tile, by_column, itemsize)
    some = even(ceil_div(channels, each), some // each) * each
    strips = max(len(depth.taps) * len(height.taps) for depth, height, _ in phases) or 1
    room = min(PACKED_BYTES // (some * strips), SUMS_BYTES // all_maps)
    area = max(width, min(AREA_LANES, room // itemsize))
    blocks = _areas(phases, images, g.groups * ceil_div(g.N, images), area, tile, itemsize)
    return Cut(blocks, some, False)


def _cut(
    g: ConvGeometry, fields: dict[str, int], phases: list[Phase], images: int, tile: Tile, itemsize: int, each: int
) -> Cut:
    """Division of the output; ``each``: as of :func:`_packed`."""
    width = tile.width * tile.lanes
    if each > 1 or g.N % width or max(g.TRS) == 1:  # in place, channels of a tile may share sets of the caches
        return _packed(g, fields, phases, images, tile, itemsize, each)
    if fields["MAPS"] <= tile.maps:  # a single tile of maps reads its input once: packing is faster then
        return _packed(g, fields, phases, images, tile, itemsize, each)
    return _in_place(fields, phases, images, tile, itemsize)


@lru_cache(maxsize=512)
def data_plan(
    g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, threads: int, tiles: bool = False
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
    tiles : bool
        Whether the processor's tiles multiply, ``TILE_SIDE`` channels at once.
    """
    fields = shapes(g, backward)
    channels, maps = fields["CHANNELS"], fields["MAPS"]
    tile, each = (OF_TILES, TILE_SIDE) if tiles else (data_tile(maps, vector_bytes, itemsize), 1)
    width, map_tiles, gap = tile.width * tile.lanes, ceil_div(maps, tile.maps), GAP_BYTES // itemsize
    by_column = g.N % width == 0
    images = image_block(g.N, width if by_column else tile.lanes)
    phases = data_phases(g, backward)
    cut = _cut(g, fields, phases, images, tile, itemsize, each)
    blocks, image_blocks = cut.blocks, ceil_div(g.N, images)
    counts = [block.units(g.groups * image_blocks, 1) for block in blocks]
    parts = min(map_tiles, max(1, ceil_div(4 * threads, sum(counts))))
    by_tile = by_column and (cut.direct or channels * math.prod(g.TRS) >= DEEP or maps >= MANY)
    all_filters = g.groups * map_tiles * tile.maps * round_up(channels, each)
    packed = [0, *accumulate(all_filters * block.taps for block in blocks)]
    filters = packed.pop()
    records, tails = phase_records(blocks, [count * parts for count in counts], packed)
    sums = tile.maps * max(b.run_rows * map_tiles * round_up(b.run, width) for b in blocks)
    strips = 0 if cut.direct else cut.channels * max(b.strips * b.strip for b in blocks) + width
    fields |= {
        "IMAGE_BLOCK": images,
        "IMAGE_BLOCKS": image_blocks,
        "CHANNEL_BLOCK": cut.channels,
        "MAP_PARTS": parts,
        "BY_COLUMN": int(by_column),
        "DIRECT": int(cut.direct),
        "FLAT": int(blocks[0].flat),
        "BY_TILE": int(by_tile),
        "FILTERS_SIZE": round_up(filters, 64) + gap,
        "STRIPS_SIZE": round_up(strips, 64),
        "SUMS_SIZE": round_up(tile.maps * width if by_tile and cut.channels >= channels else sums, 64),
        "LIST_SIZE": round_up(cut.channels * max(b.taps for b in blocks) * 8 // itemsize, 64) + gap,
        "ALL_UNITS": sum(counts) * parts,
    }
    private = fields["STRIPS_SIZE"] + fields["SUMS_SIZE"] + fields["LIST_SIZE"]
    meta = flatten(fields, records, tails)
    return ConvPlan(Kind.DIRECT, tile, meta, sum(counts), fields["FILTERS_SIZE"], private)
