"""Pooling forward and backward against PyTorch, on other shapes than those of the networks, at N = 1, 2, 7 and 16.

``--quick``: five shapes at N = 1, under a minute. ``python benchmarks/pool_shapes.py --help`` lists the options.
"""

from __future__ import annotations

import sys

import _primitives
from _layers import OTHER_POOLS
from _primitives import Subject
from pool import PEERS, make_case

DIRECTIONS: dict[str, float | None] = {"fprop": 1.0, "bprop": 1.0}
QUICK = ("halves large", "thirds overlapping", "wide max 5x5", "wide avg 7x7 apart", "global avg 7x7")

SUBJECT = Subject(
    "pool_shapes", f"{__doc__}", OTHER_POOLS, make_case, PEERS, DIRECTIONS, QUICK, (1, 2, 7, 16), compute=False
)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
