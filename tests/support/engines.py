"""Backends that run on a chosen engine of the CPU.

Tests of meaning run on the NumPy engine, where thousands of expressions cost nothing to compile; what the C engine
makes of the same ops is tested with few, large kernels.

With ``pytest --backend gpu``, which sets NEONLIKE_TEST_BACKEND, every backend of these functions is the GPU's: whole
test files run on it unchanged. A test of the CPU itself, its engines, host memory or compiler, has the marker
``cpu_only`` with the reason (or its file has), and is left out there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.errors import BackendUnavailable, DTypeError
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.kernels.run import threads

Case = TypeVar("Case")
ON_GPU = os.environ.get("NEONLIKE_TEST_BACKEND") == "gpu"
BACKEND = "gpu" if ON_GPU else "cpu"
"""What ``gen_backend`` is asked for."""
ENGINES = ("gpu",) if ON_GPU else ("numpy", "c")
ANY = "any"
"""The engine there is: C where there is a compiler."""
COMPARED = ("cpu", "gpu") if ON_GPU else ENGINES
"""What gives equal results: the engines of the CPU, or the NumPy engine and the GPU."""
on_gpu: set[str] = set()
"""Tests that had a backend on the GPU."""


class Sampling:
    """Whether loops of tests over many cases take a sample on engines that compile (``--c-cases``, ``--cases``)."""

    on = False


sampling = Sampling()


class Asking:
    """Whether the running test may ask for a backend, by its marks; outside of tests, always."""

    allowed = True


asking = Asking()


def draw_masks_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the CPU draw masks of dropout as a GPU does, not from ``be.rng``."""
    monkeypatch.setattr(NervanaCPU, "_draw_mask", lambda be, out, keep: be.dropout(keep, out=out))


def new_backend(**options: Any) -> Backend:
    """A backend made by its class, the CPU's or the GPU's; the current one stays."""
    ready()
    return Backend.allocate_backend(BACKEND, **options)


def current_backend(**options: Any) -> Backend:
    """``gen_backend`` of the CPU or the GPU, for tests that clean up themselves."""
    ready()
    return gen_backend(BACKEND, **options)


def backend(engine: str, **options: Any) -> Iterator[Backend]:
    """Yield one backend on ``engine``, to be used by a fixture or a loop; skips where there is no C compiler.

    It has a fixed seed, and a batch size of 128 unless ``options`` say otherwise.
    """
    given = {"rng_seed": 0, "batch_size": 128, **options}
    with on_engine(engine) as name:
        made = gen_backend("gpu" if name == "gpu" else "cpu", **given)
        assert name in (ANY, "cpu", "gpu", made.engine.name)
        yield made
        cleanup_backend()


@contextmanager
def on_engine(engine: str) -> Iterator[str]:
    """Have ``gen_backend("cpu")`` choose ``engine``; yields its name, "gpu" where all run there.

    The engine "cpu" is NumPy's, on the CPU although tests run on the GPU, to be compared with.
    """
    if engine == "gpu" or (ON_GPU and engine != "cpu"):
        needs_gpu()
        ready()
        yield "gpu"
        return
    if engine == "c":
        needs_compiler()
    with pytest.MonkeyPatch.context() as patch:
        if engine != ANY:
            patch.setenv("NEONLIKE_CPU_JIT", "1" if engine == "c" else "0")
        yield engine


def refused_after_cleanup(match: str | None = None) -> AbstractContextManager[Any]:
    """Calls after ``cleanup_backend()``: the GPU's backend refuses them, the CPU's runs them, as in neon."""
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
    """Have a GPU ready where the tests run on one, and note that this test does.

    A test that asks for a backend says so, or ``make test`` would not run it on the GPU.
    """
    assert asking.allowed, "mark this test `backend`, or `cpu_only` with the reason why it is not for the GPU's"
    if ON_GPU:
        needs_gpu()
        on_gpu.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])


def needs_compiler() -> None:
    """Skip the test where there is no C compiler."""
    if find_compiler() is None:
        pytest.skip("the C engine needs a C compiler, and this machine has none that works")


def needs_gpu() -> None:
    """Skip the test where there is no GPU and none can be emulated, or fail it where GPU tests are required."""
    from tests.support.gpu.gpu_driver import EmulatorUnavailable, find_driver, may_skip

    try:
        find_driver()
    except EmulatorUnavailable as error:
        (pytest.skip if may_skip() else pytest.fail)(f"no GPU tests: {error}")


def have_programs(be: Any) -> None:
    """Have the extension run what ``be`` does a second time; it is compiled now if it is not in the cache."""
    from neonlike.kernels.c import fastpath

    if not fastpath.obstacle() and fastpath.build():
        be.executor.replay.request()


def forget_calls(be: Any) -> None:
    """Have ``be`` choose kernels anew for primitives that it ran before."""
    be.executor.replay.clear()


def sampled(be: Backend, cases: Iterable[Case], most: int, turn: int = 0) -> list[Case]:
    """``cases``, each of which compiles kernels; in `make test`, on other engines than NumPy's, ``most`` of them.

    They are chosen by chance, but always the same: others for another ``turn``.
    """
    listed = list(cases)
    if not sampling.on or be.engine.name == "numpy" or len(listed) <= most:
        return listed
    return random.Random(100 * turn + len(listed)).sample(listed, most)


def use_threads(monkeypatch: pytest.MonkeyPatch, count: Any) -> None:
    """Kernels use ``count`` threads, as the environment says, until the test ends."""
    monkeypatch.setenv("NEONLIKE_NUM_THREADS", str(count))
    threads.refresh()
