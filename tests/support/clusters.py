"""Small data that a network learns in a few minibatches: points around the corners of a simplex."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.data import ArrayIterator

NIN, NCLASS = 6, 3


def samples(count: int, seed: int | np.random.Generator = 0, apart: float = 2) -> tuple[Any, Any]:
    """``count`` points of NIN values in NCLASS classes, and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(NCLASS, size=count)
    return apart * np.eye(NCLASS, NIN)[labels] + rng.normal(size=(count, NIN)), labels


def clusters(count: int, seed: int = 1) -> ArrayIterator:
    """``count`` points of NIN values in NCLASS classes."""
    return ArrayIterator(*samples(count, seed), nclass=NCLASS)
