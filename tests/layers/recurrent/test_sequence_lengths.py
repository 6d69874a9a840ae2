"""Sequences of different lengths in a batch, and the layers that make one output of a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, Linear, Recurrent, RecurrentLast, RecurrentMean, RecurrentSum, Sequential
from neonlike.layers.recurrent import RecurrentOutput
from neonlike.models import Model
from neonlike.transforms import Explin, Rectlin
from tests.layers.recurrent.test_bidirectional import Both
from tests.layers.recurrent.test_bidirectional import make as make_both
from tests.support.float64.recurrent_loops import KINDS, Loop, make, ready
from tests.support.numbers import close

NIN, NOUT, T, N = 4, 3, 5, 6
LENGTHS = [5, 3, 0, 1, 5, 2]
VALID = np.arange(T)[:, None] < np.array(LENGTHS)
MASK = VALID.reshape(1, -1) * 1.0
OUTPUTS = {"sum": RecurrentSum, "mean": RecurrentMean, "last": RecurrentLast}
pytestmark = pytest.mark.samples(N)


def one_sample(x: Any, n: int) -> Any:
    """The steps of sample n, those that it has."""
    return x.reshape(len(x), T, -1)[:, : LENGTHS[n], n]


class TestLengths:
    """A batch of sequences of different lengths is each of them by itself."""

    @pytest.mark.engines("numpy", "c")
    def test_states_that_grow_behind_the_last_step(self, be: Any) -> None:
        """They become infinite in the columns that do not count."""
        layer = ready(Recurrent(1, Constant(8.0), activation=Rectlin()), (1, T))
        layer.set_lengths([2, 1, 2, 2, 2, 0])
        x = np.full((1, T * N), 1e37)
        x[:, : 2 * N] = 1
        outputs = layer.fprop(be.array(x)).get().reshape(T, N)
        wanted = np.zeros((T, N))
        wanted[0, :5], wanted[1, [0, 2, 3, 4]] = 8, 72
        np.testing.assert_array_equal(outputs, wanted)
        np.testing.assert_array_equal(layer.final_state().get(), [[72, 8, 72, 72, 72, 0]])
        assert np.isfinite(layer.bprop(be.ones((1, T * N))).get()).all() and np.isfinite(layer.dW.get()).all()

    @pytest.mark.engines("numpy", "c")
    @pytest.mark.parametrize("kind", KINDS)
    def test_each_sample_by_itself(self, be64: Any, kind: str, rng: Any) -> None:
        layer = ready(make(kind, NOUT), (NIN, T))
        layer.set_lengths(LENGTHS)
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NOUT, T * N))
        h0 = rng.normal(size=(NOUT, N))
        outputs = layer.fprop(be64.array(x), init_state=be64.array(h0)).get().reshape(NOUT, T, N)
        deltas = layer.bprop(be64.array(e)).get().reshape(NIN, T, N)
        final, passed, dW = layer.final_state().get(), layer.get_final_hidden_error().get(), 0
        for n, length in enumerate(LENGTHS):
            assert not outputs[:, length:, n].any() and not deltas[:, length:, n].any()
            if not length:
                close(final[:, n], h0[:, n])
                assert not passed[:, n].any()
                continue
            ran = Loop(kind, layer.W.get(), one_sample(x, n), length, h0[:, n : n + 1])
            back = ran.backward(one_sample(e, n), through=kind != "lstm")
            close(outputs[:, :length, n], ran.outputs)
            close(final[:, n : n + 1], ran.h[-1])
            close(deltas[:, :length, n], back["deltas"])
            close(passed[:, n : n + 1], back["passed"][0])
            dW = dW + back["dW"]
        close(layer.dW, dW)

    @pytest.mark.parametrize("kind", ["rnn", "lstm"])
    def test_both_directions(self, be64: Any, kind: str, rng: Any) -> None:
        """The backward direction begins at each sample's last step."""
        layer = ready(make_both(kind), (NIN, T))
        layer.b[:] = be64.array(rng.normal(size=layer.b.shape))
        layer.set_lengths(be64.array([LENGTHS]))
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(2 * NOUT, T * N))
        ran = Both(kind, layer, x, lengths=LENGTHS)
        buffer = be64.array(x)
        for _ in range(2):  # nothing is carried over
            close(layer.fprop(buffer), ran.outputs * MASK)
        deltas, _ = ran.backward(e * MASK)
        close(layer.bprop(be64.array(e)), deltas * MASK)
        singles = [Both(kind, layer, one_sample(x, n), length) for n, length in enumerate(LENGTHS) if length]
        errors = [one_sample(e, n) for n, length in enumerate(LENGTHS) if length]
        close(layer.dW, sum(single.backward(error)[1] for single, error in zip(singles, errors, strict=True)))

    @pytest.mark.parametrize("transform", [Rectlin(0.1), Explin()])
    def test_other_activations_of_0_are_0(self, be64: Any, transform: Any, rng: Any) -> None:
        layer = ready(make_both("rnn", activation=transform), (NIN, T))
        layer.b[:] = be64.array(rng.normal(size=layer.b.shape))
        layer.set_lengths(LENGTHS)
        x = rng.normal(size=(NIN, T * N))
        alone = layer.fprop(be64.array(x)).get().reshape(2 * NOUT, T, N)[:, :3, 1]
        layer.set_lengths(None)
        layer.set_seq_len(3)
        cube = be64.array(x.reshape(NIN, T, N)[:, :3].reshape(NIN, -1))
        close(layer.fprop(cube)[:, : 3 * N].get().reshape(2 * NOUT, 3, N)[..., 1], alone)

    def test_state_goes_on_from_each_last_step(self, be64: Any, rng: Any) -> None:
        layer = ready(make("lstm", NOUT), (NIN, T))
        layer.set_lengths(LENGTHS)
        x = rng.normal(size=(NIN, T * N))
        buffer = be64.array(x)
        layer.fprop(buffer)
        h, c = (state.get().copy() for state in layer.get_state())
        layer.set_lengths(None)
        close(layer.fprop(buffer), Loop("lstm", layer.W.get(), x, T, h, c).outputs)

    def test_a_network_hands_them_to_its_layers(self, be64: Any, rng: Any) -> None:
        """Nested, too; its result does not depend on the padding."""
        inner = Sequential([make_both("lstm", reset_cells=True), make("gru", NOUT, reset_cells=True)])
        model = Model([inner, RecurrentMean(), Affine(2, Gaussian(), bias=Gaussian())])
        model.initialize((NIN, T))
        x = rng.normal(size=(NIN, T * N))
        model.set_lengths(LENGTHS)
        first = model.fprop(be64.array(x)).get().copy()
        close(model.fprop(be64.array(np.where(MASK, x, 7.0))), first)
        model.set_lengths(None)
        assert np.abs(model.fprop(be64.array(x)).get() - first).max() > 1e-3

    @pytest.mark.parametrize(
        ("lengths", "error"),
        [
            ("ab", DTypeError),
            ([1.5] * N, DTypeError),
            ([], DTypeError),
            ([[1, 2], None], DTypeError),
            ([-1] * N, ShapeError),
            ([[1, 2], [3, 4]], ShapeError),
        ],
    )
    def test_what_are_no_lengths(self, be: Any, lengths: Any, error: Any) -> None:
        for layer in (make("rnn", NOUT), RecurrentSum()):
            with pytest.raises(error, match="set_lengths"):
                layer.set_lengths(lengths)

    def test_lengths_beyond_the_steps_are_refused_where_they_are_set(self, be: Any) -> None:
        for layer in (make("rnn", NOUT), RecurrentSum()):
            ready(layer, (NIN, T)).set_lengths([T] * N)
            with pytest.raises(ShapeError, match=rf"set_lengths: a sample has {T + 1} steps, but sequences have {T}"):
                layer.set_lengths([1] * (N - 1) + [T + 1])
            assert layer.padding.lengths.max() == T

    def test_lengths_of_another_batch(self, be: Any) -> None:
        for layer in (make("rnn", NOUT), RecurrentSum()):
            ready(layer, (NIN, T)).set_lengths([1] * (N + 1))
            with pytest.raises(ShapeError, match=r"call set_lengths for this batch"):
                layer.fprop(be.zeros((NIN, T * N)))

    def test_lengths_beyond_the_steps_of_a_shorter_batch(self, be: Any) -> None:
        for layer in (make("rnn", NOUT), RecurrentSum()):
            ready(layer, (NIN, T)).set_lengths([T] * N)
            layer.set_seq_len(T - 1)
            with pytest.raises(ShapeError, match=rf"up to {T} are set, but there are {N} samples of {T - 1} steps"):
                layer.fprop(be.zeros((NIN, T * N)))


class TestOutputs:
    """Sum, mean and last step."""

    def wanted(self, kind: str, x: Any, lengths: Any = None) -> tuple[Any, Any]:
        """Output (features, N), and the weight of each step (1, T, N)."""
        cube = x.reshape(len(x), T, -1)
        count = np.full(cube.shape[2], T) if lengths is None else np.array(lengths)
        steps = np.arange(T)[:, None]
        valid = steps < count
        weight = {"sum": valid, "mean": valid / np.maximum(count, 1), "last": steps == count - 1}[kind][None] * 1.0
        return (cube * weight).sum(1), weight

    @pytest.mark.engines("numpy", "c")
    @pytest.mark.parametrize("kind", OUTPUTS)
    @pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole", "lengths"])
    def test_both_passes(self, be64: Any, kind: str, lengths: Any, rng: Any) -> None:
        layer = ready(OUTPUTS[kind](), (NIN, T))
        layer.set_lengths(lengths)
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(NIN, N))
        output, weight = self.wanted(kind, x, lengths)
        assert layer.out_shape == (NIN, 1)
        close(layer.fprop(be64.array(x)), output)
        spread = (e[:, None] * weight).reshape(NIN, -1)
        close(layer.bprop(be64.array(e)), spread)
        layer.deltas.fill(1)
        close(layer.bprop(be64.array(e), alpha=2.0, beta=3.0), 2 * spread + 3)

    @pytest.mark.parametrize("kind", OUTPUTS)
    def test_lengths_change_from_batch_to_batch(self, be64: Any, kind: str, rng: Any) -> None:
        layer, x = ready(OUTPUTS[kind](), (NIN, T)), rng.normal(size=(NIN, T * N))
        buffer = be64.array(x)
        for lengths in (None, LENGTHS, LENGTHS[::-1], None):
            layer.set_lengths(lengths)
            close(layer.fprop(buffer), self.wanted(kind, x, lengths)[0])

    @pytest.mark.parametrize("kind", OUTPUTS)
    def test_a_part_of_a_batch(self, be64: Any, kind: str, rng: Any) -> None:
        layer = ready(OUTPUTS[kind](), (NIN, T))
        x = rng.normal(size=(NIN, T * N))
        part = layer.fprop(be64.array(x[:, : 2 * T]), inference=True)
        close(part, self.wanted(kind, x[:, : 2 * T])[0])
        layer.set_seq_len(1)
        close(layer.fprop(be64.array(x)), x[:, :N])
        layer.set_batch_size(2)
        close(layer.fprop(be64.array(x))[:, :2], x[:, :2])
        e = rng.normal(size=(NIN, N))
        close(layer.bprop(be64.array(e))[:, :2], e[:, :2])

    @pytest.mark.parametrize("kind", OUTPUTS)
    def test_behind_a_bidirectional_layer(self, be64: Any, kind: str, rng: Any) -> None:
        """The bidirectional layer's outputs are a view with gaps."""
        net = Sequential([make_both("rnn"), OUTPUTS[kind](), Linear(2, Gaussian())])
        net.configure((NIN, T))
        net.allocate()
        net.allocate_deltas()
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(2, N))
        both, _, linear = net.layers
        ran = Both("rnn", both, x)
        output, weight = self.wanted(kind, ran.outputs)
        close(net.fprop(be64.array(x)), linear.W.get() @ output)
        net.bprop(be64.array(e))
        error = ((linear.W.get().T @ e)[:, None] * weight).reshape(2 * NOUT, -1)
        close(both.dW, ran.backward(error)[1])

    def test_a_first_layer_and_wrong_calls(self, be: Any) -> None:
        layer = ready(RecurrentLast(), (NIN, T), first=True)
        with pytest.raises(ArgumentError, match="call fprop first"):
            layer.bprop(be.zeros((NIN, N)))
        layer.fprop(be.zeros((NIN, T * N)))
        assert layer.bprop(be.zeros((NIN, N))) is None
        with pytest.raises(ShapeError, match="4 features"):
            layer.fprop(be.zeros((NIN + 1, T * N)))
        with pytest.raises(NotImplementedError):
            ready(RecurrentOutput(), (NIN, T)).fprop(be.zeros((NIN, T * N)))
