"""Plans."""

from __future__ import annotations

from functools import lru_cache

from neonlike.backends.cpu.conv_plan import ConvPlan, ceil_div, data_tile, even, whole
from neonlike.backends.geometry.conv import ConvGeometry

META = (
    "CHANNELS", "MAPS", "IMAGES", "PLANES", "IN_H", "IN_W", "OUT_H", "OUT_W", "PAD_H", "PAD_W",
    "FILTER_CHANNEL", "FILTER_MAP", "FILTER_TAP", "TILES_W", "TILES", "RUN", "RUNS", "IMAGE_BLOCK", "IMAGE_BLOCKS",
    "CHANNEL_BLOCK", "PART_TILES", "PARTS", "FILTERS_SIZE", "V_SIZE", "M_SIZE", "RESULTS_SIZE", "ALL_UNITS", "META_SIZE",
)  # fmt: skip
"""What the meta array holds."""

POINTS = 16
IMAGE_LANES = 128
RUN_LANES = 64
V_BYTES = 256 << 10
M_BYTES = 512 << 10


@lru_cache(maxsize=512)
def winograd_plan(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int) -> ConvPlan:
    """Forward, or data gradient. Nothing depends on the number of threads, so results do not either."""
    inputs, outputs = (g.MPQ, g.DHW) if backward else (g.DHW, g.MPQ)
    channels, maps = (g.K, g.C) if backward else (g.C, g.K)
    tile = data_tile(maps, vector_bytes, itemsize)
    images = g.N if g.N <= IMAGE_LANES else whole(even(g.N, IMAGE_LANES), tile.lanes)
    tiles_w, tiles_h = ceil_div(outputs[2], 2), ceil_div(outputs[1], 2)
    run = even(tiles_h * tiles_w, max(1, RUN_LANES // images))
    runs, image_blocks = ceil_div(tiles_h * tiles_w, run), ceil_div(g.N, images)
    map_tiles = ceil_div(maps, tile.maps)
    lanes = run * images
    part = even(map_tiles, M_BYTES // (POINTS * lanes * itemsize * tile.maps))
    parts = ceil_div(map_tiles, part)
    block = even(channels, V_BYTES // (POINTS * lanes * itemsize))
    steps = (1, 9 * g.K) if backward else (9 * g.K, 1)
    pads = [2 - p if backward else p for p in g.padding[1:]]
    units = inputs[0] * image_blocks * runs
    fields = {
        "CHANNELS": channels, "MAPS": maps, "IMAGES": g.N, "PLANES": inputs[0], "IN_H": inputs[1], "IN_W": inputs[2],
        "OUT_H": outputs[1], "OUT_W": outputs[2], "PAD_H": pads[0], "PAD_W": pads[1],
        "FILTER_CHANNEL": steps[0], "FILTER_MAP": steps[1], "FILTER_TAP": g.K,
        "TILES_W": tiles_w, "TILES": tiles_h * tiles_w, "RUN": run, "RUNS": runs,
        "IMAGE_BLOCK": images, "IMAGE_BLOCKS": image_blocks, "CHANNEL_BLOCK": block, "PART_TILES": part, "PARTS": parts,
        "FILTERS_SIZE": whole(POINTS * channels * map_tiles * tile.maps, 64),
        "V_SIZE": whole(POINTS * (block * lanes + tile.lanes), 64),
        "M_SIZE": whole(POINTS * (part * tile.maps * lanes + tile.lanes), 64),
        "RESULTS_SIZE": whole(4 * lanes, 64),
        "ALL_UNITS": units * parts,
    }  # fmt: skip
    private = fields["V_SIZE"] + fields["M_SIZE"] + fields["RESULTS_SIZE"]
    return ConvPlan(tile, tuple(fields[name] for name in META[:-1]), units, fields["FILTERS_SIZE"], private)
