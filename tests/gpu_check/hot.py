"""Runs five kernels on large tensors, three times each, for a profiler to look at: ``ncu python hot.py``."""

from __future__ import annotations

import sys

import numpy as np

from neonlike.backends import gen_backend

SIDE = 4096
"""Of the tensors: 64 MiB each."""


def main() -> None:
    """Run them."""
    side = int(sys.argv[1]) if len(sys.argv) > 1 else SIDE
    be = gen_backend("gpu", rng_seed=0)
    a, b, out, small = be.empty((side, side)), be.empty((side, side)), be.empty((side, side)), be.empty((side, 1))
    for tensor in (a, b):
        tensor[:] = be.rand()
    layer = be.conv_layer(np.float16, 64, 64, 64, H=28, W=28, R=3, S=3, pad_h=1, pad_w=1)
    x, f, y = (be.empty(dims, dtype=np.float16) for dims in (layer.dimI, layer.dimF, layer.dimO))
    x[:], f[:] = be.rand(), be.rand()
    be.conv_method = "implicit"
    for _ in range(3):
        out[:] = be.sig(a * b + 0.5)
        out[:] = be.fprop_softmax(a, 1)
        out[:] = be.fprop_softmax(a, 0)
        small[:] = be.sum(a * b, axis=1)
        be.fprop_conv(layer, x, f, y)
    out.get()


if __name__ == "__main__":
    main()
