"""Trainings that tests run on one process and on several ranks, and compare: ``python -m tests.distributed.training``.

Each writes the weights that rank 0 has in the end, and the costs, to the file that is its last argument. The variable
RANKS_BACKEND names the backend.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from neonlike import autograd as ag
from neonlike import distributed
from neonlike.backends import gen_backend
from neonlike.callbacks.callbacks import Callback, Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, GlorotUniform, Uniform
from neonlike.layers import LSTM, Affine, Conv, GeneralizedCost, Pooling, RecurrentSum
from neonlike.models import Model
from neonlike.optimizers import (
    Adam,
    GradientAccumulation,
    GradientDescentMomentum,
    LossScaling,
    MultiOptimizer,
    Optimizer,
    RMSProp,
)
from neonlike.transforms import CrossEntropyMulti, Logistic, Rectlin, Softmax, Tanh

BATCH, EPOCHS, SAMPLES = 12, 4, 58
CLASSES = 5

be: Any = None
"""The backend; there is none in a test that imports this."""
rng = np.random.default_rng(7)


def _data(shape: tuple[int, ...]) -> ArrayIterator:
    """Samples and labels: not a whole number of batches."""
    x = rng.standard_normal((SAMPLES, int(np.prod(shape)))).astype("f4")
    return ArrayIterator(x, rng.integers(0, CLASSES, SAMPLES), nclass=CLASSES, lshape=shape)


def _trained(network: list[Any], shape: tuple[int, ...], optimizer: Any) -> dict[str, np.ndarray]:
    """Weights and running statistics after some epochs, and the costs."""
    model, cost = Model(network), GeneralizedCost(CrossEntropyMulti())
    data = _data(shape)
    model.initialize(data, cost)
    if be.rank:  # all ranks start from the weights of rank 0
        for layer in model.layers_to_optimize:
            for name in layer.parameter_names():
                getattr(layer, name)[:] = 0
    callbacks = Callbacks(model, progress_bar=False)
    model.fit(data, cost, optimizer, EPOCHS, callbacks)
    costs = {"cost": np.asarray(model.total_cost), "costs": np.asarray(callbacks.callback_data["cost/train"])}
    return costs | _weights(model)


def _weights(model: Model) -> dict[str, np.ndarray]:
    """Parameters and running statistics."""
    found = {}
    for place, layer in enumerate(model.layers.layers_fprop()):
        for name in layer.parameter_names() if layer.has_params else ():
            found[f"{place}.{name}"] = getattr(layer, name).get()
    return found


def _output() -> Affine:
    return Affine(CLASSES, init=GlorotUniform(), bias=Constant(0), activation=Softmax())


def mlp() -> dict[str, np.ndarray]:
    """A multilayer perceptron with gradient descent, whose weights are messages of both sizes."""
    return _trained(_mlp().layers.layers, (100,), GradientDescentMomentum(0.1, 0.9))


def _mlp() -> Model:
    hidden = Affine(200, init=GlorotUniform(), bias=Constant(0), activation=Rectlin())
    return Model([hidden, _output()])


def clipped() -> dict[str, np.ndarray]:
    """Adam with the norm of the gradients clipped, on rows of a large weight, and another optimizer for biases."""
    hidden = Affine(901, init=GlorotUniform(), bias=Constant(0), activation=Logistic())
    adam = Adam(learning_rate=0.01, gradient_clip_norm=0.1)
    optimizer = MultiOptimizer({"default": adam, "Bias": RMSProp(learning_rate=0.01, gradient_clip_value=0.05)})
    return _trained([hidden, _output()], (20,), optimizer)


def whole() -> dict[str, np.ndarray]:
    """The same as :func:`mlp` with every rank updating all parameters, then resumed by ranks that share them."""
    be.shard_optimizer = False
    model, data, cost = _mlp(), _data((100,)), GeneralizedCost(CrossEntropyMulti())
    optimizer = GradientDescentMomentum(0.1, 0.9)
    model.fit(data, cost, optimizer, 2, Callbacks(model, progress_bar=False))
    be.shard_optimizer = True
    model.fit(data, cost, optimizer, 3, Callbacks(model, progress_bar=False))
    saved = model.serialize()
    again = Model(saved)
    again.fit(data, cost, GradientDescentMomentum(0.1, 0.9), EPOCHS, Callbacks(again, progress_bar=False))
    velocity = saved["model"]["config"]["layers"][0]["states"]
    return {**_weights(again), "velocity": np.asarray(velocity[0])}


def convnet() -> dict[str, np.ndarray]:
    """A convolutional network with batch normalization by the statistics of all ranks."""
    be.sync_batchnorm = True
    conv = [
        Conv((3, 3, maps), init=GlorotUniform(), batch_norm=True, activation=Rectlin(), padding=1) for maps in (6, 8)
    ]
    return _trained([conv[0], Pooling(2), conv[1], _output()], (3, 8, 8), GradientDescentMomentum(0.05, 0.9))


def normalized() -> dict[str, np.ndarray]:
    """Batch normalization of rows by the statistics of all ranks, whose gradients of parameters are a rank's own."""
    be.sync_batchnorm = True
    x, error = (be.array(rng.standard_normal((3, BATCH))[:, be.own_columns]) for _ in range(2))
    xsum, xvar, gmean, gvar, beta, by_gamma, by_beta = (be.zeros((3, 1)) for _ in range(7))
    gamma, y, by_x = be.array([[1.0], [2.0], [-1.0]]), be.empty(x.shape), be.empty(x.shape)
    be.compound_fprop_bn(x, xsum, xvar, gmean, gvar, gamma, beta, y, 1e-3, 0.9, True)
    be.compound_bprop_bn(by_x, by_gamma, by_beta, error, x, xsum, xvar, gamma, 1e-3)
    assert np.allclose(by_beta.get(), error.get().sum(axis=1, keepdims=True), atol=1e-5), "mixed with other ranks'"
    found = [xvar, by_gamma, by_beta, be.array(be.sum(be.square(by_x), axis=1))]
    for tensor in found[1:]:
        be.allreduce(tensor, "sum")
    return {f"rows {place}": tensor.get() for place, tensor in enumerate(found)}


def scaled() -> dict[str, np.ndarray]:
    """Loss scaling around an optimizer, whose step is skipped on all ranks or on none: one sample is infinite."""
    model, optimizer = _mlp(), LossScaling(GradientDescentMomentum(0.1, 0.9), scale=2.0**10, interval=3)
    x = rng.standard_normal((SAMPLES, 100)).astype("f4")
    x[BATCH + 1] = np.inf  # a sample of the first rank, in the second minibatch
    data = ArrayIterator(x, rng.integers(0, CLASSES, SAMPLES), nclass=CLASSES)
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, 2, Callbacks(model, progress_bar=False))
    skipped = np.array([optimizer.skipped_steps, optimizer.current_scale])
    assert optimizer.skipped_steps == 2
    return {"skipped": skipped, **_weights(model)}


class Saves(Callback):
    """Saves the model within the second group of the second epoch."""

    saved: Any = None

    def on_minibatch_end(self, callback_data: Any, model: Any, epoch: int, minibatch: int) -> None:
        """Save it, of all ranks."""
        if (epoch, minibatch) == (1, 2):
            self.saved = model.serialize()


def accumulated() -> dict[str, np.ndarray]:
    """Gradients of two minibatches for each step, of one at the end of an epoch, saved between two and resumed."""
    exchanges = _counted("exchange_rows")
    model, data, saves = _mlp(), _data((100,)), Saves()
    callbacks = Callbacks(model, progress_bar=False)
    callbacks.add_callback(saves)

    def fit(model: Model, callbacks: Any) -> dict[str, np.ndarray]:
        optimizer = GradientAccumulation(GradientDescentMomentum(0.1, 0.9, gradient_clip_norm=0.5), 2)
        model.fit(data, GeneralizedCost(CrossEntropyMulti()), optimizer, EPOCHS, callbacks)
        return _weights(model)

    whole = fit(model, callbacks)
    assert len(exchanges) == (3 * EPOCHS if be.num_ranks > 1 else 0), "ranks exchange gradients for steps alone"
    again = Model(saves.saved)
    resumed = fit(again, Callbacks(again, progress_bar=False))
    assert all(np.allclose(resumed[name], whole[name], 1e-4, 1e-6) for name in whole)
    plain = _trained([_output()], (20,), GradientAccumulation(Plain(), 2))
    return {**whole, **{f"plain.{name}": values for name, values in plain.items()}}


def _counted(method: str) -> list[Any]:
    """A list that grows with each call of a method of the ranks."""
    calls, call = [], getattr(type(be.ranks), method)
    if be.num_ranks > 1:
        setattr(be.ranks, method, lambda *given: calls.append(method) or call(be.ranks, *given))
    return calls


def lstm() -> dict[str, np.ndarray]:
    """A recurrent network on samples of different lengths."""
    steps, features = 6, 4
    network = [
        LSTM(8, init=Uniform(-0.3, 0.3), activation=Tanh(), gate_activation=Logistic(), reset_cells=True),
        RecurrentSum(),
        _output(),
    ]
    model = Model(network)
    cost, optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9)
    model.initialize((features, steps), cost)
    share = be.own_columns
    for _ in range(20):
        x = rng.standard_normal((features, steps, BATCH)).astype("f4")[:, :, share].reshape(features, -1)
        t = np.eye(CLASSES, dtype="f4")[:, rng.integers(0, CLASSES, BATCH)][:, share]
        lengths = rng.integers(1, steps + 1, BATCH)[share]
        model.set_lengths(lengths)
        errors = cost.get_errors(model.fprop(be.array(x.copy())), be.array(t.copy()))
        model.bprop(errors)
        optimizer.optimize(model.layers_to_optimize, 0)
    return {name: getattr(model.layers.layers[0], name).get() for name in ("W_input", "W_recur", "b")}


def variables() -> dict[str, np.ndarray]:
    """A program's own loop over variables."""
    weights = [ag.param(be.rank + 0.3 * rng.standard_normal(shape)) for shape in ((5, 16), (1, 16), (16, 1))]
    together = distributed.Synchronised(weights)
    share = be.own_columns
    losses = []
    for _ in range(20):
        x, t = rng.standard_normal((BATCH, 5))[share], rng.standard_normal((BATCH, 1))[share]
        ag.zero_grad(weights)
        with together:
            difference = ag.tanh(ag.const(x) @ weights[0] + weights[1]) @ weights[2] - ag.const(t)
            loss = (difference * difference).sum() / be.bsz
            loss.backprop()
        losses.append(together.mean(loss.item()))
        for weight in weights:
            weight.value[:] -= 0.1 * weight.partial_derivative
    return {"losses": np.array(losses), **{str(place): weight.get() for place, weight in enumerate(weights)}}


class Plain(Optimizer):
    """An optimizer of a user's own, which knows nothing of ranks."""

    def optimize(self, layer_list: Any, epoch: int) -> None:
        """Descend."""
        for layer in layer_list:
            entries = layer.get_params()
            for (param, grad), _ in entries if isinstance(entries, list) else [entries]:
                param[:] = param - 0.1 * (grad / self.be.bsz)


def foreign() -> dict[str, np.ndarray]:
    """An optimizer of a user's own."""
    return _trained([_output()], (20,), Plain())


TRAININGS: dict[str, Callable[[], dict[str, np.ndarray]]] = {
    one.__name__: one
    for one in (mlp, whole, clipped, scaled, accumulated, convnet, normalized, lstm, variables, foreign)
}


def _named(names: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    global rng
    for name in names:
        rng = np.random.default_rng(7)
        be.rng_reset()
        be.sync_batchnorm = False
        yield from ((f"{name}.{key}", values) for key, values in TRAININGS[name]().items())


def _collectives() -> int:
    """Sums and copies by the emulated NCCL; -1 where there is another, or none."""
    try:
        return int(ctypes.CDLL("libnccl.so.2").cuemu_nccl_count())
    except (OSError, AttributeError):
        return -1


if __name__ == "__main__":
    be = gen_backend(os.environ.get("RANKS_BACKEND", "cpu"), batch_size=BATCH, rng_seed=3)
    *chosen, path = sys.argv[1:]
    results = dict(_named(chosen or list(TRAININGS)))
    same = be.ranks.tell({key: values.tobytes() for key, values in results.items()})
    different = [key for key in results if any(other[key] != same[0][key] for other in same)]
    if be.rank == 0:
        np.savez(path, different=np.array(different), collectives=_collectives(), **results)
