"""Callbacks that print results of the network: measures per label, and a minibatch of a synthetic task."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.callbacks.callback import Callback, Frequency
from neonlike.checks import brief
from neonlike.data.ticker import Ticker
from neonlike.errors import ArgumentError
from neonlike.models.evaluation import summed

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records
    from neonlike.data.protocol import DataIterator
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"


class MultiLabelStatsCallback(Callback):
    """Print a metric for each label, in percent, averaged over a data set.

    Parameters
    ----------
    eval_set : iterator
        Data to evaluate; it is reset first.
    labels : list of str
        Names of the labels.
    metric : Metric
        A metric with ``outputs`` of shape (labels, names), such as ``PrecisionRecall(num_classes)``.
    epoch_freq : int
        Interval in epochs.

    Raises
    ------
    ArgumentError
        If the metric has no outputs of this shape.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import MultiLabelStatsCallback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import PrecisionRecall, SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(2, Constant(1.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.zeros(4, dtype=int), nclass=2)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> metric = PrecisionRecall(num_classes=2, binarize=True)
    >>> callbacks.add_callback(MultiLabelStatsCallback(data, ["cat", "dog"], metric, epoch_freq=2))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    [Precision: 100%, Recall: 100%] -> cat
    [Precision: 0%, Recall: 0%] -> dog
    """

    def __init__(
        self, eval_set: DataIterator, labels: Sequence[str], metric: Any, epoch_freq: Frequency = 1
    ) -> None:
        super().__init__(epoch_freq=epoch_freq)
        if isinstance(metric, type) or not hasattr(metric, "metric_names") or not hasattr(metric, "outputs"):
            raise ArgumentError(
                f"MultiLabelStatsCallback: metric={brief(metric)} is no metric with outputs for each label; construct "
                "one, e.g. PrecisionRecall(num_classes=10)"
            )
        expected = (len(labels), len(metric.metric_names))
        if tuple(metric.outputs.shape) != expected:
            raise ArgumentError(
                f"MultiLabelStatsCallback: {len(labels)} labels and {len(metric.metric_names)} measures, but the "
                f"metric's outputs have shape {tuple(metric.outputs.shape)}, expected {expected}"
            )
        self.eval_set, self.labels, self.metric = eval_set, labels, metric

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Evaluate and print a line per label.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        for label, measures in zip(self.labels, self._by_label(model), strict=True):
            named = zip(self.metric.metric_names, measures, strict=True)
            text = ", ".join(f"{name}: {100 * value:.0f}%" for name, value in named)
            sys.stdout.write(f"[{text}] -> {label}\n")
        sys.stdout.flush()

    def _by_label(self, model: Model) -> np.ndarray:
        """Evaluate the metric per label: from counts over the data set, or as a mean over samples."""
        by_class = getattr(self.metric, "by_class", None)

        def measured(y: Any, t: Any, valid: int, steps: int) -> np.ndarray:
            columns = slice(0, valid * steps)
            if by_class is not None:
                return self.metric.counts(y, t, calcrange=columns)  # type: ignore[no-any-return]
            self.metric(y, t, calcrange=columns)
            return (valid * self.metric.outputs.get()).astype(np.float64)  # type: ignore[no-any-return]

        total, samples = summed(self.classnm, model, self.eval_set, measured)
        return by_class(total) if by_class is not None else total / samples  # type: ignore[no-any-return]


class WatchTickerCallback(Callback):
    """Print inputs, outputs and targets of a minibatch's first sequence, for a :class:`~neonlike.data.Ticker`.

    Parameters
    ----------
    model : Model
        Accepted for compatibility; the model in training is shown.
    valid_set : Ticker
        Source of the minibatch.
    epoch_freq : int
        Interval in epochs.

    Raises
    ------
    ArgumentError
        If ``valid_set`` is no Ticker.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks.callbacks import WatchTickerCallback
    >>> from neonlike.data import CopyTask, Ticker
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = Ticker(CopyTask(seq_len_max=3, vec_size=2))
    >>> WatchTickerCallback(None, data, epoch_freq=5).valid_set is data
    True
    """

    def __init__(self, model: Model, valid_set: DataIterator, epoch_freq: Frequency = 1) -> None:
        super().__init__(epoch_freq=epoch_freq)
        if not isinstance(valid_set, Ticker):
            raise ArgumentError(
                f"WatchTickerCallback: valid_set={brief(valid_set)} is no Ticker; give e.g. Ticker(CopyTask(10, 8))"
            )
        self.model, self.valid_set = None, valid_set

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Print the steps of a sequence as columns, up to its last.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        x, (target, mask) = next(iter(self.valid_set))
        y = model.fprop(x, inference=True)
        # Columns are ordered by step, and by sample within a step.
        first = {"inputs": x, "outputs": y, "targets": target, "mask": mask}
        steps = {name: tensor.get()[:, :: model.be.bsz] for name, tensor in first.items()}
        used = steps.pop("mask")[0] > 0
        for name, values in steps.items():
            rows = [" ".join(f"{value:5.2f}" for value in row) for row in values[:, used]]
            sys.stdout.write("\n".join([f"Epoch {epoch}, {name}:", *rows]) + "\n")
        sys.stdout.flush()
