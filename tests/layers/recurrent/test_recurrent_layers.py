"""Recurrent, LSTM and GRU layers against loops in float64: parameters, forward and backward."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from neonlike.errors import MissingArgument, ShapeError
from neonlike.initializers import Constant, Gaussian, GlorotUniform, Uniform
from neonlike.layers import LSTM, Affine, Recurrent
from neonlike.layers.recurrent import get_steps, interpret_in_shape
from neonlike.models import Model
from neonlike.transforms import Logistic, Softmax, Swish, Tanh
from tests.support.differences import slopes
from tests.support.float64.recurrent_loops import GATES, KINDS, Loop, loop, make, ready
from tests.support.float64.rnn_formulas import ACTS
from tests.support.numbers import close

NIN, NOUT, T, N = 3, 5, 4, 6
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.samples(N)


class TestSteps:
    """Shapes and steps of sequences."""

    @pytest.mark.parametrize(
        ("shape", "expected"),
        [(5, (5, 1)), ((5,), (5, 1)), ((5, 3), (5, 3)), ((2, 3, 4), (6, 4)), (np.int64(2), (2, 1))],
    )
    def test_interpret_in_shape(self, shape: Any, expected: Any) -> None:
        assert interpret_in_shape(shape) == expected

    @pytest.mark.parametrize("shape", ["ab", (2.5, 1), [(1, 2), (3, 4)], None])
    def test_what_is_no_shape(self, shape: Any) -> None:
        with pytest.raises(ShapeError, match="layer before"):
            interpret_in_shape(shape)

    def test_steps_are_views(self, be: Any) -> None:
        x = be.array(np.arange(12).reshape(2, 6))
        steps = get_steps(x, (2, 3))
        steps[1].fill(0)
        assert len(steps) == 3 and x.get().tolist() == [[0, 1, 0, 0, 4, 5], [6, 7, 0, 0, 10, 11]]
        of_array = np.arange(12).reshape(2, 6)
        get_steps(of_array, (2, 2))[1][:] = 0
        assert of_array[1].tolist() == [6, 7, 8, 0, 0, 0]
        assert get_steps(None, (2, 3)) == [None] * 3

    def test_steps_that_do_not_fit(self, be: Any) -> None:
        for shape in ((2, 4), (3, 3)):
            with pytest.raises(ShapeError, match=r"shape \(2, 6\)"):
                get_steps(be.zeros((2, 6)), shape)


class TestParameters:
    """One weight of named parts."""

    @every_kind
    def test_attributes(self, be: Any, kind: str) -> None:
        layer, g = ready(make(kind, NOUT), (NIN, T)), GATES[kind]
        assert layer.W.shape == layer.dW.shape == (NIN + NOUT + 1, g * NOUT)
        assert (layer.W_input.shape, layer.W_recur.shape, layer.b.shape) == (
            (g * NOUT, NIN), (g * NOUT, NOUT), (g * NOUT, 1)
        )  # fmt: skip
        assert (layer.nin, layer.nout, layer.output_size, layer.nsteps) == (NIN, NOUT, NOUT, T)
        assert layer.in_shape == (NIN, T) and layer.out_shape == (NOUT, T)
        assert layer.outputs.shape == (NOUT, T * N) and layer.out_deltas_buffer is layer.deltas
        assert len(layer.h) == len(layer.h_prev) == len(layer.h_ff) == T
        assert layer.final_state_buffer.shape == (NOUT, N) and not layer.b.get().any()
        close(layer.W_recur, layer.W.get()[NIN:-1].reshape(g * NOUT, NOUT))
        assert layer.get_params() == ((layer.W, layer.dW), [])

    def test_attributes_of_gates(self, be: Any) -> None:
        lstm, gru = ready(make("lstm", NOUT), (NIN, T)), ready(make("gru", NOUT), (NIN, T))
        assert lstm.ifog_buffer.shape == lstm.ifog_delta_buffer.shape == (4 * NOUT, T * N)
        assert gru.rzhcan_buffer.shape == gru.rzhcan_delta_buffer.shape == (3 * NOUT, T * N)
        assert len(lstm.c) == len(lstm.c_act) == T

    def test_each_gate_is_filled_by_itself(self, be: Any) -> None:
        """As one small weight after the other: inputs of all gates, then recurrent weights."""
        be.rng_reset()
        layer = ready(LSTM(4, GlorotUniform(), Uniform(1, 2), Tanh(), Logistic()), (2, T))
        be.rng_reset()
        wanted = be.empty((4, 2))
        for gate in range(4):
            GlorotUniform().fill(wanted)
            close(layer.W_input[4 * gate : 4 * gate + 4], wanted.get())
        assert 1 <= layer.W_recur.get().min() and layer.W_recur.get().max() <= 2

    def test_values_for_the_weight(self, be: Any, rng: Any) -> None:
        W = rng.normal(size=(NIN + NOUT + 1, NOUT)).astype(np.float32)
        close(ready(Recurrent(NOUT, W, activation=Tanh()), (NIN, T)).W, W)
        close(
            ready(Recurrent(NOUT, Constant(0.5), activation=Tanh()), (NIN, T)).W[:-1], np.full((NIN + NOUT, NOUT), 0.5)
        )
        with pytest.raises(ShapeError, match="init has shape"):
            ready(Recurrent(NOUT, W[1:], activation=Tanh()), (NIN, T))

    @every_kind
    def test_saving_and_loading(self, be: Any, kind: str, rng: Any) -> None:
        layers = lambda: [make(kind, NOUT, reset_cells=True), Affine(2, Gaussian(), activation=Softmax())]  # noqa: E731
        first, second = Model(layers()), Model(layers())
        for model in (first, second):
            model.initialize((NIN, T))
        x = be.array(rng.normal(size=(NIN, T * N)))
        second.layers.load_weights(first.layers.get_description(get_weights=True))
        close(second.fprop(x), first.fprop(x).get())
        described = first.get_description(get_weights=True)
        assert described["model"]["config"]["layers"][0]["type"] == f"neonlike.layers.recurrent.{KINDS[kind].__name__}"
        third = Model(described)
        third.initialize((NIN, T))
        assert third.layers.layers[0].reset_cells is True
        close(third.fprop(x), first.fprop(x).get())

    def test_another_input_needs_other_weights(self, be: Any) -> None:
        layer = ready(make("rnn", NOUT), (NIN, T))
        layer.outputs = None
        with pytest.raises(ShapeError, match="another input shape"):
            ready(layer, (NIN + 1, T))


class TestPasses:
    """Forward and backward against the loops."""

    @pytest.mark.engines("numpy", "c")
    @every_kind
    @pytest.mark.parametrize("first", [True, False], ids=["first", "inner"])
    def test_both_passes(self, be64: Any, kind: str, first: bool, rng: Any) -> None:
        layer = ready(make(kind, NOUT), (NIN, T), first=first)
        layer.b[:] = be64.array(rng.normal(size=layer.b.shape))
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N))
        ran = loop(layer, kind, x)
        close(layer.fprop(be64.array(x)), ran.outputs)
        back = ran.backward(e)
        layer.bprop(be64.array(e))  # gradients are overwritten, not added to
        deltas = layer.bprop(be64.array(e))
        if first:
            assert deltas is None
        else:
            close(deltas, back["deltas"])
        close(layer.dW, back["dW"])
        close(layer.get_final_hidden_error(), back["passed"][0])
        for got, wanted in zip(layer.h_delta, back["passed"], strict=True):
            close(got, wanted)
        close(layer.final_state(), ran.h[-1])
        for got, wanted in zip(layer.h, ran.h, strict=True):
            close(got, wanted)

    @every_kind
    def test_a_single_step(self, be64: Any, kind: str, rng: Any) -> None:
        layer = ready(make(kind, NOUT), NIN)
        x, e, h0 = rng.normal(size=(NIN, N)), rng.normal(size=(NOUT, N)), rng.normal(size=(NOUT, N))
        for given in (None, be64.array(h0)):
            ran = loop(layer, kind, x, None if given is None else h0)
            close(layer.fprop(be64.array(x), init_state=given), ran.outputs)
            back = ran.backward(e, through=given is not None and kind != "lstm")
            layer.dW.fill(7)
            close(layer.bprop(be64.array(e)), back["deltas"])
            close(layer.dW, back["dW"])

    @every_kind
    def test_an_initial_state(self, be64: Any, kind: str, rng: Any) -> None:
        """An initial h counts in the gradients of RNN and GRU; an LSTM's gradients start from 0, as neon's."""
        layer = ready(make(kind, NOUT, reset_cells=True), (NIN, T))
        x, e, h0 = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N)), rng.normal(size=(NOUT, N))
        ran = loop(layer, kind, x, h0)
        close(layer.fprop(be64.array(x), init_state=be64.array(h0)), ran.outputs)
        back = ran.backward(e, through=kind != "lstm")
        close(layer.bprop(be64.array(e)), back["deltas"])
        close(layer.dW, back["dW"])
        close(layer.get_final_hidden_error(), back["passed"][0])

    def test_all_of_an_lstm_state(self, be64: Any, rng: Any) -> None:
        layer = ready(make("lstm", NOUT), (NIN, T))
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N))
        h0, c0 = rng.normal(size=(2, NOUT, N))
        ran = loop(layer, "lstm", x, h0, c0)
        close(layer.fprop(be64.array(x), init_state=[be64.array(h0), be64.array(c0)]), ran.outputs)
        back = ran.backward(e, through=True)
        close(layer.bprop(be64.array(e)), back["deltas"])
        close(layer.dW, back["dW"])
        close(layer.final_cell_error, back["c"])
        close(layer.ifog_delta_buffer, back["D"])
        close(layer.get_state()[1], ran.c[-1])

    @every_kind
    def test_alpha_and_beta_apply_to_the_deltas_only(self, be64: Any, kind: str, rng: Any) -> None:
        layer = ready(make(kind, NOUT), (NIN, T))
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N))
        layer.fprop(be64.array(x))
        layer.deltas.fill(1.0)
        back = loop(layer, kind, x).backward(e)
        close(layer.bprop(be64.array(e), alpha=2.0, beta=3.0), 2 * back["deltas"] + 3)
        close(layer.dW, back["dW"])

    @pytest.mark.parametrize(("kind", "gate"), [("lstm", "clipped"), ("gru", "identity")])
    def test_other_activations(self, be64: Any, kind: str, gate: str, rng: Any) -> None:
        """Those of gates too."""
        act, gate_act = ACTS["leaky"], ACTS[gate]
        layer = make(kind, NOUT, activation=act.transform(), gate_activation=gate_act.transform())
        ready(layer, (NIN, T))
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N))
        ran = Loop(kind, layer.W.get(), x, T, np.zeros((NOUT, N)), act=act, gate=gate_act)
        close(layer.fprop(be64.array(x)), ran.outputs)
        close(layer.bprop(be64.array(e)), ran.backward(e)["deltas"])
        close(layer.dW, ran.backward(e)["dW"])

    def test_an_activation_that_is_not_elementwise(self, be64: Any, rng: Any) -> None:
        act = ACTS["softmax"]
        layer, x = ready(make("rnn", NOUT, activation=act.transform()), (NIN, T)), rng.normal(size=(NIN, T * N))
        close(layer.fprop(be64.array(x)), Loop("rnn", layer.W.get(), x, T, np.zeros((NOUT, N)), act=act).outputs)

    def test_an_activation_whose_slope_needs_its_input(self, be: Any) -> None:
        layer = ready(make("rnn", NOUT, activation=Swish()), (NIN, T))
        layer.fprop(be.zeros((NIN, T * N)))
        with pytest.raises(MissingArgument, match="Swish needs the inputs"):
            layer.bprop(be.zeros((NOUT, T * N)))

    @every_kind
    def test_gradients_by_differences(self, be64: Any, kind: str, rng: Any) -> None:
        """Gradients of all weights and of the input, from a state of 0 and without truncation."""
        be64.bsz = 2
        layer = ready(make(kind, 2, reset_cells=True), (2, 3))
        x, e = be64.array(rng.normal(size=(2, 6))), rng.normal(size=(2, 6))
        cost = lambda: float((layer.fprop(x).get() * e).sum())  # noqa: E731
        cost()
        deltas = layer.bprop(be64.array(e)).get().copy()
        gradient = layer.dW.get().copy()
        for tensor, found in ((layer.W, gradient), (x, deltas)):
            close(found.ravel(), slopes(cost, tensor, np.ndindex(tensor.shape)), 1e-7)

    def test_an_image_is_read_column_by_column(self, be64: Any, rng: Any) -> None:
        """(C, H, W) as W steps of C·H features; its error has the image's shape."""
        layer = ready(make("rnn", NOUT), (2, 3, T))
        image, e = rng.normal(size=(2 * 3 * T, N)), rng.normal(size=(NOUT, T * N))
        ran = loop(layer, "rnn", image.reshape(6, T * N))
        close(layer.fprop(be64.array(image)), ran.outputs)
        close(layer.bprop(be64.array(e)), ran.backward(e)["deltas"].reshape(image.shape))
        close(layer.dW, ran.backward(e)["dW"])


class TestWorkedNumbers:
    """Numbers that neon gave."""

    WANTED: ClassVar[dict[str, Any]] = {
        "rnn": (
            [[0, 0.53705, 0.148885, -0.339657], [-0.462117, -0.099668, -0.456138, -0.582494]],
            [-0.086251, -0.142877, -0.153703, -0.172115],
            {0: [0.57134, 0.965268], 1: [0.142528, -0.116826], 2: [0.248381, -0.265677], 3: [0.574099, 1.913584]},
        ),
        "lstm": (
            [[0.037723, -0.086225, 0.036038, 0.020251], [-0.068751, 0.066537, -0.07224, -0.070979]],
            [-0.037838, -0.047493, -0.031314, -0.020175],
            {
                0: [0.040098, -0.156627, -0.014687, 0.026292, 0.012082, -0.087117, 0.069907, 0.239577],
                3: [0.00822, -0.055915, -0.005983, 0.006123, 0.002917, -0.039623, 0.147633, 0.609309],
            },
        ),
        "gru": (
            [[-0.054801, -0.174405, -0.105902, -0.067202], [0.042414, -0.12397, 0.025467, 0.047913]],
            [0.064865, 0.086079, 0.062397, 0.065095],
            {
                0: [0.00636, 0.001811, 0.043257, 0.222972, 0.273095, 0.597298],
                3: [0.003781, 0.000731, -0.0067, 0.017535, 0.425031, 1.182713],
            },
        ),
    }

    @every_kind
    def test_they_are_met(self, be: Any, kind: str) -> None:
        be.bsz = 2
        layer = ready(make(kind, 2, reset_cells=True), (1, 2))
        layer.W[:] = (np.arange(layer.W.size).reshape(layer.W.shape) % 7 - 3) / 10
        outputs, deltas, rows = self.WANTED[kind]
        close(layer.fprop(be.array([[1, -1, 0.5, 2]])), outputs, 2e-6)
        close(layer.bprop(be.array(np.arange(8).reshape(2, 4) / 10)), [deltas], 2e-6)
        for row, values in rows.items():
            close(layer.dW[row : row + 1], [values], 2e-6)
