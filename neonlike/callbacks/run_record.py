"""The callback that records a run for its report: facts, rates, network, results, times, memory."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import numpy as np

from neonlike.callbacks.callback import Callback, fires
from neonlike.callbacks.facts import facts_of, rates_of
from neonlike.callbacks.recording import LossCallback, record
from neonlike.callbacks.results import Results
from neonlike.callbacks.sampling import StepSampler
from neonlike.callbacks.store import epoch_dataset, set_text
from neonlike.errors import NeonlikeError
from neonlike.layers.container import LayerContainer
from neonlike.models import graph
from neonlike.models.explain import rows

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records
    from neonlike.distributed.ranks import Ranks
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"

FACTS, NETWORK, STEP, BENCH, WRONG = (f"run/{name}" for name in ("facts", "network", "step", "bench", "wrong"))
"""Paths of texts in JSON."""
CONFUSION, IMAGES = "run/confusion", "run/images"
"""Paths of the confusion matrix (class, answer), and of a group with an image of each wrong sample that is one."""
RATES = "rate/"
"""Prefix of the learning rates of groups of parameters."""


class RunCallback(Callback):
    """Record facts of a run, learning rates, the network, results on the evaluation data, and times of layers.

    Facts, network, results and times are texts in JSON below ``run/``; rates are in ``rate/<group>``. In a few of the
    first minibatches the passes of layers are timed, as :class:`~neonlike.models.timing.Benchmark` does it.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import RunCallback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> callbacks.add_callback(RunCallback())
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> callbacks.callback_data["rate/rate"][...].tolist()
    [0.25, 0.25]
    """

    def __init__(self) -> None:
        super().__init__(epoch_freq=1)
        self._sampler = StepSampler()
        self._loss: LossCallback | None = None
        self._results: Results | None = None
        self._is_sampled = False

    def follow(self, loss: LossCallback | None) -> None:
        """Collect the results of the evaluations of a callback; None: there are none."""
        if loss is self._loss:
            return
        self._loss, self._results = loss, None if loss is None else Results(loss.eval_set)
        if loss is not None and self._results is not None:
            loss.seen = self._results.see

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Record the facts and the network, and create the datasets of the rates.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        set_text(callback_data, FACTS, json.dumps(facts_of(model, epochs)))
        network = [dataclasses.asdict(row) for row in rows(model.layers)]
        set_text(callback_data, NETWORK, json.dumps({"rows": network, "dot": _dot(model.layers)}))
        for name in rates_of(model.optimizer, model.epoch_index):
            epoch_dataset(callback_data, RATES + name, range(epochs), 1, model.epoch_index)
        self._sampler.stop()
        self._sampler, self._is_sampled = StepSampler(), False

    def on_epoch_begin(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Record the rates, and forget the results of the last evaluation.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_begin`.
        """
        for name, rate in rates_of(model.optimizer, epoch).items():
            if RATES + name in callback_data:
                record(callback_data, RATES + name, epoch, rate)
        if self._results is not None:
            self._results.restart()

    def on_minibatch_begin(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Measure the layers in a minibatch that is sampled.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_begin`.
        """
        self._sampler.begin(model)

    def on_minibatch_end(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Leave the layers as they were.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        self._sampler.stop()

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Record the results of the epoch's evaluation, and the sampled times.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        if not self._is_sampled and (found := self._sampler.found()):
            set_text(callback_data, STEP, json.dumps(found))
            self._is_sampled = epoch > 0 or model.nbatches > 4
        if self._results is not None and self._loss is not None and fires(epoch, self._loss.epoch_freq):
            _store_results(callback_data, self._results, model.be.ranks, epoch)

    def release(self) -> None:
        """Stop measuring, and leave the layers as they were."""
        self._sampler.stop()

    def record_kernels(self, callback_data: Records, model: Model) -> None:
        """Record the report of bench mode, if it is on."""
        if model.be.bench is not None and model.be.ranks.rank == 0:
            set_text(callback_data, BENCH, model.be.bench_report("json"))


def _dot(network: LayerContainer) -> str:
    """The network's graph; empty for one that cannot be drawn."""
    try:
        return graph.dot_text(network)
    except NeonlikeError:
        return ""


def _store_results(callback_data: Records, results: Results, ranks: Ranks, epoch: int) -> None:
    """Replace the results of an earlier epoch; all ranks have to call this."""
    counts, wrong, why = results.told(ranks)
    for path in (CONFUSION, IMAGES):
        if path in callback_data:
            del callback_data[path]
    if counts is not None:
        callback_data.create_dataset(CONFUSION, data=counts)
    images = callback_data.require_group(IMAGES)
    samples = []
    for number, entry in enumerate(wrong):
        pixels = entry.pop("pixels", None)
        if pixels is not None:
            images.create_dataset(str(number), data=np.asarray(pixels))
        samples.append(entry)
    classes = range(0 if counts is None else len(counts))
    named = sorted({*classes, *(entry[key] for entry in samples for key in ("truth", "guess"))})
    told = {"epoch": epoch, "why": why, "samples": samples, "names": {number: results.name(number) for number in named}}
    set_text(callback_data, WRONG, json.dumps(told))
