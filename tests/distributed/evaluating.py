"""A program that evaluates networks as one of several ranks, and leaves what it found in a file of its own."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import BatchNormTuneCallback, MultiLabelStatsCallback
from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import GRU, Affine, BatchNorm, BiBNRNN, GeneralizedCost, Seq2Seq
from neonlike.models import Model
from neonlike.models.statistics import average_statistics
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import (
    Accuracy,
    CrossEntropyMulti,
    Logistic,
    LogLoss,
    Misclassification,
    PrecisionRecall,
    Softmax,
    Tanh,
    TopKMisclassification,
)
from tests.distributed.shares import Shares

BATCH, NIN, NCLASS, STEPS = 12, 5, 4, 3
"""Of all ranks: one, two or three of them have equal shares."""
COUNTS = (31, 5, 24)
"""Samples: with a rest; fewer than the share of a rank; without a rest."""


def samples(count: int, *steps: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(count)
    x = rng.normal(size=(count, NIN, *steps)).astype(np.float32)
    labels = rng.integers(NCLASS, size=(count, *steps))
    return x, np.moveaxis(np.eye(NCLASS, dtype=np.float32)[labels], -1, 1)


def network(*between: Any) -> Model:
    init = GlorotUniform()
    last = Affine(NCLASS, init, bias=Constant(0), activation=Softmax())
    return Model([Affine(6, init, bias=Constant(0), activation=Tanh()), *between, last])


def flat(found: dict[str, Any]) -> None:
    """Metrics, losses and outputs of samples."""
    model, metrics = network(), (Misclassification(), Accuracy(), LogLoss(), TopKMisclassification(2))
    for count in COUNTS:
        for padded in (True, False):
            data = Shares(*samples(count), padded)
            for metric in (*metrics, PrecisionRecall(NCLASS)):
                found[f"{metric.classnm} {count} {padded}"] = model.eval(data, metric)
            found[f"outputs {count} {padded}"] = model.get_outputs(data)
    data = Shares(*samples(COUNTS[0]))
    every = MultiLabelStatsCallback(data, list("abcd"), PrecisionRecall(NCLASS))
    found["by label"] = every._by_label(model)


def sequences(found: dict[str, Any]) -> None:
    """Metrics, outputs and words of sequences, whose columns are ordered by step."""
    init = GlorotUniform()

    def layer() -> Any:
        return GRU(6, init, activation=Tanh(), gate_activation=Logistic(), reset_cells=True)

    def writer() -> Any:
        return Affine(NCLASS, init, bias=Constant(0), activation=Softmax())

    data = Shares(*samples(31, STEPS))
    chain = Model([layer(), writer()])
    found["sequences"] = chain.get_outputs(data)
    found["of sequences"] = chain.eval(data, Misclassification(steps=STEPS))
    rng = np.random.default_rng(1)
    words = np.eye(NCLASS, dtype=np.float32)[rng.integers(NCLASS, size=(29, STEPS))].transpose(0, 2, 1)
    writing = Model(Seq2Seq([[layer()], [layer(), writer()]]))
    for beams in (0, 2):
        found[f"beams {beams}"] = writing.get_outputs_beam(Shares(words, words), num_beams=beams)


def statistics(found: dict[str, Any]) -> None:
    """Running statistics: those of this rank, their mean, and what an evaluation leaves."""
    be, data = Model.be, Shares(*samples(31))
    model = network(BatchNorm())
    model.initialize(data)
    for x, _ in data:
        model.fprop(x)
    layer = next(layer for layer in model.layers.layers_fprop() if isinstance(layer, BatchNorm))
    found["own mean"], found["own variance"] = layer.gmean.get(), layer.gvar.get()
    found["all means"], found["all variances"] = be.allgather(layer.gmean), be.allgather(layer.gvar)
    model.get_outputs(data)
    found["mean"], found["variance"] = layer.gmean.get(), layer.gvar.get()
    BatchNormTuneCallback(data).on_epoch_end(None, model, 0)
    found["tuned mean"], found["tuned variance"] = layer.gmean.get(), layer.gvar.get()
    both = BiBNRNN(3, GlorotUniform(), activation=Tanh(), reset_cells=True)
    model = Model([both])
    model.initialize((NIN, STEPS))
    both.gmean.fill(be.rank)
    average_statistics(model)
    found["mean of both ways"] = both.gmean.get()


def training(found: dict[str, Any]) -> None:
    """A training whose callbacks evaluate, and decide on its end."""
    model, data, valid = network(), Shares(*samples(48)), Shares(*samples(31))
    callbacks = Callbacks(model, eval_set=valid, eval_freq=1, metric=Accuracy(), progress_bar=False)
    callbacks.add_early_stop_callback(lambda state, loss: ((state or 0) + 1, state == 2))
    cost, optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.2, 0.9)
    model.fit(data, cost, optimizer, 10, callbacks)
    store = callbacks.callback_data
    for path in ("cost/loss", "metrics/Accuracy"):
        found[path] = store[path][...]
    found["epochs"] = model.epoch_index
    found["minibatches"] = store["config"].attrs["total_minibatches"]


def main() -> None:
    """Find all, and save it for the test."""
    be = gen_backend("cpu", rng_seed=3, batch_size=BATCH)
    found: dict[str, Any] = {"rank": be.rank, "share": be.bsz}
    for part in (flat, sequences, statistics, training):
        part(found)
    np.savez(f"{sys.argv[1]}/{be.rank}.npz", **found)


if __name__ == "__main__":
    main()
