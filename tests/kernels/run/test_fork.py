"""Forks of a process that compiled or ran kernels on threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neonlike.kernels.c.toolchain import Compiler
from tests.support.compiling import SOURCE, Wrapper, compiler, forget, fresh, messages, python, wrapper  # noqa: F401

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the compilers of these tests are shell scripts"),
    pytest.mark.cpu_only("the C compiler and its cache"),
]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_of_a_process_that_was_compiling_compiles(compiler: Compiler) -> None:
    """The thread that holds the locks in the parent is not there in the child, which runs on one thread."""
    code = """
import os, signal, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on fork beside threads: the very case
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import toolchain
from neonlike.kernels.run import forks
source = "int sum(int count) { int total = 0; for (int i = 0; i < count; i++) total += i; return total; }"
kernel = compile_c.build(source, "sum")
assert not forks.forked
assert kernel.sum(100) == 4950
held, release = threading.Event(), threading.Event()
def hold():  # as a thread that is compiling
    with compile_c.DRIVER.lock, toolchain._lock:
        held.set()
        release.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends a child that waits for a lock for ever
    assert forks.forked
    assert compile_c.build(source, "sum").sum(100) == 4950
    assert compile_c.build("int f(void) { return 3; }", "f").f() == 3
    os._exit(7)
release.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert not forks.forked
"""
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


FORKED = """
import os, sys, time
from neonlike.backends import gen_backend
be = gen_backend("cpu", rng_seed=1)
x, o = be.ones((2000, 1000)), be.empty((2000, 1000))
step = be.prepare(o, x * 3 + 1)
def work():
    o[:] = x * 2 + 1
    o[:] = x - be.sum(x, axis=1)
    step()
work()
child = os.fork()
if child == 0:
    work()
    os._exit(int(o.get()[0, 0] != 4))
for _ in range(600):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.05)
os.kill(child, 9)
sys.exit("the child hangs")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_runs_what_its_parent_ran_on_threads(compiler: Compiler) -> None:
    environment = {**os.environ, "NEONLIKE_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FORKED], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_fork_that_ends_leaves_the_parents_compile_alone(tmp_path: Path) -> None:
    """The child runs exit handlers, and may not remove the directory in which the parent's compiler works."""
    code = """
import os, pathlib, subprocess, sys, threading, time
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import toolchain

run, entered = toolchain._run, threading.Event()
def slow(command, *where):
    if "slow.c" in command:
        entered.set()
        time.sleep(0.5)
    return run(command, *where)
toolchain._run = slow
thread = threading.Thread(target=lambda: results.append(compile_c.build("int f(void) { return 3; }", "slow").f()))
results = []
thread.start()
assert entered.wait(60)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
thread.join()
assert results == [3]
"""
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")
