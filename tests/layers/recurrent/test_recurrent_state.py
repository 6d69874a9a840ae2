"""States of recurrent layers from batch to batch, parts of batches, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Gaussian
from neonlike.layers import GRU, LSTM, Affine, Dropout, Linear, Recurrent, RecurrentSum, Sequential
from neonlike.layers.recurrent import get_steps
from neonlike.models import Model
from neonlike.transforms import Logistic, Tanh
from tests.support.float64.recurrent_loops import KINDS, loop, make, ready
from tests.support.numbers import close

NIN, NOUT, T, N = 3, 5, 4, 6
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.samples(N)


class TestState:
    """State carried from batch to batch."""

    @every_kind
    def test_it_is_carried_over_in_the_same_buffer(self, be64: Any, kind: str, rng: Any) -> None:
        layer = ready(make(kind, NOUT), (NIN, T))
        buffer, arrays = be64.empty((NIN, T * N)), rng.normal(size=(2, NIN, T * N))
        e = rng.normal(size=(NOUT, T * N))
        buffer[:] = arrays[0]
        before = loop(layer, kind, arrays[0])
        close(layer.fprop(buffer), before.outputs)
        buffer[:] = arrays[1]
        ran = loop(layer, kind, arrays[1], before.h[-1], before.c[-1])
        close(layer.fprop(buffer[:, :]), ran.outputs)  # the same buffer
        back = ran.backward(e)  # truncated
        close(layer.bprop(be64.array(e)), back["deltas"])
        close(layer.dW, back["dW"])
        close(layer.fprop(be64.array(arrays[1])), loop(layer, kind, arrays[1]).outputs)  # another buffer

    def test_it_belongs_to_as_many_samples(self, be64: Any, rng: Any) -> None:
        """Fewer samples in the same buffer start from 0, fewer steps go on."""
        layer, x = ready(make("rnn", NOUT), (NIN, T)), rng.normal(size=(NIN, T * N))
        buffer = be64.array(x)
        state = layer.fprop(buffer).get()[:, -N:].copy()
        layer.set_seq_len(2)
        close(layer.fprop(buffer)[:, : 2 * N], loop(layer, "rnn", x[:, : 2 * N], state, steps=2).outputs)
        layer.set_batch_size(N - 1)
        columns = 2 * (N - 1)
        close(layer.fprop(buffer)[:, :columns], loop(layer, "rnn", x[:, :columns], steps=2).outputs)

    @every_kind
    def test_reset_cells(self, be64: Any, kind: str, rng: Any) -> None:
        layer, x = ready(make(kind, NOUT, reset_cells=True), (NIN, T)), rng.normal(size=(NIN, T * N))
        buffer = be64.array(x)
        for _ in range(2):
            close(layer.fprop(buffer), loop(layer, kind, x).outputs)

    @every_kind
    def test_setting_a_layer_up_again_forgets_it(self, be64: Any, kind: str, rng: Any) -> None:
        """As scripts do that compare perturbed inputs; weights stay."""
        layer, x = ready(make(kind, NOUT), (NIN, T)), rng.normal(size=(NIN, T * N))
        buffer = be64.array(x)
        first = layer.fprop(buffer).get().copy()
        layer.x = layer.xs = layer.outputs = None
        layer.allocate()
        close(layer.fprop(buffer), first)
        assert len(layer.xs) == T

    def test_h_alone_leaves_the_cell(self, be64: Any, rng: Any) -> None:
        layer, x = ready(make("lstm", NOUT), (NIN, T)), rng.normal(size=(NIN, T * N))
        buffer, h0 = be64.array(x), rng.normal(size=(NOUT, N))
        layer.fprop(buffer)
        c = loop(layer, "lstm", x).c[-1]
        close(layer.fprop(buffer, init_state=be64.array(h0)), loop(layer, "lstm", x, h0, c).outputs)

    @every_kind
    def test_a_stream_goes_on_step_by_step(self, be64: Any, kind: str, rng: Any) -> None:
        """With the state read and set, T calls of one step equal one call of T steps, in new buffers too."""
        layer, x = ready(make(kind, NOUT), (NIN, T)), rng.normal(size=(NIN, T * N))
        whole = layer.fprop(be64.array(x), inference=True).get().copy()
        layer.set_seq_len(1)
        state = None
        for t, step in enumerate(get_steps(x, (NIN, T))):
            got = layer.fprop(be64.array(step), inference=True, init_state=state).get()[:, :N]
            close(got, whole[:, t * N : (t + 1) * N])
            state = layer.get_state()
        layer.set_state(None)
        close(layer.fprop(be64.array(x[:, :N]), inference=True)[:, :N], whole[:, :N])
        layer.set_state(state)
        again = layer.fprop(be64.array(x[:, :N]), inference=True).get()[:, :N]
        close(again, loop(layer, kind, np.concatenate([x, x[:, :N]], 1), steps=T + 1).h[-1])
        close(layer.fprop(be64.array(x[:, :N]), inference=True)[:, :N], whole[:, :N])  # set for one call

    def test_what_is_in_place_behind_the_layer_does_not_change_it(self, be64: Any, rng: Any) -> None:
        """A dropout overwrites the outputs, but gradients and the state need them as they were."""
        model = Sequential([Linear(NIN, Gaussian()), make("rnn", NOUT), Dropout(0.5)])
        model.configure((NIN, T))
        model.allocate()
        model.allocate_deltas()
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N))
        linear, layer, dropout = model.layers
        outputs = model.fprop(be64.array(x)).get().copy()
        mask = dropout.keep_mask.get()
        ran = loop(layer, "rnn", linear.W.get() @ x)
        close(outputs, ran.outputs * mask)
        model.bprop(be64.array(e))
        close(layer.dW, ran.backward(e * mask)["dW"])
        close(layer.final_state(), ran.h[-1])


class TestParts:
    """Fewer steps and samples than allocated."""

    @every_kind
    def test_fewer_of_both(self, be64: Any, kind: str, rng: Any) -> None:
        layer = ready(make(kind, NOUT), (NIN, T))
        layer.set_seq_len(T - 1)
        layer.set_batch_size(N - 2)
        columns = (T - 1) * (N - 2)
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N))
        ran = loop(layer, kind, x[:, :columns], steps=T - 1)
        outputs = layer.fprop(be64.array(x))
        assert outputs is layer.outputs
        close(outputs[:, :columns], ran.outputs)
        back = ran.backward(e[:, :columns])
        close(layer.bprop(be64.array(e))[:, :columns], back["deltas"])
        close(layer.dW, back["dW"])
        layer.set_seq_len(None)
        layer.set_batch_size(None)
        close(layer.fprop(be64.array(x)), loop(layer, kind, x).outputs)

    @every_kind
    def test_fewer_samples_in_inference(self, be: Any, kind: str, rng: Any) -> None:
        model = Model([make(kind, NOUT), Affine(2, Gaussian(), activation=Logistic())])
        model.initialize((NIN, T))
        x = rng.normal(size=(NIN, T, N))
        whole = model.fprop(be.array(x.reshape(NIN, -1)), inference=True).get().copy()
        for few in (2, 1):
            part = model.fprop(be.array(x[..., :few].reshape(NIN, -1)), inference=True)
            assert part.shape == (2, T * few)
            close(part, whole.reshape(2, T, N)[..., :few].reshape(2, -1), 1e-6)

    @every_kind
    def test_one_sample(self, be64: Any, kind: str, rng: Any) -> None:
        """Its steps lie otherwise in buffers: in training, all of them and fewer; in inference with a length."""
        be64.bsz = 1
        layer, x, e = ready(make(kind, NOUT), (NIN, T)), rng.normal(size=(NIN, T)), rng.normal(size=(NOUT, T))
        for steps in (T, T - 1):
            layer.set_seq_len(steps)
            ran = loop(layer, kind, x[:, :steps], steps=steps)
            back = ran.backward(e[:, :steps])
            close(layer.fprop(be64.array(x))[:, :steps], ran.outputs)
            close(layer.bprop(be64.array(e))[:, :steps], back["deltas"])
            close(layer.dW, back["dW"])
        layer.set_seq_len(None)
        layer.set_lengths([T - 2])
        outputs = layer.fprop(be64.array(x), inference=True).get()
        close(outputs[:, : T - 2], loop(layer, kind, x[:, : T - 2], steps=T - 2).outputs)
        assert not outputs[:, T - 2 :].any()
        close(layer.final_state(), outputs[:, T - 3 : T - 2])

    def test_many_extents_are_not_all_kept(self, be: Any) -> None:
        be.bsz = 12
        layer, total = ready(make("rnn", 2), (1, 1)), ready(RecurrentSum(), (1, 1))
        for samples in range(1, 13):
            layer.fprop(be.ones((1, samples)), inference=True)
            total.fprop(be.ones((1, samples)), inference=True)
        assert len(layer._views) < 12 and len(total._weightings) < 12


class TestErrors:
    """Impossible calls raise one of the library's errors and change nothing."""

    @pytest.mark.parametrize("kind", [Recurrent, LSTM, GRU])
    def test_activations_are_required(self, be: Any, kind: Any) -> None:
        with pytest.raises(AssertionError, match="activation"):
            kind(NOUT, Gaussian())
        if kind is not Recurrent:
            with pytest.raises(AssertionError, match="gate_activation"):
                kind(NOUT, Gaussian(), activation=Tanh())

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ({"output_size": 0}, ShapeError), ({"output_size": 2.5}, DTypeError), ({"init": "glorot"}, DTypeError),
            ({"init_inner": 3}, DTypeError), ({"activation": Tanh}, DTypeError), ({"reset_cells": "no"}, DTypeError),
        ],
    )  # fmt: skip
    def test_arguments(self, be: Any, arguments: Any, error: Any) -> None:
        with pytest.raises(error):
            Recurrent(**({"output_size": 3, "init": Gaussian(), "activation": Tanh()} | arguments))

    def test_accumulation_is_not_offered(self, be: Any) -> None:
        layer = make("gru", NOUT).configure((NIN, T))
        with pytest.raises(TypeError):
            layer.allocate(accumulate_updates=True)

    def test_calls_before_their_time(self, be: Any) -> None:
        layer = make("lstm", NOUT)
        with pytest.raises(ArgumentError, match="configure and allocate"):
            layer.fprop(be.zeros((NIN, T * N)))
        ready(layer, (NIN, T))
        with pytest.raises(ArgumentError, match="call fprop first"):
            layer.bprop(be.zeros((NOUT, T * N)))
        with pytest.raises(ArgumentError, match="call fprop first"):
            layer.final_state()

    @pytest.mark.parametrize(
        ("shape", "inference", "words"),
        [
            ((NIN + 1, T * N), False, "3 features"), ((NIN, T * N - T), False, "inference=True"),
            ((NIN, T * N - 1), True, "4 columns each"), ((NIN, T * N + T), True, "network up again"),
        ],
    )  # fmt: skip
    def test_inputs_that_do_not_fit(self, be: Any, shape: Any, inference: bool, words: str) -> None:
        layer = ready(make("rnn", NOUT), (NIN, T))
        with pytest.raises(ShapeError, match=words):
            layer.fprop(be.zeros(shape), inference)

    def test_extents_that_do_not_fit(self, be: Any) -> None:
        layer = ready(make("rnn", NOUT), (NIN, T))
        for steps, samples in ((T + 1, N), (T, N + 1), (0, N)):
            layer.set_seq_len(steps)
            layer.set_batch_size(samples)
            with pytest.raises(ShapeError, match=f"{steps} steps of {samples} samples"):
                layer.fprop(be.zeros((NIN, T * N)))

    def test_states_and_errors_that_do_not_fit(self, be: Any) -> None:
        layer = ready(make("gru", NOUT), (NIN, T))
        x = be.zeros((NIN, T * N))
        for state, error in ((be.zeros((NOUT, N + 1)), ValueError), (np.zeros((NOUT, N)), DTypeError),
                             ([be.zeros((NOUT, N))] * 2, ShapeError)):  # fmt: skip
            with pytest.raises(error, match="init_state"):
                layer.fprop(x, init_state=state)
        layer.fprop(x)
        for wrong, error in ((be.zeros((NOUT + 1, T * N)), ShapeError), (be.zeros((NOUT, N)), ShapeError),
                             (np.zeros((NOUT, T * N)), DTypeError)):  # fmt: skip
            with pytest.raises(error, match="bprop"):
                layer.bprop(wrong)
