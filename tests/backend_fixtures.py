"""Backends as fixtures. With ``--backend gpu`` the same fixtures give the GPU backend.

A plugin that conftest.py loads once the options are known: which engines there are depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from engines import ENGINES, any_backend, backend

from neonlike.backends import Backend


@pytest.fixture
def be() -> Iterator[Backend]:
    """A fresh backend with a fixed seed and a batch size of 128, cleaned up afterwards."""
    yield from any_backend()


@pytest.fixture
def be64() -> Iterator[Backend]:
    """As ``be``, computing in float64."""
    yield from any_backend(datatype=np.float64)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine of the CPU in turn; the GPU with ``--backend gpu``."""
    return str(request.param)


@pytest.fixture(params=["float32", "float64", "float16"])
def any_be(engine: str, request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend on each engine, computing in each float dtype."""
    yield from backend(engine, datatype=np.dtype(request.param).type)


@pytest.fixture
def be32(engine: str) -> Iterator[Backend]:
    """A backend on each engine, computing in float32."""
    yield from backend(engine)


@pytest.fixture
def compiled() -> Iterator[Backend]:
    """A backend on compiled kernels."""
    yield from backend("c")
