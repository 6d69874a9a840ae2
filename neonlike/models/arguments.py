"""What the methods of a model take: objects with certain methods, and what stands in where there are none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from neonlike.errors import DTypeError, ShapeError
from neonlike.layers.core.base import plain_shape

DATASET_EXAMPLE = "ArrayIterator(X, y, nclass=10)"


class NoCallbacks:
    """Used where no callbacks are given: every hook does nothing."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_: Any) -> None:
    """Do nothing."""


def as_list(layers: Any) -> list[Any]:
    """Layers as a list, of one if it is none."""
    if isinstance(layers, Iterable) and not isinstance(layers, np.ndarray):
        return list(layers)
    return [layers]


def require(value: Any, attributes: tuple[str, ...], argument: str, example: str, unlike: str | None = None) -> None:
    """Raise unless ``value`` is an object (not a class) with these attributes, and of no class with one ``unlike``."""
    fits = not isinstance(value, type) and all(hasattr(value, name) for name in attributes)
    if not fits or (unlike is not None and hasattr(type(value), unlike)):
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise DTypeError(f"Model: {argument} is {what}; expected an object such as {example}")


def check_input_shape(model: Any, dataset: Any) -> None:
    """Raise if data, or a shape, have other inputs than ``model`` was set up for."""
    shape, known = model.layers.data_shape(dataset), model.layers.in_shape
    if isinstance(shape, int | tuple | list) and _sizes(plain_shape(shape)) != _sizes(known):
        raise ShapeError(
            f"{model.name}: was set up for inputs of shape {known}, but the data have {shape}; "
            "build a new model for them"
        )


def _sizes(shape: Any) -> Any:
    """Elements of a sample; a list of them if there are several inputs."""
    several = isinstance(shape, list | tuple) and not all(isinstance(size, int) for size in shape)
    return [_sizes(part) for part in shape] if several else int(np.prod(shape))
