"""Network with passes that are repeated without Python, for the tests of repetition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, replays
from neonlike.initializers import Constant
from neonlike.layers import Affine, Conv, GeneralizedCost, Pooling
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax

N, FEATURES, CLASSES = 8, 2 * 6 * 6, 3
WARM = 5
"""Steps after which passes are repeated: two are played, the third is recorded."""


class Net:
    """A small network of every kind of layer that is repeated, which trains on a batch that stays."""

    def __init__(self, be: Backend, *more: Any, accumulate: bool = False) -> None:
        be.bsz = N
        rng = np.random.default_rng(1)
        shapes = (18, 4), (9, 36), (9, 9), (CLASSES, 9)
        values = [rng.standard_normal(shape).astype(np.float32) / 3 for shape in shapes]
        self.be = be
        self.layers = [
            *Conv((3, 3, 4), init=values[0], padding=1, batch_norm=True, activation=Rectlin()),
            Pooling(2, strides=2),
            *Affine(9, init=values[1], activation=Rectlin()),
            *Affine(9, init=values[2], activation=Rectlin(slope=0.25)),
            *more,
            *Affine(CLASSES, init=values[3], bias=Constant(0), activation=Softmax()),
        ]
        self.model, self.cost = Model(self.layers), GeneralizedCost(CrossEntropyMulti())
        self.optimizer = GradientDescentMomentum(0.1, 0.9)
        self.model.layers.configure((2, 6, 6))
        self.cost.initialize(self.model.layers)
        self.model.layers.allocate(accumulate_updates=accumulate)
        self.model.allocate_deltas()
        self.x = be.array(rng.standard_normal((FEATURES, N)))
        self.t = be.array(np.eye(CLASSES)[rng.integers(0, CLASSES, N)].T)

    def step(self) -> list[bytes]:
        """Take a step; return the outputs and the weights after it."""
        y = self.model.layers.fprop(self.x)
        outputs = y.get()
        self.model.layers.bprop(self.cost.get_errors(y, self.t))
        self.optimizer.optimize(self.model.layers_to_optimize, 0)
        return [outputs.tobytes(), *(layer.W.get().tobytes() for layer in self.layers if hasattr(layer, "W"))]

    @property
    def records(self) -> list[Any]:
        """The records of both directions."""
        return [self.model.layers.replays.forward.guard, self.model.layers.replays.backward.guard]

    def hits(self) -> int:
        """How many passes were repeated."""
        return sum(guard.program.hits for guard in self.records if guard is not None)


class Trained(Net):
    """Network with the steps of ``Model.fit``."""

    def __init__(self, be: Backend, optimizer: Any = None) -> None:
        super().__init__(be)
        self.take(optimizer or self.optimizer)

    def take(self, optimizer: Any) -> None:
        """Train with it from now on."""
        self.optimizer, self.model.optimizer, self.model.cost = optimizer, optimizer, self.cost

    def step(self) -> list[bytes]:
        """Take a step; return its cost and the weights after it."""
        cost = self.model._train_batch(self.x, self.t, self.model.layers_to_optimize)
        assert cost is self.cost.cost
        held = [self.model.layers.outputs, self.cost.outputs, self.cost.deltas]
        held += [layer.W for layer in self.layers if hasattr(layer, "W")]
        held += [state for layer in self.model.layers_to_optimize for state in _flat(layer.states)]
        return [np.asarray(cost).tobytes(), *(tensor.get().tobytes() for tensor in held)]

    def hits(self) -> int:
        """How many pairs of passes were repeated."""
        record = self.model._both_passes.guard
        return 0 if record is None else record.program.hits


def _flat(states: Any) -> list[Any]:
    return [one for state in states for one in _flat(state)] if isinstance(states, list) else [states]


def hits(repeated: Any) -> int:
    """How many passes were repeated by all records."""
    return sum(record.guard.program.hits for record in repeated._records)


def other_weight(net: Net) -> None:
    """The first layer has another."""
    net.layers[0].W = net.be.array(net.layers[0].W.get() * 0.5)


def steps(net: Net, count: int, change: Callable[[Net], object] | None = None) -> list[list[bytes]]:
    """Results of some steps, and of as many steps after a change."""
    found = [net.step() for _ in range(count)]
    if change is not None:
        change(net)
        found += [net.step() for _ in range(count)]
    return found


def warm(be: Backend) -> Net:
    """Network after so many steps that its passes are repeated."""
    net = Net(be)
    steps(net, WARM)
    return net


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls a function while nothing is recorded."""

    def call(function: Callable[..., Any], *args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(replays, "_may_record", lambda be: False)
            return function(*args)

    return call
