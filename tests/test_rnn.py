"""Recurrent unrolls against float64 loops written from their formulas, on both engines of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends import Backend
from tests.engines import ENGINES, backend

SIZES = [(1, 1, 1), (5, 3, 4), (12, 33, 2), (33, 16, 3), (26, 70, 3)]
TOLERANCE = {"float16": 6e-3, "float32": 3e-5, "float64": 1e-11}


class Act(NamedTuple):
    """A transform, and what it and its derivative by the output are in NumPy."""

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
    """What lies before each step: the last step of the minibatch before the first one."""
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


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["float32", "float64", "float16"])
def any_be(engine: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    yield from backend(engine, datatype=np.dtype(request.param).type)


@pytest.fixture
def be64(engine: str) -> Iterator[Backend]:
    yield from backend(engine, datatype=np.float64)


@pytest.fixture
def be32(engine: str) -> Iterator[Backend]:
    yield from backend(engine)


@pytest.fixture
def be_c() -> Iterator[Backend]:
    yield from backend("c")


# The simple layer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("linked", [True, False], ids=["chain", "apart"])
def test_simple_forward(any_be: Backend, rng: Any, size: Any, reverse: bool, linked: bool) -> None:
    n, batch, steps = size
    w, w64, b, b64 = parameters(any_be, rng, 1, n)
    ff, h, other = (Buffer(any_be, rng, n, steps, batch) for _ in range(3))
    source = h if linked else other
    before, before64 = shifted(source.steps, reverse), shifted(source.arrays, reverse)
    simple_forward(w64, *cut([before64, ff.arrays, h.arrays], None, reverse), b64, ACTS["tanh"])
    any_be.compound_rnn_unroll_fprop(
        w, before, ff.steps, h.steps, b, n, steps, None, transforms.Tanh(), reverse=reverse
    )
    for buffer in (h, ff, other):
        buffer.check()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("linked", ["chain", "apart", "open"])
def test_simple_backward(any_be: Backend, rng: Any, size: Any, reverse: bool, linked: str) -> None:
    n, batch, steps = size
    w, w64, _, _ = parameters(any_be, rng, 1, n)
    delta, h, other = (Buffer(any_be, rng, n, steps, batch) for _ in range(3))
    source = other if linked == "apart" else delta
    passed, passed64 = shifted(source.steps, not reverse), shifted(source.arrays, not reverse)
    if linked == "open":
        last = 0 if reverse else -1
        passed[last] = passed64[last] = None
    simple_backward(w64.T, *cut([passed64, delta.arrays, h.arrays], None, reverse), ACTS["tanh"])
    any_be.compound_rnn_unroll_bprop(w.T, passed, delta.steps, h.steps, n, steps, steps, transforms.Tanh(), reverse)
    for buffer in (delta, h, other):
        buffer.check()


@pytest.mark.parametrize("name", ACTS)
def test_every_activation(be32: Backend, rng: Any, name: str) -> None:
    act, (n, batch, steps) = ACTS[name], (13, 20, 3)
    w, w64, b, b64 = parameters(be32, rng, 1, n)
    h, delta = Buffer(be32, rng, n, steps, batch), Buffer(be32, rng, n, steps, batch)
    simple_forward(w64, shifted(h.arrays), h.arrays, h.arrays, b64, act)
    be32.compound_rnn_unroll_fprop(w, shifted(h.steps), h.steps, h.steps, b, n, steps, steps, act.transform())
    h.check("forward")
    h.wanted[:] = h.tensor.get()
    simple_backward(w64.T, *cut([shifted(delta.arrays), delta.arrays, h.arrays], None, True), act)
    be32.compound_rnn_unroll_bprop(w.T, shifted(delta.steps), delta.steps, h.steps, n, steps, steps, act.transform())
    delta.check("backward")


def test_a_function_that_builds_an_expression_is_an_activation(be32: Backend, rng: Any) -> None:
    w, w64, b, b64 = parameters(be32, rng, 1, 7)
    h = Buffer(be32, rng, 7, 2, 5)
    twice = Act(lambda: None, lambda x: np.tanh(2 * x) - 1, lambda y: y)
    simple_forward(w64, shifted(h.arrays), h.arrays, h.arrays, b64, twice)
    be32.compound_rnn_unroll_fprop(w, shifted(h.steps), h.steps, h.steps, b, 7, 2, 2, lambda x: be32.tanh(x * 2) - 1)
    h.check()


def test_an_activation_that_works_in_place_or_keeps_state(be32: Backend, rng: Any) -> None:
    w, w64, b, b64 = parameters(be32, rng, 1, 6)
    h, ff = Buffer(be32, rng, 6, 2, 5), Buffer(be32, rng, 6, 2, 5)
    sign = Act(lambda: None, lambda x: np.where(x >= 0, 1.0, -1.0), lambda y: y)
    activation = transforms.Sign()
    simple_forward(w64, shifted(h.arrays), ff.arrays, h.arrays, b64, sign)
    be32.compound_rnn_unroll_fprop(w, shifted(h.steps), ff.steps, h.steps, b, 6, 2, 2, activation)
    h.check()
    last = w64 @ h.wanted[:, :5] + ff.wanted[:, 5:] + b64
    np.testing.assert_allclose(activation.inputs.get(), last, 1e-5, 1e-5)
    pixels = transforms.PixelwiseSoftmax(3)
    soft = ACTS["softmax"]
    by_pixel = Act(lambda: None, lambda x: soft.f(x.reshape(3, -1)).reshape(x.shape), soft.slope)
    simple_forward(w64, shifted(h.arrays), ff.arrays, h.arrays, b64, by_pixel)
    be32.compound_rnn_unroll_fprop(w, shifted(h.steps), ff.steps, h.steps, b, 6, 2, 2, pixels)
    h.check()


def test_numbers_of_an_activation_are_read_at_every_call(be32: Backend, rng: Any) -> None:
    leaky = transforms.Rectlin(0.5)
    w, b = be32.zeros((3, 3)), be32.zeros((3, 1))
    for slope in (0.5, 0.125):
        leaky.slope = slope
        h = be32.array(-np.ones((3, 4)))
        be32.compound_rnn_unroll_fprop(w, [h], [h], [h], b, 3, 1, 1, leaky)
        assert (h.get() == -slope).all()
        delta = be32.array(np.ones((3, 4)))
        be32.compound_rnn_unroll_bprop(w, [None], [delta], [h], 3, 1, 1, leaky)
        assert (delta.get() == slope).all()


@pytest.mark.parametrize("used", [0, 1, 3, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_lists_are_cut_before_they_are_reversed(be32: Backend, rng: Any, used: int, reverse: bool) -> None:
    n, batch, steps = 4, 3, 4
    w, w64, b, b64 = parameters(be32, rng, 1, n)
    h, delta = Buffer(be32, rng, n, steps, batch), Buffer(be32, rng, n, steps, batch)
    simple_forward(w64, *cut([shifted(h.arrays), h.arrays, h.arrays], used, reverse), b64, ACTS["tanh"])
    tanh = transforms.Tanh()
    be32.compound_rnn_unroll_fprop(w, shifted(h.steps), h.steps, h.steps, b, n, steps, used, tanh, reverse)
    h.check()
    simple_backward(w64.T, *cut([shifted(delta.arrays), delta.arrays, h.arrays], used, reverse), ACTS["tanh"])
    be32.compound_rnn_unroll_bprop(w.T, shifted(delta.steps), delta.steps, h.steps, n, steps, used, tanh, reverse)
    delta.check()


@pytest.mark.parametrize("used", [None, 2])
def test_bidirectional_forms(be32: Backend, rng: Any, used: int | None) -> None:
    n, batch, steps, act, tanh = 5, 4, 3, ACTS["tanh"], transforms.Tanh()
    (wf, wf64, bf, bf64), (wb, wb64, bb, bb64) = (parameters(be32, rng, 1, n) for _ in range(2))
    hf, hb, xf, xb, df, db = (Buffer(be32, rng, n, steps, batch) for _ in range(6))
    simple_forward(wf64, *cut([shifted(hf.arrays), xf.arrays, hf.arrays], used, False), bf64, act)
    simple_forward(wb64, *cut([shifted(hb.arrays, True), xb.arrays, hb.arrays], used, True), bb64, act)
    be32.compound_rnn_unroll_fprop_bibnrnn(
        None, None, None, wf, shifted(hf.steps), xf.steps, hf.steps, bf,
        wb, shifted(hb.steps, True), xb.steps, hb.steps, bb, n, steps, used, tanh,
    )  # fmt: skip
    hf.check("forward direction"), hb.check("backward direction")
    simple_backward(wf64.T, *cut([shifted(df.arrays), df.arrays, hf.arrays], used, True), act)
    simple_backward(wb64.T, *cut([shifted(db.arrays, True), db.arrays, hb.arrays], used, False), act)
    be32.compound_rnn_unroll_bprop_bibnrnn(
        None, None, df.steps, shifted(df.steps), db.steps, shifted(db.steps, True), wf, wb,
        hf.steps, hb.steps, n, steps, used, tanh, None,
    )  # fmt: skip
    df.check("forward direction"), db.check("backward direction")


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


def test_gates_and_cell_have_activations_of_their_own(be32: Backend, rng: Any) -> None:
    n, batch, steps = 9, 6, 3
    act, gate = ACTS["leaky"], ACTS["clipped"]
    functions = act.transform(), gate.transform()
    w, w64, b, b64 = parameters(be32, rng, 4, n)
    h, c, a = (Buffer(be32, rng, n, steps, batch) for _ in range(3))
    ff = Buffer(be32, rng, 4 * n, steps, batch)
    lists = (shifted(h.arrays), shifted(c.arrays), ff.arrays, ff.arrays, c.arrays, a.arrays, h.arrays)
    lstm_forward(w64, *lists, b64, act, gate)
    before = shifted(h.steps), shifted(c.steps)
    be32.compound_lstm_unroll_fprop(
        w, *before, ff.steps, ff.steps, c.steps, a.steps, h.steps, b, n, steps, None, *functions
    )
    for buffer in (h, c, a, ff):
        buffer.check()
    w3, w364, b3, b364 = parameters(be32, rng, 3, n)
    state, gates = Buffer(be32, rng, n, steps, batch), Buffer(be32, rng, 3 * n, steps, batch)
    nothing = [None] * steps
    gru_forward(w364, shifted(state.arrays), gates.arrays, gates.arrays, nothing, state.arrays, b364, act, gate)
    be32.compound_gru_unroll_fprop(
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
def test_without_a_bias(be32: Backend, rng: Any, kind: str) -> None:
    n, batch, steps = 6, 5, 2
    count = {"simple": 1, "lstm": 4, "gru": 3}[kind]
    w, *_ = parameters(be32, rng, count, n)
    results = []
    start = rng.standard_normal((count * n, batch * steps))
    for bias in (None, be32.zeros((count * n, 1))):
        h, c, a = ([be32.zeros((n, batch)) for _ in range(steps)] for _ in range(3))
        ff = [be32.array(start[:, t * batch : (t + 1) * batch]) for t in range(steps)]
        forward(be32, kind, w, ff, h, c, a, bias)
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
