"""Recurrent layers that multiply their inputs in int8, against float32 with rounded weights and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.backend import Tensor
from neonlike.backends.primitives.int8.definition import quantized, quantized_rows
from neonlike.errors import ArgumentError
from neonlike.initializers import Gaussian
from neonlike.layers import GRU, LSTM, Affine, BiRNN, Recurrent, RecurrentLast, Sequential
from neonlike.models import Model
from neonlike.transforms import Logistic, Tanh
from neonlike.transforms.transform import Transform
from tests.support.engines import have_programs

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


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def stepped(layer: Any, kind: str, sums: Any, samples: int, state_step: float) -> Any:
    """All states in float64, of the inputs' part of the sums; states are rounded where they are multiplied."""
    n, b = layer.nout, layer.b.get().astype(float).reshape(-1, 1)
    parts = [layer.W_recur.get()[rows] for rows in (slice(0, 2 * n), slice(2 * n, None))] if kind == "gru" else None
    weights = [quantized_rows(part) for part in parts or [layer.W_recur.get()]]

    def product(h: Any, which: int = 0) -> Any:
        values, steps = weights[which]
        rounded = quantized(h.astype(np.float32), state_step).astype(float)
        return values.astype(float) @ rounded * steps.astype(float) * state_step

    h = c = np.zeros((n, samples))
    states = []
    for ff in np.split(sums.astype(float), sums.shape[1] // samples, axis=1):
        if kind == "recurrent":
            h = np.tanh(product(h) + ff + b)
        elif kind == "lstm":
            total = product(h) + ff + b
            i, f, o = (sigmoid(total[k * n : (k + 1) * n]) for k in range(3))
            c = f * c + i * np.tanh(total[3 * n :])
            h = o * np.tanh(c)
        else:
            r, z = np.split(sigmoid(product(h) + (ff + b)[: 2 * n]), 2)
            h = (1 - z) * h + z * np.tanh(product(r * h, 1) + (ff + b)[2 * n :])
        states.append(h)
    return np.concatenate(states, axis=1)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("samples", [6, 3, 1])
def test_states_are_multiplied_in_int8(be: Backend, rng: Any, name: str, samples: int) -> None:
    steps, features = 5, 7
    net = Sequential([LAYERS[name]()])
    net.configure((features, steps))
    net.allocate()
    layer = net.layers[0]
    layer.b[:] = be.array(rng.standard_normal(layer.b.shape))
    layer.W_recur[:] = layer.W_recur * 4
    x = rng.standard_normal((features, steps * samples)).astype(np.float32)
    values, sizes = quantized_rows(layer.W_input.get())
    sums = (values.astype(float) @ quantized(x, 1 / 64)) * sizes / 64
    layer.quantize(LARGEST, LARGEST / 4)
    wanted = stepped(layer, name, sums, samples, 1 / 256)
    for _ in range(5):  # repeated without Python in the end
        assert np.allclose(net.fprop(be.array(x), inference=True).get(), wanted, atol=1e-4)
    layer.quantize(LARGEST)  # the inputs alone; larger states are not clipped then
    assert np.abs(net.fprop(be.array(x), inference=True).get() - wanted).max() > 1e-3


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("samples, turned", [(6, False), (6, True), (1, False)])
def test_passes_are_repeated(be: Backend, rng: Any, name: str, samples: int, turned: bool) -> None:
    """A single sample, whose steps are columns, and inputs that are columns do not keep passes from it."""
    have_programs(be)
    be.bsz = samples
    net = Sequential([LAYERS[name]()])
    net.configure((7, 4))
    net.allocate()
    net.layers[0].quantize(LARGEST, 1.0)
    x = be.array(rng.standard_normal((7, 4 * samples)))
    if turned:
        x = be.array(x.get().T.copy()).T
    for _ in range(6):
        net.fprop(x, inference=True)
    assert (net.replays.inference.guard is None) == (be.executor.replay.table is None)


def test_changed_weights_count_from_the_next_quantization(be: Backend, rng: Any) -> None:
    layer = LAYERS["lstm"]()
    layer.configure((7, 4))
    layer.allocate()
    x = be.array(rng.standard_normal((7, 24)))
    layer.quantize(4.0, 1.0)
    before = layer.fprop(x, inference=True).get().copy()
    layer.W_recur[:] = -layer.W_recur
    assert np.array_equal(layer.fprop(x, inference=True).get(), before)
    layer.quantize(4.0, 1.0)
    assert not np.array_equal(layer.fprop(x, inference=True).get(), before)


def test_a_users_activation_works_on_tensors(be: Backend, rng: Any) -> None:
    class Halved(Transform):
        def __call__(self, x: Any) -> Any:
            assert isinstance(x, Tensor)
            return x * 0.5

    layer = Recurrent(4, Gaussian(), activation=Halved(), reset_cells=True)
    layer.configure((3, 2))
    layer.allocate()
    layer.quantize(4.0, 4.0)
    x = be.array(rng.standard_normal((3, 12)))
    h = layer.fprop(x, inference=True).get()
    W, R = layer.W_input.get(), layer.W_recur.get()
    first = W @ x.get()[:, :6] / 2
    assert np.allclose(h, np.concatenate([first, (W @ x.get()[:, 6:] + R @ first) / 2], axis=1), atol=0.1)


def test_files_keep_the_steps_of_states(be: Backend, rng: Any) -> None:
    model = Model([LAYERS["lstm"](), RecurrentLast(), Affine(3, Gaussian(), activation=Tanh())])
    model.initialize((7, 4))
    x = be.array(rng.standard_normal((7, 24)))
    plain, before = model.serialize(), model.fprop(x, inference=True).get().copy()
    model.quantize(rng.standard_normal((12, 28)).astype(np.float32))
    layer, wanted = model.layers.layers[0], model.fprop(x, inference=True).get().copy()
    assert 0 < layer.int8_state_step.item() < 1 / 127
    assert layer.parameter_names()[-2:] == ("int8_step", "int8_state_step") and layer.products() == []
    again = Model(model.serialize())
    again.initialize((7, 4))
    assert np.array_equal(again.fprop(x, inference=True).get(), wanted)
    older = model.serialize()  # before states were multiplied in int8
    del older["model"]["config"]["layers"][0]["params"]["int8_state_step"]
    again = Model(older)
    again.initialize((7, 4))
    assert "multiplies its inputs in int8; multiplies float32" in again.explain()
    assert 0 < np.abs(again.fprop(x, inference=True).get() - wanted).max() < 0.05
    model.deserialize(plain)
    assert layer.int8_state_step is None and np.array_equal(model.fprop(x, inference=True).get(), before)
    model.quantize(rng.standard_normal((12, 28)).astype(np.float32))
    model.dequantize()
    assert layer.int8_state_step is None and np.array_equal(model.fprop(x, inference=True).get(), before)


@pytest.mark.parametrize("name", LAYERS)
def test_a_model(be: Backend, rng: Any, name: str) -> None:
    model = Model([LAYERS[name](), RecurrentLast(), Affine(3, Gaussian(), activation=Tanh())])
    model.initialize((7, 4))
    x = rng.standard_normal((12, 28)).astype(np.float32)
    first = be.array(np.ascontiguousarray(rng.standard_normal((7, 24))))
    before = model.fprop(first, inference=True).get().copy()
    model.quantize(x)
    assert model.explain().count("| multiplies in int8") == 2 and "float32" not in model.explain()
    found = model.fprop(first, inference=True).get()
    assert 0 < np.abs(found - before).max() < 0.05


def test_both_directions_stay_float32(be: Backend, rng: Any) -> None:
    model = Model([BiRNN(5, Gaussian(), activation=Tanh()), RecurrentLast(), Affine(3, Gaussian())])
    model.initialize((7, 4))
    model.quantize(rng.standard_normal((12, 28)).astype(np.float32))
    assert model.explain().count("in int8") == 1
