"""Unrolls of LSTM and GRU layers against float64 loops written from their formulas, on both engines of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends import Backend
from tests.support.float64.rnn_formulas import (
    ACTS,
    SIZES,
    Buffer,
    cut,
    gru_backward,
    gru_forward,
    lstm_backward,
    lstm_forward,
    parameters,
    shifted,
)

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]

# LSTM and GRU


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("in_place", [True, False])
def test_lstm_forward(any_be: Backend, rng: Any, size: Any, reverse: bool, in_place: bool) -> None:
    n, batch, steps = size
    w, w64, b, b64 = parameters(any_be, rng, 4, n)
    h, c, a, *apart = (Buffer(any_be, rng, n, steps, batch) for _ in range(5))
    ff, gates = (Buffer(any_be, rng, 4 * n, steps, batch) for _ in range(2))
    if in_place:
        gates, apart = ff, [h, c]
    before = [shifted(buffer.steps, reverse) for buffer in apart]
    before64 = [shifted(buffer.arrays, reverse) for buffer in apart]
    lists = cut([*before64, ff.arrays, gates.arrays, c.arrays, a.arrays, h.arrays], None, reverse)
    lstm_forward(w64, *lists, b64, ACTS["tanh"], ACTS["logistic"])
    any_be.compound_lstm_unroll_fprop(
        w, *before, ff.steps, gates.steps, c.steps, a.steps, h.steps, b, n, steps, None,
        transforms.Tanh(), transforms.Logistic(), reverse,
    )  # fmt: skip
    for buffer in (h, c, a, gates, ff, *apart):
        buffer.check()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("linked", ["chain", "apart", "open"])
def test_lstm_backward(any_be: Backend, rng: Any, size: Any, reverse: bool, linked: str) -> None:
    n, batch, steps = size
    w, w64, _, _ = parameters(any_be, rng, 4, n)
    e, dc, c, a, e_passed, dc_passed = (Buffer(any_be, rng, n, steps, batch) for _ in range(6))
    d, gates = (Buffer(any_be, rng, 4 * n, steps, batch) for _ in range(2))
    sources = (e_passed, dc_passed) if linked == "apart" else (e, dc)
    passed = [shifted(s.steps, not reverse) for s in (*sources, c)]
    passed64 = [shifted(s.arrays, not reverse) for s in (*sources, c)]
    if linked == "open":
        for role in (*passed, *passed64):
            role[0 if reverse else -1] = None
    p64, dcp64, cp64 = passed64
    lists = cut([p64, e.arrays, dcp64, dc.arrays, d.arrays, gates.arrays, cp64, a.arrays], None, reverse)
    lstm_backward(w64.T, *lists, ACTS["tanh"], ACTS["logistic"])
    p, dcp, cp = passed
    any_be.compound_lstm_unroll_bprop(
        w.T, p, e.steps, dcp, dc.steps, d.steps, gates.steps, cp, a.steps, n, steps, steps,
        transforms.Tanh(), transforms.Logistic(), reverse,
    )  # fmt: skip
    for buffer in (e, dc, d, gates, c, a, *sources):
        buffer.check()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("in_place", [True, False])
def test_gru_forward(any_be: Backend, rng: Any, size: Any, reverse: bool, in_place: bool) -> None:
    n, batch, steps = size
    w, w64, b, b64 = parameters(any_be, rng, 3, n)
    h, other, rh = (Buffer(any_be, rng, n, steps, batch) for _ in range(3))
    ff, gates = (Buffer(any_be, rng, 3 * n, steps, batch) for _ in range(2))
    reset, reset64 = rh.steps, rh.arrays
    if in_place:
        gates, other, reset, reset64 = ff, h, [None] * steps, [None] * steps
    before, before64 = shifted(other.steps, reverse), shifted(other.arrays, reverse)
    lists = cut([before64, ff.arrays, gates.arrays, reset64, h.arrays], None, reverse)
    gru_forward(w64, *lists, b64, ACTS["tanh"], ACTS["logistic"])
    any_be.compound_gru_unroll_fprop(
        w, before, ff.steps, gates.steps, reset, h.steps, b, n, steps, None,
        transforms.Tanh(), transforms.Logistic(), reverse,
    )  # fmt: skip
    for buffer in (h, other, rh, gates, ff):
        buffer.check()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("linked", ["chain", "apart", "open"])
def test_gru_backward(any_be: Backend, rng: Any, size: Any, reverse: bool, linked: str) -> None:
    n, batch, steps = size
    w, w64, _, _ = parameters(any_be, rng, 3, n)
    e, e_passed, h = (Buffer(any_be, rng, n, steps, batch) for _ in range(3))
    d, gates = (Buffer(any_be, rng, 3 * n, steps, batch) for _ in range(2))
    source = e_passed if linked == "apart" else e
    passed = [shifted(s.steps, not reverse) for s in (source, h)]
    passed64 = [shifted(s.arrays, not reverse) for s in (source, h)]
    if linked == "open":
        for role in (*passed, *passed64):
            role[0 if reverse else -1] = None
    lists = cut([passed64[0], e.arrays, d.arrays, gates.arrays, passed64[1]], None, reverse)
    gru_backward(w64.T, *lists, ACTS["tanh"], ACTS["logistic"])
    any_be.compound_gru_unroll_bprop(
        w.T, passed[0], e.steps, d.steps, gates.steps, passed[1], n, steps, steps,
        transforms.Tanh(), transforms.Logistic(), reverse,
    )  # fmt: skip
    for buffer in (e, d, source, gates, h):
        buffer.check()


def test_gates_and_cell_have_activations_of_their_own(be: Backend, rng: Any) -> None:
    n, batch, steps = 9, 6, 3
    act, gate = ACTS["leaky"], ACTS["clipped"]
    functions = act.transform(), gate.transform()
    w, w64, b, b64 = parameters(be, rng, 4, n)
    h, c, a = (Buffer(be, rng, n, steps, batch) for _ in range(3))
    ff = Buffer(be, rng, 4 * n, steps, batch)
    lists = (shifted(h.arrays), shifted(c.arrays), ff.arrays, ff.arrays, c.arrays, a.arrays, h.arrays)
    lstm_forward(w64, *lists, b64, act, gate)
    before = shifted(h.steps), shifted(c.steps)
    be.compound_lstm_unroll_fprop(
        w, *before, ff.steps, ff.steps, c.steps, a.steps, h.steps, b, n, steps, None, *functions
    )
    for buffer in (h, c, a, ff):
        buffer.check()
    w3, w364, b3, b364 = parameters(be, rng, 3, n)
    state, gates = Buffer(be, rng, n, steps, batch), Buffer(be, rng, 3 * n, steps, batch)
    nothing = [None] * steps
    gru_forward(w364, shifted(state.arrays), gates.arrays, gates.arrays, nothing, state.arrays, b364, act, gate)
    be.compound_gru_unroll_fprop(
        w3,
        shifted(state.steps),
        gates.steps,
        gates.steps,
        nothing,
        state.steps,
        b3,
        n,
        steps,
        None,
        *functions,
    )
    state.check(), gates.check()


@pytest.mark.parametrize("kind", ["simple", "lstm", "gru"])
def test_without_a_bias(be: Backend, rng: Any, kind: str) -> None:
    n, batch, steps = 6, 5, 2
    count = {"simple": 1, "lstm": 4, "gru": 3}[kind]
    w, *_ = parameters(be, rng, count, n)
    results = []
    start = rng.standard_normal((count * n, batch * steps))
    for bias in (None, be.zeros((count * n, 1))):
        h, c, a = ([be.zeros((n, batch)) for _ in range(steps)] for _ in range(3))
        ff = [be.array(start[:, t * batch : (t + 1) * batch]) for t in range(steps)]
        forward(be, kind, w, ff, h, c, a, bias)
        results.append([t.get() for t in h])
    np.testing.assert_array_equal(*results)


def forward(be: Any, kind: str, w: Any, ff: Any, h: Any, c: Any, a: Any, bias: Any) -> None:
    """An unroll in place with tanh and logistic."""
    n, steps, functions = w.shape[1], len(h), (transforms.Tanh(), transforms.Logistic())
    if kind == "simple":
        be.compound_rnn_unroll_fprop(w, shifted(h), ff, h, bias, n, steps, steps, functions[0])
    elif kind == "lstm":
        be.compound_lstm_unroll_fprop(w, shifted(h), shifted(c), ff, ff, c, a, h, bias, n, steps, steps, *functions)
    else:
        be.compound_gru_unroll_fprop(w, shifted(h), ff, ff, a, h, bias, n, steps, steps, *functions)
