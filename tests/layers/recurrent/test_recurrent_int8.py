"""Recurrent layers that multiply their inputs in int8, against float32 with rounded weights and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.int8.definition import quantized, quantized_rows
from neonlike.errors import ArgumentError
from neonlike.initializers import Gaussian
from neonlike.layers import GRU, LSTM, Affine, BiRNN, Recurrent, RecurrentLast
from neonlike.models import Model
from neonlike.transforms import Logistic, Tanh

pytestmark = [
    pytest.mark.engines("numpy", "c"), pytest.mark.samples(6), pytest.mark.cpu_only("GPUs do not multiply int8")
]  # fmt: skip
LARGEST = 127 / 64
"""A range whose steps are 1/64."""
GATES = {"activation": Tanh(), "gate_activation": Logistic()}
LAYERS = {
    "recurrent": lambda: Recurrent(9, Gaussian(scale=0.2), activation=Tanh(), reset_cells=True),
    "lstm": lambda: LSTM(9, Gaussian(scale=0.2), reset_cells=True, **GATES),
    "gru": lambda: GRU(9, Gaussian(scale=0.2), reset_cells=True, **GATES),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("samples", [6, 3, 1])
def test_states_are_those_of_rounded_inputs(be: Backend, rng: Any, name: str, samples: int) -> None:
    steps, features = 4, 7
    layer = LAYERS[name]()
    layer.configure((features, steps))
    layer.allocate()
    values, sizes = quantized_rows(layer.W_input.get())
    layer.W_input[:] = be.array(values * sizes)
    x = rng.standard_normal((features, steps * samples)).astype(np.float32)
    wanted = layer.fprop(be.array(quantized(x, 1 / 64) / np.float32(64)), inference=True).get().copy()
    before = layer.fprop(be.array(x), inference=True).get().copy()
    layer.quantize(LARGEST)
    for _ in range(4):
        assert np.allclose(layer.fprop(be.array(x), inference=True).get(), wanted, atol=1e-5)
    with pytest.raises(ArgumentError, match="quantized for inference"):
        layer.fprop(be.array(np.resize(x, (features, steps * 6))))
    layer.dequantize()
    assert np.array_equal(layer.fprop(be.array(x), inference=True).get(), before)


@pytest.mark.parametrize("name", LAYERS)
def test_a_model(be: Backend, rng: Any, name: str) -> None:
    model = Model([LAYERS[name](), RecurrentLast(), Affine(3, Gaussian(), activation=Tanh())])
    model.initialize((7, 4))
    x = rng.standard_normal((12, 28)).astype(np.float32)
    first = be.array(np.ascontiguousarray(rng.standard_normal((7, 24))))
    before = model.fprop(first, inference=True).get().copy()
    model.quantize(x)
    assert "multiplies its inputs in int8" in model.explain() and "| multiplies in int8" in model.explain()
    found = model.fprop(first, inference=True).get()
    assert 0 < np.abs(found - before).max() < 0.05


def test_both_directions_stay_float32(be: Backend, rng: Any) -> None:
    model = Model([BiRNN(5, Gaussian(), activation=Tanh()), RecurrentLast(), Affine(3, Gaussian())])
    model.initialize((7, 4))
    model.quantize(rng.standard_normal((12, 28)).astype(np.float32))
    assert model.explain().count("in int8") == 1
