"""Callbacks that measure the training and record numbers: costs, metrics, times, histograms."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.callbacks.callback import Callback, Frequency, recorded_at
from neonlike.callbacks.store import Steps, epoch_dataset, first_minibatch, new_dataset, records
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers.container import Multicost
from neonlike.logger import logger
from neonlike.models.evaluation import Seen, summed
from neonlike.optree.node import Expression

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Record, Records
    from neonlike.data.protocol import DataIterator
    from neonlike.models.model import Model
    from neonlike.transforms.transform import MetricLike

__public_module__ = "neonlike.callbacks.callbacks"


class TrainCostCallback(Callback):
    """Record the running mean of the last minibatch costs in ``cost/train``.

    Parameters
    ----------
    wsz : int
        Number of minibatches to average.

    Examples
    --------
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
    >>> callbacks = Callbacks(model, progress_bar=False)  # has a TrainCostCallback
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> callbacks.callback_data["cost/train"][:2].tolist()  # 0.5, and the mean of it and 0.03125
    [0.5, 0.265625]
    """

    def __init__(self, wsz: int = 10) -> None:
        super().__init__(epoch_freq=1)
        self.wsz = wsz
        self.cost_history: deque[float] = deque(maxlen=int(wsz))

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Create the dataset.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        points = int(callback_data["config"].attrs["total_minibatches"])
        self._costs = Steps(new_dataset(callback_data, "cost/train", (points,), time_markers="minibatch"))
        self._epoch = -1
        self.cost_history.clear()

    def on_minibatch_end(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Record the running mean.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        if epoch != self._epoch:
            self._epoch, self._first = epoch, first_minibatch(callback_data, epoch)
        self.cost_history.append(np.asarray(model.cost.cost).item())
        self._costs[self._first + minibatch] = sum(self.cost_history) / len(self.cost_history)

    def progress(self) -> dict[str, Any]:
        """The last costs."""
        return {"costs": list(self.cost_history)}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Continue with the last costs of a saved training."""
        self.cost_history.extend([float(cost) for cost in saved["costs"]])


class TrainMulticostCallback(Callback):
    """Record running means of the costs of a Multicost.

    The weighted sum goes to ``multicost/train``, and each cost to ``multicost/train_allbranches``.

    Parameters
    ----------
    wsz : int
        Number of minibatches to average.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks.callbacks import TrainMulticostCallback
    >>> be = gen_backend("cpu", batch_size=2)
    >>> TrainMulticostCallback(wsz=20).cost_history.maxlen
    20
    """

    def __init__(self, wsz: int = 10) -> None:
        super().__init__(epoch_freq=1)
        self.wsz = wsz
        self.cost_history: deque[np.ndarray] = deque(maxlen=int(wsz))

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Create the datasets.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        if not isinstance(model.cost, Multicost):
            raise ArgumentError(
                f"TrainMulticostCallback: the cost is a {type(model.cost).__name__}; this callback is for a Multicost"
            )
        points = int(callback_data["config"].attrs["total_minibatches"])
        self._branches = branches = len(model.cost.costs)
        sums = new_dataset(callback_data, "multicost/train", (points,), time_markers="minibatch")
        each = new_dataset(callback_data, "multicost/train_allbranches", (points, branches), time_markers="minibatch")
        self._sums, self._each = Steps(sums), Steps(each)
        self._epoch = -1
        self.cost_history.clear()

    def on_minibatch_end(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Record the running means.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        self.cost_history.append(each_cost(model.cost))
        means = np.mean(self.cost_history, axis=0)
        if epoch != self._epoch:
            self._epoch, self._first = epoch, first_minibatch(callback_data, epoch)
        self._sums[self._first + minibatch] = float(means @ np.array(model.cost.weights))
        self._each[self._first + minibatch] = means

    def progress(self) -> dict[str, Any]:
        """The last costs."""
        return {"costs": list(self.cost_history)}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Continue with the last costs of a saved training."""
        costs = np.array(saved["costs"], dtype=np.float64)
        if costs.size and costs.shape[1:] != (self._branches,):
            raise ValueError(f"costs of shape {costs.shape} for {self._branches} outputs")
        self.cost_history.extend(costs)


class LossCallback(Callback):
    """Record the mean cost per sample of a data set in ``cost/loss``, and the seconds needed in ``time/loss``.

    Parameters
    ----------
    eval_set : iterator
        Data to evaluate; it is reset first.
    epoch_freq : int
        Interval in epochs.

    Attributes
    ----------
    suffix : str
        Suffix of the record names: empty, "_2" for the second callback with the same records, and so on.
    loss : float or None
        Loss of the last evaluation.
    seen : callable or None
        Gets inputs, outputs and targets of each evaluated batch, see :func:`~neonlike.models.evaluation.predictions`.

    Raises
    ------
    DTypeError
        If ``eval_set`` is no data iterator.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import LossCallback
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
    >>> callbacks.add_callback(LossCallback(data, epoch_freq=1))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> callbacks.callback_data["cost/loss"][...].tolist()
    [0.001953125, 7.62939453125e-06]
    """

    suffix = ""
    seen: Seen | None = None

    def __init__(self, eval_set: DataIterator, epoch_freq: Frequency = 1) -> None:
        super().__init__(epoch_freq=epoch_freq)
        if isinstance(eval_set, np.ndarray | list | tuple | Expression):
            raise DTypeError(
                f"LossCallback: eval_set is a {type(eval_set).__name__}; expected a data iterator, e.g. "
                "ArrayIterator(X, y, nclass=10)"
            )
        self.eval_set = eval_set
        self.loss: float | None = None

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Create the datasets.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        for path in ("cost/loss", "time/loss"):
            epoch_dataset(callback_data, path + self.suffix, self.firings(epochs), self.epoch_freq, model.epoch_index)

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Evaluate and record the loss.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        start = time.perf_counter()
        self.loss = loss = self._evaluate(model)
        record(callback_data, "time/loss" + self.suffix, epoch, time.perf_counter() - start)
        record(callback_data, "cost/loss" + self.suffix, epoch, loss)

    def _evaluate(self, model: Model) -> float:
        def cost_of(y: Any, t: Any, valid: int, steps: int) -> float:
            model.cost.get_cost(y, t)
            columns = model.cost.outputs.get()
            return float(columns[:, : valid * steps].sum(dtype=np.float64)) / steps

        total, samples = summed(self.classnm, model, self.eval_set, cost_of, self.seen)
        return float(total / samples)


class MetricCallback(Callback):
    """Record a metric of a data set in ``metrics/<name>``.

    Parameters
    ----------
    eval_set : iterator
        Data to evaluate.
    metric : Metric
        For example ``Misclassification()``.
    epoch_freq : int
        Interval in epochs.

    Attributes
    ----------
    suffix : str
        Suffix of the record names: empty, "_2" for the second callback with the same records, and so on.

    Raises
    ------
    ArgumentError
        If ``metric`` is no metric object.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import MetricCallback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import Misclassification, SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> callbacks.add_callback(MetricCallback(data, Misclassification()))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> callbacks.callback_data["metrics/Top1Misclass"][...].tolist()
    [0.0, 0.0]
    """

    suffix = ""

    def __init__(self, eval_set: DataIterator, metric: MetricLike, epoch_freq: Frequency = 1) -> None:
        super().__init__(epoch_freq=epoch_freq)
        if isinstance(metric, type) or not hasattr(metric, "metric_names"):
            raise ArgumentError(
                f"MetricCallback: metric={metric!r} is not a metric object; construct one, e.g. Misclassification()"
            )
        self.eval_set = eval_set
        self.metric = metric
        self.metric_names = list(metric.metric_names)

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Create the datasets.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        for name in self.metric_names:
            path = f"metrics/{name}{self.suffix}"
            epoch_dataset(callback_data, path, self.firings(epochs), self.epoch_freq, model.epoch_index)

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Evaluate and record the metric.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        values = model.eval(self.eval_set, metric=self.metric)
        for name, value in zip(self.metric_names, values, strict=True):
            record(callback_data, f"metrics/{name}{self.suffix}", epoch, value)


class RunTimerCallback(Callback):
    """Record start and end of the training in ``time/train/start_time`` and ``end_time``, in seconds since 1970.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import RunTimerCallback
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
    >>> callbacks.add_callback(RunTimerCallback())
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> times = callbacks.callback_data["time/train"]
    >>> bool(times["start_time"][0] <= times["end_time"][0])
    True
    """

    def __init__(self) -> None:
        super().__init__()

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Record the start.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        for name in ("start_time", "end_time"):
            new_dataset(callback_data, f"time/train/{name}", (1,), dtype="float64", units="seconds")
        callback_data["time/train/start_time"][0] = time.time()

    def on_train_end(self, callback_data: Records, model: Model) -> None:
        """Record the end."""
        callback_data["time/train/end_time"][0] = time.time()


class TrainLoggerCallback(Callback):
    """Log the network when training starts, and new costs and metrics (level INFO).

    Parameters
    ----------
    epoch_freq, minibatch_freq : int or None
        Interval in epochs (minibatches).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks.callbacks import TrainLoggerCallback
    >>> be = gen_backend("cpu", batch_size=2)
    >>> TrainLoggerCallback(epoch_freq=1, minibatch_freq=100).minibatch_freq
    100
    """

    def __init__(self, epoch_freq: Frequency = 1, minibatch_freq: Frequency = None) -> None:
        super().__init__(epoch_freq=epoch_freq, minibatch_freq=minibatch_freq)

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Log the network.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        logger.info("Model:\n%s", model)

    def on_minibatch_end(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Log the cost of the minibatch.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        logger.info(
            "Epoch %d Minibatch %d complete. Train Cost %f.", epoch, minibatch, np.asarray(model.cost.cost).item()
        )

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Log the costs and metrics of the epoch.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        parts = [f"Train Cost {model.total_cost.item():.6f}."]
        if "cost/loss" in callback_data:
            parts += _latest("Eval Cost", callback_data["cost/loss"], epoch)
        for name in callback_data["metrics"] if "metrics" in callback_data else ():
            parts += _latest(name, callback_data[f"metrics/{name}"], epoch)
        logger.info("Epoch %d complete. %s", epoch, " ".join(parts))


class HistCallback(Callback):
    """Record histograms of layer attributes in ``hist/<layer>_<i>_<attribute>``.

    Parameters
    ----------
    plot_per_mini : bool
        Record once per minibatch instead of per epoch.
    filter_key : list of str
        Attributes of the layers to record, e.g. ``["W", "dW"]``.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import HistCallback
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
    >>> callbacks.add_callback(HistCallback(plot_per_mini=False, filter_key=["W"]))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> len(callbacks.callback_data["hist"].keys())
    1
    """

    def __init__(self, plot_per_mini: bool, filter_key: Iterable[str]) -> None:
        super().__init__(epoch_freq=1, minibatch_freq=1)
        self.plot_per_mini = plot_per_mini
        self.filter_key = list(filter_key)

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Create the group.

        Parameters
        ----------
        callback_data, model, epochs
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_train_begin`.
        """
        total = callback_data["config"].attrs["total_minibatches"] if self.plot_per_mini else epochs
        markers = "minibatch" if self.plot_per_mini else "epoch"
        group = callback_data.require_group("hist")
        if group.attrs.get("time_markers", markers) != markers:  # those of an earlier training have other steps
            for tag in records(group):
                del group[tag]
        group.attrs["bins"] = model.be.hist_bins
        group.attrs["offset"] = model.be.hist_offset
        group.attrs["time_markers"] = markers
        group.attrs["time_steps"] = int(total)
        self._steps = {tag: self._dataset(callback_data, tag) for tag in records(group)}
        self._epoch = -1

    def on_minibatch_end(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Record the histograms of the minibatch.

        Parameters
        ----------
        callback_data, model, epoch, minibatch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_minibatch_end`.
        """
        if self.plot_per_mini:
            if epoch != self._epoch:
                self._epoch, self._first = epoch, first_minibatch(callback_data, epoch)
            self._record(callback_data, model, self._first + minibatch)

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Record the histograms of the epoch.

        Parameters
        ----------
        callback_data, model, epoch
            As of :meth:`~neonlike.callbacks.callbacks.Callback.on_epoch_end`.
        """
        if not self.plot_per_mini:
            self._record(callback_data, model, epoch)

    def _record(self, callback_data: Records, model: Model, step: int) -> None:
        for i, layer in enumerate(model.layers.layers_fprop()):
            for attribute in self.filter_key:
                tensor = getattr(layer, attribute, None)
                if tensor is not None:
                    tensor.hist(f"{layer.name}_{i}_{attribute}")
        rows, tags = model.be.dump_hist_data()
        rows = rows.get()
        for tag, row in tags.items():
            if tag not in self._steps:
                self._steps[tag] = self._dataset(callback_data, tag)
            self._steps[tag][step] = rows[row]

    @staticmethod
    def _dataset(callback_data: Records, tag: str) -> Steps:
        """The dataset of a histogram; one of a shorter training is enlarged."""
        path, facts = f"hist/{tag}", callback_data["hist"].attrs
        shape = int(facts["bins"]), int(facts["time_steps"])
        if path not in callback_data or callback_data[path].shape != shape:
            new_dataset(callback_data, path, shape, unknown=0)
        return Steps(callback_data[path], axis=1)


def record(callback_data: Records, path: str, epoch: int, value: Any) -> None:
    """Store the value for an epoch.

    Parameters
    ----------
    callback_data : h5py.File or MemoryStore
        The records of the training.
    path : str
        Path of a dataset with a value for some epochs.
    epoch : int
        Number of the epoch, from 0; one without a place is left out.
    value : float
        The value.
    """
    dataset = callback_data[path]
    at = recorded_at(dataset, epoch)
    if at is not None:
        dataset[at] = value


def _latest(name: str, dataset: Record, epoch: int) -> list[str]:
    """Text of the value recorded for ``epoch``, if there is one."""
    at = recorded_at(dataset, epoch)
    return [] if at is None else [f"{name} {float(dataset[at]):.6f}."]


def each_cost(cost: Any) -> np.ndarray:
    """The cost of the last minibatch; for a Multicost each cost, 0 for outputs without target."""
    every = cost.costs if isinstance(cost, Multicost) else [cost]
    return np.array([np.asarray(one.cost).item() for one in every])
