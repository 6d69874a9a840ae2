"""Random networks whose passes the extension repeats: their results have the bits of played passes.

``python tests/fuzz 0 --networks 1000`` grows so many. Between steps all kinds of things change that a pass depends on:
``CHANGES`` has them. A seed is all that one depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.backends import gen_backend, replays
from neonlike.backends.backend import Tensor
from neonlike.errors import NeonlikeError
from neonlike.initializers import Constant, Gaussian
from neonlike.kernels.c import fastpath
from neonlike.layers import (
    LRN,
    Activation,
    Affine,
    BatchNorm,
    Bias,
    Conv,
    Dropout,
    GeneralizedCost,
    LayerNorm,
    Linear,
    MergeBroadcast,
    MergeSum,
    Pooling,
    Sequential,
    SkipNode,
)
from neonlike.layers.container import LayerContainer
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientDescentMomentum, RMSProp
from neonlike.transforms import CrossEntropyMulti, Explin, Logistic, Rectlin, Softmax, Swish, Tanh
from tests.fuzz.graphs import cannot_repeat
from tests.fuzz.workers import Findings, named, report, spread

N, CLASSES, STEPS = 4, 3, 32
OPTIMIZERS: tuple[Callable[[], Any], ...] = (
    lambda: GradientDescentMomentum(0.1, 0.9),
    lambda: GradientDescentMomentum(0.1, 0.9, gradient_clip_norm=0.5),
    RMSProp,
    Adam,
)
TRANSFORMS: tuple[Callable[[], Any], ...] = (Rectlin, lambda: Rectlin(slope=0.25), Tanh, Logistic, Swish, Explin)


class Grower:
    """Grows one network, and takes steps with it.

    Parameters
    ----------
    be : Backend
    seed : int
        All that follows.
    """

    def __init__(self, be: Any, seed: int) -> None:
        self.be, self.rng = be, np.random.default_rng(seed)
        be.bsz = N
        be.rng_reset()
        self.init = Gaussian(scale=0.3)
        images = bool(self.rng.integers(2))
        shape: Any = (2, 6, 6) if images else int(self.rng.integers(3, 20))
        layers: list[Any] = []
        for _ in range(self.rng.integers(3) if images else 0):
            layers += self.of_images()
        for _ in range(self.rng.integers(4)):
            layers += self.of_features()
        if layers and self.rng.random() < 0.3:
            layers = [Sequential(layers)]
        layers += Affine(CLASSES, init=self.init, bias=Constant(0), activation=Softmax())
        self.also = np.random.default_rng((seed, 1))  # apart, so that a seed's layers stay
        if self.also.random() < 0.4:
            layers = [*self.branches(images), *layers]
        self.model, self.cost = Model(layers), GeneralizedCost(CrossEntropyMulti())
        self.chain = self.model.layers
        self.optimizer = OPTIMIZERS[int(self.also.integers(len(OPTIMIZERS)))]()
        self.model.optimizer, self.model.cost = self.optimizer, self.cost
        self.whole = bool(self.also.random() < 0.6)
        self.chain.configure(shape)
        self.cost.initialize(self.chain)
        self.chain.allocate(accumulate_updates=True)
        self.model.allocate_deltas()
        self.x = self.input()
        self.t = be.array(np.eye(CLASSES)[self.rng.integers(0, CLASSES, N)].T)
        self.others: list[Any] = [self.input()] if self.also.random() < 0.3 else []  # inputs of the next steps
        self.asked: Any = None  # input of inference between steps
        self.alpha = 1.0
        self.hits = 0

    def input(self) -> Any:
        """A new batch."""
        rows = int(np.prod(self.chain.in_shape))
        return self.be.array(self.rng.standard_normal((rows, N)))

    def one_of(self, choices: Any) -> Any:
        """A random entry."""
        return choices[int(self.rng.integers(len(choices)))]

    def after(self) -> dict[str, Any]:
        """Arguments of a layer for the operations after its product: activation, batch normalisation or bias."""
        kind = self.rng.integers(4)
        found: dict[str, Any] = {"activation": self.one_of(TRANSFORMS)()} if self.rng.random() < 0.8 else {}
        if kind == 0:
            found["batch_norm"] = True
        elif kind < 3:
            found["bias"] = Constant(0.125)
        return found

    def of_images(self) -> list[Any]:
        """Layers that keep images of at least 2 x 2."""
        kind = self.rng.integers(6)
        if kind < 3:
            return [*Conv((3, 3, int(self.rng.integers(1, 5))), init=self.init, padding=1, **self.after())]
        if kind == 3:
            return [*Conv((1, 1, 2), init=self.init), Pooling(2, op=self.one_of(("max", "avg", "l2")), strides=1)]
        if kind == 4:
            return [*Conv((1, 1, 3), init=self.init), LRN(3)]
        return [*Conv((3, 3, 2), init=self.init, padding=1), BatchNorm(), Activation(self.one_of(TRANSFORMS)())]

    def of_features(self) -> list[Any]:
        """Layers of any number of features."""
        kind = self.rng.integers(6)
        features = int(self.rng.integers(1, 12))
        if kind < 3:
            return [*Affine(features, init=self.init, **self.after())]
        if kind == 3:
            return [Linear(features, self.init), Bias(Constant(0.25))]
        if kind == 4:
            return [Linear(features, self.init), self.one_of((LayerNorm, BatchNorm))()]
        return [*Affine(features, init=self.init, activation=Tanh()), Dropout(0.75)]

    def branches(self, images: bool) -> list[Any]:
        """Two branches from one input, added or side by side."""
        def branch() -> list[Any]:
            more = {"activation": Tanh()} if self.also.random() < 0.5 else {}
            made = Conv((3, 3, 2), init=self.init, padding=1, **more) if images else Affine(4, init=self.init, **more)
            return [*made]

        beside = [SkipNode()] if images and self.also.random() < 0.5 else branch()
        merge = "depth" if images else "stack"
        both = [branch(), beside]
        return [MergeSum(both) if self.also.random() < 0.5 else MergeBroadcast(both, merge=merge)]

    # Steps

    def layer(self, name: str) -> Any:
        """One of the layers that have an attribute."""
        having = [layer for layer in self.all_layers(self.chain) if getattr(layer, name, None) is not None]
        return self.one_of(having) if having else None

    def all_layers(self, chain: Any) -> list[Any]:
        """The layers of all chains."""
        nested = [self.all_layers(layer) if isinstance(layer, LayerContainer) else [layer] for layer in chain.layers]
        return [layer for layers in nested for layer in layers]

    def change(self) -> None:
        """Something else from now on."""
        CHANGES[self.one_of(sorted(CHANGES))](self)

    def step(self) -> list[bytes]:
        """Take a step; return its results."""
        self.x, *self.others = *self.others, self.x
        asked = [] if self.asked is None else [self.chain.fprop(self.asked, inference=True).get()]
        if self.whole and self.alpha == 1:
            value = self.model._train_batch(self.x, self.t, self.model.layers_to_optimize)
            outputs, kept = self.chain.outputs.get(), [np.asarray(value), self.cost.deltas.get()]
        else:
            y = self.chain.fprop(self.x)
            outputs, value = y.get(), self.cost.get_cost(y, self.t)
            error = self.cost.get_errors(y, self.t)
            deltas = self.chain.bprop(error) if self.alpha == 1 else self.chain.bprop(error, alpha=self.alpha)
            kept = [np.asarray(value), *([] if deltas is None else [deltas.get()])]
            self.optimizer.optimize(self.model.layers_to_optimize, 0)
        held = [getattr(layer, name, None) for layer in self.all_layers(self.chain) for name in PARAMETERS]
        kept += [tensor.get() for tensor in held if isinstance(tensor, Tensor)]
        return [array.tobytes() for array in (outputs, *kept, *asked)]

    def take(self, steps: int) -> list[list[bytes]]:
        """Results of so many steps, with changes in between."""
        found = []
        for _ in range(steps):
            try:
                if self.rng.random() < 0.2:
                    self.change()
                found.append(self.step())
            except NeonlikeError as error:  # images of fewer samples than a batch
                found.append([type(error).__name__.encode()])
                self.chain.set_batch_size(N)
            sides = self.chain.replays.forward, self.chain.replays.backward, self.model._both_passes
            runs = [record.guard.program.hits for side in sides for record in side._records]
            self.hits = max(self.hits, sum(runs))
        return found


PARAMETERS = ("W", "dW", "weight_bias", "grad_bias", "gamma", "beta", "gmean", "gvar", "xsum", "xvar")


def _replace_weight(g: Grower) -> None:
    layer = g.layer("W")
    layer.W = g.be.array(layer.W.get() * 0.5)


def _scale(g: Grower, name: str, factor: float) -> None:
    if (layer := g.layer(name)) is not None:
        setattr(layer, name, getattr(layer, name) * factor)


def _slope(g: Grower) -> None:
    layer = g.layer("transform")
    if hasattr(layer.transform, "slope"):
        layer.transform.slope = 0.5


def _new_input(g: Grower) -> None:
    g.x = g.input()


def _write_input(g: Grower) -> None:
    g.x[:] = g.x * 0.5 + 0.1


def _infer(g: Grower) -> None:
    columns = int(g.rng.integers(1, N + 1))
    g.chain.fprop(g.be.array(g.rng.standard_normal((g.x.shape[0], columns))), inference=True)


def _take_turns(g: Grower) -> None:
    g.others = [g.input() for _ in range(int(g.rng.integers(replays.MOST_RECORDS + 1)))]


def _ask(g: Grower) -> None:
    columns = int(g.rng.integers(1, N + 1))
    g.asked = None if g.asked is not None else g.be.array(g.rng.standard_normal((g.x.shape[0], columns)))


def _alpha(g: Grower) -> None:
    g.alpha = 1.5 if g.alpha == 1 else 1.0


def _copy(g: Grower) -> None:
    g.chain.load_weights(g.chain.get_description(get_weights=True, keep_states=True))


def _another(g: Grower) -> None:
    """Another network has the first layer meanwhile."""
    first = g.chain._layers[0]
    first.fprop(g.input())


def _targets(g: Grower) -> None:
    g.t = g.be.array(np.roll(g.t.get(), 1, axis=1))


def _cost(g: Grower) -> None:
    g.cost.costfunc.scale = 0.5 if g.cost.costfunc.scale == 1 else 1


def _cost_anew(g: Grower) -> None:
    g.cost.initialize(g.chain)


def _clip(g: Grower) -> None:
    g.optimizer.gradient_clip_value = None if g.optimizer.gradient_clip_value else 0.01


def _threads(g: Grower) -> None:
    g.be.num_threads = int(g.rng.integers(1, 3))


CHANGES: dict[str, Callable[[Grower], Any]] = {
    "weight": _replace_weight,
    "weight in place": lambda g: g.layer("W").W.fill(0.125),
    "eps": lambda g: _scale(g, "eps", 2.0),
    "rho": lambda g: _scale(g, "rho", 0.5),
    "slope": _slope,
    "input": _new_input,
    "input in place": _write_input,
    "targets": _targets,
    "scale of the cost": _cost,
    "cost anew": _cost_anew,
    "clipping": _clip,
    "whole steps": lambda g: setattr(g, "whole", not g.whole),
    "learning rate": lambda g: setattr(g.optimizer, "learning_rate", 0.03),
    "inference": _infer,
    "inputs in turn": _take_turns,
    "inference between": _ask,
    "accumulate": lambda g: g.chain.set_acc_on(bool(g.rng.integers(2))),
    "batch size": lambda g: g.chain.set_batch_size(int(g.rng.integers(1, N + 1))),
    "threads": _threads,
    "forget": lambda g: g.be.cleanup_backend(),
    "alpha": _alpha,
    "weights loaded": _copy,
    "first layer": _another,
    "nothing": lambda g: g.take(3),
}


def results(be: Any, seed: int, steps: int = STEPS) -> tuple[list[list[bytes]], int]:
    """Results of a network's steps, and the least number of repeated passes."""
    try:
        grower = Grower(be, seed)
        return grower.take(steps), grower.hits
    finally:
        be.num_threads = None


def check(be: Any, seed: int) -> int:
    """Compare a network with a played one; return the least number of repeated passes."""
    may_record = replays._may_record
    replays._may_record = lambda be: False
    try:
        wanted, _ = results(be, seed)
    finally:
        replays._may_record = may_record
    found, hits = results(be, seed)
    for step, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert ours == theirs, f"step {step} differs"
    return hits


def work(first: int, step: int, last: int) -> int:
    """A worker: networks first, first + step, ... below last; one line of JSON for each."""
    be = gen_backend("cpu", batch_size=N, rng_seed=1)
    fastpath.build()
    fastpath.request(be.executor.replay.adopt)
    return report(range(first, last, step), lambda seed: {"repeated": check(be, seed)}, named)


def fuzz(count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Check ``count`` networks in processes with these environment ``variables``; the exit status."""
    if reason := cannot_repeat():
        print(reason)
        return 0
    found = Findings("network", "repeated")
    spread("--work-networks", range(first, first + count), workers, variables, found.hear)
    print(f"networks: {count}, at least {found.total} passes repeated; {len(found.failures)} failures")
    return int(bool(found.failures) or not found.total)
