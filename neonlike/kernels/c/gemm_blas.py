"""Matrix products by the kernels of NumPy's OpenBLAS on our worker threads, where our kernel is not faster.

OpenBLAS has its own threads. After a product they spin on the cores that our worker threads need for the next kernel,
and our threads spin on theirs: a training step of a perceptron took four times as long as its parts. So the product is
split into blocks, and one worker thread computes each with single-threaded OpenBLAS. Small products, and those of
other BLAS libraries or of an OpenBLAS built on OpenMP, are left to NumPy.
"""

from __future__ import annotations

import ctypes
import math
import struct
from functools import cache
from typing import Any, TypeAlias

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c.numpy_blas import OpenBlas, openblas
from neonlike.kernels.c.routine import POINTER, REAL, REAL_TYPES, Routine, threads_for
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.run import forks
from neonlike.kernels.run.calls import program_of
from neonlike.kernels.run.program import Program, words_of
from neonlike.optree.npfuncs import Array

Addresses: TypeAlias = "ctypes.Array[ctypes.c_void_p]"
BLOCKS = Routine("c/gemm_blas.c.j2", (*(POINTER,) * 5, REAL, REAL), "matrix product, by blocks of a BLAS library")

FEWEST_PRODUCTS, FEWEST_OF_VECTOR = 1 << 18, 9216
"""Multiplications from which OpenBLAS would use its own threads: of two matrices, and of a matrix and a vector."""
PARALLEL_PRODUCTS, PARALLEL_OF_VECTOR = 1 << 20, 1 << 17
"""Multiplications from which more than one thread pays; a matrix-vector product is bound by memory bandwidth."""
NARROWEST, FEWEST_ROWS = 64, 64
"""Least rows and columns of a block (the library packs both factors again for each); least rows for a vector."""
LEAST_SIDE, SMALL_THREADS = 2, 0
"""Least size of a small product along each axis: others are vectors, for which NumPy has other functions; and what
stands for the library's own number of threads, which is one for these."""
LARGEST_INT = (1 << 31) - 1
BLOCKS_OF_THREAD = 2
"""Blocks for each thread, more than one for load balance: a thread whose core is busy takes fewer."""


class BlasLaunch:
    """The product of matrices of one layout.

    Parameters
    ----------
    function : ctypes function
        Our kernel, which calls the library.
    library : ctypes array
        Addresses of the library's functions.
    meta : list of int
        Steps, sizes, sizes of a block, and threads.
    swapped : bool
        Whether the transposed product is computed.
    """

    __slots__ = ("function", "library", "meta", "serial", "swapped")

    def __init__(self, function: Any, library: Addresses, meta: list[int], swapped: bool) -> None:
        self.function, self.library, self.swapped = function, library, swapped
        self.meta = (ctypes.c_int64 * len(meta))(*meta)
        self.serial = (ctypes.c_int64 * len(meta))(*meta[:-1], 1)

    def __call__(self, a: int | None, b: int | None, c: int | None, alpha: float = 1.0, beta: float = 0.0) -> None:
        """Multiply the matrices at these addresses.

        Parameters
        ----------
        a, b, c : int or None
            Addresses.
        alpha, beta : float
        """
        if self.swapped:
            a, b = b, a
        self.function(self.library, a, b, c, self.serial if forks.forked else self.meta, alpha, beta)

    def program(self, alpha: float, beta: float) -> Program:
        """The program of the product; its operands are a, b and c."""
        meta = ctypes.addressof(self.serial if forks.forked else self.meta)
        given = words_of(struct.pack("=5q2d", ctypes.addressof(self.library), 0, 0, 0, meta, alpha, beta))
        places = (2, 1, 3) if self.swapped else (1, 2, 3)
        return program_of(self.function.packed, given, places)._replace(keep=self)


@cache
def _functions(real: str) -> Addresses | None:
    """Addresses of the library's functions for one type, as the kernel takes them; None if one is missing."""
    library, letter = openblas(), "s" if real == "float" else "d"
    if library is None or library.openmp:  # each of our threads would start its own OpenMP team
        return None
    found = [library.functions.get(n) for n in (f"{letter}gemm", f"{letter}gemv", "get_num_threads", "set_num_threads")]
    return (ctypes.c_void_p * 4)(*found) if all(found) else None


def _oriented(a: Array, b: Array, c: Array) -> tuple[bool, Array, Array, Array]:
    """The factors and result, transposed and swapped if the rows of the result are not contiguous, and whether so."""
    swapped = c.shape[0] == 1 or (c.shape[1] != 1 and c.strides[1] != c.itemsize)
    return (True, b.T, a.T, c.T) if swapped else (False, a, b, c)


def blas_source(a: Array, b: Array, c: Array) -> KernelSource | None:
    """The kernel for arrays of these layouts, large or small; None where BLAS libraries do not take their strides.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n)
    """
    library = _library_for(a, b, c, 0)
    return None if library is None else BLOCKS.source(real=REAL_TYPES[c.dtype], integer=library.integer)


def find_blas_launch(a: Array, b: Array, c: Array, compiler: Compiler | None = None) -> BlasLaunch | None:
    """The product of arrays of these layouts; None where it is small, or BLAS libraries do not take their strides.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n) of one dtype
    compiler : Compiler, optional
        One that the caller already has; None looks it up.
    """
    library = _library_for(a, b, c)
    if library is None:
        return None
    n = b.shape[1]
    threads = threads_for(c.size * a.shape[1], PARALLEL_OF_VECTOR if n == 1 else PARALLEL_PRODUCTS)
    return _launch(library, a, b, c, compiler, threads)


def _launch(
    library: OpenBlas, a: Array, b: Array, c: Array, compiler: Compiler | None, threads: int
) -> BlasLaunch | None:
    real = REAL_TYPES[c.dtype]
    functions = _functions(real)
    function = BLOCKS.variant(compiler or find_compiler(), real=real, integer=library.integer)
    if function is None or functions is None:
        return None
    swapped, a, b, c = _oriented(a, b, c)
    (m, k), n = a.shape, b.shape[1]
    steps = [step // c.itemsize for step in (*a.strides, *b.strides, c.strides[0])]
    return BlasLaunch(function, functions, [*steps, m, k, n, *_block(m, n, threads), threads], swapped)


def find_small_launch(
    a: Array, b: Array, c: Array, compiler: Compiler | None = None, vectors: bool = False
) -> BlasLaunch | None:
    """A launch of the routine behind NumPy's product of small matrices, with its results; None where it is not this.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n) of one dtype
        That share no memory; NumPy has another function for a product of a matrix and its transpose.
    compiler : Compiler, optional
        As of :func:`find_blas_launch`.
    vectors : bool
        Whether a factor may be a vector. NumPy has other functions for these, whose sums may be rounded otherwise.
    """
    narrow = not vectors and min(*a.shape, *c.shape) < LEAST_SIDE
    if narrow or c.size * a.shape[1] >= FEWEST_PRODUCTS:
        return None
    library = _library_for(a, b, c, 0)
    return None if library is None else _launch(library, a, b, c, compiler, SMALL_THREADS)


def _library_for(a: Array, b: Array, c: Array, least: int | None = None) -> OpenBlas | None:
    """NumPy's OpenBLAS, if it takes the strides of these arrays, and they have ``least`` products.

    ``least`` None: as many as it uses its own threads for.
    """
    real = REAL_TYPES.get(c.dtype)
    if real is None or a.dtype != c.dtype or b.dtype != c.dtype or not (a.size and b.size):
        return None
    least = (FEWEST_OF_VECTOR if 1 in c.shape else FEWEST_PRODUCTS) if least is None else least
    if c.size * a.shape[1] < least:
        return None
    library = openblas()
    if library is None or _functions(real) is None:
        return None
    _, a, b, c = _oriented(a, b, c)
    return library if _suits(a, b, c) and all(_countable(x, library.integer) for x in (a, b, c)) else None


def _countable(x: Array, integer: str) -> bool:
    """Whether strides of ``x`` are whole numbers of elements, and they and its sizes fit the library's integers."""
    row, column = x.strides
    if row % x.itemsize or column % x.itemsize:
        return False
    return integer != "int" or max(*x.shape, row // x.itemsize, column // x.itemsize) <= LARGEST_INT


def _suits(a: Array, b: Array, c: Array) -> bool:
    """Whether rows or columns of each factor, and rows of the result, are contiguous and do not overlap."""
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
    """``size`` / ``parts``, rounded up to a multiple of 16, the height of the library's register tiles."""
    return size if parts == 1 else math.ceil(size / parts / 16) * 16
