"""The life of the GPU backend: devices, contexts, threads, forks, lost contexts, and the end of a process."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend, gen_backend
from neonlike.errors import ArgumentError, BackendUnavailable
from tests.support.gpu.gpu_env import SOURCE, run_on_gpu

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


# Devices, backends, threads


@pytest.mark.parametrize("number", [1, -1, 99, "0", True, 0.0])
def test_a_gpu_that_is_not_there(number: Any) -> None:
    counted = type(number) is int and number >= 0
    message = f"there is no GPU {number!r}" if counted else f"device_id must be the number of a GPU.*, got {number!r}"
    with pytest.raises(ArgumentError, match=message):
        gen_backend("gpu", device_id=number)


def test_max_devices_leaves_some() -> None:
    assert gen_backend("gpu", max_devices=1).device_id == 0
    cleanup_backend()


def test_backends_share_a_gpu(be: Any) -> None:
    cls = type(be)
    other = cls(default_dtype=np.float64, rng_seed=3)
    assert other.device is be.device
    t = other.ones((3, 3))
    assert t.dtype == np.float64
    other.cleanup_backend()
    other.cleanup_backend()
    with pytest.raises(BackendUnavailable, match="closed"):
        t.get()
    assert be.ones((3, 3)).get().sum() == 9
    del t, other


def test_the_backend_is_a_context_manager_and_starts_again() -> None:
    with gen_backend("gpu") as made:
        t = made.ones((2, 2))
    assert made.closed
    again = gen_backend("gpu")
    assert again.array(np.ones((2, 2))).get().sum() == 4
    cleanup_backend()
    del t


def test_threads_use_the_gpu_and_end(be: Any) -> None:
    results: list[float] = []
    gc.collect()  # what tests before left, which may be any amount
    before = be.memory_stats().used

    def work(number: int) -> None:
        t = be.array(np.full((50, 50), float(number)))
        out = be.empty((50, 1))
        for _ in range(5):
            out[:] = be.sum(t * 2, axis=1)
        results.append(float(out.get()[0, 0]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [100.0 * number for number in range(6)]
    assert be.memory_stats().used - before < 1 << 20


def test_a_gpu_opened_in_a_thread_serves_others() -> None:
    done = run_on_gpu("""
import threading
import numpy as np
from neonlike.backends import gen_backend
made = []
thread = threading.Thread(target=lambda: made.append(gen_backend("gpu").ones((4, 4))))
thread.start()
thread.join()
out = made[0].backend.empty((4, 4))
out[:] = made[0] + 1
print(out.get().sum())
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "32.0\n", "")


def test_devices_take_turns_in_a_thread() -> None:
    """Two objects for the one GPU there is, each with a context, a stream and a pool, as two GPUs have."""
    done = run_on_gpu("""
import threading
import numpy as np
import pycuda.driver as driver
from neonlike.backends.gpu.device.contexts import here
from neonlike.backends.gpu.device.device import GpuDevice, device_count
device_count()
devices = [GpuDevice(0), GpuDevice(0)]
hosts = [np.full((64, 3), number, np.float32) for number in range(2)]
arrays = [device.empty((64, 3), np.dtype(np.float32)) for device in devices]
def work():
    for _ in range(50):
        for device, host, array in zip(devices, hosts, arrays):
            device.from_host(host, array)
            assert here.device is device
        for device, host, array in zip(devices, hosts, arrays):
            assert np.array_equal(device.to_host(array), host)
    depth = 0
    driver.Context.pop()
    try:
        driver.Context.pop()
        depth += 1
    except driver.Error:
        pass
    devices[0].context.push()  # as it was
    assert depth == 0
work()
thread = threading.Thread(target=work)
thread.start()
thread.join()
arrays[0].memory.lent = True
del arrays
print("done")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_another_context_on_top_is_named() -> None:
    done = run_on_gpu("""
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("gpu")
t = be.ones((3, 3))
import pycuda.autoinit
for call in (t.get, lambda: be.array(np.ones((900, 900))), lambda: t.fill(2), be.synchronize):
    try:
        call()
        print("went well?")
    except RuntimeError as error:
        assert "another context is current" in str(error) and "be.ctx" in str(error), error
pycuda.autoinit.context.pop()
print(t.get().sum(), be.array(np.ones((900, 900))).get().sum())
pycuda.autoinit.context.push()
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "9.0 810000.0\n", "")


def test_pycudas_primary_context_is_the_same() -> None:
    for order in (0, 1):
        lines = ["from neonlike.backends import gen_backend; be = gen_backend('gpu')", "import pycuda.autoprimaryctx"]
        if order:
            lines.reverse()
        done = run_on_gpu("\n".join(lines) + "\nt = be.ones((3, 3)); t[:] = t + 1; print(t.get().sum())")
        assert (done.returncode, done.stdout, done.stderr) == (0, "18.0\n", "")


def test_a_context_that_was_popped_is_put_back() -> None:
    done = run_on_gpu("""
from neonlike.backends import gen_backend
be = gen_backend("gpu")
t = be.ones((3, 3))
be.ctx.pop()
print(t.get().sum(), be.ones((2, 2)).get().sum())
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "9.0 4.0\n", "")


# Faults


def test_after_a_lost_context_everything_refuses_and_says_why() -> None:
    done = run_on_gpu(
        f"""
from neonlike.backends import gen_backend
from neonlike.errors import DeviceLost
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda.compile import build_cubin
be = gen_backend("gpu")
t = be.ones((3, 3))
cubin = build_cubin(KernelSource({SOURCE!r}, "fault", "kernels of the tests", {{}}), be.device.capabilities.arch)
fault = be.device.load(cubin, "fault")
messages = set()
def attempt(call):
    try:
        call()
        print("went well?")
    except DeviceLost as error:
        messages.add(str(error))
def launch():
    be.device.launch(fault, (1, 1, 1), (1, 1, 1), 0, b"")
    be.device.synchronize()
attempt(launch)
for call in (launch, t.get, lambda: t.fill(1), lambda: be.ones((2, 2)), lambda: be.array([[1.0]]), be.synchronize,
             lambda: gen_backend("gpu")):
    attempt(call)
(message,) = messages
print(message)
print(be.device.usable, be.memory_stats().blocks > 0)
be.cleanup_backend()
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    message, state = done.stdout.splitlines()
    assert message.startswith("GPU 0 was lost: ")
    assert "launch failure" in message
    assert "start the program again" in message
    assert state == "False True"


def test_a_forked_child_refuses_and_its_parent_goes_on() -> None:
    done = run_on_gpu("""
import os, signal
from neonlike.backends import gen_backend
be = gen_backend("gpu")
t = be.ones((3, 3))
child = os.fork()
if child == 0:
    signal.alarm(60)
    for call in (t.get, lambda: be.ones((2, 2)), be.synchronize, lambda: gen_backend("gpu")):
        try:
            call()
            print("went well?")
        except RuntimeError as error:
            assert "forked" in str(error) and "spawn" in str(error), error
    del t
    raise SystemExit(7)  # with all that Python does at the end
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(t.get().sum(), be.ones((2, 2)).get().sum())
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "9.0 4.0\n", "")


ENDS = {
    "tensors live on": "keep = be.ones((5, 5)); view = keep[1:]",
    "in another order": "keep = be.ones((5, 5)); be.cleanup_backend(); del be",
    "cleaned up twice": "from neonlike.backends import cleanup_backend as c\nbe.cleanup_backend()\n" * 2 + "c(); c()",
    "work is queued": "x = be.ones((500, 500))\nfor _ in range(5): x[:] = x * 2",
    "after an error": "try: be.empty((1 << 40, 1 << 20))\nexcept MemoryError: pass",
    "used while exiting": "import atexit; atexit.register(lambda: print('at exit', be.closed))",
    "in a cycle": "class C: pass\nc = C(); c.me = c; c.t = be.ones((3, 3))",
    "by a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "pool = ThreadPoolExecutor(3)\n"
        "assert [t.get().sum() for t in pool.map(lambda n: be.ones((n, n)), range(5))] == [0, 1, 4, 9, 16]"
    ),
    "by a thread that goes on": (
        "import threading, time\n"
        "def work():\n    t = be.ones((3, 3))\n    time.sleep(100)\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.3)"
    ),
    "by a thread that wakes up": (
        "import threading, time\nready = threading.Event()\n"
        "def work():\n    t = be.ones((3, 3)); ready.set()\n    while True: time.sleep(1e-4)\n"
        "threading.Thread(target=work, daemon=True).start(); ready.wait()"
    ),
    "after a destructor at the end": (
        "class Late:\n    def __init__(self): self.t = be.ones((2, 2))\n"
        "    def __del__(self):\n        try: self.t.get()\n        except Exception: pass\n"
        "late = Late()"
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_process_ends_quietly(end: str) -> None:
    done = run_on_gpu(f"from neonlike.backends import gen_backend\nbe = gen_backend('gpu')\n{end}\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thread_may_compute_while_the_process_ends() -> None:
    """It gets an error, if it gets so far; work that is late has it wait inside the driver."""
    done = run_on_gpu(
        "import threading, time\nfrom neonlike.backends import gen_backend\nbe = gen_backend('gpu')\n"
        "ready = threading.Event()\n"
        "def work():\n    while True:\n        t = be.ones((300, 300)); t[:] = t + 1; t.get(); ready.set()\n"
        "threading.Thread(target=work, daemon=True).start(); ready.wait(); time.sleep(0.1)",
        CUEMU_ASYNC="1",
    )
    assert done.returncode == 0, done.stderr
    assert "Exception in" in done.stderr or not done.stderr


# Without


def test_importing_the_library_imports_no_pycuda() -> None:
    code = (
        "import sys, neonlike, neonlike.backends, neonlike.backends.gpu, neonlike.backends.nervanagpu\n"
        "import neonlike.models, neonlike.layers, neonlike.callbacks, neonlike.__main__\n"
        "be = neonlike.backends.gen_backend('cpu'); be.ones((2, 2))\n"
        "assert not [name for name in sys.modules if name.startswith(('pycuda', 'skcuda'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
def test_without_a_driver_the_error_names_the_doctor() -> None:
    code = (
        "from neonlike.backends import gen_backend\n"
        "try: gen_backend('gpu')\n"
        "except RuntimeError as error: print(error)\n"
    )
    bare = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=bare)
    assert "cannot use PyCUDA" in done.stdout
    assert "neonlike doctor" in done.stdout


def test_neons_module_path(be: Backend) -> None:
    module = importlib.import_module("neonlike.backends.nervanagpu")
    assert isinstance(be, module.NervanaGPU)
    assert isinstance(be.ones((2, 2)), module.GPUTensor)
    assert "gpu" in Backend.backend_choices()
