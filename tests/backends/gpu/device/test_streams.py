"""The GPU backend beside other libraries in the process: their streams, and the contexts that they make current."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.errors import DTypeError
from tests.support.gpu.gpu_env import run_on_gpu

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


def test_streams_of_other_libraries_are_ordered_both_ways(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pycuda.driver as driver

    monkeypatch.setenv("CUEMU_ASYNC", "1")  # on the emulator: what nothing waits for happens late
    t, doubled = be.zeros((64, 1)), be.zeros((64, 1))
    theirs, host = driver.Stream(1), driver.pagelocked_zeros(64, np.float32)  # 1: it does not wait for the default one
    handle = theirs.handle
    for stream in (theirs, handle, SimpleNamespace(cuda_stream=handle), SimpleNamespace(ptr=handle)):
        be.wait_for(stream)
        driver.memset_d32_async(t.ptr, int(np.float32(3).view(np.uint32)), 64, theirs)
        be.wait_for(stream)
        doubled[:] = t * 2
        be.wait_for(stream)
        driver.memcpy_dtoh_async(host, doubled.ptr, theirs)
        theirs.synchronize()
        assert (host == 6).all()
        t[:] = 0
        doubled[:] = 0
        host[:] = 0
    for stream in (SimpleNamespace(__cuda_stream__=lambda: (0, 0)), 0, SimpleNamespace(handle=None)):
        be.wait_for(stream)  # the default stream
    for nonsense in (None, "stream", -1, True, 1.5):
        with pytest.raises(DTypeError, match="wait_for: a stream is that of PyTorch"):
            be.wait_for(nonsense)


def test_dlpack_orders_the_stream_that_asks_for_a_tensor(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pycuda.driver as driver

    monkeypatch.setenv("CUEMU_ASYNC", "1")
    theirs, host, t = driver.Stream(1), driver.pagelocked_zeros(64, np.float32), be.zeros((64, 1))
    t[:] = t + 5
    capsule = t.__dlpack__(stream=theirs.handle)
    driver.memcpy_dtoh_async(host, t.ptr, theirs)
    theirs.synchronize()
    assert (host == 5).all()
    del capsule


def test_a_context_that_another_library_made_current_is_noticed_before_memory_is_taken() -> None:
    """As PyTorch's set_device(1) leaves it: PyCUDA's own stack of contexts does not know of it."""
    done = run_on_gpu("""
import ctypes
from neonlike.backends import gen_backend
from neonlike.errors import DeviceError
be = gen_backend("gpu")
t = be.ones((4, 4))
cuda, mine, other = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuCtxGetCurrent(ctypes.byref(mine)) == 0
assert cuda.cuCtxCreate_v4(ctypes.byref(other), None, 0, 0) == 0 and cuda.cuCtxPopCurrent_v2(None) == 0
assert cuda.cuCtxSetCurrent(other) == 0
for use in (lambda: be.empty((1 << 22, 1)), be.synchronize, t.get):
    try:
        use()
    except DeviceError as error:
        assert "torch.cuda.set_device(0)" in str(error), error
    else:
        raise SystemExit("not noticed")
assert cuda.cuCtxSetCurrent(mine) == 0
assert t.get().sum() == 16
print("noticed")
""")
    assert done.stdout.strip() == "noticed", done.stderr
