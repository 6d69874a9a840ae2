"""Loss scaling: the optimizer's gradients, effects of an overflow, saved trainings, float16 networks that learn."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, DTypeError
from neonlike.initializers import Gaussian, Kaiming
from neonlike.layers import Affine, Conv, GeneralizedCost, Multicost, Pooling
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject, build
from neonlike.optimizers import (
    Adadelta,
    Adam,
    AdamW,
    GradientDescentMomentum,
    LossScaling,
    MultiOptimizer,
    RMSProp,
    ShiftAdaMax,
)
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax, SumSquared

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(4)]
GDM = GradientDescentMomentum
OPTIMIZERS = {
    "momentum": lambda: GDM(0.1, 0.9, wdecay=0.01, gradient_clip_norm=0.5),
    "adam": lambda: Adam(gradient_clip_value=0.2),
    "adamw": lambda: AdamW(gradient_clip_norm=0.3),
    "rmsprop": RMSProp,
    "adadelta": Adadelta,
    "several": lambda: MultiOptimizer({"default": GDM(0.1, 0.9), "second": Adam()}),
}


class Layer:
    """A layer as an optimizer sees it, with a gradient that is set from step to step."""

    def __init__(self, be: Any, name: str, shape: tuple[int, int], dtype: Any = np.float32) -> None:
        rng = np.random.default_rng(len(name))
        self.name, self.W, self.dW = name, be.array(rng.normal(size=shape), dtype=dtype), be.zeros(shape, dtype=dtype)
        self.states: list[Any] = []

    def get_params(self) -> Any:
        return (self.W, self.dW), self.states

    def held(self) -> list[Any]:
        """Parameters and states."""
        return [tensor.get().tolist() for tensor in (self.W, *self.states)]


def two_layers(be: Any) -> list[Layer]:
    return [Layer(be, "first", (5, 3)), Layer(be, "second", (2, 7))]


def step(optimizer: Any, layers: list[Layer], number: int, worst: float | None = None) -> None:
    """One step on gradients of a seed, times the scale that there is; the last of the first layer is ``worst``."""
    be, rng, factor = layers[0].W.backend, np.random.default_rng(number), 1.0
    if isinstance(optimizer, LossScaling):
        factor = float(optimizer.scale_errors(be.ones((1, 1))).get()[0, 0])
    for layer in layers:
        gradient = factor * rng.normal(size=layer.dW.shape).astype(np.float32)
        if worst is not None and layer.name == "first":
            gradient[-1, -1] = worst
        layer.dW[:] = gradient
    optimizer.optimize(layers, epoch=0)


@pytest.mark.compiles(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_sees_the_gradients_of_the_loss(be: Backend, name: str) -> None:
    """Scales are powers of two: they round nothing beyond the rounding of compiled expressions."""
    plain, scaled = OPTIMIZERS[name](), LossScaling(OPTIMIZERS[name](), scale=2.0**10, interval=2)
    ours, wanted = two_layers(be), two_layers(be)
    for number in range(4):
        step(plain, wanted, number)
        step(scaled, ours, number)
    for layer, other in zip(ours, wanted):
        for tensor, same in zip((layer.W, *layer.states), (other.W, *other.states), strict=True):
            np.testing.assert_allclose(tensor.get(), same.get(), 2e-6, 1e-9)
    assert (scaled.current_scale, scaled.skipped_steps) == (2.0**12, 0)


@pytest.mark.compiles(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_overflow_changes_nothing_but_the_scale(be: Backend, name: str) -> None:
    """An overflow also skips the layers with finite gradients."""
    optimizer, layers = LossScaling(OPTIMIZERS[name](), scale=8, interval=2), two_layers(be)
    step(optimizer, layers, 0)
    before = [layer.held() for layer in layers]
    for number, worst in enumerate((np.inf, -np.inf, np.nan), 1):
        step(optimizer, layers, number, worst)
        assert [layer.held() for layer in layers] == before
        assert (optimizer.current_scale, optimizer.skipped_steps) == (8 / 2**number, number)
    step(optimizer, layers, 4)
    assert [layer.held() for layer in layers] != before
    assert optimizer.current_scale == 1, "steps count from the last overflow"
    step(optimizer, layers, 5)
    assert (optimizer.current_scale, optimizer.skipped_steps) == (2, 3)


def test_a_static_scale_stays_and_others_keep_their_bounds(be: Backend) -> None:
    static, layers = LossScaling(GDM(0.1, 0), scale=3.0, interval=None), two_layers(be)
    large, small = LossScaling(GDM(0.1, 0), scale=2.0**24, interval=1), LossScaling(GDM(0.1, 0), scale=2.0**-24)
    before = layers[0].held()
    step(static, layers, 0, np.inf)
    step(small, layers, 0, np.nan)
    assert static.current_scale == 3.0
    assert layers[0].held() == before
    step(static, layers, 1)
    step(large, layers, 2)
    assert layers[0].held() != before
    assert (static.current_scale, static.skipped_steps) == (3.0, 1)
    assert (large.current_scale, small.current_scale, small.skipped_steps) == (2.0**24, 2.0**-24, 1)


def test_a_training_goes_on_where_it_was_saved(be: Backend) -> None:
    optimizer, layers = LossScaling(OPTIMIZERS["several"](), scale=16, interval=3), two_layers(be)
    for number, worst in enumerate((None, np.inf, None, None)):
        step(optimizer, layers, number, worst)
    described, progress = optimizer.get_description(), optimizer.progress()
    assert progress == {"scale": 8.0, "good": 2.0, "skipped": 1.0, "optimizer": {"second": {"t": 4}}}
    other = build(described)
    assert other.current_scale == 16
    other.set_progress(progress)
    assert other.progress() == copy.deepcopy(optimizer).progress() == progress
    again = two_layers(be)
    for layer, old in zip(again, layers):
        layer.W[:] = old.W
        layer.states.extend(be.array(state.get()) for state in old.states)
    for number in range(4, 7):
        step(optimizer, layers, number)
        step(other, again, number)
    assert [layer.held() for layer in again] == [layer.held() for layer in layers]
    assert other.progress() == optimizer.progress()


def test_what_it_does_not_take(be: Backend) -> None:
    optimizer, layers = LossScaling(GDM(0.1, 0.9)), two_layers(be)
    before = layers[0].held()
    with pytest.raises(ArgumentError, match="scale_errors"):
        optimizer.optimize(layers, 0)
    step(optimizer, layers, 0)
    held = layers[0].held()
    assert held[0] != before[0]
    with pytest.raises(ArgumentError, match="scale_errors"):
        optimizer.optimize(layers, 0)
    assert layers[0].held() == held

    for wrong in (ShiftAdaMax(), MultiOptimizer({"default": ShiftAdaMax()}), optimizer):
        with pytest.raises(ArgumentError, match="in its own way"):
            LossScaling(wrong)
    with pytest.raises(DTypeError, match="expected an optimizer"):
        LossScaling("adam")
    for scale in (0, -1, 2.0**25, np.nan):
        with pytest.raises(ArgumentError, match="scale must be"):
            LossScaling(GDM(0.1, 0.9), scale=scale)
    for interval in (0, 2.5):
        with pytest.raises(ArgumentError, match="interval must be"):
            LossScaling(GDM(0.1, 0.9), interval=interval)  # type: ignore[arg-type]


def test_errors_of_several_costs_are_all_scaled(be: Backend) -> None:
    cost = Multicost([GeneralizedCost(SumSquared()), GeneralizedCost(SumSquared())], weights=[1, 0.5])
    errors = [be.ones((3, 4)), be.ones((2, 4), dtype=np.float16)]
    cost.deltas = LossScaling(GDM(0.1, 0.9), scale=64).scale_errors(errors)
    assert [np.unique(error.get()).tolist() for error in cost.deltas] == [[64], [64]]


def digits_convnet() -> list[Any]:
    conv = {"init": Kaiming(), "padding": 1, "activation": Rectlin()}
    last = Affine(nout=10, init=Kaiming(), activation=Softmax())
    return [Conv((3, 3, 4), batch_norm=True, **conv), Pooling(2), Conv((3, 3, 6), **conv), last]


def mlp() -> list[Any]:
    return [Affine(12, Kaiming(), activation=Rectlin()), Affine(10, Kaiming(), activation=Softmax())]


class Faint(CrossEntropyMulti):
    """Errors of about 2**-12."""

    def bprop(self, y: Any, t: Any) -> Any:
        return super().bprop(y, t) * 2.0**-12


def trained(layers: list[Any], optimizer: Any, cost: Any = None, epochs: int = 4) -> tuple[list[float], list[Any]]:
    """The costs of the epochs of a short training of float16, and the layers with weights."""
    be = NervanaObject.be
    be.default_dtype = np.float16
    be.rng_reset()
    rng = np.random.default_rng(5)
    y = np.arange(32) % 10
    x = rng.uniform(size=(32, 64)) + 2 * (np.arange(64) % 10 == y[:, None])
    data = ArrayIterator(x.astype(np.float32), y, nclass=10, lshape=(1, 8, 8))
    model, found = Model(layers, optimizer=optimizer), []
    model.initialize(data, general := GeneralizedCost(cost or CrossEntropyMulti()))
    model.cost = general
    for _ in range(epochs):
        found.append(sum(float(model._train_batch(x, t, model.layers_to_optimize)[0, 0]) for x, t in data))
    return found, [layer for layer in model.layers_to_optimize if hasattr(layer, "W")]


@pytest.mark.parametrize("layers", [mlp, digits_convnet])
def test_networks_of_float16_learn(be: Backend, layers: Any) -> None:
    """From a scale that overflows at first."""
    optimizer = LossScaling(GDM(0.1, 0.9), scale=2.0**20)
    with np.errstate(all="ignore"):
        costs, found = trained(layers(), optimizer)
    assert costs[-1] < 0.75 * costs[0]
    assert 0 < optimizer.skipped_steps < 16
    assert all(layer.W.dtype == np.float16 and np.isfinite(layer.W.get()).all() for layer in found)


def test_small_errors_reach_the_first_layer(be: Backend) -> None:
    """Behind small weights they are 0 in float16 otherwise."""
    found = []
    for optimizer in (GDM(0.1, 0), LossScaling(GDM(0.1, 0), interval=None)):
        layers = [Affine(12, Kaiming()), Affine(10, Gaussian(scale=2.0**-15), activation=Softmax())]
        _, trained_layers = trained(layers, optimizer, Faint(), epochs=1)
        found.append(np.count_nonzero(trained_layers[0].dW.get()))
    assert found[0] == 0 < found[1]
