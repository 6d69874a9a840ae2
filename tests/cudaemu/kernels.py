"""Tools for tests of the emulator: compiling and loading single kernels with PyCUDA alone."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ADD = """extern "C" __global__ void k(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}"""


@functools.cache
def compile_cubin(source: str, *options: str) -> bytes:
    """The module that NEONLIKE_NVCC makes of CUDA C++; RuntimeError with the compiler's words if it refuses."""
    with tempfile.TemporaryDirectory(prefix="cudaemu-test-") as folder:
        (Path(folder) / "kernel.cu").write_text(source)
        command = [os.environ["NEONLIKE_NVCC"], "--cubin", "-arch=sm_90", *options, "-o", "kernel.cubin", "kernel.cu"]
        done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return (Path(folder) / "kernel.cubin").read_bytes()


def load(source: str, name: str = "k", *options: str) -> Any:
    """A kernel in the current context; it keeps its module."""
    from pycuda.driver import module_from_buffer

    return module_from_buffer(compile_cubin(source, *options)).get_function(name)
