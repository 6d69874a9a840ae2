"""Passes that take turns through layers of users: their classes say what they depend on, and do as they like."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.initializers import Constant
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.depends import Depends
from neonlike.layers import Linear
from neonlike.layers.core.base import CLOSED, Layer
from neonlike.models import Model
from tests.backends.replays.replayed_nets import N, hits, played  # noqa: F401
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed passes of the CPU"),
]

FEATURES, TURNS = 6, 20


def speaks(kind: Any) -> Any:
    """Have passes of a class repeated by what it inherits, as a class has to say itself."""
    kind.repeatable, kind.depends_on = True, lambda self: Layer.depends_on(self)
    return kind


class Own(Layer):
    """A layer of a user's without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.dW: Any = None

    def configure(self, in_obj: Any) -> Layer:
        self.in_shape = self.out_shape = (FEATURES,)
        return self

    def allocate(self, shared_outputs: Any = None) -> None:
        self.outputs, self.dW = self.be.zeros((FEATURES, N)), self.be.zeros((2, 1))

    def bprop(self, error: Any) -> Any:
        return error


@speaks
class Pair(Own):
    """2 · first + 3 · second of two inputs."""

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        self.inputs = inputs
        self.outputs[:] = inputs[0] * 2 + inputs[1] * 3
        return self.outputs

    def bprop(self, error: Any) -> Any:
        for k in range(2):
            self.dW[k : k + 1] = self.be.sum(self.be.sum(error * self.inputs[k], axis=1), axis=0)


class PairThatSets(Pair):
    """It says itself that it sets its inputs."""

    def depends_on(self) -> Depends:
        return Depends(closed=CLOSED, sets=frozenset(("inputs",)))


@speaks
class Change(Own):
    """The change since the last inputs."""

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        last, self.inputs = self.inputs, inputs
        self.outputs[:] = inputs if last is None else inputs - last
        return self.outputs


@speaks
class Named(Change):
    """It names an attribute that it sets, which is none that it reads."""

    set_forward = frozenset(("seen",))
    seen: Any = None

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        self.seen = inputs
        self.outputs[:] = inputs * 2
        return self.outputs


def network(be: Backend, layer: Layer) -> tuple[Model, list[Any], Any]:
    """A network of one layer, three inputs, and an error."""
    be.bsz, rng = N, np.random.default_rng(0)
    model = Model([layer])
    model.layers.configure((FEATURES,))
    model.layers.allocate()
    inputs = [be.array(rng.standard_normal((FEATURES, N))) for _ in range(3)]
    return model, inputs, be.array(rng.standard_normal((FEATURES, N)))


@pytest.mark.parametrize("kind", [Pair, PairThatSets])
def test_a_list_of_inputs_may_change_in_place(fast: Backend, played: Any, kind: Any) -> None:
    def run() -> list[bytes]:
        model, (first, second, third), error = network(fast, kind())
        pair, found = [first, second], []
        for changed in (first, third):
            pair[0] = changed
            for _ in range(TURNS):
                model.layers.fprop(pair)
                model.layers.bprop(error)
                found.append(model.layers.layers[0].dW.get().tobytes())
        return found

    assert run() == played(run)


def test_a_users_layer_may_read_its_last_inputs(fast: Backend, played: Any) -> None:
    def run() -> list[bytes]:
        model, inputs, _ = network(fast, Change())
        order = [0, 0] * TURNS + [0, 1] * TURNS + [2, 0, 2, 1, 1, 0, 0, 2]
        return [model.layers.fprop(inputs[k]).get().tobytes() for k in order]

    assert run() == played(run)


def test_a_users_layer_may_name_what_it_sets(fast: Backend, played: Any) -> None:
    def run() -> tuple[list[Any], Model]:
        model, inputs, _ = network(fast, Named())
        layer, found = model.layers.layers[0], []
        for turn in range(2 * TURNS):
            found += [model.layers.fprop(inputs[turn % 2]).get().tobytes(), layer.seen is inputs[turn % 2]]
        return found, model

    (wanted, _), (found, model) = played(run), run()
    assert found == wanted and all(found[1::2]) and hits(model.layers.replays.forward) > TURNS


RESULTS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "a list": (lambda be, x: [x, x], False),
    "a dictionary": (lambda be, x: {"x": x}, False),
    "a new tensor": (lambda be, x: be.assign(be.zeros(x.shape), x * 2), False),
    "a copy": (lambda be, x: be.assign(be.fresh(x.shape), x), False),
    "a computed one": (lambda be, x: (x * 2).astensor(), False),
    "a view": (lambda be, x: x[:1], True),
    "another shape": (lambda be, x: x.viewed(1, -1), True),
    "a tuple": (lambda be, x: (x, x), True),
}
"""Results of a layer for its inputs, and whether its passes are repeated: not if the result is made anew each time."""


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_are_made_anew_are_no_others_next_ones(fast: Backend, name: str) -> None:
    make, repeats = RESULTS[name]

    class Made(Own):
        def depends_on(self) -> Depends:
            return Depends(closed=CLOSED)

        def fprop(self, inputs: Any, inference: bool = False) -> Any:
            self.outputs[:] = inputs
            return make(self.be, inputs)

    model, (x, *_), _ = network(fast, Made())
    results = [model.layers.fprop(x) for _ in range(TURNS)]
    assert (hits(model.layers.replays.forward) > 0) == repeats
    assert repeats or len(set(map(id, results))) == TURNS


def test_garbage_that_changes_a_weight_is_collected_before_the_look(fast: Backend) -> None:
    """Its finalizers may do anything; lists that a repeated pass makes may have it collected."""
    layer = Linear(3, init=np.ones((3, FEATURES), np.float32))
    model, (one, other, _), _ = network(fast, layer)
    for turn in range(2 * TURNS):
        model.layers.fprop((one, other)[turn % 2])
    changed = fast.array(np.full((3, FEATURES), 2, np.float32))

    class Finalizer:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            layer.W = changed

    record = next(record for record in model.layers.replays.forward._records if record.roots[1] is other)
    model.layers.fprop(one)
    thresholds = gc.get_threshold()
    gc.collect()
    Finalizer()
    kept = [[] for _ in range(300)]  # lists are made anew: none is at hand
    gc.set_threshold(1)
    try:
        record.guard.run()
    finally:
        gc.set_threshold(*thresholds)
    gc.collect()
    assert kept and layer.W is changed
    for _ in range(3):
        np.testing.assert_array_equal(model.layers.fprop(other).get(), fast.dot(changed, other).get())


def test_constants_say_nothing_of_a_layers_own() -> None:
    assert Linear(1, Constant(0)).depends_on().sets == {"inputs"}  # type: ignore[union-attr]
    assert Change().depends_on().sets == frozenset()  # type: ignore[union-attr]
    assert Named().depends_on().sets == {"seen"}  # type: ignore[union-attr]
