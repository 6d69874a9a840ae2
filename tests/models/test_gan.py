"""Generative adversarial networks: the container, the cost layer, and how a GAN is trained."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from neonlike.benchmark import Benchmark
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import GANCostCallback
from neonlike.callbacks.plotting_callbacks import GANPlotCallback
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError, NotDefined, ShapeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, GeneralizedCost, GeneralizedGANCost, Linear, MergeSum, Recurrent, Sequential
from neonlike.layers.container import GenerativeAdversarial
from neonlike.models import GAN, Model
from neonlike.nervanaobject import build
from neonlike.optimizers import Adam, GradientDescentMomentum, RMSProp
from neonlike.transforms import CrossEntropyBinary, GANCost, Identity, Logistic, Rectlin
from neonlike.util.png import encode_png, grid

N, NOISE, DATA = 4, 3, 2
pytestmark = pytest.mark.samples(N)


def networks(last=None):
    generator = Linear(DATA, Gaussian(scale=0.5))
    discriminator = Affine(1, Gaussian(scale=0.5), bias=Constant(0.1), activation=last or Logistic())
    return GenerativeAdversarial([generator], discriminator)


def data_of(rng, count=4 * N):
    return rng.normal(size=(count, DATA))


class Fixed(GAN):
    """A GAN with noise that is known beforehand."""

    def fill_noise(self, z, normal=True):
        """The next of the given batches of noise."""
        z[:] = self.be.array(self.noise.pop(0))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FORMULAS = {
    "original": (lambda y: -1 / y, lambda y: 1 / (1 - y), lambda y: 1 / (y - 1)),
    "modified": (lambda y: -1 / y, lambda y: 1 / (1 - y), lambda y: -1 / y),
    "wasserstein": (np.ones_like, lambda y: -np.ones_like(y), np.ones_like),
}


class TestTiming:
    """Benchmark.time_gan."""

    def test_minibatches_and_layers_are_timed(self, be, rng):
        model = GAN(networks(), noise_dim=NOISE, k=2)
        model.cost, model.optimizer = GeneralizedGANCost(GANCost()), GradientDescentMomentum(0.1, 0.0)
        data = ArrayIterator(data_of(rng), lshape=DATA)
        model.initialize(data, model.cost)
        before = [layer.W.get() for layer in model.layers_to_optimize]
        times = Benchmark(model).time_gan(data, niterations=6)
        assert len(times["iteration"]) == len(times["data_loading"]) == 6 and "fprop" not in times
        assert (model.current_batch, model.gen_iter) == (6, 3)
        generator, *_, last = model.layers.layers
        # six times for the discriminator, three for itself
        assert len(times[f"fprop {generator.name}"]) == 9 and len(times[f"bprop {generator.name}"]) == 3
        assert len(times[f"fprop {last.name}"]) == 15
        assert all((now.W.get() != old).any() for now, old in zip(model.layers_to_optimize, before, strict=True))

    def test_it_is_for_a_gan_with_cost_and_optimizer(self, be, rng):
        data = ArrayIterator(data_of(rng), lshape=DATA)
        with pytest.raises(DTypeError, match="use time"):
            Benchmark(Model([Linear(2, Gaussian())])).time_gan(data)
        with pytest.raises(RuntimeError, match="a cost and an optimizer"):
            Benchmark(GAN(networks(), noise_dim=NOISE)).time_gan(data)
        with pytest.raises(ValueError, match="at least one iteration"):
            Benchmark(GAN(networks(), noise_dim=NOISE)).time_gan(data, niterations=0)


class TestTraining:
    """One minibatch, and many."""

    @pytest.mark.parametrize("func", FORMULAS)
    def test_a_minibatch_as_written_out(self, be64, rng, func):
        last = Identity() if func == "wasserstein" else Logistic()
        f, slope = (lambda x: x, np.ones_like) if func == "wasserstein" else (sigmoid, lambda y: y * (1 - y))
        of_data, of_noise, of_generator = FORMULAS[func]
        x = data_of(rng, N)
        model = Fixed(networks(last), noise_dim=NOISE)
        noise = [rng.normal(size=(NOISE, N)) for _ in range(3)]
        model.noise = [*noise]
        cost, rate = GeneralizedGANCost(GANCost(func=func)), 0.3
        dataset = ArrayIterator(x, lshape=DATA)
        model.initialize(dataset, cost)
        G, D, b = (layer.W.get() for layer in model.layers_to_optimize)
        model.fit(dataset, cost, GradientDescentMomentum(rate, 0.0), num_epochs=1)

        made, real = G @ noise[1], np.asarray(x.T, np.float32).astype(np.float64)
        y_noise, y_data = f(D @ made + b), f(D @ real + b)
        e_noise, e_data = of_noise(y_noise) * slope(y_noise), of_data(y_data) * slope(y_data)
        if func == "wasserstein":
            expected = np.mean(y_data - y_noise)
        else:
            expected = np.mean(-np.log(y_data) - np.log(1 - y_noise))
        assert model.cost_dis.item() == pytest.approx(expected, rel=1e-5)
        D = D - rate * (e_noise @ made.T + e_data @ real.T) / N
        b = b - rate * (e_noise + e_data).sum(axis=1, keepdims=True) / N
        y = f(D @ (G @ noise[2]) + b)
        G = G - rate * (D.T @ (of_generator(y) * slope(y))) @ noise[2].T / N
        for layer, value in zip(model.layers_to_optimize, (G, D, b), strict=True):
            np.testing.assert_allclose(layer.W.get(), value, rtol=1e-6)
        assert model.total_cost.item() == pytest.approx(expected, rel=1e-5)
        assert (model.gen_iter, model.current_batch, model.last_gen_batch) == (1, 1, 1)
        np.testing.assert_allclose(model.data_batch.get(), real)
        np.testing.assert_allclose(model.noise_batch.get(), G @ noise[0], rtol=1e-6)

    def test_it_learns_where_the_data_are(self, be):
        be.bsz = 32
        rng = np.random.default_rng(0)
        data = rng.normal(size=(320, 2)) * 0.2 + [2.0, -1.0]
        generator = Sequential([Affine(8, Gaussian(scale=0.3), bias=Constant(0), activation=Rectlin(0.1)),
                                Affine(2, Gaussian(scale=0.3), bias=Constant(0))])  # fmt: skip
        discriminator = [Affine(12, Gaussian(scale=0.3), bias=Constant(0), activation=Rectlin(0.1)),
                         Affine(1, Gaussian(scale=0.3), bias=Constant(0), activation=Logistic())]  # fmt: skip
        model = GAN(GenerativeAdversarial(generator, discriminator), noise_dim=(2,))
        callbacks = Callbacks(model, progress_bar=False)
        callbacks.add_callback(GANCostCallback())
        cost = GeneralizedGANCost(GANCost(func="modified"))
        model.fit(ArrayIterator(data, lshape=2), cost, Adam(learning_rate=0.01), 30, callbacks)
        made = model.noise_batch.get()
        assert np.abs(made.mean(axis=1) - [2.0, -1.0]).max() < 0.6
        recorded = callbacks.callback_data
        assert recorded["gan/cost_dis"].shape == (300,) and recorded["gan/gen_iter"][-1] == 300
        assert recorded["gan/cost_dis"][-1] == pytest.approx(model.cost_dis.item(), rel=1e-6)
        assert recorded["gan/cost_dis"][-10:].mean() == pytest.approx(model.total_cost.item(), rel=1e-5)
        assert recorded["gan/cost_dis"].attrs["time_markers"] == "minibatch"

    def test_the_generator_is_trained_after_k_updates(self, be, rng):
        model = GAN(networks(), NOISE, noise_type="uniform", k=3)
        data = ArrayIterator(data_of(rng, 8 * N), lshape=DATA)
        weights = []

        class Watch(GANCostCallback):
            def on_minibatch_end(self, callback_data, model, epoch, minibatch):
                weights.append(model.layers.layers[0].W.get())

        callbacks = Callbacks(model, progress_bar=False)
        callbacks.add_callback(Watch())
        model.fit(data, GeneralizedGANCost(GANCost()), RMSProp(), 1, callbacks)
        changed = [i for i in range(1, 8) if (weights[i] != weights[i - 1]).any()]
        assert changed == [2, 5] and model.gen_iter == 2
        noise = model.zbuf.get()
        assert -1 <= noise.min() < -0.2 and 0.2 < noise.max() <= 1

    def test_the_schedule_of_wasserstein(self, be):
        model = GAN(networks(), NOISE, k=5, wgan_train_sched=True)
        assert [model.get_k(i) for i in (0, 24, 25, 499, 500, 501)] == [100, 100, 5, 5, 100, 5]
        assert GAN(networks(), NOISE, k=5).get_k(0) == 5

    def test_parameters_are_clipped_before_each_minibatch(self, be, rng):
        model = GAN(networks(Identity()), NOISE, wgan_param_clamp=0.05)
        data = ArrayIterator(data_of(rng, N), lshape=DATA)
        model.fit(data, GeneralizedGANCost(GANCost(func="wasserstein")), GradientDescentMomentum(0.0, 0.0), 1)
        generator, *discriminator = (layer.W.get() for layer in model.layers_to_optimize)
        assert all(np.abs(W).max() <= np.float32(0.05) for W in discriminator) and np.abs(generator).max() > 0.05
        model.clip_param_in_layers(model.layers_to_optimize, None)
        np.testing.assert_array_equal(model.layers_to_optimize[0].W.get(), generator)

    def test_a_training_in_two_parts_equals_one(self, be, rng, tmp_path):
        x = data_of(rng, 5 * N)

        def train(model, epochs):
            model.fit(ArrayIterator(x, lshape=DATA), GeneralizedGANCost(GANCost()), Adam(), epochs)
            return [layer.W.get() for layer in model.layers_to_optimize]

        def fresh():
            be.rng_reset()
            return GAN(networks(), NOISE, k=2)

        whole = train(fresh(), 3)
        first = fresh()
        train(first, 1)
        first.save_params(path := str(tmp_path / "gan.p"))
        be.rng_reset()
        second = GAN(path, NOISE, k=2)
        for a, b in zip(train(second, 3), whole, strict=True):
            np.testing.assert_array_equal(a, b)
        assert second.gen_iter == 7 and second.current_batch == 15


class TestContainer:
    """Two networks in one."""

    def test_gradients_add_up_in_branches_of_the_discriminator(self, be64, rng):
        inner = [Affine(3, Gaussian(), bias=Constant(0.1)), Linear(3, Gaussian())]
        both = GenerativeAdversarial(Linear(DATA, Gaussian()), [MergeSum(inner), Linear(1, Gaussian())])
        both.configure(NOISE)
        both.allocate()
        both.allocate_deltas()
        x, e = be64.array(rng.normal(size=(NOISE, N))), be64.array(rng.normal(size=(1, N)))
        both.fprop(x)
        both.discriminator.bprop(e)
        once = [layer.dW.get() for layer in both.discriminator.layers_to_optimize]
        both.discriminator.set_acc_on(True)
        both.discriminator.bprop(e)
        both.discriminator.set_acc_on(False)
        assert len(once) == 4
        for layer, gradient in zip(both.discriminator.layers_to_optimize, once, strict=True):
            np.testing.assert_allclose(layer.dW.get(), 2 * gradient, rtol=1e-10)
        recurrent = GenerativeAdversarial(Linear(DATA, Gaussian()), Recurrent(1, Gaussian(), activation=Logistic()))
        with pytest.raises(BufferError, match="cannot add up"):
            recurrent.configure(NOISE).allocate()

    def test_its_networks_and_their_layers(self, be):
        both = networks()
        assert isinstance(both.generator, Sequential) and both.layers == [
            *both.generator.layers, *both.discriminator.layers
        ]  # fmt: skip
        both.configure(NOISE)
        both.allocate()
        both.allocate_deltas()
        assert both.generator.out_shape == (DATA, 1) and both.discriminator.in_shape == (DATA, 1)
        assert both.out_shape == both.discriminator.out_shape == (1, 1)
        assert both.discriminator.deltas is both.discriminator.layers[0].deltas is not None
        assert both.generator.deltas is None
        text = both.nested_str().splitlines()
        assert len(text) == 7 and text[1].startswith("  Sequential") and text[2].startswith("    Linear")

    def test_descriptions_rebuild_it_with_its_weights(self, be, rng):
        both = networks()
        both.configure(NOISE)
        both.allocate()
        described = both.get_description(get_weights=True)
        again = build(described)
        again.configure(NOISE)
        again.allocate()
        again.load_weights(described)
        x = be.array(rng.normal(size=(NOISE, N)))
        np.testing.assert_array_equal(again.fprop(x).get(), both.fprop(x).get())
        assert len(again.generator.layers) == 1 and len(again.discriminator.layers) == 3

    def test_the_cost_layer(self, be64, rng):
        cost = GeneralizedGANCost(GANCost(cost_type="gen"))
        with pytest.raises(ArgumentError, match="initialize"):
            cost.get_cost(be64.ones((1, N)), be64.ones((1, N)))
        cost.initialize(Linear(1, Gaussian()).configure(2))
        a, b = rng.uniform(0.1, 0.9, size=(2, 1, N))
        data, noise = be64.array(a), be64.array(b)
        assert cost.get_cost(data, noise, "dis").item() == pytest.approx(np.mean(-np.log(a) - np.log(1 - b)), rel=1e-5)
        assert cost.get_cost(data, noise, "dis_data").item() == pytest.approx(np.mean(-np.log(a)), rel=1e-5)
        assert cost.get_cost(None, noise, "dis_noise").item() == pytest.approx(np.mean(-np.log(1 - b)), rel=1e-5)
        assert cost.get_cost(data, noise).item() == pytest.approx(np.mean(-np.log(b)), rel=1e-5) == cost.cost.item()
        with pytest.raises(NotDefined, match="bprop_generator"):
            cost.get_errors(data, noise)
        with pytest.raises(DTypeError, match="GANCost"):
            GeneralizedGANCost(CrossEntropyBinary())

    def test_wrong_arguments(self, be, rng):
        with pytest.raises(ArgumentError, match=r"gauss.*normal, uniform"):
            GAN(networks(), NOISE, noise_type="gauss")
        with pytest.raises(ArgumentError, match="k=0"):
            GAN(networks(), NOISE, k=0)
        with pytest.raises(DTypeError, match="GenerativeAdversarial"):
            GAN([Linear(2, Gaussian())], NOISE)
        model, data = GAN(networks(), NOISE), ArrayIterator(rng.normal(size=(N, DATA + 1)), lshape=DATA + 1)
        with pytest.raises(DTypeError, match="GeneralizedGANCost"):
            model.fit(data, GeneralizedCost(CrossEntropyBinary()), Adam(), 1)
        with pytest.raises(ShapeError, match=r"\(2, 1\).*3"):
            model.fit(data, GeneralizedGANCost(GANCost()), Adam(), 1)
        plain = Model([Linear(2, Gaussian())])
        with pytest.raises(DTypeError, match="GAN"):
            callbacks = Callbacks(plain, progress_bar=False)
            callbacks.add_callback(GANCostCallback())
            plain.fit(ArrayIterator(data_of(rng), data_of(rng), make_onehot=False, lshape=2),
                      GeneralizedCost(CrossEntropyBinary()), Adam(), 1, callbacks)  # fmt: skip


def read_png(data):
    """Width, height, colour type, dots per metre and pixels of a PNG file without filters."""
    assert data[:8] == bytes([137, 80, 78, 71, 13, 10, 26, 10])
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        body = data[at + 4 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(body)
        chunks[body[:4]] = body[4:]
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"pHYs", b"IDAT", b"IEND"]
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8 and colour in (0, 2)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert (rows[:, 0] == 0).all()
    pixels = rows[:, 1:].reshape((height, width, 3) if colour else (height, width))
    return pixels, struct.unpack(">I", chunks[b"pHYs"][:4])[0]


class TestPictures:
    """Grids of images in files."""

    def test_files_of_an_epoch(self, be, rng, tmp_path):
        model = GAN(GenerativeAdversarial(Linear(4, Gaussian()), Affine(1, Gaussian(), activation=Logistic())), NOISE)
        x = rng.uniform(-1, 1, size=(2 * N, 4))
        callbacks = Callbacks(model, progress_bar=False)
        name = tmp_path / "folder" / "digits"
        callbacks.add_callback(
            GANPlotCallback(str(name), hw=2, num_samples=3, sym_range=True, padding=1, plot_width=30, plot_height=20)
        )
        model.fit(ArrayIterator(x, lshape=4), GeneralizedGANCost(GANCost()), Adam(), 2, callbacks)
        files = sorted(path.name for path in name.parent.iterdir())
        pictures = [f"digits_{kind}_{epoch:03}.png" for kind in ("data", "noise") for epoch in (0, 1)]
        assert files == [*pictures, "digits_training.png"]
        pixels, per_metre = read_png((name.parent / "digits_data_001.png").read_bytes())
        assert pixels.shape == (14, 14) and per_metre == round(60 / 0.0254)
        small = pixels[::2, ::2]  # enlarged twice, to fit into 20 pixels
        np.testing.assert_array_equal(small.repeat(2, 0).repeat(2, 1), pixels)
        values = np.rint((np.float64(model.data_batch.get()).T.reshape(-1, 2, 2) + 1) / 2 * 255)
        for i, (top, left) in enumerate([(1, 1), (1, 4), (4, 1)]):
            np.testing.assert_array_equal(small[top : top + 2, left : left + 2], values[i])
        assert (small[4:6, 4:6] == 0).all() and (small[[0, 3, 6]] == 0).all()
        noise, _ = read_png((name.parent / "digits_noise_001.png").read_bytes())
        expected = (model.noise_batch.get()[0, 0].clip(-1, 1) + 1) / 2 * 255
        assert abs(float(noise[2, 2]) - expected) <= 0.5001

    def test_the_course_of_a_training_of_one_epoch(self, be, rng, tmp_path):
        model = GAN(networks(), NOISE)
        callbacks, name = Callbacks(model, progress_bar=False), tmp_path / "course"
        callback = GANPlotCallback(str(name), hw=1, nchan=3, plot_width=120, plot_height=80)
        callback.on_train_begin = lambda *given: setattr(callback, "_course", [])  # images of another size
        callback.picture = lambda batch: np.zeros((2, 2), np.uint8)
        callbacks.add_callback(callback)
        model.fit(ArrayIterator(data_of(rng), lshape=DATA), GeneralizedGANCost(GANCost()), Adam(), 1, callbacks)
        pixels, _ = read_png((tmp_path / "course_training.png").read_bytes())
        assert pixels.shape == (80, 120, 3)
        assert (pixels == (31, 119, 180)).all(axis=2).sum() > 20, "a blue line"
        callback._course = [(0, np.nan)]
        assert (callback.training_picture() == 255).all()

    def test_colours(self, tmp_path):
        Image = pytest.importorskip("PIL.Image")
        values = np.arange(2 * 3 * 16, dtype=np.float64).reshape(2, 3 * 16).T / 96
        callback = GANPlotCallback("unused", hw=4, nchan=3, num_samples=8, padding=0, plot_width=1, plot_height=1)
        picture = callback.picture(values)
        assert picture.shape == (4, 8, 3)
        assert picture[1, 6].tolist() == np.rint(values[[6, 22, 38], 1] * 255).tolist()
        (tmp_path / "colours.png").write_bytes(encode_png(picture, dpi=100))
        with Image.open(tmp_path / "colours.png") as image:
            np.testing.assert_array_equal(np.asarray(image), picture)

    def test_wrong_arguments(self, be, rng):
        with pytest.raises(ArgumentError, match="nchan=2"):
            GANPlotCallback("x", nchan=2)
        with pytest.raises(ArgumentError, match="num_samples=0"):
            GANPlotCallback("x", num_samples=0)
        model = GAN(networks(), NOISE)
        callbacks = Callbacks(model, progress_bar=False)
        callbacks.add_callback(GANPlotCallback("x", hw=2))
        with pytest.raises(ShapeError, match="4 values"):
            model.fit(ArrayIterator(data_of(rng), lshape=DATA), GeneralizedGANCost(GANCost()), Adam(), 1, callbacks)
        for image in (np.zeros((2, 2)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 2), np.uint8)):
            with pytest.raises(ShapeError, match="encode_png"):
                encode_png(image)
        assert grid(np.ones((1, 2, 3), np.uint8), 0, 2, 2).shape == (2, 3)
