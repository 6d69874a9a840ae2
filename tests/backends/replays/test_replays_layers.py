"""Repeated steps of networks with branches, and with sequences, have the effects of played ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.primitives import rnn
from neonlike.initializers import Constant, Uniform
from neonlike.kernels.c import fastpath
from neonlike.kernels.run import trace
from neonlike.layers import (
    GRU,
    LRN,
    LSTM,
    Activation,
    Affine,
    Bias,
    BiBNRNN,
    BiLSTM,
    BiRNN,
    Conv,
    Deconv,
    DepthwiseConv,
    Dropout,
    GeneralizedCost,
    GroupNorm,
    LayerNorm,
    MergeBroadcast,
    MergeSum,
    MultiHeadAttention,
    Pad,
    Pooling,
    Recurrent,
    RecurrentLast,
    RecurrentMean,
    RecurrentSum,
    Reshape,
    SkipNode,
)  # fmt: skip
from neonlike.layers.recurrent import BiSum
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.optree.dtypes import bfloat16
from neonlike.transforms import CrossEntropyMulti, Logistic, Rectlin, Softmax, Tanh
from tests.backends.replays.replayed_nets import CLASSES, FEATURES, WARM, N, Trained, other_weight, played, steps  # noqa: F401
from tests.support.engines import current_backend
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]


# Branches ------------------------------------------------------------------------------------------------------------


class Branched(Trained):
    """A residual block, of which one branch is added apart, and three branches side by side."""

    def __init__(self, be: Backend) -> None:
        be.bsz = N
        rng = np.random.default_rng(1)

        def conv(maps: int, window: int, channels: int, **more: Any) -> Any:
            rows = window * window * channels
            init = (rng.standard_normal((rows, maps)) / rows**0.5).astype(np.float32)
            return Conv((window, window, maps), init=init, padding=window // 2, **more)

        normed = conv(3, 3, 2, batch_norm=True, activation=Rectlin())
        block = MergeSum([[*normed], [*conv(3, 1, 2)], [*conv(3, 1, 2), LRN(3)]])
        side = MergeBroadcast([[*conv(2, 1, 3)], [Pooling(3, strides=1, padding=1)], [SkipNode()]], merge="depth")
        weights = (rng.standard_normal((CLASSES, 8 * 36)) / 17).astype(np.float32)
        last = Affine(CLASSES, init=weights, activation=Softmax())
        self.be, self.layers = be, [block, Activation(Rectlin()), side, *last]
        self.model, self.cost = Model(self.layers), GeneralizedCost(CrossEntropyMulti())
        self.model.initialize((2, 6, 6), self.cost)
        self.take(GradientDescentMomentum(0.1, 0.9))
        self.x = be.array(rng.standard_normal((FEATURES, N)))
        self.t = be.array(np.eye(CLASSES)[rng.integers(0, CLASSES, N)].T)


def _weight_of_a_branch(net: Trained) -> None:
    layer = net.layers[0].layers[1].layers[0]
    layer.W = net.be.array(layer.W.get() * 2)


def _factor_of_a_branch(net: Trained) -> None:
    net.layers[2].alphas[1] = 0.5


@pytest.mark.parametrize("change", [_weight_of_a_branch, _factor_of_a_branch, None])
def test_branches_are_repeated(fast: Backend, played: Any, change: Any) -> None:
    wanted, net = played(lambda: steps(Branched(fast), WARM, change)), Branched(fast)
    assert steps(net, WARM) == wanted[:WARM]
    assert net.hits() == WARM - 3
    if change is not None:
        change(net)
        assert steps(net, WARM) == wanted[WARM:]


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
def test_networks_of_16_bits_are_repeated(played: Any, dtype: Any) -> None:
    """Their convolutions, pooling, normalization and products convert in the program, as they do without it."""
    be = current_backend(datatype=dtype)
    wanted, net = played(lambda: steps(Trained(be), WARM)), Trained(be)
    assert steps(net, WARM) == wanted
    assert net.hits() == WARM - 3


# Sequences -----------------------------------------------------------------------------------------------------------

STEPS, INPUTS = 3, 5


class Recurring(Trained):
    """A recurrent layer, whose outputs a fully connected one reads step by step."""

    def __init__(self, be: Backend, kind: type, **options: Any) -> None:
        be.bsz = N
        rng = np.random.default_rng(1)
        gates = {Recurrent: 1, LSTM: 4, GRU: 3}[kind]
        values = (rng.standard_normal((INPUTS + 6 + 1, gates * 6)) / 3).astype(np.float32)
        options |= {"gate_activation": Logistic()} if gates > 1 else {}
        last = (rng.standard_normal((CLASSES, 6)) / 3).astype(np.float32)
        self.be, self.layers = be, [kind(6, values, activation=Tanh(), **options), *Affine(CLASSES, init=last)]
        self.model, self.cost = Model([*self.layers, Activation(Softmax())]), GeneralizedCost(CrossEntropyMulti())
        self.model.initialize((INPUTS, STEPS), self.cost)
        self.take(GradientDescentMomentum(0.1, 0.9))
        self.x = be.array(rng.standard_normal((INPUTS, STEPS * N)))
        self.t = be.array(np.eye(CLASSES)[rng.integers(0, CLASSES, STEPS * N)].T)


def _other_lengths(net: Recurring) -> None:
    net.model.set_lengths([1, 2, 3, 0] * (N // 4))


def _given_state(net: Recurring) -> None:
    net.layers[0].set_state(net.be.ones((6, N)))


def _other_activation(net: Recurring) -> None:
    net.layers[0].activation = Rectlin()


RECURRING: dict[str, Callable[[Recurring], object]] = {
    "lengths": _other_lengths,
    "state": _given_state,
    "activation": _other_activation,
    "weight": other_weight,
    "no lengths": lambda net: net.model.set_lengths(None),
    "input in place": lambda net: net.x.fill(0.5),
}


@pytest.mark.parametrize("carries", [False, True], ids=["reset", "carried"])
@pytest.mark.parametrize("kind", [Recurrent, LSTM, GRU])
def test_sequences_are_repeated(fast: Backend, played: Any, kind: type, carries: bool) -> None:
    def run(net: Recurring) -> list[list[bytes]]:
        found = steps(net, WARM)
        for change in RECURRING.values():
            change(net)
            found += steps(net, 3)
        return found

    def made() -> Recurring:
        return Recurring(fast, kind, reset_cells=not carries)

    wanted, net = played(lambda: run(made())), made()
    assert steps(net, WARM) == wanted[:WARM]
    assert net.hits() == WARM - 3 and net.optimizer._found.guard.program.hits == WARM - 3
    assert run(made()) == wanted


@pytest.mark.parametrize("kind", [Recurrent, LSTM, GRU])
def test_repeated_sequences_follow_the_precision(
    fast: Any, played: Any, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rnn, "FEWEST_OF_PAIRS", 2)

    def run(net: Recurring, *precisions: str) -> list[list[bytes]]:
        found = []
        for precision in precisions:
            fast.product_precision = precision
            found += steps(net, WARM)
        return found

    changing = "float32", "bfloat16", "float32"
    wanted, net = played(lambda: run(Recurring(fast, kind), *changing)), Recurring(fast, kind)
    assert run(net, *changing) == wanted
    steps(net, 2 * WARM)
    assert net.hits()
    constant = run(Recurring(fast, kind), *["float32"] * 3)
    assert [one == other for one, other in zip(wanted, constant)] == [True] * WARM + [False] * 2 * WARM


def test_an_unroll_step_by_step_is_played(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rnn.UnrollLaunch, "again", lambda *args: False)
    net = Recurring(fast, LSTM)
    steps(net, 8)
    assert net.model._both_passes.guard is None and net.records == [None, None]


def test_an_unroll_of_copies_is_played(fast: Backend) -> None:
    def states(steps: int) -> list[Any]:
        return [fast.ones((6, N)) for _ in range(steps)]

    weight, before, projected, after = fast.ones((6, 6)), states(2), states(2), states(2)
    for bias, whole in ((fast.ones((6, 1)), True), (fast.ones((6, 2))[:, :1], False)):
        given = weight, before, projected, after, bias, 6, 2, 2, Tanh()
        fast.compound_rnn_unroll_fprop(*given)
        with trace.tracing(fast) as made:
            fast.compound_rnn_unroll_fprop(*given)
        assert (made.is_whole, len(made.runs)) == (whole, 1)


# Each kind of layer --------------------------------------------------------------------------------------------------

IMAGE, SEQUENCE = (2, 6, 6), (INPUTS, STEPS)


def _both_ways(kind: type, **options: Any) -> Callable[[], list[Any]]:
    gates = 4 if kind is BiLSTM else 1
    more = {"gate_activation": Logistic()} if gates > 1 else {}
    return lambda: [kind(4, Uniform(-0.5, 0.5), activation=Tanh(), **more, **options), BiSum(), RecurrentMean()]


KINDS: dict[str, tuple[Any, Callable[[], list[Any]]]] = {
    "layer norm": (9, lambda: [LayerNorm()]),
    "layer norm of images": (IMAGE, lambda: [LayerNorm()]),
    "padding": (IMAGE, lambda: [GroupNorm(2), Pad((1, -1), (0, 1), 0.5), Activation(Rectlin())]),
    "group norm": (IMAGE, lambda: [GroupNorm(2), Activation(Rectlin())]),
    "deconvolution": (IMAGE, lambda: [*Deconv((3, 3, 2), Uniform(-0.5, 0.5), bias=Constant(0.1), strides=2)]),
    "last": (SEQUENCE, lambda: [Recurrent(4, Uniform(-0.5, 0.5), activation=Tanh()), RecurrentLast()]),
    "sum": (SEQUENCE, lambda: [Recurrent(4, Uniform(-0.5, 0.5), activation=Tanh()), RecurrentSum()]),
    "both ways": (SEQUENCE, _both_ways(BiRNN)),
    "both ways, carried": (SEQUENCE, _both_ways(BiRNN, reset_cells=False)),
    "both ways, LSTM": (SEQUENCE, _both_ways(BiLSTM)),
    "both ways, normalized": (SEQUENCE, _both_ways(BiBNRNN)),
    "attention": (SEQUENCE, lambda: [MultiHeadAttention(1, Uniform(-0.5, 0.5), nout=6, causal=True), RecurrentSum()]),
    "depthwise": (IMAGE, lambda: [*DepthwiseConv((3, 3, 2), Uniform(-0.5, 0.5), activation=Tanh())]),
    "other shapes": (IMAGE, lambda: [*Conv((3, 3, 4), Uniform(-0.5, 0.5)), Reshape((16, 2, 2)), Bias(Constant(0.1))]),
    "dropout": (9, lambda: [*Affine(7, init=Uniform(-0.5, 0.5), activation=Tanh()), Dropout(0.5)]),
}


class Kind(Trained):
    """A few layers, and a fully connected one after them."""

    def __init__(self, be: Backend, shape: Any, make: Callable[[], list[Any]]) -> None:
        be.bsz = N
        be.rng_reset()
        self.be, self.layers = be, [*make(), *Affine(CLASSES, init=Uniform(-0.5, 0.5), activation=Softmax())]
        self.model, self.cost = Model(self.layers), GeneralizedCost(CrossEntropyMulti())
        self.model.initialize(shape, self.cost)
        self.take(GradientDescentMomentum(0.1, 0.9))
        rng = np.random.default_rng(1)
        columns = N * (shape[1] if shape == SEQUENCE else 1)
        features = shape[0] if shape == SEQUENCE else int(np.prod(shape))
        self.x = be.array(rng.standard_normal((features, columns)))
        self.t = be.array(np.eye(CLASSES)[rng.integers(0, CLASSES, N)].T)

    def infer(self, count: int) -> list[bytes]:
        """Outputs of passes in inference."""
        return [self.model.fprop(self.x, inference=True).get().tobytes() for _ in range(count)]

    def inferences(self) -> int:
        """How many of them were repeated."""
        record = self.model.layers.replays.inference.guard
        return 0 if record is None else record.program.hits


@pytest.mark.parametrize("name", KINDS)
def test_training_and_inference_are_repeated(fast: Backend, played: Any, name: str) -> None:
    def begin(net: Kind) -> list[Any]:
        return [steps(net, WARM), net.infer(WARM), steps(net, 3), net.infer(3)]

    def go_on(net: Kind) -> list[Any]:
        net.x.fill(0.5)
        found = [net.infer(3), steps(net, 3)]
        if hasattr(net.layers[0], "W"):
            other_weight(net)
        elif hasattr(net.layers[0], "gamma"):
            net.layers[0].gamma.fill(0.5)
        return [*found, net.infer(3), steps(net, 3)]

    def both(net: Kind) -> list[Any]:
        return [begin(net), go_on(net)]

    wanted, net = played(lambda: both(Kind(fast, *KINDS[name]))), Kind(fast, *KINDS[name])
    assert begin(net) == wanted[0]
    assert net.hits() >= WARM - 3 and net.inferences() >= WARM - 3 + 2
    assert go_on(net) == wanted[1]
