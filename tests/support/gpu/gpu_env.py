"""Shared helpers for tests of the GPU backend: separate programs on the tests' GPU, and permitted omissions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.gpu.gpu_driver import find_driver

needs_pool = pytest.mark.skipif(
    os.environ.get("NEONLIKE_GPU_POOL") == "0", reason="about the memory pool, which NEONLIKE_GPU_POOL=0 goes without"
)


SOURCE = """
extern "C" __global__ void scale(float *x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
extern "C" __global__ void gathered(float *out, int n) {
    extern __shared__ float part[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) part[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += part[i];
        *out = sum;
    }
}
extern "C" __global__ void fault() { __trap(); }
"""
"""Kernels to launch by hand: a loop, one with shared memory, and one that fails."""


def run_on_gpu(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own, with the GPU of the tests."""
    find_driver()  # which has the programs started from here find it too
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CUEMU_VERBOSE": "0", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
