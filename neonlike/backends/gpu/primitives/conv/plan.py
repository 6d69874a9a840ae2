"""How a convolution is cut for a GPU: phases of positions that take the same taps, bands of columns, parts of sums.

Forward pass and data gradient are one matrix product for each phase and band: filters times *columns*, the matrix of
the elements that each tap reads, (taps of channels, positions and images). A data gradient with strides has a phase for
each remainder of a position by the strides, which takes the taps that meet an output there; so no product is wasted.
The weight gradient is columns times errors. Everything here follows from sizes alone, and so does the order of sums.

Columns are stored, and multiplied by cuBLAS; or, by the *implicit* kernel, gathered in shared memory as they are
multiplied. That saves writing and reading them, but its products are slower than cuBLAS's. :func:`saves_columns` weighs
one against the other by arithmetic; nothing of it has been measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, round_up
from neonlike.kernels.codegen.emit import NARROW
from neonlike.optree.dtypes import F32, DType

COLUMN_BYTES = 256 << 20
"""Most bytes of columns and results that a band takes: enough for several waves of a product's tiles."""
LEAST_COLUMNS = 4096
"""Columns of a band, at least."""
EVEN = 256
"""Bands begin at multiples of so many columns: products read aligned rows."""
THIN = 8
"""Most channels, and maps, of a group that is convolved without products: their tiles would be nearly empty."""
TILE, TILES = 128, 256
"""Edge of a product's tile; tiles that fill a GPU, below which sums are split."""
LEAST_DEPTH = 1024
"""Products of a part of a sum, at least."""
PART_BYTES = 64 << 20
"""Most bytes of the parts of a gradient's sums."""


class Axis(NamedTuple):
    """The elements that a phase reads along an axis.

    Its output o lies at ``first + every * o``; its tap i is tap ``tap + i * skip`` of the filter, and reads position
    ``o * stride + offset + i * slope``, if there is one.
    """

    outputs: int
    first: int
    every: int
    taps: int
    tap: int
    skip: int
    stride: int
    offset: int
    slope: int


Phase = tuple[Axis, Axis, Axis]


class Band(NamedTuple):
    """Columns of a phase: the first, and how many of them."""

    first: int
    size: int


def phases(g: ConvGeometry, backward: bool) -> list[Phase]:
    """The phases of the positions that are written."""
    axes = zip(g.DHW, g.MPQ, g.TRS, g.padding, g.strides, g.dilation)
    if not backward:
        d, h, w = (Axis(o, 0, 1, taps, 0, 1, step, -pad, dil) for _, o, taps, pad, step, dil in axes)
        return [(d, h, w)]
    found = ([*_backward_axis(size, taps, pad, step, dil)] for size, _, taps, pad, step, dil in axes)
    return [(d, h, w) for d, h, w in itertools.product(*found)]


def _backward_axis(size: int, taps: int, pad: int, stride: int, dilation: int) -> Iterator[Axis]:
    common = math.gcd(stride, dilation)
    skip = stride // common
    for first in range(min(stride, size)):
        outputs = ceil_div(size - first, stride)
        meeting = (tap for tap in range(min(skip, taps)) if (first + pad - tap * dilation) % stride == 0)
        tap = next(meeting, None)
        if tap is None:
            yield Axis(outputs, first, stride, 0, 0, 1, 1, 0, 0)
        else:
            offset = (first + pad - tap * dilation) // stride
            yield Axis(outputs, first, stride, ceil_div(taps - tap, skip), tap, skip, 1, offset, -(dilation // common))


def taps_of(phase: Phase) -> int:
    """How many taps a phase takes."""
    return math.prod(axis.taps for axis in phase)


def outputs_of(phase: Phase) -> int:
    """How many positions a phase writes."""
    return math.prod(axis.outputs for axis in phase)


def reads_in_place(g: ConvGeometry) -> bool:
    """Whether the input is its own matrix of columns: filters of one tap, or one window that is the whole input."""
    if any(g.padding):
        return False
    pointwise = max(*g.TRS, *g.strides) == 1
    return pointwise or (g.TRS == g.DHW and max(g.MPQ) == 1)


def thin(g: ConvGeometry) -> bool:
    """Whether groups have so few channels and maps that no product pays; depthwise layers are such."""
    return g.groups > 1 and max(g.C, g.K) // g.groups <= THIN


class Tile(NamedTuple):
    """The tile that a block of an implicit kernel computes: ``rows`` by ``columns`` results.

    ``depth`` products of each are between two barriers, and the factors of ``stages`` times as many in shared memory,
    as (depth, rows) and (depth, columns), or with ``along`` as (rows, depth) and (columns, depth), with ``pad``
    elements behind each row of these.
    """

    rows: int
    columns: int
    depth: int
    along: bool = False
    stages: int = 4
    pad: int = 8

    def shared_bytes(self, itemsize: int) -> int:
        """Shared memory of a block: for factors, then for the results, which are float32."""
        edges = self.rows, self.columns
        factors = sum(
            (self.depth + self.pad) * edge if self.along else self.depth * (edge + self.pad) for edge in edges
        )
        return max(self.stages * factors * itemsize, self.rows * (self.columns + RESULT_PAD) * F32.itemsize)


def implicit_kind(dtype: DType, precision: str) -> str | None:
    """The products of the implicit kernel: "f16", "bf16", "tf32" on tensor cores, else "f32"; None: no such dtype.

    float32 may be rounded to TF32 where ``product_precision`` allows that, or even fewer bits.
    """
    if dtype == F32:
        return "f32" if precision == "float32" else "tf32"
    return NARROW.get(dtype.name)


RESULT_PAD = 8
"""Elements behind a row of results in shared memory."""


def implicit_tile(kind: str, maps: int, update: bool = False) -> Tile:
    """The tile for so many maps of a group, with fewest that stay empty; the larger one if both are alike.

    Parameters
    ----------
    kind : str
        As of :func:`implicit_kind`.
    maps : int
    update : bool
        Whether it is a weight gradient.
    """
    edge, floats = min((128, 64), key=partial(round_up, maps)), kind in ("f32", "tf32")
    if update:
        return Tile(128, edge, 16 if floats else 32, along=True, stages=3, pad=4 if floats else 8)
    return Tile(edge, 128, 16 if floats else 32)


BALANCE = {"f32": 12, "tf32": 100, "f16": 200, "bf16": 200}
"""Operations in the time of a byte of memory: by the data sheet of the A100 (19.5, 156 and 312 TFLOP/s, 1.56 TB/s).

That of the H200 (67, 494 and 989 TFLOP/s, 4.8 TB/s) gives nearly the same: 14, 103 and 206.
"""
SLOWER = 1.5
"""How many times as long as cuBLAS the implicit kernel is assumed to take for a product; not measured."""


def saves_columns(g: ConvGeometry, found: Sequence[Phase], backward: bool, kind: str, itemsize: int) -> bool:
    """Whether the implicit kernel of forward passes and data gradients is expected to beat columns and products.

    A product of ``maps`` by ``rows`` and any number of columns takes 2 maps rows operations a column. Columns take
    2 rows itemsize bytes of memory besides, which are written and read: as much time as 2 rows itemsize BALANCE
    operations. The implicit kernel has none of these, computes whole tiles, and is SLOWER. Where it splits sums, their
    parts are written and read, in float32. It needs a tile of a part for each of most multiprocessors.

    Parameters
    ----------
    g : ConvGeometry
    found : sequence of Phase
    backward : bool
        Whether it is the data gradient.
    kind : str
        As of :func:`implicit_kind`.
    itemsize : int
        Bytes of a number.
    """
    maps, channels = (g.C, g.K) if backward else (g.K, g.C)
    maps, channels = maps // g.groups, channels // g.groups
    tile = implicit_tile(kind, maps)
    products = with_columns = tiles = 0
    with_parts = 0.0
    for phase in found:
        rows, count = channels * taps_of(phase), outputs_of(phase) * g.N
        products += round_up(maps, tile.rows) * round_up(rows, tile.depth) * count
        with_columns += (maps + itemsize * BALANCE[kind]) * rows * count
        here = g.groups * ceil_div(maps, tile.rows) * ceil_div(count, tile.columns)
        split = data_parts(here, rows, g.groups * maps * count * F32.itemsize)
        with_parts += split * maps * F32.itemsize * BALANCE[kind] * count if split > 1 else 0
        tiles += here * split
    return SLOWER * products + with_parts <= with_columns and tiles >= len(found) * TILES // 2


def update_saves_columns(g: ConvGeometry, kind: str, itemsize: int) -> bool:
    """The same of weight gradients, whose sums are split into parts of LEAST_DEPTH products or more.

    Parameters
    ----------
    g, kind, itemsize
        As of :func:`saves_columns`.
    """
    maps, rows, columns = g.K // g.groups, g.dimF2[0], math.prod(g.dimO[1:])
    tile = implicit_tile(kind, maps, update=True)
    products = round_up(rows, tile.rows) * round_up(maps, tile.columns)
    tiles = g.groups * ceil_div(rows, tile.rows) * ceil_div(maps, tile.columns)
    enough = tiles * max(columns // LEAST_DEPTH, 1) >= TILES // 2
    return SLOWER * products <= rows * (maps + itemsize * BALANCE[kind]) and enough


def data_parts(tiles: int, depth: int, nbytes: int) -> int:
    """Into how many parts the implicit kernel splits the sums of a forward pass or data gradient: see :func:`parts`.

    Not at all where there are tiles for most multiprocessors of a GPU, or sums are short.

    Parameters
    ----------
    tiles, depth, nbytes
        As of :func:`parts`.
    """
    return 1 if tiles >= TILES // 2 else parts(tiles, depth, nbytes)


def bands(columns: int, column_bytes: int, least: int | None = None) -> list[Band]:
    """``columns`` in bands of about equal size, where a column takes so many bytes of working memory.

    least: columns of a band, at least; None: LEAST_COLUMNS.

    Parameters
    ----------
    columns, column_bytes : int
    least : int, optional
    """
    most = max(COLUMN_BYTES // max(column_bytes, 1) // EVEN * EVEN, LEAST_COLUMNS if least is None else least)
    if columns <= most:
        return [Band(0, columns)]
    size = round_up(ceil_div(columns, ceil_div(columns, most)), EVEN)
    return [Band(first, min(size, columns - first)) for first in range(0, columns, size)]


def parts(tiles: int, depth: int, nbytes: int) -> int:
    """Into how many parts the sums of a gradient are split: of ``depth`` products each, ``nbytes`` in all.

    So many that the GPU is busy, if one part would occupy ``tiles`` of it.

    Parameters
    ----------
    tiles, depth, nbytes : int
    """
    return max(min(ceil_div(TILES, tiles), depth // LEAST_DEPTH, PART_BYTES // nbytes), 1)


# Winograd's method --------------------------------------------------------------------------------------------------

LEAST_MAPS = 32
"""Fewest channels, and maps, of Winograd's method: products of fewer are as bound by memory as its transforms."""
GAIN, GAIN_OF_4 = 1.5, 1.3
"""How many times as long other ways have to be expected to take, and tiles of 2 x 2 for tiles of 4 x 4: assumed."""
LEAST_LANES = 1024
"""Lanes of a band, at least."""


class TileGrid(NamedTuple):
    """The tiles of ``edge`` by ``edge`` results that a pass makes: of planes, along height and width, and of images."""

    edge: int
    depth: int
    height: int
    width: int
    images: int

    @property
    def points(self) -> int:
        """Products of a tile and channel."""
        return (self.edge + 2) ** 2

    @property
    def lanes(self) -> int:
        """All tiles of all images."""
        return self.depth * self.height * self.width * self.images


def tile_grid(g: ConvGeometry, backward: bool, edge: int) -> TileGrid:
    """The tiles of a data gradient, or of the other passes.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
    edge : int
        Of a tile, 2 or 4.
    """
    depth, height, width = g.DHW if backward else g.MPQ
    return TileGrid(edge, depth, ceil_div(height, edge), ceil_div(width, edge), g.N)


def winograd_bands(tiles: TileGrid, rows: int) -> list[Band]:
    """Lanes in bands, of which so many rows are stored for each point."""
    return bands(tiles.lanes, tiles.points * rows * F32.itemsize, LEAST_LANES)


def winograd_parts(g: ConvGeometry, tiles: TileGrid, lanes: int) -> int:
    """Into how many parts the sums of a gradient of filters over so many lanes are split.

    Parameters
    ----------
    g : ConvGeometry
    tiles : TileGrid
    lanes : int
    """
    products = tiles.points * ceil_div(g.C, TILE) * ceil_div(g.K, TILE)
    return parts(products, lanes, tiles.points * g.C * g.K * F32.itemsize)


def winograd_edge(g: ConvGeometry, backward: bool, update: bool, allowed: int, always: bool = False) -> int:
    """Edge of the tiles of results by which a float32 pass is computed; 0: not by Winograd's method.

    allowed: the largest edge; always: wherever the method has a form, with the largest tiles.

    In the units of :func:`saves_columns`, the other ways take 9 channels min(SLOWER maps, maps + 4 BALANCE) for each
    position and image. This one takes points channels maps for each lane, and what it stores between its kernels is
    written and read: for each point a row of each channel and map, and the transformed filters, or the parts of their
    gradient's sums. Only sizes decide.

    Parameters
    ----------
    g : ConvGeometry
    backward, update : bool
        Whether it is the data or the weight gradient.
    allowed : int
    always : bool
    """
    formed = g.TRS == (1, 3, 3) and g.strides == g.dilation == (1, 1, 1) and g.groups == 1 and g.padding[0] == 0
    if not allowed or not formed:
        return 0
    edges = (2, 4) if allowed == 4 else (2,)
    if always:
        return edges[-1]
    if min(g.C, g.K) < LEAST_MAPS:
        return 0
    maps, outputs = (g.C, g.DHW) if backward else (g.K, g.MPQ)
    moved = F32.itemsize * BALANCE["f32"]
    others = min(SLOWER * maps, maps + moved) * 9 * (g.C * g.K // maps) * math.prod(outputs) * g.N
    costs = {edge: _winograd_cost(g, tile_grid(g, backward, edge), update, moved) for edge in edges}
    edge = 4 if GAIN_OF_4 * costs.get(4, math.inf) <= costs[2] else 2
    return edge if GAIN * costs[edge] <= others else 0


def _winograd_cost(g: ConvGeometry, tiles: TileGrid, update: bool, moved: int) -> float:
    """Products of Winograd's method, and those in the time of what it stores; moved: in that of an element."""
    filters = g.C * g.K * (winograd_parts(g, tiles, tiles.lanes) if update else 1)
    return tiles.points * (g.C * g.K * tiles.lanes + moved * ((g.C + g.K) * tiles.lanes + filters))
