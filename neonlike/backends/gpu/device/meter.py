"""Times kernels in bench mode: events on the stream, read when somebody asks; and the rates of the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pycuda.driver as driver

from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.kernels.bench.machine_rates import BUDGET, MachineRates, best_seconds, best_square_rate
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Call

COPY_BYTES = 512 << 20
"""Read and written by the measured copy, half each: several times of what caches hold."""
COPY_SHARE = 4
"""The copy takes no more than this part of the free memory."""
GEMM_SIZES = dict.fromkeys((256, 512, 1024, 2048, 4096, 8192), 2 * BUDGET)
"""Edges of the square matrices multiplied -> seconds that a run may be expected to take, else that size is left out."""
RANDOM_BYTES = 4 << 20
"""Period of the copied bytes, which are random: hardware may copy compressible data, such as zeros, faster."""

PAUSE = """extern "C" __global__ void {{ name }}(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
}
"""
PAUSE_CYCLES = 100_000

_rates: dict[tuple[Any, ...], float] = {}
"""GB/s of a device's copy, and GFLOP/s of its products by dtype; measured once a process."""


class EventMeter:
    """Marks are events on the stream of ``device``, used again once they were read.

    Parameters
    ----------
    device : GpuDevice
    make : callable
        A backend on the device without bench mode: its products are measured.
    """

    def __init__(self, device: GpuDevice, make: Callable[[], Any]) -> None:
        self.device, self._make = device, make
        self._free: list[Any] = []
        self._pause: Call | None = None

    def mark(self) -> Any:
        """An event, recorded when all that was queued before has run."""
        self.device.attend()
        try:
            event = self._free.pop()
        except IndexError:
            event = driver.Event()
        event.record(self.device.stream)
        return event

    def occupy(self) -> None:
        """Queue a kernel that does nothing for some 50 us, longer than a call takes."""
        if self._pause is None:
            self._pause = CudaRoutine(PAUSE, "q", "a pause").bind(self.device, (1, 1, 1), (1, 1, 1), [PAUSE_CYCLES])
        self._pause()

    def seconds(self, start: Any, end: Any) -> float:
        """From one event to another, after waiting for it."""
        self.device.attend()
        try:
            end.synchronize()
            seconds = 1e-3 * float(end.time_since(start))
        except driver.Error as error:
            self.device.fail("a time mark", error)
        self._free += [start, end]
        return seconds

    def measure(self, run: Callable[[], Any]) -> float:
        """Seconds that what ``run`` queues takes."""
        start = self.mark()
        run()
        return max(self.seconds(start, self.mark()), 1e-9)

    # Rates

    def rates(self, dtypes: tuple[str, ...]) -> MachineRates:
        """GB/s of a copy within the device's memory, and GFLOP/s of products of square matrices of ``dtypes``."""
        device = self.device
        copy = self._once("copy", self._copy_rate)
        gemm = {name: self._once(name, partial(self._gemm_rate, name)) for name in dtypes}
        return MachineRates(0, copy, gemm, device.name)

    def _once(self, what: str, measure: Callable[[], float]) -> float:
        key = (*self.device.identity, what)
        if key not in _rates:
            _rates[key] = measure()
        return _rates[key]

    def _copy_rate(self) -> float:
        device = self.device
        device.attend()
        nbytes = min(COPY_BYTES, driver.mem_get_info()[0] // COPY_SHARE) // 512 * 256  # of one of the two
        source, target = device.allocate(nbytes), device.allocate(nbytes)
        self._fill(source.address, nbytes)
        run = lambda: driver.memcpy_dtod_async(target.address, source.address, nbytes, device.stream)  # noqa: E731
        return 2 * nbytes / best_seconds(run, measure=self.measure) / 1e9

    def _fill(self, address: int, nbytes: int) -> None:
        """Fill memory with ``RANDOM_BYTES`` random bytes, repeated."""
        done = min(RANDOM_BYTES, nbytes)
        block = self.device.view(None, address, (done,), (1,), np.dtype(np.uint8))
        self.device.from_host(np.random.default_rng(0).integers(0, 256, done, np.uint8), block)
        while done < nbytes:
            part = min(done, nbytes - done)
            driver.memcpy_dtod_async(address + done, address, part, self.device.stream)
            done += part

    def _gemm_rate(self, dtype: str) -> float:
        with self._make() as be:

            def product(size: int) -> Callable[[], Any]:
                a, b, out = (be.empty((size, size), dtype=dtype) for _ in range(3))
                for tensor in (a, b):
                    tensor[:] = be.rand() - 0.5
                run: Callable[[], Any] = be.prepare(out, be.dot(a, b))
                return run

            return best_square_rate(product, GEMM_SIZES, self.measure)
