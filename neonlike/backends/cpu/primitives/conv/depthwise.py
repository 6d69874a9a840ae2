"""Depthwise convolution, each map of one channel: meta arrays of ``conv/depthwise*.c.j2``.

Every product needs a load, so loads have to be aligned and each result stored once. If images fill vectors, lanes are
neighbouring images, read in place. Otherwise lanes are channels at one position: blocks of channels are transposed
before and after, at equal cost for all strides, dilations and numbers of images.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind, Tile
from neonlike.backends.cpu.primitives.conv.plan import AxisPhase, backward_axis, forward_axis
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, even, round_up

META = (
    "CHANNELS", "IMAGES", "IN_H", "IN_W", "OUT_H", "OUT_W", "TAPS",
    "ROW_STEP", "ROW_PHASES", "COLUMN_STEP", "COLUMN_PHASES", "ROW_PHASES_AT",
    "ROW_TAPS_AT", "RUNS", "RUNS_AT", "LISTS_AT", "FLAT", "LEFT", "PITCH",
    "BAND", "UNIT_CHANNELS", "UNIT_BLOCKS", "ALL_UNITS",
    "INPUT_SIZE", "FILTERS_SIZE", "SUMS_SIZE", "TOTALS_SIZE", "PLACES_SIZE", "PRIVATE_SIZE", "SHARED_SIZE", "META_SIZE",
)  # fmt: skip
"""Leading fields of the meta array. ROW_PHASES and COLUMN_PHASES are the steps between results of one phase. The
following entries are: the start of the taps of each phase of rows, these taps (tap, offset), runs of columns, the start
of the list of taps for each phase of rows and run, and these lists (offset of the input from the run's first column,
index of the weight)."""

LEAST_FULL = 0.7
"""Minimum share of used lanes for vectors of images, if the filter's stride along a row is not 1."""
LEAST_CHANNELS = 0.5
"""Minimum share of used lanes for vectors of channels."""
BAND_BYTES = 384 << 10
"""Maximum bytes of a unit's transposed input and results, so that they stay in the L2 cache."""
MOST_BYTES = 1 << 20
"""Maximum bytes of a unit's transposed input if a single row exceeds BAND_BYTES; beyond, ``conv/thin.py`` is used."""
UNITS, LEAST_ROWS = 16, 7
"""Minimum number of units of work and of rows per band: neighbouring bands read some rows twice."""
SLACK = 64
"""Buffer sizes are multiples of this many elements."""


def plain(g: ConvGeometry) -> bool:
    """Whether each map has a single channel, in two dimensions: with padding, a window may miss the only layer."""
    return g.C == g.K == g.groups and (g.DHW[0], g.TRS[0], g.MPQ[0], g.padding[0]) == (1, 1, 1, 0)


def across(g: ConvGeometry, lanes: int) -> tuple[str, int]:
    """The meaning of a vector's lanes and their number: "images", "channels", or "" if neither fills a vector.

    Images that fill half a vector are read in place, too: half vectors are as fast, since each product needs a load.
    """
    if not plain(g):
        return "", 0
    fitting = [some for some in (lanes, lanes // 2) if some <= g.N]
    for some in fitting:
        if g.strides[2] == 1 or g.N >= LEAST_FULL * round_up(g.N, some):
            return "images", some
    if g.C >= LEAST_CHANNELS * round_up(g.C, lanes):
        return "channels", lanes
    return ("images", fitting[0]) if fitting else ("", 0)


class Run(NamedTuple):
    """Output columns with the same taps inside the image; entries are (tap, offset)."""

    start: int
    size: int
    first: int
    """Input column that the offsets of the first output column are relative to."""
    taps: tuple[tuple[int, int], ...]


def _runs(phases: list[AxisPhase], inputs: int, padded: bool) -> list[Run]:
    """The runs of an axis. padded: the zero padding is in memory, so that all taps are used."""
    runs: list[Run] = []
    for phase in phases:
        last = None
        for j in range(phase.length):
            at = j * phase.in_step
            taps = tuple(tap for tap in phase.taps if padded or 0 <= at + tap[1] < inputs)
            if taps == last:
                runs[-1] = runs[-1]._replace(size=runs[-1].size + 1)
            else:
                runs.append(Run(phase.start + j * phase.step, 1, at, taps))
            last = taps
    return runs


def _lists(
    rows: list[AxisPhase], runs: list[Run], g: ConvGeometry, pitch: int, left: int, wide: int
) -> list[list[int]]:
    """For each phase of rows and run: input offset and weight index of each tap."""
    return [
        [
            number
            for r, row in phase.taps
            for s, column in run.taps
            for number in ((row * pitch + (column + left) * g.N) * wide, (r * g.TRS[2] + s) * wide)
        ]
        for phase in rows
        for run in runs
    ]


def _reads(phases: list[AxisPhase]) -> tuple[int, int]:
    """First and last input position, padding included."""
    ends = [(min(p.offsets), max(p.offsets) + (p.length - 1) * p.in_step) for p in phases if p.taps and p.length]
    return min((lo for lo, _ in ends), default=0), max((hi for _, hi in ends), default=0)


@lru_cache(maxsize=512)
def depthwise_plan(g: ConvGeometry, backward: bool, vector_bytes: int, itemsize: int) -> ConvPlan | None:
    """Plan of the forward pass or data gradient; None if unsuitable. It does not depend on the number of threads.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    vector_bytes, itemsize : int
        Bytes of a vector and of a number.
    """
    lanes_of, lanes = across(g, vector_bytes // itemsize)
    if not lanes_of:
        return None
    fields, tails = _cut(g, backward, lanes_of, lanes, itemsize)
    wide = lanes if lanes_of == "channels" else 1
    made = (fields["BAND"] if wide > 1 else 1) * fields["OUT_W"] * g.N
    fields["FILTERS_SIZE"] = round_up(fields["TAPS"] * wide, SLACK)
    fields["SUMS_SIZE"] = round_up((made + lanes) * wide, SLACK)
    return _planned(fields, tails, lanes_of, lanes, itemsize, 0)


@lru_cache(maxsize=512)
def depthwise_update_plan(g: ConvGeometry, vector_bytes: int, itemsize: int) -> ConvPlan | None:
    """Plan of the weight gradient; None if unsuitable. It does not depend on the number of threads.

    Parameters
    ----------
    g, vector_bytes, itemsize
        As of :func:`depthwise_plan`.
    """
    lanes_of, lanes = across(g, vector_bytes // itemsize)
    if not lanes_of:
        return None
    fields, tails = _cut(g, False, lanes_of, lanes, itemsize)
    taps, bands = fields["TAPS"], fields["ALL_UNITS"] // fields["UNIT_BLOCKS"]
    fields["FILTERS_SIZE"] = round_up(taps * lanes, SLACK)
    if lanes_of == "channels":
        fields["SUMS_SIZE"] = round_up(fields["BAND"] * fields["OUT_W"] * g.N * lanes, SLACK)
        fields["TOTALS_SIZE"] = round_up(ceil_div(taps * lanes * 8, itemsize), SLACK)
    fields["SHARED_SIZE"] = round_up(ceil_div(bands * g.C * taps * 8, itemsize), SLACK)
    return _planned(fields, tails, lanes_of, lanes, itemsize, fields["SHARED_SIZE"])


def _cut(
    g: ConvGeometry, backward: bool, lanes_of: str, lanes: int, itemsize: int
) -> tuple[dict[str, int], list[list[int]]]:
    """Fields of the meta array for the division into units, and the lists after the fields."""
    inputs, outputs = (g.MPQ, g.DHW) if backward else (g.DHW, g.MPQ)
    axes = [*zip(outputs, g.TRS, g.padding, g.strides, g.dilation)]
    rows, columns = ((backward_axis if backward else forward_axis)(*axis) for axis in axes[1:])
    channels = lanes_of == "channels"
    least, last = _reads(columns) if channels else (0, 0)
    left = max(0, -least)
    pitch = (left + inputs[2] + max(0, last + 1 - inputs[2])) * g.N if channels else inputs[2] * g.N
    wide = lanes if channels else 1
    band, each = _unit(g, rows, pitch, outputs, wide, itemsize)
    runs = _runs(columns, inputs[2], channels)
    fields = {"CHANNELS": g.C, "IMAGES": g.N, "TAPS": g.TRS[1] * g.TRS[2], "LEFT": left, "PITCH": pitch}
    fields |= dict(zip(("IN_H", "IN_W", "OUT_H", "OUT_W"), (*inputs[1:], *outputs[1:])))
    fields |= {"ROW_STEP": rows[0].in_step, "ROW_PHASES": rows[0].step}
    fields |= {"COLUMN_STEP": columns[0].in_step, "COLUMN_PHASES": columns[0].step}
    fields |= {"RUNS": len(runs), "FLAT": int(columns[0].in_step == columns[0].step == 1)}
    fields |= {"BAND": band, "UNIT_CHANNELS": each, "UNIT_BLOCKS": ceil_div(g.C, each)}
    fields["ALL_UNITS"] = fields["UNIT_BLOCKS"] * ceil_div(outputs[1], band)
    if channels:
        read = min(inputs[1], _rows_read(rows, band))
        fields["INPUT_SIZE"] = round_up(read * pitch * wide, SLACK)
        places = max(read * inputs[2], band * outputs[2]) * g.N
        fields["PLACES_SIZE"] = round_up(ceil_div(places * 4, itemsize), SLACK)
    tails = [
        [sum(len(phase.taps) for phase in rows[:i]) for i in range(len(rows) + 1)],
        [number for phase in rows for tap in phase.taps for number in tap],
        [number for run in runs for number in (*run[:3], len(run.taps))],
        *_lists(rows, runs, g, pitch, left, wide),
    ]
    return fields, tails


def _planned(
    fields: dict[str, int], tails: list[list[int]], lanes_of: str, lanes: int, itemsize: int, shared: int
) -> ConvPlan | None:
    """The plan; None if a unit's input would not fit in the caches."""
    parts = ("INPUT", "FILTERS", "SUMS", "TOTALS", "PLACES")
    fields["PRIVATE_SIZE"] = sum(fields.get(f"{name}_SIZE", 0) for name in parts)
    if fields.get("INPUT_SIZE", 0) * itemsize > MOST_BYTES:
        return None
    phases, taps, runs, *lists = tails
    starts = [*accumulate((len(phases), len(taps), len(runs)), initial=len(META) - 1)]
    fields |= dict(zip(("ROW_PHASES_AT", "ROW_TAPS_AT", "RUNS_AT", "LISTS_AT"), starts))
    at = [*accumulate(map(len, lists), initial=starts[-1] + len(lists))][:-1]
    numbers = [number for part in (phases, taps, runs, at, *lists) for number in part]
    meta = (*(fields.get(name, 0) for name in META[:-1]), *numbers)
    bands = fields["ALL_UNITS"] // fields["UNIT_BLOCKS"]
    variant = (("across", lanes_of),)  # the meaning of its vectors' lanes
    return ConvPlan(Kind.DEPTHWISE, Tile(1, 8, lanes), meta, bands, shared, fields["PRIVATE_SIZE"], variant)


def _rows_read(phases: list[AxisPhase], band: int) -> int:
    """Maximum number of input rows, from first to last, that a band of outputs reads."""
    least, _ = _reads(phases)
    last = max((max(phase.offsets) for phase in phases if phase.taps), default=0)
    return ceil_div(band, phases[0].step) * phases[0].in_step + last - least + 1


def _unit(
    g: ConvGeometry, rows: list[AxisPhase], pitch: int, outputs: tuple[int, int, int], wide: int, itemsize: int
) -> tuple[int, int]:
    """Rows per band and channels per unit."""
    height = outputs[1]
    if wide == 1:
        each = max(1, g.C // UNITS // 2)
        return even(height, max(1, ceil_div(height * ceil_div(g.C, each), 2 * UNITS))), each
    blocks = ceil_div(g.C, wide)
    band = even(height, max(LEAST_ROWS, ceil_div(height * blocks, UNITS)))
    made = outputs[2] * g.N
    while band > 1 and (_rows_read(rows, band) * pitch + band * made) * wide * itemsize > BAND_BYTES:
        band = even(height, band - 1)
    return band, wide
