"""PyTorch's definitions of its modules in inference, in NumPy: inputs ``(N, ...)``, parameters as in a state_dict."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Array = np.ndarray[Any, Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def linear(x: Array, p: Arrays) -> Array:
    return x @ p["weight"].T + p.get("bias", 0)


def _offsets(window: tuple[int, ...]) -> Any:
    return itertools.product(*map(range, window))


def conv(x: Array, p: Arrays, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1) -> Array:
    """Convolution along any number of axes: a sum over the elements of the window."""
    weight, axes = p["weight"], x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * axes])
    window = weight.shape[2:]
    sizes = [(x.shape[2 + i] - dilation * (window[i] - 1) - 1) // stride + 1 for i in range(axes)]
    parts = []
    for own, filters in zip(np.split(x, groups, axis=1), np.split(weight, groups)):
        total: Any = 0
        for at in _offsets(window):
            starts = [o * dilation for o in at]
            places = tuple(slice(o, o + stride * (n - 1) + 1, stride) for o, n in zip(starts, sizes))
            taken, factors = own[(slice(None), slice(None), *places)], filters[(slice(None), slice(None), *at)]
            total = total + np.einsum("nc...,kc->nk...", taken, factors)
        parts.append(total)
    return np.concatenate(parts, axis=1) + p.get("bias", np.zeros(len(weight))).reshape(-1, *[1] * axes)


def conv_transpose(x: Array, p: Arrays, stride: int = 1, padding: int = 0) -> Array:
    weight = p["weight"]  # (in, out, kh, kw)
    sizes = [stride * (n - 1) + k for n, k in zip(x.shape[2:], weight.shape[2:])]
    y = np.zeros((len(x), weight.shape[1], *sizes))
    for i, j in _offsets(weight.shape[2:]):
        y[:, :, i : i + stride * x.shape[2] : stride, j : j + stride * x.shape[3] : stride] += np.einsum(
            "nchw,ck->nkhw", x, weight[:, :, i, j]
        )
    y = y[:, :, padding : sizes[0] - padding, padding : sizes[1] - padding]
    return y + p.get("bias", np.zeros(weight.shape[1])).reshape(-1, 1, 1)


def _by_channel(values: Array, x: Array) -> Array:
    return values.reshape(-1, *[1] * (x.ndim - 2))


def batch_norm(x: Array, p: Arrays, eps: float = 1e-5) -> Array:
    mean, var, weight, bias = (_by_channel(p[k], x) for k in ("running_mean", "running_var", "weight", "bias"))
    return (x - mean) / np.sqrt(var + eps) * weight + bias


def layer_norm(x: Array, p: Arrays, eps: float = 1e-5) -> Array:
    axes = tuple(range(x.ndim - p["weight"].ndim, x.ndim))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * p["weight"] + p["bias"]


def group_norm(x: Array, p: Arrays, groups: int, eps: float = 1e-5) -> Array:
    parts = x.reshape(len(x), groups, -1)
    normal = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + eps)
    return normal.reshape(x.shape) * _by_channel(p["weight"], x) + _by_channel(p["bias"], x)


def _steps(x: Array, p: Arrays, level: int, way: str, step: Any) -> Array:
    """Outputs (N, steps, units) of one direction: ``step(projection, state)`` returns the new state, h first."""
    w_ih, w_hh, b_ih, b_hh = (p[f"{k}_l{level}{way}"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    units = w_hh.shape[1]
    state = [np.zeros((len(x), units)) for _ in range(2)]
    order = range(x.shape[1])[:: -1 if way else 1]
    found = np.zeros((len(x), x.shape[1], units))
    for t in order:
        state = step(x[:, t] @ w_ih.T + b_ih + state[0] @ w_hh.T + b_hh, state)
        found[:, t] = state[0]
    return found


def _rnn_step(sums: Array, state: list[Array]) -> list[Array]:
    return [np.tanh(sums), state[1]]


def _lstm_step(sums: Array, state: list[Array]) -> list[Array]:
    i, f, g, o = np.split(sums, 4, axis=1)
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    return [sigmoid(o) * np.tanh(c), c]


def gru(x: Array, p: Arrays) -> Array:
    """GRU with batch_first, of inputs (N, steps, features)."""
    w_ih, w_hh, b_ih, b_hh = (p[f"{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    h = np.zeros((len(x), w_hh.shape[1]))
    found = []
    for t in range(x.shape[1]):
        of_input, of_state = (np.split(y, 3, axis=1) for y in (x[:, t] @ w_ih.T + b_ih, h @ w_hh.T + b_hh))
        r, z = (sigmoid(of_input[k] + of_state[k]) for k in (0, 1))
        n = np.tanh(of_input[2] + r * of_state[2])
        h = (1 - z) * n + z * h
        found.append(h)
    return np.stack(found, axis=1)


def recurrent(x: Array, p: Arrays, kind: str, levels: int = 1, both: bool = False) -> Array:
    """RNN or LSTM with batch_first, of inputs (N, steps, features)."""
    step = {"RNN": _rnn_step, "LSTM": _lstm_step}[kind]
    for level in range(levels):
        x = np.concatenate([_steps(x, p, level, way, step) for way in (["", "_reverse"] if both else [""])], axis=2)
    return x


def attention(x: Array, p: Arrays, heads: int) -> Array:
    """MultiheadAttention with batch_first of x by itself, (N, steps, features)."""
    n, steps, features = x.shape
    projected = x @ p["in_proj_weight"].T + p.get("in_proj_bias", 0)
    q, k, v = (part.reshape(n, steps, heads, -1).transpose(0, 2, 1, 3) for part in np.split(projected, 3, axis=2))
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) / math.sqrt(features // heads))
    mixed = (scores / scores.sum(axis=3, keepdims=True)) @ v
    joined = mixed.transpose(0, 2, 1, 3).reshape(n, steps, features)
    return joined @ p["out_proj.weight"].T + p.get("out_proj.bias", 0)


def embedding(x: Array, p: Arrays) -> Array:
    return p["weight"][x]
