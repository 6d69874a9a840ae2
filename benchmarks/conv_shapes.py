"""Convolutions of many shapes against PyTorch: minibatches of 1 to 128, 1 to 1024 maps, 1-D to 3-D, groups, dilation.

``--list held-out`` measures the list that nothing was tuned with. ``--quick``: six shapes.
"""

from __future__ import annotations

import sys

from _conv_shapes import HELD_OUT, SHAPES
from _precision import PRECISIONS
from _primitives import Lists, Rates
from conv import DIRECTIONS, Convolution

QUICK = (
    "one 1 64-64 56x56 3/1", "few 7 19-45 33x21 3/1", "many 128 32-32 28x28 3/1", "groups 32 64-64 56x56 3/1 g64",
    "dilated 16 64-64 28x28 3/1 d2", "1d 16 64-64 1000 9/1",
)  # fmt: skip
SLOW = 0.8
"""Shapes on which PyTorch's time divided by ours is below this are named."""


def remarks(rates: Rates) -> list[str]:
    """Geometric means by kind of shape, and the shapes that are slow."""
    slow = [row for row in rates.rows if row.ratio is not None and row.ratio < SLOW]
    lines = [f"under {SLOW}: {row.layer.title}, {row.direction}: {row.ratio:.2f}" for row in slow]
    return [*rates.means_by(lambda row: row.layer.network, "{}"), *lines]


SUITE = Lists(
    "conv_shapes", __doc__, Convolution, SHAPES, HELD_OUT, DIRECTIONS, QUICK, remarks=remarks, precisions=PRECISIONS
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
