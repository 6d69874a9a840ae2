"""Memory of the GPU shared with other libraries: the array interface, DLPack, PyCUDA."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import importlib
import sys
from typing import Any

import numpy as np
import pytest

from neonlike.backends.dlpack import NUMPY_KNOWS_VERSIONS
from neonlike.errors import DTypeError, ShapeError
from tests.support.dtype_cases import EVERY
from tests.support.gpu.gpu_env import needs_pool

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


def driver() -> Any:
    """PyCUDA's, which the fixture has made ready."""
    return importlib.import_module("pycuda.driver")


class Interface:
    """Another library's array, with ``__cuda_array_interface__`` only."""

    def __init__(self, tensor: Any, **changes: Any) -> None:
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, **changes}
        self.tensor = tensor


def test_the_array_interface_describes_views(be: Any) -> None:
    t = be.array(np.arange(12.0).reshape(3, 4), dtype=np.int16)
    found = t.__cuda_array_interface__
    assert found["data"] == (t.ptr, False)
    assert (found["shape"], found["typestr"], found["strides"], found["version"]) == ((3, 4), "<i2", None, 3)
    assert found["stream"] == be.stream.handle
    assert t[:, 1::2].__cuda_array_interface__["strides"] == (8, 4)
    assert be.empty((0, 3)).__cuda_array_interface__["data"] == (0, False)


def test_wrap_shares_device_memory_and_copies_host_memory(be: Any) -> None:
    t = be.zeros((3, 4))
    shared = be.wrap(Interface(t[:, ::2]))
    shared[1] = 5
    assert t.get()[1].tolist() == [5, 0, 5, 0]
    assert (shared.alias_of(t), t.alias_of(shared), shared.root) == (2, 2, None)
    other = driver().Stream()
    for stream in (None, 1, 2, other.handle):
        be.wrap(Interface(t, stream=stream))[0, 0] = 1
    locked = be.wrap(Interface(t, data=(t.ptr, True)))
    locked[:] = 9
    assert t.get().max() == 5
    assert be.wrap(Interface(t, shape=(12,))).shape == (12, 1)
    host = np.ones((2, 2))
    copied = be.wrap(host)
    copied[:] = 3
    assert (host.max(), copied.dtype) == (1, np.float64)
    for options in ({"typestr": "<c8"}, {"typestr": ">f4"}, {"mask": t}, {"strides": (17, 4)}):
        with pytest.raises(DTypeError):
            be.wrap(Interface(t, **options))


def test_foreign_memory_that_overlaps_is_seen(be: Any) -> None:
    t = be.array(np.arange(16.0).reshape(4, 4))
    host, shared = t.get(), be.wrap(Interface(t))
    t[:] = shared.T + t
    assert np.array_equal(t.get(), host.T + host)


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_goes_round(be: Any, dtype: str, versioned: bool) -> None:
    host = np.arange(12).reshape(3, 4) % 2
    t = be.array(host, dtype=dtype)

    class Other:
        """As older libraries, without max_version, or as newer ones."""

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor
            self.__dlpack_device__ = tensor.__dlpack_device__

        def __dlpack__(self, stream: Any = None, **new: Any) -> Any:
            if new and not versioned:
                raise TypeError("max_version")
            assert stream == be.stream.handle
            return self.tensor.__dlpack__(stream=stream, **new)

    for tensor, view in ((t, host), (t.T, host.T), (t[::2, 1:], host[::2, 1:])):
        back = be.from_dlpack(Other(tensor))
        assert (back.dtype, back.ptr, back.strides) == (tensor.dtype, tensor.ptr, tensor.strides)
        assert np.array_equal(back.get(), view.astype(dtype))
    back[:] = 1
    assert t.get()[::2, 1:].all()


def test_dlpack_keeps_the_memory_and_lets_go(be: Any) -> None:
    gc.collect()
    before = be.memory_stats().used
    t = be.ones((1 << 10, 100))
    size = before + t.nbytes
    taken, unused = be.from_dlpack(t), t.__dlpack__()
    del t
    assert be.memory_stats().used >= size
    assert taken.get().sum() == 100 << 10
    del taken
    gc.collect()
    assert be.memory_stats().used >= size  # for the capsule that nobody took
    del unused
    gc.collect()
    assert be.memory_stats().used < size


def test_a_consumer_that_takes_the_capsule_calls_its_deleter(be: Any) -> None:
    from neonlike.backends import dlpack

    api = ctypes.pythonapi
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", api))
    newer = (b"dltensor_versioned", dlpack.Versioned) if NUMPY_KNOWS_VERSIONS else (b"dltensor", dlpack.Plain)
    for version, (name, kind) in ((None, (b"dltensor", dlpack.Plain)), ((1, 0), newer)):
        t = be.ones((3, 4))
        held = sys.getrefcount(t)
        capsule = t.__dlpack__(stream=1, max_version=version)
        address = pointer(capsule, name)
        used = ctypes.create_string_buffer(b"used_" + name)
        rename(capsule, ctypes.cast(used, ctypes.c_char_p))
        struct: Any = kind.from_address(address)
        assert (struct.tensor.ndim, struct.tensor.data, struct.tensor.device.kind) == (2, t.ptr, 2)
        del capsule
        assert sys.getrefcount(t) == held + 1
        struct.deleter(address)
        assert sys.getrefcount(t) == held


def test_a_consumer_that_cannot_take_the_capsule_says_why(be: Any) -> None:
    t = be.ones((3, 4))
    with pytest.raises((BufferError, RuntimeError), match=r"(?i)device"):
        np.from_dlpack(t)
    gc.collect()
    assert sys.getrefcount(t) == 2


@pytest.mark.skipif(not NUMPY_KNOWS_VERSIONS, reason="NumPy before 2.1 makes no capsules with flags")
def test_memory_that_must_not_be_written_is_copied(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from neonlike.backends import dlpack
    from neonlike.backends.gpu.tensors import interop

    t = be.ones((3, 4))
    export = interop.export
    locked = lambda what, versioned: export(dataclasses.replace(what, flags=dlpack.READ_ONLY), versioned)  # noqa: E731
    monkeypatch.setattr(interop, "export", locked)
    copied = be.from_dlpack(t)
    copied[:] = 5
    assert (t.get().max(), copied.get().min(), copied.alias_of(t)) == (1, 5, 0)


def test_dlpack_refuses(be: Any) -> None:
    t = be.ones((2, 2))
    assert t.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError, match="use get"):
        t.__dlpack__(dl_device=(1, 0))
    for wrong in (np.ones((2, 2)), [1], "x"):
        with pytest.raises(DTypeError, match="from_dlpack"):
            be.from_dlpack(wrong)

    class Taken:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **options: Any) -> Any:
            return object()

    with pytest.raises(DTypeError, match="fresh capsule"):
        be.from_dlpack(Taken())
    copy = t.__dlpack__(copy=True, max_version=(1, 0))
    assert copy is not None
    other = driver().Stream()
    for stream in (None, -1, 1, 2, be.stream.handle, other.handle):
        t.__dlpack__(stream=stream)


@needs_pool
def test_memory_that_was_lent_is_waited_for(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, settled = be.device.pool.source, []
    monkeypatch.setattr(source, "settle", lambda: settled.append(1))
    t = be.empty((5, 5))
    del t
    be.empty((5, 5))
    assert settled == []
    t = be.empty((5, 5))
    capsule = t.__dlpack__()
    del t, capsule
    be.empty((5, 5))
    assert settled == [1]


def test_pycuda_takes_tensors(be: Any) -> None:
    driver = pytest.importorskip("pycuda.driver")
    t, back = be.array(np.arange(6.0).reshape(2, 3)), np.empty((2, 3), np.float32)
    be.synchronize()
    driver.memcpy_dtoh(back, t.gpudata)
    assert back.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert len(t.asbuffer()) == t.nbytes
    with pytest.raises(ShapeError, match="asbuffer"):
        t.T.asbuffer()


class Owner:
    """Another library's array on the memory of ``tensor``; once it is freed, others write to the memory."""

    def __init__(self, tensor: Any, freed: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__
        self.freed, self.tensor = freed, tensor

    def __del__(self) -> None:
        self.freed(self.tensor)


def test_foreign_memory_outlives_the_kernels_that_read_it(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for them; another library may use the memory on a stream that does not wait for ours."""
    monkeypatch.setenv("CUEMU_ASYNC", "1")  # on the emulator: what nothing waits for happens late
    cuda, freed = driver(), []
    theirs = cuda.Stream(1)  # it does not wait for the default one

    def spoil(tensor: Any) -> None:
        freed.append(tensor)
        cuda.memset_d32_async(tensor.ptr, 0, tensor.size, theirs)
        theirs.synchronize()

    t, out = be.ones((64, 64)), be.zeros((64, 64))
    be.synchronize()
    taken = be.wrap(Owner(t, spoil))
    out[:] = taken * 2
    before, waits = cuda.Event.synchronize, []
    monkeypatch.setattr(cuda.Event, "synchronize", lambda event: waits.append(event) or before(event), raising=True)
    del taken
    assert not waits
    assert (out.get() == 2).all()
    be.synchronize()
    assert len(freed) == 1 and (t.get() == 0).all()


class Late:
    """An event that is reached when somebody waits for it."""

    def __init__(self, flags: int) -> None:
        self.reached = False

    def record(self, stream: Any) -> None:
        """As PyCUDA's."""

    def query(self) -> bool:
        """As PyCUDA's."""
        return self.reached

    def synchronize(self) -> None:
        """As PyCUDA's."""
        self.reached = True


def test_foreign_memory_is_let_go_in_its_order_and_waited_for_where_it_is_much(
    be: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neonlike.backends.gpu.memory import foreign

    monkeypatch.setattr(foreign.driver, "Event", Late)
    monkeypatch.setattr(foreign, "MOST_BYTES", 3 * 400)
    freed: list[int] = []
    tensors = [be.ones((10, 10)) for _ in range(5)]
    for number, t in enumerate(tensors):
        taken = be.wrap(Owner(t, lambda _, number=number: freed.append(number)))
        del taken
        assert freed == list(range(number - 2))
    events = [event for event, _, _ in be.device.parting._marked]
    assert len(events) == 3
    events[0].reached = True
    be.synchronize()
    assert freed == [0, 1, 2]
    for event in events:
        event.reached = True
    kept = be.wrap(Interface(tensors[0]))
    assert sorted(freed) == [0, 1, 2, 3, 4]
    monkeypatch.undo()
    del kept


def test_foreign_memory_that_goes_while_a_graph_is_captured_is_no_part_of_it(be: Any) -> None:
    freed: list[Any] = []
    held, meanwhile = [be.wrap(Owner(be.ones((4, 4)), freed.append))], []
    out = be.zeros((4, 4))
    step = be.prepare(out, out + 1)
    step()
    graph = be.device.capture.graph([step, held.clear, lambda: meanwhile.extend(freed)])
    be.synchronize()
    assert (graph.nodes, len(meanwhile), len(freed)) == (1, 0, 1)
