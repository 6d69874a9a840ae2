"""Convolutional networks as a whole: gradients, folding of layers into each other, training, saving and loading."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.initializers import Constant, Gaussian, Kaiming, Uniform
from neonlike.layers import (
    Activation,
    Affine,
    Bias,
    BranchNode,
    Conv,
    Convolution,
    Dropout,
    GeneralizedCost,
    Pooling,
    Sequential,
)
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Logistic, Misclassification, Rectlin, Softmax, Tanh
from tests.layers.layering import check_gradients, gradient_pairs, ready, tensor

N = 4
pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(N)]


def layers(slope=0.0):
    return [
        Conv((3, 3, 4), Gaussian(), padding=1, batch_norm=True, activation=Rectlin()),
        Pooling(2),
        Conv((2, 2, 3), Gaussian(), bias=Uniform(), activation=Rectlin(slope)),
        Pooling(2, "avg", strides=1),
        Affine(5, Gaussian(), bias=Uniform(), activation=Tanh()),
        Affine(3, Gaussian(), batch_norm=True, activation=Logistic()),
    ]


@pytest.mark.parametrize("folds", [True, False])
def test_gradients_of_a_network(be64, rng, folds):
    net = Sequential(layers(slope=0.25))
    net.folds = folds
    check_gradients(ready(net, (2, 6, 8)), rng.normal(size=(96, N)), rng, rtol=1e-5)


class TestFolding:
    """Layers computed in one call give the results of separate layers."""

    def test_which_layers_fold(self, be):
        net = Sequential(layers())
        net.configure((2, 6, 8))
        folded = {layer.name.partition("_")[0]: len(layer.folded) for layer in net.layers if layer.folded}
        assert {type(layer).__name__: len(layer.folded) for layer in net.layers if layer.folded} == {
            "BatchNorm": 1, "Convolution_bias": 1, "Bias": 1,
        }, folded  # fmt: skip
        net.folds = False
        net.configure((2, 6, 8))
        assert not any(layer.folded or layer.folded_into for layer in net.layers)

    def test_a_bias_and_a_rectifier_go_into_one_convolution(self, be64, rng):
        found = []
        for folds in (True, False):
            be64.rng_reset()
            chain = [Convolution((2, 2, 3), init=Gaussian()), Bias(Uniform(-1, 1))]
            net = Sequential([*chain, Conv((1, 1, 2), Gaussian(), activation=Rectlin(0.5))])
            net.folds = folds
            ready(net, (2, 3, 4))
            assert net.layers[0].folded == ((net.layers[1],) if folds else ())
            inputs = tensor(be64, np.linspace(-1, 1, 24 * N).reshape(24, N))
            y = net.fprop(inputs).get().copy()
            net.bprop(tensor(be64, np.linspace(-1, 2, 12 * N).reshape(12, N)))
            found.append([y, *(grad.get().copy() for _, grad in gradient_pairs(net))])
        assert (found[0][0] < 0).any()
        for folded, plain in zip(*found, strict=True):
            np.testing.assert_allclose(folded, plain, rtol=1e-10, atol=1e-12)

    def test_a_finished_tensor_is_so_once(self, be):
        net = ready(Sequential(Affine(2, Gaussian(), bias=Constant(1), activation=Tanh())), 3)
        y = net.fprop(be.ones((3, N))).get().copy()
        np.testing.assert_allclose(net.layers[2].fprop(net.outputs).get(), np.tanh(y), rtol=1e-5)

    def test_parts_of_a_batch_are_rectified_after_a_whole_one(self, be, rng):
        """A product rectifies whole outputs itself, and leaves parts of them to the activation."""
        net = ready(Sequential(Affine(5, Gaussian(), activation=Rectlin())), 3)
        x = rng.normal(size=(3, N))
        wanted = np.maximum(net.layers[0].W.get() @ x, 0)
        for samples in (N, N - 2, N, N - 1):
            net.set_batch_size(samples)
            y = net.fprop(tensor(be, x)).get()[:, :samples]
            np.testing.assert_allclose(y, wanted[:, :samples], rtol=1e-4, atol=1e-5)
        assert net.layers[0].folded and (wanted == 0).any()

    def test_called_on_their_own_layers_do_their_own_work(self, be, rng):
        """A script that calls the layers one by one sees each one's own results, as sums before a rectifier."""
        found, x, last = [], rng.normal(size=(96, N)), rng.normal(size=(3, N))
        for folds in (True, False):
            be.rng_reset()
            net = Sequential(layers())
            net.folds = folds
            ready(net, (2, 6, 8))
            passed, values = tensor(be, x), []
            for layer in net.layers:
                passed = layer.fprop(passed)
                values.append(passed.get().copy())
            error = tensor(be, last)
            for layer in reversed(net.layers):
                error = layer.bprop(error)
                values.append(error.get().copy())
            found.append(values)
        for folded, plain in zip(*found, strict=True):
            np.testing.assert_allclose(folded, plain, rtol=1e-3, atol=1e-4)

    def test_what_does_not_fit_into_one_call(self, be, rng):
        """A convolution that sums its outputs does not rectify them before; one with a bias takes no second one."""
        x = tensor(be, rng.normal(size=(18, N)))
        net = ready(Sequential([Convolution((2, 2, 3), init=Gaussian(), bsum=True), Activation(Rectlin())]), (2, 3, 3))
        y = net.layers[0].fprop(x).get()
        assert (y < 0).any() and net.layers[0].folded == ()
        np.testing.assert_allclose(
            net.layers[0].batch_sum.get(), y.reshape(3, -1).sum(axis=1, keepdims=True), rtol=1e-4
        )
        net = ready(Sequential([*Conv((2, 2, 3), Gaussian(), bias=Constant(2)), Bias(Constant(3))]), (2, 3, 3))
        net.fprop(tensor(be, np.zeros((18, N))))
        np.testing.assert_array_equal(net.outputs.get(), np.full((12, N), 5))

    def test_a_branch_between_two_layers_keeps_them_apart(self, be):
        conv, activation = Conv((2, 2, 3), Gaussian(), activation=Rectlin())
        net = Sequential([conv, BranchNode("between"), activation])
        net.configure((2, 3, 3))
        assert conv.folded == ()

    def test_a_model_explains_what_is_computed_together(self, be):
        model = Model(layers())
        with pytest.raises(ArgumentError, match="initialize"):
            model.explain()
        model.initialize((2, 6, 8))
        lines = model.explain().splitlines()
        assert len(lines) == 1 + len(model.layers.layers)
        said = {layer.name: line for layer, line in zip(model.layers.layers, lines[1:], strict=True)}
        conv, normal, rectifier, pool, biased, second, *_ = (layer.name for layer in model.layers.layers)
        assert "2x6x8 -> 4x6x8" in said[conv] and "sums" not in said[conv]
        assert f"sums the outputs of {conv} in its call" in said[normal]
        assert f"one call with {rectifier} (forward and backward)" in said[normal]
        assert f"computed by {normal}" in said[rectifier] and "|" not in said[pool]
        assert f"one call with {second} (forward); adds its bias" in said[biased]

    def test_inference_and_fewer_samples(self, be, rng):
        net = ready(Sequential([*layers(), Dropout(0.5)]), (2, 6, 8))
        x = rng.normal(size=(96, N))
        net.fprop(tensor(be, x))
        whole = net.fprop(tensor(be, x), inference=True).get().copy()
        np.testing.assert_allclose(net.fprop(tensor(be, x[:, :1]), inference=True).get(), whole[:, :1], rtol=1e-4)

    def test_training_is_the_same(self, be):
        ends = []
        for folds in (True, False):
            be.rng_reset()
            net = Sequential(tiny_layers())
            net.folds = folds
            model, _ = trained(be, net, epochs=2)
            ends.append([p.get().copy() for p, _ in gradient_pairs(model.layers)])
        for folded, plain in zip(*ends, strict=True):
            np.testing.assert_allclose(folded, plain, rtol=1e-3, atol=1e-4)


def tiny_layers():
    return [
        Conv((3, 3, 8), Kaiming(), padding=1, batch_norm=True, activation=Rectlin()),
        Pooling(2),
        Conv((3, 3, 8), Kaiming(), bias=Constant(0), activation=Rectlin()),
        Pooling("all", "avg"),
        Affine(2, Kaiming(local=False), bias=Constant(0), activation=Softmax()),
    ]


def stripes(be, count=64):
    """Images of horizontal or vertical stripes with noise, and which they are."""
    rng = np.random.default_rng(5)
    labels = rng.integers(2, size=count)
    wave = np.sin(np.arange(8) * np.pi + rng.uniform(size=(count, 1)))
    images = np.where(labels[:, None, None] == 1, wave[:, :, None], wave[:, None, :]) * np.ones((count, 8, 8))
    noisy = images + 0.3 * rng.normal(size=images.shape)
    return ArrayIterator(noisy.reshape(count, 64).astype(np.float32), labels, nclass=2, lshape=(1, 8, 8))


def trained(be, net, epochs):
    be.bsz = 16
    data = stripes(be)
    model = Model(net)
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), epochs)
    return model, data


def test_a_network_learns_and_is_saved_and_loaded(be, tmp_path):
    model, data = trained(be, tiny_layers(), epochs=6)
    assert model.eval(data, Misclassification())[0] <= 0.05
    outputs = model.get_outputs(data)
    model.save_params(tmp_path / "net.p")
    again = Model(tmp_path / "net.p")
    np.testing.assert_array_equal(again.get_outputs(data), outputs)
    states = [state for layer in again.layers_to_optimize for _, state in as_list(layer.get_params())]
    assert all(len(state) == 1 for state in states)
    other = Model(tiny_layers())
    other.initialize(data)
    other.load_params(tmp_path / "net.p")
    np.testing.assert_array_equal(other.get_outputs(data), outputs)
    model.save_params(tmp_path / "weights.p", keep_states=False)
    np.testing.assert_array_equal(Model(tmp_path / "weights.p").get_outputs(data), outputs)


def as_list(params):
    return params if isinstance(params, list) else [params]


def test_files_with_convolution_and_bias_as_two_layers(be, rng):
    net = ready(Sequential(Conv((2, 2, 3), Gaussian(), bias=Uniform(), activation=Tanh())), (2, 3, 3))
    saved = net.get_description(get_weights=True)
    conv, activation = saved["config"]["layers"]
    old = [
        {"type": "neon.layers.layer.Convolution", "config": {}, "params": {"W": conv["params"]["W"]}, "states": []},
        {"type": "neon.layers.layer.Bias", "config": {}, "params": {"W": conv["params"]["weight_bias"]}, "states": []},
        activation,
    ]
    other = ready(Sequential(Conv((2, 2, 3), Constant(0), bias=Constant(0), activation=Tanh())), (2, 3, 3))
    other.load_weights({**saved, "config": {**saved["config"], "layers": old}})
    x = tensor(be, rng.normal(size=(18, N)))
    np.testing.assert_array_equal(other.fprop(x).get(), net.fprop(x).get())
    with pytest.raises(ArgumentError, match="1 layers"):
        other.load_weights({**saved, "config": {**saved["config"], "layers": old[:2]}})
