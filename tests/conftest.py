"""Fixtures shared by all tests. Tests that take ``be`` run on every CPU engine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from engines import ENGINES, backend

from neonlike.backends import Backend, cleanup_backend, gen_backend


@pytest.fixture
def be() -> Iterator[Backend]:
    """A fresh backend with a fixed seed and a batch size of 128, cleaned up afterwards."""
    yield gen_backend("cpu", rng_seed=0, batch_size=128)
    cleanup_backend()


@pytest.fixture
def be64() -> Iterator[Backend]:
    """As ``be``, computing in float64."""
    yield gen_backend("cpu", rng_seed=0, batch_size=128, datatype=np.float64)
    cleanup_backend()


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers for test data."""
    return np.random.default_rng(20240)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine of the CPU in turn."""
    return str(request.param)


@pytest.fixture(params=["float32", "float64", "float16"])
def any_be(engine: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend on each engine, computing in each float dtype."""
    yield from backend(engine, datatype=np.dtype(request.param).type)


@pytest.fixture
def be32(engine: str) -> Iterator[Backend]:
    """A backend on each engine, computing in float32."""
    yield from backend(engine)
