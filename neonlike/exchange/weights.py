"""Weights of a model in files of the safetensors format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from neonlike.distributed.first import by_first
from neonlike.errors import ArgumentError, ShapeError
from neonlike.exchange import tensorfile
from neonlike.exchange.differences import Differences
from neonlike.exchange.places import arrays_of, differences, load
from neonlike.layers.core.base import plain_shape
from neonlike.version import __version__

if TYPE_CHECKING:
    from neonlike.exchange.protocol import ExchangedModel

LIBRARY, INPUT_SHAPE = "neonlike", "input_shape"
"""Keys of a file's texts: the version of this library, and the shape of a sample as JSON."""


def save(model: ExchangedModel, path: Any) -> None:
    """See :meth:`Model.save_safetensors`."""
    require_set_up(model, "save_safetensors")
    metadata = {LIBRARY: __version__, INPUT_SHAPE: json.dumps(model.layers.in_shape)}
    by_first(lambda: tensorfile.write(path, arrays_of(model.layers), metadata))


def restore(model: ExchangedModel, path: Any, strict: bool) -> Differences:
    """See :meth:`Model.load_safetensors`."""
    model.check_backend("load_safetensors")
    arrays, metadata = tensorfile.read(path, "load_safetensors")
    shapes = {name: array.shape for name, array in arrays.items()}
    done = "Nothing was loaded"
    if not model.initialized:
        if strict:
            _require_none(differences(model.layers, shapes), path, done)  # of names: there are no shapes before
        _set_up(model, path, metadata.get(INPUT_SHAPE))
        done = f"Nothing was loaded, but the model is initialized now, for the shape {model.layers.in_shape}"
    found = differences(model.layers, shapes)
    if strict:
        _require_none(found, path, done)
    unfit = {*found.unexpected, *(name for name, _, _ in found.misshapen)}
    load(model.layers, {name: array for name, array in arrays.items() if name not in unfit})
    return found


def _require_none(found: Differences, path: Any, done: str) -> None:
    """Raise ShapeError if there are differences."""
    if found.are_there:
        raise ShapeError(
            f"load_safetensors: {path} is of another network: {found.words()}. {done}; strict=False loads the "
            "parameters that fit"
        )


def require_set_up(model: ExchangedModel, operation: str) -> None:
    """Raise ArgumentError unless the model has parameters."""
    model.check_backend(operation)
    if not model.initialized:
        raise ArgumentError(
            f"{model.name}.{operation}: the model has no weights yet; call model.initialize(data) or "
            "model.initialize(shape) before"
        )


def _set_up(model: ExchangedModel, path: Any, told: str | None) -> None:
    """Initialize a model for the input shape that a file names."""
    try:
        shape = json.loads(told or "")
    except ValueError:
        raise ArgumentError(
            f"{model.name}.load_safetensors: the model is not initialized, and {path} does not name an input shape; "
            "call model.initialize(shape) before"
        ) from None
    model.initialize(_tuples(shape))


def _tuples(shape: Any) -> Any:
    """A shape read from JSON: tuples of numbers in place of lists, lists of several shapes as they are."""
    if not isinstance(shape, list):
        return plain_shape(shape)
    parts = [_tuples(part) if isinstance(part, list) else part for part in shape]
    return tuple(parts) if all(isinstance(part, int) for part in parts) else parts
