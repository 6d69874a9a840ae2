"""Layers that work in place, behind layers whose backward pass needs their outputs, against central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.initializers import Gaussian
from neonlike.layers import (
    GRU,
    LRN,
    Activation,
    BatchNorm,
    Bias,
    BranchNode,
    Conv,
    Dropout,
    LayerNorm,
    Linear,
    MergeBroadcast,
    Recurrent,
    Reshape,
    Sequential,
    Tree,
)
from neonlike.optimizers.base import get_param_list
from neonlike.transforms import GELU, Explin, Logistic, Rectlin, Rectlinclip, Tanh
from tests.support.differences import slope

pytestmark = [pytest.mark.engines("numpy"), pytest.mark.samples(4)]
Array = np.ndarray[Any, Any]


def init() -> Gaussian:
    return Gaussian(scale=0.5)


def linear(units: int = 6) -> Linear:
    return Linear(units, init())


def tanh() -> Activation:
    return Activation(Tanh())


def bias() -> Bias:
    return Bias(init())


def lrn(**options: float) -> list[Any]:
    return [Conv((3, 3, 4), init(), padding=1), LRN(3, ascale=0.7, bpower=0.75, **options)]


def check(network: Any, shape: Any) -> None:
    """Compare the gradients of all parameters, after a second backward pass, along random directions."""
    network.configure(shape)
    network.allocate()
    network.allocate_deltas()
    rng, be = np.random.default_rng(5), network.be
    rows, steps = shape if isinstance(shape, tuple) and len(shape) == 2 else (int(np.prod(shape)), 1)
    x = be.array(rng.normal(size=(rows, steps * be.bsz)))
    outputs = results(network.fprop(x))
    errors = [rng.normal(size=y.shape) for y in outputs]
    for _ in range(2):  # a second time: nothing of the first may remain
        network.fprop(x)
        given = [be.array(e) for e in errors]
        network.bprop(given if len(given) > 1 else given[0])

    def loss() -> float:
        return sum(float((y * e).sum()) for y, e in zip(results(network.fprop(x)), errors))

    pairs = [pair for pair, _ in get_param_list(network.layers_to_optimize)]
    for parameter, gradient in [(parameter, gradient.get()) for parameter, gradient in pairs]:
        direction = rng.normal(size=gradient.shape)
        found = slope(loss, parameter, direction)
        assert (gradient * direction).sum() == pytest.approx(found, rel=1e-5, abs=1e-6)


def results(found: Any) -> list[Array]:
    """Copies of the values of one or several outputs."""
    return [y.get().copy() for y in (found if isinstance(found, list) else [found])]


CHAINS: dict[str, Any] = {
    "bias behind tanh": lambda: [linear(), tanh(), bias(), linear(3)],
    "tanh behind tanh": lambda: [linear(), tanh(), tanh(), linear(3)],
    "three in a row": lambda: [linear(), tanh(), Activation(Logistic()), Activation(Explin()), bias(), linear(3)],
    "folded both times": lambda: [linear(), bias(), Activation(Rectlin()), bias(), Activation(Rectlin()), linear(3)],
    "bias behind the rectifier of a normalization": lambda: [
        linear(), BatchNorm(), Activation(Rectlin()), bias(), linear(3),
    ],
    "bias behind a clipped rectifier": lambda: [linear(), Activation(Rectlinclip()), bias(), linear(3)],
    "bias behind GELU": lambda: [linear(), Activation(GELU()), bias(), linear(3)],
    "bias behind tanh of a normalized sample": lambda: [linear(), LayerNorm(), tanh(), bias(), linear(3)],
    "bias behind a view of tanh": lambda: [linear(), tanh(), Reshape((2, 3, 1)), bias(), linear(3)],
    "chains in a chain": lambda: [Sequential([linear(), tanh()]), Sequential([Dropout(1.0), bias()]), linear(3)],
    "bias behind branches": lambda: [
        linear(), MergeBroadcast([[linear(), tanh()], [linear()]], "stack"), bias(), linear(3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_chains(be64: Backend, name: str) -> None:
    check(Sequential(CHAINS[name]()), 7)


@pytest.mark.parametrize("options", [{}, {"alpha": 0.5}], ids=("plain", "alpha"))
@pytest.mark.parametrize("following", [(), (bias,), (tanh,)], ids=("alone", "bias", "tanh"))
def test_local_response_normalization(be64: Backend, following: Any, options: Any) -> None:
    check(Sequential([*lrn(**options), *(made() for made in following), Conv((2, 2, 2), init())]), (2, 4, 4))


def test_branches_that_normalize(be64: Backend) -> None:
    branches = [[LRN(3)], [LRN(3, bpower=0.5), tanh()], [Conv((1, 1, 2), init(), activation=Rectlin())]]
    layers = [Conv((1, 1, 3), init()), MergeBroadcast(branches, "depth"), tanh(), Conv((2, 2, 2), init())]
    check(Sequential(layers), (2, 4, 4))


def test_recurrent_layers_in_chains_of_their_own(be64: Backend) -> None:
    options = {"activation": Tanh(), "reset_cells": True}
    chain = Sequential([Sequential([Recurrent(4, init(), **options)])])
    gru = GRU(3, init(), gate_activation=Logistic(), **options)
    check(Sequential([chain, tanh(), Sequential([gru]), bias(), linear(3)]), (3, 4))


def test_a_trunk_goes_on_in_place_behind_a_junction(be64: Backend) -> None:
    """The other branch gets the value at the junction."""
    node = BranchNode("in place behind it")
    tree = Tree([[linear(), node, tanh(), linear(3)], [node, linear(2)]])
    check(tree, 7)
    x = np.random.default_rng(6).normal(size=(7, be64.bsz))
    trunk, branch = results(tree.fprop(be64.array(x)))
    first, second, third = (layer.W.get() for layer in tree.layers_to_optimize)
    np.testing.assert_allclose(trunk, second @ np.tanh(first @ x), atol=1e-12)
    np.testing.assert_allclose(branch, third @ (first @ x), atol=1e-12)


@pytest.mark.parametrize("following", [[], [Bias]], ids=("alone", "bias"))
def test_dropout_that_divides(be64: Backend, following: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Caffe mode the activation's outputs are not those divided; with a mask that stays."""
    monkeypatch.setattr(be64, "compat_mode", "caffe")
    mask = np.random.default_rng(1).random((6, be64.bsz)) < 0.6
    monkeypatch.setattr(be64, "make_binary_mask", lambda out, keep: out.set(mask.astype(out.dtype)))
    network = Sequential([linear(), tanh(), Dropout(0.6), *(made(init()) for made in following), linear(3)])
    check(network, 7)
    x = be64.array(np.random.default_rng(2).normal(size=(7, be64.bsz)))
    first, *_, last = network.layers
    wanted = last.W.get() @ (np.tanh(first.W.get() @ x.get()) + (network.layers[3].W.get() if following else 0))
    np.testing.assert_allclose(network.fprop(x, inference=True).get(), wanted, atol=1e-12)


def test_fewer_samples_in_inference(be64: Backend) -> None:
    network = Sequential([linear(), tanh(), bias(), tanh(), linear(3)])
    network.configure(7)
    network.allocate()
    x = np.random.default_rng(3).normal(size=(7, be64.bsz))
    whole = network.fprop(be64.array(x), inference=True).get().copy()
    np.testing.assert_allclose(network.fprop(be64.array(x[:, :2]), inference=True).get(), whole[:, :2], atol=1e-12)


def test_what_nobody_needs_is_still_changed_in_place(be64: Backend) -> None:
    """No further buffers in the usual chains."""
    layers = [Conv((3, 3, 4), init(), batch_norm=True, activation=Rectlin()), Dropout(0.5), linear(3)]
    network = Sequential([*layers, bias(), Activation(Logistic())])
    network.configure((2, 4, 4))
    in_place = [layer.classnm for layer in network.layers if not layer.owns_output]
    assert in_place == ["Activation", "Dropout", "Bias", "Activation"]
