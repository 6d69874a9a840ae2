"""If no thread can be started, as at the end of a program, the waiting caller does the threads' work."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c.compile import build_kernel
from neonlike.kernels.run.ahead import build_many
from neonlike.kernels.run.threads import parallel
from tests.support.compiling import SOURCE, compiler, fresh, python  # noqa: F401
from tests.support.engines import use_threads

pytestmark = pytest.mark.cpu_only("threads of the host")

AT_THE_END = """
import atexit, sys, threading
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu")
be.num_threads = 2

def refuse(*ignored):
    raise RuntimeError("can't start new thread")

def compute():
    if sys.argv[1] == "refused":
        threading.Thread.start = refuse
    x, sums, halves = be.ones((600, 500)), be.empty((600, 1)), be.empty((600, 500))
    step = be.prepare(halves, be.exp(x - 1) / 2)
    for _ in range(3):  # the second time the extension is asked for
        sums[:] = be.sum(x * 2, axis=1) - be.max(be.sum(x, axis=0))
        step()
    print(sums.get()[0, 0], halves.get()[0, 0])

compute() if sys.argv[1] == "refused" else atexit.register(compute)
"""


@pytest.mark.parametrize("jit", ["0", "1"])
@pytest.mark.parametrize("when", ["refused", "atexit"])
def test_a_program_computes_where_no_thread_can_be_started(when: str, jit: str, tmp_path: Path) -> None:
    """Python starts none once the main thread has ended; handlers of atexit save and evaluate models."""
    shared = str(tmp_path.parent / "kernels")  # of both cases
    done = python(AT_THE_END, when, NEONLIKE_CPU_JIT=jit, NEONLIKE_CACHE_DIR=shared, NEONLIKE_OPTIMIZE="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "400.0 0.5\n", "")


def refuse(*ignored: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_kernels_are_built_one_after_the_other(
    compiler: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Thread, "start", refuse)
    kernels = [KernelSource(f"{SOURCE}int more{i};\n", f"answer{i}") for i in range(2)]
    assert [library.answer() for library in build_many(kernels, build_kernel)] == [42, 42]


def test_work_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that waited for a thread that did not start must not be begun by one that starts later."""
    values = np.zeros(8)

    def add(place: int) -> None:
        values[place] += 1

    use_threads(monkeypatch, 3)
    with monkeypatch.context() as without:
        without.setattr(Thread, "start", refuse)
        parallel(add, range(8))
    parallel(add, range(8))
    np.testing.assert_array_equal(values, 2)


def test_work_within_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for each other's places in the pool would wait for ever."""
    use_threads(monkeypatch, 2)
    found: list[int] = []
    parallel(lambda _: parallel(found.append, range(4)), range(4))
    assert sorted(found) == sorted(4 * [0, 1, 2, 3])
