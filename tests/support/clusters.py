"""Small data that a network learns in a few minibatches: points around the corners of a simplex."""

from __future__ import annotations

import numpy as np

from neonlike.data import ArrayIterator

NIN, NCLASS = 6, 3


def clusters(count: int, seed: int = 1) -> ArrayIterator:
    """``count`` points of NIN values in NCLASS classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(NCLASS, size=count)
    return ArrayIterator(2 * np.eye(NCLASS, NIN)[labels] + rng.normal(size=(count, NIN)), labels, nclass=NCLASS)
