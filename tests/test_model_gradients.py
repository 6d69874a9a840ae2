"""Gradients of a whole network, and one step of training, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
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

N, NIN, NCLASS = 16, 6, 3


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

        def value():
            return total.get_cost(model.fprop(x), t).item() * 5  # gradients are sums over the batch

        value()
        model.bprop(total.get_errors(model.layers.outputs, t))
        for layer in model.layers_to_optimize:
            gradient = layer.dW.get().copy()
            for _ in range(3):  # random projections check all entries at once
                direction = rng.normal(size=gradient.shape)
                start, h = layer.W.get().copy(), 1e-6
                layer.W[:] = start + h * direction
                above = value()
                layer.W[:] = start - h * direction
                below = value()
                layer.W[:] = start
                assert (gradient * direction).sum() == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-8)

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
