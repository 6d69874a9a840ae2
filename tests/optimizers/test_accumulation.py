"""Gradient accumulation: K minibatches train as one batch of all their samples; saved trainings go on in a group."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.backends import Backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, GeneralizedCost
from neonlike.models import Model
from neonlike.nervanaobject import build
from neonlike.optimizers import (
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    GradientAccumulation,
    GradientDescentMomentum,
    LossScaling,
    MultiOptimizer,
    RMSProp,
    ShiftAdaMax,
)
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from tests.optimizers.test_loss_scaling import two_layers

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(4)]
GDM = GradientDescentMomentum
N, K = 4, 3
OPTIMIZERS = {
    "momentum": lambda: GDM(0.1, 0.9, wdecay=0.01, gradient_clip_norm=0.2),
    "value": lambda: GDM(0.1, 0.9, gradient_clip_value=0.05),
    "adam": Adam,
    "adamw": lambda: AdamW(gradient_clip_norm=0.2),
    "rmsprop": RMSProp,
    "adagrad": Adagrad,
    "adadelta": Adadelta,
    "shift": ShiftAdaMax,
    "several": lambda: MultiOptimizer({"default": GDM(0.1, 0.9), "second": Adam()}),
    "scaled": lambda: LossScaling(Adam(), scale=4.0, interval=None),
}


@pytest.mark.compiles(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_takes_the_mean_of_a_group(be: Backend, name: str) -> None:
    rng, plain, accumulated = np.random.default_rng(2), OPTIMIZERS[name](), GradientAccumulation(OPTIMIZERS[name](), K)
    ours, wanted = two_layers(be), two_layers(be)
    for count in (K, K, 2):  # the last group is flushed
        sums, before = [0.0, 0.0], [layer.held() for layer in ours]
        for _ in range(count):
            assert [layer.held() for layer in ours] == before, "before the end of its group"
            factor = accumulated.scale_errors(be.ones((1, 1))).item()
            for place, layer in enumerate(ours):
                gradient = rng.normal(size=layer.dW.shape).astype("f4")
                layer.dW[:] = gradient * factor
                sums[place] = sums[place] + gradient
            accumulated.optimize(ours, 0)
        accumulated.flush(ours, 0)
        factor = plain.scale_errors(be.ones((1, 1))).item()
        for layer, total in zip(wanted, sums):
            layer.dW[:] = factor * total / count
        plain.optimize(wanted, 0)
        for layer, other in zip(ours, wanted):
            for tensor, same in zip((layer.W, *layer.states), (other.W, *other.states), strict=True):
                np.testing.assert_allclose(tensor.get(), same.get(), 1e-5, 1e-6)
    accumulated.flush(ours, 0)
    assert ours[0].held() != before[0] and len(accumulated.progress().get("sums", [])) == 0


def model_of(be: Backend) -> Model:
    be.rng_reset()
    hidden = Affine(7, GlorotUniform(), bias=Constant(0), activation=Rectlin())
    return Model([hidden, Affine(2, GlorotUniform(), activation=Softmax())])


def data_of(samples: int) -> ArrayIterator:
    x = np.random.default_rng(1).normal(size=(samples, 5)).astype("f4")
    return ArrayIterator(x, (x[:, 0] > 0).astype(int), nclass=2)


def weights(model: Model) -> list[np.ndarray]:
    return [param.get() for layer in model.layers_to_optimize for (param, _), _ in entries(layer)]


def entries(layer: Any) -> list[Any]:
    found = layer.get_params()
    return found if isinstance(found, list) else [found]


def fitted(be: Backend, batch: int, optimizer: Any, samples: int = 24, epochs: int = 3, *callbacks: Any) -> Model:
    be.bsz = batch
    model = model_of(be)
    listed = Callbacks(model, progress_bar=False)
    for callback in callbacks:
        listed.add_callback(callback)
    model.fit(data_of(samples), GeneralizedCost(CrossEntropyMulti()), optimizer, epochs, listed)
    return model


@pytest.mark.parametrize("name", ["momentum", "scaled"])
def test_minibatches_train_as_one_batch(be: Backend, name: str) -> None:
    """Also passes that are repeated without Python."""
    one = fitted(be, K * N, OPTIMIZERS[name](), epochs=8)
    several = fitted(be, N, GradientAccumulation(OPTIMIZERS[name](), K), epochs=8)
    for ours, wanted in zip(weights(several), weights(one), strict=True):
        np.testing.assert_allclose(ours, wanted, 1e-4, 2e-6)
    assert several.total_cost.item() == pytest.approx(one.total_cost.item(), rel=1e-5)


def test_an_epoch_ends_with_the_mean_of_what_there_is(be: Backend) -> None:
    be.bsz = N
    model, cost, optimizer = model_of(be), GeneralizedCost(CrossEntropyMulti()), Adam(learning_rate=0.01)
    data = data_of(8 * N)
    model.initialize(data, cost)
    for _ in range(2):
        batches = list(range(8))
        for group in (batches[:3], batches[3:6], batches[6:]):
            sums: list[Any] = []
            for place, (x, t) in enumerate(data):
                if place in group:
                    model.bprop(cost.get_errors(model.fprop(x), t))
                    found = [grad for layer in model.layers_to_optimize for (_, grad), _ in entries(layer)]
                    sums = [a.get() + b for a, b in zip(found, sums or [0] * len(found))]
            for grad, total in zip(found, sums):
                grad[:] = total / len(group)
            optimizer.optimize(model.layers_to_optimize, 0)
    accumulated = GradientAccumulation(Adam(learning_rate=0.01), K)
    other = fitted(be, N, accumulated, 8 * N, 2)
    assert accumulated.optimizer.t == 6, "Adam counts its steps"
    for ours, wanted in zip(weights(other), weights(model), strict=True):
        np.testing.assert_allclose(ours, wanted, 1e-4, 2e-6)


class At(Callback):
    """Calls a function with the model after some minibatch of the second epoch."""

    def __init__(self, minibatch: int, function: Any) -> None:
        super().__init__()
        self.minibatch, self.function = minibatch, function

    def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        """Call it."""
        if (epoch, minibatch) == (1, self.minibatch):
            self.function(model)


@pytest.mark.parametrize("minibatch", [0, 1, 2, 7])
def test_a_training_saved_within_a_group_goes_on(be: Backend, minibatch: int, tmp_path: Any) -> None:
    def optimizer() -> GradientAccumulation:
        return GradientAccumulation(LossScaling(Adam(learning_rate=0.01)), K)

    def save(model: Model) -> None:
        model.save_params(tmp_path / "m.prm")

    whole = fitted(be, N, optimizer(), 8 * N, 3, At(minibatch, save))
    again, resumed = Model(tmp_path / "m.prm"), optimizer()
    again.fit(data_of(8 * N), GeneralizedCost(CrossEntropyMulti()), resumed, 3, Callbacks(again, progress_bar=False))
    assert all(map(np.array_equal, weights(again), weights(whole))), "bit for bit"


def test_an_interrupted_training_goes_on_with_its_group(be: Backend) -> None:
    whole = fitted(be, N, GradientAccumulation(GDM(0.1, 0.9), K))

    def stop(model: Model) -> None:
        raise KeyboardInterrupt

    be.bsz = N
    model, optimizer, data = model_of(be), GradientAccumulation(GDM(0.1, 0.9), K), data_of(24)
    callbacks, cost = Callbacks(model, progress_bar=False), GeneralizedCost(CrossEntropyMulti())
    callbacks.add_callback(At(1, stop))
    with pytest.raises(KeyboardInterrupt):
        model.fit(data, cost, optimizer, 3, callbacks)
    assert optimizer.progress()["minibatches"] == 2
    model.fit(data, cost, optimizer, 3, Callbacks(model, progress_bar=False))
    assert all(map(np.array_equal, weights(model), weights(whole)))


def test_an_epoch_that_begins_drops_gradients_of_another_training(be: Backend) -> None:
    whole = fitted(be, N, GradientAccumulation(GDM(0.1, 0.9), K))
    model, cost, data = model_of(be), GeneralizedCost(CrossEntropyMulti()), data_of(24)
    model.initialize(data, cost)
    for layer in model.layers_to_optimize:
        for (_, grad), _ in entries(layer):
            grad[:] = 1e3
    optimizer = GradientAccumulation(GDM(0.1, 0.9), K)
    optimizer.add(model.layers_to_optimize)
    model.fit(data, cost, optimizer, 3, Callbacks(model, progress_bar=False))
    assert all(map(np.array_equal, weights(model), weights(whole)))


def test_variables(be: Backend) -> None:
    """Their derivatives become the means, which the wrapped optimizer is to find."""
    def trained(size: int, optimizer: Any) -> np.ndarray:
        be.bsz, rng = size, np.random.default_rng(3)
        weight = ag.param(np.ones((5, 1)))
        for _ in range(6 * K * N // size):
            x = rng.normal(size=(size, 5))
            ag.zero_grad([weight])
            error = ag.const(x) @ weight - ag.const(x.sum(axis=1, keepdims=True) * 2)
            (error * error).sum().backprop()
            optimizer.optimize([weight], 0)
        return weight.get()

    one, several = trained(K * N, GDM(0.05, 0.5)), trained(N, GradientAccumulation(GDM(0.05, 0.5), K))
    np.testing.assert_allclose(several, one, 1e-5, 1e-6)


def test_sums_of_16_bits_are_kept_in_float32(be: Backend) -> None:
    layer, optimizer = two_layers(be)[0], GradientAccumulation(GDM(1.0, 0), 4)
    layer.W, layer.dW = be.zeros((1, 1), dtype="f2"), be.zeros((1, 1), dtype="f2")
    for value in (6e4, 6e4, -6e4, 32.0):
        layer.dW[:] = value
        optimizer.optimize([layer], 0)
    assert layer.dW.item() == 15008.0 and np.isfinite(layer.W.item())


def test_copies_and_descriptions(be: Backend) -> None:
    layers, optimizer = two_layers(be), GradientAccumulation(LossScaling(Adam()), 2)
    optimizer.scale_errors(be.ones((1, 1)))
    layers[0].dW[:] = 2
    optimizer.optimize(layers, 0)
    other = copy.deepcopy(optimizer)
    assert other.progress()["minibatches"] == 1
    np.testing.assert_array_equal(other.progress()["sums"][0], 2 * np.ones((5, 3)))
    same = build(optimizer.get_description())
    assert (same.minibatches, type(same.optimizer)) == (2, LossScaling) and same.scales_errors


@pytest.mark.parametrize("optimizer, minibatches, error", [
    (Adam, 2, DTypeError), (None, 2, DTypeError), ("accumulated", 2, DTypeError),
    ("adam", 0, ArgumentError), ("adam", 1.5, ArgumentError), ("adam", True, ArgumentError),
])  # fmt: skip
def test_wrong_arguments(be: Backend, optimizer: Any, minibatches: Any, error: type[Exception]) -> None:
    made = {"adam": Adam, "accumulated": lambda: GradientAccumulation(Adam(), 2)}
    given = made[optimizer]() if isinstance(optimizer, str) else optimizer
    with pytest.raises(error, match="GradientAccumulation"):
        GradientAccumulation(given, minibatches)


def test_wrong_places(be: Backend) -> None:
    inner = GradientAccumulation(Adam(), 2)
    with pytest.raises(ArgumentError, match="goes around"):
        LossScaling(inner)
    with pytest.raises(ArgumentError, match="goes around"):
        MultiOptimizer({"default": inner})
    layers = two_layers(be)
    inner.optimize(layers, 0)
    with pytest.raises(ArgumentError, match="other parameters than those before"):
        inner.optimize(layers[:1], 0)
    for saved in {"minibatches": 1}, {"minibatches": -1}, {"minibatches": 1, "sums": 3}, {"sums": [np.ones(1)]}:
        with pytest.raises(ArgumentError, match="saved group"):
            inner.set_progress(saved)
    inner.set_progress({"minibatches": 1, "sums": [np.ones((2, 2))]})
    with pytest.raises(ArgumentError, match="other shapes"):
        inner.optimize(layers, 0)
