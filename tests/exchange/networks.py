"""Small networks with every kind of parameter, filled with numbers that differ from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.exchange.places import stored
from neonlike.models import Model


def ready(layers: Any, in_shape: Any, rng: np.random.Generator) -> Model:
    """An initialized model of ``layers`` with random parameters, and variances above 0."""
    model = Model(layers)
    model.initialize(in_shape)
    for _, layer in stored(model.layers):
        params = {name: numbers(name, getattr(layer, name).shape, rng) for name in layer.parameter_names()}
        layer.set_params({"params": params})
    return model


def numbers(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random values for a parameter."""
    found: np.ndarray = rng.uniform(0.5, 1.5, shape) if name in ("gvar", "gamma") else rng.uniform(-0.6, 0.6, shape)
    return found.astype(np.float32)


def columns(x: np.ndarray) -> np.ndarray:
    """A batch ``(N, ...)`` as the columns of a buffer; sequences ``(N, features, steps)`` are laid step by step."""
    if x.ndim == 3:
        return np.ascontiguousarray(x.transpose(1, 2, 0)).reshape(x.shape[1], -1)
    return np.ascontiguousarray(x.reshape(len(x), -1).T)


def outputs(model: Model, x: np.ndarray) -> np.ndarray:
    """The model's outputs in inference for a batch ``(N, ...)``, with one row a sample and of the output's shape."""
    y = model.fprop(model.be.array(columns(x)), inference=True).get()
    shape = model.layers.out_shape
    shape = shape[0] if isinstance(shape, list) else shape  # of a trunk with branches
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if len(sizes) == 2 and sizes[1] > 1:
        return y.reshape(*sizes, len(x)).transpose(2, 0, 1)
    if len(sizes) == 2:
        sizes = sizes[:1]
    return y.T.reshape(len(x), *sizes)
