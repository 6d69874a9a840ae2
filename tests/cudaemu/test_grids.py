"""The emulated driver where there are several devices, and where blocks of a launch wait for each other."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cudaemu import Emulator
from tests.cudaemu.kernels import ADD, compile_cubin, load

pytestmark = pytest.mark.emulator


@pytest.fixture
def emulator(gpu_driver: Any) -> Emulator:
    assert gpu_driver.emulator is not None
    return gpu_driver.emulator


class TestSeveralDevices:
    @pytest.fixture(autouse=True)
    def two(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUEMU_DEVICES", "2")

    def test_each_has_its_contexts_and_a_place_on_the_bus(self, cuda: Any) -> None:
        assert cuda.Device.count() == 2
        assert cuda.Device(0).pci_bus_id() != cuda.Device(1).pci_bus_id()
        assert cuda.Device(cuda.Device(1).pci_bus_id()) == cuda.Device(1)
        made = cuda.Device(1).make_context()
        assert cuda.Context.get_device() == cuda.Device(1)
        cuda.Context.pop()
        assert cuda.Context.get_device() == cuda.Device(0)
        with pytest.raises(cuda.LogicError, match="2 devices"):
            cuda.Device(2)
        del made

    def test_streams_and_kernels_belong_to_the_context_they_were_made_in(self, cuda: Any) -> None:
        kernel, stream = load(ADD), cuda.Stream()
        made = cuda.Device(1).make_context()
        x = cuda.to_device(np.ones(4, np.float32))
        try:
            with pytest.raises(cuda.LogicError, match="loaded in another context"):
                kernel(x, x, np.float32(1), np.int32(4), block=(4, 1, 1))
            with pytest.raises(cuda.LogicError, match="the stream belongs to another context"):
                stream.synchronize()
        finally:
            x.free()
            cuda.Context.pop()
            del made


class TestCooperativeLaunches:
    SOURCE = """extern "C" __global__ void k(unsigned *arrived, unsigned *seen) {
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(arrived, 1u);
            while (cuemu::load_acquire(arrived) < gridDim.x) __nanosleep(100);
        }
        __syncthreads();
        if (threadIdx.x == 40) seen[blockIdx.x] = __ldcg(arrived);
    }"""

    def launch(self, emulator: Emulator, blocks: int, *pointers: Any) -> int:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        assert emulator.library.cuModuleLoadData(ctypes.byref(module), compile_cubin(self.SOURCE)) == 0
        assert emulator.library.cuModuleGetFunction(ctypes.byref(function), module, b"k") == 0
        values = [ctypes.c_uint64(int(each)) for each in pointers]
        arguments = (ctypes.c_void_p * len(values))(*[ctypes.addressof(each) for each in values])
        status = emulator.library.cuLaunchCooperativeKernel(function, blocks, 1, 1, 64, 1, 1, 0, None, arguments)
        return int(status)

    @pytest.mark.parametrize("order", ["forward", "reverse", "random"])
    def test_all_blocks_are_there_at_once(
        self, cuda: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch, order: str
    ) -> None:
        monkeypatch.setenv("CUEMU_ORDER", order)
        arrived, seen = cuda.to_device(np.zeros(1, np.uint32)), cuda.to_device(np.zeros(7, np.uint32))
        assert self.launch(emulator, 7, arrived, seen) == 0
        assert (cuda.from_device(seen, 7, np.uint32) == 7).all()

    def test_stacks_of_many_threads_are_given_back(self, cuda: Any, emulator: Emulator) -> None:
        """Each is two mappings of memory, and a process may have 65530."""

        def mappings() -> int:
            return len(Path("/proc/self/maps").read_text().splitlines())

        before = mappings()
        for blocks in (100, 100, 3):
            arrived, seen = cuda.to_device(np.zeros(1, np.uint32)), cuda.to_device(np.zeros(blocks, np.uint32))
            assert self.launch(emulator, blocks, arrived, seen) == 0
            assert (cuda.from_device(seen, blocks, np.uint32) == blocks).all()
            assert mappings() - before < 2 * 2048 + 500, "not those of 6,400 threads"

    def test_more_blocks_than_fit_are_refused(
        self, cuda: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUEMU_SMS", "2")
        memory = cuda.to_device(np.zeros(99, np.uint32))
        assert self.launch(emulator, 65, memory, memory) == 720  # 32 blocks of two warps on each
