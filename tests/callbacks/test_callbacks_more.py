"""Callbacks that print measures, and the one that tunes batch normalization."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from neonlike.callbacks.callbacks import (
    BatchNormTuneCallback,
    Callbacks,
    DeconvCallback,
    MultiLabelStatsCallback,
    WatchTickerCallback,
)
from neonlike.data import ArrayIterator, CopyTask, Ticker
from neonlike.errors import ArgumentError
from neonlike.initializers import Constant, Gaussian, GlorotUniform
from neonlike.layers import Activation, Affine, BatchNorm, Convolution, GeneralizedCost, Linear, Pooling
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, PrecisionRecall, Rectlin, Softmax, SumSquared
from neonlike.visualizations import nvis
from neonlike.visualizations.data import h5_deconv_data
from tests.callbacks import training
from tests.callbacks.training import N


@pytest.fixture
def data(be, rng):
    be.bsz = N
    x = rng.normal(size=(4 * N, 4))
    return ArrayIterator(x, rng.integers(3, size=4 * N), nclass=3)


def fit(model, data, callback, epochs=1):
    callbacks = Callbacks(model, progress_bar=False, serialize=None)
    callbacks.add_callback(callback)
    training.fit(model, data, callbacks, epochs)


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
        # The outputs say 0 1 2 0 1 2 0 1 2 0 1, in two batches: counts are added over both.
        expected = np.rint(100 * np.array([[4 / 4, 4 / 5], [3 / 4, 3 / 3], [2 / 3, 2 / 3]]))
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


class Fixed(Ticker):
    """A minibatch of sequences of three steps, of which two count."""

    def __iter__(self):
        be = self.be
        values = np.arange(2 * 3 * N).reshape(2, 3 * N) / 10
        mask = np.repeat([[1.0, 1.0, 0.0]], N, axis=1)
        yield be.array(values), (be.array(np.full((1, 3 * N), 1.0)), be.array(mask))


class TestWatchTicker:
    """A minibatch of a made-up task."""

    def test_the_steps_of_the_first_sequence(self, be, data, capsys):
        ticker = Fixed(CopyTask(2, 3))
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


class TestDeconv:
    """Patterns to which feature maps respond."""

    @pytest.fixture
    def network(self, be, rng, tmp_path):
        be.bsz = N
        images = rng.normal(size=(2 * N, 1, 5, 5))
        data = ArrayIterator(images.reshape(2 * N, -1), rng.integers(2, size=2 * N), nclass=2, lshape=(1, 5, 5))
        init = Gaussian(scale=0.5)
        model = Model([
            Convolution((2, 2, 3), init=init), Activation(Rectlin()), Pooling(2),
            Convolution((2, 2, 2), init=init), Activation(Rectlin()), Affine(2, init, activation=Softmax()),
        ])  # fmt: skip
        callbacks = Callbacks(model, progress_bar=False, output_file=str(tmp_path / "m.h5"))
        callbacks.add_deconv_callback(data, data, max_fm=2, dataset_pct=100)
        cost, optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.01, 0.0)
        model.fit(data, cost, optimizer, 1, callbacks)
        weights = [
            layer.W.get().reshape(channels, 2, 2, -1).astype(float)
            for channels, layer in zip((1, 3), model.layers.layers[0:4:3], strict=True)
        ]
        with h5py.File(tmp_path / "m.h5") as store:
            yield images, weights, store

    def test_the_strongest_responses(self, network):
        images, (first, second), store = network
        for number, maps in ((0, self.forward(images, first)[0]), (3, self.forward(images, first, second)[2])):
            group = store[f"deconv/max_act/{number:04}"]
            flat = maps[:, :2].reshape(2 * N, 2, -1)
            for fm in range(2):
                image, place = np.unravel_index(flat[:, fm].argmax(), flat[:, fm].shape)
                assert group["batch_img"][fm].tolist() == [image // N, image % N]
                assert group["fm_loc"][fm].tolist() == [place]
                np.testing.assert_allclose(group["activation"][fm], flat[image, fm, place], rtol=1e-4)

    def test_the_pixels_that_they_come_from(self, network):
        images, (first, second), store = network
        group = store["deconv/max_act/0003"]
        assert group["activation"][...].max() > 0
        for fm in range(2):
            batch, n = group["batch_img"][fm].tolist()
            image = images[batch * N + n]
            relu, pooled, _ = (one[0] for one in self.forward(image[None], first, second))
            # The second convolution has one place: its error is W · response, positive parts of which go back.
            error = np.maximum(second[..., fm] * group["activation"][fm, 0], 0)
            inner = np.zeros_like(relu)
            for c, i, j in np.ndindex(*pooled.shape):
                window = relu[c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
                at = np.unravel_index(window.argmax(), (2, 2))
                inner[c, 2 * i + at[0], 2 * j + at[1]] = error[c, i, j]
            inner = np.maximum(inner, 0) * (relu > 0)
            pixels = np.zeros((5, 5))
            for c, i, j in np.ndindex(*inner.shape):
                pixels[i : i + 2, j : j + 2] += inner[c, i, j] * first[0, :, :, c]
            expected = 255 * (pixels - pixels.min()) / max(np.ptp(pixels), 1e-30)
            np.testing.assert_allclose(group["vis"][fm, :, :, 0], expected, atol=0.51)
            stored = store[f"deconv/img/batch_{batch}/HWC_uint8"]
            shown = stored[..., list(stored.attrs["images"]).index(n)][..., 0]
            np.testing.assert_allclose(shown, 255 * (image[0] - image.min()) / np.ptp(image), atol=0.51)

    def test_they_are_shown(self, network, tmp_path):
        store = network[2]
        path = store.filename
        found = dict(h5_deconv_data(path))
        assert sorted(found) == ["0000", "0003"]
        fm, image, response = found["0003"][1]
        assert fm == 1 and image.shape == (5, 5, 1)
        np.testing.assert_array_equal(response, store["deconv/max_act/0003/vis"][1])
        assert nvis.main(["-i", path, "-o", str(tmp_path)]) == 0
        text = (tmp_path / "index.html").read_text(encoding="utf-8")
        assert text.count("<img") == 2 * 2 * 2 and "layer 0003" in text

    @staticmethod
    def forward(images, first, second=None):
        """Outputs of the rectifiers, and of the pooling between them, as loops over the windows."""

        def convolved(x, w):
            size = x.shape[2] - 1
            out = np.empty((len(x), w.shape[3], size, size))
            for i, j in np.ndindex(size, size):
                out[:, :, i, j] = np.tensordot(x[:, :, i : i + 2, j : j + 2], w, 3)
            return np.maximum(out, 0)

        relu = convolved(images, first)
        pooled = relu.reshape(*relu.shape[:2], 2, 2, 2, 2).max(axis=(3, 5))
        return relu, pooled, None if second is None else convolved(pooled, second)

    def test_a_network_without_images_says_so(self, be, data, caplog):
        model = Model([Affine(3, GlorotUniform(), activation=Softmax())])
        fit(model, data, DeconvCallback(data, data))
        assert "no convolution of images" in caplog.text

    @pytest.mark.parametrize("arguments", [{"max_fm": 0}, {"dataset_pct": 0}, {"dataset_pct": 101}])
    def test_unusable_arguments(self, be, data, arguments):
        with pytest.raises(ArgumentError, match="DeconvCallback"):
            DeconvCallback(data, data, **arguments)


def test_they_come_back_from_their_descriptions(be, data):
    model = Model([Affine(3, GlorotUniform(), activation=Softmax())])
    ticker = Fixed(CopyTask(2, 3))
    callbacks = Callbacks(model, progress_bar=False)
    callbacks.add_watch_ticker_callback(ticker)
    callbacks.add_deconv_callback(data, data, max_fm=3)
    callbacks.add_callback(BatchNormTuneCallback(data, epoch_freq=2))
    callbacks.add_callback(MultiLabelStatsCallback(data, ["a", "b", "c"], PrecisionRecall(3)))
    again = Callbacks.load_callbacks(callbacks.serialize(), model, data=[data, ticker])
    ticking, deconv, tune, stats = again.callbacks[-4:]
    assert ticking.valid_set is ticker and deconv.valid_set is data and deconv.max_fm == 3
    assert tune.tune_set is data and tune.epoch_freq == 2
    assert stats.labels == ["a", "b", "c"] and stats.metric.num_classes == 3
