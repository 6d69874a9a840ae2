"""Data, and a network that was trained with it."""

from __future__ import annotations

from typing import Any

import pytest

from neonlike.data import ArrayIterator
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from tests.models.perceptron import N, cost, layers
from tests.support.clusters import NCLASS, samples


@pytest.fixture
def data(be: Any, rng: Any) -> ArrayIterator:
    """Six minibatches."""
    be.bsz = N
    return ArrayIterator(*samples(6 * N, rng, 3), nclass=NCLASS)


@pytest.fixture
def trained(be: Any, data: Any) -> Model:
    """A model after two epochs."""
    model = Model(layers())
    model.fit(data, cost(), GradientDescentMomentum(0.1, 0.9), 2)
    return model
