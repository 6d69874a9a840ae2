"""Pooling reads nothing past its operands: in a process of its own, with memory behind them that must not be read."""

from __future__ import annotations

import sys

import pytest

from tests.support.at_the_end import lines_of

PROGRAM = '''
import numpy as np
from neonlike.backends import gen_backend
from tests.support.at_the_end import at_the_end

shapes = (
    (5, 7, 3, 3, 1, 2), (9, 33, 2, 2, 0, 2), (6, 20, 3, 3, 1, 1), (8, 8, 8, 8, 0, 1), (7, 23, 5, 5, 2, 2),
    (31, 31, 3, 3, 0, 3), (11, 13, 3, 3, 1, 2),
)
for H, W, R, S, pad, stride in shapes:
    for op in ("max", "avg"):
        for N in (1, 2, 7, 16):
            be = gen_backend("cpu", batch_size=N)
            layer = be.pool_layer(np.float32, op, N, 3, 1, H, W, 1, 1, R, S, 0, 0, pad, pad, 1, 1, stride, stride)
            image, pooled = at_the_end(be, (3 * H * W, N)), at_the_end(be, (layer.dimO2[0], N))
            argmax = at_the_end(be, (layer.dimO2[0], N), "uint8") if op == "max" else None
            image[:] = np.random.default_rng(0).standard_normal(image.shape)
            be.fprop_pool(layer, image, pooled, argmax)
            error, delta = at_the_end(be, pooled.shape), at_the_end(be, image.shape)
            error[:] = 1.0
            be.bprop_pool(layer, error, delta, argmax)
            print(op, N, H, be.sum(delta).item())
'''


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how memory is protected")
def test_nothing_past_the_end_is_read() -> None:
    assert len(lines_of(PROGRAM)) == 7 * 2 * 4
