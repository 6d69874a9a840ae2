"""Switches that avoid a failure of a GPU: settings, tried on failed cases, which locate the fault."""

from __future__ import annotations

import shutil

SWITCHES: dict[str, dict[str, str]] = {
    "waiting after each launch": {"CUDA_LAUNCH_BLOCKING": "1"},
    "no pool of memory": {"NEONLIKE_GPU_POOL": "0"},
    "no graphs": {"NEONLIKE_GPU_GRAPHS": "0"},
    "no extension": {"NEONLIKE_FASTPATH": "0"},
    "plain loads": {"NEONLIKE_GPU_PLAIN": "1"},
    "PTX": {"NEONLIKE_GPU_PTX": "1"},
    "no attention kernels": {"NEONLIKE_GPU_ATTENTION": "0"},
    "no tickets": {"NEONLIKE_GPU_TICKETS": "0"},
    "cuBLAS without scikit-cuda": {"NEONLIKE_CUBLAS": "direct"},
    "no cuBLAS": {"NEONLIKE_CUBLAS": "none"},
    "convolution by columns": {"NEONLIKE_GPU_CONV": "columns"},
    "nvcc": {"NEONLIKE_NVCC": "nvcc"},
}
"""Variables by what they do. A fault that the first alone cures is one of order; the others name a part."""


def usable() -> dict[str, dict[str, str]]:
    """Those that make sense on this machine, paths filled in."""
    found = dict(SWITCHES)
    path = shutil.which("nvcc", path=None) or shutil.which("/usr/local/cuda/bin/nvcc")
    del found["nvcc"]
    if path:
        found["nvcc"] = {"NEONLIKE_NVCC": path}
    return found


def text_of(name: str) -> str:
    """How a user sets a switch."""
    return " ".join(f"{variable}={value}" for variable, value in SWITCHES[name].items())
