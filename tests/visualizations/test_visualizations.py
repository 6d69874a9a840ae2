"""Records of callbacks, as numbers to plot and as a page."""

from __future__ import annotations

import io
import sys

import h5py
import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, MissingExtra
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Softmax
from neonlike.visualizations import figure, nvis
from neonlike.visualizations.data import (
    convert_rgb_to_bokehrgba,
    create_epoch_x,
    create_minibatch_x,
    h5_cost_data,
    h5_deconv_data,
    h5_hist_data,
)
from neonlike.visualizations.page import png

N = 8
MARKERS = [4, 6, 0]
"""Two epochs of 4 and 2 minibatches, and one that was not reached."""


class TestAxes:
    """Where values stand."""

    def test_minibatches(self):
        np.testing.assert_allclose(create_minibatch_x(6, MARKERS, True), [0, 0.25, 0.5, 0.75, 1, 1.5])
        np.testing.assert_allclose(create_minibatch_x(7, MARKERS, True)[6], 2, err_msg="of an epoch in progress")
        np.testing.assert_array_equal(create_minibatch_x(6, MARKERS, False), np.arange(6))

    def test_epochs(self):
        np.testing.assert_allclose(create_epoch_x(2, 1, MARKERS, True), [0.75, 1.5])
        np.testing.assert_array_equal(create_epoch_x(2, 1, MARKERS, False), [3, 5])
        np.testing.assert_array_equal(create_epoch_x(1, 2, MARKERS, False), [5])
        np.testing.assert_array_equal(create_epoch_x(1, [1], MARKERS, False), [5])

    def test_epochs_before_the_record(self):
        markers = [0, 0, 2, 4, 0]  # of a training that goes on after two epochs elsewhere
        np.testing.assert_allclose(create_minibatch_x(4, markers, True), [2, 2.5, 3, 3.5])
        np.testing.assert_allclose(create_epoch_x(4, 1, markers, True), [0, 1, 2.5, 3.5])
        np.testing.assert_array_equal(create_epoch_x(4, 1, markers, False), [0, 0, 1, 3])

    def test_no_epoch(self):
        with pytest.raises(ArgumentError, match="nothing to plot"):
            create_epoch_x(1, 1, [0, 0], True)


@pytest.fixture
def metrics(be, rng, tmp_path):
    """A file of a training of two epochs, of three that were asked for."""
    be.bsz = N
    data = ArrayIterator(rng.normal(size=(3 * N, 4)), rng.integers(2, size=3 * N), nclass=2)
    model = Model([Affine(2, GlorotUniform(), activation=Softmax())])
    path = str(tmp_path / "m.h5")
    callbacks = Callbacks(model, output_file=path, eval_set=data, eval_freq=1, progress_bar=False)
    callbacks.add_hist_callback(filter_key=["W"])
    callbacks.add_early_stop_callback(lambda state, loss: ((state or 0) + 1, state == 1))
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), 3, callbacks)
    assert model.epoch_index == 2
    return path


class TestFile:
    """Contents read from a file."""

    def test_costs(self, metrics):
        found = {name: (x, y) for name, x, y in h5_cost_data(metrics)}
        assert sorted(found) == ["loss", "train"]
        x, y = found["train"]
        np.testing.assert_allclose(x, np.arange(6) / 3)
        with h5py.File(metrics) as file:
            np.testing.assert_array_equal(y, file["cost/train"][:6])
            np.testing.assert_array_equal(found["loss"][1], file["cost/loss"][:2])
        np.testing.assert_allclose(found["loss"][0], [2 / 3, 5 / 3])
        assert h5_cost_data(metrics, epoch_axis=False)[0][1].tolist() == [2, 5]

    def test_histograms(self, metrics):
        ((name, counts, height, width, bins, offset),) = h5_hist_data(metrics)
        assert name.endswith("_W") and counts.shape == (64, 3)
        assert (height, width, bins, offset) == (64, 3, 64, -48)
        assert h5_hist_data(metrics, epoch_axis=False)[0][3] == 9

    def test_without_pictures(self, metrics):
        assert h5_deconv_data(metrics) == []

    def test_another_file(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["a"] = 1
        with pytest.raises(ArgumentError, match=r"x\.h5: not written by"):
            h5_cost_data(tmp_path / "x.h5")


def test_pictures_for_bokeh():
    picture = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    made = convert_rgb_to_bokehrgba(picture)
    assert made.shape == (4, 2) and made.dtype == np.uint32
    assert made[0, 0].tobytes() == bytes([18, 19, 20, 255])
    assert convert_rgb_to_bokehrgba(picture, downsample=2).shape == (2, 1)
    for wrong in (picture[..., 0], picture.astype(float), [1]):
        with pytest.raises(ArgumentError, match="uint8"):
            convert_rgb_to_bokehrgba(wrong)


class TestPage:
    """The command nvis."""

    @pytest.mark.parametrize("axis", ["epoch", "minibatch"])
    def test_a_page(self, metrics, tmp_path, capsys, axis):
        assert nvis.main(["-i", metrics, "-o", str(tmp_path / "out" / "page"), "--axis", axis]) == 0
        path = tmp_path / "out" / "page" / "index.html"
        assert capsys.readouterr().out.strip() == str(path)
        text = path.read_text(encoding="utf-8")
        assert text.count("<polyline") == 2 and f">{axis}<" in text and "_W</h3>" in text
        assert "http" not in text, "the page needs nothing else"

    def test_a_file_that_is_not_there(self, tmp_path, capsys):
        assert nvis.main(["-i", str(tmp_path / "none.h5"), "-o", str(tmp_path)]) == 1
        assert capsys.readouterr().err.startswith("nvis: ")

    def test_a_png_is_one(self, rng):
        image = pytest.importorskip("PIL.Image")
        pixels = rng.integers(256, size=(3, 5, 3)).astype(np.uint8)
        np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(png(pixels)))), pixels)
        np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(png(pixels[..., :1])))), pixels[..., 0])


class TestFigures:
    """bokeh's figures."""

    def test_a_summary_of_a_deconvolution(self, metrics, tmp_path, rng):
        image = rng.integers(0, 255, (4, 4, 3)).astype(np.uint8)
        layers = [("conv_1", [(0, image, image), (3, image, image)])]
        path = figure.deconv_summary_page(tmp_path / "page.html", h5_cost_data(metrics), layers)
        text = (tmp_path / "page.html").read_text()
        assert path == str(tmp_path / "page.html") and text.count("<img") == 4 and "feature map 3" in text
        assert "<polyline" in text and figure.x_label(True) in text and figure.x_label(False) == "Minibatch"

    def test_without_bokeh(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "bokeh.plotting", None)
        with pytest.raises(MissingExtra, match=r"neonlike\[viz\]"):
            figure.cost_fig([], 100, 100)

    def test_with_bokeh(self, metrics):
        pytest.importorskip("bokeh")
        costs = figure.cost_fig(h5_cost_data(metrics), 200, 300)
        assert len(costs.renderers) == 2 and costs.xaxis.axis_label == "Epoch"
        histogram = figure.hist_fig(h5_hist_data(metrics, False)[0], 200, 300, costs.x_range, epoch_axis=False)
        assert histogram.x_range is costs.x_range and len(histogram.renderers) == 1
        picture = np.zeros((4, 5, 3), np.uint8)
        ((number, *pair),) = figure.deconv_figs("0001", [(3, picture, picture[..., :1])], plot_size=50)
        assert number == 3 and all(one.height == 50 for one in pair)
