"""Checks for the arguments of a model's methods, and defaults for missing ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike import layers
from neonlike.errors import ArgumentError, DTypeError, ShapeError, did_you_mean
from neonlike.layers.core.base import Layer, plain_shape
from neonlike.layers.dense.compound import CompoundLayer
from neonlike.logger import logger
from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.multi import MultiOptimizer
from neonlike.optree.dialect import is_neon

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource
    from neonlike.models.protocol import TrainedModel
    from neonlike.optimizers.base import Optimizer

DATASET_EXAMPLE = "ArrayIterator(X, y, nclass=10)"


class NoCallbacks:
    """Stand-in for missing callbacks: every hook does nothing."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_: Any) -> None:
    """Do nothing."""


def call_if_there(owner: Any, method: str, *given: Any) -> None:
    """Call a method that classes of users may leave out."""
    if hasattr(owner, method):
        getattr(owner, method)(*given)


def as_list(given: Any) -> list[Any]:
    """Return a list of layers; a single layer becomes a list of one."""
    if isinstance(given, Iterable) and not isinstance(given, np.ndarray):
        return list(given)
    return [given]


def check_no_dataset(dataset: Any) -> None:
    """Warn about the unused argument ``dataset``; raise if it is a layer."""
    if isinstance(dataset, Layer | CompoundLayer):
        raise ArgumentError("Model: give layers in a list: Model([first, second])")
    if dataset is not None:
        logger.warning("Model: the argument dataset is not used; give the data to fit or initialize")


def check_layers(model: TrainedModel) -> None:
    """Raise if a layer appears twice in a network; neon's dialect, which accepted it, warns instead."""
    seen: set[int] = set()
    for layer in model.layers.layers_fprop():
        if id(layer) in seen and not layer.is_branch_node:
            text = (
                f"{model.name}: {layer.classnm} {layer.name!r} stands twice in the network; its second call overwrites "
                "what the gradient of the first needs; make a layer for each place"
            )
            if not is_neon():
                raise ArgumentError(text)
            logger.warning(text)
        seen.add(id(layer))


def warn_of_unused_keys(model: TrainedModel, optimizer: Optimizer) -> None:
    """Warn about keys of a MultiOptimizer that match neither a layer's name nor a trained layer's class."""
    if isinstance(optimizer, GradientAccumulation):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, MultiOptimizer):
        return
    names = {name for layer in model.layers.layers_fprop() for name in (layer.name, layer.classnm)}
    classes = {name for name, one in vars(layers).items() if isinstance(one, type) and issubclass(one, Layer)}
    for key in optimizer.optimizer_mapping.keys() - names - classes - {"default"}:
        logger.warning(
            "%s: MultiOptimizer: no layer of this network has the name or class %r, so its optimizer is not used%s",
            model.name, key, did_you_mean(str(key), names),
        )  # fmt: skip


def require(value: Any, attributes: tuple[str, ...], argument: str, example: str, unlike: str | None = None) -> None:
    """Raise unless ``value`` is an object (not a class) with these attributes, and without the attribute ``unlike``.

    Parameters
    ----------
    value : object
        The argument.
    attributes : tuple of str
        Names of the attributes that it must have.
    argument, example : str
        Name of the argument, and what to give, for the message.
    unlike : str, optional
        Name of an attribute that its class must not have.
    """
    fits = not isinstance(value, type) and all(hasattr(value, name) for name in attributes)
    if not fits or (unlike is not None and hasattr(type(value), unlike)):
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise DTypeError(f"Model: {argument} is {what}; expected an object such as {example}")


def check_input_shape(model: TrainedModel, dataset: ShapeSource) -> None:
    """Raise if a dataset or shape differs from the input shape that ``model`` was set up for."""
    shape, known = model.layers.data_shape(dataset), model.layers.in_shape
    if isinstance(shape, int | tuple | list) and _sizes(plain_shape(shape)) != _sizes(known):
        raise ShapeError(
            f"{model.name}: was set up for inputs of shape {known}, but the data have {shape}; "
            "build a new model for them"
        )


def _sizes(shape: Any) -> Any:
    """Number of elements of a sample; a list of them for several inputs."""
    several = isinstance(shape, list | tuple) and not all(isinstance(size, int) for size in shape)
    return [_sizes(part) for part in shape] if several else int(np.prod(shape))
