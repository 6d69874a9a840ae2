"""Recurrent unrolls refuse wrong arguments before writing, and accept calls with nothing to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import transforms
from neonlike.backends import Backend
from neonlike.errors import AliasError, ArgumentError, DTypeError, ShapeError
from tests.support.engines import current_backend

pytestmark = pytest.mark.engines("numpy")

TANH, LOGISTIC = transforms.Tanh(), transforms.Logistic()


def refused(be: Any, error: type[Exception], words: str, **changes: Any) -> None:
    """A call with ``changes`` raises ``error`` naming ``words``, and writes nothing."""
    h = [be.ones((3, 2)) for _ in range(2)]
    given: dict[str, Any] = dict(
        W_recur=be.ones((3, 3)), h_prev_s=h, h_ff_s=[be.ones((3, 2))] * 2, h_s=h, bias=be.ones((3, 1)), nout=3,
        num_steps=2, num_used_steps=2, activation=TANH,
    )  # fmt: skip
    for name, value in changes.items():
        given[name] = value(h) if callable(value) and name != "activation" else value
    with pytest.raises(error, match=words):
        be.compound_rnn_unroll_fprop(**given)
    for tensor in h:
        assert (tensor.get() == 1).all()


def test_what_does_not_fit_is_refused_before_anything_is_written(be: Backend) -> None:
    ones = be.ones
    three = {"num_steps": 3, "h_prev_s": lambda h: [h[0]] * 3, "h_ff_s": lambda h: [h[0]] * 3}
    wide = [ones((3, 2)), ones((3, 4))]
    refused(be, ShapeError, "h_s has 2 tensors, but there are 3", **three)
    refused(be, ShapeError, "every list has more tensors than .* 1", num_steps=1, num_used_steps=None)
    refused(be, ShapeError, r"h_ff_s must hold tensors of shape \(3, 2\), got \(3, 4\)", h_ff_s=wide)
    refused(be, ShapeError, r"W_recur must be \(3, 3\)", W_recur=ones((3, 2)))
    refused(be, ShapeError, r"bias must be \(3, 1\)", bias=ones((2, 1)))
    refused(be, DTypeError, "W_recur is float64", W_recur=ones((3, 3), dtype=np.float64))
    refused(be, DTypeError, "h_ff_s holds float64", h_ff_s=[ones((3, 2), dtype=np.float64)] * 2)
    refused(be, DTypeError, "W_recur must be a tensor, got None", W_recur=None)
    refused(be, DTypeError, "h_prev_s must hold a tensor for every step", h_prev_s=[None, None])
    refused(be, DTypeError, "h_ff_s must be a tensor, got ndarray", h_ff_s=[np.ones((3, 2))] * 2)
    refused(be, DTypeError, "h_ff_s must be a list", h_ff_s=ones((3, 2)))
    refused(be, DTypeError, "activation must be callable", activation=3)
    refused(be, ArgumentError, "num_used_steps must not be negative", num_used_steps=-1)
    refused(be, AliasError, "h_s shares memory with bias", bias=lambda h: h[1][:, :1])


def test_integers_are_refused(be: Backend) -> None:
    h = [be.ones((3, 2), dtype=np.int32)]
    w = be.ones((3, 3), dtype=np.int32)
    with pytest.raises(DTypeError, match="must hold floats, got int32"):
        be.compound_rnn_unroll_fprop(w, h, h, h, None, 3, 1, 1, TANH)


def test_backward_needs_a_derivative_and_apart_memory(be: Backend) -> None:
    delta, h, w = be.ones((3, 2)), be.ones((3, 2)), be.ones((3, 3))
    with pytest.raises(DTypeError, match="activation must have a method bprop"):
        be.compound_rnn_unroll_bprop(w, [None], [delta], [h], 3, 1, 1, lambda x: x)
    with pytest.raises(AliasError, match="delta_s shares memory with h_s"):
        be.compound_rnn_unroll_bprop(w, [None], [h], [h], 3, 1, 1, TANH)
    with pytest.raises(ShapeError, match="the transposed weight"):
        be.compound_lstm_unroll_bprop(be.ones((12, 3)), *[[]] * 8, 3, 0, 0, TANH, LOGISTIC)
    assert (delta.get() == 1).all() and (h.get() == 1).all()


def test_outputs_of_gated_cells_must_lie_apart(be: Backend) -> None:
    h, c, a, ff = be.ones((2, 2)), be.ones((2, 2)), be.ones((2, 2)), be.ones((8, 2))
    w, functions = be.ones((8, 2)), (TANH, LOGISTIC)
    with pytest.raises(AliasError, match="c_s shares memory with c_act_s"):
        be.compound_lstm_unroll_fprop(w, [h], [c], [ff], [ff], [c], [c], [h], None, 2, 1, 1, *functions)
    with pytest.raises(AliasError, match="h_s shares memory with c_prev_s"):
        be.compound_lstm_unroll_fprop(w, [h], [h], [ff], [ff], [c], [a], [h], None, 2, 1, 1, *functions)
    with pytest.raises(AliasError, match="rzn_delta_s shares memory with rzn_s"):
        be.compound_gru_unroll_bprop(be.ones((2, 6)), [None], [h], [ff[:6]], [ff[:6]], [c], 2, 1, 1, *functions)
    for tensor in (h, c, a, ff):
        assert (tensor.get() == 1).all()


def test_one_direction_that_does_not_fit_stops_both(be: Backend) -> None:
    hf, hb, w = be.ones((3, 2)), be.ones((3, 2)), be.ones((3, 3))
    with pytest.raises(ShapeError, match="compound_rnn_unroll_fprop_bibnrnn"):
        be.compound_rnn_unroll_fprop_bibnrnn(
            None,
            None,
            None,
            w,
            [hf],
            [hf],
            [hf],
            None,
            be.ones((2, 2)),
            [hb],
            [hb],
            [hb],
            None,
            3,
            1,
            1,
            TANH,
        )
    with pytest.raises(ShapeError, match="compound_rnn_unroll_bprop_bibnrnn"):
        be.compound_rnn_unroll_bprop_bibnrnn(
            None, None, [hf], [None], [hb], [None], w, be.ones((2, 2)), [w], [w], 3, 1, 1, TANH, None
        )
    assert (hf.get() == 1).all() and (hb.get() == 1).all()


def test_no_steps_no_units_no_samples(be: Backend) -> None:
    w, b = be.ones((3, 3)), be.ones((3, 1))
    be.compound_rnn_unroll_fprop(w, [], [], [], b, 3, 0, 0, TANH)
    empty = [be.ones((3, 0))]
    be.compound_rnn_unroll_fprop(w, empty, empty, empty, b, 3, 1, 1, TANH)


@pytest.mark.backend
def test_bench_mode_counts_an_unroll_as_one_primitive() -> None:
    from neonlike.backends import cleanup_backend

    be = current_backend(batch_size=2, bench=True)
    h = [be.zeros((3, 2)), be.zeros((3, 2))]
    be.compound_rnn_unroll_fprop(be.ones((3, 3)), h, h, h, None, 3, 2, 2, TANH)
    text = be.bench_report()
    cleanup_backend()
    assert "compound_rnn_unroll_fprop" in text and "compound_lstm" not in text
