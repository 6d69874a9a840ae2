"""Backends that run on a chosen engine of the CPU.

Tests of meaning run on the NumPy engine, where thousands of expressions cost nothing to compile; what the C engine
makes of the same ops is tested with few, large kernels.

With ``pytest --backend gpu``, which sets NEONLIKE_TEST_BACKEND, every backend of these functions is the GPU's: whole
test files run on it unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.kernels.toolchain import find_compiler

ON_GPU = os.environ.get("NEONLIKE_TEST_BACKEND") == "gpu"
ENGINES = ("gpu",) if ON_GPU else ("numpy", "c")


def any_backend(**options: Any) -> Iterator[Backend]:
    """Yield a backend: the CPU's on the engine there is, or the GPU's."""
    if ON_GPU:
        needs_gpu()
    yield gen_backend("gpu" if ON_GPU else "cpu", rng_seed=0, batch_size=128, **options)
    cleanup_backend()


def backend(engine: str, **options: Any) -> Iterator[Backend]:
    """Yield one backend on ``engine``, to be used by a fixture or a loop; skips where there is no C compiler."""
    if ON_GPU:
        yield from any_backend(**options)
        return
    before = os.environ.get("NEONLIKE_CPU_JIT")
    os.environ["NEONLIKE_CPU_JIT"] = "1" if engine == "c" else "0"
    try:
        if engine == "c":
            needs_compiler()
        made = gen_backend("cpu", rng_seed=0, batch_size=128, **options)
        assert made.engine.name == engine
        yield made
        cleanup_backend()
    finally:
        if before is None:
            os.environ.pop("NEONLIKE_CPU_JIT")
        else:
            os.environ["NEONLIKE_CPU_JIT"] = before


def needs_compiler() -> None:
    """Skip the test where there is no C compiler."""
    if find_compiler() is None:
        pytest.skip("the C engine needs a C compiler, and this machine has none that works")


def needs_gpu() -> None:
    """Skip the test where there is no GPU and none can be emulated, or fail it where GPU tests are required."""
    from gpu_driver import EmulatorUnavailable, find_driver, may_skip

    try:
        find_driver()
    except EmulatorUnavailable as error:
        (pytest.skip if may_skip() else pytest.fail)(f"no GPU tests: {error}")
