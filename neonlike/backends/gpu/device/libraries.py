"""NVIDIA's libraries that are loaded with ctypes."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from neonlike.kernels.cuda.toolkits import library_folders

CUBLAS = ("libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "cublas64_13.dll", "cublas64_12.dll")
"""Versions whose ``cublasGemmEx`` takes a cublasComputeType_t (CUDA 11 and later), the newest first."""

NCCL = ("libnccl.so.2",)
MAPS = "/proc/self/maps"
"""Where Linux lists what a process has loaded."""


def loads(name: str) -> bool:
    """Whether the system's loader finds a library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def loaded_libraries(names: tuple[str, ...]) -> list[str]:
    """Paths of the libraries of these names that this process has loaded, such as PyTorch's cuBLAS; empty off Linux."""
    try:
        lines = Path(MAPS).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if "/" in line)
    return [path for path in paths if os.path.basename(path) in names]


def cublas_libraries() -> Iterator[tuple[str, ctypes.CDLL]]:
    """Names or paths of every cuBLAS that can be loaded, and the library.

    What is loaded already comes first: a second one would take memory of its own. Then those of the system, of toolkits
    and of packages.
    """
    loaded = loaded_libraries(CUBLAS)
    for name in _places(loaded, CUBLAS, "libcublas.so"):
        try:
            # It needs libcublasLt of the same folder, which the loader would not find.
            if os.path.isabs(name) and name not in loaded:
                ctypes.CDLL(os.path.join(os.path.dirname(name), os.path.basename(name).replace("cublas", "cublasLt")))
            yield name, ctypes.CDLL(name)
        except OSError:
            continue


def nccl_libraries() -> Iterator[tuple[str, ctypes.CDLL]]:
    """Names or paths of every NCCL that can be loaded, and the library; what is loaded already comes first."""
    for name in _places(loaded_libraries(NCCL), NCCL):
        try:
            yield name, ctypes.CDLL(name)
        except OSError:
            continue


def _places(loaded: list[str], names: tuple[str, ...], *more: str) -> Iterator[str]:
    """Names and paths by which libraries may be found: loaded ones, of the system, of toolkits and packages."""
    folders = (str(path) for folder in library_folders() for name in names if (path := folder / name).exists())
    return itertools.chain(loaded, names, more, folders)
