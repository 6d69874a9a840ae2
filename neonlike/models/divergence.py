"""Detection of a non-finite training cost: reports its first occurrence and optionally ends the training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.tensor import Tensor
from neonlike.logger import logger

if TYPE_CHECKING:
    from neonlike.models.protocol import Hooks, TrainedModel

__all__ = ["met"]


def met(model: TrainedModel, epoch: int, minibatch: int, inputs: Any, callbacks: Hooks) -> bool:
    """Report the first nan or infinite cost of a training; return whether the training ends now.

    With ``Callbacks(stop_on_nan=True)`` it ends before the end of the epoch, so that files saved by callbacks still
    hold the last epoch with finite costs.

    Parameters
    ----------
    model : Model
        The model, after the step of the minibatch.
    epoch, minibatch : int
        The first minibatch with a non-finite cost.
    inputs : Tensor or nested lists
        Inputs of the minibatch.
    callbacks : Callbacks
        Callbacks of the training, which may ask for its end.
    """
    if model.diverged:
        return False
    model.diverged = True
    stops = bool(getattr(callbacks, "stop_on_nan", False))
    logger.warning(
        "%s: the cost is %s in minibatch %d of epoch %d; %s. Look at the learning rate (a smaller one, or "
        "gradient_clip_norm), at data and targets, and at the initial weights. %s",
        model.name,
        "nan" if np.isnan(np.asarray(model.total_cost)).any() else "infinite",
        minibatch,
        epoch,
        _where(model, inputs),
        "The training ends" if stops else "The training goes on; Callbacks(stop_on_nan=True) would end it",
    )
    model.finished = model.finished or stops
    return stops


def _where(model: TrainedModel, inputs: Any) -> str:
    """Name the first non-finite outputs of the forward pass, for the message."""
    if not all(map(_is_finite, _tensors(inputs))):
        return "the inputs of the network are not all finite"
    for layer in model.layers.layers_fprop():
        if not all(map(_is_finite, _tensors(getattr(layer, "outputs", None)))):
            return f"the first layer whose outputs are not all finite is {layer.name} ({type(layer).__name__})"
    return "the outputs of all layers are finite, so it is the cost of these outputs and targets"


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested lists."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Tensor):
        yield value


def _is_finite(tensor: Tensor) -> bool:
    return bool(np.isfinite(tensor.get().astype(np.float64)).all())
