"""Machines that take themselves for ones with Intel's tiles (AMX), which are emulated in C elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from neonlike.kernels.c import gemm, simd
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from tests.support.engines import needs_compiler


@pytest.fixture
def compiler() -> Compiler:
    """The compiler; where its kernels have instructions for tiles, the system has to permit them."""
    needs_compiler()
    found = find_compiler()
    assert found is not None
    if simd.has_tiles(found) and not simd.ask_for_tiles(found):
        pytest.skip("the system does not permit tiles")
    return found


@pytest.fixture
def with_tiles(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every machine takes itself for one with tiles, and tries them before their first product."""
    monkeypatch.setattr(gemm, "has_tiles", lambda compiler: True)
    monkeypatch.setattr(gemm, "ask_for_tiles", lambda compiler: True)
    gemm.tiles_are_right.cache_clear()
    yield
    gemm.tiles_are_right.cache_clear()
