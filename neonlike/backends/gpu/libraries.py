"""NVIDIA's libraries that are loaded with ctypes."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterator

from neonlike.kernels.cuda.toolkits import library_folders

CUBLAS = ("libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "cublas64_13.dll", "cublas64_12.dll")
"""Versions whose ``cublasGemmEx`` takes a cublasComputeType_t (CUDA 11 and later), the newest first."""


def loads(name: str) -> bool:
    """Whether the system's loader finds a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def cublas_libraries() -> Iterator[tuple[str, ctypes.CDLL]]:
    """Names or paths of every cuBLAS that can be loaded, and the library: of the system, of toolkits, of packages."""
    folders = (str(path) for folder in library_folders() for name in CUBLAS if (path := folder / name).exists())
    for name in itertools.chain(CUBLAS, ["libcublas.so"], folders):
        try:
            if os.path.isabs(name):  # it needs libcublasLt of the same folder, which the loader would not find
                ctypes.CDLL(os.path.join(os.path.dirname(name), os.path.basename(name).replace("cublas", "cublasLt")))
            yield name, ctypes.CDLL(name)
        except OSError:
            continue
