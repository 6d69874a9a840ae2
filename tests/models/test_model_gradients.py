"""Gradients of a whole network, and one step of training, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import (
    GRU,
    LSTM,
    Affine,
    BiLSTM,
    BranchNode,
    Conv,
    GeneralizedCost,
    GeneralizedCostMask,
    LookupTable,
    MergeMultistream,
    MergeSum,
    Multicost,
    Pooling,
    RecurrentSum,
    Seq2Seq,
    SkipNode,
    Tree,
)
from neonlike.layers.container import Decoder, Encoder
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.optimizers.base import get_param_list
from neonlike.transforms import (
    CrossEntropyBinary,
    CrossEntropyMulti,
    Explin,
    Identity,
    Logistic,
    Rectlin,
    Softmax,
    SumSquared,
    Tanh,
)
from tests.support.differences import slope

N, NIN, NCLASS = 16, 6, 3
pytestmark = pytest.mark.engines("numpy", "c")


def check(model, cost, x, t, rng, rtol):
    """Compare the gradients of all parameters with central differences, along random directions."""

    def value():
        return np.sum(cost.get_cost(model.fprop(x), t)) * columns  # gradients are sums over the columns

    y = model.fprop(x)
    columns = (y[0] if isinstance(y, list) else y).shape[1]
    errors = cost.get_errors(y, t)
    model.bprop(errors)
    parameters = get_param_list(model.layers_to_optimize)
    for parameter, gradient in [(parameter, gradient.get().copy()) for (parameter, gradient), _ in parameters]:
        for _ in range(2):  # random projections check all entries at once
            direction = rng.normal(size=gradient.shape)
            found = slope(value, parameter, direction)
            assert (gradient * direction).sum() == pytest.approx(found, rel=rtol, abs=1e-7)


def gates():
    return {"activation": Tanh(), "gate_activation": Logistic(), "reset_cells": True}


def sentiment(be, rng):
    """Words, read in both directions."""
    layers = [LookupTable(9, 4, Gaussian()), BiLSTM(5, Gaussian(), **gates()), RecurrentSum(),
              Affine(3, Gaussian(), bias=Uniform(-1, 1), activation=Softmax())]  # fmt: skip
    words = be.array(rng.integers(9, size=(6, be.bsz)), dtype=np.int32)
    return layers, (6, 1), words, one_hot(be, rng, 3, 1), GeneralizedCost(CrossEntropyMulti(usebits=True))


def captions(be, rng):
    """An image as the first step of a sentence, some words of which do not count."""
    streams = [[Affine(5, Gaussian(), bias=Uniform(-1, 1))], [Affine(5, Gaussian())]]
    layers = [MergeMultistream(streams, "recurrent"), LSTM(6, Gaussian(), **gates()),
              Affine(4, Gaussian(), activation=Softmax())]  # fmt: skip
    inputs = be.array(rng.normal(size=(7, be.bsz))), one_hot(be, rng, 4, 3)
    mask = be.array(np.repeat(rng.integers(2, size=(1, 4 * be.bsz)), 4, axis=0))
    cost = GeneralizedCostMask(CrossEntropyMulti(), weights=0.5)
    return layers, [(7, 1), (4, 3)], inputs, (one_hot(be, rng, 4, 4), mask), cost


def branches(be, rng):
    """A residual block in images, and a second output in the middle."""
    node = BranchNode("gradients")
    block = MergeSum([Conv((3, 3, 4), Gaussian(), padding=1, batch_norm=True, activation=Tanh()), SkipNode()])
    trunk = [Conv((3, 3, 4), Gaussian(), padding=1, bias=Uniform(), activation=Tanh()), node, block, Pooling(2, "avg"),
             Affine(3, Gaussian(), activation=Softmax())]  # fmt: skip
    layers = Tree([trunk, [node, Affine(2, Gaussian(), activation=Tanh())]])
    targets = one_hot(be, rng, 3, 1), be.array(rng.normal(size=(2, be.bsz)))
    costs = Multicost([GeneralizedCost(CrossEntropyMulti()), GeneralizedCost(SumSquared())], weights=[1, 0.3])
    return layers, (2, 4, 4), be.array(rng.normal(size=(32, be.bsz))), targets, costs


def translation(be, rng):
    """A decoder begins from the state in which its encoder ended."""
    encoder = Encoder([GRU(5, Gaussian(scale=0.5), **gates())])
    decoder = Decoder([GRU(5, Gaussian(scale=0.5), **gates()), Affine(4, Gaussian(), activation=Softmax())])
    inputs = one_hot(be, rng, 4, 3), one_hot(be, rng, 4, 3)
    cost = GeneralizedCost(CrossEntropyMulti())
    return Seq2Seq([encoder, decoder]), ((4, 3), (4, 3)), inputs, one_hot(be, rng, 4, 3), cost


def one_hot(be, rng, size, steps):
    return be.array(np.eye(size)[rng.integers(size, size=steps * be.bsz)].T)


class TestGradients:
    """Analytic gradients against finite differences in float64."""

    @pytest.mark.parametrize(
        ("hidden", "output", "costfunc"),
        [
            (Tanh(), Softmax(), CrossEntropyMulti()),
            (Logistic(), Softmax(), CrossEntropyMulti()),
            (Explin(), Identity(), SumSquared()),
            (Rectlin(0.1), Tanh(), SumSquared()),
            (Tanh(), Logistic(shortcut=True), CrossEntropyBinary()),
        ],
        ids=lambda value: value.classnm,
    )
    def test_all_parameters(self, be64, rng, hidden, output, costfunc):
        be64.bsz = 5
        model = Model([
            Affine(7, Gaussian(), bias=Uniform(-1, 1), activation=hidden),
            Affine(4, Gaussian(), activation=hidden),
            Affine(3, Gaussian(), bias=Uniform(-1, 1), activation=output),
        ])  # fmt: skip
        x = be64.array(rng.normal(size=(NIN, 5)))
        t = be64.array(np.eye(3)[rng.integers(3, size=5)].T)
        total = GeneralizedCost(costfunc)
        model.initialize(NIN, total)

        check(model, total, x, t, rng, 1e-6)

    @pytest.mark.compiles(2, "branches", "sentiment")
    @pytest.mark.parametrize("make", [sentiment, captions, branches, translation], ids=lambda make: make.__name__)
    def test_networks_of_many_kinds(self, be64, rng, make):
        be64.bsz = 3
        layers, shape, x, t, cost = make(be64, rng)
        model = Model(layers)
        model.initialize(shape, cost)
        check(model, cost, x, t, rng, 1e-5)

    def test_one_step_of_training_is_one_step_of_numpy(self, be64, rng):
        be64.bsz = N
        x, labels = rng.normal(size=(N, NIN)), rng.integers(NCLASS, size=N)
        model = Model([Affine(NCLASS, Gaussian(), bias=Constant(0.0), activation=Softmax())])
        model.initialize(NIN)
        W, b = (layer.W.get().copy() for layer in model.layers_to_optimize)
        data, cost = ArrayIterator(x, labels, nclass=NCLASS), GeneralizedCost(CrossEntropyMulti())
        model.fit(data, cost, GradientDescentMomentum(0.5, 0.0), 1)
        z = W @ x.T + b
        y = np.exp(z) / np.exp(z).sum(axis=0)
        error = y - np.eye(NCLASS)[labels].T
        got_W, got_b = (layer.W.get() for layer in model.layers_to_optimize)
        np.testing.assert_allclose(got_W, W - 0.5 * error @ x / N, rtol=1e-10)
        np.testing.assert_allclose(got_b, b - 0.5 * error.mean(axis=1, keepdims=True), rtol=1e-10)
        assert model.total_cost.item() == pytest.approx(-np.log(y[labels, np.arange(N)]).mean(), rel=1e-6)
