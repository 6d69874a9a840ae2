"""Winograd convolution of 3 x 3 filters: where it pays, and the meta array of ``conv_winograd.c.j2``.

F(2 x 2, 3 x 3) makes 2 x 2 results of a channel with 16 products where direct convolution takes 36; F(4 x 4, 3 x 3)
makes 4 x 4 with 36 where that takes 144 (Lavin and Gray, "Fast algorithms for convolutional neural networks",
arXiv 1509.09308). Inputs and filters are transformed before, sums after it.

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

With F(2x2) a result is made of the nine inputs that it reads directly too: a nan reaches these and no others, but an
infinity is nan in them. With F(4x4) both may reach other results of their tiles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from neonlike.backends.cpu.conv_plan import APART, IMAGE_LANES, ConvPlan, ceil_div, data_tile, even, image_block, whole
from neonlike.backends.geometry.conv import ConvGeometry

META = (
    "CHANNELS", "MAPS", "IMAGES", "PLANES", "IN_H", "IN_W", "OUT_H", "OUT_W", "PAD_H", "PAD_W",
    "FILTER_CHANNEL", "FILTER_MAP", "FILTER_TAP", "TILES_W", "TILES", "RUN", "RUNS", "IMAGE_BLOCK", "IMAGE_BLOCKS",
    "CHANNEL_BLOCK", "PART_TILES", "PARTS", "FILTERS_SIZE", "V_SIZE", "M_SIZE", "RESULTS_SIZE", "ALL_UNITS",
    "META_SIZE",
)  # fmt: skip
"""What the meta array holds."""

LEAST_MAPS = 16
"""Channels and maps; with fewer, transforms take longer than products."""
GAIN = 1.3
"""Products of direct convolution, for each of Winograd's, from which the latter pays: 7 x 7 results (1.4) do."""
GAIN_OF_4 = 1.3
"""The same for F(4 x 4) against F(2 x 2)."""
RUN_LANES = 64
"""Lanes of a run of tiles; half as many where sums of all maps are more than FEW_BYTES."""
FEW_BYTES = 320 << 10
M_BYTES = 1 << 20
"""Sums of a unit, of which as many maps are a part as this holds."""
V_BYTES = {2: 256 << 10, 4: 384 << 10}
"""Transformed input of a block of channels."""


@lru_cache(maxsize=512)
def winograd_edge(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, allowed: Any) -> int:
    """Edge of the tiles of results, 2 or 4; 0 where direct convolution is better or ``allowed`` is false.

    allowed: as ``enable_winograd``; 4 is the only value that allows F(4 x 4), whose error is larger.
    """
    plain = g.TRS == (1, 3, 3) and g.strides == (1, 1, 1) == g.dilation and g.groups == 1 and g.padding[0] == 0
    if not allowed or not plain or min(g.C, g.K) < LEAST_MAPS or g.N * itemsize % vector_bytes != 0:
        return 0
    inputs, outputs = (g.MPQ, g.DHW) if backward else (g.DHW, g.MPQ)
    direct = 1
    for read, made, pad in zip(inputs[1:], outputs[1:], _padding(g, backward)):
        direct *= sum(0 <= at + tap - pad < read for at in range(made) for tap in range(3))
    products = {edge: _tiles(outputs[1], edge) * _tiles(outputs[2], edge) * (edge + 2) ** 2 for edge in (2, 4)}
    edge = 4 if allowed is not True and allowed == 4 and products[2] > GAIN_OF_4 * products[4] else 2
    return edge if direct > GAIN * products[edge] else 0


def _padding(g: ConvGeometry, backward: bool) -> list[int]:
    """Of height and width; that of the data gradient may be negative."""
    return [2 - pad if backward else pad for pad in g.padding[1:]]


def _tiles(size: int, edge: int) -> int:
    return ceil_div(size, edge)


@lru_cache(maxsize=512)
def winograd_plan(
    g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int, edge: int, threads: int
) -> ConvPlan:
    """Forward, or data gradient. Results do not depend on ``threads``, nor do the units by which a bsum is cut."""
    inputs, outputs = (g.MPQ, g.DHW) if backward else (g.DHW, g.MPQ)
    channels, maps = (g.K, g.C) if backward else (g.C, g.K)
    channel_step, map_step = (1, 9 * g.K) if backward else (9 * g.K, 1)
    tile, points = data_tile(maps, vector_bytes, itemsize), (edge + 2) ** 2
    map_tiles = ceil_div(maps, tile.maps)

    images = image_block(g.N, tile.lanes, IMAGE_LANES)
    tiles_w = _tiles(outputs[2], edge)
    tiles = _tiles(outputs[1], edge) * tiles_w
    few = points * RUN_LANES * map_tiles * tile.maps * itemsize <= FEW_BYTES
    run = even(tiles, (RUN_LANES if few else RUN_LANES // 2) // images)
    lanes = run * images
    runs, image_blocks = ceil_div(tiles, run), ceil_div(g.N, images)
    units = inputs[0] * image_blocks * runs
    shares = ceil_div(4 * threads, units) if threads > 1 else 1
    part = even(map_tiles, min(M_BYTES // (points * lanes * itemsize * tile.maps), ceil_div(map_tiles, shares)))
    parts = ceil_div(map_tiles, part)
    block = even(channels, V_BYTES[edge] // (points * lanes * itemsize))

    padding = _padding(g, backward)
    fields = {
        "CHANNELS": channels, "MAPS": maps, "IMAGES": g.N, "PLANES": inputs[0],
        "IN_H": inputs[1], "IN_W": inputs[2], "OUT_H": outputs[1], "OUT_W": outputs[2],
        "PAD_H": padding[0], "PAD_W": padding[1],
        "FILTER_CHANNEL": channel_step, "FILTER_MAP": map_step, "FILTER_TAP": g.K,
        "TILES_W": tiles_w, "TILES": tiles, "RUN": run, "RUNS": runs,
        "IMAGE_BLOCK": images, "IMAGE_BLOCKS": image_blocks, "CHANNEL_BLOCK": block, "PART_TILES": part, "PARTS": parts,
        "FILTERS_SIZE": whole(points * channels * map_tiles * tile.maps, 64) + APART // itemsize,
        "V_SIZE": whole(points * (block * lanes + tile.lanes), 64),
        "M_SIZE": whole(points * (part * tile.maps * lanes + tile.lanes), 64),
        "RESULTS_SIZE": whole(edge * edge * lanes, 64) + APART // itemsize,
        "ALL_UNITS": units * parts,
    }  # fmt: skip
    private = fields["V_SIZE"] + fields["M_SIZE"] + fields["RESULTS_SIZE"]
    return ConvPlan(tile, tuple(fields[name] for name in META[:-1]), units, fields["FILTERS_SIZE"], private, edge)
