"""Weights of real PyTorch modules, where PyTorch is installed: outputs in inference, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.initializers import Constant, Gaussian
from neonlike.layers import (
    LSTM,
    Affine,
    BiLSTM,
    Conv,
    Deconv,
    Embedding,
    GroupNorm,
    LayerNorm,
    MultiHeadAttention,
    Pooling,
    Recurrent,
    RecurrentLast,
    ResetAfterGRU,
)
from neonlike.models import Model
from neonlike.transforms import Logistic, Rectlin, Tanh
from tests.exchange.networks import outputs, ready

torch = pytest.importorskip("torch")
nn = torch.nn
N = 3
pytestmark = [
    pytest.mark.peers("torch"),
    pytest.mark.engines("numpy", batch_size=N),
    pytest.mark.cpu_only("layouts are the same on every backend"),
]
INIT, ZERO = Gaussian(scale=0.1), Constant(0)
GATES: dict[str, Any] = {"activation": Tanh(), "gate_activation": Logistic(), "reset_cells": True}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


class Attention(nn.Module):
    """Self-attention as a module of one input."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(features, heads, batch_first=True)
        nn.init.uniform_(self.attention.in_proj_bias)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class First(nn.Module):
    """The first result of a recurrent module."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)[0]


def trained(module):
    """Running statistics that are not those of the start."""
    for one in module.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.uniform_(-1, 1)
            one.running_var.uniform_(0.5, 2)
            nn.init.uniform_(one.weight)
            nn.init.uniform_(one.bias)
    return module.eval()


def image_net():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, eps=1e-2, momentum=0.3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(4, 4, (3, 2), groups=2), nn.ConvTranspose2d(4, 4, 3, 2), nn.GroupNorm(2, 4),
        nn.Flatten(), nn.Linear(4 * 3 * 5, 5), nn.Tanh(), nn.Linear(5, 5),
    )  # fmt: skip


def image_layers():
    return [
        Conv((3, 3, 4), INIT, padding=1, batch_norm=True, activation=Rectlin()), Pooling(2),
        Conv((3, 2, 4), INIT, bias=ZERO, groups=2), Deconv((3, 3, 4), INIT, 2, bias=ZERO), GroupNorm(2),
        Affine(5, INIT, bias=ZERO, activation=Tanh()), Affine(5, INIT, bias=ZERO),
    ]  # fmt: skip


def check(model: Model, module: Any, x: np.ndarray, is_sequence: bool) -> None:
    with torch.no_grad():
        wanted = module(torch.tensor(x.transpose(0, 2, 1).copy() if is_sequence else x)).numpy()
    if is_sequence and wanted.ndim == 3:
        wanted = wanted.transpose(0, 2, 1)
    np.testing.assert_allclose(outputs(model, x), wanted, rtol=1e-5, atol=1e-5)


def both_ways(layers: Any, make: Any, shape: Any, rng: Any) -> None:
    """Load a module's weights, then give other ones to a fresh module."""
    module = trained(make())
    model = ready(layers(), shape, rng)
    is_sequence = len(shape) == 2
    x = rng.normal(size=(N, *shape)).astype(np.float32)
    model.load_torch(module)
    check(model, module, x, is_sequence)
    other, fresh = ready(layers(), shape, rng), make().eval()
    other.load_torch(module.state_dict())
    for layer in other.layers_to_optimize:
        layer.set_params({"params": {name: getattr(layer, name).get() * 0.9 for name in layer.parameter_names()}})
    model.load_torch(fresh)
    for ours, theirs in zip(other.layers.layers, model.layers.layers):
        if hasattr(ours, "eps"):
            ours.eps = theirs.eps
    fresh.load_state_dict({name: torch.tensor(array) for name, array in other.to_torch(fresh).items()})
    check(other, fresh, x, is_sequence)


def test_a_network_of_images(be, rng):
    both_ways(image_layers, image_net, (3, 6, 6), rng)


def test_numbers_of_normalizations_come_from_a_module(be, rng):
    model = ready(image_layers(), (3, 6, 6), rng)
    model.load_torch(image_net())
    norm = model.layers.layers[1]
    assert (norm.eps, round(norm.rho, 6)) == (1e-2, 0.7)
    model.load_torch(image_net().state_dict(), eps=None)
    assert norm.eps == 1e-2
    model.load_torch(image_net().state_dict())
    assert norm.eps == 1e-5


@pytest.mark.parametrize("units", [4, 5])
def test_recurrent_networks(be, rng, units):
    def lstms():
        return First(nn.LSTM(4, units, num_layers=2, batch_first=True))

    both_ways(lambda: [LSTM(units, INIT, **GATES), LSTM(units, INIT, **GATES)], lstms, (4, 3), rng)
    both_ways(lambda: [ResetAfterGRU(units, INIT), ResetAfterGRU(units, INIT)],
              lambda: First(nn.GRU(4, units, num_layers=2, batch_first=True)), (4, 4), rng)  # fmt: skip
    both_ways(lambda: [BiLSTM(units, INIT, **GATES)],
              lambda: First(nn.LSTM(4, units, bidirectional=True, batch_first=True)), (4, 4), rng)  # fmt: skip
    both_ways(lambda: [Recurrent(units, INIT, activation=Rectlin(), reset_cells=True)],
              lambda: First(nn.RNN(4, units, nonlinearity="relu", batch_first=True)), (4, 4), rng)  # fmt: skip


def test_a_transformer_block(be, rng):
    both_ways(lambda: [LayerNorm(), MultiHeadAttention(2, INIT), Affine(6, INIT, bias=ZERO)],
              lambda: nn.Sequential(nn.LayerNorm(6), Attention(6, 2), nn.Linear(6, 6)), (6, 5), rng)  # fmt: skip


def test_words(be, rng):
    module = nn.Sequential(nn.Embedding(9, 4), First(nn.LSTM(4, 4, batch_first=True))).eval()
    model = ready([Embedding(9, 4), LSTM(4, INIT, **GATES), RecurrentLast()], (5,), rng)
    model.load_torch(module)
    words = rng.integers(9, size=(N, 5))
    with torch.no_grad():
        wanted = module(torch.tensor(words)).numpy()[:, -1]
    found = model.fprop(be.array(words.T.copy()), inference=True).get().T
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_bfloat16_weights_are_read(be, rng):
    module = nn.Linear(4, 4).bfloat16()
    model = ready([Affine(4, INIT, bias=ZERO)], 4, rng)
    model.load_torch(module.state_dict())
    np.testing.assert_array_equal(model.layers.layers[0].W.get(), module.weight.detach().float().numpy())
