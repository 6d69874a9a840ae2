"""Fixtures of the tests of replayed assignments: a backend that has the extension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engines import backend, needs_compiler

from neonlike.backends import Backend
from neonlike.kernels import fastpath


class Asker:
    """Waits for the extension."""

    def adopt(self, module: Any) -> None:
        self.module = module


@pytest.fixture(scope="module")
def extension() -> Any:
    """The extension; compiled now if it is not in the cache."""
    needs_compiler()
    asker = Asker()
    fastpath.request(asker.adopt)
    if fastpath._state.thread is not None:
        fastpath._state.thread.join()
    return asker.module


@pytest.fixture
def fast(extension: Any) -> Iterator[Backend]:
    """A backend that has the extension."""
    for be in backend("c"):
        be.plans._adopt(extension)
        yield be


def tensors(be: Backend, *shape: int, count: int = 3, dtype: Any = np.float32, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [be.array(rng.integers(-9, 9, shape or (4, 6)) / 4, dtype=dtype) for _ in range(count)]
