"""Training on the GPU: the waits of a step, and agreement with the CPU."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import cleanup_backend, gen_backend
from neonlike.data import ArrayIterator
from neonlike.errors import DeviceMemoryError
from neonlike.initializers import Kaiming
from neonlike.layers import LSTM, Affine, Conv, Dropout, GeneralizedCost, Pooling, RecurrentLast
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, LossScaling
from neonlike.transforms import CrossEntropyMulti, Logistic, Rectlin, Softmax, Tanh
from tests.backends.gpu.shortage import running_out
from tests.support.engines import draw_masks_alike
from tests.support.example_scripts import example_script
from tests.support.gpu.device_only import traffic

pytestmark = pytest.mark.usefixtures("gpu_driver")
BATCH = 4
STEPS = 12
"""Of examples."""


def digits_convnet() -> list[Any]:
    """The network of examples/digits_convnet.py, with fewer maps."""
    conv = {"init": Kaiming(), "padding": 1, "batch_norm": True, "activation": Rectlin()}
    last = Affine(nout=10, init=Kaiming(), activation=Softmax())
    return [Conv((3, 3, 4), **conv), Pooling(2), Conv((3, 3, 6), **conv), Pooling(2), Dropout(keep=0.5), last]


def recurrent(reset_cells: bool = False) -> list[Any]:
    lstm = LSTM(6, Kaiming(), activation=Tanh(), gate_activation=Logistic(), reset_cells=reset_cells)
    return [lstm, RecurrentLast(), Affine(nout=10, init=Kaiming(), activation=Softmax())]


OPTIMIZER = partial(GradientDescentMomentum, 0.05, momentum_coef=0.9, wdecay=1e-4)
NETWORKS = {"digits convnet": (digits_convnet, (1, 8, 8)), "LSTM": (recurrent, (5, 7))}


def training(name: str, backend: str, optimizer: Any = None) -> tuple[Any, Any, list[tuple[Any, Any]]]:
    """Backend, a function that makes one training step of a batch and returns its cost, and batches on the device."""
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


def waited(driver: Any, call: Any) -> int:
    """How often ``call`` has the host wait for the emulated GPU; a real one does not tell."""
    if driver.emulator is None:
        call()
        return 0
    before = driver.emulator.synchronisations
    call()
    return int(driver.emulator.synchronisations - before)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_step_waits_for_nothing_but_its_cost(gpu_driver: Any, name: str) -> None:
    be, step, batches = training(name, "gpu")
    try:
        for batch in batches[:3]:
            step(batch)
        with traffic(be) as seen:
            cost = step(batches[3])
        assert len(seen) == len(seen.down) == 1 and "get_cost" in seen.down[0], f"a step crosses:\n{seen}"
        waits = waited(gpu_driver, lambda: step(batches[4]))
        assert waits == waited(gpu_driver, be.zeros((1, 1)).get), "as often as a number is read, by the driver's count"
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


def without_dropout() -> list[Any]:
    """The convnet of layers that draw nothing."""
    return [layer for layer in digits_convnet() if not isinstance(layer, Dropout)]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_that_runs_out_of_memory_can_be_made_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request of each step is refused in turn; the networks draw nothing, and begin each batch anew.

    (Running statistics of batch normalization are moved once more.)
    """
    again = {"digits convnet": without_dropout, "LSTM": partial(recurrent, reset_cells=True)}
    monkeypatch.setitem(NETWORKS, name, (again[name], NETWORKS[name][1]))
    (costs, _), (with_refusals, refused) = (costs_and_refusals(name, short) for short in (False, True))
    np.testing.assert_array_equal(with_refusals, costs)
    assert refused > 2


def costs_and_refusals(name: str, short: bool) -> tuple[list[float], int]:
    """The cost of each step, and how many requests were refused: if ``short``, one each time until a step is made."""
    be, step, batches = training(name, "gpu")
    costs, refused = list[float](), 0
    try:
        for batch in batches:
            after, before = 0 if short else -1, len(costs)
            while len(costs) == before:
                try:
                    with running_out(be, after):
                        costs.append(float(step(batch)[0, 0]))
                except DeviceMemoryError as error:
                    assert " asked for; " in str(error) and " are in use here in " in str(error)
                    after, refused = after + 1, refused + 1
    finally:
        cleanup_backend()
    return costs, refused


class Enough(Exception):
    """Ends a training."""


@pytest.mark.parametrize("name", ["digits_convnet", "char_lstm"])
def test_the_examples_follow_the_cpus_costs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs themselves, with their data, for some steps."""
    draw_masks_alike(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    curves = [costs_of(name, backend, monkeypatch) for backend in ("cpu", "gpu")]
    np.testing.assert_allclose(curves[1], curves[0], 1e-3)
    assert len(set(curves[0])) == STEPS and curves[0][-1] < curves[0][0]


def costs_of(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The cost of each of the first steps of an example."""
    costs: list[float] = []
    train = Model._train_batch

    def noted(model: Model, *given: Any) -> Any:
        costs.append(float(train(model, *given)[0, 0]))
        if len(costs) == STEPS:
            raise Enough
        return np.full((1, 1), costs[-1])

    with monkeypatch.context() as patch, contextmanager(example_script)(name) as example:
        patch.setattr(Model, "_train_batch", noted)
        with pytest.raises(Enough):
            example.main(["--epochs", "1", "--no_progress_bar", "-b", backend])
    return costs
