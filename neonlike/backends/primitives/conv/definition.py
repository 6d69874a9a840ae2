"""Definition of convolution in NumPy: a matrix product for each tap of the filter and group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from neonlike.backends.geometry.conv import ConvGeometry, Triple
from neonlike.backends.tensors.operands import Array

Slices = tuple[slice, slice, slice]


def taps(g: ConvGeometry) -> Iterator[tuple[int, Triple, Slices, Slices]]:
    """Each group and filter tap, with the input and output positions paired by it."""
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


def convolved(g: ConvGeometry, backward: bool, read: Array, filters: Array) -> Array:
    """Forward pass on images (C, D, H, W, N), or with ``backward`` the data gradient of errors (K, M, P, Q, N).

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
    read : array
        Images, or errors.
    filters : array (C / groups, T, R, S, K)

    Returns
    -------
    array
        (K, M, P, Q, N), or with ``backward`` (C, D, H, W, N).
    """
    result: Array = np.zeros(g.dimI if backward else g.dimO, read.dtype)
    for group, tap, inputs, outputs in taps(g):
        channels, maps = part_of(g, group)
        w = filters[(slice(None), *tap, maps)]
        if backward:
            result[(channels, *inputs)] += np.tensordot(w, read[(maps, *outputs)], (1, 0))
        else:
            result[(maps, *outputs)] += np.tensordot(w, read[(channels, *inputs)], (0, 0))
    return result


def filter_gradient(g: ConvGeometry, images: Array, errors: Array) -> Array:
    """The gradient of the filters.

    Parameters
    ----------
    g : ConvGeometry
    images : array (C, D, H, W, N)
    errors : array (K, M, P, Q, N)

    Returns
    -------
    array
        (C / groups, T, R, S, K)
    """
    result: Array = np.zeros(g.dimF, images.dtype)
    axes = (1, 2, 3, 4)
    for group, tap, inputs, outputs in taps(g):
        channels, maps = part_of(g, group)
        part = np.tensordot(images[(channels, *inputs)], errors[(maps, *outputs)], (axes, axes))
        result[(slice(None), *tap, maps)] = part
    return result
