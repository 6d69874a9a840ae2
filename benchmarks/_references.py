"""What the primitives must give, in float64 NumPy, for the few images, channels or rows that a check looks at.

Layout (C, H, W, N) throughout. Windows are written as strided slices, one for each position in the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from _layers import Conv, Pool

Array = npt.NDArray[Any]


def some(count: int) -> list[int]:
    """Indices that a check looks at: both ends, one beside, one in the middle."""
    return sorted({0, min(1, count - 1), count // 2, count - 1})


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _padded(maps: Array, pad: int, value: float = 0.0) -> Array:
    """``maps`` (C, H, W, n) with ``pad`` around H and W."""
    return np.pad(maps, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=value)


def _slices(window: tuple[int, int], size: tuple[int, int], stride: int) -> Iterator[tuple[int, int, Any]]:
    """(r, s, slice): what the position r, s of the window meets at all P x Q places of padded maps."""
    for r in range(window[0]):
        for s in range(window[1]):
            yield r, s, np.s_[:, r : r + stride * size[0] : stride, s : s + stride * size[1] : stride]


# Convolution ----------------------------------------------------------------------------------------------------


def conv_fprop(layer: Conv, I: Array, F: Array) -> Array:  # noqa: E741
    """Outputs (K, P, Q, n) of the images I (C, H, W, n) and filters F (C, R, S, K)."""
    padded, wide = _padded(_wide(I), layer.pad), _wide(F)
    out = np.zeros((layer.K, layer.P, layer.Q, I.shape[-1]))
    for r, s, at in _slices((layer.R, layer.S), (layer.P, layer.Q), layer.stride):
        out += np.tensordot(wide[:, r, s], padded[at], axes=(0, 0))
    return out


def conv_bprop(layer: Conv, F: Array, E: Array) -> Array:
    """Gradients (C, H, W, n) of the errors E (K, P, Q, n)."""
    wide, errors, pad = _wide(F), _wide(E), layer.pad
    padded = np.zeros((layer.C, layer.H + 2 * pad, layer.W + 2 * pad, E.shape[-1]))
    for r, s, at in _slices((layer.R, layer.S), (layer.P, layer.Q), layer.stride):
        padded[at] += np.tensordot(wide[:, r, s], errors, axes=(1, 0))
    return padded[:, pad : pad + layer.H, pad : pad + layer.W]


def conv_update(layer: Conv, I: Array, E: Array) -> Array:  # noqa: E741
    """Gradients (c, R, S, k) of the filters between the given maps I (c, H, W, N) and E (k, P, Q, N): over all N."""
    padded, errors = _padded(_wide(I), layer.pad), _wide(E).reshape(len(E), -1)
    out = np.zeros((len(I), layer.R, layer.S, len(E)))
    for r, s, at in _slices((layer.R, layer.S), (layer.P, layer.Q), layer.stride):
        out[:, r, s] = padded[at].reshape(len(I), -1) @ errors.T
    return out


# Pooling, LRN, batch normalisation ------------------------------------------------------------------------------


def pool_fprop(layer: Pool, I: Array) -> Array:  # noqa: E741
    """Outputs (C, P, Q, n); padding takes no part."""
    windows = _pool_windows(layer, I)
    return np.nanmax(windows, axis=0) if layer.op == "max" else np.nanmean(windows, axis=0)


def pool_bprop(layer: Pool, I: Array, E: Array) -> Array:  # noqa: E741
    """Gradients (C, H, W, n) of the errors E (C, P, Q, n): to the first largest value, or to all in equal parts."""
    windows, pad = _pool_windows(layer, I), layer.pad
    there = np.isfinite(windows)
    if layer.op == "max":
        shares = np.arange(len(windows))[:, None, None, None, None] == np.nanargmax(windows, axis=0)
    else:
        shares = there / there.sum(axis=0)
    padded = np.zeros((layer.C, layer.H + 2 * pad, layer.W + 2 * pad, I.shape[-1]))
    size = (layer.window, layer.window)
    for share, (_, _, at) in zip(shares, _slices(size, (layer.P, layer.Q), layer.stride)):
        padded[at] += share * E
    return padded[:, pad : pad + layer.H, pad : pad + layer.W]


def _pool_windows(layer: Pool, I: Array) -> Array:  # noqa: E741
    """(positions of the window, C, P, Q, n), nan in the padding."""
    padded = _padded(_wide(I), layer.pad, np.nan)
    size = (layer.window, layer.window)
    return np.stack([padded[at] for _, _, at in _slices(size, (layer.P, layer.Q), layer.stride)])


def lrn(I: Array, J: int, ascale: float, bpower: float, E: Array | None = None) -> Array:  # noqa: E741
    """Outputs of LRN over J channels, of all channels of the images I (C, H, W, n); with the errors E, gradients."""
    x = _wide(I)
    denom = 1 + ascale / J * _channel_sums(x * x, J)
    out = x * denom**-bpower
    if E is None:
        return out
    return E * denom**-bpower - 2 * bpower * ascale / J * x * _channel_sums(out * E / denom, J)


def _channel_sums(maps: Array, J: int) -> Array:
    half = J // 2
    padded = np.pad(maps, ((half, half), *((0, 0),) * (maps.ndim - 1)))
    return sum(padded[j : j + len(maps)] for j in range(J))  # type: ignore[return-value]


def before_relu(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Normalised rows of x (channels, M), scaled and moved, not yet clamped."""
    wide = _wide(x)
    xhat = (wide - wide.mean(axis=1, keepdims=True)) / np.sqrt(wide.var(axis=1, keepdims=True) + eps)
    out: Array = gamma * xhat + beta
    return out


def batchnorm(x: Array, gamma: Array, beta: Array, eps: float, E: Array | None = None) -> list[Array]:
    """Normalised and clamped rows of x (channels, M); with the errors E, [gradients of x, of gamma, of beta]."""
    wide = _wide(x)
    mean, var = wide.mean(axis=1, keepdims=True), wide.var(axis=1, keepdims=True)
    scale = 1 / np.sqrt(var + eps)
    xhat = (wide - mean) * scale
    before = gamma * xhat + beta
    if E is None:
        return [np.maximum(before, 0)]
    delta = np.where(before > 0, E, 0.0)
    grad_gamma, grad_beta = (xhat * delta).sum(axis=1, keepdims=True), delta.sum(axis=1, keepdims=True)
    return [gamma * scale * (delta - (xhat * grad_gamma + grad_beta) / x.shape[1]), grad_gamma, grad_beta]
