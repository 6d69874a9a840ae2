"""Objects with no more than what the protocols say, as classes of users are: models train and evaluate with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.callbacks import Callbacks
from neonlike.callbacks.protocol import Record, Records
from neonlike.callbacks.store import MemoryStore
from neonlike.data import ArrayIterator, DataIterator
from neonlike.errors import NeonlikeError
from neonlike.initializers import Constant
from neonlike.initializers.initializer import Fills
from neonlike.layers import Affine, GeneralizedCost
from neonlike.layers.core.cost import NetworkCost
from neonlike.models import Model
from neonlike.models.protocol import Hooks
from neonlike.optimizers import GradientDescentMomentum
from neonlike.optimizers.schedules import LearningRates, Schedule
from neonlike.transforms import Accuracy, Softmax, SumSquared
from neonlike.transforms.transform import MetricLike

pytestmark = pytest.mark.samples(4)
SPECIAL = ("__iter__", "__call__", "__len__", "__contains__", "__getitem__", "__setitem__", "__delitem__")


def members(protocol: type) -> set[str]:
    """The names that a protocol and those it derives from define."""
    found = {name for kind in protocol.__mro__[:-1] for name in (*vars(kind), *vars(kind).get("__annotations__", ()))}
    return {name for name in found if not name.startswith("_") or name in SPECIAL}


def bare(protocol: type, thing: Any) -> Any:
    """An object that hands the members of ``protocol`` on to ``thing``, and has nothing else."""

    def handed_on(name: str) -> Any:
        if name in SPECIAL:
            return lambda self, *given, **named: getattr(type(thing), name)(thing, *given, **named)
        return property(lambda self: getattr(thing, name))

    return type("Bare", (), {name: handed_on(name) for name in members(protocol)})()


def data_of() -> ArrayIterator:
    x = np.random.RandomState(0).rand(10, 3)
    return ArrayIterator(x, (x.sum(axis=1) > 1.5).astype(int), nclass=2)


def trained(data: Any, **parts: Any) -> Model:
    """A model after two epochs, with some of its parts given."""
    model = Model([Affine(2, init=parts.get("init", Constant(0.1)), activation=Softmax())])
    callbacks = Callbacks(model, eval_set=data, eval_freq=1, progress_bar=False, metric=parts.get("metric"))
    descent = GradientDescentMomentum(0.1, 0.9, schedule=parts.get("schedule", Schedule()))
    hooks = parts.get("hooks", lambda one: one)(callbacks)
    model.fit(data, GeneralizedCost(SumSquared()), descent, num_epochs=2, callbacks=hooks)
    return model


PARTS: dict[str, Any] = {
    "init": lambda: bare(Fills, Constant(0.1)),
    "schedule": lambda: bare(LearningRates, Schedule()),
    "metric": lambda: bare(MetricLike, Accuracy()),
    "hooks": lambda: lambda callbacks: bare(Hooks, callbacks),
}
"""Makers of parts of a training that have the members of their protocols alone."""


@pytest.mark.parametrize("name", PARTS)
def test_a_training_needs_no_more_of_its_parts_than_their_protocols_say(be: Any, name: str) -> None:
    expected = trained(data_of()).get_outputs(data_of())
    np.testing.assert_array_equal(trained(data_of(), **{name: PARTS[name]()}).get_outputs(data_of()), expected)


def test_a_model_needs_no_more_of_data_than_their_protocol_says(be: Any) -> None:
    model, data = trained(data_of()), bare(DataIterator, data_of())
    found = trained(data)
    np.testing.assert_array_equal(found.get_outputs(data), model.get_outputs(data_of()))
    np.testing.assert_array_equal(found.eval(data, Accuracy()), model.eval(data_of(), bare(MetricLike, Accuracy())))
    assert set(found.benchmark(data, inference=True, niterations=1, nskip=0)) == {"fprop"}


@pytest.mark.parametrize("name", ["shape", "ndata", "nbatches", "__iter__", "reset"])
def test_a_model_needs_each_member_of_data(be: Any, name: str) -> None:
    data = bare(DataIterator, data_of())
    delattr(type(data), name)
    with pytest.raises((NeonlikeError, AttributeError)):
        trained(data)


def test_a_cost_needs_no_more_than_its_protocol_says(be: Any) -> None:
    models = []
    for cost in (GeneralizedCost(SumSquared()), bare(NetworkCost, GeneralizedCost(SumSquared()))):
        models.append(Model([Affine(2, init=Constant(0.1), activation=Softmax())]))
        models[-1].fit(data_of(), cost, GradientDescentMomentum(0.1, 0.9), num_epochs=2)
    own, expected = (model.get_outputs(data_of()) for model in models)
    np.testing.assert_array_equal(own, expected)


def test_the_store_in_memory_has_the_members_of_records() -> None:
    store = MemoryStore()
    assert not {name for name in members(Records) if not hasattr(store, name)}
    made = store.create_dataset("cost/train", (3,), "float32")
    assert not {name for name in members(Record) if not hasattr(made, name)}


def test_a_file_has_the_members_of_records(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "records.h5", "w") as store:
        assert not {name for name in members(Records) if not hasattr(store, name)}
        made = store.create_dataset("cost/train", (3,), "float32")
        assert not {name for name in members(Record) if not hasattr(made, name)}
