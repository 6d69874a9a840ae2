"""neon's small framework of layers that time kernels."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends.layer_gpu import BatchNorm, ConvLayer, DataLayer, FullLayer, Inception, Layer, PoolLayer
from neonlike.errors import ArgumentError
from tests.support.differences import slope

N = 4
CONV = {"layer": ConvLayer, "common": {"relu": True}, "K": 3, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1}
INCEPTION = {
    "layer": Inception,
    "partitions": [
        [{"layer": ConvLayer, "K": 2}, {"layer": ConvLayer, "K": 3, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1}],
        [{"layer": PoolLayer, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1, "str_h": 1, "str_w": 1}],
    ],
}


@pytest.fixture
def chain(be64, rng):
    """Layers of which each takes the output of the one before, ready to run."""
    layers = [DataLayer(be64, np.float64, N, 2, 1, 4, 4)]
    for conf in (CONV, {"layer": BatchNorm, "relu": True}, INCEPTION, {"layer": PoolLayer, "R": 2, "S": 2},
                 {"layer": FullLayer, "nOut": 5}):  # fmt: skip
        layers.append(Layer.create(be64, conf, layers[-1], np.float64))
    for layer in layers:
        layer.init_activations()
        layer.init_weights(scale=0.5)
    for layer in layers[1:]:
        layer.init_deltas()
    layers[0].init_data(rng.normal(size=(2, 1, 4, 4, N)))
    return layers


def forward(layers):
    x = None
    for layer in layers:
        x = layer.fprop(x)
    return x


def backward(layers, error):
    for layer in reversed(layers[1:]):
        error = layer.bprop(error)
    return error


def test_sizes_follow_from_the_layer_before(chain):
    assert [(layer.K, layer.M, layer.P, layer.Q) for layer in chain] == [
        (2, 1, 4, 4), (3, 1, 4, 4), (3, 1, 4, 4), (6, 1, 4, 4), (6, 1, 2, 2), (5, 1, 1, 1),
    ]  # fmt: skip
    assert chain[-1].nIn == 24 and "FullLayer 24x1x1x1 -> 5x1x1x1, 4 images" in str(chain[-1])


def test_gradients_agree_with_differences(chain, rng):
    factors = rng.normal(size=(5, N))

    def cost():
        return float((forward(chain).get() * factors).sum())

    cost()
    be = chain[0].lib
    backward(chain, be.array(factors))
    deltas = chain[1].bprop_out.get().copy()
    inception = chain[3].partitions
    tensors = [(chain[0].fprop_out, deltas)]
    weighted = (chain[1], chain[2], inception[0][0], inception[0][1], chain[5])
    tensors += [(layer.weights, layer.updat_out.get().copy()) for layer in weighted]
    for tensor, gradient in tensors:
        direction = rng.normal(size=tensor.shape)
        numeric = slope(cost, tensor, direction)
        np.testing.assert_allclose((gradient * direction).sum(), numeric, rtol=1e-5, atol=1e-7)


def test_a_step_downhill(chain):
    be = chain[0].lib
    costs = []
    for _ in range(3):
        y = forward(chain)
        costs.append(0.5 * float((y.get() ** 2).sum()))
        error = be.empty(y.shape)
        error[:] = y
        backward(chain, error)
        for layer in chain:
            layer.grad_descent()
    assert costs[0] > costs[1] > costs[2]


def test_magnitudes(chain):
    forward(chain)
    full = chain[-1]
    assert full.get_activation_max() == np.abs(full.fprop_out.get()).max()
    assert full.get_weight_mean() == pytest.approx(np.abs(full.weights.get()).mean())
    assert "activations" in full.fprop_stats() and "updates" in full.bprop_stats()
    assert chain[0].get_weight_max() == 0.0


def test_shared_memory(be):
    shared = [be.empty((64, N)), be.empty((64, N))]
    first, second = (FullLayer(be, np.float32, N, 8, 8) for _ in range(2))
    for layer in (first, second):
        layer.init_deltas(shared)
    assert first.bprop_out.shape == second.bprop_out.shape == (8, N)
    first.bprop_out[:], second.bprop_out[:] = 1, 2
    assert first.bprop_out.get().max() == 1
    first.init_weights(zeros=True, shared=be.empty((64, 8)))
    assert first.updat_out.shape == (8, 8) and not first.weights.get().any()


def test_what_makes_no_sense(be):
    data = DataLayer(be, np.float32, N, 2, 1, 4, 4)
    with pytest.raises(ArgumentError, match="names no layer"):
        Layer.create(be, {"layer": int}, data, np.float32)
    wrong = {"layer": Inception, "partitions": [[{"layer": ConvLayer, "K": 1}], [{"layer": PoolLayer, "R": 2, "S": 2}]]}
    with pytest.raises(ArgumentError, match="maps of other sizes"):
        Layer.create(be, wrong, data, np.float32)
