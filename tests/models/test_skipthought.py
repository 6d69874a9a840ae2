"""SkipThought: one encoder and two decoders with tied parameters."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import GRU, LSTM, GeneralizedCost, Linear, Multicost, Recurrent, SkipThought
from neonlike.models import Model
from neonlike.nervanaobject import build
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Logistic, Tanh
from tests.support.differences import slope
from tests.support.float64.recurrent_loops import KINDS, Loop

N, WORDS, EMBED, HIDDEN, STEPS = 4, 5, 3, 6, 3
pytestmark = pytest.mark.samples(N)


def network(rec_layer=GRU, **given):
    return SkipThought(
        WORDS, EMBED, Gaussian(), HIDDEN, rec_layer, Gaussian(scale=0.5), Tanh(), Logistic(), Gaussian(), Constant(0.1),
        **given,
    )  # fmt: skip


def set_up(net):
    net.configure((STEPS,))
    net.allocate()
    net.allocate_deltas()
    return net


def sentences(be, rng):
    return [be.array(rng.integers(WORDS, size=(STEPS, N)), dtype=np.int32) for _ in range(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_as_written_out(be64, rng, kind):
    net = set_up(network(KINDS[kind]))
    inputs, part = sentences(be64, rng), net.layer_dict
    table = part["lookupTable"].W.get()
    vectors = [table[x.get().reshape(-1)].T for x in inputs]
    h = Loop(kind, part["encoder"].W.get(), vectors[0], STEPS, np.zeros((HIDDEN, N))).h[-1]
    for y, side, x in zip(net.fprop(inputs), ("previous", "next"), vectors[1:], strict=True):
        written = Loop(kind, part[f"decoder_{side}"].W.get(), x, STEPS, h).outputs
        linear, bias, _ = part[f"affine_{side}"]
        scores = np.exp(linear.W.get() @ written + bias.W.get())
        np.testing.assert_allclose(y.get(), scores / scores.sum(axis=0), rtol=1e-9)
    assert net.out_shape == [(WORDS, STEPS)] * 2 and len(net.get_terminal()) == 2


def test_gradients_of_tied_parameters_are_means(be64, rng):
    net = set_up(network())
    inputs = sentences(be64, rng)
    targets = [np.eye(WORDS)[x.get().reshape(-1)].T for x in inputs[1:]]

    def cost():
        return sum(-(np.log(y.get()) * t).sum() for y, t in zip(net.fprop(inputs), targets, strict=True))

    errors = [be64.array(y.get() - t) for y, t in zip(net.fprop(inputs), targets, strict=True)]
    net.bprop(errors)  # the softmax takes the gradient of a cross entropy as it is
    part = net.layer_dict
    tables = [part[name] for name in ("lookupTable", "lookupTable_previous", "lookupTable_next")]
    linears, biases = ([part[f"affine_{side}"][i] for side in ("previous", "next")] for i in (0, 1))
    decoders = [part["decoder_previous"]], [part["decoder_next"]]
    assert not np.array_equal(decoders[0][0].W.get(), decoders[1][0].W.get())
    for group in (tables, linears, biases, [part["encoder"]], *decoders):
        for layer in group:
            np.testing.assert_array_equal(layer.W.get(), group[0].W.get())
            np.testing.assert_array_equal(layer.dW.get(), group[0].dW.get())
        direction = rng.normal(size=group[0].W.shape)
        expected = len(group) * (group[0].dW.get() * direction).sum()
        found = slope(cost, [layer.W for layer in group], direction, 1e-5)
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-8)


class Stories:
    """Sentences of one word repeated, the word before and the word after it."""

    shape, ndata, nbatches = (STEPS,), 20, 5

    def __init__(self, be, rng):
        self.be, self.middle = be, rng.integers(WORDS, size=(5, N))

    def reset(self):
        """Nothing to do."""

    def __iter__(self):
        for middle in self.middle:
            before, after = (np.tile((middle + step) % WORDS, (STEPS, 1)) for step in (-1, 1))
            written = [np.concatenate([np.zeros((1, N), int), words[:-1]]) for words in (before, after)]
            inputs = [np.tile(middle, (STEPS, 1)), *written]
            targets = [np.eye(WORDS)[words.reshape(-1)].T for words in (before, after)]
            yield [self.be.array(x, dtype=np.int32) for x in inputs], [self.be.array(t) for t in targets]


def test_defect_39_a_trained_model_is_saved_and_loaded(be, rng, tmp_path):
    model, data = Model(network(LSTM)), Stories(be, rng)
    costs = Multicost([GeneralizedCost(CrossEntropyMulti()), GeneralizedCost(CrossEntropyMulti())])
    model.fit(data, costs, Adam(learning_rate=0.03), num_epochs=1)
    first = model.total_cost.item()
    model.fit(data, costs, Adam(learning_rate=0.03), num_epochs=12)
    assert model.total_cost.item() < 0.3 * first
    tables = [model.layers.layer_dict[name].W.get() for name in ("lookupTable", "lookupTable_next")]
    np.testing.assert_array_equal(*tables)
    model.save_params(path := str(tmp_path / "skip.p"))
    loaded = Model(path)
    assert loaded.layers.rec_layer is LSTM
    loaded.initialize(data)
    inputs = next(iter(data))[0]
    for a, b in zip(loaded.fprop(inputs, inference=True), model.fprop(inputs, inference=True), strict=True):
        np.testing.assert_array_equal(a.get(), b.get())


def test_descriptions_and_wrong_arguments(be, rng):
    net = network()
    again = build(net.get_description())
    assert again.rec_layer is GRU and again.layer_dict["affine_next"] == again.layers[-3:]
    assert again.nested_str() == net.nested_str() and len(net.layers_to_optimize) == 10
    assert [layer.gate_activation for layer in net.layers if isinstance(layer, GRU)]
    assert network(Recurrent).layer_dict["encoder"].classnm == "Recurrent"
    for wrong in (Linear, "Linear", None):
        with pytest.raises(DTypeError, match="GRU, LSTM, Recurrent"):
            network(wrong)
    with pytest.raises(ArgumentError, match="expected 12 layers, got 3"):
        network(layers=net.layers[:3])
    with pytest.raises(ArgumentError, match="three sentences"):
        net.configure([(3,), (3, 1)])
    set_up(net)
    with pytest.raises(DTypeError, match="three batches"):
        net.fprop(sentences(be, rng)[:2])
    net.fprop(sentences(be, rng))
    with pytest.raises(DTypeError, match="2 errors"):
        net.bprop(be.ones((WORDS, STEPS * N)))
