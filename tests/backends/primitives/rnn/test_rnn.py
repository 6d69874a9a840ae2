"""Unrolls of simple recurrent layers against float64 loops written from their formulas, on both engines of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends import Backend
from tests.support.float64.rnn_formulas import (
    ACTS,
    SIZES,
    Act,
    Buffer,
    cut,
    parameters,
    shifted,
    simple_backward,
    simple_forward,
)

pytestmark = pytest.mark.engines("numpy", "c")

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
def test_every_activation(be: Backend, rng: Any, name: str) -> None:
    act, (n, batch, steps) = ACTS[name], (13, 20, 3)
    w, w64, b, b64 = parameters(be, rng, 1, n)
    h, delta = Buffer(be, rng, n, steps, batch), Buffer(be, rng, n, steps, batch)
    simple_forward(w64, shifted(h.arrays), h.arrays, h.arrays, b64, act)
    be.compound_rnn_unroll_fprop(w, shifted(h.steps), h.steps, h.steps, b, n, steps, steps, act.transform())
    h.check("forward")
    h.wanted[:] = h.tensor.get()
    simple_backward(w64.T, *cut([shifted(delta.arrays), delta.arrays, h.arrays], None, True), act)
    be.compound_rnn_unroll_bprop(w.T, shifted(delta.steps), delta.steps, h.steps, n, steps, steps, act.transform())
    delta.check("backward")


def test_a_function_that_builds_an_expression_is_an_activation(be: Backend, rng: Any) -> None:
    w, w64, b, b64 = parameters(be, rng, 1, 7)
    h = Buffer(be, rng, 7, 2, 5)
    twice = Act(lambda: None, lambda x: np.tanh(2 * x) - 1, lambda y: y)
    simple_forward(w64, shifted(h.arrays), h.arrays, h.arrays, b64, twice)
    be.compound_rnn_unroll_fprop(w, shifted(h.steps), h.steps, h.steps, b, 7, 2, 2, lambda x: be.tanh(x * 2) - 1)
    h.check()


def test_an_activation_that_works_in_place_or_keeps_state(be: Backend, rng: Any) -> None:
    w, w64, b, b64 = parameters(be, rng, 1, 6)
    h, ff = Buffer(be, rng, 6, 2, 5), Buffer(be, rng, 6, 2, 5)
    sign = Act(lambda: None, lambda x: np.where(x >= 0, 1.0, -1.0), lambda y: y)
    activation = transforms.Sign()
    simple_forward(w64, shifted(h.arrays), ff.arrays, h.arrays, b64, sign)
    be.compound_rnn_unroll_fprop(w, shifted(h.steps), ff.steps, h.steps, b, 6, 2, 2, activation)
    h.check()
    last = w64 @ h.wanted[:, :5] + ff.wanted[:, 5:] + b64
    np.testing.assert_allclose(activation.inputs.get(), last, 1e-5, 1e-5)
    pixels = transforms.PixelwiseSoftmax(3)
    soft = ACTS["softmax"]
    by_pixel = Act(lambda: None, lambda x: soft.f(x.reshape(3, -1)).reshape(x.shape), soft.slope)
    simple_forward(w64, shifted(h.arrays), ff.arrays, h.arrays, b64, by_pixel)
    be.compound_rnn_unroll_fprop(w, shifted(h.steps), ff.steps, h.steps, b, 6, 2, 2, pixels)
    h.check()


def test_numbers_of_an_activation_are_read_at_every_call(be: Backend, rng: Any) -> None:
    leaky = transforms.Rectlin(0.5)
    w, b = be.zeros((3, 3)), be.zeros((3, 1))
    for slope in (0.5, 0.125):
        leaky.slope = slope
        h = be.array(-np.ones((3, 4)))
        be.compound_rnn_unroll_fprop(w, [h], [h], [h], b, 3, 1, 1, leaky)
        assert (h.get() == -slope).all()
        delta = be.array(np.ones((3, 4)))
        be.compound_rnn_unroll_bprop(w, [None], [delta], [h], 3, 1, 1, leaky)
        assert (delta.get() == slope).all()


@pytest.mark.parametrize("used", [0, 1, 3, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_lists_are_cut_before_they_are_reversed(be: Backend, rng: Any, used: int, reverse: bool) -> None:
    n, batch, steps = 4, 3, 4
    w, w64, b, b64 = parameters(be, rng, 1, n)
    h, delta = Buffer(be, rng, n, steps, batch), Buffer(be, rng, n, steps, batch)
    simple_forward(w64, *cut([shifted(h.arrays), h.arrays, h.arrays], used, reverse), b64, ACTS["tanh"])
    tanh = transforms.Tanh()
    be.compound_rnn_unroll_fprop(w, shifted(h.steps), h.steps, h.steps, b, n, steps, used, tanh, reverse)
    h.check()
    simple_backward(w64.T, *cut([shifted(delta.arrays), delta.arrays, h.arrays], used, reverse), ACTS["tanh"])
    be.compound_rnn_unroll_bprop(w.T, shifted(delta.steps), delta.steps, h.steps, n, steps, used, tanh, reverse)
    delta.check()


@pytest.mark.parametrize("used", [None, 2])
def test_bidirectional_forms(be: Backend, rng: Any, used: int | None) -> None:
    n, batch, steps, act, tanh = 5, 4, 3, ACTS["tanh"], transforms.Tanh()
    (wf, wf64, bf, bf64), (wb, wb64, bb, bb64) = (parameters(be, rng, 1, n) for _ in range(2))
    hf, hb, xf, xb, df, db = (Buffer(be, rng, n, steps, batch) for _ in range(6))
    simple_forward(wf64, *cut([shifted(hf.arrays), xf.arrays, hf.arrays], used, False), bf64, act)
    simple_forward(wb64, *cut([shifted(hb.arrays, True), xb.arrays, hb.arrays], used, True), bb64, act)
    be.compound_rnn_unroll_fprop_bibnrnn(
        None, None, None, wf, shifted(hf.steps), xf.steps, hf.steps, bf,
        wb, shifted(hb.steps, True), xb.steps, hb.steps, bb, n, steps, used, tanh,
    )  # fmt: skip
    hf.check("forward direction"), hb.check("backward direction")
    simple_backward(wf64.T, *cut([shifted(df.arrays), df.arrays, hf.arrays], used, True), act)
    simple_backward(wb64.T, *cut([shifted(db.arrays, True), db.arrays, hb.arrays], used, False), act)
    be.compound_rnn_unroll_bprop_bibnrnn(
        None, None, df.steps, shifted(df.steps), db.steps, shifted(db.steps, True), wf, wb,
        hf.steps, hb.steps, n, steps, used, tanh, None,
    )  # fmt: skip
    df.check("forward direction"), db.check("backward direction")
