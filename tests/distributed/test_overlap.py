"""Gradients that are sent while the backward pass goes on: the same bits, from recorded passes too."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.initializers import GlorotUniform
from neonlike.kernels.run.program import calling, runner
from neonlike.layers import Affine
from neonlike.layers.container import Sequential
from neonlike.models.overlap import Handover
from neonlike.optimizers import GradientDescentMomentum
from neonlike.optimizers.shards import Shard
from tests.support.ranks import OneOf, run_ranks

PROGRAM = """
import numpy as np
from neonlike.backends import gen_backend
from neonlike.kernels.c import fastpath
fast = fastpath.build()
be = gen_backend("cpu", batch_size=12, rng_seed=3)
from neonlike.callbacks.callbacks import Callback, Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, GeneralizedCost, MergeSum, SkipNode
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientAccumulation, GradientDescentMomentum, LossScaling, MultiOptimizer
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax

rng = np.random.default_rng(0)
x, t = rng.standard_normal((48, 150)).astype("f4"), rng.integers(0, 5, 48)
events = []

def note(method):
    call = getattr(be.ranks, method)
    def noted(*given):
        events.append(method)
        return call(*given)
    setattr(be.ranks, method, noted)

for method in "begin_exchange_rows", "exchange_rows", "gather_rows":
    note(method)

class Looks(Callback):
    # a backward pass of one rank alone, of a callback
    def on_minibatch_end(self, data, model, epoch, minibatch):
        if be.rank == 0 and minibatch == 1:
            model.bprop(be.zeros(model.layers.layers[-1].outputs.shape))

def trained(overlap, optimizer):
    be.rng_reset()
    be.overlap_gradients = overlap
    events.clear()
    hidden = [Affine(150, GlorotUniform(), batch_norm=True, activation=Rectlin()) for _ in range(2)]
    branch = MergeSum([Affine(150, GlorotUniform(), activation=Rectlin()), SkipNode()])
    model = Model([hidden[0], branch, hidden[1], Affine(5, GlorotUniform(), activation=Softmax())])
    callbacks = Callbacks(model, progress_bar=False)
    callbacks.add_callback(Looks())
    data = ArrayIterator(x, t, nclass=5)
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, 5, callbacks)
    assert model.layers.handover is None
    guard = model._both_passes.guard
    hits = 0 if guard is None else guard.program.hits
    weights = [param.get() for layer in model.layers_to_optimize for (param, _), _ in
               (layer.get_params() if isinstance(layer.get_params(), list) else [layer.get_params()])]
    return weights, hits

STEPS, LARGE = 20, 3
OPTIMIZERS = {
    "momentum": lambda: GradientDescentMomentum(0.05, 0.9, gradient_clip_norm=0.5),
    "several": lambda: MultiOptimizer({"default": Adam(), "Linear_0": GradientDescentMomentum(0.05, 0.9)}),
    "scaled": lambda: LossScaling(GradientDescentMomentum(0.05, 0.9)),
    "accumulated": lambda: GradientAccumulation(GradientDescentMomentum(0.05, 0.9), 2),
}
for name, make in OPTIMIZERS.items():
    be.gradient_compression = "bfloat16" if name == "several" else None
    wanted, _ = trained(False, make())
    assert "begin_exchange_rows" not in events
    found, hits = trained(True, make())
    assert all(map(np.array_equal, found, wanted)), (name, "the same bits")
    begun = events.count("begin_exchange_rows")
    assert begun == (LARGE * (STEPS - 1) if name in ("momentum", "several") else 0), (name, begun)
    if begun:
        assert events.count("exchange_rows") == LARGE, "but for the first step"
    if name == "momentum":
        assert bool(hits) == fast, "passes repeated without Python"
print("equal")
"""


def test_gives_the_same_bits() -> None:
    done = run_ranks(3, PROGRAM, timeout=120, NEONLIKE_MPI_CHECK="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"


class Later(OneOf):
    """The first of two ranks; what it waits for is noted, and the beginning fails if it is told to."""

    def __init__(self) -> None:
        super().__init__(0, 2)
        self.events: list[str] = []
        self.error: BaseException | None = None

    def exchange_rows(self, array: Any, received: Any, bounds: list[int]) -> None:
        """Note it."""
        self.events.append("exchange")

    def begin_exchange_rows(self, array: Any, received: Any, bounds: list[int]) -> Any:
        """Note it."""
        if self.error is not None:
            raise self.error
        self.events.append(f"begin {float(array[0, 0])}")
        return lambda: self.events.append("wait")


@pytest.mark.cpu_only("ranks share updates on the CPU alone")
@pytest.mark.parametrize("compression, value", [(None, 1.001), ("bfloat16", 1.0)])
def test_what_has_begun_is_waited_for(be: Backend, compression: Any, value: float) -> None:
    ranks = Later()
    shard = Shard(ranks, be.zeros((4, 3)), be.array(np.full((4, 3), 1.001)), compression)
    shard.begin()
    shard.exchange()
    shard.exchange()
    assert ranks.events == [f"begin {np.float32(value)}", "wait", "exchange"]
    shard.begin()
    shard.begin()  # after an error in between that all ranks had
    assert ranks.events[3:] == [f"begin {np.float32(value)}", "wait", f"begin {np.float32(value)}"]


@pytest.mark.cpu_only("ranks share updates on the CPU alone")
def test_errors_are_raised_by_the_optimizer(be: Backend) -> None:
    ranks = Later()
    shard, ranks.error = Shard(ranks, be.zeros((4, 3)), be.ones((4, 3)), None), KeyboardInterrupt()
    shard.begin()
    with pytest.raises(KeyboardInterrupt):
        shard.exchange()
    shard.exchange()
    assert ranks.events == ["exchange"]


def test_a_step_of_a_program_calls_python() -> None:
    calls: list[int] = []
    run = runner(calling(lambda: calls.append(1)))
    run()
    run()
    assert calls == [1, 1]


class Named:
    """A layer of a chain, with the gradients of tied weights."""

    def __init__(self, *gradients: Any) -> None:
        self.has_params, self.gradients = True, gradients

    def get_params(self) -> list[Any]:
        """Entries for an optimizer."""
        return [((one, one), []) for one in self.gradients]


def test_tied_weights_go_with_the_first_layer(be: Backend) -> None:
    class Begun:
        def __init__(self, name: str) -> None:
            self.name = name

        def begin(self) -> None:
            """Note it."""
            begun.append(self.name)

    begun: list[str] = []
    tied, own = be.ones((2, 2)), be.ones((2, 2))
    layers = [Named(tied), Named(tied, own)]
    chain, optimizer = Sequential([Affine(2, GlorotUniform())]), GradientDescentMomentum(0.1, 0.9)
    chain.layers = layers
    handover = Handover(chain, [optimizer])
    optimizer.shards = {id(tied): Begun("tied"), id(own): Begun("own")}
    handover(layers[1])
    assert not begun, "there were no messages yet"
    handover.follow()
    handover(layers[1])
    assert begun == ["own"]
    handover(layers[0])
    assert begun == ["own", "tied"]
    optimizer.shards = {id(tied): Begun("new")}
    handover.follow()
    handover(layers[1])
    handover(layers[0])
    assert begun[2:] == ["new"]
    assert copy.deepcopy(handover) is None and pickle.loads(pickle.dumps(handover)) is None
