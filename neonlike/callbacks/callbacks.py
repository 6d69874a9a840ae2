"""The set of callbacks of a training, and all callback classes under the path used by scripts."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from neonlike.attached import offered
from neonlike.callbacks.adversarial import GANCostCallback
from neonlike.callbacks.callback import Callback, frequency
from neonlike.callbacks.control import (
    BatchNormTuneCallback,
    EarlyStopCallback,
    SaveBestStateCallback,
    SerializeModelCallback,
)
from neonlike.callbacks.deconv import DeconvCallback
from neonlike.callbacks.progress import ProgressBarCallback, get_progress_string
from neonlike.callbacks.recording import (
    HistCallback,
    LossCallback,
    MetricCallback,
    RunTimerCallback,
    TrainCostCallback,
    TrainLoggerCallback,
    TrainMulticostCallback,
)
from neonlike.callbacks.run_record import RunCallback
from neonlike.callbacks.showing import MultiLabelStatsCallback, WatchTickerCallback
from neonlike.callbacks.store import MARKERS, MemoryStore, new_dataset, open_store, records, restore
from neonlike.callbacks.tensorboard import TensorBoardCallback
from neonlike.checks import brief, shown
from neonlike.distributed.first import by_first
from neonlike.errors import ArgumentError, DTypeError
from neonlike.logger import logger
from neonlike.models.progress import Progress, check_epochs
from neonlike.nervanaobject import Description, NervanaObject, build, of_this_package
from neonlike.util.persist import load_obj

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Records, Report
    from neonlike.data.protocol import DataIterator
    from neonlike.data.ticker import Ticker
    from neonlike.models.model import Model
    from neonlike.transforms.transform import MetricLike

__all__ = [
    "BatchNormTuneCallback", "Callback", "Callbacks", "DeconvCallback", "EarlyStopCallback", "GANCostCallback",
    "HistCallback", "LossCallback", "MetricCallback", "MultiLabelStatsCallback", "ProgressBarCallback", "RunCallback",
    "RunTimerCallback", "SaveBestStateCallback", "SerializeModelCallback", "TensorBoardCallback", "TrainCostCallback",
    "TrainLoggerCallback", "TrainMulticostCallback", "WatchTickerCallback", "get_progress_string",
]  # fmt: skip


NOT_SAVED = ("hist", "config", "time", "deconv", "run")
"""Groups of the store that are not saved with a model: large ones, the clock, and facts of the process."""


class Callbacks(NervanaObject):
    """The callbacks of a training, with the store for their records.

    Parameters
    ----------
    model : Model
        The model; only a weak reference is kept.
    train_set : object
        Not used; kept for compatibility.
    output_file : str, optional
        HDF5 file for the records, overwritten; without it they stay in memory, as on all ranks but the first.
    eval_freq : int, optional
        Interval in epochs between evaluations of the loss (and metric) on ``eval_set``.
    progress_bar : bool
        Show a progress bar.
    save_path : str, optional
        File for saving the model.
    serialize : int
        Interval in epochs between saves; 0 and None count as 1.
    history : int
        Number of saved files to keep.
    model_file : str, optional
        Saved model to load before training.
    eval_set : iterator, optional
        Data for evaluation.
    metric : Metric, optional
        Metric to evaluate in addition to the loss.
    log_token : str, optional
        Accepted for compatibility.
    multicost : bool
        Record each cost of a Multicost.
    stop_on_nan : bool
        End the training at the first minibatch with a nan or infinite cost, so that files saved before remain valid.
    report : str, optional
        HTML file for a report of the run, see docs/report.md; it needs matplotlib.
    tensorboard : str, optional
        Folder for TensorBoard's event files; it needs tensorboardX.

    Attributes
    ----------
    callbacks : list of Callback
        The callbacks in calling order; at the end of an epoch, those that read what others recorded come last.
    callback_data : h5py.File or MemoryStore
        The records; a file is closed when training ends.

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
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    >>> callbacks.callback_data["cost/train"][...].shape  # two minibatches in each of two epochs
    (4,)
    """

    from_description = False

    def __init__(
        self,
        model: Model,
        train_set: Any = None,
        output_file: str | None = None,
        eval_freq: int | None = None,
        progress_bar: bool = True,
        save_path: str | None = None,
        serialize: int | None = 0,
        history: int = 1,
        model_file: str | None = None,
        eval_set: DataIterator | None = None,
        metric: MetricLike | None = None,
        log_token: str | None = None,
        multicost: bool = False,
        stop_on_nan: bool = False,
        report: str | os.PathLike[str] | None = None,
        tensorboard: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        _warn_of_unused(train_set, serialize, save_path)
        eval_freq = _frequency_of_evaluation(eval_freq, eval_set)
        self._model = _reference(model)
        self.stop_on_nan, self.output_file = stop_on_nan, output_file
        self.model_file, self.save_path = model_file, save_path
        self.report: Report | None = None if report is None else offered("report of a training")(report)
        opened = by_first(lambda: open_store(output_file))
        self.callback_data: Records = MemoryStore() if opened is None else opened
        self.callbacks: list[Callback] = []
        self._at_begin: list[Callback] = []
        self._at_end: list[Callback] = []
        self._minibatches_in_epoch = 0
        self._progress: Description = {}
        self._fresh: weakref.WeakKeyDictionary[Callback, Description] = weakref.WeakKeyDictionary()
        self._add_shown(multicost, progress_bar)
        if eval_freq and eval_set is not None:
            self._add_evaluation(eval_set, metric, eval_freq)
        if save_path:
            self.add_callback(SerializeModelCallback(save_path, max(serialize or 1, 1), history))
        self._add_records(tensorboard)

    def _add_shown(self, multicost: bool, progress_bar: bool) -> None:
        """Add the callbacks for the cost of training."""
        self.add_callback(TrainMulticostCallback() if multicost else TrainCostCallback())
        if progress_bar:
            self.add_callback(ProgressBarCallback())

    def _add_records(self, tensorboard: str | os.PathLike[str] | None) -> None:
        """Add the log, the times of the training, and the callbacks that record what reports show."""
        self.add_callback(TrainLoggerCallback())
        self.add_callback(RunTimerCallback())
        if self.output_file is not None or self.report is not None:
            self.add_callback(RunCallback())
        is_shown = self.report is not None
        self._histograms = HistCallback(plot_per_mini=False, filter_key=("W", "dW")) if is_shown else None
        if tensorboard is not None:
            self.add_callback(TensorBoardCallback(tensorboard))

    def _add_evaluation(self, eval_set: DataIterator, metric: MetricLike | None, epoch_freq: int) -> None:
        self.add_callback(LossCallback(eval_set, epoch_freq=epoch_freq), insert_pos=0)
        if metric is not None:
            self.add_callback(MetricCallback(eval_set, metric, epoch_freq=epoch_freq))

    @property
    def model(self) -> Any:
        """The model; None after it was garbage-collected."""
        return self._model()

    # -- adding --------------------------------------------------------------------------------------------

    def add_callback(self, callback: Callback, insert_pos: int | None = None) -> None:
        """Add a callback at the end, or at a position.

        Parameters
        ----------
        callback : Callback
            The callback.
        insert_pos : int, optional
            Its place among the callbacks; by default the end.

        Raises
        ------
        DTypeError
            If it is no callback.
        """
        if not isinstance(callback, Callback):
            raise DTypeError(f"add_callback: got {brief(callback)}; expected an object derived from Callback")
        self.callbacks.insert(len(self.callbacks) if insert_pos is None else insert_pos, callback)

    def add_save_best_state_callback(self, path: str) -> None:
        """Add a callback that saves the model to ``path`` whenever the loss is the lowest so far.

        Parameters
        ----------
        path : path
            File to write.
        """
        self.add_callback(SaveBestStateCallback(path))

    def add_early_stop_callback(self, stop_func: Callable[[Any, float], tuple[Any, bool]]) -> None:
        """Add a callback that stops the training when ``stop_func(state, loss) -> (state, finished)`` is finished.

        Parameters
        ----------
        stop_func : callable
            Called with the last state, None at first, and the loss; returns the new state and whether to stop.
        """
        self.add_callback(EarlyStopCallback(stop_func))

    def add_hist_callback(self, plot_per_mini: bool = False, filter_key: Iterable[str] = ("W",)) -> None:
        """Add a callback that records histograms of layer attributes.

        Parameters
        ----------
        plot_per_mini : bool
            Record once per minibatch instead of per epoch.
        filter_key : list of str
            Attributes of the layers to record.
        """
        self.callbacks.append(HistCallback(plot_per_mini=plot_per_mini, filter_key=filter_key))

    def add_deconv_callback(
        self, train_set: Any, valid_set: DataIterator, max_fm: int = 16, dataset_pct: float = 25
    ) -> None:
        """Add a callback that shows, after training, the image regions that activate feature maps.

        Parameters
        ----------
        train_set : iterator
            Accepted for compatibility.
        valid_set : iterator
            Images to search for the strongest responses.
        max_fm : int
            Number of feature maps per layer, counted from the first.
        dataset_pct : float
            Percentage of the data to search.
        """
        self.callbacks.append(DeconvCallback(train_set, valid_set, max_fm, dataset_pct))

    def add_watch_ticker_callback(self, valid: Ticker) -> None:
        """Add a callback that prints a minibatch of a Ticker after each epoch.

        Parameters
        ----------
        valid : Ticker
            Source of the minibatch.
        """
        self.callbacks.append(WatchTickerCallback(self.model, valid))

    # -- hooks ---------------------------------------------------------------------------------------------

    def on_train_begin(self, epochs: int) -> None:
        """Prepare the store for ``epochs`` epochs in total, load ``model_file``, and call the callbacks.

        Parameters
        ----------
        epochs : int
            Epochs of the training in total, those of earlier calls of ``fit`` included.
        """
        model, data = self.model, self._open()
        if model is None:
            raise ArgumentError("Callbacks: their model is gone; make them with the model that is trained, and keep it")
        if not hasattr(model, "ndata"):
            raise ArgumentError(f"Callbacks: {shown(model)} is no model in training; give the model to Callbacks")
        if getattr(model, "cost", model) is None:
            raise ArgumentError(
                f"Callbacks: {shown(model)} has no cost: they were made with another model than the one in training, "
                "or called before model.initialize(data, cost), which Model.fit does"
            )
        if self.model_file:
            model.load_params(self.model_file)
            self.model_file = None  # only once: a second call of fit continues where the first ended
            check_epochs(model, epochs)
        markers = new_dataset(data, MARKERS, (epochs,))
        progress = getattr(model, "progress", None)
        resumes = isinstance(progress, Progress) and progress.resumes(model)
        saved = progress.loaded.get("callbacks", {}) if isinstance(progress, Progress) and resumes else {}
        restore(data, {path: values for path, values in saved.get("records", {}).items() if path == MARKERS})
        done = int(markers[model.epoch_index - 1]) if 0 < model.epoch_index else 0
        markers.attrs["epochs_complete"] = model.epoch_index
        markers.attrs["minibatches_complete"] = done
        per_epoch = max(-(-model.ndata // model.be.global_bsz), getattr(model, "nbatches", 0))
        config = data.require_group("config")
        config.attrs["total_minibatches"] = max(per_epoch * epochs, done + per_epoch * (epochs - model.epoch_index))
        config.attrs["total_epochs"] = epochs
        self._choose_histograms()
        _name_apart(self.callbacks)
        self._follow_evaluation()
        for callback in self.callbacks:
            callback.on_train_begin(data, model, epochs)
        self._remember(resumes)
        if saved:
            self.set_progress(saved)
        by_first(data.flush)  # reports may be looked at from now on

    def _remember(self, resumes: bool) -> None:
        """Clear the callbacks' state from a training on other data."""
        for callback in self.callbacks:
            first = self._fresh.setdefault(callback, callback.progress())
            if not resumes:
                _set_progress(callback, first)

    def _choose_histograms(self) -> None:
        """Record the histograms of the report, unless another callback records some: they share a group."""
        if (own := self._histograms) is None:
            return
        if own in self.callbacks:
            self.callbacks.remove(own)
        if not any(isinstance(one, HistCallback) for one in self.callbacks):
            self.callbacks.append(own)

    def _run_records(self) -> list[RunCallback]:
        return [one for one in self.callbacks if isinstance(one, RunCallback)]

    def _follow_evaluation(self) -> None:
        """Let the record of the run have the results of the first evaluation of the loss."""
        loss = next((one for one in self.callbacks if isinstance(one, LossCallback)), None)
        for one in self._run_records():
            one.follow(loss)

    def _write_report(self) -> None:
        """Record the kernels of bench mode, and write the report if one is wanted."""
        if not self._is_open():
            return
        for one in self._run_records():
            one.record_kernels(self.callback_data, self.model)
        if self.report is not None:
            report = self.report
            by_first(lambda: report.write(self.callback_data))

    def _open(self) -> Records:
        """Open the store; a file closed by an earlier training is opened again."""

        def reopen() -> None:
            if not self.callback_data:
                self.callback_data = open_store(self.output_file, "r+")

        if self.output_file is not None:
            by_first(reopen)
        return self.callback_data

    def _is_open(self) -> bool:
        return isinstance(self.callback_data, MemoryStore) or bool(self.callback_data)

    def on_train_end(self) -> None:
        """Call the callbacks and close the file."""
        for callback in self.callbacks:
            callback.on_train_end(self.callback_data, self.model)
        self._finish()

    def _finish(self) -> None:
        """Write the report and close the file."""
        try:
            self._write_report()
        finally:
            if self._is_open():
                self._progress = self.progress()
            by_first(self.callback_data.close)

    def on_epoch_begin(self, epoch: int) -> None:
        """Call the callbacks that are due.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        """
        model, data = self.model, self.callback_data
        # Minibatches before an interrupt; if it came after the last one, on_minibatch_end is not called again.
        self._minibatches_in_epoch = getattr(getattr(model, "progress", None), "minibatches", 0)
        # Most callbacks do nothing in minibatches: check once per epoch, not in every minibatch.
        self._at_begin = [cb for cb in self.callbacks if _overrides(cb, "on_minibatch_begin")]
        self._at_end = [cb for cb in self.callbacks if _overrides(cb, "on_minibatch_end")]
        for callback in self.callbacks:
            if callback.should_fire(data, model, epoch, callback.epoch_freq):
                callback.on_epoch_begin(data, model, epoch)

    def on_epoch_end(self, epoch: int) -> None:
        """Count the minibatches and call the callbacks that are due.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        """
        model, data = self.model, self.callback_data
        markers = data[MARKERS]
        done = int(markers.attrs["minibatches_complete"]) + self._minibatches_in_epoch
        markers[epoch] = done
        markers.attrs["epochs_complete"] = epoch + 1
        markers.attrs["minibatches_complete"] = done
        for callback in sorted(self.callbacks, key=_reads_others):
            if callback.should_fire(data, model, epoch, callback.epoch_freq):
                callback.on_epoch_end(data, model, epoch)
        by_first(data.flush)  # keeps the file readable if this process is killed
        if self.report is not None and model.be.ranks.tell(self.report.is_due(), "report is due")[0]:
            self._write_report()

    def on_minibatch_begin(self, epoch: int, minibatch: int) -> None:
        """Call the callbacks that are due.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        minibatch : int
            Number of the minibatch in its epoch, from 0.
        """
        model, data = self.model, self.callback_data
        for callback in self._at_begin:
            if callback.should_fire(data, model, minibatch, callback.minibatch_freq):
                callback.on_minibatch_begin(data, model, epoch, minibatch)

    def on_minibatch_end(self, epoch: int, minibatch: int) -> None:
        """Call the callbacks that are due.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        minibatch : int
            Number of the minibatch in its epoch, from 0.
        """
        model, data = self.model, self.callback_data
        self._minibatches_in_epoch = minibatch + 1
        for callback in self._at_end:
            if callback.should_fire(data, model, minibatch, callback.minibatch_freq):
                callback.on_minibatch_end(data, model, epoch, minibatch)

    def on_interrupt(self) -> None:
        """Save the model after an interrupt by the user, and close the file."""
        if self.save_path:
            logger.display("Training was interrupted; the model is saved to %s", self.save_path)
            self.model.save_params(os.fspath(self.save_path))
        self._finish()

    def on_fit_exit(self) -> None:
        """Leave the model's layers as they were, however the training has ended."""
        for one in self._run_records():
            one.release()

    # -- saving --------------------------------------------------------------------------------------------

    def serialize(self) -> Description:
        """Describe the callbacks."""
        return {
            "type": self.modulenm,
            "output_file": self.output_file,
            "callbacks": [callback.get_description() for callback in self.callbacks],
        }

    def progress(self) -> Description:
        """State and records of the callbacks for a saved model, as of the training's end once the store is closed."""
        if not self._is_open():
            return self._progress
        return {
            "callbacks": [(callback.modulenm, callback.progress()) for callback in self.callbacks],
            "records": records(self.callback_data, without=NOT_SAVED),
        }

    def set_progress(self, saved: Description) -> None:
        """Restore the state returned by :meth:`progress`, for callbacks of the same classes in the same order."""
        if not isinstance(saved.get("records"), dict) or not isinstance(saved.get("callbacks"), list | tuple):
            raise ArgumentError("Callbacks.set_progress: expected what progress() returned, with records and callbacks")
        restore(self.callback_data, saved["records"])
        left = list(saved["callbacks"])
        for callback in self.callbacks:
            kind = of_this_package(callback.modulenm)
            found = next((entry for entry in left if of_this_package(entry[0]) == kind), None)
            if found is not None:
                left.remove(found)
                _set_progress(callback, found[1])

    @classmethod
    def load_callbacks(cls, cdict: Any, model: Model, data: Any = ()) -> Callbacks:
        """Rebuild callbacks from a description.

        Parameters
        ----------
        cdict : dict or path
            Result of ``serialize``, or a file with it.
        model : Model
            The model for the callbacks.
        data : list of iterators
            Data sets named in the description.
        """
        described = cdict if isinstance(cdict, dict) else load_obj(cdict)
        if not (isinstance(described, dict) and isinstance(described.get("callbacks"), list)):
            raise ArgumentError(
                f"load_callbacks: expected what Callbacks.serialize returned, a dict with a list 'callbacks', "
                f"got {shown(described)}"
            )
        made = cls(model, output_file=described.get("output_file"), progress_bar=False)
        by_name = {dataset.name: dataset for dataset in data}
        made.callbacks = []
        for entry in described["callbacks"]:
            config = {key: _find_data(value, by_name) for key, value in entry["config"].items()}
            made.add_callback(build({**entry, "config": config}))
        return made


def _name_apart(callbacks: Iterable[Callback]) -> None:
    """Give callbacks with the same record name distinct names, in order."""
    taken: Counter[str] = Counter()
    for callback in callbacks:
        if isinstance(callback, LossCallback | MetricCallback):
            names = getattr(callback, "metric_names", ("loss",))
            number = max(taken[name] for name in names) + 1
            taken.update(names)
            callback.suffix = f"_{number}" if number > 1 else ""


def _reads_others(callback: Callback) -> bool:
    return isinstance(callback, RunCallback | TensorBoardCallback)


def _set_progress(callback: Callback, saved: Any) -> None:
    try:
        if saved:
            callback.set_progress(saved)
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        logger.warning("%s begins anew: what was saved of it does not fit (%r)", callback.name, error)


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(type(callback), hook) is not getattr(Callback, hook) or hook in vars(callback)


def _find_data(value: Any, by_name: dict[str, Any]) -> Any:
    if not (isinstance(value, dict) and value.get("type") == "data"):
        return value
    if value["name"] not in by_name:
        raise ArgumentError(
            f"Callbacks.load_callbacks: needs the data set {value['name']!r}, but got {sorted(by_name)}; "
            "give it in data="
        )
    return by_name[value["name"]]


def _warn_of_unused(train_set: Any, serialize: int | None, save_path: str | None) -> None:
    """Warn about arguments of Callbacks without effect."""
    if train_set is not None:
        logger.warning("Callbacks: the argument train_set is not used; give the data to fit")
    if serialize and not save_path:
        logger.warning("Callbacks: serialize=%s saves nothing without save_path; give the file", serialize)


def _frequency_of_evaluation(eval_freq: Any, eval_set: DataIterator | None) -> Any:
    """Check that ``eval_freq`` is a number and that there is data to evaluate, and return it."""
    eval_freq = frequency("Callbacks", "eval_freq", eval_freq)
    if eval_freq and eval_set is None:
        raise ArgumentError(f"Callbacks: eval_freq={eval_freq} needs data to evaluate on; give eval_set=")
    return eval_freq


def _reference(model: Model) -> weakref.ref[Any]:
    try:
        return weakref.ref(model)
    except TypeError:
        raise DTypeError(f"Callbacks: model is a {type(model).__name__}; expected a Model") from None
