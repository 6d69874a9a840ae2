"""Matrix products of twenty shapes against ``torch.addmm``: square, deep, wide, odd, and those of layers, three passes.

``--list held-out`` measures the list that nothing was tuned with, ``--list all`` both. ``--quick``: six shapes.
"""

from __future__ import annotations

import sys

from _precision import PRECISIONS
from _primitives import Lists
from _product_shapes import HELD_OUT, SHAPES
from gemm import DIRECTIONS, PEERS, Multiplication

QUICK = (
    "square 512x512x512", "layer 1024x784x128", "layer 4096x4096x32", "deep 256x8192x192", "odd 333x777x555",
    "square 384x384x384",
)  # fmt: skip
SUITE = Lists(
    "gemm_shapes", __doc__, Multiplication, SHAPES, HELD_OUT, DIRECTIONS, QUICK, peers=PEERS, precisions=PRECISIONS,
    remarks=lambda rates: rates.means_by(lambda row: row.layer.network, "{}"),
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(SUITE.main())
