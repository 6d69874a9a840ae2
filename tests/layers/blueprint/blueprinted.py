"""Layers that blueprints built, for tests: filled, run, and their gradients checked by differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.differences import slope

Array = np.ndarray[Any, Any]


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def filled(layer: Any, seed: int = 0, scale: float = 1.0) -> Any:
    """The layer with random parameters, inputs and gradients of its outputs."""
    rng = np.random.default_rng(seed)

    def fill(tensor: Any) -> None:
        tensor.set(scale * rng.normal(size=tensor.shape))

    layer.init(fill, fill)
    gradients = as_tuple(layer.diff_output) if layer.train else ()
    for tensor in (*as_tuple(layer.input), *gradients):
        fill(tensor)
    return layer


def run(layer: Any) -> Any:
    """A training step without an update; the layer's gradients are there then, whatever was there before."""
    layer.forward()
    for gradient in as_tuple(layer.diff_input):
        gradient.fill(np.nan)
    layer.backward()
    return layer


def check_gradients(layer: Any, rtol: float = 1e-6, step: float = 1e-6) -> None:
    """Compare the gradients of a float64 layer with central differences, each along one random direction.

    What is differentiated is the sum of the outputs times ``diff_output``.
    """
    rng = np.random.default_rng(7)
    outputs, errors = as_tuple(layer.output), [one.get().copy() for one in as_tuple(layer.diff_output)]

    def loss() -> float:
        layer.forward()
        return float(sum((y.get() * e).sum() for y, e in zip(outputs, errors)))

    layer.forward()
    layer.backward()
    parameters = [pair for one in layer.trainable for pair, _ in one.get_params()]
    pairs = [*zip(as_tuple(layer.input), as_tuple(layer.diff_input)), *parameters]
    found = [(tensor, gradient.get().copy()) for tensor, gradient in pairs]
    assert found
    for tensor, gradient in found:
        direction = rng.normal(size=tensor.shape)
        wanted = slope(loss, tensor, direction, step)
        np.testing.assert_allclose((gradient * direction).sum(), wanted, rtol, atol=rtol * np.abs(gradient).max())
