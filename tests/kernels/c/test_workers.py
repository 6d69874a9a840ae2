"""The worker threads that kernels share (templates/c/workers.c), by a kernel of these tests' own."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.kernels.c import workers
from neonlike.kernels.c.compile import build
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.codegen.render import template_text
from tests import ROOT
from tests.support.compiling import compiler, fresh, messages, python  # noqa: F401

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the workers are POSIX threads"),
    pytest.mark.cpu_only("threads of C kernels"),
]

SOURCE = """
#include "team.h"
struct call { int *counts; int *members; int64_t spin; };
static void count(const void *context, int64_t lo, int64_t hi, int64_t me) {
    const struct call *c = context;
    for (int64_t i = lo; i < hi; i++) {
        for (volatile int64_t k = 0; k < c->spin; k++) {}
        c->counts[i]++; /* one thread an element: else counts are lost */
    }
    __atomic_fetch_add(c->members + me, 1, __ATOMIC_RELAXED);
}
void run(int *counts, int *members, int64_t spin, int64_t size, int64_t unit, int64_t threads, int64_t in_order) {
    const struct call c = {counts, members, spin};
    (in_order ? nl_share_in_order : nl_share)(count, &c, size, unit, threads);
}
int64_t unit_of(int64_t size, int64_t threads, int64_t least, int64_t step) {
    return nl_unit(size, threads, least, step);
}
"""
HEADERS = {workers.HEADER: template_text(f"c/{workers.HEADER}")}
MOST = 8


@cache
def kernel() -> ctypes.CDLL:
    """Compiled once: each test begins with an empty cache."""
    return loaded(SOURCE)


def loaded(source: str) -> ctypes.CDLL:
    library = build(source, "counting", headers=HEADERS)
    library.run.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 5
    library.unit_of.argtypes, library.unit_of.restype = [ctypes.c_int64] * 4, ctypes.c_int64
    return library


def counted(
    size: int, unit: int, threads: int, spin: int = 0, in_order: bool = False, library: ctypes.CDLL | None = None
) -> tuple[Any, Any]:
    """How often each element was worked on, and how many calls each member made."""
    counts, members = np.zeros(max(size, 1), np.int32), np.zeros(MOST, np.int32)
    (library or kernel()).run(counts.ctypes.data, members.ctypes.data, spin, size, unit, threads, in_order)
    return counts[:size], members


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3, MOST])
@pytest.mark.parametrize(
    ("size", "unit"), [(0, 1), (1, 1), (2, 1), (7, 3), (100, 1), (1000, 64), (64, 64), (1001, 1000)]
)
def test_each_element_is_worked_on_once(compiler: Compiler, size: int, unit: int, threads: int, in_order: bool) -> None:
    for _ in range(20):
        counts, members = counted(size, unit, threads, spin=50, in_order=in_order)
        assert (counts == 1).all()
        assert not members[threads:].any()
        alone = threads == 1 or size <= unit
        assert members.sum() == (1 if alone else -(-size // unit))


def test_other_threads_take_part(compiler: Compiler) -> None:
    """Not always, if the machine is busy; but over a second, some do."""
    assert any(np.count_nonzero(counted(64, 1, 2, spin=200_000)[1]) > 1 for _ in range(50))


def test_threads_that_sleep_are_woken(compiler: Compiler) -> None:
    def took_part() -> bool:
        time.sleep(0.02)
        return bool(np.count_nonzero(counted(64, 1, 2, spin=200_000)[1]) > 1)

    assert any(took_part() for _ in range(50))


def test_units(compiler: Compiler) -> None:
    """About eight for each thread, multiples of the step, at least the least, never 0."""
    unit_of = kernel().unit_of
    assert unit_of(1 << 20, 2, 1, 1) == 1 << 16
    assert unit_of(1000, 2, 1, 64) == 64
    assert unit_of(1000, 2, 100, 64) == 128
    assert unit_of(0, 2, 1, 1) == unit_of(1, 1, 1, 1) == 1


def test_threads_of_the_program_share_it(compiler: Compiler) -> None:
    """Each call gets the idle threads, nobody waits for another."""
    wrong: list[Any] = []

    def work(seed: int) -> None:
        sizes = np.random.default_rng(seed).integers(1, 200, 300)
        for size in map(int, sizes):
            if not (counted(size, 1 + size % 5, 1 + size % 4, spin=size)[0] == 1).all():
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_more_calls_at_once_than_there_is_room_for(compiler: Compiler) -> None:
    results: list[bool] = []
    gate = threading.Barrier(24)

    def work() -> None:
        gate.wait()
        results.append(bool((counted(200, 1, 2, spin=20_000)[0] == 1).all()))

    threads = [threading.Thread(target=work) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 24


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_starts_threads_of_its_own(compiler: Compiler) -> None:
    code = f"""
    import os, signal, sys, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.path.insert(0, {str(ROOT)!r})
    from tests.kernels.c.test_workers import counted
    assert (counted(100, 1, 3, spin=1000)[0] == 1).all()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for ever
        good = all((counted(100, 1, 3, spin=1000)[0] == 1).all() for _ in range(50))
        threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 2
        os._exit(7 if good and threads > 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (counted(100, 1, 3, spin=1000)[0] == 1).all()
    """
    done = python(textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="tells by Linux's /proc what threads do")
def test_signals_are_the_programs(compiler: Compiler) -> None:
    """Ctrl-C is for the thread that Python handles it in; a fault for faulthandler, which shows where it was."""
    code = f"""
    import os, signal, sys, time
    sys.path.insert(0, {str(ROOT)!r})
    from tests.kernels.c.test_workers import MOST, counted, kernel
    kernel()
    before = set(os.listdir("/proc/self/task"))
    counted(100, 1, MOST, spin=1000)
    time.sleep(0.2)  # until they have begun: they are made with all signals blocked
    workers = set(os.listdir("/proc/self/task")) - before
    assert len(workers) == MOST - 1
    for task in workers:
        lines = open(f"/proc/self/task/{{task}}/status").read().splitlines()
        mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
        assert mask >> (signal.SIGINT - 1) & 1 and mask >> (signal.SIGTERM - 1) & 1
        assert not mask >> (signal.SIGSEGV - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    """
    done = python(textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="tells by Linux's /proc what threads do")
def test_workers_sleep_soon(compiler: Compiler) -> None:
    """Who waits for the next kernel takes no core from others for long."""
    code = f"""
    import sys, time
    sys.path.insert(0, {str(ROOT)!r})
    from tests.kernels.c.test_workers import counted
    counted(1000, 1, 4, spin=1000)
    time.sleep(0.2)
    before = time.process_time()
    time.sleep(0.5)
    print(time.process_time() - before)
    """
    done = python(textwrap.dedent(code))
    assert done.stderr == ""
    assert float(done.stdout) < 0.1


def test_without_workers_kernels_run_on_the_caller(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """The code of the workers does not compile: one warning, right results."""
    monkeypatch.setattr(workers, "_asked", False)
    monkeypatch.setattr(workers, "_library", None)
    real = workers.template_text
    broken = {"c/workers.c": "#error no threads here"}
    monkeypatch.setattr(workers, "template_text", lambda name: broken.get(name) or real(name))
    counts, members = counted(100, 1, 4, library=loaded(SOURCE + "/* without workers */"))
    assert (counts == 1).all() and members.tolist() == [1] + [0] * (MOST - 1)
    found = [text for text in messages if "no threads here" in text]
    assert len(found) == 1


def test_workers_that_do_not_load_are_compiled_again(compiler: Compiler, fresh: Path) -> None:
    code = f"""
    import sys
    sys.path.insert(0, {str(ROOT)!r})
    from tests.kernels.c.test_workers import counted
    assert (counted(100, 1, 4)[0] == 1).all()
    """
    environment = {**os.environ, "NEONLIKE_CACHE_DIR": str(fresh)}
    for spoil in (False, True, False):
        if spoil:
            for path in fresh.rglob(f"*{workers.SUFFIX}"):
                path.write_bytes(b"no library")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert len(list(fresh.rglob(f"*{workers.SUFFIX}"))) >= 1


STRESS = Path(__file__).with_name("workers_stress.c")
REFUSING = """
#define _GNU_SOURCE
#include <pthread.h>
static int asked;
static int refuse(pthread_t *thread, const pthread_attr_t *detached, void *(*run)(void *), void *argument) {
    (void)thread, (void)detached, (void)run, (void)argument;
    asked++;
    return 11;
}
#define pthread_create refuse
#include "workers.c"
static void add(const void *context, int64_t lo, int64_t hi, int64_t me) {
    *(int64_t *)context += (hi - lo) * (1 + 1000 * me);
}
int main(void) {
    int64_t sum = 0;
    for (int i = 0; i < 100; i++)
        nl_the_workers.share(add, &sum, 10, 1, 4, 4);
    return sum == 1000 ? asked : 100;
}
"""


WAITING = """
#define _GNU_SOURCE
#include <sched.h>
static int moves;
static cpu_set_t last[2];
static int moved(pid_t thread, size_t size, const cpu_set_t *allowed) {
    (void)thread, (void)size;
    last[moves++ % 2] = *allowed;
    return 0;
}
static int pin(cpu_set_t *all) {
    cpu_set_t one;
    const int here = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    if (sched_getaffinity(0, sizeof *all, all) || CPU_COUNT(all) < 2 || sched_setaffinity(0, sizeof one, &one))
        return -1;
    return sched_getcpu();
}
#define sched_setaffinity moved
#define sched_getaffinity(thread, size, set) (*(set) = every, 0)
static cpu_set_t every;
#include "workers.c"
static int moves_after(struct worker w, int misses) {
    moves = 0;
    for (int i = 0; i < misses; i++)
        miss(&w);
    return moves;
}
int main(void) {
#undef sched_getaffinity
    const int here = pin(&every);
    if (here < 0)
        return 77; /* one processor */
    const struct worker waits = {.thread = 1, .processor = here};
    const struct worker sleeps = {.thread = 1, .processor = here, .asleep = 1};
    const struct worker elsewhere = {.thread = 1, .processor = here + 1}, unknown = {.processor = here};
    if (moves_after(waits, 3) || moves_after(sleeps, 9) || moves_after(elsewhere, 9) || moves_after(unknown, 9))
        return 1;
    if (moves_after(waits, 4) != 2 || moves_after(waits, 7) != 2 || moves_after(waits, 8) != 4)
        return 2;
    struct worker begins = waits;
    moves = 0;
    leave(&begins, here + 1);
    leave(&begins, -1);
    if (moves)
        return 4;
    leave(&begins, here);
    leave(&begins, here); /* soon after */
    if (moves != 2)
        return 5;
    cpu_set_t others = every;
    CPU_CLR(here, &others);
    return CPU_EQUAL(&last[0], &others) && CPU_EQUAL(&last[1], &every) ? 0 : 3;
}
"""


def program(compiler: Compiler, folder: Path, source: str, *flags: str) -> Path | None:
    """A program that includes workers.c; None if the compiler does not know a flag, or its program does not run."""
    for name in ("workers.c", workers.HEADER):
        (folder / name).write_text(template_text(f"c/{name}"))
    (folder / "program.c").write_text(source)
    command = [*shlex.split(" ".join(compiler.command)), "-O1", "-g", "-pthread", *flags, "program.c", "-o", "program"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and not flags:
        raise AssertionError(done.stderr)
    return None if done.returncode else folder / "program"


def test_a_system_that_allows_no_threads_is_asked_once_a_second(compiler: Compiler, tmp_path: Path) -> None:
    made = program(compiler, tmp_path, REFUSING)
    assert made is not None
    assert subprocess.run([made], check=False).returncode in (1, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="moves threads on Linux")
def test_a_worker_that_waits_behind_the_caller_is_moved(compiler: Compiler, tmp_path: Path) -> None:
    """The system left it there, awake, for many calls: two threads were as slow as one."""
    made = program(compiler, tmp_path, WAITING)
    assert made is not None
    status = subprocess.run([made], check=False).returncode
    if status == 77:
        pytest.skip("there is one processor")
    assert status == 0


def test_forks_of_a_process_whose_threads_are_at_work(compiler: Compiler, tmp_path: Path) -> None:
    """A fork has threads of its own, and another library's as it had them before a product of its parent's."""
    made = program(compiler, tmp_path, STRESS.read_text())
    assert made is not None
    done = subprocess.run([made, "200"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_thread_sanitizer_finds_nothing(compiler: Compiler, tmp_path: Path) -> None:
    made = program(compiler, tmp_path, "int main(void) { return 0; }", "-fsanitize=thread")
    # its memory lies where recent kernels place other things, unless they are asked not to
    run = ["setarch", os.uname().machine, "-R"] if shutil.which("setarch") else []
    if made is None or subprocess.run([*run, made], capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no ThreadSanitizer that runs here")
    made = program(compiler, tmp_path, STRESS.read_text(), "-fsanitize=thread")
    assert made is not None
    done = subprocess.run([*run, made, "100", "alone"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


ANY_ORDER = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import numpy as np
from tests.kernels.c.any_order_workers import install
from neonlike.backends import gen_backend
units = install()
be = gen_backend("cpu")
be.num_threads = 4
rng = np.random.default_rng(0)
"""


@pytest.mark.parametrize("shape", [(2, 100_003), (2, 3, 40_001), (5, 70_000)])
def test_few_long_rows_are_shared_in_pieces(compiler: Compiler, shape: Any) -> None:
    """Rows with gaps between them are shared; the contents of the gaps stay."""
    code = f"""
    host = rng.standard_normal(({shape[:-1]!r} + ({shape[-1]} + 3,))).astype(np.float32)
    x, out = be.array(host), be.ones(host.shape)
    del units[:]
    out[..., 2:-1] = x[..., 1:-2] * 3 + 0.75
    found = out.get()
    np.testing.assert_allclose(found[..., 2:-1], host[..., 1:-2] * 3 + 0.75, rtol=1e-6, atol=1e-6)
    assert (found[..., :2] == 1).all() and (found[..., -1:] == 1).all()
    assert len(units) == 1 and units[0] >= 16, units
    """
    done = python(ANY_ORDER + textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("op", ["max", "avg"])
def test_few_long_rows_are_pooled_in_pieces(compiler: Compiler, op: str) -> None:
    """One channel of a signal: a row is all there is."""
    code = f"""
    layer = be.pool_layer(np.float32, {op!r}, 16, C=1, W=6001, S=3, str_w=2)
    host = rng.standard_normal(layer.dimI).astype(np.float32)
    x, out, delta, error = be.array(host), be.empty(layer.dimO), be.empty(layer.dimI), be.ones(layer.dimO)
    argmax = be.empty(layer.dimO, dtype=np.int32)
    del units[:]
    be.fprop_pool(layer, x, out, argmax if {op!r} == "max" else None)
    assert units and units[0] >= 16, units
    windows = np.lib.stride_tricks.sliding_window_view(host.reshape(6001, 16), 3, axis=0)[::2]
    expected = windows.max(-1) if {op!r} == "max" else windows.mean(-1)
    np.testing.assert_allclose(out.get().reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)
    del units[:]
    be.bprop_pool(layer, error, delta, argmax if {op!r} == "max" else None)
    assert units and units[0] >= 16, units
    np.testing.assert_allclose(delta.get().sum(), len(windows) * 16, rtol=1e-5)
    """
    done = python(ANY_ORDER + textwrap.dedent(code))
    assert (done.returncode, done.stderr) == (0, "")
