"""``gemm``: C = alpha * A . B + beta * C on arrays, by the packed product that the unrolls are made of.

Where NumPy's BLAS does not use the vectors of the processor fully, this is faster: on an AVX-512 machine with OpenBLAS
0.3.2x by a factor of two.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy.typing as npt

from neonlike.kernels.layout import ALIGNED_FROM, aligned_empty
from neonlike.kernels.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.optree.dtypes import DType

GEMM = Routine(
    "c/gemm_packed.c.j2",
    (POINTER, INT, INT, POINTER, INT, INT, POINTER, INT, INT, INT, INT, REAL, REAL, POINTER, INT),
    "matrix product",
    ("gemm_tile.h", "vecmath.h", "vecmath_f32.h", "vecmath_f64.h", "vecmath_small.h"),
)
DEPTH, HEIGHT, COLUMNS, LANES = 512, 192, 2048, 16
"""Blocks of the kernel, at most."""
PARALLEL_PRODUCTS = 1 << 19

Array = npt.NDArray[Any]
_local = threading.local()


def gemm(a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 0.0) -> bool:
    """c = alpha * a . b + beta * c; with beta 0 the old c is not read.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n) of one dtype, float32 or float64
        Of any strides, transposed included; ``c`` shares no memory with the others, and its rows or its columns are
        contiguous.

    Returns
    -------
    bool
        False, with nothing done, where there is no compiler or no kernel for these.
    """
    real, size = REAL_TYPES.get(c.dtype), c.itemsize
    if real is None or a.dtype != c.dtype or b.dtype != c.dtype or not (a.size and b.size):
        return False
    if c.strides[1] != size and c.strides[0] == size:
        a, b, c = b.T, a.T, c.T
    (m, k), n = a.shape, b.shape[1]
    function = GEMM.variant(real=real) if c.strides[1] == size or n == 1 else None
    if function is None:
        return False
    threads = threads_for(m * k * n, PARALLEL_PRODUCTS)
    count = DEPTH * (min(n, COLUMNS) + LANES) + threads * DEPTH * HEIGHT
    (a_row, a_column), (b_row, b_column) = ([step // size for step in x.strides] for x in (a, b))
    function(
        address(a), a_row, a_column, address(b), b_row, b_column, address(c), c.strides[0] // size, m, k, n,
        alpha, beta, address(workspace(count, c.dtype)), threads,
    )  # fmt: skip
    return True


def workspace(size: int, dtype: DType) -> Array:
    """This thread's memory for packed matrices, kept from call to call: fresh memory costs as much as packing."""
    held: dict[DType, Array] = _local.__dict__.setdefault("held", {})
    found = held.get(dtype)
    if found is None or found.size < size:
        found = held[dtype] = aligned_empty((max(size, ALIGNED_FROM),), dtype)  # smaller ones lie anywhere
    return found
