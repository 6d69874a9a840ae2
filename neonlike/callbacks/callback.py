"""The protocol of a callback."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.checks import shown
from neonlike.data.dataiterator import NervanaDataIterator
from neonlike.errors import ArgumentTypeError
from neonlike.nervanaobject import Description, NervanaObject
from neonlike.optree import dialect

if TYPE_CHECKING:
    from neonlike.callbacks.protocol import Record, Records
    from neonlike.models.model import Model

__public_module__ = "neonlike.callbacks.callbacks"

Frequency = int | Container[int] | None


def frequency(operation: str, name: str, value: Any) -> Any:
    """Return ``value``, which must not be a bool; neon's dialect converts a bool to 1 or 0.

    Parameters
    ----------
    operation, name : str
        The class and argument, for the message.
    value : object
        The argument.

    Raises
    ------
    ArgumentTypeError
        If it is a bool, in the default dialect.
    """
    if not isinstance(value, bool | np.bool_):
        return value
    if not dialect.is_neon():
        raise ArgumentTypeError(
            f"{operation}: {name} must be an integer, got {shown(bool(value))}; give 1 for each time, None for never"
        )
    return int(value)  # converted, because files would return NumPy bools


def fires(time: int, freq: Frequency) -> bool:
    """Whether a hook with this frequency is called at ``time``, an epoch or minibatch counted from 0."""
    if freq is None:
        return False
    if isinstance(freq, int | np.integer):
        return bool(freq and (time + 1) % freq == 0)
    return time in freq


def recorded_at(dataset: Record, epoch: int) -> int | None:
    """Index of the value for ``epoch`` in a dataset with the attribute ``epoch_freq``; None without a value."""
    freq = dataset.attrs.get("epoch_freq", 1)
    if not fires(epoch, freq):
        return None
    if isinstance(freq, int | np.integer):
        return epoch // abs(int(freq))
    return sum(earlier in freq for earlier in range(epoch))


class Callback(NervanaObject):
    """Base of callbacks: hooks called during training.

    Parameters
    ----------
    epoch_freq, minibatch_freq : int, list (or other container) of int, or None
        Interval between epochs (minibatches) at which hooks are called, or a list of them; None: never.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.callbacks.callbacks import Callback
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Epochs(Callback):
    ...     def on_epoch_end(self, callback_data, model, epoch):
    ...         print("epoch", epoch)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> callbacks.add_callback(Epochs(epoch_freq=1))
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.25, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=2, callbacks=callbacks)
    epoch 0
    epoch 1
    """

    epoch_freq: Frequency = 1  # default for user classes that skip the constructor
    minibatch_freq: Frequency = 1
    costnm: str | None = None

    def __init__(self, epoch_freq: Frequency = 1, minibatch_freq: Frequency = 1) -> None:
        super().__init__()
        epoch_freq = frequency(self.classnm, "epoch_freq", epoch_freq)
        minibatch_freq = frequency(self.classnm, "minibatch_freq", minibatch_freq)
        for name, freq in (("epoch_freq", epoch_freq), ("minibatch_freq", minibatch_freq)):
            several = hasattr(freq, "__contains__") and not isinstance(freq, str)
            if not (several or freq is None or isinstance(freq, int | np.integer)):
                raise ArgumentTypeError(
                    f"{self.classnm}: {name} must be an integer, a list of integers or None, got {shown(freq)}"
                )
        self.epoch_freq = epoch_freq
        self.minibatch_freq = minibatch_freq
        self.costnm = None

    def on_train_begin(self, callback_data: Records, model: Model, epochs: int) -> None:
        """Called before a training of ``epochs`` epochs in total; creates datasets.

        Parameters
        ----------
        callback_data : h5py.File or MemoryStore
            The records of the training.
        model : Model
            The model in training.
        epochs : int
            Epochs of the training in total, those of earlier calls of ``fit`` included.
        """

    def on_train_end(self, callback_data: Records, model: Model) -> None:
        """Called after training.

        Parameters
        ----------
        callback_data : h5py.File or MemoryStore
            The records of the training.
        model : Model
            The model in training.
        """

    def on_epoch_begin(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Called before an epoch.

        Parameters
        ----------
        callback_data : h5py.File or MemoryStore
            The records of the training.
        model : Model
            The model in training.
        epoch : int
            Number of the epoch, from 0.
        """

    def on_epoch_end(self, callback_data: Records, model: Model, epoch: int) -> None:
        """Called after an epoch.

        Parameters
        ----------
        callback_data : h5py.File or MemoryStore
            The records of the training.
        model : Model
            The model in training.
        epoch : int
            Number of the epoch, from 0.
        """

    def on_minibatch_begin(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Called before a minibatch.

        Parameters
        ----------
        callback_data : h5py.File or MemoryStore
            The records of the training.
        model : Model
            The model in training.
        epoch : int
            Number of the epoch, from 0.
        minibatch : int
            Number of the minibatch in its epoch, from 0.
        """

    def on_minibatch_end(self, callback_data: Records, model: Model, epoch: int, minibatch: int) -> None:
        """Called after a minibatch.

        Parameters
        ----------
        callback_data : h5py.File or MemoryStore
            The records of the training.
        model : Model
            The model in training.
        epoch : int
            Number of the epoch, from 0.
        minibatch : int
            Number of the minibatch in its epoch, from 0.
        """

    def should_fire(
        self, callback_data: Records | None, model: Model | None, time: int, freq: Frequency
    ) -> bool:
        """Whether a hook is called at ``time``, an epoch or minibatch counted from 0.

        Parameters
        ----------
        callback_data : h5py.File or MemoryStore
            The records of the training.
        model : Model
            The model in training.
        time : int
            Number of the epoch, or of the minibatch in its epoch, from 0.
        freq : int, list of int or None
            The callback's frequency.
        """
        return fires(time, freq)

    def progress(self) -> dict[str, Any]:
        """Training state of the callback, saved with the model for a resumed training."""
        return {}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Restore the state returned by :meth:`progress`; called after ``on_train_begin``.

        Parameters
        ----------
        saved : dict
            Result of :meth:`progress`.
        """

    def get_description(self, skip: Any = (), **kwargs: Any) -> Description:
        """Describe the callback; a data iterator is described by its name only."""
        described = super().get_description(skip=skip, **kwargs)
        for argument in described["config"]:
            value = getattr(self, argument)
            if isinstance(value, NervanaDataIterator):
                described["config"][argument] = {"type": "data", "name": value.name}
        return described

    def firings(self, epochs: int) -> list[int]:
        """The epochs, of ``epochs`` in total, at which the epoch hooks are called.

        Parameters
        ----------
        epochs : int
            Epochs of the training in total, those of earlier calls of ``fit`` included.
        """
        freq = self.epoch_freq
        if isinstance(freq, int | np.integer) and freq and type(self).should_fire is Callback.should_fire:
            return list(range(abs(int(freq)) - 1, epochs, abs(int(freq))))
        return [epoch for epoch in range(epochs) if self.should_fire(None, None, epoch, self.epoch_freq)]
