"""Parts of buffers that layers keep: the same again, made anew for another buffer or number of columns."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from neonlike.initializers import Gaussian, Uniform
from neonlike.layers import LRN, LSTM, Affine, Conv, Linear, MergeBroadcast, MergeSum, Pooling, Sequential, SkipNode
from neonlike.layers.core.parts import part_of, reshaped, transposed
from neonlike.transforms import Logistic, Rectlin, Softmax, Tanh
from tests.layers.layering import ready, tensor

N = 4
pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(N)]


def network():
    """A layer of every kind that keeps parts of its buffers."""
    return Sequential([
        Conv((3, 3, 4), Gaussian(), padding=1, batch_norm=True, activation=Rectlin()),
        MergeSum([[Conv((1, 1, 4), Gaussian(), bias=Uniform())], [SkipNode()]]),
        LRN(3),
        Pooling(2),
        MergeBroadcast([[Conv((1, 1, 2), Gaussian())], [Conv((1, 1, 3), Gaussian(), activation=Tanh())]], "depth"),
        Conv((1, 1, 5), Gaussian(), activation=Logistic()),
        Affine(3, Gaussian(), bias=Uniform(), activation=Softmax()),
    ])  # fmt: skip


def train(be, net, x, rng):
    net.fprop(tensor(be, x))
    net.bprop(tensor(be, rng.standard_normal((3, N))))


def test_any_number_of_columns_in_any_order(be, rng):
    """Before, between and after passes of training, which use the whole buffers."""
    net = ready(network(), (2, 6, 8))
    x = rng.standard_normal((96, N))
    train(be, net, x, rng)  # inference normalizes by what this measured
    whole = net.fprop(tensor(be, x), inference=True).get()
    for columns in (1, 3, 1, N, 1):
        found = net.fprop(tensor(be, x[:, :columns].copy()), inference=True)
        assert found.shape == (3, columns)
        np.testing.assert_allclose(found.get(), whole[:, :columns], 1e-5, 1e-6)
    train(be, net, x, rng)
    whole = net.fprop(tensor(be, x), inference=True).get()
    np.testing.assert_allclose(net.fprop(tensor(be, x[:, :1].copy()), True).get(), whole[:, :1], 1e-5, 1e-6)


def test_another_batch_size(be, rng):
    """A network that is set up again has other buffers, and parts of these."""
    net = ready(Linear(5, Uniform(-1, 1)), 7)
    x = rng.standard_normal((7, 6))
    wanted = net.W.get() @ x
    for size in (4, 6, 4):
        be.bsz, net.outputs = size, None
        net.allocate()
        for columns in (size, 2, size - 1):
            found = net.fprop(tensor(be, x[:, :columns].copy()), inference=True)
            np.testing.assert_allclose(found.get(), wanted[:, :columns], 1e-5, 1e-6)


def test_the_same_tensor_comes_again_until_the_buffer_is_another(be, rng):
    layer = ready(Linear(5, Uniform(-1, 1)), 7)
    x = tensor(be, rng.standard_normal((7, 2)))
    first = layer.fprop(x, inference=True)
    wanted = first.get()
    assert layer.fprop(x, inference=True) is first
    old, layer.outputs = layer.outputs, be.zeros((5, N))
    old[:] = 7
    found = layer.fprop(x, inference=True)
    assert found is not first and (old.get() == 7).all()
    np.testing.assert_array_equal(found.get(), wanted)
    np.testing.assert_array_equal(layer.outputs.get().ravel()[:10].reshape(5, 2), wanted)


def test_weights_changed_in_place_and_replaced(be, rng):
    layer = ready(Affine(5, Uniform(-1, 1), bias=Uniform())[0], 7)
    x = rng.standard_normal((7, 1))
    for weight in (2 * layer.W.get(), rng.standard_normal((5, 7))):
        layer.W[:] = np.ascontiguousarray(weight)
        np.testing.assert_allclose(layer.fprop(tensor(be, x), True).get(), weight @ x, 1e-5, 1e-5)
    layer.W = be.array(3 * weight)
    np.testing.assert_allclose(layer.fprop(tensor(be, x), True).get(), 3 * weight @ x, 1e-5, 1e-5)


def test_recurrent_layers_take_any_number_of_samples(be, rng):
    layer = ready(LSTM(5, Uniform(-1, 1), activation=Tanh(), gate_activation=Logistic(), reset_cells=True), (3, 4))
    x = rng.standard_normal((3, 4, N))
    whole = layer.fprop(tensor(be, x.reshape(3, -1)), inference=True).get().reshape(5, 4, N)
    for samples in (1, 3, 1):
        found = layer.fprop(tensor(be, x[:, :, :samples].reshape(3, -1)), inference=True)
        np.testing.assert_allclose(found.get().reshape(5, 4, samples), whole[:, :, :samples], 1e-5, 1e-6)


def test_gradients_follow_weights_and_inputs_that_are_replaced(be, rng):
    """Backward passes multiply by transposed views that are kept."""
    layer = ready(Linear(5, Uniform(-1, 1)), 7)
    error = rng.standard_normal((5, N))
    for turn in range(3):
        x = rng.standard_normal((7, N))
        if turn == 1:
            layer.W = be.array(rng.standard_normal((5, 7)))
        layer.fprop(tensor(be, x))
        np.testing.assert_allclose(layer.bprop(tensor(be, error)).get(), layer.W.get().T @ error, 1e-5, 1e-5)
        np.testing.assert_allclose(layer.dW.get(), error @ x.T, 1e-5, 1e-5)


class Holder:
    """Keeps views, as a layer does."""


class TestKeptViews:
    def test_views_are_those_of_the_arguments(self, be, rng):
        one, a, b = Holder(), be.array(rng.standard_normal((6, 4))), be.zeros((6, 4))
        part = part_of(one, "x", a, 2)
        np.testing.assert_array_equal(part.get(), a.get().ravel()[:12].reshape(6, 2))
        assert part_of(one, "x", a, 2) is part and part_of(one, "y", a, 2) is not part
        assert part_of(Holder(), "x", a, 2) is not part and part_of(one, "x", a, 1).shape == (6, 1)
        part_of(one, "x", b, 2)[:] = 5
        assert (b.get().ravel()[:12] == 5).all() and not b.get().ravel()[12:].any()
        turned = transposed(one, "t", a)
        assert turned is transposed(one, "t", a) and np.array_equal(turned.get(), a.get().T)
        rows = reshaped(one, "x", a, 3)
        assert rows.shape == (3, 8) and reshaped(one, "x", a, 3) is rows and reshaped(one, "x", a, 2).shape == (2, 12)

    def test_a_part_of_a_strided_buffer_is_memory_of_its_own(self, be):
        wide = be.zeros((3, 8))
        part = part_of(Holder(), "x", wide[:, :4], 2)
        part[:] = 1
        assert part.shape == (3, 2) and not wide.get().any()

    def test_copies_start_empty(self, be):
        """A copied view would not be a view of the copied buffer."""
        one, a = Holder(), be.zeros((6, 4))
        part = part_of(one, "x", a, 2)
        for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert part_of(other, "x", a, 2) is not part
