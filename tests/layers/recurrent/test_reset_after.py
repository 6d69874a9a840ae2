"""The GRU of PyTorch's formula: outputs by NumPy, gradients by differences, saving, partial batches, training."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.errors import DTypeError, NotDefined, ShapeError
from neonlike.initializers import Constant, Gaussian, Uniform
from neonlike.layers import Affine, GeneralizedCost, RecurrentLast, ResetAfterGRU, Reshape, Sequential, SkipNode
from neonlike.models import Model
from neonlike.nervanaobject import build
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Softmax
from tests.layers.layering import check_gradients, ready, tensor

N = 3
pytestmark = pytest.mark.samples(N)
PARAMETERS = ("W_input", "W_recur", "b", "b_recur")


def by_numpy(x: np.ndarray, p: dict[str, np.ndarray]) -> np.ndarray:
    """States (units, steps, N) of inputs (features, steps, N)."""
    units = p["W_recur"].shape[1]
    h = np.zeros((units, x.shape[2]))
    found = []
    for t in range(x.shape[1]):
        ours, theirs = p["W_input"] @ x[:, t] + p["b"], p["W_recur"] @ h
        r, z = (1 / (1 + np.exp(-ours[k] - theirs[k])) for k in (slice(units), slice(units, 2 * units)))
        n = np.tanh(ours[2 * units :] + r * (theirs[2 * units :] + p["b_recur"]))
        h = (1 - z) * n + z * h
        found.append(h)
    return np.stack(found, axis=1)


def filled(layer: Any, rng: Any) -> dict[str, np.ndarray]:
    """Random parameters, which the layer gets."""
    params = {name: rng.normal(size=getattr(layer, name).shape) for name in PARAMETERS}
    layer.set_params({"params": params})
    return params


@pytest.mark.parametrize(("shape", "units"), [((4, 3), 4), ((2, 5), 3), ((3, 1), 2), (3, 2)])
def test_outputs_and_gradients(be64, rng, shape, units):
    net = ready(Sequential([ResetAfterGRU(units, Gaussian())]), shape)
    params = filled(net.layers[0], rng)
    steps = shape[-1] if isinstance(shape, tuple) else 1
    x = rng.normal(size=(int(np.prod(shape)) // steps, steps, N))
    given = x.reshape(len(x), -1)
    wanted = by_numpy(x, params)
    np.testing.assert_allclose(net.fprop(tensor(be64, given)).get().reshape(wanted.shape), wanted, rtol=1e-9)
    check_gradients(net, given, rng, rtol=1e-5)
    part = net.fprop(tensor(be64, x[:, :, :2].reshape(len(x), -1)), inference=True).get()
    np.testing.assert_allclose(part.reshape(units, steps, 2), wanted[:, :, :2], rtol=1e-9)


def test_weights_are_filled_and_described(be, rng):
    layer = ready(ResetAfterGRU(2, Constant(0.5), init_inner=Constant(-1), name="gru"), (3, 4))
    assert (layer.W_input.get() == 0.5).all() and (layer.W_recur.get() == -1).all()
    assert not layer.b.get().any() and not layer.b_recur.get().any()
    described = layer.get_description()
    assert described["config"].keys() == {"output_size", "init", "init_inner", "name"}
    again = ready(build(described), (3, 4))
    np.testing.assert_array_equal(again.W_recur.get(), layer.W_recur.get())
    with pytest.raises(DTypeError, match="init must be an initializer"):
        ResetAfterGRU(2, np.ones((6, 3)))
    with pytest.raises(ShapeError, match=r"needs a sequence.* put Reshape"):
        ResetAfterGRU(2, Gaussian()).configure((2, 3, 4))
    with pytest.raises(ShapeError, match="positive"):
        ResetAfterGRU(0, Gaussian())


def test_copies_compute_the_same(be, rng):
    net = ready(Sequential([ResetAfterGRU(4, Gaussian())]), (2, 3))
    x = tensor(be, rng.normal(size=(2, 3 * N)))
    wanted = net.fprop(x).get().copy()
    for made in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(made.fprop(x).get(), wanted)


def test_lengths_are_refused(be):
    net = ready(Sequential([ResetAfterGRU(4, Gaussian(), name="gru")]), (2, 3))
    net.set_lengths(None)
    with pytest.raises(NotDefined, match=r"gru\.set_lengths: sequences must have all steps here; use GRU"):
        net.set_lengths([1, 2, 3])


@pytest.mark.engines("numpy")
def test_a_network_learns_and_is_saved(be, rng, tmp_path):
    be.bsz = 16
    x = rng.normal(size=(64, 12)).astype(np.float32)
    labels = (x.reshape(64, 3, 4)[:, 0].sum(axis=1) > 0).astype(np.int32)
    data = ArrayIterator(x, labels, nclass=2)
    last = Affine(2, Gaussian(scale=0.3), activation=Softmax())
    model = Model([SkipNode(), Reshape((3, 4)), ResetAfterGRU(8, Uniform(-0.5, 0.5)), RecurrentLast(), last])
    cost = GeneralizedCost(CrossEntropyMulti())
    model.fit(data, cost, Adam(learning_rate=0.02), 1)
    before = model.total_cost.item()
    model.fit(data, cost, Adam(learning_rate=0.02), 15)
    assert model.total_cost.item() < 0.6 * before
    model.save_params(tmp_path / "m.prm")
    again = Model(tmp_path / "m.prm")
    again.initialize(data)
    np.testing.assert_array_equal(again.get_outputs(data), model.get_outputs(data))
