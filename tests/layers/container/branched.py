"""Networks with branches: small layers, set up for a test, and compared with the same network written out."""

from __future__ import annotations

import numpy as np

from neonlike.initializers import Gaussian
from neonlike.layers import Affine, Linear, Sequential
from neonlike.transforms import Tanh
from tests.support.float64.network_reference import Network


def linear(nout):
    return Linear(nout, Gaussian(scale=0.5))


def affine(nout, activation=None):
    return Affine(nout, Gaussian(scale=0.5), bias=Gaussian(), activation=activation or Tanh())


def set_up(net, in_shape):
    """A container, or a list of layers as a chain, with all its buffers."""
    net = Sequential(net) if isinstance(net, list) else net
    net.configure(in_shape)
    net.allocate()
    net.allocate_deltas()
    return net


def tensors(be, values):
    if isinstance(values, list):
        return [tensors(be, value) for value in values]
    return be.array(values)


def compare(be, net, x, rng, runs=2):
    """Outputs and all gradients of ``net`` against the same computation without shared or overwritten buffers."""
    for _ in range(runs):  # what an earlier pass left in the buffers must not matter
        y = net.fprop(tensors(be, x)).get()
        reference = Network(be.bsz)
        expected, backward = reference.run(net, x)
        np.testing.assert_allclose(y, expected, rtol=1e-10, atol=1e-12)
        e = rng.normal(size=y.shape)
        net.bprop(be.array(e))
        backward(e)
        trained = net.layers_to_optimize
        assert len(reference.gradients) == len(trained) > 0
        for layer in trained:
            np.testing.assert_allclose(layer.dW.get(), reference.gradients[layer], rtol=1e-9, atol=1e-11)
