"""The histogram's CUDA kernel, for the hook of ``StatsFamily``; the other statistics are expressions."""

from __future__ import annotations

from typing import Any

from neonlike.backends.gpu.primitives.elements import BLOCK, element_types
from neonlike.backends.gpu.primitives.operands import plain
from neonlike.backends.tensors.stats import Histogram, StatsFamily
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.fit import ALIGNMENT, THREADS
from neonlike.kernels.cuda.queue import Queue
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.optree.dtypes import F32, is_float

ROUTINE = CudaRoutine("cuda/histogram.cu.j2", "2Q3q", "histogram of exponents")
MOST_SHARED = 4096
"""Bins that a block counts in shared memory; more are counted where they are."""
TURNS = 8
"""Vectors of a thread, at least, before another block takes part."""
MOST_BLOCKS = 8
"""For each multiprocessor."""


class StatsCuda(StatsFamily):
    """Override of StatsFamily's hook."""

    device: Device
    queue: Queue

    def _histogram(self, request: Histogram, tensor: Any, row: Any) -> None:
        self.queue.fill(row.array, 0.0)()
        values = plain(tensor, tensor.dtype if is_float(tensor.dtype) else F32)
        if values.size == 0:
            return
        vector = 1 if values.address % ALIGNMENT else ALIGNMENT // values.dtype.itemsize
        context = element_types(values.dtype, vector, (values.size,))
        context["kept"] = request.bins if request.bins <= MOST_SHARED else 0
        most = MOST_BLOCKS * self.device.capabilities.multiprocessors
        grid = min(-(-values.size // (TURNS * vector * THREADS)), most), 1, 1
        numbers = values.size, request.bins, request.offset
        ROUTINE.bind(self.device, grid, BLOCK, (values.address, row.address, *numbers), **context)()
