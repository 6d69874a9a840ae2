"""Pad: images with more rows and columns at either end, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers import Pad
from neonlike.models import Model
from tests.layers.layering import ready

N = 3
pytestmark = pytest.mark.engines("numpy", "c", batch_size=N)
CASES = [((1, 0), (0, 2), 0.0), ((0, 0), (0, 0), 1.5), ((-1, 2), (0, -3), -2.0), ((1, -1, 0), (-1, 0, 2), 0.5)]


def padded(x: np.ndarray, before: tuple[int, ...], after: tuple[int, ...], value: float) -> np.ndarray:
    """(C, ..., N) padded by NumPy, one axis after another."""
    for axis, (b, a) in enumerate(zip(before, after), start=1):
        x = np.take(x, range(max(-b, 0), x.shape[axis] + min(a, 0)), axis)
        widths = [(0, 0)] * x.ndim
        widths[axis] = (max(b, 0), max(a, 0))
        x = np.pad(x, widths, constant_values=value)
    return x


@pytest.mark.parametrize(("before", "after", "value"), CASES)
def test_both_passes_are_those_of_numpy(be, rng, before, after, value):
    shape = (2, *(5, 4, 3)[: len(before)])
    layer = ready(Pad(before, after, value), shape)
    x = rng.normal(size=(*shape, N)).astype(np.float32)
    wanted = padded(x, before, after, value)
    assert layer.out_shape == wanted.shape[:-1]
    for _ in range(2):  # the buffer is written as a whole each time
        layer.outputs[:] = 7
        found = layer.fprop(be.array(x.reshape(-1, N))).get()
        np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)

    error = rng.normal(size=wanted.shape).astype(np.float32)
    places = padded(np.arange(x.size).reshape(x.shape), before, after, -1)  # where each element came from
    gradient = np.zeros(x.size, np.float32)
    gradient[places[places >= 0]] = error[places >= 0]
    layer.deltas[:] = 9
    found = layer.bprop(be.array(error.reshape(-1, N))).get()
    np.testing.assert_array_equal(found.ravel(), gradient)
    layer.deltas[:] = 2
    found = layer.bprop(be.array(error.reshape(-1, N)), alpha=0.5, beta=2.0).get()
    np.testing.assert_allclose(found.ravel(), 0.5 * gradient + 4, rtol=1e-6)


def test_a_part_of_a_batch_is_padded_in_inference(be, rng):
    layer = ready(Pad((1, 0), (0, 1), 0.5), (2, 2, 2))
    x = rng.normal(size=(2, 2, 2, 1)).astype(np.float32)
    found = layer.fprop(be.array(x.reshape(-1, 1)), inference=True).get()
    np.testing.assert_array_equal(found.reshape(2, 3, 3, 1), padded(x, (1, 0), (0, 1), 0.5))


def test_a_saved_model_pads_alike(be, rng):
    model = Model([Pad((0, -1), (2, 1), 3.0)])
    model.initialize((1, 3, 3))
    x = be.array(rng.normal(size=(9, N)))
    again = Model(model.serialize())
    again.initialize((1, 3, 3))
    np.testing.assert_array_equal(again.fprop(x, inference=True).get(), model.fprop(x, inference=True).get())


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((1, 1), ArgumentError, "Pad: before must be a tuple, got 1"),
        (((1, 1), (0.5, 1)), ArgumentError, "Pad: after must be integers for"),
        (((1, 1), (1, 1, 1)), ArgumentError, "different lengths; give a size for each axis"),
        (((1, 1, 1), (1, 1, 1)), ShapeError, "expected one number for each of their axes"),
        (((-2, 0), (-1, 0)), ShapeError, "at least one element left"),
    ],
)
def test_what_cannot_be_is_refused(be, arguments, error, text):
    with pytest.raises(error, match=text):
        Pad(*arguments).configure((2, 3, 3))
