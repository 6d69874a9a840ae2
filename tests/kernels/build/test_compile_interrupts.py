"""Ctrl-C while kernels compile: neither do compilers die of it, nor does the process wait for those not begun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.compiling import compiler, fresh, wrapper

__all__ = ["compiler", "fresh", "wrapper"]

pytestmark = pytest.mark.cpu_only("about the C compiler")

PREPARE = """
import os, signal, sys, threading, time
import neonlike.backends
be = neonlike.backends.gen_backend("cpu")
a, out = be.ones((4, 4)), be.empty((4, 4))
def prepare(number):
    expression = a
    for bit in range(8):
        expression = be.exp(expression) if number >> bit & 1 else be.sqrt(expression)
    return be.prepare(out, expression)
def calls():
    return open(sys.argv[1]).read().count("-shared") if os.path.exists(sys.argv[1]) else 0
prepare(0)()  # the compiler is known by now
before = calls()
"""


def run(wrapper, script):
    environment = {**os.environ, "CC": str(wrapper.path), "NEONLIKE_NUM_THREADS": "1", "NEONLIKE_FASTPATH": "0"}
    return subprocess.run(
        [sys.executable, "-c", PREPARE + script, str(wrapper.log)], env=environment, capture_output=True, text=True,
        start_new_session=True, timeout=300, check=False,
    )  # fmt: skip


def compiled(wrapper):
    return wrapper.log.read_text().count("-shared")


def test_a_compiler_does_not_die_of_the_terminals_ctrl_c(wrapper):
    wrapper.write("sleep 1")
    done = run(
        wrapper,
        """
signal.signal(signal.SIGINT, lambda *_: print("interrupted"))
def interrupt():
    while calls() == before:
        time.sleep(0.01)
    os.killpg(0, signal.SIGINT)  # as a terminal does, to the whole group
threading.Thread(target=interrupt).start()
out[:] = be.exp(be.sqrt(be.exp(a)))  # in the main thread
print(out.get()[0, 0])
""",
    )
    assert done.returncode == 0 and done.stdout.split()[0] == "interrupted", done.stderr
    assert "NumPy engine" not in done.stderr + done.stdout


def test_what_has_not_begun_to_compile_is_left_out_after_ctrl_c(wrapper):
    wrapper.write("sleep 0.2")
    ended = run(wrapper, "print(before)\n[prepare(number) for number in range(1, 4)]")
    assert ended.returncode == 0, ended.stderr
    assert compiled(wrapper) - int(ended.stdout) == 3, "without Ctrl-C all of them are compiled"
    ended = run(
        wrapper, "print(before)\n[prepare(number) for number in range(100, 112)]\nsignal.raise_signal(signal.SIGINT)"
    )
    assert "KeyboardInterrupt" in ended.stderr and ended.returncode in (1, -signal.SIGINT)
    assert compiled(wrapper) - int(ended.stdout) < 6
