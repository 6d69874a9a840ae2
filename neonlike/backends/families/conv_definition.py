"""Which elements a convolution pairs: what the definition in ``conv.py`` sums over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from neonlike.backends.geometry.conv import ConvGeometry, Triple

Slices = tuple[slice, slice, slice]


def taps(g: ConvGeometry) -> Iterator[tuple[int, Triple, Slices, Slices]]:
    """Each group and tap of the filter: the tap, and the input and output positions that it pairs."""
    axes = []
    for length, window, count, pad, stride, dilation in zip(g.DHW, g.TRS, g.MPQ, g.padding, g.strides, g.dilation):
        pairs = []
        for tap in range(window):
            offset = tap * dilation - pad
            first = max(0, -(offset // stride))
            last = min(count, (length - 1 - offset) // stride + 1)
            if first < last:
                start = first * stride + offset
                pairs.append((tap, slice(start, start + (last - first - 1) * stride + 1, stride), slice(first, last)))
        axes.append(pairs)
    for group in range(g.groups):
        for d, h, w in itertools.product(*axes):
            yield group, (d[0], h[0], w[0]), (d[1], h[1], w[1]), (d[2], h[2], w[2])


def part_of(g: ConvGeometry, group: int) -> tuple[slice, slice]:
    """Channels and maps of a group."""
    channels, maps = g.C // g.groups, g.K // g.groups
    return slice(group * channels, (group + 1) * channels), slice(group * maps, (group + 1) * maps)
