"""Leaky sums in CUDA: a thread a row."""

from __future__ import annotations

from typing import Any

from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.run.calls import KernelCall
from tests.made_up.leaky import LeakyFamily, LeakySum

TEXT = """
#include <stdint.h>

extern "C" __global__ void {{ name }}(const {{ real }} *x, {{ real }} *y, const int64_t rows, const int64_t columns,
    const double decay)
{
    const int64_t i = (int64_t)blockIdx.x * {{ threads }} + threadIdx.x;
    if (i >= rows)
        return;
    {{ real }} total = 0;
    for (int64_t j = 0; j < columns; j++)
        y[i * columns + j] = total = x[i * columns + j] + ({{ real }})decay * total;
}
"""
ROUTINE = CudaRoutine(TEXT, "QQqqd", "leaky sums")
REAL_TYPES = {"float32": "float", "float64": "double"}
THREADS = 128


class LeakyCuda(LeakyFamily):
    """Overrides of LeakyFamily's hooks: of contiguous tensors of these types; the definition does the others."""

    device: Device

    def _leaky_sum(self, request: LeakySum, x: Any, out: Any) -> KernelCall | None:
        real = REAL_TYPES.get(x.dtype.name)
        if real is None or not (x.is_contiguous and out.is_contiguous):
            return super()._leaky_sum(request, x, out)
        grid = -(-request.dims[0] // THREADS), 1, 1
        arguments = x.address, out.address, *request.dims, request.decay
        ROUTINE.bind(self.device, grid, (THREADS, 1, 1), arguments, real=real, threads=THREADS)()
        return None
