"""Recurrent layers of float16 and bfloat16 beside the same layers in float64, and a training in each dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.initializers import Gaussian, GlorotUniform
from neonlike.layers import GRU, LSTM, Affine, BiLSTM, BiRNN, GeneralizedCost, Recurrent, RecurrentLast
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.optree.dtypes import bfloat16
from neonlike.transforms import CrossEntropyMulti, Logistic, Softmax, Tanh
from tests.support.engines import backend
from tests.support.float64.recurrent_loops import ready

pytestmark = pytest.mark.cpu_only("the kernels of the CPU")
NIN, NOUT, T, N = 4, 35, 4, 6
GATES = {"activation": Tanh(), "gate_activation": Logistic()}
LAYERS = {
    "recurrent": lambda: Recurrent(NOUT, Gaussian(scale=0.1), activation=Tanh()),
    "lstm": lambda: LSTM(NOUT, Gaussian(scale=0.1), **GATES),
    "gru": lambda: GRU(NOUT, Gaussian(scale=0.1), **GATES),
    "both ways": lambda: BiRNN(NOUT, Gaussian(scale=0.1), activation=Tanh()),
    "lstm both ways": lambda: BiLSTM(NOUT, Gaussian(scale=0.1), **GATES),
}
CLOSE = {"float16": 2.0**-8, "bfloat16": 2.0**-5}
"""Largest error relative to the largest value: of eight roundings, one after the other."""
HALVES = [np.dtype(np.float16), bfloat16()]


def passes(engine: str, dtype: Any, name: str, lengths: Any) -> list[Any]:
    """Outputs, gradients and errors of two batches, the second of which begins with the states of the first."""
    rng, found = np.random.default_rng(3), []
    for be in backend(engine, datatype=dtype, batch_size=N):
        layer = ready(LAYERS[name](), (NIN, T))
        layer.W[:] = be.array(rng.integers(-32, 33, layer.W.shape) / 128)
        layer.set_lengths(lengths)
        for _ in range(2):
            x = rng.integers(-64, 65, (NIN, T * N)) / 32
            error = rng.integers(-64, 65, layer.fprop(be.array(x)).shape) / 64
            deltas = layer.bprop(be.array(error))
            found += [t.get().astype(np.float64) for t in (layer.outputs, layer.dW, deltas)]
    return found


@pytest.mark.parametrize("engine", ["numpy", "c"])
@pytest.mark.parametrize("lengths", [None, [4, 2, 0, 1, 4, 3]], ids=["full", "lengths"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_float64(name: str, dtype: Any, lengths: Any, engine: str) -> None:
    halves, wanted = passes(engine, dtype, name, lengths), passes("numpy", np.float64, name, lengths)
    for k, (half, exact) in enumerate(zip(halves, wanted, strict=True)):
        assert np.abs(half - exact).max() <= CLOSE[str(dtype)] * np.abs(exact).max(), f"result {k}"
        if lengths is not None and k % 3 == 0:
            assert not half.reshape(-1, T, N)[:, :, 2].any()


def trained(dtype: Any) -> float:
    """Cost, in its last epoch, of a network that learns which of two steps was larger."""
    rng = np.random.default_rng(0)
    x = rng.integers(-32, 33, (256, 2 * T)) / 32
    labels = (x[:, 0] > x[:, 2]).astype(np.int32).reshape(-1, 1)
    layers = [LSTM(NOUT, GlorotUniform(), reset_cells=True, **GATES), RecurrentLast(),
              Affine(2, GlorotUniform(), activation=Softmax())]  # fmt: skip
    for _ in backend("c", datatype=dtype, batch_size=16):
        data = ArrayIterator(x.astype(np.float32), labels, nclass=2, lshape=(2, T))
        model = Model(layers)
        model.fit(data, GeneralizedCost(CrossEntropyMulti()), Adam(learning_rate=0.01), num_epochs=12)
        return float(model.total_cost)
    raise AssertionError("no backend")


def test_a_training_learns_as_in_float32() -> None:
    single = trained(np.float32)
    assert single < 0.25
    for dtype in HALVES:
        half = trained(dtype)
        assert half < single + 0.05, f"{dtype}: {half} in place of {single}"
