"""Saved models: conversion of a model to a dictionary of plain values and arrays, and back.

::

    neon_version, backend {type, compat_mode, rng_seed, rng_state, rand_stream}, cost {type, config},
    optimizer {type, config[, progress]},
    model {type, container, config {name, layers [{type, config[, params][, states]}, ...]}},
    epoch_index (completed epochs), train_input_shape (after set-up), progress (after training; see
    neonlike.models.progress)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError
from neonlike.models.progress import checked_progress, restore_random
from neonlike.nervanaobject import Description, build
from neonlike.optimizers.base import Optimizer
from neonlike.optimizers.states import note_keepers
from neonlike.optree import dialect
from neonlike.util.persist import load_obj, save_model
from neonlike.version import __version__

if TYPE_CHECKING:
    from neonlike.models.protocol import TrainedModel

__all__ = ["describe", "load_obj", "restore", "resume", "save_model"]


def describe(model: TrainedModel, get_weights: bool, keep_states: bool) -> Description:
    """Convert a model to a dictionary.

    Parameters
    ----------
    model : Model
        The model.
    get_weights : bool
        Whether the weights are part of it.
    keep_states : bool
        Whether the optimizer states are part of it.
    """
    be = model.be
    rng_state = be.rng_get_state()
    described: Description = {
        "neon_version": __version__,
        "backend": {
            "type": type(be).__name__,
            "compat_mode": be.compat_mode or "neon",
            "rng_seed": be.rng_seed,
            # A class of ours would make the file unreadable without this library.
            "rng_state": tuple(rng_state),
            "rand_stream": rng_state.stream,
        },
        "model": model.layers.get_description(get_weights=get_weights, keep_states=keep_states),
        "epoch_index": model.completed_epochs,
    }
    if model.cost is not None:
        described["cost"] = model.cost.get_description()
    if model.optimizer is not None:
        described["optimizer"] = optimizer = dict(model.optimizer.get_description())
        if keep_states and (progress := _progress(model.optimizer)):
            optimizer["progress"] = progress
    if model.initialized:
        described["train_input_shape"] = model.layers.in_shape
    if keep_states and get_weights and (progress := model.progress.describe(model)):
        described["progress"] = progress
        described["backend"].update(model.progress.pending_random())
    return described


def _progress(optimizer: Any) -> dict[str, Any]:
    """Progress of an optimizer; empty for user classes not derived from Optimizer."""
    return optimizer.progress() if isinstance(optimizer, Optimizer) else {}


def restore(model: TrainedModel, model_dict: Any, load_states: bool) -> None:
    """Restore a model from a dictionary, into its layers if it has any.

    Parameters
    ----------
    model : Model
        The model, with or without layers.
    model_dict : dict
        Result of :func:`describe`, or the contents of a file of neon.
    load_states : bool
        Whether optimizer states are restored, too.

    Raises
    ------
    DTypeError, ArgumentError
        If it is no saved model, or does not fit the layers.
    """
    if not isinstance(model_dict, dict):
        raise DTypeError(f"Model.deserialize: expected the dictionary of a model, got {type(model_dict).__name__}")
    model.check_backend("deserialize")
    epoch_index = _completed_epochs(model_dict)
    progress = checked_progress(model_dict.get("progress") if load_states else None)
    backend = _checked_backend(model_dict.get("backend", {}))
    if "model" in model_dict:
        _restore_layers(model, model_dict["model"], load_states)
        if backend.get("compat_mode") is not None:
            model.be.compat_mode = backend["compat_mode"]
        if dialect.is_neon():
            restore_random(model.be, backend)
    elif "layer_params_states" in model_dict and model.layers is not None:
        _restore_old_layers(model, model_dict["layer_params_states"], load_states)
    else:
        raise ArgumentError(
            f"Model.deserialize: no entry 'model' among {sorted(map(str, model_dict))}; this is not a saved model"
        )
    model.made_on = model.be
    model.layers.trained_shape = model_dict.get("train_input_shape")
    optimizer = model_dict.get("optimizer") if load_states else None
    note_keepers(model.layers.layers_fprop(), optimizer)
    model.optimizer_progress = optimizer.get("progress", {}) if isinstance(optimizer, dict) else {}
    if model.progress.is_running:  # called by a callback: restore weights and states only, the training continues
        resume(model, model.optimizer)
        return
    model.epoch_index = epoch_index
    model.progress.load(progress, backend)


def _completed_epochs(model_dict: Description) -> int:
    epochs = model_dict.get("epoch_index", 0)
    if isinstance(epochs, bool) or not isinstance(epochs, int | np.integer) or epochs < 0:
        raise ArgumentError(
            f"Model.deserialize: epoch_index={str(epochs)[:40]} is no number of epochs; the file is damaged"
        )
    return int(epochs)


def resume(model: TrainedModel, optimizer: Optimizer) -> None:
    """Restore the optimizer's progress from the file that ``model`` was loaded from; done once."""
    progress, model.optimizer_progress = model.optimizer_progress, {}
    if not progress or not isinstance(optimizer, Optimizer):
        return
    try:
        optimizer.set_progress(progress)
    except NeonlikeError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"{model.name}: the saved progress of the optimizer is damaged, or of another program ({error!r:.200}); "
            "load with load_states=False to begin anew"
        ) from error


def _checked_backend(saved: Any) -> Description:
    """Return the file's entry for the backend, or raise if it is damaged."""
    mode = saved.get("compat_mode") if isinstance(saved, dict) else ()
    if mode is not None and not (isinstance(mode, str) and mode in ("neon", "caffe")):
        raise ArgumentError(f"Model.deserialize: the entry 'backend' is damaged: {brief(saved)}")
    return saved


def _restore_layers(model: Any, saved: Description, load_states: bool) -> None:
    layers = model.layers
    try:
        if layers is None:
            layers = build(saved)
            layers.propagate_parallelism("Data")
        layers.check_weights(saved)
    except NeonlikeError:
        raise
    except Exception as error:  # anything may be missing or of another type in an edited file
        raise ArgumentError(
            f"Model.deserialize: the description of the model is damaged, or of another program ({error!r:.200})"
        ) from error
    layers.load_weights(saved, load_states)
    model.layers = layers


def _restore_old_layers(model: TrainedModel, saved: list[Any], load_states: bool) -> None:
    """Restore layers from early files without descriptions: a list of parameters and states."""
    layers = [layer for layer in model.layers.layers_fprop() if layer.has_params]
    if len(layers) != len(saved):
        raise ArgumentError(
            f"Model.deserialize: the file has parameters for {len(saved)} layers, the model has {len(layers)}"
        )
    entries = []
    for layer, entry in zip(layers, saved, strict=True):
        params = entry["params"]
        described = {"params": params if isinstance(params, dict) else {"W": params}}
        if "states" in entry:
            described["states"] = entry["states"]
        layer.check_weights(described)
        entries.append(described)
    for layer, described in zip(layers, entries, strict=True):
        layer.load_weights(described, load_states)
