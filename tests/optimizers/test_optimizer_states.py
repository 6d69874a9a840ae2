"""States of optimizers: another kind of optimizer does not use them, and they need more than 16 bits."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine, BatchNorm, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import (
    Adagrad,
    Adam,
    AdamW,
    GradientDescentMomentum,
    LossScaling,
    MultiOptimizer,
    RMSProp,
    get_param_list,
)
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax

pytestmark = pytest.mark.engines("c", batch_size=16)


class Quiet(GradientDescentMomentum):
    """A user's own subclass that keeps its base's states."""


MADE = {
    "momentum": lambda: GradientDescentMomentum(0.1, 0.9),
    "plain": lambda: GradientDescentMomentum(0.1, 0.0),
    "quiet": lambda: Quiet(0.1, 0.9),
    "rmsprop": RMSProp,
    "adagrad": Adagrad,
    "adam": Adam,
    "adamw": AdamW,
    "several": lambda: MultiOptimizer({"default": RMSProp(), "Bias": GradientDescentMomentum(0.1, 0.9)}),
    "scaled": lambda: LossScaling(RMSProp()),
}


def network():
    init = GlorotUniform()
    hidden = Affine(8, init, bias=Constant(0), activation=Rectlin())
    return Model([hidden, BatchNorm(), Affine(3, init, activation=Softmax())])


def train(model, names, optimizers=None):
    """Train three epochs with each of the optimizers in turn, made once; return the initial states of each."""
    rng = np.random.default_rng(0)
    data = ArrayIterator(rng.normal(size=(64, 5)), rng.integers(3, size=64), nclass=3)
    optimizers = {} if optimizers is None else optimizers
    for name in names:
        optimizer = optimizers.setdefault(name, MADE[name]())
        model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, model.epoch_index + 3)


def forget(model):
    for _, states in get_param_list(model.layers_to_optimize):
        states.clear()


def weights(model):
    return np.concatenate([param.get().ravel() for (param, _), _ in get_param_list(model.layers_to_optimize)])


def states_of(model):
    return [[state.get() for state in states] for _, states in get_param_list(model.layers_to_optimize)]


@pytest.mark.parametrize(
    "names",
    [("momentum", "rmsprop"), ("adam", "adagrad", "adam"), ("momentum", "adamw"), ("adamw", "adam"),
     ("momentum", "scaled"), ("rmsprop", "plain", "momentum")],
)  # fmt: skip
@pytest.mark.parametrize("saved", [False, True], ids=["at once", "from a file"])
def test_an_optimizer_of_another_kind_begins_with_states_of_its_own(be, names, saved):
    """A velocity in place of a mean square would be a negative number under a root."""

    def trained(forgetting):
        be.rng_reset()
        model, optimizers = network(), {}
        for name in names:
            train(model, [name], optimizers)
            model = Model(model.serialize()) if saved else model
            if forgetting:
                forget(model)
        return model

    found, expected = trained(False), trained(True)
    assert np.isfinite(weights(found)).all()
    np.testing.assert_array_equal(weights(found), weights(expected))


@pytest.mark.parametrize(
    "names", [("momentum", "momentum"), ("momentum", "quiet"), ("scaled", "rmsprop"), ("rmsprop", "scaled")]
)
@pytest.mark.parametrize("saved", [False, True], ids=["at once", "from a file"])
def test_an_optimizer_of_the_same_kind_goes_on_with_the_states(be, names, saved):
    model = network()
    train(model, names[:1])
    before = states_of(model)
    assert all(len(states) == 1 and states[0].any() for states in before[:2])
    model = Model(model.serialize()) if saved else model
    optimizer = MADE[names[1]]()
    inner = optimizer.optimizer if isinstance(optimizer, LossScaling) else optimizer
    inner._find(model.layers_to_optimize)
    for old, new in zip(before, states_of(model), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("saved", [False, True], ids=["at once", "from a file"])
def test_optimizers_of_several_layers_keep_their_own(be, saved):
    """Biases go on with their velocities, weights begin anew."""
    model = network()
    train(model, ["several"])
    of_bias = next(layer for layer in model.layers_to_optimize if type(layer).__name__ == "Bias")
    velocity = of_bias.states[0].get()
    assert velocity.any()
    model = Model(model.serialize()) if saved else model
    MADE["momentum"]()._find(model.layers_to_optimize)
    for layer in model.layers_to_optimize:
        for _, states in get_param_list([layer]):
            expected = velocity if type(layer).__name__ == "Bias" else np.zeros(states[0].shape)
            np.testing.assert_array_equal(states[0].get(), expected)


def test_states_of_unknown_origin_are_taken_as_they_are(be):
    """Those of a file that names no optimizer, or one that this program does not have."""
    model = network()
    train(model, ["momentum"])
    before = states_of(model)
    for described in (None, {"type": "elsewhere.Lion", "config": {}}, {"type": 3, "config": {}}, 5):
        saved = {**model.serialize(), "optimizer": described}
        loaded = Model(saved)
        RMSProp()._find(loaded.layers_to_optimize)
        for old, new in zip(before, states_of(loaded), strict=True):
            np.testing.assert_array_equal(old, new)


class Small:
    """A layer with a parameter of 16 bits."""

    name = "small"

    def __init__(self, be, dtype):
        self.W, self.dW, self.states = be.zeros((1, 3), dtype=dtype), be.zeros((1, 3), dtype=dtype), []

    def get_params(self):
        return (self.W, self.dW), self.states


@pytest.mark.compiles(3, "adam-float16", "momentum-bfloat16", "scaled-float16")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["momentum", "rmsprop", "adagrad", "adam", "adamw", "scaled"])
def test_parameters_of_16_bits_have_states_of_float32(be, name, dtype):
    """A mean of squares of 1e-6 would be 0 in float16, and Adam's steps thirty times as long as its rate."""
    moved = []
    for kind in (dtype, "float32"):
        layer, optimizer = Small(be, kind), MADE[name]()
        for step in range(40):
            layer.dW[:] = np.float32([[1e-3, -2e-3, 4e-3]]) * (be.bsz if step % 4 else -be.bsz)
            if isinstance(optimizer, LossScaling):
                optimizer.scale_errors([layer.dW])
            optimizer.optimize([layer], 0)
        assert layer.states and all(state.dtype == np.float32 for state in layer.states)
        moved.append(layer.W.get().astype(np.float64))
    np.testing.assert_allclose(moved[0], moved[1], rtol=0.02 if dtype == "float16" else 0.1)


def test_states_of_a_network_of_float16_are_loaded_as_they_were(be):
    be.default_dtype = np.float16
    model = network()
    train(model, ["adam"])
    before = states_of(model)
    after = states_of(Model(model.serialize()))
    for old, new in zip(before, after, strict=True):
        assert old[0].dtype == new[0].dtype == np.float32
        np.testing.assert_array_equal(old, new)
