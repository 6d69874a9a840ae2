"""Backends that run on a chosen engine of the CPU.

Tests of meaning run on the NumPy engine, where thousands of expressions cost nothing to compile; what the C engine
makes of the same ops is tested with few, large kernels.

With ``pytest --backend gpu``, which sets NEONLIKE_TEST_BACKEND, every backend of these functions is the GPU's: whole
test files run on it unchanged. A test of the CPU itself, its engines, host memory or compiler, has the marker
``cpu_only`` with the reason (or its file has), and is left out there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.errors import BackendUnavailable, DTypeError
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.kernels.run import threads

ON_GPU = os.environ.get("NEONLIKE_TEST_BACKEND") == "gpu"
BACKEND = "gpu" if ON_GPU else "cpu"
"""What ``gen_backend`` is asked for."""
ENGINES = ("gpu",) if ON_GPU else ("numpy", "c")
COMPARED = ("cpu", "gpu") if ON_GPU else ENGINES
"""What gives equal results: the engines of the CPU, or the NumPy engine and the GPU."""
on_gpu: set[str] = set()
"""Tests that had a backend on the GPU."""


def any_backend(**options: Any) -> Iterator[Backend]:
    """Yield a backend: the CPU's on the engine there is, or the GPU's."""
    ready()
    yield gen_backend(BACKEND, rng_seed=0, batch_size=128, **options)
    cleanup_backend()


def new_backend(**options: Any) -> Backend:
    """A backend made by its class, the CPU's or the GPU's; the current one stays."""
    ready()
    return Backend.allocate_backend(BACKEND, **options)


def current_backend(**options: Any) -> Backend:
    """``gen_backend`` of the CPU or the GPU, for tests that clean up themselves."""
    ready()
    return gen_backend(BACKEND, **options)


def backend(engine: str, **options: Any) -> Iterator[Backend]:
    """Yield one backend on ``engine``, to be used by a fixture or a loop; skips where there is no C compiler."""
    if ON_GPU and engine != "cpu":
        yield from any_backend(**options)
        return
    before = os.environ.get("NEONLIKE_CPU_JIT")
    os.environ["NEONLIKE_CPU_JIT"] = "1" if engine == "c" else "0"
    try:
        if engine == "c":
            needs_compiler()
        made = gen_backend("cpu", rng_seed=0, batch_size=128, **options)
        assert made.engine.name == ("numpy" if engine == "cpu" else engine)
        yield made
        cleanup_backend()
    finally:
        if before is None:
            os.environ.pop("NEONLIKE_CPU_JIT")
        else:
            os.environ["NEONLIKE_CPU_JIT"] = before


def refused_after_cleanup(match: str | None = None) -> AbstractContextManager[Any]:
    """What a backend is asked for after ``cleanup_backend()``: the GPU's refuses, the CPU's does it, as in neon."""
    return pytest.raises(BackendUnavailable, match=match) if ON_GPU else nullcontext()


def check_other_backends(case: Any) -> None:
    """``case.fprop`` refuses tensors of another backend than ``case.be``, and of that one once it is closed."""
    be = case.be
    case.be = type(be)(rng_seed=0)
    with pytest.raises(DTypeError, match="another backend"):
        case.fprop()
    case.be = be
    be.cleanup_backend()
    with refused_after_cleanup():
        case.fprop()


def ready() -> None:
    """Have a GPU ready where the tests run on one, and note that this test does."""
    if ON_GPU:
        needs_gpu()
        on_gpu.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])


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


def forget_calls(be: Any) -> None:
    """Have ``be`` choose kernels anew for primitives that it ran before."""
    if be._calls is not None:
        be._calls.clear()


def use_threads(monkeypatch: pytest.MonkeyPatch, count: Any) -> None:
    """Kernels use ``count`` threads, as the environment says, until the test ends."""
    monkeypatch.setenv("NEONLIKE_NUM_THREADS", str(count))
    threads.refresh()
