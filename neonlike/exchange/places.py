"""Stable names for the parameters of a network: the place of a layer in its containers, and the parameter's name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from neonlike.exchange.differences import Differences, Shape
from neonlike.layers.container import LayerContainer
from neonlike.layers.core.parameter import StoredLayer

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

Arrays = dict[str, np.ndarray]


def leaves(network: LayerContainer, path: str = "") -> Iterator[tuple[str, Layer]]:
    """Yield the place and the object of each layer that is no container.

    ``"2.0.1"`` is the place of layer 1 of layer 0 of layer 2.
    """
    for place, layer in enumerate(network.layers):
        here = f"{path}{place}"
        if isinstance(layer, LayerContainer):
            yield from leaves(layer, f"{here}.")
        else:
            yield here, layer


def stored(network: LayerContainer) -> Iterator[tuple[str, StoredLayer]]:
    """Yield the place and the object of each layer with parameters."""
    return ((path, layer) for path, layer in leaves(network) if isinstance(layer, StoredLayer))


def arrays_of(network: LayerContainer) -> Arrays:
    """The parameters and running statistics of a network on the host, by their stable names."""
    found = {}
    for path, layer in stored(network):
        values = {name: getattr(layer, name) for name in layer.parameter_names()}
        found.update({f"{path}.{name}": value.get() for name, value in values.items() if value is not None})
    return found


def differences(network: LayerContainer, given: dict[str, Shape]) -> Differences:
    """Compare the names and shapes of a file with the parameters of a network that is set up."""
    wanted: dict[str, Shape | None] = {}
    optional = set()
    for path, layer in stored(network):
        for name in layer.loaded_names():
            value = getattr(layer, name, None)
            wanted[f"{path}.{name}"] = None if value is None else tuple(value.shape)
            if name in getattr(layer, "int8_steps", ()):  # quantized layers have them in addition
                wanted[f"{path}.{name}"] = (1, 1)
                optional.add(f"{path}.{name}")
    return Differences.between(given, wanted, frozenset(optional))


def load(network: LayerContainer, arrays: Arrays) -> None:
    """Set the parameters that ``arrays`` names, all of which fit; nothing is changed if a value cannot be used."""
    by_layer: list[tuple[StoredLayer, Arrays]] = []
    for path, layer in stored(network):
        names = [name for name in layer.loaded_names() if f"{path}.{name}" in arrays]
        if names:
            by_layer.append((layer, {name: arrays[f"{path}.{name}"] for name in names}))
    assign(by_layer)


def assign(by_layer: Sequence[tuple[StoredLayer, Arrays]]) -> None:
    """Set parameters of layers, after all have been checked."""
    described = [(layer, {"params": {name: _as(layer, name, value) for name, value in arrays.items()}})
                 for layer, arrays in by_layer]  # fmt: skip
    for layer, entry in described:
        layer.check_weights(entry)
    for layer, entry in described:
        layer.set_params(entry)


def _as(layer: StoredLayer, name: str, value: np.ndarray) -> np.ndarray:
    """The value in the dtype of the layer's parameter."""
    present = getattr(layer, name, None)
    dtype = layer.stored_dtype(name) if present is None else present.dtype
    return value if dtype is None else value.astype(dtype, copy=False)
