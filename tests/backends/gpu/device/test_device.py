"""The runtime of the GPU backend: launches, copies, memory, and single calls of the driver that fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.errors import DeviceError, DeviceMemoryError, KernelCompileError
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda.compile import build_cubin
from neonlike.kernels.cuda.device import ModuleRefused
from tests import ROOT
from tests.support.gpu.gpu_env import SOURCE, needs_pool, run_on_gpu

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


@pytest.fixture(scope="session")
def cubin(gpu_driver: Any) -> bytes:
    """The kernels of gpu_env, compiled."""
    from neonlike.backends.gpu.device.device import open_device

    return build_cubin(KernelSource(SOURCE, "scale", "kernels of the tests", {}), open_device().capabilities.arch)


def packed(*arguments: Any) -> bytes:
    """Arguments one after the other, each at a multiple of its size."""
    data = b""
    for argument in arguments:
        piece = np.asarray(argument).tobytes()
        data += bytes(-len(data) % len(piece)) + piece
    return data


# Launches


def test_kernels_run_on_the_stream_in_order(be: Any, cubin: bytes) -> None:
    device, t = be.device, be.array(np.arange(1000.0))
    scale = device.load(cubin, "scale")
    assert device.load(cubin, "scale") is scale
    for by in (2.0, 0.5, 3.0):
        device.launch(scale, (4, 1, 1), (256, 1, 1), 0, packed(np.uint64(t.ptr), np.float32(by), np.int32(1000)))
    assert np.array_equal(t.get()[:, 0], 3 * np.arange(1000.0))


def test_more_shared_memory_is_asked_for(be: Any, cubin: bytes) -> None:
    device, out, n = be.device, be.empty((1, 1)), 20_000
    kernel = device.load(cubin, "gathered")
    device.launch(kernel, (1, 1, 1), (64, 1, 1), 4 * n, packed(np.uint64(out.ptr), np.int32(n)))
    assert out.get()[0, 0] == pytest.approx(sum(range(n)), rel=1e-3)
    assert device.capabilities.shared_bytes < 4 * n <= device.capabilities.shared_bytes_optin


def test_a_refused_launch_costs_nothing(be: Any, cubin: bytes) -> None:
    device, t = be.device, be.ones((8, 1))
    kernel = device.load(cubin, "scale")
    with pytest.raises(DeviceError, match=r"GPU 0, kernel scale \(grid \(1, 1, 1\), block \(4096, 1, 1\)"):
        device.launch(kernel, (1, 1, 1), (4096, 1, 1), 0, packed(np.uint64(t.ptr), np.float32(2), np.int32(8)))
    assert device.usable
    assert t.get().sum() == 8


def test_a_module_that_does_not_load_says_so(be: Any, cubin: bytes) -> None:
    with pytest.raises(ModuleRefused, match="does not take kernel scale"):
        be.device.load(b"not a cubin", "scale")
    with pytest.raises(KernelCompileError, match="does not take kernel missing") as missing:
        be.device.load(cubin, "missing")
    assert not isinstance(missing.value, ModuleRefused), "which no other compiler would help"
    assert be.ones((2, 2)).get().sum() == 4


def test_capabilities(be: Any) -> None:
    found = be.device.capabilities
    major, minor = be.compute_capability
    assert found.arch == f"sm_{major}{minor}"
    assert be.sm_count == found.multiprocessors > 0
    assert (found.warp, be.gpu_memory_size, be.device_type, be.device_id) == (32, be.device.memory_size, 1, 0)
    assert be.ctx is be.device.context
    assert be.stream is be.device.stream
    assert be.use_pinned_mem
    assert list(be.context_rand_state_map) == list(be.context_rand_state_alive) == [be.ctx]


# Copies


@pytest.mark.parametrize("size", [0, 1, 1000, (4 << 20) // 4, (4 << 20) // 4 + 1, 7_000_001])
def test_copies_of_any_size_come_back(be: Any, size: int) -> None:
    host = np.random.default_rng(size).integers(0, 1 << 30, (size, 1)).astype(np.int32)
    wanted = host.copy()
    t = be.empty((size, 1), dtype=np.int32)
    be.device.from_host(host, t.array)
    host[:] = -1  # the copy may still be queued
    assert np.array_equal(be.device.to_host(t.array), wanted)


VIEWS = {
    "columns": np.s_[:, 3:9],
    "every second": np.s_[::2, ::3],
    "backwards": np.s_[::-1, ::-2],
    "inner": np.s_[1:3, 2:4, 1:-1],
    "one element": np.s_[2:3, 5:6],
    "rows far apart": np.s_[::2, 1:4],
    "nothing": np.s_[2:2],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("turned", [False, True])
def test_views_are_copied_without_their_neighbours(be: Any, view: Any, turned: bool) -> None:
    host = np.arange(5 * 12 * 6, dtype=np.float64).reshape(5, 12, 6)
    t = be.empty(host.shape, dtype=np.float64)
    t.set(host)
    ours, theirs = t.array[view], host[view]
    if turned:
        ours, theirs = ours.transpose(2, 0, 1), theirs.transpose(2, 0, 1)
    assert np.array_equal(be.device.to_host(ours), theirs)
    new = np.random.default_rng(0).random(theirs.shape)
    be.device.from_host(new, ours)
    theirs[...] = new
    assert np.array_equal(t.get(), host)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_tensors_of_many_pieces_go_through_a_kernel(be: Any, view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from neonlike.backends.gpu.tensors import tensor

    host = np.arange(5 * 12 * 6, dtype=np.float32).reshape(5, 12, 6)
    for most in (0, 4, 1000):
        monkeypatch.setattr(tensor, "MOST_PIECES", most)
        t = be.array(host)
        t.rounding = 3  # copies round nothing
        assert np.array_equal(t[view].get(), host[view])
        wanted, new = host.copy(), np.random.default_rng(0).random(host[view].shape)
        t[view].set(new)
        wanted[view] = new
        assert np.array_equal(t.get(), wanted)


@pytest.mark.emulator  # which runs each stream as late as it may
def test_uploads_cross_the_bus_while_kernels_run_and_arrive_in_their_turn() -> None:
    done = run_on_gpu(
        """
import numpy as np
import pycuda.driver as driver
from neonlike.backends import gen_backend
from neonlike.backends.gpu.memory import transfer
be = gen_backend("gpu")
rng = np.random.default_rng(0)
host = rng.random((512, 256)).astype(np.float32)
x, total = be.array(host), be.zeros((512, 256))
be.synchronize()
total[:] = total + x
computed = driver.Event()
be.record_mark(computed)
x.set(host[::-1])
be.device.transfer.uploads.synchronize()
print(computed.query())  # the new values are there and the kernel has not run, which is to read the old ones
print(np.array_equal(total.get(), host), np.array_equal(x.get(), host[::-1]))
transfer.BUFFER_BYTES = transfer.SMALLEST_BYTES = transfer.OVERLAPPED_BYTES = 4096
be.release_memory()
for turn in range(30):  # many parts, memory that was just freed, several tensors
    new = rng.random((64, 96)).astype(np.float32)
    fresh = be.array(new)
    y = fresh * 2 + x[:64, :96]
    x[:64, :96] = y
    fresh[:] = new + 1
    new[:] = -7
    x[:64, 32:128] = fresh + x[:64, 32:128]
    del fresh
print(len(be.device.transfer._parts) > 1, be.release_memory() > 0, len(be.device.transfer._parts))
rng = np.random.default_rng(0)
rng.random((512, 256))
wanted = host[::-1].astype(np.float64)
for turn in range(30):
    new = rng.random((64, 96)).astype(np.float32)
    wanted[:64, :96] += new.astype(np.float64) * 2
    wanted[:64, 32:128] += new.astype(np.float64) + 1
print(np.allclose(x.get(), wanted, 1e-5))
""",
        CUEMU_ASYNC="1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["False", "True", "True", "True", "True", "0", "True"]


# Memory


def test_memory_follows_the_tensors(be: Any) -> None:
    be.release_memory()
    be.reset_memory_peaks()
    before = be.memory_stats()
    t = be.empty((1 << 20, 4))
    view = t[: 1 << 10]
    assert be.memory_stats().used - before.used == 16 << 20
    del t
    assert be.memory_stats().used - before.used == 16 << 20  # the view needs it
    del view
    after = be.memory_stats()
    assert (after.used, after.used_peak - before.used) == (before.used, 16 << 20)
    assert be.release_memory() >= 16 << 20


@needs_pool
def test_memory_of_expressions_is_used_again(be: Any) -> None:
    x = be.array(np.random.default_rng(0).random((300, 200)))
    out = be.empty((300, 1))
    out[:] = be.sum(be.exp(x), axis=1)
    asked = be.memory_stats().driver_requests
    for _ in range(20):
        out[:] = be.sum(be.exp(x), axis=1)
        be.empty((300, 200))
    assert be.memory_stats().driver_requests <= asked + 1


@pytest.mark.emulator  # which gives it a GPU of 64 MiB
def test_too_large_a_tensor_is_refused_and_nothing_is_lost() -> None:
    done = run_on_gpu(
        """
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("gpu")
be.array(np.ones((1 << 20, 4), np.float32))  # through 16 MiB at most, which then go back
held = be.ones((1 << 20, 8))
junk = [be.empty((1 << 20, 2)) for _ in range(3)]
del junk
try:
    be.empty((1 << 20, 16))
except MemoryError as error:
    print(type(error).__name__, error)
fits = be.empty((1 << 20, 6))  # only after what was kept for the junk went back
fits[:] = held[:, :6] + 1
print(fits.get().sum() / (1 << 20), held.get().sum() / (1 << 20), be.memory_stats().used >> 20)
x = be.ones((1 << 19, 1))
before = x.get()
try:
    x[:] = be.sum(be.dot(x, x.T), axis=1)  # a terabyte in between
except MemoryError as error:
    print(type(error).__name__, np.array_equal(x.get(), before))
held[:] = held * 2
print(held.get().max())
""",
        CUEMU_MEM_MB="64",
        CUEMU_ASYNC="1",  # all 16 MiB are on their way at once
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, numbers, second, last = done.stdout.splitlines()
    assert first.startswith("DeviceMemoryError GPU 0: out of memory: 64.00 MiB asked for; 32.00 MiB are in use")
    assert numbers == "12.0 8.0 56"
    assert second.endswith("MemoryError True")
    assert last == "2.0"


@pytest.mark.emulator
def test_running_out_anywhere_in_a_plan_changes_nothing(be: Any, gpu_driver: Any) -> None:
    x = be.array(np.random.default_rng(0).random((300, 300)))  # too large for a slab
    host, out, failures = x.get(), be.empty((300, 300)), 0
    for after in range(30):
        out[:] = 7
        be.release_memory()
        product = be.dot(x, x.T) + 1
        try:
            with gpu_driver.emulator.failing_allocations(after):
                out[:] = be.exp(product - be.max(product, axis=1)) + be.dot(x, x)
        except DeviceMemoryError:
            assert (out.get() == 7).all()
            failures += 1
        else:
            break
    wide = host.astype(np.float64)
    wanted = wide @ wide.T
    np.testing.assert_allclose(out.get(), np.exp(wanted - wanted.max(1, keepdims=True)) + wide @ wide, rtol=1e-4)
    assert (failures > 0) is (be.engine.name == "cuda")


@pytest.mark.emulator
def test_a_context_lost_by_somebody_else_is_reported() -> None:
    done = run_on_gpu(f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.gpu.gpu_driver import find_driver
emulator = find_driver().emulator
from neonlike.backends import gen_backend
be = gen_backend("gpu")
t = be.ones((3, 3))
emulator.lose_context()
for call in (t.get, lambda: t.fill(2), lambda: be.ones((600, 600)), be.synchronize, t.get, be.release_memory):
    try:
        call()
    except RuntimeError as error:
        print(type(error).__name__, "illegal" in str(error))
be.cleanup_backend()
""")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["DeviceLost True"] * 6


# Faults, time, scratch memory


def test_without_pinned_memory_copies_take_longer(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pycuda.driver as driver

    from neonlike.backends.gpu.memory.transfer import Transfer

    def none_left(*arguments: Any) -> Any:
        raise driver.MemoryError("cuMemHostAlloc failed: out of memory")

    monkeypatch.setattr(driver, "pagelocked_empty", none_left)
    monkeypatch.setattr(be.device, "transfer", Transfer(be.device.stream, be.device.attend))
    host = np.random.default_rng(0).random((1300, 1000)).astype(np.float32)
    t = be.array(host)
    assert np.array_equal(t.get(), host)


@pytest.mark.parametrize(
    "call", ["memcpy_htod_async", "memcpy_dtod_async", "memcpy_dtoh_async", "mem_alloc", "module_from_buffer"]
)
def test_a_call_of_the_driver_that_fails_once_is_reported_and_forgotten(
    be: Any, cubin: bytes, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pycuda.driver as driver

    real, calls = getattr(driver, call), []

    def failing(*arguments: Any) -> Any:
        calls.append(call)
        if len(calls) == 1:
            raise driver.LogicError(f"{call} failed: made up")
        return real(*arguments)

    t, host = be.ones((8, 8)), np.full((8, 8), 3, np.float32)
    fresh = cubin + call.encode()  # what follows the image is not looked at
    work = {
        "memcpy_htod_async": lambda: t.set(host),
        "memcpy_dtod_async": lambda: t.set(host),
        "memcpy_dtoh_async": t.get,
        "mem_alloc": lambda: be.empty((3 << 20, 1)),
        "module_from_buffer": lambda: be.device.load(fresh, "scale"),
    }[call]
    monkeypatch.setattr(driver, call, failing)
    if call == "memcpy_dtod_async":
        monkeypatch.setattr("neonlike.backends.gpu.memory.transfer.OVERLAPPED_BYTES", 1)
    with pytest.raises((DeviceError, KernelCompileError), match="made up"):
        work()
    assert be.device.usable
    work()
    assert len(calls) == 2
    assert t.get().sum() in (64, 192)


def test_marks_measure_time(be: Any) -> None:
    start, end = be.get_events()
    be.record_mark(start)
    be.ones((100, 100))
    be.record_mark(end)
    be.synchronize_mark(end)
    assert be.get_time(start, end) >= 0
    be.synchronize()


def test_scratch_memory_is_on_the_gpu(be: Any) -> None:
    be.set_scratch_size(1000, 5000)
    first, second = be.scratch_buffer(1000), be.scratch_buffer_offset(5000)
    assert (second - first, first % 128) == (1024, 0)
    be.set_scratch_size(1 << 20)
    assert be.scratch_buffer_offset(100) != second  # in new memory; the old addresses stay good
    be.scratch_buffer_reset()
    assert be.scratch_size == 0
