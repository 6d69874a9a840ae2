"""Bidirectional recurrent layers against two loops in float64, of which one reads the steps backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.errors import ArgumentError, ShapeError
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import Affine, BiBNRNN, BiLSTM, BiRNN, DeepBiLSTM, DeepBiRNN, Dropout, Linear, Sequential
from neonlike.layers.recurrent import BiSum
from neonlike.models import Model
from neonlike.transforms import Logistic, Softmax, Tanh
from tests.support.differences import slopes
from tests.support.float64.recurrent_loops import Loop, ready
from tests.support.numbers import close

NIN, NOUT, T, N = 4, 3, 5, 6
KINDS = {"rnn": BiRNN, "lstm": BiLSTM}
every_kind = pytest.mark.parametrize("kind", KINDS)
pytestmark = pytest.mark.samples(N)


def make(kind: str, **options: Any) -> Any:
    given = {"init": Gaussian(scale=0.5), "activation": Tanh()} | options
    if kind == "lstm":
        given["gate_activation"] = Logistic()
    layer = KINDS[kind](NOUT, **given)
    return layer


def reversed_steps(x: Any, steps: int, lengths: Any = None) -> Any:
    """The steps of each sample from the last to the first; padding behind ``lengths`` stays where it is."""
    cube = x.reshape(len(x), steps, -1).copy()
    for n, length in enumerate(np.full(cube.shape[2], steps) if lengths is None else lengths):
        cube[:, :length, n] = cube[:, :length, n][:, ::-1]
    return cube.reshape(x.shape)


def weights(W: Any, nin: int, way: int) -> Any:
    """The weight of one direction, as a layer of one direction has it: 0 forward, 1 backward."""
    recurrent = W[2 * nin + way * NOUT : 2 * nin + (way + 1) * NOUT]
    return np.concatenate([W[way * nin : (way + 1) * nin], recurrent, W[-2:][way : way + 1]])


class Both:
    """Outputs and gradients of both directions."""

    def __init__(self, kind: str, layer: Any, x: Any, steps: int = T, lengths: Any = None, state: Any = None) -> None:
        self.nin, self.lengths, self.steps = layer.nin, lengths, steps
        halves = (x[: self.nin], x[self.nin :]) if layer.split_inputs else (x, x)
        self.split = layer.split_inputs
        xs = halves[0], reversed_steps(halves[1], steps, lengths)
        zero = np.zeros((NOUT, x.shape[1] // steps))
        states = state or [(zero, None)] * 2
        W = layer.W.get()
        self.loops = [Loop(kind, weights(W, self.nin, i), xs[i], steps, *states[i]) for i in range(2)]

    @property
    def outputs(self) -> Any:
        ahead, back = (ran.outputs for ran in self.loops)
        return np.concatenate([ahead, reversed_steps(back, self.steps, self.lengths)])

    def backward(self, e: Any) -> tuple[Any, Any]:
        """deltas and dW."""
        errors = e[:NOUT], reversed_steps(e[NOUT:], self.steps, self.lengths)
        f, b = (ran.backward(error) for ran, error in zip(self.loops, errors, strict=True))
        b["deltas"] = reversed_steps(b["deltas"], self.steps, self.lengths)
        deltas = np.concatenate([f["deltas"], b["deltas"]]) if self.split else f["deltas"] + b["deltas"]
        n, m = self.nin, self.nin + NOUT
        rows = [(0, n), (n, m), (m, m + 1)]
        return deltas, np.concatenate([way["dW"][a:b_] for a, b_ in rows for way in (f, b)])


@pytest.mark.engines("numpy", "c")
@every_kind
@pytest.mark.parametrize("split", [False, True], ids=["same", "split"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "inner"])
def test_both_passes(be64: Any, kind: str, split: bool, first: bool, rng: Any) -> None:
    layer = ready(make(kind, split_inputs=split), (NIN, T), first)
    layer.W[:] = be64.array(rng.normal(size=layer.W.shape) / 2)
    x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(2 * NOUT, T * N))
    ran = Both(kind, layer, x)
    assert layer.out_shape == (2 * NOUT, T)
    close(layer.fprop(be64.array(x)), ran.outputs)
    deltas, dW = ran.backward(e)
    layer.bprop(be64.array(e))  # gradients are overwritten, not added to
    if first:
        assert layer.bprop(be64.array(e)) is None
    else:
        layer.deltas.fill(2)
        close(layer.bprop(be64.array(e), alpha=2.0, beta=0.5), 2 * deltas + 1)
    close(layer.dW, dW)


@every_kind
def test_attributes(be: Any, kind: str) -> None:
    layer, g = ready(make(kind), (NIN, T)), 4 if kind == "lstm" else 1
    assert layer.W.shape == layer.dW.shape == (2 * (NIN + NOUT + 1), g * NOUT)
    for way in "fb":
        shapes = [getattr(layer, f"{d}{name}_{way}").shape for d in ("", "d") for name in ("W_input", "W_recur", "b")]
        assert shapes == [(g * NOUT, NIN), (g * NOUT, NOUT), (g * NOUT, 1)] * 2
    assert layer.h_buffer_all.shape == (2 * NOUT, (T + 2) * N)
    assert layer.outputs.shape == (2 * NOUT, T * N) and not layer.outputs.is_contiguous
    layer.h_buffer.fill(3)
    close(layer.outputs, np.full((2 * NOUT, T * N), 3))
    assert [len(steps) for steps in (layer.h_f, layer.h_b, layer.h_prev, layer.h_next)] == [T] * 4
    assert layer.h_f[1].ptr == layer.h_prev[2].ptr and layer.h_b[1].ptr == layer.h_next[0].ptr


def test_numbers_that_neon_gave(be: Any) -> None:
    be.bsz = 2
    layer = ready(BiRNN(1, Constant(0), activation=Tanh(), reset_cells=True), (1, 3))
    layer.W[:] = np.arange(6).reshape(6, 1) / 10
    outputs = layer.fprop(be.array([[1, -1, 0.5, 2, 0, 1]])).get()
    close(outputs, [[0.379949, 0.379949, 0.443026, 0.443026, 0.453109, 0.453109],
                    [0.652208, 0.543458, 0.597104, 0.696832, 0.462117, 0.53705]], 2e-6)  # fmt: skip
    deltas = layer.bprop(be.array(np.arange(12).reshape(2, 6) / 10)).get()
    close(deltas, [[0.034477, 0.049326, 0.058133, 0.053911, 0.09236, 0.089782]], 2e-6)
    close(layer.dW.get().T, [[1.011744, 2.118215, 0.513233, 1.107753, 1.406065, 3.779891]], 2e-6)


@every_kind
def test_state_is_carried_over(be64: Any, kind: str, rng: Any) -> None:
    """Each direction goes on from where it ended, unless ``reset_cells``."""
    kept, reset = (ready(make(kind, reset_cells=resets), (NIN, T)) for resets in (False, True))
    x = rng.normal(size=(NIN, T * N))
    for layer in (kept, reset):
        buffer = be64.array(x)
        first = Both(kind, layer, x)
        close(layer.fprop(buffer), first.outputs)
        state = None if layer is reset else [(ran.h[-1], ran.c[-1]) for ran in first.loops]
        close(layer.fprop(buffer), Both(kind, layer, x, state=state).outputs)


@every_kind
def test_a_single_step(be64: Any, kind: str, rng: Any) -> None:
    layer, x, e = ready(make(kind), NIN), rng.normal(size=(NIN, N)), rng.normal(size=(2 * NOUT, N))
    ran = Both(kind, layer, x, 1)
    close(layer.fprop(be64.array(x)), ran.outputs)
    close(layer.bprop(be64.array(e)), ran.backward(e)[0])
    close(layer.dW, ran.backward(e)[1])


@every_kind
def test_fewer_steps_and_samples(be64: Any, kind: str, rng: Any) -> None:
    layer = ready(make(kind), (NIN, T))
    x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(2 * NOUT, T * N))
    layer.set_seq_len(T - 2)
    layer.set_batch_size(N - 1)
    columns = (T - 2) * (N - 1)
    ran = Both(kind, layer, x[:, :columns], T - 2)
    close(layer.fprop(be64.array(x))[:, :columns], ran.outputs)
    close(layer.bprop(be64.array(e))[:, :columns], ran.backward(e[:, :columns])[0])
    layer.set_seq_len(None)
    layer.set_batch_size(None)
    for few in (2, 1):
        part = layer.fprop(be64.array(x[:, : few * T]), inference=True)
        close(part, Both(kind, layer, x[:, : few * T]).outputs)
    close(layer.fprop(be64.array(x)), Both(kind, layer, x).outputs)


@every_kind
def test_in_a_network(be64: Any, kind: str, rng: Any) -> None:
    """Between layers, one of which works in place on its outputs."""
    net = Sequential([Linear(NIN, Gaussian()), make(kind), Dropout(0.5), Linear(2, Gaussian())])
    net.configure((2, T))
    net.allocate()
    net.allocate_deltas()
    x, e = rng.normal(size=(2, T * N)), rng.normal(size=(2, T * N))
    below, layer, dropout, above = net.layers
    got = net.fprop(be64.array(x)).get()
    ran, mask = Both(kind, layer, below.W.get() @ x), dropout.keep_mask.get()
    close(got, above.W.get() @ (ran.outputs * mask))
    net.bprop(be64.array(e))
    deltas, dW = ran.backward(above.W.get().T @ e * mask)
    close(layer.dW, dW)
    close(below.dW, deltas @ x.T)


class TestBatchNorm:
    """BiBNRNN: the same with projections normalized."""

    @pytest.mark.engines("numpy", "c")
    @pytest.mark.parametrize("split", [False, True])
    def test_gradients_by_differences(self, be64: Any, split: bool, rng: Any) -> None:
        layer = ready(BiBNRNN(2, Gaussian(), activation=Tanh(), reset_cells=True, split_inputs=split), (2, 3))
        for tensor in (layer.beta, layer.gamma, layer.W):
            tensor.set(rng.normal(size=tensor.shape))
        x, e = be64.array(rng.normal(size=(2, 3 * N))), rng.normal(size=(4, 3 * N))
        cost = lambda: float((layer.fprop(x).get() * e).sum())  # noqa: E731
        cost()
        deltas = layer.bprop(be64.array(e)).get().copy()
        pairs = [(x, deltas)] + [(p, g.get().copy()) for (p, g), _ in layer.get_params()]
        for tensor, found in pairs:
            places = [*np.ndindex(tensor.shape)][::2]
            close(np.array([found[place] for place in places]), slopes(cost, tensor, places), 1e-6)

    def test_forward_and_inference(self, be64: Any, rng: Any) -> None:
        layer = ready(BiBNRNN(NOUT, Gaussian(), activation=Tanh(), reset_cells=True), (NIN, T))
        x = rng.normal(size=(NIN, T * N))
        plain = ready(BiRNN(NOUT, Gaussian(), activation=Tanh(), reset_cells=True), (2 * NOUT, T))
        sums = np.concatenate([layer.W_input_f.get(), layer.W_input_b.get()]) @ x
        normalized = (sums - sums.mean(1, keepdims=True)) / np.sqrt(sums.var(1, keepdims=True) + 1e-3)
        eye = np.eye(2 * NOUT)
        for way, rows in (("f", eye[:NOUT]), ("b", eye[NOUT:])):
            getattr(plain, f"W_input_{way}")[:] = rows
            getattr(plain, f"W_recur_{way}")[:] = getattr(layer, f"W_recur_{way}")
        close(layer.fprop(be64.array(x)), plain.fprop(be64.array(normalized)).get(), 1e-6)
        close(layer.gmean, 0.1 * sums.mean(1, keepdims=True), 1e-6)
        running = (sums - layer.gmean.get()) / np.sqrt(layer.gvar.get() + 1e-3)
        close(layer.fprop(be64.array(x), inference=True), plain.fprop(be64.array(running)).get(), 1e-6)

    def test_all_parameters_are_trained_and_saved(self, be: Any, rng: Any) -> None:
        models = []
        for _ in range(2):
            models.append(Model([BiBNRNN(NOUT, Uniform(-1, 1), activation=Tanh()), Affine(2, Gaussian())]))
            models[-1].initialize((NIN, T))
        layer, other = (model.layers.layers[0] for model in models)
        assert [p.shape for (p, _), _ in layer.get_params()] == [layer.W.shape, (2 * NOUT, 1), (2 * NOUT, 1)]
        assert layer.grad_gamma is layer.get_params()[2][0][1]
        x = be.array(rng.normal(size=(NIN, T * N)))
        layer.gamma.fill(0.5)
        models[0].fprop(x)
        models[1].layers.load_weights(models[0].get_description(get_weights=True, keep_states=True)["model"])
        for name in ("W", "beta", "gamma", "gmean", "gvar"):
            close(getattr(other, name), getattr(layer, name).get())
        assert layer.gmean.get().any() and other.states == [[], [], []]


class TestDeep:
    """Lists of bidirectional layers."""

    def test_each_direction_reads_its_own(self, be: Any) -> None:
        layers = DeepBiRNN(NOUT, Gaussian(), activation=Tanh(), reset_cells=True, depth=3)
        assert [(type(layer), layer.split_inputs) for layer in layers] == [(BiRNN, False), (BiRNN, True), (BiRNN, True)]
        assert all(layer.reset_cells for layer in layers)
        layers = DeepBiLSTM(NOUT, Gaussian(), None, Tanh(), Logistic(), depth=2)
        assert [(type(layer), layer.split_inputs) for layer in layers] == [(BiLSTM, False), (BiLSTM, True)]

    def test_sums_of_directions(self, be: Any) -> None:
        layers = DeepBiRNN(NOUT, Gaussian(), activation=Tanh(), depth=2, batch_norm=True, bi_sum=True)
        assert [type(layer) for layer in layers] == [BiBNRNN, BiSum, BiBNRNN, BiSum]
        assert not layers[2].split_inputs
        model = Model([layers, Affine(2, Gaussian(), activation=Softmax())])
        model.initialize((NIN, T))
        assert model.fprop(be.ones((NIN, T * N))).shape == (2, T * N)

    @pytest.mark.parametrize("deep", [DeepBiRNN, DeepBiLSTM])
    def test_depth(self, be: Any, deep: Any) -> None:
        given = {"init_inner": None, "activation": Tanh()} | ({"gate_activation": Tanh()} if deep is DeepBiLSTM else {})
        with pytest.raises(ValueError, match="depth=0"):
            deep(NOUT, Gaussian(), depth=0, **given)

    def test_they_stack(self, be64: Any, rng: Any) -> None:
        net = Sequential(DeepBiRNN(NOUT, Gaussian(), activation=Tanh(), reset_cells=True, depth=2))
        net.configure((NIN, T))
        net.allocate()
        net.allocate_deltas()
        x, e = rng.normal(size=(NIN, T * N)), rng.normal(size=(2 * NOUT, T * N))
        lower, upper = net.layers
        first = Both("rnn", lower, x)
        second = Both("rnn", upper, first.outputs)
        close(net.fprop(be64.array(x)), second.outputs)
        net.bprop(be64.array(e))
        deltas, dW = second.backward(e)
        close(upper.dW, dW)
        close(lower.dW, first.backward(deltas)[1])


def test_a_sum_of_directions(be64: Any, rng: Any) -> None:
    layer = ready(BiSum(), (2 * NOUT, T))
    x, e = rng.normal(size=(2 * NOUT, T * N)), rng.normal(size=(NOUT, T * N))
    assert layer.out_shape == (NOUT, T)
    close(layer.fprop(be64.array(x)), x[:NOUT] + x[NOUT:])
    close(layer.bprop(be64.array(e)), np.concatenate([e, e]))
    layer.deltas.fill(1)
    close(layer.bprop(be64.array(e), alpha=0.5, beta=2.0), np.concatenate([e, e]) / 2 + 2)
    close(layer.fprop(be64.array(x[:, :T]), inference=True), x[:NOUT, :T] + x[NOUT:, :T])


def test_what_cannot_be(be: Any) -> None:
    with pytest.raises(ShapeError, match="even number"):
        BiRNN(NOUT, Gaussian(), activation=Tanh(), split_inputs=True).configure((3, T))
    with pytest.raises(ShapeError, match="even number"):
        BiSum().configure((3, T))
    with pytest.raises(ArgumentError, match="Logistic of 0 is not 0"):
        BiRNN(NOUT, Gaussian(), activation=Logistic()).set_lengths([1, 2])
    with pytest.raises(ArgumentError, match="normalization"):
        BiBNRNN(NOUT, Gaussian(), activation=Tanh()).set_lengths([1, 2])
    layer = ready(make("rnn"), (NIN, T))
    with pytest.raises(ArgumentError, match="call fprop first"):
        layer.bprop(be.zeros((2 * NOUT, T * N)))
    with pytest.raises(ShapeError, match=f"expected \\({2 * NOUT}, {T * N}\\)"):
        layer.fprop(be.zeros((NIN, T * N)))
        layer.bprop(be.zeros((NOUT, T * N)))
