"""Callbacks that print measures, and the one that tunes batch normalization."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.callbacks.callbacks import (
    BatchNormTuneCallback,
    Callbacks,
    MultiLabelStatsCallback,
    WatchTickerCallback,
)
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, BatchNorm, GeneralizedCost, Linear
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, PrecisionRecall, Softmax, SumSquared

N = 8


@pytest.fixture
def data(be, rng):
    be.bsz = N
    x = rng.normal(size=(4 * N, 4))
    return ArrayIterator(x, rng.integers(3, size=4 * N), nclass=3)


def fit(model, data, callback, epochs=1):
    callbacks = Callbacks(model, progress_bar=False, serialize=None)
    callbacks.add_callback(callback)
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), epochs, callbacks)


class TestMultiLabelStats:
    """Measures of each label."""

    def test_percentages_of_each_label(self, be, data, capsys):
        model = Model([Affine(3, GlorotUniform(), activation=Softmax())])
        x, labels = np.eye(4)[[0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]], np.array([0, 1, 2, 0, 1, 0, 0, 1, 2, 0, 2])
        valid = ArrayIterator(x, labels, nclass=3)
        metric = PrecisionRecall(3, binarize=True)
        model.initialize(data)
        model.layers.layers[0].W[:] = 5 * np.eye(3, 4)
        callback = MultiLabelStatsCallback(valid, ["cat", "dog", "cow"], metric)
        callback.on_epoch_end(None, model, 0)
        # The first 8 samples, of which the outputs say 0 1 2 0 1 2 0 1, and the last 3, of which they say 2 0 1.
        first, last = np.array([[1, 3 / 4], [1, 1], [1 / 2, 1]]), np.array([[1, 1], [0, 0], [1, 1 / 2]])
        expected = np.rint(100 * (8 * first + 3 * last) / 11)
        lines = capsys.readouterr().out.splitlines()
        assert lines == [
            f"[Precision: {row[0]:.0f}%, Recall: {row[1]:.0f}%] -> {label}"
            for label, row in zip(("cat", "dog", "cow"), expected, strict=True)
        ]

    def test_it_runs_while_training(self, be, data, capsys):
        model = Model([Affine(3, GlorotUniform(), activation=Softmax())])
        fit(model, data, MultiLabelStatsCallback(data, list("abc"), PrecisionRecall(3), epoch_freq=2), 2)
        assert [line[-1] for line in capsys.readouterr().out.splitlines()] == ["a", "b", "c"]

    @pytest.mark.parametrize("labels", [["a", "b"], list("abcd")])
    def test_there_is_a_label_for_each_output(self, be, data, labels):
        with pytest.raises(ArgumentError, match=r"outputs have shape \(3, 2\)"):
            MultiLabelStatsCallback(data, labels, PrecisionRecall(3))
        with pytest.raises(ArgumentError, match="no metric"):
            MultiLabelStatsCallback(data, labels, PrecisionRecall)


class Ticker:
    """Two minibatches of sequences of three steps, of which the first two count in the first."""

    def __init__(self, be):
        self.shape, self.nbatches, self.ndata = (2, 3), 2, 2 * N
        values = np.arange(2 * 3 * N).reshape(2, 3 * N) / 10
        self.x, self.t = be.array(values), be.array(np.full((1, 3 * N), 1.0))
        self.mask = be.array(np.repeat([[1.0, 1.0, 0.0]], N, axis=1))

    def __iter__(self):
        yield self.x, (self.t, self.mask)


class TestWatchTicker:
    """A minibatch of a made-up task."""

    def test_the_steps_of_the_first_sequence(self, be, data, capsys):
        ticker = Ticker(be)
        model = Model([Linear(1, Constant(2.0))])
        model.initialize((2, 3))
        callbacks = Callbacks(model, progress_bar=False)
        callbacks.add_watch_ticker_callback(ticker)
        callback = callbacks.callbacks[-1]
        assert isinstance(callback, WatchTickerCallback)
        callback.on_epoch_end(None, model, 4)
        assert capsys.readouterr().out.splitlines() == [
            "Epoch 4, inputs:", " 0.00  0.80", " 2.40  3.20",
            "Epoch 4, outputs:", " 4.80  8.00",
            "Epoch 4, targets:", " 1.00  1.00",
        ]  # fmt: skip

    def test_it_needs_a_ticker(self, be, data):
        with pytest.raises(ValueError, match="no Ticker"):
            WatchTickerCallback(None, data)


class TestBatchNormTune:
    """Statistics of a data set in place of running ones."""

    @pytest.fixture
    def tuned(self, be, rng):
        be.bsz = N

        def tune(batches):
            x = rng.normal(2.0, 3.0, size=(batches * N, 4))
            data = ArrayIterator(x, x, make_onehot=False)
            model = Model([BatchNorm(rho=0.9)])
            model.initialize(data, GeneralizedCost(SumSquared()))
            layer = model.layers.layers[0]
            layer.gmean[:], layer.gvar[:] = 100.0, 100.0
            BatchNormTuneCallback(data).on_epoch_end(None, model, 0)
            assert layer.rho == 0.9
            return x.reshape(batches, N, 4), layer

        return tune

    def test_the_means_over_the_minibatches(self, tuned):
        x, layer = tuned(5)
        np.testing.assert_allclose(layer.gmean.get()[:, 0], x.mean(axis=(0, 1)), rtol=1e-4)
        np.testing.assert_allclose(layer.gvar.get()[:, 0], x.var(axis=1).mean(axis=0) * 5 / 4, rtol=1e-4)

    def test_defect_44_a_single_minibatch(self, tuned):
        x, layer = tuned(1)
        np.testing.assert_allclose(layer.gvar.get()[:, 0], x.var(axis=(0, 1)), rtol=1e-4)

    def test_a_network_without_batch_normalization_is_left_alone(self, be, data):
        model = Model([Affine(3, GlorotUniform(), activation=Softmax())])
        fit(model, data, BatchNormTuneCallback(None))  # no data set, as none is needed
        assert model.epoch_index == 1
