"""Layers that return one of their own buffers as the error: outputs, inputs, or the previous backward pass's result."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends import Backend
from tests.support.lone_layers import MAKERS, OTHER_SHAPES, Alone

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(4)]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("own", ["outputs", "inputs", "deltas"])
@pytest.mark.parametrize("scaled", [{}, {"alpha": 0.5, "beta": 2.0}], ids=["", "blended"])
def test_an_error_in_a_buffer_of_the_layer(be: Backend, name: str, own: str, scaled: dict[str, float]) -> None:
    net, reference = Alone(be, name), Alone(be, name)
    if (own == "outputs" and not net.owned) or (own == "deltas" and not net.layer.owns_delta):
        return  # the same buffer in any network
    if scaled and not net.owned:
        return  # in place there is nothing to blend with
    for _ in range(3):  # the second and third time, what was kept of the first is there
        y, expected_y = net.forward(), reference.forward()
        np.testing.assert_array_equal(y.get(), expected_y.get())
        error = {"outputs": y, "inputs": net.x, "deltas": net.layer.deltas}[own]
        if error.shape != y.shape:
            assert own != "outputs" and name in OTHER_SHAPES
            return
        expected = reference.found(be.array(error.get()), **scaled)
        for ours, its in zip(net.found(error, **scaled), expected, strict=True):
            np.testing.assert_allclose(ours, its, rtol=1e-5, atol=1e-5)
        net.x[:] = reference.x
