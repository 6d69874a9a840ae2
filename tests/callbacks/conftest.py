"""Data and a network for tests of callbacks."""

from __future__ import annotations

from typing import Any

import pytest

from neonlike.initializers import Constant, GlorotUniform
from neonlike.layers import Affine
from neonlike.models import Model
from neonlike.transforms import Softmax, Tanh
from tests.callbacks.training import N, signs


@pytest.fixture
def data(be: Any, rng: Any) -> Any:
    """Six minibatches, the last with three samples."""
    be.bsz = N
    return signs(rng, 5 * N + 3, "train")


@pytest.fixture
def valid(be: Any, data: Any, rng: Any) -> Any:
    """Three minibatches, the last with one sample."""
    return signs(rng, 2 * N + 1, "valid")


@pytest.fixture
def model(be: Any) -> Model:
    """A network for ``data``."""
    init = GlorotUniform()
    return Model([Affine(6, init, bias=Constant(0), activation=Tanh()), Affine(2, init, activation=Softmax())])
