"""Training on the GPU: what a step waits for, and that it computes what the CPU does."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from device_only import traffic
from engines import draw_masks_alike

from neonlike.backends import cleanup_backend, gen_backend
from neonlike.data import ArrayIterator
from neonlike.initializers import Kaiming
from neonlike.layers import LSTM, Affine, Conv, Dropout, GeneralizedCost, Pooling, RecurrentLast
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, LossScaling
from neonlike.transforms import CrossEntropyMulti, Logistic, Rectlin, Softmax, Tanh

pytestmark = pytest.mark.usefixtures("gpu_driver")
BATCH = 4


def digits_convnet() -> list[Any]:
    """The network of examples/digits_convnet.py, with fewer maps."""
    conv = {"init": Kaiming(), "padding": 1, "batch_norm": True, "activation": Rectlin()}
    last = Affine(nout=10, init=Kaiming(), activation=Softmax())
    return [Conv((3, 3, 4), **conv), Pooling(2), Conv((3, 3, 6), **conv), Pooling(2), Dropout(keep=0.5), last]


def recurrent() -> list[Any]:
    lstm = LSTM(6, Kaiming(), activation=Tanh(), gate_activation=Logistic())
    return [lstm, RecurrentLast(), Affine(nout=10, init=Kaiming(), activation=Softmax())]


OPTIMIZER = partial(GradientDescentMomentum, 0.05, momentum_coef=0.9, wdecay=1e-4)
NETWORKS = {"digits convnet": (digits_convnet, (1, 8, 8)), "LSTM": (recurrent, (5, 7))}


def training(name: str, backend: str, optimizer: Any = None) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """A backend, what makes one training step of a batch and returns its cost, and batches on the device."""
    be = gen_backend(backend, rng_seed=3, batch_size=BATCH)
    layers, shape = NETWORKS[name]
    rng = np.random.default_rng(5)
    x, y = rng.uniform(size=(5 * BATCH, int(np.prod(shape)))), rng.integers(0, 10, 5 * BATCH)
    data = ArrayIterator(x.astype(np.float32), y, nclass=10, lshape=shape)
    model, cost = Model(layers()), GeneralizedCost(CrossEntropyMulti())
    model.initialize(data, cost)
    model.optimizer = optimizer or OPTIMIZER()
    batches = [tuple(be.array(t.get()) for t in batch) for batch in data]
    return be, lambda batch: model._train_batch(*batch, model.layers_to_optimize), batches


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_waits_for_nothing_but_its_cost(name: str) -> None:
    be, step, batches = training(name, "gpu")
    try:
        for batch in batches[:3]:
            step(batch)
        with traffic(be) as seen:
            cost = step(batches[3])
        assert len(seen) == len(seen.down) == 1 and "get_cost" in seen.down[0], f"a step crosses:\n{seen}"
        assert cost.shape == (1, 1) and 0 < cost[0, 0] < 10
    finally:
        cleanup_backend()


def test_a_scaled_loss_waits_for_nothing_else() -> None:
    """Whether gradients are finite is known where they are; an overflow makes no difference to the host."""
    be, step, batches = training("digits convnet", "gpu", LossScaling(OPTIMIZER(), scale=2.0**20, interval=2))
    try:
        for batch in batches[:3]:
            step(batch)
        with traffic(be) as seen:
            step(batches[3])
        assert len(seen) == len(seen.down) == 1 and "get_cost" in seen.down[0], f"a step crosses:\n{seen}"
    finally:
        cleanup_backend()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_run_follows_the_cpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost after each of ten steps; the CPU's masks are made those of the GPU."""
    draw_masks_alike(monkeypatch)
    found = []
    for backend in ("cpu", "gpu"):
        _, step, batches = training(name, backend)
        try:
            found.append([float(step(batch)[0, 0]) for batch in 2 * batches])
        finally:
            cleanup_backend()
    np.testing.assert_allclose(found[1], found[0], 2e-4)
    assert min(found[0]) > 0 and len(set(found[0])) == 10
