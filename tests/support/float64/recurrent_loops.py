"""Recurrent layers in float64 NumPy, a step at a time, and how a single layer is set up for a test.

Gradients are those of the definition: the state that a batch starts from counts as 0 unless ``through`` is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neonlike.initializers import Gaussian
from neonlike.layers import GRU, LSTM, Recurrent
from neonlike.layers.container import DeltasTree
from neonlike.transforms import Logistic, Tanh
from tests.support.float64.rnn_formulas import ACTS, Act

KINDS = {"rnn": Recurrent, "lstm": LSTM, "gru": GRU}
GATES = {"rnn": 1, "lstm": 4, "gru": 3}
TANH, LOGISTIC = ACTS["tanh"], ACTS["logistic"]


def ready(layer: Any, in_shape: Any, first: bool = False) -> Any:
    """Configure and allocate a single layer, with an error buffer unless it is the first of its network."""
    layer.configure(in_shape)
    layer.prev_layer = None if first else True  # as neon's scripts do
    layer.allocate()
    tree = DeltasTree()
    layer.allocate_deltas(tree)
    tree.allocate_buffers()
    layer.set_deltas(tree)
    return layer


def make(kind: str, nout: int, **options: Any) -> Any:
    """A layer of ``kind``: tanh, logistic gates and normal weights unless ``options`` say otherwise."""
    given = {"init": Gaussian(scale=0.5), "activation": Tanh()} | options
    if kind != "rnn":
        given.setdefault("gate_activation", Logistic())
    return KINDS[kind](nout, **given)


def parts(W: Any, nin: int, nout: int) -> tuple[Any, Any, Any]:
    """The parts of a weight (rows, gates * nout): of the input, recurrent, biases."""
    gates = W.shape[1]
    return W[:nin].reshape(gates, nin), W[nin:-1].reshape(gates, nout), W[-1:].reshape(gates, 1)


@dataclass
class Loop:
    """A layer that was run over a batch, step by step: lists of each step's values.

    Parameters
    ----------
    W : array (nin + nout + 1, gates * nout)
    x : array (nin, steps * N)
    h0, c0 : arrays (nout, N)
        State and cell before the first step.
    """

    kind: str
    W: Any
    x: Any
    steps: int
    h0: Any
    c0: Any = None
    act: Act = TANH
    gate: Act = LOGISTIC
    h: list[Any] = field(default_factory=list)
    c: list[Any] = field(default_factory=list)
    gates: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nin, self.nout, self.N = len(self.x), len(self.h0), self.x.shape[1] // self.steps
        self.Wx, self.Wh, self.b = parts(self.W, self.nin, self.nout)
        self.xs = [self.x[:, t * self.N : (t + 1) * self.N] for t in range(self.steps)]
        if self.c0 is None:
            self.c0 = np.zeros_like(self.h0)
        h, c = self.h0, self.c0
        for x in self.xs:
            h, c, gates = getattr(self, f"{self.kind}_step")(x, h, c)
            self.h.append(h)
            self.c.append(c)
            self.gates.append(gates)

    @property
    def outputs(self) -> Any:
        """(nout, steps * N)."""
        return np.concatenate(self.h, axis=1)

    def rnn_step(self, x: Any, h: Any, c: Any) -> Any:
        new = self.act.f(self.Wx @ x + self.Wh @ h + self.b)
        return new, c, new

    def lstm_step(self, x: Any, h: Any, c: Any) -> Any:
        total = self.Wx @ x + self.Wh @ h + self.b
        n = self.nout
        i, f, o = (self.gate.f(total[k * n : (k + 1) * n]) for k in range(3))
        g = self.act.f(total[3 * n :])
        cell = f * c + i * g
        return o * self.act.f(cell), cell, (i, f, o, g)

    def gru_step(self, x: Any, h: Any, c: Any) -> Any:
        n = self.nout
        ff = self.Wx @ x + self.b
        r, z = (self.gate.f((ff + self.Wh @ h)[k * n : (k + 1) * n]) for k in range(2))
        candidate = self.act.f(ff[2 * n :] + self.Wh[2 * n :] @ (r * h))
        return (1 - z) * h + z * candidate, c, (r, z, candidate)

    def backward(self, error: Any, through: bool = False) -> dict[str, Any]:
        """Gradients, and the error passed on to the state before each step.

        Parameters
        ----------
        error : array (nout, steps * N)
        through : bool
            The initial state counts, in the gradient of recurrent weights and gates.
        """
        dWx, dWh, db = np.zeros_like(self.Wx), np.zeros_like(self.Wh), np.zeros_like(self.b)
        dx, passed, D = [None] * self.steps, [None] * self.steps, [None] * self.steps
        e_next, dc = np.zeros_like(self.h0), np.zeros_like(self.h0)
        for t in reversed(range(self.steps)):
            e = error[:, t * self.N : (t + 1) * self.N] + e_next
            known = t > 0 or through
            h, c = (self.h[t - 1], self.c[t - 1]) if t else (self.h0, self.c0)
            h, c = (h, c) if known else (np.zeros_like(h), np.zeros_like(c))
            d, e_next, dc, factors = getattr(self, f"{self.kind}_back")(t, e, dc, h, c)
            for rows, factor in factors:
                dWh[rows] += d[rows] @ factor.T
            dWx += d @ self.xs[t].T
            db += d.sum(1, keepdims=True)
            dx[t], passed[t], D[t] = self.Wx.T @ d, e_next, d
        flat = (dWx.reshape(-1, self.W.shape[1]), dWh.reshape(-1, self.W.shape[1]), db.reshape(1, -1))
        return {"deltas": np.concatenate(dx, 1), "dW": np.concatenate(flat), "passed": passed,
                "D": np.concatenate(D, 1), "c": dc}  # fmt: skip

    def rnn_back(self, t: int, e: Any, dc: Any, h: Any, c: Any) -> Any:
        d = self.act.slope(self.h[t]) * e
        return d, self.Wh.T @ d, dc, [(slice(None), h)]

    def lstm_back(self, t: int, e: Any, dc: Any, h: Any, c: Any) -> Any:
        i, f, o, g = self.gates[t]
        a = self.act.f(self.c[t])
        dc = dc + self.act.slope(a) * o * e
        d = np.concatenate([
            self.gate.slope(i) * dc * g, self.gate.slope(f) * dc * c, self.gate.slope(o) * e * a,
            self.act.slope(g) * dc * i,
        ])  # fmt: skip
        return d, self.Wh.T @ d, dc * f, [(slice(None), h)]

    def gru_back(self, t: int, e: Any, dc: Any, h: Any, c: Any) -> Any:
        r, z, candidate = self.gates[t]
        n = self.nout
        dn = self.act.slope(candidate) * e * z
        dz = self.gate.slope(z) * e * (candidate - h)
        q = self.Wh[2 * n :].T @ dn
        dr = self.gate.slope(r) * q * h
        d = np.concatenate([dr, dz, dn])
        passed = e * (1 - z) + self.Wh[: 2 * n].T @ d[: 2 * n] + r * q
        return d, passed, dc, [(slice(0, 2 * n), h), (slice(2 * n, None), r * h)]


def loop(layer: Any, kind: str, x: Any, h0: Any = None, c0: Any = None, steps: int = 0) -> Loop:
    steps = steps or layer.nsteps
    zero = np.zeros((layer.nout, x.shape[1] // steps))
    return Loop(kind, layer.W.get(), x, steps, zero if h0 is None else h0, c0)
