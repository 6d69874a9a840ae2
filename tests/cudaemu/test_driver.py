"""The emulated driver through real PyCUDA: contexts, memory, copies, streams, events."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.cudaemu import Emulator
from tests.cudaemu.kernels import ADD, load

pytestmark = pytest.mark.emulator

class TestDevice:
    def test_one_device_with_the_limits_of_an_h100(self, cuda: Any) -> None:
        device = cuda.Device(0)
        attribute = cuda.device_attribute
        assert cuda.Device.count() == 1
        assert device.compute_capability() == (9, 0)
        assert device.get_attribute(attribute.WARP_SIZE) == 32
        assert device.get_attribute(attribute.MULTIPROCESSOR_COUNT) == 132
        assert device.get_attribute(attribute.MAX_THREADS_PER_BLOCK) == 1024
        assert device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK) == 48 * 1024

    def test_the_environment_chooses_an_a100_and_its_memory(
        self, cuda: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUEMU_CC", "80")
        monkeypatch.setenv("CUEMU_MEM_MB", "16")
        assert cuda.Device(0).compute_capability() == (8, 0)
        assert cuda.Device(0).get_attribute(cuda.device_attribute.MULTIPROCESSOR_COUNT) == 108
        assert cuda.mem_get_info()[1] == 16 << 20

    def test_a_second_device_is_refused(self, cuda: Any) -> None:
        with pytest.raises(cuda.LogicError, match="one device, number 0"):
            cuda.Device(1)


class TestContexts:
    def test_push_and_pop_keep_a_stack(self, cuda: Any) -> None:
        first = cuda.Context.get_current()
        second = cuda.Device(0).make_context()
        assert cuda.Context.get_current() == second
        cuda.Context.pop()
        assert cuda.Context.get_current() == first
        second.push()
        assert cuda.Context.get_current() == second
        cuda.Context.pop()

    def test_the_primary_context_is_one_for_good(self, emulator: Emulator) -> None:
        """Through ctypes: PyCUDA leaves a primary context on the stack when it lets go of it."""
        library, handles = emulator.library, [ctypes.c_void_p() for _ in range(3)]
        for handle in handles[:2]:
            assert library.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0) == 0
        assert library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert library.cuCtxPushCurrent_v2(handles[0]) == 0
        assert library.cuCtxSynchronize() == 0
        assert library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert library.cuDevicePrimaryCtxRetain(ctypes.byref(handles[2]), 0) == 0
        assert library.cuCtxSynchronize() == 0
        assert library.cuCtxPopCurrent_v2(None) == 0
        assert library.cuDevicePrimaryCtxRelease_v2(0) == 0
        assert handles[0].value == handles[1].value == handles[2].value

    def test_memory_goes_with_its_context(self, cuda: Any) -> None:
        free = cuda.mem_get_info()[0]
        other = cuda.Device(0).make_context()
        memory = cuda.mem_alloc(1 << 20)
        assert cuda.mem_get_info()[0] == free - (1 << 20)
        cuda.Context.pop()
        other.detach()
        assert cuda.mem_get_info()[0] == free
        assert memory is not None

    def test_without_a_context_calls_say_so(self, cuda: Any) -> None:
        """Contexts are current in one thread: a new one has none."""
        with (
            ThreadPoolExecutor(1) as pool,
            pytest.raises(cuda.LogicError, match="no context is current in this thread"),
        ):
            pool.submit(cuda.mem_alloc, 16).result()


class TestMemory:
    def test_a_round_trip_keeps_every_byte(self, cuda: Any, rng: np.random.Generator) -> None:
        host = rng.integers(0, 256, 100_003, dtype=np.uint8)
        assert (cuda.from_device(cuda.to_device(host), host.shape, host.dtype) == host).all()

    def test_new_memory_holds_nans(self, cuda: Any) -> None:
        memory = cuda.mem_alloc(64)
        assert np.isnan(cuda.from_device(memory, (16,), np.float32)).all()

    def test_addresses_are_aligned_and_free_memory_is_counted(self, cuda: Any) -> None:
        free, total = cuda.mem_get_info()
        pieces = [cuda.mem_alloc(nbytes) for nbytes in (1, 255, 256, 257, 4096, 5000)]
        assert all(int(piece) % 256 == 0 for piece in pieces)
        assert cuda.mem_get_info() == (free - 1 - 255 - 256 - 257 - 4096 - 5000, total)
        for piece in pieces:
            piece.free()
        assert cuda.mem_get_info()[0] == free

    def test_out_of_memory_names_the_sizes(self, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUEMU_MEM_MB", "1")
        with pytest.raises(cuda.MemoryError, match=r"2097152 bytes asked for, \d+ of 1048576 free"):
            cuda.mem_alloc(2 << 20)

    def test_allocations_can_be_made_to_fail(self, cuda: Any, emulator: Emulator) -> None:
        with emulator.failing_allocations(after=1):
            kept = cuda.mem_alloc(16)
            with pytest.raises(cuda.MemoryError):
                cuda.mem_alloc(16)
        assert cuda.mem_alloc(16) and kept

    def test_copies_between_allocations_and_out_of_bounds(self, cuda: Any) -> None:
        source, target = cuda.to_device(np.arange(8, dtype=np.float32)), cuda.mem_alloc(32)
        cuda.memcpy_dtod(target, source, 32)
        assert (cuda.from_device(target, (8,), np.float32) == np.arange(8)).all()
        with pytest.raises(cuda.LogicError, match=r"33 bytes at .* are not inside one device allocation"):
            cuda.memcpy_dtod(target, source, 33)

    @pytest.mark.parametrize(
        ("function", "dtype"), [("memset_d8", "u1"), ("memset_d16", "u2"), ("memset_d32", "u4")]
    )
    def test_fills_of_every_width(self, cuda: Any, function: str, dtype: str) -> None:
        memory = cuda.mem_alloc(16 * np.dtype(dtype).itemsize)
        getattr(cuda, function)(memory, 0xA5, 16)
        assert (cuda.from_device(memory, (16,), dtype) == 0xA5).all()
        getattr(cuda, f"{function}_async")(memory, 0x11, 16, cuda.Stream())
        cuda.Context.synchronize()
        assert (cuda.from_device(memory, (16,), dtype) == 0x11).all()

    def test_copies_of_boxes(self, cuda: Any) -> None:
        host = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)
        memory, pitch = cuda.mem_alloc_pitch(32, 6, 4)
        copy = cuda.Memcpy2D()
        copy.set_src_host(host)
        copy.set_dst_device(memory)
        copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 32, pitch, 32, 6
        copy(aligned=False)
        back = np.zeros((3, 2), np.float32)
        copy = cuda.Memcpy2D()
        copy.set_src_device(memory)
        copy.set_dst_host(back)
        copy.src_x_in_bytes, copy.src_y = 8, 1
        copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = pitch, 8, 8, 3
        copy(aligned=False)
        assert pitch % 512 == 0
        assert (back == host[1:4, 2:4]).all()

    def test_pinned_memory_is_known_and_kernels_may_use_it(self, cuda: Any) -> None:
        pinned = cuda.pagelocked_zeros(64, np.float32, mem_flags=cuda.host_alloc_flags.DEVICEMAP)
        address = np.intp(pinned.base.get_device_pointer())
        load(ADD)(
            address, cuda.to_device(np.ones(64, np.float32)), np.float32(3), np.int32(64), block=(64, 1, 1)
        )
        cuda.Context.synchronize()
        assert (pinned == 3).all()

    def test_host_arrays_can_be_registered(self, cuda: Any, emulator: Emulator) -> None:
        """Through ctypes: PyCUDA 2026.1's own register_host_memory ends the process."""
        array, memory = np.zeros(64, np.uint8), cuda.to_device(np.ones(64, np.uint8))
        address, nbytes = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(64)
        assert emulator.library.cuMemHostRegister_v2(address, nbytes, 0) == 0
        cuda.memcpy_dtoh_async(array, memory, cuda.Stream())
        cuda.Context.synchronize()
        assert array.all()
        assert emulator.library.cuMemHostUnregister(address) == 0
        assert emulator.library.cuMemHostUnregister(address) == 713

    def test_freeing_twice_is_an_error(self, cuda: Any, emulator: Emulator) -> None:
        assert emulator.library.cuMemFree_v2(ctypes.c_uint64(12345)) == 1


class TestStreamsAndEvents:
    @pytest.fixture(autouse=True)
    def late(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Work on streams happens when something waits for it."""
        monkeypatch.setenv("CUEMU_ASYNC", "1")

    def test_work_is_late_until_it_is_waited_for(self, cuda: Any) -> None:
        stream, memory = cuda.Stream(), cuda.to_device(np.zeros(4, np.uint32))
        host = cuda.pagelocked_zeros(4, np.uint32)
        cuda.memset_d32_async(memory, 7, 4, stream)
        cuda.memcpy_dtoh_async(host, memory, stream)
        assert (host == 0).all()
        assert not stream.is_done()
        stream.synchronize()
        assert (host == 7).all() and stream.is_done()

    def test_events_tell_time_and_order(self, cuda: Any) -> None:
        stream, begin, end, memory = cuda.Stream(), cuda.Event(), cuda.Event(), cuda.mem_alloc(64)
        begin.record(stream)
        cuda.memset_d32_async(memory, 7, 16, stream)
        end.record(stream)
        assert not begin.query() or not end.query()
        end.synchronize()
        assert begin.query() and end.time_since(begin) >= 0

    def test_a_stream_waits_for_an_event_of_another(self, cuda: Any) -> None:
        first, second, event = cuda.Stream(), cuda.Stream(), cuda.Event()
        memory, host = cuda.to_device(np.zeros(4, np.uint32)), cuda.pagelocked_zeros(4, np.uint32)
        cuda.memset_d32_async(memory, 7, 4, first)
        event.record(first)
        second.wait_for_event(event)
        cuda.memcpy_dtoh_async(host, memory, second)
        second.synchronize()
        assert (host == 7).all()

    def test_pageable_memory_is_read_before_the_call_returns(self, cuda: Any) -> None:
        stream, memory, host = cuda.Stream(), cuda.mem_alloc(16), np.full(4, 5, np.uint32)
        cuda.memcpy_htod_async(memory, host, stream)
        host[:] = 0
        stream.synchronize()
        assert (cuda.from_device(memory, (4,), np.uint32) == 5).all()

    def test_the_null_stream_waits_for_the_others(self, cuda: Any) -> None:
        stream, memory = cuda.Stream(), cuda.to_device(np.zeros(4, np.uint32))
        cuda.memset_d32_async(memory, 7, 4, stream)
        assert (cuda.from_device(memory, (4,), np.uint32) == 7).all()

    def test_a_failed_kernel_is_reported_where_the_stream_is_waited_for(self, cuda: Any) -> None:
        stream, memory = cuda.Stream(), cuda.to_device(np.zeros(1, np.float32))
        load('extern "C" __global__ void k(float *y) { __trap(); }')(memory, block=(1, 1, 1), stream=stream)
        with pytest.raises(cuda.LaunchError, match=r"__trap\(\) on line 1"):
            stream.synchronize()

    def test_memory_can_be_freed_in_stream_order(self, cuda: Any, emulator: Emulator) -> None:
        free, stream = cuda.mem_get_info()[0], cuda.Stream()
        memory = ctypes.c_uint64(0)
        handle = ctypes.c_void_p(stream.handle)
        assert emulator.library.cuMemAllocAsync(ctypes.byref(memory), ctypes.c_size_t(1000), handle) == 0
        assert emulator.library.cuMemFreeAsync(memory, handle) == 0
        assert cuda.mem_get_info()[0] == free - 1000
        stream.synchronize()
        assert cuda.mem_get_info()[0] == free


def test_the_environment_leads_programs_to_the_emulator(emulator: Emulator) -> None:
    assert os.environ["NEONLIKE_NVCC"] == str(emulator.folder / "bin" / "nvcc")
    assert str(emulator.folder / "lib") in os.environ["LD_LIBRARY_PATH"]


class TestGraphs:
    """Through ctypes, which the product uses too: PyCUDA 2026.1 has no graphs."""

    @pytest.fixture(params=["0", "1"], autouse=True)
    def late(self, request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUEMU_ASYNC", request.param)

    @staticmethod
    def begin(emulator: Emulator, stream: Any, mode: int = 0) -> None:
        assert emulator.library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream.handle), mode) == 0

    @staticmethod
    def end(emulator: Emulator, stream: Any) -> tuple[int, Any]:
        """Status and the executable of the graph."""
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        status = emulator.library.cuStreamEndCapture(ctypes.c_void_p(stream.handle), ctypes.byref(graph))
        if not status:
            assert emulator.library.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_uint64(0)) == 0
            assert emulator.library.cuGraphDestroy(graph) == 0
        return status, made

    def test_recorded_work_runs_at_each_launch_only(self, cuda: Any, emulator: Emulator) -> None:
        stream, x, y = cuda.Stream(), cuda.to_device(np.ones(64, np.float32)), cuda.to_device(np.zeros(64, np.float32))
        kernel = load(ADD)
        self.begin(emulator, stream)
        for _ in range(2):
            kernel(y, x, np.float32(3), np.int32(64), block=(64, 1, 1), stream=stream)
        status, graph = self.end(emulator, stream)
        assert status == 0
        stream.synchronize()
        assert (cuda.from_device(y, 64, np.float32) == 0).all()
        for _ in range(2):
            assert emulator.library.cuGraphLaunch(graph, ctypes.c_void_p(stream.handle)) == 0
        assert emulator.library.cuGraphExecDestroy(graph) == 0
        stream.synchronize()
        assert (cuda.from_device(y, 64, np.float32) == 12).all()

    def test_streams_fork_and_join_by_events(self, cuda: Any, emulator: Emulator) -> None:
        first, second, forked, joined = cuda.Stream(), cuda.Stream(), cuda.Event(), cuda.Event()
        memory, copy = cuda.to_device(np.zeros(4, np.uint32)), cuda.to_device(np.zeros(4, np.uint32))
        self.begin(emulator, first)
        cuda.memset_d32_async(memory, 7, 4, first)
        forked.record(first)
        second.wait_for_event(forked)
        cuda.memcpy_dtod_async(copy, memory, 16, second)
        joined.record(second)
        first.wait_for_event(joined)
        cuda.memset_d32_async(memory, 9, 4, first)
        status, graph = self.end(emulator, first)
        assert status == 0
        assert emulator.library.cuGraphLaunch(graph, ctypes.c_void_p(second.handle)) == 0
        second.synchronize()
        assert (cuda.from_device(copy, 4, np.uint32) == 7).all()
        assert (cuda.from_device(memory, 4, np.uint32) == 9).all()

    def test_work_that_nothing_waits_for_is_refused(self, cuda: Any, emulator: Emulator) -> None:
        first, second, forked = cuda.Stream(), cuda.Stream(), cuda.Event()
        memory = cuda.to_device(np.zeros(4, np.uint32))
        self.begin(emulator, first)
        forked.record(first)
        second.wait_for_event(forked)
        cuda.memset_d32_async(memory, 7, 4, second)
        assert self.end(emulator, first)[0] == 904  # UNJOINED
        cuda.memset_d32_async(memory, 8, 4, second)
        second.synchronize()
        assert (cuda.from_device(memory, 4, np.uint32) == 8).all()

    @pytest.mark.parametrize(("what", "mode"), [
        ("wait", 2), ("query", 2), ("null stream", 2), ("whole device", 2), ("allocate", 0), ("outside", 2),
    ])
    def test_what_a_driver_refuses_spoils_the_recording(
        self, cuda: Any, emulator: Emulator, what: str, mode: int
    ) -> None:
        stream, other, memory = cuda.Stream(), cuda.Stream(), cuda.to_device(np.zeros(4, np.uint32))
        event = cuda.Event()
        event.record(other)
        does = {
            "wait": stream.synchronize,
            "query": stream.is_done,
            "null stream": lambda: cuda.memset_d32(memory, 1, 4),
            "whole device": cuda.Context.synchronize,
            "allocate": lambda: cuda.mem_alloc(16),
            "outside": lambda: stream.wait_for_event(event),
        }
        self.begin(emulator, stream, mode)
        with pytest.raises(cuda.Error):
            does[what]()
        assert self.end(emulator, stream)[0] == 901  # INVALIDATED
        stream.synchronize()
