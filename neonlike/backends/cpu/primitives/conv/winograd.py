"""Winograd convolution of 3 x 3 filters: when it pays, and the meta array of ``conv/winograd.c.j2``.

F(2 x 2, 3 x 3) computes 2 x 2 results of a channel with 16 products, direct convolution with 36; F(4 x 4, 3 x 3)
computes 4 x 4 with 36, direct convolution with 144 (Lavin and Gray, "Fast algorithms for convolutional neural
networks",
arXiv 1509.09308). Inputs and filters are transformed before it, sums after it.

Lanes are images if these fill vectors, else neighbouring tiles and all images; empty lanes at the end of a run of tiles
are computed, too. If all tiles form one run, each transformed filter is used once: it is transformed right before its
product, while it is in the cache (FUSED). A dilated convolution is one convolution for each residue of the positions
modulo the dilation.

Error of float32, as the largest difference from float64 over the largest result, for normal values and filters and a
forward pass of 16 images of 14 x 14 (F(2x2) adds up fewer products, and transforms with factors of 1/2 only):

========  ======  ======  ======
channels  direct  F(2x2)  F(4x4)
========  ======  ======  ======
64        9.5e-7  3.7e-7  6.9e-6
128       1.3e-6  4.6e-7  9.0e-6
256       1.8e-6  5.9e-7  1.1e-5
512       2.0e-6  8.0e-7  1.4e-5
========  ======  ======  ======

With pairs of bfloat16 (``pairs.h``) two channels are a pair; transformed inputs and filters are rounded to nearest,
sums and their transform are float32. F(2x2) is used where it is faster: its error is at most (2u + u^2) |A^T| [sum over
channels of |G f G^T| * |B^T d B|] |A| with u = 2^-8. It is 1.7 times the error of direct convolution, whose inputs and
filters are rounded, or up to three times where all terms have one sign, and both errors are small. F(4x4) is not used,
even if ``enable_winograd`` is 4: its transforms subtract large numbers, and its error is ten times as large. For the
same data, the largest difference and the root of the mean square:

========  ===============  ===============  ===============
channels  direct           F(2x2)           F(4x4)
========  ===============  ===============  ===============
64        2.6e-3  5.0e-4   4.5e-3  8.6e-4   8.0e-2  5.1e-3
128       2.5e-3  4.9e-4   4.1e-3  8.3e-4   7.2e-2  4.8e-3
256       2.2e-3  4.4e-4   3.8e-3  7.5e-4   6.7e-2  4.4e-3
512       2.4e-3  4.7e-4   4.4e-3  7.9e-4   7.6e-2  4.7e-3
========  ===============  ===============  ===============

With F(2x2) a result depends on the same nine inputs of a channel as in direct convolution: a nan reaches no other
results, but an infinity becomes nan. With F(4x4) both may reach other results of their tiles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind, Tile
from neonlike.backends.cpu.primitives.conv.plan import GAP_BYTES, IMAGE_LANES, data_tile, image_block
from neonlike.backends.geometry.conv import ConvGeometry, Triple
from neonlike.backends.geometry.counts import ceil_div, even, round_up
from neonlike.kernels.c.pairs import half

META = (
    "CHANNELS", "MAPS", "IMAGES", "PLANES", "IN_H", "IN_W", "OUT_H", "OUT_W", "PAD_H", "PAD_W", "DIL_H", "DIL_W",
    "FILTER_CHANNEL", "FILTER_MAP", "FILTER_TAP", "TILES_H", "TILES_W", "TILES", "RUN", "RUNS", "IMAGE_BLOCK",
    "CHANNEL_BLOCK", "PART_TILES", "PARTS", "FILTERS_SIZE", "SHARED_SIZE", "V_SIZE", "M_SIZE", "LINES_SIZE",
    "RESULTS_SIZE", "FUSED", "ALL_UNITS", "WORDS", "META_SIZE",
)  # fmt: skip
"""Fields of the meta array."""

LEAST_MAPS = 16
"""Minimum number of channels and maps; with fewer, transforms take longer than products."""
GAIN = 1.3
"""Minimum ratio of direct convolution's products to Winograd's: with 7 x 7 results (1.4) it is faster."""
GAIN_OF_4 = 1.3
"""The same ratio for F(4 x 4) against F(2 x 2)."""
INPUT_COST, RESULT_COST, FILTER_COST = 8, 14, 100
"""Time of the transforms where pairs are multiplied, in products of a pass's channel and map: of a number of an input's
or a result's tile, and of a filter."""
IMAGE_COST = 30
"""What INPUT_COST grows by, divided by the number of images, if columns of several images are copied first."""
RUN_LANES = 64
"""Lanes per run of tiles, twice as many with pairs; half as many while the products of all maps take over FEW_BYTES."""
FEW_BYTES = 320 << 10
M_BYTES = 1 << 20
"""Maximum bytes of a unit's products before their transform; maps are divided accordingly."""
FUSED_M_BYTES = 128 << 10
"""The same for pairs of bfloat16 if there is one unit only: longer sums then, whose filters are in the cache, too."""
V_BYTES = {2: 256 << 10, 4: 384 << 10}
"""Maximum bytes of a block of channels' transformed input, by the edge of the result tiles."""
FEW_LANES = 128
"""Maximum number of lanes in a run of tiles, if images do not fill vectors."""
PARTIAL = 1.1
"""Relative cost of lanes in a run that ends within a row of tiles: two runs then copy the shared input rows."""
FUSED_BYTES = 256 << 10
"""Maximum bytes of a block of channels' transformed filters, if only one unit uses them."""


@lru_cache(maxsize=512)
def winograd_edge(
    g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, allowed: Any, pairs: bool = False
) -> int:
    """Edge of the result tiles, 2 or 4; 0 if direct convolution is better or ``allowed`` is false.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    allowed : bool or int
        As ``enable_winograd``; only the value 4 allows F(4 x 4), which has a larger error, and not with pairs.
    pairs : bool
        Whether pairs of bfloat16 are multiplied, by either algorithm.
    """
    plain = g.TRS == (1, 3, 3) and g.strides == (1, 1, 1) and g.groups == 1 and g.padding[0] == 0
    if not allowed or not plain or min(g.C, g.K) < LEAST_MAPS:
        return 0
    outputs, direct = g.DHW if backward else g.MPQ, _direct_products(g, backward)
    lanes = vector_bytes // itemsize
    few = g.N % lanes > 0
    products = {edge: _products(g, outputs, edge, lanes if few else 0) for edge in (2, 4)}
    if pairs:
        return 2 if direct > _cost_of_pairs(g, backward, products[2], lanes) else 0
    edge = 4 if allowed is not True and allowed == 4 and products[2] > GAIN_OF_4 * products[4] else 2
    return edge if direct > GAIN * products[edge] else 0


def _cost_of_pairs(g: ConvGeometry, backward: bool, products: int, lanes: int) -> float:
    """Time of F(2 x 2) on pairs per channel and map, where a product of direct convolution takes 1."""
    channels, maps = (g.K, g.C) if backward else (g.C, g.K)
    copied = IMAGE_COST / g.N if 1 < g.N and g.N % lanes else 0
    return products * (1 + (INPUT_COST + copied) / maps + RESULT_COST / channels) + FILTER_COST


def _direct_products(g: ConvGeometry, backward: bool) -> int:
    """Products of direct convolution per channel and map."""
    inputs, outputs = (g.MPQ, g.DHW) if backward else (g.DHW, g.MPQ)
    count = g.N * outputs[0]
    for read, made, pad, dilation in zip(inputs[1:], outputs[1:], _padding(g, backward), g.dilation[1:]):
        count *= sum(0 <= at + tap * dilation - pad < read for at in range(made) for tap in range(3))
    return count


def _products(g: ConvGeometry, outputs: Triple, edge: int, lanes: int) -> int:
    """Products per channel and map; with few images (``lanes`` > 0), including those of empty lanes."""
    tiles, _, row = _grid(g, outputs, edge)
    images = image_block(g.N, lanes or 1)
    run = _few_run(tiles, row, images, lanes) if lanes else 1
    all_lanes = _lanes(tiles, run, images, lanes) * ceil_div(g.N, images) if lanes else tiles * g.N
    return all_lanes * (edge + 2) ** 2


def _grid(g: ConvGeometry, outputs: Triple, edge: int) -> Triple:
    """Number of tiles of all planes, and along height and width; with dilation, the latter are per residue."""
    height, width = (ceil_div(ceil_div(size, step), edge) for size, step in zip(outputs[1:], g.dilation[1:]))
    return outputs[0] * g.dilation[1] * g.dilation[2] * height * width, height, width


def _lanes(tiles: int, run: int, images: int, lanes: int) -> int:
    """Lanes of all runs of tiles, each rounded up to whole vectors."""
    return tiles // run * round_up(run * images, lanes) + round_up(tiles % run * images, lanes)


def _few_run(tiles: int, row: int, images: int, lanes: int) -> int:
    """Tiles per run for few images: whole rows of tiles if these leave few lanes empty, else the fewest empty lanes."""
    most = min(tiles, max(1, FEW_LANES // images))

    def cost(run: int) -> float:
        return _lanes(tiles, run, images, lanes) * (1 if run % row == 0 else PARTIAL) + (most - run) / most

    return min(range(most, 0, -1), key=cost)


def _many_lanes(lane_bytes: int, pairs: int) -> int:
    """Most lanes per run of tiles where images fill vectors; lane_bytes: of a lane's products of all maps."""
    sizes = (2 * RUN_LANES, RUN_LANES) if pairs else (RUN_LANES,)
    return next((size for size in sizes if size * lane_bytes <= FEW_BYTES), RUN_LANES // 2)


def _padding(g: ConvGeometry, backward: bool) -> list[int]:
    """Padding of height and width; a data gradient's may be negative."""
    pads = zip(g.padding[1:], g.dilation[1:])
    return [2 * dilation - pad if backward else pad for pad, dilation in pads]


class _Cut(NamedTuple):
    """Division of result tiles, images and maps into units of work."""

    tile: Tile
    """Register tile."""
    images: int
    """Images of a unit, ``few`` if they do not fill vectors."""
    few: bool
    grid: Triple
    """Result tiles of all planes, and those along height and width."""
    run: int
    """Consecutive tiles per unit, and their number of ``runs``."""
    runs: int
    lanes: int
    """Tiles times images of a unit, in whole vectors."""
    units: int
    """Units of work, not counting the parts of maps."""
    map_tiles: int
    """Register tiles of all maps, and ``part`` of them per unit."""
    part: int
    parts: int


def _cut(
    g: ConvGeometry, maps: int, outputs: Triple, vector_bytes: int, itemsize: int, edge: int, threads: int, pairs: int
) -> _Cut:
    tile, points = data_tile(maps, vector_bytes, itemsize), (edge + 2) ** 2
    map_tiles, images, few = ceil_div(maps, tile.maps), image_block(g.N, tile.lanes, IMAGE_LANES), g.N % tile.lanes > 0
    grid = _grid(g, outputs, edge)
    if few:
        run = _few_run(grid[0], grid[2], images, tile.lanes)
    else:
        run = even(grid[0], _many_lanes(points * map_tiles * tile.maps * itemsize, pairs) // images)
    lanes, runs = round_up(run * images, tile.lanes), ceil_div(grid[0], run)
    units = ceil_div(g.N, images) * runs
    shares = ceil_div((2 if few else 4) * threads, units) if threads > 1 else 1
    most = FUSED_M_BYTES if pairs and few and units == 1 else M_BYTES
    part = even(map_tiles, min(most // (points * lanes * itemsize * tile.maps), ceil_div(map_tiles, shares)))
    return _Cut(tile, images, few, grid, run, runs, lanes, units, map_tiles, part, ceil_div(map_tiles, part))


@lru_cache(maxsize=512)
def winograd_plan(
    g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, edge: int, threads: int, pairs: int = 0
) -> ConvPlan:
    """Plan of the forward pass or data gradient; neither results nor bsum partial sums depend on ``threads``.

    Parameters
    ----------
    g, backward, vector_bytes, itemsize
        As of :func:`winograd_edge`.
    edge : int
        Of the result tiles, 2 or 4.
    threads : int
    pairs : int
        The form of pairs of bfloat16 (``pairs.h``) that are multiplied; 0: none.
    """
    inputs, outputs = (g.MPQ, g.DHW) if backward else (g.DHW, g.MPQ)
    channels, maps = (g.K, g.C) if backward else (g.C, g.K)
    channel_step, map_step = (1, 9 * g.K) if backward else (9 * g.K, 1)
    cut, points = _cut(g, maps, outputs, vector_bytes, itemsize, edge, threads, pairs), (edge + 2) ** 2
    tile, images, few, (tiles, tiles_h, tiles_w), run, runs, lanes, units, map_tiles, part, parts = cut
    fused = few and units == 1
    most = V_BYTES[edge] // (points * lanes * itemsize)
    words = half(channels) if pairs else channels
    block = even(words, min(most, FUSED_BYTES // (points * part * tile.maps * itemsize)) if fused else most)
    v_size = round_up(points * (block * lanes + tile.lanes), 64)
    results, scratch = _result_sizes(cut, edge, 2 if pairs else 1)
    packed = words * map_tiles * tile.maps + 2 * tile.lanes * parts * ceil_div(words, block)
    padding = _padding(g, backward)
    fields = {
        "CHANNELS": channels, "MAPS": maps, "IMAGES": g.N, "PLANES": inputs[0],
        "IN_H": inputs[1], "IN_W": inputs[2], "OUT_H": outputs[1], "OUT_W": outputs[2],
        "PAD_H": padding[0], "PAD_W": padding[1], "DIL_H": g.dilation[1], "DIL_W": g.dilation[2],
        "FILTER_CHANNEL": channel_step, "FILTER_MAP": map_step, "FILTER_TAP": g.K,
        "TILES_H": tiles_h, "TILES_W": tiles_w, "TILES": tiles, "RUN": run, "RUNS": runs, "IMAGE_BLOCK": images,
        "CHANNEL_BLOCK": block, "PART_TILES": part, "PARTS": parts,
        "FILTERS_SIZE": 0 if fused else round_up(points * packed, 64) + GAP_BYTES // itemsize,
        "SHARED_SIZE": v_size * units * ceil_div(words, block) if few and parts > 1 else 0,
        "V_SIZE": v_size,
        "M_SIZE": round_up(points * (part * tile.maps * lanes + tile.lanes), 64),
        "LINES_SIZE": results,
        "RESULTS_SIZE": scratch + GAP_BYTES // itemsize,
        "FUSED": round_up(points * (part * tile.maps * block + 2 * tile.lanes), 64) if fused else 0,
        "ALL_UNITS": units * parts, "WORDS": words,
    }  # fmt: skip
    shared = fields["FILTERS_SIZE"] + fields["SHARED_SIZE"]
    private = fields["M_SIZE"] + fields["RESULTS_SIZE"] + fields["FUSED"] + (0 if fields["SHARED_SIZE"] else v_size)
    # Edge of the result tiles; 0 if images fill vectors, 1 for a single image, else 2.
    variant = (("outputs", edge), ("few", min(g.N, 2) if few else 0), *((("pairs", pairs),) if pairs else ()))
    return ConvPlan(Kind.WINOGRAD, tile, tuple(fields[name] for name in META[:-1]), units, shared, private, variant)


def _result_sizes(cut: _Cut, edge: int, channels: int) -> tuple[int, int]:
    """Elements of the results of a band of tiles, and of all scratch memory for them or for the strips of a word."""
    (_, tiles_h, tiles_w), lanes = cut.grid, cut.tile.lanes
    if not cut.few:
        return (round_up(edge * edge * cut.lanes, 64),) * 2
    lines = max(1, min(tiles_h, cut.run // tiles_w))
    apart = edge * edge * round_up(tiles_w * cut.images, lanes)
    results = round_up(apart * lines + lanes, 64)
    strips = channels * (edge * lines + 2) * edge * (round_up((tiles_w + 1) * cut.images, lanes) + lanes)
    return results, round_up(max(results + apart + lanes, strips), 64)
