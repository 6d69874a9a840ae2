"""A small network in training, for tests of callbacks; conftest.py has its data as fixtures."""

from __future__ import annotations

from typing import Any

from neonlike.data import ArrayIterator
from neonlike.layers import GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti

N = 8


def signs(rng: Any, count: int, name: str) -> ArrayIterator:
    """Points of four numbers in two classes, by the sign of the first number."""
    x = rng.normal(size=(count, 4))
    return ArrayIterator(x, (x[:, 0] > 0).astype(int), nclass=2, name=name)


def fit(model: Model, data: Any, callbacks: Any, epochs: int = 4) -> None:
    """Train ``model`` up to that number of epochs."""
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9), epochs, callbacks)
