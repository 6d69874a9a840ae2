"""Protocol of a model: what the functions of this package, which stand below the class, read and set."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from neonlike.exchange.protocol import ExchangedModel
from neonlike.nervanaobject import Description


class Hooks(Protocol):
    """Hooks that a training calls. :class:`~neonlike.callbacks.Callbacks` implements it for a list of callbacks.

    ``on_interrupt()`` and ``on_fit_exit()`` are called if they are there.
    """

    def on_train_begin(self, epochs: int, /) -> Any:
        """Called before a training of ``epochs`` epochs in total."""
        ...

    def on_train_end(self) -> Any:
        """Called after training."""
        ...

    def on_epoch_begin(self, epoch: int, /) -> Any:
        """Called before epoch ``epoch``, counted from 0."""
        ...

    def on_epoch_end(self, epoch: int, /) -> Any:
        """Called after epoch ``epoch``, counted from 0."""
        ...

    def on_minibatch_begin(self, epoch: int, minibatch: int, /) -> Any:
        """Called before a minibatch, counted from 0 in its epoch."""
        ...

    def on_minibatch_end(self, epoch: int, minibatch: int, /) -> Any:
        """Called after a minibatch, counted from 0 in its epoch."""
        ...


class TrainedModel(ExchangedModel, Protocol):
    """A model that is trained, evaluated or saved. :class:`~neonlike.models.Model` implements it."""

    cost: Any
    optimizer: Any
    epoch_index: int
    finished: bool
    diverged: bool
    ended_early: bool
    made_on: Any
    progress: Any
    optimizer_progress: dict[str, Any]

    @property
    def total_cost(self) -> np.ndarray:
        """Cost of the epoch, ``(1, 1)``."""
        ...

    @property
    def completed_epochs(self) -> int:
        """Number of epochs trained so far."""
        ...

    @property
    def layers_to_optimize(self) -> list[Any]:
        """Layers with parameters that are trained."""
        ...

    def require_backend(self, operation: str = "") -> Any:
        """Return the current backend, or raise BackendUnavailable."""
        ...

    def fprop(self, x: Any, /, inference: bool = False) -> Any:
        """Outputs of the network for a batch of inputs ``(features, N)``.

        Parameters
        ----------
        x : Tensor, or list of Tensor
            Inputs.
        inference : bool
            True outside of training.
        """
        ...

    def bprop(self, delta: Any, /) -> Any:
        """Gradients of all parameters, from the gradient ``(nout, N)`` by the outputs."""
        ...

    def counters(self) -> dict[str, int]:
        """Counts beside epochs and minibatches, which are saved with the model."""
        ...

    def set_counters(self, saved: dict[str, int], /) -> None:
        """Go on counting from saved :meth:`counters`."""
        ...


class SavedModel(TrainedModel, Protocol):
    """A model with methods for files and dictionaries. :class:`~neonlike.models.saved.Saved` implements them."""

    def get_description(self, get_weights: bool = False, keep_states: bool = False) -> Description:
        """Describe model, backend, cost and optimizer as a dictionary.

        Parameters
        ----------
        get_weights, keep_states : bool
            Whether weights and optimizer states are part of it.
        """
        ...

    def serialize(self, fn: Any = None, keep_states: bool = True) -> Any:
        """Return a dictionary of the model with its weights, or save it to the file ``fn``.

        Parameters
        ----------
        fn : path, optional
            File to write.
        keep_states : bool
            Whether the optimizer states are part of it.
        """
        ...

    def deserialize(self, model_dict: dict[str, Any], data: Any = None, load_states: bool = True) -> None:
        """Restore the model from a dictionary.

        Parameters
        ----------
        model_dict : dict
            Result of :meth:`serialize`.
        data : object
            Not used.
        load_states : bool
            Whether optimizer states are restored, too.
        """
        ...

    def load_params(self, param_path: Any, load_states: bool = True) -> None:
        """Load a saved model.

        Parameters
        ----------
        param_path : path
            The file.
        load_states : bool
            Whether optimizer states are loaded, too.
        """
        ...
