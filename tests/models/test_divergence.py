"""Trainings whose cost is no number any more, and learning rates that are none."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import (
    Adagrad,
    Adam,
    AdamW,
    ExpSchedule,
    GradientDescentMomentum,
    RMSProp,
    Schedule,
    ShiftAdaMax,
)  # fmt: skip
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import CrossEntropyMulti, Identity, Rectlin, Softmax, SumSquared

NIN, NCLASS, N = 5, 3, 8
pytestmark = [pytest.mark.samples(N), pytest.mark.backend]


def data(count: int = 32, **where: float) -> ArrayIterator:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(count, NIN)), rng.integers(NCLASS, size=count)
    for row, value in where.items():
        x[int(row[1:])] = value
    return ArrayIterator(x, labels, nclass=NCLASS)


def network(activation: Any = None) -> Model:
    init = GlorotUniform()
    return Model([
        Affine(7, init, activation=Rectlin(), name="first"),
        Affine(NCLASS, init, activation=activation or Softmax(), name="second"),
    ])  # fmt: skip


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.WARNING, "neon"):
        yield lambda: [r.getMessage() for r in caplog.records if "the cost is" in r.getMessage()]


def overflowing(model: Model, epochs: int, callbacks: Any, rate: float = 1e30) -> None:
    model.fit(data(), GeneralizedCost(SumSquared()), GradientDescentMomentum(rate, 0.0), epochs, callbacks)


class TestDivergence:
    """Messages about a diverging training, and its end."""

    def test_it_is_said_once_with_the_layer(self, be: Any, told: Any) -> None:
        model = network(Identity())
        overflowing(model, 3, Callbacks(model, progress_bar=False))
        (text,) = told()
        assert model.epoch_index == 3 and model.diverged
        assert "in minibatch 1 of epoch 0" in text or "in minibatch 2 of epoch 0" in text
        assert "the first layer whose outputs are not all finite is " in text
        assert "learning rate" in text and "stop_on_nan=True" in text
        overflowing(model, 4, Callbacks(model, progress_bar=False))
        assert len(told()) == 2, "once in each training"

    def test_what_the_inputs_bring(self, be: Any, told: Any) -> None:
        model = network()
        callbacks = Callbacks(model, progress_bar=False)
        model.fit(data(r19=np.nan), GeneralizedCost(CrossEntropyMulti()), Adam(), 1, callbacks)
        (text,) = told()
        assert "nan in minibatch 2 of epoch 0" in text and "the inputs of the network are not all finite" in text

    def test_the_first_layer_is_named(self, be: Any, told: Any) -> None:
        model = network()
        fit = (GeneralizedCost(CrossEntropyMulti()), Adam(), 1, Callbacks(model, progress_bar=False))
        model.initialize(data(), fit[0])
        model.layers_to_optimize[0].W[:] = np.nan
        model.fit(data(), *fit)
        name = model.layers_to_optimize[0].name
        assert f"in minibatch 0 of epoch 0; the first layer whose outputs are not all finite is {name} (" in told()[0]

    def test_good_trainings_say_nothing(self, be: Any, told: Any) -> None:
        model = network()
        model.fit(data(), GeneralizedCost(CrossEntropyMulti()), Adam(), 2, Callbacks(model, progress_bar=False))
        assert not told() and not model.diverged

    def test_stop_keeps_the_last_good_file(self, be: Any, told: Any, tmp_path: Any) -> None:
        path, ended = tmp_path / "m.prm", []

        class Worse(Callback):
            def on_epoch_end(self, callback_data: Any, model: Any, epoch: int) -> None:
                if epoch == 1:
                    model.optimizer.learning_rate = 1e30

            def on_train_end(self, callback_data: Any, model: Any) -> None:
                ended.append(model.epoch_index)

        model = network(Identity())
        callbacks = Callbacks(
            model, progress_bar=False, save_path=str(path), eval_set=data(), eval_freq=1, stop_on_nan=True
        )
        callbacks.add_callback(Worse())
        overflowing(model, 9, callbacks, rate=0.01)
        assert model.finished and model.epoch_index == 2 == ended[0]
        assert "The training ends" in told()[0] and len(told()) == 1
        kept = Model(path)
        assert kept.epoch_index == 2
        assert all(np.isfinite(layer.W.get()).all() for layer in kept.layers_to_optimize)
        losses = callbacks.callback_data["cost/loss"][...]
        assert np.isfinite(losses[:2]).all() and np.isnan(losses[2:]).all()


RATES = {
    "momentum": lambda rate, **more: GradientDescentMomentum(rate, 0.9, **more),
    "rmsprop": lambda rate, **more: RMSProp(learning_rate=rate, **more),
    "adagrad": lambda rate, **more: Adagrad(learning_rate=rate),
    "adam": lambda rate, **more: Adam(learning_rate=rate),
    "adamw": lambda rate, **more: AdamW(learning_rate=rate, **more),
    "shift": lambda rate, **more: ShiftAdaMax(learning_rate=rate, **more),
}


class Falling(Schedule):
    """Below 0 in epoch 1."""

    def get_learning_rate(self, learning_rate: float, epoch: float) -> float:
        return learning_rate * (0.5 - epoch)


@pytest.mark.parametrize("rate", [np.nan, -0.1, np.inf, -np.inf])
@pytest.mark.parametrize("optimizer", RATES)
def test_rates_that_are_none_are_refused(be: Any, optimizer: str, rate: float) -> None:
    with pytest.raises(ArgumentError, match=r"learning_rate=.*expected a number from 0"):
        RATES[optimizer](rate)
    made, model = RATES[optimizer](0.1), network()
    model.fit(data(), GeneralizedCost(CrossEntropyMulti()), made, 1)
    before = [layer.W.get() for layer in model.layers_to_optimize]
    made.learning_rate = rate
    with pytest.raises(ArgumentError, match="learning_rate="):
        model.fit(data(), GeneralizedCost(CrossEntropyMulti()), made, 2)
    for one, layer in zip(before, model.layers_to_optimize):
        assert np.array_equal(one, layer.W.get())
    with neon_dialect():
        RATES[optimizer](rate)
    RATES[optimizer](0)


@pytest.mark.parametrize("optimizer", ["momentum", "rmsprop", "adamw", "shift"])
def test_rates_of_schedules_are_checked_in_each_epoch(be: Any, optimizer: str) -> None:
    model = network()
    with pytest.raises(ArgumentError, match=r"learning_rate=-0\.05 in epoch 1"):
        model.fit(data(), GeneralizedCost(CrossEntropyMulti()), RATES[optimizer](0.1, schedule=Falling()), 3)
    assert model.epoch_index == 1
    model = network()
    model.fit(data(), GeneralizedCost(CrossEntropyMulti()), RATES[optimizer](0.1, schedule=ExpSchedule(0.1)), 2)
