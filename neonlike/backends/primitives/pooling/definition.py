"""Definition of pooling in NumPy: all windows at once, one window position after the other.

``geometry/pool.py`` defines the contents of a window.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neonlike.backends.geometry.pool import PoolGeometry
from neonlike.backends.tensors.operands import Array


def steps(layer: PoolGeometry) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """For each window position: its number, the windows that have it inside the input, and its positions there."""
    axes = list(zip(layer.CDHW, layer.KMPQ, layer.padding, layer.strides))
    for number, offsets in enumerate(np.ndindex(*layer.JTRS)):
        windows, places = [], []
        for (length, count, padding, stride), offset in zip(axes, offsets):
            first = max(-((offset - padding) // stride), 0)
            end = min((length - 1 + padding - offset) // stride + 1, count)
            windows.append(slice(first, max(end, first)))
            start = first * stride - padding + offset
            places.append(slice(start, start + max(end - first, 0) * stride, stride))
        if all(window.stop > window.start for window in windows):
            yield number, tuple(windows), tuple(places)


def pool(layer: PoolGeometry, values: Array, numbers: Array | None) -> Array:
    """Pool ``values`` (C,D,H,W,N) to (K,M,P,Q,N), with float64 sums; positions of maxima go into ``numbers``.

    Parameters
    ----------
    layer : PoolGeometry
    values : array
    numbers : integer array (K,M,P,Q,N), or None
        Written, for max pooling.
    """
    if layer.op == "max":
        assert numbers is not None
        best = np.zeros(layer.dimO, values.dtype)
        empty = np.ones(layer.dimO, bool)
        numbers[...] = 0
        for number, windows, places in steps(layer):
            new, old = values[places], best[windows]
            better = empty[windows] | (new > old) | (np.isnan(new) & ~np.isnan(old))
            np.copyto(old, new, where=better)
            np.copyto(numbers[windows], number, where=better, casting="unsafe")
            empty[windows] = False
        return best
    sums = np.zeros(layer.dimO)
    for _, windows, places in steps(layer):
        sums[windows] += values[places] if layer.op == "avg" else np.square(values[places], dtype=np.float64)
    return sums / np.maximum(layer.counts, 1) if layer.op == "avg" else np.sqrt(sums)


def unpool(layer: PoolGeometry, error: Array, numbers: Array | None, values: Array | None) -> Array:
    """Gradient (C,D,H,W,N) of an ``error`` (K,M,P,Q,N), in float64.

    Parameters
    ----------
    layer : PoolGeometry
    error : array
    numbers : integer array (K,M,P,Q,N), or None
        Positions of maxima.
    values : array (C,D,H,W,N), or None
        Input, for l2.
    """
    delta = np.zeros(layer.dimI)
    share: Array = error
    if layer.op == "avg":
        share = error / np.maximum(layer.counts, 1)
    elif values is not None:
        share = share_of_norm(error, pool(layer, values, None))
    for number, windows, places in steps(layer):
        delta[places] += share[windows] if numbers is None else np.where(numbers[windows] == number, error[windows], 0)
    if values is None:
        return delta
    counts = [end - first for first, end in layer.covering]
    read = np.ix_(*(count > 0 for count in counts), np.ones(layer.N, bool))  # elsewhere values are undefined
    delta[read] *= values[read]
    return delta


def share_of_norm(error: Array, norm: Array) -> Array:
    """``error / norm``, written over ``norm``; 0 where that is 0: the smallest possible subgradient of the root."""
    with np.errstate(all="ignore"):
        return np.divide(error, norm, out=norm, where=norm != 0)


def blend(target: Array, result: Array, alpha: float, beta: float) -> None:
    """``target = alpha * result + beta * target``; with beta 0 the old target is not read.

    Parameters
    ----------
    target, result : arrays of one shape
    alpha, beta : float
    """
    scaled = result if alpha == 1 else alpha * result
    target[...] = scaled if beta == 0 else scaled + beta * target
