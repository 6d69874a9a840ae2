"""Matrix products by the kernels of NumPy's OpenBLAS on our pool of threads, where ours are not faster.

OpenBLAS has threads of its own. After a product they wait for the next one on the cores that the next kernel's threads
need, and these wait on theirs: a training step of a perceptron took four times as long as its parts. So the product is
cut into blocks, and each is a product on one thread of the pool. Small products, and those of other BLAS libraries or
of an OpenBLAS on OpenMP's threads, are left to NumPy.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any, TypeAlias

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c.numpy_blas import OpenBlas, openblas
from neonlike.kernels.c.routine import POINTER, REAL, REAL_TYPES, Routine, threads_for
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.run import forks
from neonlike.optree.npfuncs import Array

Addresses: TypeAlias = "ctypes.Array[ctypes.c_void_p]"
BLOCKS = Routine("c/gemm_blas.c.j2", (*(POINTER,) * 5, REAL, REAL), "matrix product, by blocks of a BLAS library")

FEWEST_PRODUCTS, FEWEST_OF_VECTOR = 1 << 18, 9216
"""Multiplications from which OpenBLAS would use its own threads, for matrices and for a matrix and a vector."""
PARALLEL_PRODUCTS, PARALLEL_OF_VECTOR = 1 << 20, 1 << 17
"""Multiplications from which more than one thread pays: vectors are done at the speed of the memory."""
NARROWEST, FEWEST_ROWS = 64, 64
"""Rows and columns of a block, at least: the library packs both factors of a block anew; rows of one for a vector."""
LARGEST_INT = (1 << 31) - 1
BLOCKS_OF_THREAD = 2
"""So that a thread whose core is busy can leave one to others."""


class BlasLaunch:
    """The product of matrices of one layout."""

    __slots__ = ("function", "library", "meta", "serial", "swapped")

    def __init__(self, function: Any, library: Addresses, meta: list[int], swapped: bool) -> None:
        self.function, self.library, self.swapped = function, library, swapped
        self.meta = (ctypes.c_int64 * len(meta))(*meta)
        self.serial = (ctypes.c_int64 * len(meta))(*meta[:-1], 1)

    def __call__(self, a: int | None, b: int | None, c: int | None, alpha: float = 1.0, beta: float = 0.0) -> None:
        """Multiply what lies at these addresses."""
        if self.swapped:
            a, b = b, a
        self.function(self.library, a, b, c, self.serial if forks.forked else self.meta, alpha, beta)


@cache
def _functions(real: str) -> Addresses | None:
    """Addresses of the library's functions for one type, as the kernel takes them; None if it has not all of them."""
    library, letter = openblas(), "s" if real == "float" else "d"
    if library is None or library.openmp:  # each of our threads would start a team of OpenMP's
        return None
    found = [library.functions.get(n) for n in (f"{letter}gemm", f"{letter}gemv", "get_num_threads", "set_num_threads")]
    return (ctypes.c_void_p * 4)(*found) if all(found) else None


def _oriented(a: Array, b: Array, c: Array) -> tuple[bool, Array, Array, Array]:
    """The product with rows of the result side by side: that of the transposed factors, if need be."""
    swapped = c.shape[0] == 1 or (c.shape[1] != 1 and c.strides[1] != c.itemsize)
    return (True, b.T, a.T, c.T) if swapped else (False, a, b, c)


def blas_source(a: Array, b: Array, c: Array) -> KernelSource | None:
    """The kernel for arrays such as these; None where :func:`find_blas_launch` finds nothing."""
    library = _library_for(a, b, c)
    return None if library is None else BLOCKS.source(real=REAL_TYPES[c.dtype], integer=library.integer)


def find_blas_launch(a: Array, b: Array, c: Array, compiler: Compiler | None = None) -> BlasLaunch | None:
    """The product of arrays such as these; None where it is small, or they lie as BLAS libraries do not take them.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n) of one dtype
    compiler : Compiler, optional
        The one that the caller knows; None: it is looked for.
    """
    library = _library_for(a, b, c)
    if library is None:
        return None
    real = REAL_TYPES[c.dtype]
    functions = _functions(real)
    function = BLOCKS.variant(compiler or find_compiler(), real=real, integer=library.integer)
    if function is None or functions is None:
        return None
    swapped, a, b, c = _oriented(a, b, c)
    (m, k), n = a.shape, b.shape[1]
    steps = [step // c.itemsize for step in (*a.strides, *b.strides, c.strides[0])]
    threads = threads_for(m * k * n, PARALLEL_OF_VECTOR if n == 1 else PARALLEL_PRODUCTS)
    return BlasLaunch(function, functions, [*steps, m, k, n, *_block(m, n, threads), threads], swapped)


def _library_for(a: Array, b: Array, c: Array) -> OpenBlas | None:
    """NumPy's OpenBLAS, if it would use its own threads for arrays such as these, and takes them as they lie."""
    real = REAL_TYPES.get(c.dtype)
    if real is None or a.dtype != c.dtype or b.dtype != c.dtype or not (a.size and b.size):
        return None
    if c.size * a.shape[1] < (FEWEST_OF_VECTOR if 1 in c.shape else FEWEST_PRODUCTS):
        return None
    library = openblas()
    if library is None or _functions(real) is None:
        return None
    _, a, b, c = _oriented(a, b, c)
    return library if _suits(a, b, c) and all(_countable(x, library.integer) for x in (a, b, c)) else None


def _countable(x: Array, integer: str) -> bool:
    """Whether sizes and steps of ``x`` are whole numbers of elements, which the library's integers hold."""
    row, column = x.strides
    if row % x.itemsize or column % x.itemsize:
        return False
    return integer != "int" or max(*x.shape, row // x.itemsize, column // x.itemsize) <= LARGEST_INT


def _suits(a: Array, b: Array, c: Array) -> bool:
    """Whether rows or columns of each factor, and rows of the result, lie side by side, none over another."""
    if c.shape[1] == 1:
        return _plain(a) and b.strides[0] > 0 and c.strides[0] > 0
    return _plain(a) and _plain(b) and c.strides[1] == c.itemsize and c.strides[0] >= c.shape[1] * c.itemsize


def _plain(x: Array) -> bool:
    row, column = x.strides
    rows, columns = (size * x.itemsize for size in x.shape)
    return (column == x.itemsize and row >= columns) or (row == x.itemsize and column >= rows)


def _block(m: int, n: int, threads: int) -> tuple[int, int]:
    """Rows and columns of a block: the longer side is cut first."""
    parts = BLOCKS_OF_THREAD * threads if threads > 1 else 1
    if n == 1:
        return max(math.ceil(m / parts), FEWEST_ROWS), 1
    longer, shorter = max(m, n), min(m, n)
    first = max(1, min(parts, longer // NARROWEST))
    second = max(1, min(math.ceil(parts / first), shorter // NARROWEST))
    high, wide = (first, second) if m >= n else (second, first)
    return _cut(m, high), _cut(n, wide)


def _cut(size: int, parts: int) -> int:
    """An equal part of `size`, but for a multiple of 16, the height of the library's tiles."""
    return size if parts == 1 else math.ceil(size / parts / 16) * 16
