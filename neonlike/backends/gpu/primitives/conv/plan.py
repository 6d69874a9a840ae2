"""How a convolution is cut for a GPU: phases of positions that take the same taps, bands of columns, parts of sums.

Forward pass and data gradient are one matrix product for each phase and band: filters times *columns*, the matrix of
the elements that each tap reads, (taps of channels, positions and images). A data gradient with strides has a phase for
each remainder of a position by the strides, which takes the taps that meet an output there; so no product is wasted.
The weight gradient is columns times errors. Everything here follows from sizes alone, and so does the order of sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, round_up

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
    """What a phase reads along an axis.

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


def bands(columns: int, column_bytes: int) -> list[Band]:
    """``columns`` in bands of about equal size, where a column takes so many bytes of working memory."""
    most = max(COLUMN_BYTES // max(column_bytes, 1) // EVEN * EVEN, LEAST_COLUMNS)
    if columns <= most:
        return [Band(0, columns)]
    size = round_up(ceil_div(columns, ceil_div(columns, most)), EVEN)
    return [Band(first, min(size, columns - first)) for first in range(0, columns, size)]


def parts(tiles: int, depth: int, nbytes: int) -> int:
    """Into how many parts the sums of a gradient are split: of ``depth`` products each, ``nbytes`` in all.

    So many that the GPU is busy, if one part would occupy ``tiles`` of it.
    """
    return max(min(ceil_div(TILES, tiles), depth // LEAST_DEPTH, PART_BYTES // nbytes), 1)
