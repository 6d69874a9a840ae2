"""Position of a training; with weights, optimizer and random state it makes a resumed training bit-identical.

A saved model stores it in the entry ``progress``::

    ndata, batch_size     of the training data, of all ranks together, and
    data_id               a checksum of some of it: with other data a new training starts, and the rest is void
    data                  position of the data iterator at the start of the current epoch
    minibatches           number of minibatches done in this epoch, and
    total_cost            the sum of their costs
    callbacks             state and records of the callbacks
    counters              other counters of the model
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.expressions.random import make_state
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError
from neonlike.logger import logger

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend
    from neonlike.data.protocol import DataIterator
    from neonlike.models.protocol import Hooks, TrainedModel


class Progress:
    """Position of a model's training.

    Attributes
    ----------
    minibatches : int
        Minibatches done in the current epoch; 0 between epochs.
    loaded : dict
        The entry of a file, until a training resumes from it.
    random : dict
        Random streams saved in a file, restored when that training is resumed.
    """

    def __init__(self) -> None:
        self.minibatches = 0
        self.loaded: dict[str, Any] = {}
        self.random: dict[str, Any] = {}
        self._last: dict[str, Any] = {}
        self._coming: Any = None
        self._dataset: Any = None
        self._callbacks: Any = None
        self._epoch_began: dict[str, Any] = {}

    @property
    def is_running(self) -> bool:
        """Whether a training is running."""
        return self._dataset is not None

    def load(self, saved: dict[str, Any], random: dict[str, Any]) -> None:
        """Load the entry of a file (:func:`checked_progress`) and forget any other training of the model."""
        coming = self._coming
        self.__init__()  # type: ignore[misc]
        self.loaded, self.random, self._coming = saved, random, coming

    def expect(self, dataset: DataIterator) -> None:
        """Note the data of the training that is about to start."""
        self._coming = dataset

    def resumes(self, model: TrainedModel) -> bool:
        """Whether the next training continues the last one, of this process or of a file."""
        saved = self.loaded or self._last
        return bool(saved) and self._coming is not None and _same_data(saved, model, self._coming)

    def pending_random(self) -> dict[str, Any]:
        """Random streams of a loaded training that was not resumed yet; empty if there is none."""
        if not self.loaded or self.random.get("rng_state") is None:
            return {}
        return {name: self.random.get(name) for name in ("rng_state", "rand_stream")}

    def begin(self, model: TrainedModel, dataset: Any, callbacks: Hooks) -> None:
        """Start a training: set the data iterator to its saved position, if it has the same data.

        Parameters
        ----------
        model : Model
            The model.
        dataset : iterator
            Data of the training.
        callbacks : Callbacks
            Callbacks of the training.
        """
        saved, self.loaded = self.loaded or self._last, {}
        random, self.random = self.random, {}
        self._dataset, self._callbacks = dataset, callbacks
        same = bool(saved) and _same_data(saved, model, dataset)
        if same:
            restore_random(model.be, random)
        goes_on = same and saved.get("epoch") == model.epoch_index
        self.minibatches = saved["minibatches"] if goes_on else 0
        if same and (saved is not self._last or self.minibatches) and hasattr(type(dataset), "set_progress"):
            dataset.set_progress(saved.get("data", {}))
        self._epoch_began = _of(dataset)
        if same and saved is not self._last:
            model.set_counters(saved.get("counters", {}))
        if self.minibatches:
            model.total_cost[:] = saved["total_cost"]
            logger.info("%s goes on after minibatch %d of epoch %d", model.name, self.minibatches, model.epoch_index)

    def batches(self, model: TrainedModel) -> Iterator[Any]:
        """Yield the epoch's remaining batches: all of them, unless a training was interrupted within it."""
        self._epoch_began = _of(self._dataset)
        batches = iter(self._dataset)
        if self.minibatches:
            state = model.be.rng_get_state()
            for _ in range(self.minibatches):
                next(batches, None)
            model.be.rng_set_state(state)  # the saved state is the one after these batches
        return batches

    def end(self, model: TrainedModel) -> None:
        """End or interrupt the training."""
        self._last = self.describe(model)
        self._dataset = self._callbacks = self._coming = None

    def describe(self, model: TrainedModel) -> dict[str, Any]:
        """The entry ``progress`` of a saved model; empty if it was never trained."""
        if self._dataset is None:
            return self.loaded or self._last
        return {
            "epoch": model.completed_epochs,
            "ndata": int(self._dataset.ndata),
            "batch_size": model.be.global_bsz,
            "data_id": data_id(self._dataset),
            "data": self._epoch_began if self.minibatches else _of(self._dataset),
            "minibatches": self.minibatches,
            "total_cost": float(np.asarray(model.total_cost)[0, 0]),
            "callbacks": _of(self._callbacks),
            "counters": model.counters(),
        }


def restore_random(be: Backend, saved: dict[str, Any]) -> None:
    """Restore both random streams from a file."""
    if (state := saved.get("rng_state")) is None:
        return
    try:
        if saved.get("rand_stream") is not None:
            state = make_state(state, saved["rand_stream"])
        be.rng_set_state(state)
    except Exception as error:  # another backend may store any format; the rest of the model is still good
        logger.warning("Model: the saved random state does not fit this backend and is ignored (%s)", error)


def checked_progress(saved: Any) -> dict[str, Any]:
    """Return ``saved`` if it is a valid entry ``progress``, or an empty one if there is none.

    Raises
    ------
    ArgumentError
        If it is damaged.
    """
    if saved is None or saved == {}:
        return {}
    kinds = {"epoch": int, "ndata": int, "batch_size": int, "minibatches": int, "total_cost": float, "data": dict,
             "callbacks": dict}  # fmt: skip
    fits = isinstance(saved, dict) and all(isinstance(saved.get(name), kind) for name, kind in kinds.items())
    if fits and (callbacks := saved["callbacks"]):
        entries, recorded = callbacks.get("callbacks"), callbacks.get("records")
        fits = isinstance(entries, list) and isinstance(recorded, dict)
        fits = fits and all(isinstance(entry, tuple | list) and len(entry) == 2 for entry in entries)
        fits = fits and all(isinstance(name, str) for name, _ in entries)
        fits = fits and all(isinstance(v, np.ndarray) and v.dtype.kind in "biufV" for v in recorded.values())
    fits = fits and isinstance(saved.get("data_id", 0), int)
    if fits:
        counters = saved.get("counters", {})
        fits = isinstance(counters, dict) and all(isinstance(count, int) for count in counters.values())
    if not fits or saved["minibatches"] < 0:
        raise ArgumentError("Model.deserialize: the entry 'progress' is damaged; leave it out to load the rest")
    return saved  # type: ignore[no-any-return]


def data_id(dataset: Any) -> int:
    """A checksum of some of an iterator's data; 0 if the iterator does not provide one."""
    return int(dataset.data_id()) if hasattr(type(dataset), "data_id") else 0


def _same_data(saved: dict[str, Any], model: TrainedModel, dataset: DataIterator) -> bool:
    """Whether a saved training used ``dataset``."""
    if (saved.get("ndata"), saved.get("batch_size")) != (dataset.ndata, model.be.global_bsz):
        return False
    before, now = saved.get("data_id", 0), data_id(dataset)
    return before == now or not before or not now


def _of(thing: Any) -> dict[str, Any]:
    """Progress of a data iterator or of callbacks; empty for user classes without it."""
    return thing.progress() if hasattr(type(thing), "progress") else {}


def check_epochs(model: TrainedModel, num_epochs: Any, is_read: bool = False) -> None:
    """Raise unless ``num_epochs`` is a number of epochs, and not less than the epochs already done.

    That number is not known yet if the model ``is_read`` from a file before the training.

    Parameters
    ----------
    model : Model
        The model.
    num_epochs : int
        Epochs in total, as ``fit`` is given them.
    is_read : bool
        Whether callbacks will read the model from a file.

    Raises
    ------
    DTypeError, ArgumentError
        If it is no such number.
    """
    if isinstance(num_epochs, bool) or not isinstance(num_epochs, int | np.integer):
        raise DTypeError(f"{model.name}.fit: num_epochs={brief(num_epochs)} is not the number of epochs, an integer")
    if num_epochs < 0:
        raise ArgumentError(f"{model.name}.fit: num_epochs={num_epochs}; give the number of epochs to train, 0 or more")
    if num_epochs < model.epoch_index and not is_read:
        raise ArgumentError(
            f"{model.name}.fit: num_epochs={num_epochs}, but {model.epoch_index} epochs are done and count; give "
            f"{model.epoch_index} plus the number of epochs to train, or set model.epoch_index = 0 to count anew"
        )


def warn_if_done(model: TrainedModel, num_epochs: int) -> None:
    """Explain in the log why a training of ``num_epochs`` epochs in total has nothing to do."""
    if model.finished:
        logger.warning("%s.fit: an earlier training was stopped; set model.finished = False to go on", model.name)
    elif 0 < model.epoch_index >= num_epochs:
        logger.warning(
            "%s.fit: %d epochs are done, and num_epochs=%d counts them; give more to go on",
            model.name, model.epoch_index, num_epochs,
        )  # fmt: skip
