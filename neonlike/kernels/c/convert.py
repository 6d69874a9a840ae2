"""Conversion of arrays between 16-bit floats and float32, compiled: NumPy converts one element at a time."""

from __future__ import annotations

import numpy as np

from neonlike.kernels.c.routine import INT, POINTER, VECMATH, Routine, address, threads_for
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.optree.dtypes import F32, HALVES, DType
from neonlike.optree.npfuncs import Array

CONVERT = Routine(
    "c/convert.c.j2", (POINTER, POINTER, INT, INT), "conversion of 16-bit numbers", ("halves.h", *VECMATH)
)
FEWEST, PARALLEL = 1 << 12, 1 << 17
"""Elements from which looking for a compiler pays, and from which several threads do."""


def as_contiguous(array: Array, dtype: DType) -> Array:
    """``array`` in C order and ``dtype``: itself if it is so, else a copy."""
    half = HALVES.get(array.dtype.name) if dtype == F32 and array.size >= FEWEST and array.flags.c_contiguous else None
    if half is not None:
        copy = np.empty(array.shape, F32)
        if _convert(f"widen_{half}", array, copy, ("uint16_t", "float")):
            return copy
    return np.ascontiguousarray(array, dtype)


def as_dtype(array: Array, dtype: DType) -> Array:
    """``array`` in ``dtype``, in its own order: itself if it has that dtype, else a copy."""
    if array.dtype == dtype:
        return array
    return as_contiguous(array.T, dtype).T if array.flags.f_contiguous else as_contiguous(array, dtype)


def store_floats(source: Array, out: Array) -> bool:
    """Store contiguous float32 in a contiguous 16-bit array; False, and nothing is done, if it is none or small."""
    half = HALVES.get(out.dtype.name)
    if half is None or source.dtype != F32 or out.size < FEWEST:
        return False
    plain = source.flags.c_contiguous and out.flags.c_contiguous and source.shape == out.shape
    return plain and _convert(f"narrow_{half}", source, out, ("float", "uint16_t"))


def _convert(function: str, source: Array, out: Array, ctypes: tuple[str, str]) -> bool:
    kernel = CONVERT.variant(find_compiler(), function=function, source=ctypes[0], target=ctypes[1])
    if kernel is None:
        return False
    kernel(address(source), address(out), source.size, threads_for(source.size, PARALLEL))
    return True
