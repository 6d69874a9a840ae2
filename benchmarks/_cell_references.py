"""Recurrent layers in float64 NumPy, forward and backward: what the contenders of ``rnn.py`` must give.

Gates are rows, in the order i f o g of the LSTM and r z candidate of the GRU. The GRU's candidate sees r * h, so that
the reset comes before the product (Cho et al. 2014).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from _layers import Cell
from _libraries import Array


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


@dataclass
class Step:
    """One step: its output and cell state, and the way back through it."""

    h: Array
    c: Array
    met: list[tuple[slice, Array]]
    """Rows of the gates, and what their recurrent weights were multiplied with."""
    back: Callable[[Array, Array], tuple[Array, Array, Array]]
    """Gradients of h and c -> gradients of the gates, of h and c of the step before."""


def rnn_step(W: Array, x: Array, h: Array, c: Array) -> Step:
    """tanh(x + W h)."""
    out = np.tanh(x + W @ h)

    def back(e: Array, dc: Array) -> tuple[Array, Array, Array]:
        delta = (1 - out**2) * e
        return delta, W.T @ delta, dc

    return Step(out, c, [(slice(None), h)], back)


def lstm_step(W: Array, x: Array, h: Array, c: Array) -> Step:
    """Hochreiter and Schmidhuber 1997 with a forget gate."""
    before = np.split(x + W @ h, 4)
    i, f, o = (_sigmoid(gate) for gate in before[:3])
    g = np.tanh(before[3])
    cell = f * c + i * g
    a = np.tanh(cell)

    def back(e: Array, dc: Array) -> tuple[Array, Array, Array]:
        dc = dc + (1 - a**2) * o * e
        gates = [i * (1 - i) * dc * g, f * (1 - f) * dc * c, o * (1 - o) * e * a, (1 - g**2) * dc * i]
        delta = np.concatenate(gates)
        return delta, W.T @ delta, dc * f

    return Step(o * a, cell, [(slice(None), h)], back)


def gru_step(W: Array, x: Array, h: Array, c: Array) -> Step:
    """r and z see h, the candidate sees r * h."""
    n = len(h)
    r, z = np.split(_sigmoid(x[: 2 * n] + W[: 2 * n] @ h), 2)
    candidate = np.tanh(x[2 * n :] + W[2 * n :] @ (r * h))

    def back(e: Array, dc: Array) -> tuple[Array, Array, Array]:
        inner = (1 - candidate**2) * e * z
        q = W[2 * n :].T @ inner
        delta = np.concatenate([r * (1 - r) * q * h, z * (1 - z) * e * (candidate - h), inner])
        return delta, e * (1 - z) + W[: 2 * n].T @ delta[: 2 * n] + r * q, dc

    return Step((1 - z) * h + z * candidate, c, [(slice(0, 2 * n), h), (slice(2 * n, None), r * h)], back)


STEPS = {"rnn": rnn_step, "lstm": lstm_step, "gru": gru_step}


def unroll(cell: Cell, W_input: Array, W_recur: Array, bias: Array, x: Array, E: Array | None = None) -> list[Array]:
    """[outputs (hidden, steps * N)] from a state of zeros, of inputs x (features, steps * N).

    With the errors E of the outputs, [gradients of x, of W_input, of W_recur, of bias].
    """
    W_input, W_recur, bias, x = (array.astype(np.float64) for array in (W_input, W_recur, bias, x))
    N = x.shape[1] // cell.steps
    h = c = np.zeros((cell.hidden, N))
    steps: list[Step] = []
    for t in range(cell.steps):
        steps.append(STEPS[cell.kind](W_recur, W_input @ x[:, t * N : (t + 1) * N] + bias, h, c))
        h, c = steps[-1].h, steps[-1].c
    if E is None:
        return [np.concatenate([step.h for step in steps], axis=1)]
    carried, dc = np.zeros_like(h), np.zeros_like(h)
    dW, deltas = np.zeros_like(W_recur), []
    for t, step in reversed(list(enumerate(steps))):
        delta, carried, dc = step.back(E[:, t * N : (t + 1) * N] + carried, dc)
        for rows, met in step.met:
            dW[rows] += delta[rows] @ met.T
        deltas.insert(0, delta)
    D = np.concatenate(deltas, axis=1)
    return [W_input.T @ D, D @ x.T, dW, D.sum(axis=1, keepdims=True)]
