"""The callback that writes TensorBoard's event files, by the package tensorboardX."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.callbacks.callback import Callback, recorded_at
from neonlike.callbacks.facts import facts_of, rates_of
from neonlike.callbacks.store import MARKERS, first_minibatch, means_minibatches
from neonlike.distributed.first import by_first
from neonlike.errors import MissingExtra
from neonlike.util.persist import expand

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Record, Records
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"

MOST_POINTS = 1000
"""Minibatches of an epoch whose cost is written, evenly spaced."""


class TensorBoardCallback(Callback):
    """Write costs, metrics, learning rates, and histograms of weights and gradients, after each epoch.

    Steps are minibatches. A resumed training continues the curves. Of several ranks, rank 0 writes.

    Parameters
    ----------
    folder : str
        Folder of the event files, created if missing; `tensorboard --logdir FOLDER` shows it.
    histograms : list of str
        Attributes of the layers whose histograms are written; none: ``()``.

    Raises
    ------
    MissingExtra
        If tensorboardX is not installed.

    Examples
    --------
    >>> import os
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, tensorboard="logs", progress_bar=False)
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> len(os.listdir("logs"))
    1
    """

    def __init__(self, folder: str | os.PathLike[str], histograms: Any = ("W", "dW")) -> None:
        super().__init__(epoch_freq=1)
        try:
            import tensorboardX
        except ImportError as error:
            raise MissingExtra(
                "TensorBoardCallback: event files are written by tensorboardX; install it with: "
                "pip install 'neonlike[tensorboard]'"
            ) from error
        self.folder, self.histograms = os.fspath(folder), list(histograms)
        self._make = tensorboardX.SummaryWriter
        self._writer: Any = None

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Open the files; steps of an earlier training from here on are dropped.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        done = int(callback_data[MARKERS].attrs["minibatches_complete"])

        def open_writer() -> None:
            self.close()
            # Files of one second would have one name.
            suffix, purged = f".{time.monotonic_ns()}", done + 1 if done else None
            self._writer = self._make(expand(self.folder), purge_step=purged, filename_suffix=suffix)
            facts = facts_of(model, epochs).values()
            lines = [f"| {name} | {value} |" for topic in facts for name, value in topic.items()]
            self._writer.add_text("run", "\n".join(["| | |", "|-|-|", *lines]), done)
            self._writer.flush()

        by_first(open_writer)

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Write the values of the epoch.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        by_first(lambda: self._write(callback_data, model, epoch))

    def on_train_end(self, callback_data: Records, model: Model) -> None:
        """Close the files."""
        by_first(self.close)

    def close(self) -> None:
        """Close the files, if they are open."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _write(self, callback_data: Records, model: Model, epoch: int) -> None:
        writer = self._writer
        first, last = first_minibatch(callback_data, epoch), int(callback_data[MARKERS][epoch])
        for group in ("cost", "multicost", "metrics"):
            for name, dataset in callback_data[group].items() if group in callback_data else ():
                for step, value in _values(dataset, epoch, first, last):
                    writer.add_scalar(f"{group}/{name}", value, step)
        for name, rate in rates_of(model.optimizer, epoch).items():
            writer.add_scalar(f"rate/{name}", rate, last)
        for number, layer in enumerate(model.layers.layers_fprop()):
            for attribute in self.histograms:
                self._histogram(f"{layer.name}_{number}/{attribute}", getattr(layer, attribute, None), last)
        writer.flush()

    def _histogram(self, tag: str, tensor: Any, step: int) -> None:
        if tensor is None:
            return
        values = tensor.get().astype(np.float64).reshape(-1)
        values = values[np.isfinite(values)]
        if values.size:
            self._writer.add_histogram(tag, values, step)


def _values(dataset: Record, epoch: int, first: int, last: int) -> list[tuple[int, float]]:
    """Minibatch number and value of what a dataset of single numbers has for an epoch, if it is finite."""
    return [(step, value) for step, value in _recorded(dataset, epoch, first, last) if math.isfinite(value)]


def _recorded(dataset: Record, epoch: int, first: int, last: int) -> list[tuple[int, float]]:
    if dataset.ndim != 1:
        return []
    if means_minibatches(dataset.attrs.get("time_markers")):
        steps = np.unique(np.linspace(first, last - 1, min(MOST_POINTS, last - first)).astype(int))
        values = dataset[first:last][steps - first]
        return [(int(step) + 1, float(value)) for step, value in zip(steps, values, strict=True)]
    at = recorded_at(dataset, epoch)
    return [] if at is None or at >= len(dataset) else [(last, float(dataset[at]))]
