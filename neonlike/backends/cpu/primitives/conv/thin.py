"""Convolution with few channels and maps per group, mainly depthwise: meta arrays of ``conv/thin*.c.j2``.

A group has too few channels and maps for tiles of several maps, so the overhead beside each map's taps has to be small.
Fields and phases are those of ``conv/plan.py``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind, Tile
from neonlike.backends.cpu.primitives.conv.plan import (
    META,
    PHASE,
    AxisPhase,
    Blocks,
    Phase,
    backward_axis,
    block_phase,
    flat_phases,
    flatten,
    forward_axis,
    shapes,
)
from neonlike.backends.geometry.conv import ConvGeometry, Triple
from neonlike.backends.geometry.counts import ceil_div, round_up

MOST = 4
"""Maximum number of channels or maps per group, if the other is one; for the weight gradient, of their product."""
VECTORS = 8
"""Vectors per tile: as many accumulators as keep two units with a latency of four cycles busy."""
UPDATE_TAPS = 9
"""Taps per tile of the weight gradient, each with two vectors of accumulators."""
UNROLL = 2
"""Rows of results are padded to multiples of this many vectors."""
AREA_LANES = 16 << 10
"""Maximum number of lanes in an area, which stays in the L2 cache with its strips."""
MOST_SPREAD = 8
"""Maximum product of strides for a data gradient that spreads the errors; see :func:`spread`."""
LEAST_UNITS = 32
"""Minimum number of units of work, if there are enough groups and areas."""


def thin(g: ConvGeometry) -> bool:
    """Whether this kernel is used for forward pass and data gradient."""
    channels, maps = g.C // g.groups, g.K // g.groups
    return min(channels, maps) == 1 and max(channels, maps) <= MOST


def thin_update(g: ConvGeometry) -> bool:
    """Whether this kernel is used for the weight gradient."""
    return (g.C // g.groups) * (g.K // g.groups) <= MOST


@lru_cache(maxsize=512)
def thin_plan(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int) -> ConvPlan:
    """Plan of the forward pass or data gradient; it does not depend on the number of threads.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    """
    axes = [*zip(g.DHW if backward else g.MPQ, g.TRS, g.padding, g.strides, g.dilation)]
    if backward and spread(g, vector_bytes, itemsize):
        phase: Phase = tuple(_spread_axis(*axis) for axis in axes)  # type: ignore[assignment]
        return _plan(g, backward, [phase], vector_bytes, itemsize, g.strides)
    phases: list[Phase] = [*product(*[(backward_axis if backward else forward_axis)(*axis) for axis in axes])]  # type: ignore[list-item]
    return _plan(g, backward, phases, vector_bytes, itemsize)


def spread(g: ConvGeometry, vector_bytes: int, itemsize: int) -> bool:
    """Whether the data gradient reads errors with zeros inserted between them, as a transposed convolution does.

    It then uses all taps for all results, which for few images is faster than strided stores of each phase's results.

    Parameters
    ----------
    g, vector_bytes, itemsize
        As of :func:`thin_plan`.
    """
    return max(g.strides) > 1 and math.prod(g.strides) <= MOST_SPREAD and g.N * itemsize < vector_bytes


def _spread_axis(inputs: int, window: int, padding: int, stride: int, dilation: int) -> AxisPhase:
    """The single phase of a data gradient from errors with inserted zeros."""
    return AxisPhase(0, 1, inputs, 1, tuple((s, padding - s * dilation) for s in range(window)))


@lru_cache(maxsize=512)
def thin_update_plan(g: ConvGeometry, vector_bytes: int, itemsize: int) -> ConvPlan:
    """Plan of the weight gradient; it does not depend on the number of threads.

    Parameters
    ----------
    g, vector_bytes, itemsize
        As of :func:`thin_plan`.
    """
    axes = zip(g.MPQ, g.TRS, g.padding, g.strides, g.dilation)
    phase: Phase = tuple(forward_axis(*axis)[0] for axis in axes)  # type: ignore[assignment]
    return _plan(g, None, [phase], vector_bytes, itemsize)


def _plan(
    g: ConvGeometry,
    backward: bool | None,
    phases: list[Phase],
    vector_bytes: int,
    itemsize: int,
    up: Triple = (1, 1, 1),
) -> ConvPlan:
    """The plan for ``backward`` (None: weight gradient); up: distances of the errors, filled with zeros."""
    fields = shapes(g, bool(backward)) | dict(zip(("UP_D", "UP_H", "UP_W"), up))
    for axis, step in zip("DHW", up):
        fields[f"IN_{axis}"] = (fields[f"IN_{axis}"] - 1) * step + 1
    channels, maps, lanes = fields["CHANNELS"], fields["MAPS"], vector_bytes // itemsize
    tile = Tile(1, VECTORS, lanes) if backward is not None else Tile(1, UPDATE_TAPS, lanes)
    flat = flat_phases(phases, g.N, 2 * lanes)
    blocks = [block_phase(phase, g.N, AREA_LANES, tile, itemsize, flat) for phase in phases]
    counts = [block.units(1, 1) for block in blocks]
    areas = sum(counts)
    each = max(1, g.groups // ceil_div(LEAST_UNITS, areas))
    groups = ceil_div(g.groups, each)
    records: list[list[int]] = []
    tails: list[int] = []
    taps_at = len(META) - 1 + len(blocks) * (len(PHASE) - 1)
    for block, count in zip(blocks, counts):
        records.append(block.record(count, 0, taps_at, tails))
    sums_bytes = 0 if backward is not None else areas * channels * maps * g.groups * math.prod(g.TRS) * 8
    slack = 2 * VECTORS * lanes
    fields |= {
        "FLAT": int(flat),
        "UNIT_CHANNELS": each,
        "UNIT_BLOCKS": groups,
        "FILTERS_SIZE": round_up(ceil_div(sums_bytes, itemsize), 64),
        "STRIPS_SIZE": round_up(channels * max(_strips(block) for block in blocks) + slack, 64),
        "SUMS_SIZE": 2 * round_up(max(_results(block, UNROLL * lanes) for block in blocks) + slack, 64),
        "LIST_SIZE": round_up(_listed(g, channels, itemsize), 64),
        "ALL_UNITS": areas * groups,
    }
    private = fields["STRIPS_SIZE"] + fields["SUMS_SIZE"] + fields["LIST_SIZE"]
    meta = flatten(fields, records, tails)
    return ConvPlan(Kind.THIN, tile, meta, areas, fields["FILTERS_SIZE"], private)


def _listed(g: ConvGeometry, channels: int, itemsize: int) -> int:
    """Elements of a thread's list of taps, with their offsets and filters."""
    taps = math.prod(g.TRS)
    numbers = 2 * g.TRS[0] + 4 * max(g.strides) + g.TRS[2] + 2 * taps
    return ceil_div((numbers + channels * taps) * 8, itemsize) + channels * taps


def _strips(block: Blocks) -> int:
    """Elements of a channel's strips: all rows from the first to the last one read."""
    return len(block.phase[0].taps) * block.row_range[1] * block.strip


def _results(block: Blocks, step: int) -> int:
    """Elements of a map's results: rows padded to ``step``, or if flat all rows with their halos."""
    return round_up(block.run, step) if block.flat else block.rows * round_up(block.lanes, step)
