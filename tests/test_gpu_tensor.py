"""Tensors on a GPU: what differs from host memory, sharing with other libraries, and stages on host copies."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import sys
from typing import Any, ClassVar

import numpy as np
import pytest
from gpu_env import needs_pool

from neonlike.backends import NervanaCPU, cleanup_backend
from neonlike.backends.dlpack import NUMPY_KNOWS_VERSIONS
from neonlike.errors import BackendUnavailable, DTypeError, IndexRangeError, ShapeError
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.planning.planner import make_plan
from neonlike.kernels.run.stage import CopyBack, Run

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]

DTYPES = [
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool",
]  # fmt: skip


# Tensors


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_set_comes_back(be: Any, dtype: str) -> None:
    host = np.arange(12).reshape(3, 4) % (2 if dtype == "bool" else 100)
    t = be.array(host, dtype=dtype)
    assert (t.dtype, t.get().tolist(), t.T.get().tolist()) == (dtype, host.tolist(), host.T.tolist())
    assert t[1:, ::2].get().tolist() == host[1:, ::2].tolist()
    assert t.gpudata == t.ptr == t.raw() == t.address
    assert t[1:].ptr - t.ptr == 4 * t.dtype.itemsize
    assert (t.strides, t.T.strides, t.is_contiguous, t.T.is_contiguous) == ((4, 1), (1, 4), True, False)


def test_conversions_round_and_saturate_as_on_the_cpu(be: Any) -> None:
    host = np.array([[300.7, -5.5, 2.5, np.nan, 1e30]])
    other = NervanaCPU()
    for dtype in DTYPES[:-1]:
        t, wanted = be.empty((1, 5), dtype=dtype), other.empty((1, 5), dtype=dtype)
        t.set(host)
        wanted.set(host)
        np.testing.assert_array_equal(t.get().astype(np.float64), wanted.get().astype(np.float64))


def test_host_arrays_are_copies(be: Any) -> None:
    t = be.ones((2, 2))
    for host in (t.get(), t.asnumpyarray(), np.asarray(t), np.array(t), t.get(stream=be.stream)):
        host[:] = 5
    assert t.get().tolist() == [[1, 1], [1, 1]]
    assert np.asarray(t, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="must be copied"):
        t.__array__(copy=False)
    assert not t.live_host


def test_a_closed_backend_refuses(be: Any) -> None:
    t = be.ones((2, 2))
    cleanup_backend()
    for call in (
        t.get, lambda: t.set(np.ones((2, 2))), lambda: t[[0]], lambda: t.__dlpack__(), lambda: np.asarray(t),
        lambda: t.__cuda_array_interface__, lambda: be.from_dlpack(t), lambda: be.wrap(np.ones((2, 2))),
    ):  # fmt: skip
        with pytest.raises(BackendUnavailable, match="closed"):
            call()


def test_the_array_interface_has_no_bfloat16(be: Any) -> None:
    t = be.ones((2, 2), dtype="bfloat16")
    for call in (lambda: t.__cuda_array_interface__, lambda: be.wrap(t), lambda: be.wrap(Untyped())):
        with pytest.raises(DTypeError, match=r"bfloat16.*from_dlpack"):
            call()


class Untyped:
    """As bfloat16 would be given out."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {"typestr": "<V2", "shape": (1, 1), "data": (0, False)}


def test_views_share_memory_and_know_it(be: Any) -> None:
    t = be.zeros((4, 6))
    view = t[1:3, ::2]
    view[:] = 1
    t.T[5] = 7
    assert t.get().sum() == 6 + 4 * 7
    assert (view.alias_of(t), t.alias_of(t[:, :]), t.alias_of(be.zeros((4, 6)))) == (2, 1, 0)
    assert (t[:, ::2].alias_of(t[:, 1::2]), t[:2].alias_of(t[2:]), t[:2].alias_of(t[1:])) == (0, 0, 2)
    assert t.alias_of(t.share((4, 6), dtype=np.int32)) == 2
    assert (view.base, t[...].base, view._original_base) == (t, None, t)
    assert t.reshape(6, 4).base is t
    assert t.reshape(4, 6) is t
    with pytest.raises(ShapeError, match="no view"):
        t.T.reshape(24, 1)


def test_share(be: Any) -> None:
    t = be.array(np.arange(12.0).reshape(3, 4))
    view = t.share((2, 3), name="v")
    assert (view.get().tolist(), view.name) == ([[0, 1, 2], [3, 4, 5]], "v")
    assert t.share(5).shape == (5, 1)
    assert t.share((3, 8), np.float16).dtype == np.float16
    for wrong in (lambda: t.share((4, 4)), lambda: t.share((3, 4), np.float64), lambda: t.T.share((2, 2))):
        with pytest.raises(ShapeError, match="share"):
            wrong()


def test_gathering_and_scattering(be: Any) -> None:
    host = np.arange(20.0).reshape(4, 5)
    t = be.array(host)
    assert t[[2, 0, 2]].get().tolist() == host[[2, 0, 2]].tolist()
    assert t[:, be.array([[1, 3]], dtype=np.int32)].get().tolist() == host[:, [1, 3]].tolist()
    t[[3, 1, 3]] = be.array(np.arange(15.0).reshape(3, 5) + 100)
    host[[3, 1, 3]] = np.arange(15.0).reshape(3, 5) + 100
    assert np.array_equal(t.get(), host)
    t[:, [0, 4]] = t[:, [4, 0]]  # all of the right side comes first
    host[:, [0, 4]] = host[:, [4, 0]]
    assert np.array_equal(t.get(), host)
    t[[]] = 5
    assert np.array_equal(t.get(), host)
    with pytest.raises(IndexRangeError):
        t[[4]] = 1
    with pytest.raises(ShapeError):
        t[[0, 1]] = be.ones((3, 5))
    assert np.array_equal(t.get(), host)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 5), (2, 0, 4)])
def test_small_and_empty_tensors(be: Any, shape: tuple[int, ...]) -> None:
    host = np.ones(shape)
    t = be.array(host)
    out = be.empty(shape)
    out[:] = t * 2 + 1
    assert np.array_equal(out.get(), host * 2 + 1)
    assert out.T.get().shape == be.array(host).T.shape
    assert be.from_dlpack(out).shape == shape
    assert be.sum(t).asnumpyarray().sum() == t.size


def test_overlapping_copies(be: Any) -> None:
    host = np.arange(100.0).reshape(10, 10)
    for target, source in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1]), (np.s_[::-1], np.s_[:])):
        t, wanted = be.array(host), host.copy()
        t[target] = t[source]
        wanted[target] = host[source].copy()
        assert np.array_equal(t.get(), wanted)
    t = be.array(host)
    t[:] = t.T
    assert np.array_equal(t.get(), host.T)


def test_random_numbers_are_those_of_the_cpu(be: Any) -> None:
    cpu = NervanaCPU(rng_seed=0)
    for made in (lambda b: b.rand(b.empty((33, 17))), lambda b: b.dropout(0.3, b.empty((5, 7)))):
        assert np.array_equal(made(be).get(), made(cpu).get())
    ours, theirs = be.empty((4, 4)), cpu.empty((4, 4))
    be.make_binary_mask(ours)
    cpu.make_binary_mask(theirs)
    assert np.array_equal(ours.get(), theirs.get())


def test_primitives_run_by_their_definitions(be: Any) -> None:
    a, b, c = be.array(np.arange(6.0).reshape(2, 3)), be.array(np.ones((3, 4))), be.ones((2, 4))
    be.compound_dot(a, b, c, alpha=2.0, beta=1.0)
    assert c.get().tolist() == [[7] * 4, [25] * 4]
    layer = be.pool_layer(be.default_dtype, "max", 16, 1, 1, 4, 4, 1, 1, 2, 2, 0, 0, 0, 0, 1, 2, 2)
    x = np.random.default_rng(0).random((16, 16))
    out, argmax = be.empty((4, 16)), be.empty((4, 16), dtype=np.uint8)
    be.fprop_pool(layer, be.array(x), out, argmax)
    corners = x.reshape(2, 2, 2, 2, 16).transpose(0, 2, 1, 3, 4).reshape(4, 4, 16)
    np.testing.assert_allclose(out.get(), corners.max(1), rtol=1e-6)
    assert np.array_equal(argmax.get(), corners.argmax(1))


# Sharing with other libraries


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
    for stream in (None, 1, 2, 12345):
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


@pytest.mark.parametrize("dtype", DTYPES)
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
    t = be.ones((1 << 10, 100))
    size = t.nbytes
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
    from neonlike.backends.gpu import interop

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
    for stream in (None, -1, 1, 2, be.stream.handle, 98765):
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


# Stages on host copies


def test_stages_may_run_on_host_copies_one_by_one(be: Any) -> None:
    from neonlike.backends.gpu.host_stage import HostStage

    x, y, out = be.array(np.arange(12.0).reshape(3, 4)), be.array(np.ones((4, 5))), be.zeros((3, 5))
    small = be.zeros((3, 1))
    product = be.dot(x * 2, y)
    pairs = [(out, be.exp(product - be.max(product, axis=1))), (small, be.sum(product, axis=1))]
    graph = linearize(pairs)
    plan = make_plan(graph)
    assert len(plan.stages) > 2
    run = Run(graph)
    for position in range(len(plan.stages)):
        HostStage(be.device, plan, position, graph).run(run)
    assert all(hasattr(array, "address") for array in run.temps.values())
    wanted = 2 * x.get() @ y.get()
    np.testing.assert_allclose(out.get(), np.exp(wanted - wanted.max(1, keepdims=True)), rtol=1e-6)
    np.testing.assert_allclose(small.get(), wanted.sum(1, keepdims=True), rtol=1e-6)


def test_a_stage_whose_target_is_still_read_leaves_it_for_the_copy_at_the_end(be: Any) -> None:
    from neonlike.backends.gpu.host_stage import HostStage

    t = be.array(np.arange(9.0).reshape(3, 3))
    before = t.get()
    graph = linearize([(t, t.T + 1)])
    plan = make_plan(graph)
    run = Run(graph)
    HostStage(be.device, plan, 0, graph).run(run)
    assert np.array_equal(t.get(), before)
    assert list(run.temps) == [-1]
    assert CopyBack(0)  # which the engine of the device does with its own copies
    assert np.array_equal(be.device.to_host(run.temps[-1]), before.T + 1)
