"""Recurrent layers in float64: activations, the formulas of a step, and buffers that are held beside their tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neonlike import transforms
from neonlike.backends import Backend

SIZES = [(1, 1, 1), (5, 3, 4), (12, 33, 2), (33, 16, 3), (26, 70, 3)]
TOLERANCE = {"float16": 6e-3, "float32": 3e-5, "float64": 1e-11}


class Act(NamedTuple):
    """A transform, and its NumPy function and derivative by the output."""

    transform: Callable[[], Any]
    f: Callable[[Any], Any]
    slope: Callable[[Any], Any]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


ACTS = {
    "tanh": Act(transforms.Tanh, np.tanh, lambda y: 1 - y * y),
    "logistic": Act(transforms.Logistic, sigmoid, lambda y: y * (1 - y)),
    "shortcut": Act(lambda: transforms.Logistic(shortcut=True), sigmoid, lambda y: np.ones_like(y)),
    "rectlin": Act(transforms.Rectlin, lambda x: np.maximum(x, 0), lambda y: (y > 0) * 1.0),
    "leaky": Act(
        lambda: transforms.Rectlin(0.25),
        lambda x: np.where(x > 0, x, x / 4),
        lambda y: np.where(y > 0, 1, 0.25),
    ),
    "clipped": Act(
        lambda: transforms.Rectlinclip(xcut=0.5),
        lambda x: np.clip(x, 0, 0.5),
        lambda y: (y > 0) * (y < 0.5) * 1.0,
    ),
    "explin": Act(
        transforms.Explin,
        lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        lambda y: np.where(y > 0, 1, np.minimum(y, 0) + 1),
    ),
    "identity": Act(transforms.Identity, lambda x: x, lambda y: np.ones_like(y)),
    "normalizer": Act(lambda: transforms.Normalizer(divisor=2.0), lambda x: x / 2, lambda y: np.full_like(y, 0.5)),
    "softmax": Act(
        transforms.Softmax,
        lambda x: np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0),
        lambda y: np.ones_like(y),
    ),
}


# Formulas, on lists of float64 arrays in the order of computation; what is None is left out


def simple_forward(w: Any, before: Any, ff: Any, h: Any, bias: Any, act: Act) -> None:
    for p, x, out in zip(before, ff, h):
        out[:] = act.f(w @ p + x + bias)


def simple_backward(wt: Any, passed: Any, delta: Any, h: Any, act: Act) -> None:
    for p, d, state in zip(passed, delta, h):
        d[:] = act.slope(state) * d
        if p is not None:
            p += wt @ d


def lstm_forward(
    w: Any,
    before: Any,
    c_before: Any,
    ff: Any,
    gates: Any,
    c: Any,
    a: Any,
    h: Any,
    bias: Any,
    act: Act,
    gate: Act,
) -> None:
    n = w.shape[1]
    for p, cp, x, out, cell, shown, state in zip(before, c_before, ff, gates, c, a, h):
        total = w @ p + x + bias
        out[: 3 * n], out[3 * n :] = gate.f(total[: 3 * n]), act.f(total[3 * n :])
        i, f, o, g = np.split(out, 4)
        cell[:] = f * cp + i * g
        shown[:] = act.f(cell)
        state[:] = o * shown


def lstm_backward(
    wt: Any,
    passed: Any,
    e: Any,
    c_passed: Any,
    dc: Any,
    d: Any,
    gates: Any,
    c_before: Any,
    a: Any,
    act: Act,
    gate: Act,
) -> None:
    for p, error, dcp, cell_error, out, values, cp, shown in zip(passed, e, c_passed, dc, d, gates, c_before, a):
        i, f, o, g = np.split(values, 4)
        cell_error += act.slope(shown) * o * error
        parts = (
            gate.slope(i) * cell_error * g,
            gate.slope(f) * cell_error * (0 if cp is None else cp),
            gate.slope(o) * error * shown,
            act.slope(g) * cell_error * i,
        )
        out[:] = np.concatenate(parts)
        if dcp is not None:
            dcp[:] = cell_error * f
        if p is not None:
            p += wt @ out


def gru_forward(w: Any, before: Any, ff: Any, gates: Any, reset: Any, h: Any, bias: Any, act: Act, gate: Act) -> None:
    n = w.shape[1]
    for p, x, out, rh, state in zip(before, ff, gates, reset, h):
        rz = gate.f(w[: 2 * n] @ p + x[: 2 * n] + bias[: 2 * n])
        r, z = rz[:n], rz[n:]
        candidate = act.f(w[2 * n :] @ (r * p) + x[2 * n :] + bias[2 * n :])
        out[:] = np.concatenate((rz, candidate))
        if rh is not None:
            rh[:] = r * p
        state[:] = (1 - z) * p + z * candidate


def gru_backward(wt: Any, passed: Any, e: Any, d: Any, gates: Any, before: Any, act: Act, gate: Act) -> None:
    n = wt.shape[0]
    for p, error, out, values, hp in zip(passed, e, d, gates, before):
        r, z, candidate = np.split(values, 3)
        hp = np.zeros_like(r) if hp is None else hp
        dn = act.slope(candidate) * error * z
        dz = gate.slope(z) * error * (candidate - hp)
        q = wt[:, 2 * n :] @ dn
        dr = gate.slope(r) * q * hp
        out[:] = np.concatenate((dr, dz, dn))
        if p is not None:
            p += error * (1 - z) + wt[:, : 2 * n] @ out[: 2 * n] + r * q


# Buffers: one array a role, a view of columns a step


class Buffer:
    """Steps side by side in one tensor, and the same in a float64 array."""

    def __init__(self, be: Backend, rng: Any, rows: int, steps: int, n: int, scale: float = 0.5) -> None:
        self.tensor: Any = be.array(rng.uniform(-scale, scale, (rows, steps * n)))
        self.wanted = self.tensor.get().astype(np.float64)
        self.steps = [self.tensor[:, t * n : (t + 1) * n] for t in range(steps)]
        self.arrays = [self.wanted[:, t * n : (t + 1) * n] for t in range(steps)]

    def check(self, what: str = "", factor: float = 1.0) -> None:
        tolerance = TOLERANCE[self.tensor.dtype.name] * factor
        np.testing.assert_allclose(self.tensor.get(), self.wanted, tolerance, tolerance, err_msg=what)


def shifted(steps: list[Any], reverse: bool = False) -> list[Any]:
    """State before each step: the last step of the minibatch before the first one."""
    return steps[1:] + steps[:1] if reverse else steps[-1:] + steps[:-1]


def cut(lists: list[list[Any]], used: int | None, reverse: bool) -> list[list[Any]]:
    """The steps that are computed, in order."""
    chosen = [steps if used is None else steps[:used] for steps in lists]
    return [steps[::-1] if reverse else steps for steps in chosen]


def parameters(be: Backend, rng: Any, gates: int, n: int) -> tuple[Any, Any, Any, Any]:
    """W, W in float64, bias, bias in float64."""
    w, b = (
        be.array(rng.uniform(-1, 1, (gates * n, n)) / n**0.5),
        be.array(rng.uniform(-0.5, 0.5, (gates * n, 1))),
    )
    return w, w.get().astype(np.float64), b, b.get().astype(np.float64)
