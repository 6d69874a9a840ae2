"""Layers on their own and in chains, for tests: set up, fed, and their gradients checked by differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.layers import Sequential
from neonlike.layers.container import DeltasTree
from neonlike.optimizers.base import get_param_list
from tests.support.differences import slope

Array = np.ndarray[Any, Any]


def ready(layer: Any, in_shape: Any, tree: Any = None, **allocate: Any) -> Any:
    """Configure and allocate a single layer, or a chain, with an error buffer."""
    layer.configure(in_shape)
    layer.prev_layer = True  # as a layer inside a network
    if isinstance(layer, Sequential):
        layer.layers[0].prev_layer = True
    layer.allocate(**allocate)
    tree = tree or DeltasTree()
    layer.allocate_deltas(tree)
    tree.allocate_buffers()
    layer.set_deltas(tree)
    return layer


def tensor(be: Any, array: Any) -> Any:
    """``array`` in the backend's dtype."""
    return be.array(np.asarray(array, dtype=np.float64))


def shape_of(layer: Any, shape: Any) -> tuple[int, ...]:
    """The shape of a buffer for ``shape``."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return (sizes[0], sizes[1] * layer.be.bsz) if len(sizes) == 2 else (int(np.prod(sizes)), layer.be.bsz)


def gradient_pairs(net: Any) -> list[tuple[Any, Any]]:
    """(parameter, gradient) of all layers of a chain, or of one layer."""
    layers = net.layers_to_optimize if isinstance(net, Sequential) else [net] if net.has_params else []
    return [pair for pair, _ in get_param_list(layers)]


def check_gradients(net: Any, x: Array, rng: np.random.Generator, rtol: float = 1e-6, step: float = 1e-6) -> None:
    """Compare a float64 layer's or chain's gradients with central differences, each along one random direction.

    What is differentiated is the sum of the outputs, weighted at random.
    """
    be = net.be
    inputs = tensor(be, x)
    weights = rng.normal(size=net.fprop(tensor(be, x)).shape)

    def loss() -> float:
        return float((net.fprop(tensor(be, inputs.get())).get() * weights).sum())  # layers in place overwrite a copy

    loss()
    deltas = net.bprop(tensor(be, weights)).get().copy()
    for parameter, gradient in [(inputs, deltas)] + [(p, g.get().copy()) for p, g in gradient_pairs(net)]:
        direction = rng.normal(size=parameter.shape)
        found = slope(loss, parameter, direction, step)
        np.testing.assert_allclose((gradient * direction).sum(), found, rtol=rtol, atol=rtol * np.abs(gradient).max())
