"""Saved models in which something else stands: they are of use, or an error of ours says so and nothing has changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import SerializeModelCallback
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, NeonlikeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, Conv, GeneralizedCost, LookupTable
from neonlike.layers.layer import ParameterLayer
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientDescentMomentum, MultiOptimizer, Schedule
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax

N = 8
pytestmark = [pytest.mark.samples(N), pytest.mark.cpu_only("nothing of it is computed")]
JUNK = (
    None, 5, -1, 3.5, "x", b"y", [], {}, (), [1, 2], {"a": 1}, np.zeros((2, 2), np.float32), np.array(["a"]), np.nan,
    True, 10**30, np.float32(3), [None], [[]], {"type": "neon.layers.layer.Linear", "config": {}},
)  # fmt: skip


@pytest.fixture
def data(be: Any, rng: Any) -> Any:
    x = rng.normal(size=(2 * N, 2 * 4 * 4))
    return ArrayIterator(x, (x[:, 0] > 0).astype(int), nclass=2, lshape=(2, 4, 4))


def network() -> Model:
    return Model([
        Conv((3, 3, 3), Gaussian(scale=0.1), batch_norm=True, activation=Rectlin()),
        Conv((2, 2, 2), Gaussian(), bias=Constant(0)),
        Affine(2, Gaussian(scale=0.1), bias=Constant(0), activation=Softmax()),
    ])  # fmt: skip


def train(model: Model, data: Any, epochs: int) -> None:
    of_biases = GradientDescentMomentum(0.1, 0.9, schedule=Schedule([1], 0.5))
    callbacks = Callbacks(model, eval_set=data, eval_freq=1, progress_bar=False)
    optimizer = MultiOptimizer({"default": Adam(), "Bias": of_biases})
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, epochs, callbacks)


def places(thing: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in nested dictionaries and lists, as the keys that lead there."""
    entries = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list | tuple) else ()
    return [path, *(place for key, value in entries for place in places(value, (*path, key)))]


def replaced(thing: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of ``thing`` with ``value`` at ``path``."""
    if not path:
        return value
    key, *rest = path
    copy = dict(thing) if isinstance(thing, dict) else list(thing)
    copy[key] = replaced(thing[key], tuple(rest), value)
    return tuple(copy) if isinstance(thing, tuple) else copy


def weights(model: Model) -> list[Any]:
    return [value for layer in model.layers.layers if layer.has_params
            for value in layer.get_description(get_weights=True)["params"].values()]  # fmt: skip


def test_anything_in_the_place_of_anything(be: Any, data: Any) -> None:
    model, dice = network(), random.Random(0)
    train(model, data, 1)
    saved = model.serialize()
    where, refused = places(saved), 0
    assert len(where) > 150
    for path in where:
        for junk in dice.sample(JUNK, 1):
            again = network()
            again.initialize(data)
            before = weights(again)
            try:
                again.deserialize(replaced(saved, path, junk))
            except NeonlikeError:
                refused += 1
                for now, then in zip(weights(again), before, strict=True):
                    np.testing.assert_array_equal(now, then)
                continue
            finally:
                be.compat_mode = None
            try:
                train(again, data, max(2, again.epoch_index))
            except NeonlikeError:
                refused += 1
    assert len(where) / 4 < refused < len(where)


@pytest.mark.parametrize("states", [[[]], 3, {"a": 1}, ["x"]])
def test_states_that_are_none(be: Any, states: Any) -> None:
    model = Model([LookupTable(5, 3, Gaussian()), Affine(2, Gaussian(), batch_norm=True)])
    model.initialize((4, 1))
    saved = model.serialize()
    for layer in (0, 1, 2):
        damaged = replaced(saved, ("model", "config", "layers", layer, "states"), states)
        if (layer, states) != (2, [[]]):  # a list for each of two parameters is what batch normalization has
            with pytest.raises(NeonlikeError, match="state"):
                model.deserialize(damaged)


def test_a_layer_of_ones_own_may_have_states_for_each_of_its_parameters(be: Any) -> None:
    class Pair(ParameterLayer):
        """Two weights, with a list of states each once it was trained."""

        def get_params(self) -> Any:
            states = self.states or [[], []]
            self.states = states
            return [((self.W, self.dW), states[0]), ((self.W, self.dW), states[1])]

    described = {"params": {"W": np.ones((2, 2))}, "states": [[np.ones((2, 2))], []]}
    Pair(Gaussian()).check_weights(described)
    with pytest.raises(NeonlikeError, match="state"):
        Affine(2, Gaussian())[0].check_weights(described)


def test_only_files_of_the_callbacks_own_are_removed_in_their_turn(be: Any, tmp_path: Any) -> None:
    callback = SerializeModelCallback(str(tmp_path / "a.prm"), history=2)
    names = ["a_3.prm", "a_3.prm.bak", "b_4.prm", "a_/../c.prm", "a_.prm", "a_12.prm"]
    callback.set_progress({"files": [str(tmp_path / name) for name in names]})
    assert [path.rpartition("/")[2] for path in callback.checkpoint_files] == ["a_3.prm", "a_12.prm"]


@pytest.mark.parametrize("steps", [-1, "3", None, 2.5, [1]])
def test_a_number_of_steps_that_is_none(be: Any, data: Any, steps: Any) -> None:
    model = network()
    train(model, data, 1)
    saved = replaced(model.serialize(), ("optimizer", "progress", "default", "t"), steps)
    again = Model(saved)
    with pytest.raises(ArgumentError, match="steps"):
        train(again, data, 2)
