"""Products of quantized weights read nothing past their operands, though ends of rows are whole vectors."""

from __future__ import annotations

import sys

import pytest

from tests.support.at_the_end import lines_of

PROGRAM = """
import itertools
import numpy as np
from neonlike.backends import gen_backend
from tests.support.at_the_end import at_the_end

be, rng = gen_backend("cpu"), np.random.default_rng(0)

def ran(weights, x, out):
    bias = at_the_end(be, (weights.rows, 1))
    x[:] = rng.standard_normal(x.shape)
    be.int8_product(weights, x, out, bias=bias)
    print(be.sum(out).item())

for m, k, n in itertools.product((1, 11, 13, 28), (1, 3, 5, 17, 66), (1, 2, 5, 9, 15, 16, 17, 33)):
    weights = be.int8_weights(be.array(rng.standard_normal((m, k))), 0.05)
    ran(weights, at_the_end(be, (k, n)), at_the_end(be, (m, n)))
for C, N, W, S, pad, stride, apart in itertools.product((3, 5), (1, 3, 20), (6, 40), (1, 3), (0, 2), (1, 2), (1, 2)):
    layer = be.conv_layer(np.float32, N, C, 7, 1, 5, W, 1, 3, S, 0, 1, pad, 1, 2, stride, 1, 1, apart)
    weights = be.int8_weights(be.array(rng.standard_normal(layer.dimF2)), 0.05, layer)
    ran(weights, at_the_end(be, layer.dimI2), at_the_end(be, layer.dimO2))
"""


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how memory is protected")
def test_nothing_past_the_end_is_read() -> None:
    assert len(lines_of(PROGRAM)) == 4 * 5 * 8 + 2 * 3 * 2**5
