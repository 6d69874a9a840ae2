"""Pooling forward and backward against PyTorch, on other shapes than those of the networks, at N = 1, 2, 7 and 16.

``--quick``: five shapes at N = 1, under a minute. ``python benchmarks/pool_shapes.py --help`` lists the options.
"""

from __future__ import annotations

import sys

from _layers import OTHER_POOLS
from _primitives import Primitives
from pool import Pooling

DIRECTIONS: dict[str, float | None] = {"fprop": 1.0, "bprop": 1.0}
QUICK = ("halves large", "thirds overlapping", "wide max 5x5", "wide avg 7x7 apart", "global avg 7x7")
SUITE = Primitives("pool_shapes", __doc__, Pooling, OTHER_POOLS, DIRECTIONS, QUICK, (1, 2, 7, 16), compute=False)

if __name__ == "__main__":
    sys.exit(SUITE.main())
