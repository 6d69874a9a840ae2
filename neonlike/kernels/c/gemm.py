"""Matrix products on our worker threads, by our own packed kernel where it is faster than NumPy's BLAS library.

That is so with AVX-512. OpenBLAS chooses its kernels by the processor's name; on a processor it does not know yet it
falls back to AVX2 kernels. Where it uses AVX-512, it packs both factors before it multiplies, while our kernel packs
the larger factor as it multiplies; small products, which OpenBLAS does not pack at all, are left to it. With AVX2 only,
all products use OpenBLAS's kernels, on our threads (``gemm_blas.py``). Products too small for more than one thread are
left to NumPy.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike import settings
from neonlike.kernels.c.convert import as_dtype
from neonlike.kernels.c.gemm_blas import FEWEST_OF_VECTOR, BlasLaunch, find_blas_launch
from neonlike.kernels.c.numpy_blas import half_vectors, whole_vectors
from neonlike.kernels.c.pairs import INSTRUCTION, TILES, context_of, factor_steps, form_of, half
from neonlike.kernels.c.routine import POINTER, REAL, REAL_TYPES, TILE, Routine, address, threads_for
from neonlike.kernels.c.simd import ask_for_tiles, has_tiles, tiles_work
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from neonlike.kernels.run import forks
from neonlike.kernels.run.calls import program_of
from neonlike.kernels.run.program import Program, words_of
from neonlike.kernels.run.workspace import held_workspace
from neonlike.optree import npfuncs
from neonlike.optree.dtypes import BFLOAT16, compute_dtype

GEMM = Routine(
    "c/gemm_packed.c.j2",
    (*(POINTER,) * 4, REAL, REAL, POINTER),
    "matrix product",
    ("pair_panels.h", "tiles.h", "halves.h", *TILE),
)
DEPTH, LANES, TILE_ROWS, PACKED_BY_THREAD = 512, 16, 12, 96
"""Upper bounds of the kernel's block sizes (k, lanes, rows of a register tile, rows or columns that a thread packs at
once): they size its workspace."""
ROWS_BY_TILES, DEPTH_BY_TILES = 32, 256
"""Rows of a panel that the processor's tiles multiply (``gemm_tiles.j2``), and the block size of k there."""
SHARED_BYTES = 1 << 19
"""Size of the packed panel of B (or A) that all threads share."""
PARALLEL_PRODUCTS = 1 << 19
"""Multiplications from which more than one thread pays."""
LEAST_IN_PARTS, FEWEST_PARTS, MOST_PARTS, WIDEST_OF_PARTS = 512, 4, 16, 256
"""Least k that is divided into parts, into how many, and most rows or columns of C there."""
BYTES_OF_PART, BYTES_OF_PARTS = 1 << 16, 1 << 20
"""Most results of one part, of twice as many if both factors are packed while they are multiplied; and of all parts,
which should stay in an L2 cache."""

FEWEST_PRODUCTS = 1 << 18
"""Multiplications below which OpenBLAS runs on one thread, and NumPy is faster."""
FEWEST_OF_ALL = FEWEST_OF_VECTOR
"""Multiplications below which no shape of factors has a kernel here."""
NARROWEST, FEWEST_RESULTS = 10, 1 << 9
"""Least number of rows or columns of C, and of its elements, for which packing A and B pays."""
FEWEST_OF_WHOLE, NARROWEST_OF_WHOLE = 1 << 23, 32
"""Multiplications, and rows or columns of C, from which our kernel is faster than an OpenBLAS that uses AVX-512."""

FEWEST_OF_PAIRS, NARROWEST_OF_PAIRS = 1 << 18, 8
"""Multiplications, and numbers along each dimension, from which making pairs of bfloat16 pays."""
NARROWEST_BY_TILES = 16
"""Numbers along each dimension from which pairs are multiplied by tiles where there are any: those of a tile.

By reasoning, as no such processor was at hand to measure: tiles multiply 512 numbers in a cycle, as Intel says, and
``vdpbf16ps`` 32 or 64. From 16 rows and columns on, more than a quarter of the tiles is used. Beginning and ending with
tiles takes some hundred cycles of a unit of work, and the least product that becomes pairs takes 4,000 and more by
``vdpbf16ps``. Packing takes about as long for both.
"""
OF_A_TEST = ((77, 601, 45), (45, 601, 77), (77, 1201, 45))
"""Sizes of products that are tried before tiles are used: by rows, by columns and by parts; their ends fill no tile."""

Array = npt.NDArray[Any]


def pays(m: int, k: int, n: int, compiler: Compiler | None = None) -> bool:
    """Whether the kernel is faster than NumPy for (m, k) x (k, n); it has to be larger where BLAS uses AVX-512.

    ``compiler``, here and below: one that the caller already has; None looks it up, which takes longer than a small
    product.

    Measured on one core of an AMD Zen 5 against OpenBLAS 0.3.31 with AVX2 kernels, float32 and float64, factors
    transposed or not: 0.9 (4096 x 9216 x 32, bound by memory bandwidth) to 2.2 (784 x 16 x 1000, mostly stores) times
    its speed where this is true. On one and two cores of a Zen 4 against its AVX-512 kernels, float32: 0.83 at worst
    (last panels of one column), 0.45 in a disturbed measurement; geometric means over 463 and 641 products of random
    shapes: 1.15 and 1.16.

    Parameters
    ----------
    m, k, n : int
    compiler : Compiler, optional
    """
    products, narrow = m * k * n, min(m, n)
    if products < FEWEST_PRODUCTS or narrow < NARROWEST or m * n < FEWEST_RESULTS:
        return False
    if not half_vectors() and (products < FEWEST_OF_WHOLE or narrow < NARROWEST_OF_WHOLE or not whole_vectors()):
        return False
    compiler = compiler or find_compiler()
    return compiler is not None and compiler.native


def multiply(
    a: Array,
    b: Array,
    c: Array,
    alpha: float = 1.0,
    beta: float = 0.0,
    compiler: Compiler | None = None,
    pairs: int = 0,
) -> bool:
    """c = alpha * a . b + beta * c on our threads, if that pays; otherwise False, and ``c`` is unchanged.

    Parameters
    ----------
    a, b, c : arrays ([x,] m, k), ([x,] k, n), ([x,] m, n)
        Matrices; or stacks of them if ``c`` is 3-D, where ``a`` or ``b`` may be one matrix for all. ``a`` and ``b`` are
        converted to the dtype of ``c``: float32 or float64, others are not taken. Nothing is done if ``c`` shares
        memory with them.
    alpha, beta : float
    compiler : Compiler, optional
        As of :func:`pays`.
    pairs : int
        As of :func:`find_launch`.
    """
    if c.dtype not in REAL_TYPES or not (c.size and c.shape[-2] * c.shape[-1] * a.shape[-1] >= FEWEST_OF_ALL):
        return False
    if np.may_share_memory(a, c) or np.may_share_memory(b, c):
        return False
    compiler = compiler or find_compiler()
    one, other, into = (x if x.ndim == 2 else x[0] for x in (a, b, c))
    rounded = pairs_of(one, other, into, pairs, compiler)  # before float16 becomes float32, which is rounded
    if not (rounded and are_stored(a, b)):
        a, b = as_dtype(a, c.dtype), as_dtype(b, c.dtype)
    left, right = (x if x.ndim == c.ndim else np.broadcast_to(x, (len(c), *x.shape)) for x in (a, b))
    products = [(left, right, c)] if c.ndim == 2 else list(zip(left, right, c))
    first, second, into = products[0]
    launch = best_launch(first, second, into, compiler, rounded)
    if launch is None or (isinstance(launch, BlasLaunch) and c.dtype.type(alpha) == 0):
        return False  # with alpha 0 BLAS libraries skip the product, and with it nan and inf in its factors
    for one, other, result in products:
        launch(address(one), address(other), address(result), alpha, beta)
    return True


def product(
    a: Array, b: Array, c: Array, alpha: float, compiler: Compiler, pairs: int = 0
) -> GemmLaunch | BlasLaunch | None:
    """The function that :func:`multiply` would multiply matrices of one dtype with; None where it would not.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n)
    alpha : float
    compiler : Compiler
    pairs : int
        As of :func:`find_launch`.
    """
    known = c.dtype in REAL_TYPES or (pairs and stores(a, b, c))
    if not known or not c.size or c.size * a.shape[1] < FEWEST_OF_ALL:
        return None
    if np.may_share_memory(a, c) or np.may_share_memory(b, c):
        return None
    launch = best_launch(a, b, c, compiler, pairs)
    return None if isinstance(launch, BlasLaunch) and c.dtype.type(alpha) == 0 else launch


def dot(a: Array, b: Array, out: Array, compiler: Compiler | None = None, pairs: int = 0) -> None:
    """out = a . b of matrices: what the C engine runs for ``npfuncs.dot``.

    Parameters
    ----------
    a, b, out : arrays (m, k), (k, n), (m, n)
    compiler : Compiler, optional
    pairs : int
        As of :func:`find_launch`.
    """
    large = out.size * a.shape[1] >= FEWEST_OF_ALL  # smaller ones take about a microsecond
    if not large or not multiply(a, b, out, compiler=compiler, pairs=pairs):
        npfuncs.dot(a, b, out)


def gemm(a: Array, b: Array, c: Array, alpha: float = 1.0, beta: float = 0.0, compiler: Compiler | None = None) -> bool:
    """c = alpha * a . b + beta * c by our kernel, whether it pays or not; with beta 0, ``c`` is not read.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n) of one dtype, float32 or float64
        With any strides; ``c`` shares no memory with the others, and its rows or its columns are contiguous.
    alpha, beta : float
    compiler : Compiler, optional
        As of :func:`pays`.

    Returns
    -------
    bool
        False, with ``c`` unchanged, if there is no compiler or no kernel for these arrays.
    """
    launch = find_launch(a, b, c, compiler)
    if launch is None:
        return False
    launch(address(a), address(b), address(c), alpha, beta)
    return True


def best_launch(
    a: Array, b: Array, c: Array, compiler: Compiler | None = None, pairs: int = 0
) -> GemmLaunch | BlasLaunch | None:
    """The fastest kernel on our threads for arrays of these layouts; None where NumPy is faster.

    ``pairs``: as of :func:`find_launch`; float32 factors of products from FEWEST_OF_PAIRS on are rounded.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n)
    compiler : Compiler, optional
    pairs : int
    """
    if (rounded := pairs_of(a, b, c, pairs, compiler)) and (found := find_launch(a, b, c, compiler, rounded)):
        return found
    if pays(a.shape[0], a.shape[1], b.shape[1], compiler):
        return find_launch(a, b, c, compiler)
    return find_blas_launch(a, b, c, compiler)


def pairs_of(a: Array, b: Array, c: Array, pairs: int, compiler: Compiler | None = None) -> int:
    """The form of pairs that factors are multiplied in; 0 where float32 is faster, or they cannot be.

    ``pairs``: the form for factors of float32, see :func:`form_of`. By tiles in place of ``vdpbf16ps`` where that pays.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n)
    pairs : int
    compiler : Compiler, optional
    """
    m, k, n = *a.shape, b.shape[1]
    compiler = compiler or find_compiler()
    pairs = form_of({a.dtype.name, b.dtype.name}, pairs, compiler)
    if not pairs or m * k * n < FEWEST_OF_PAIRS or min(m, k, n) < NARROWEST_OF_PAIRS:
        return 0
    if not (c.dtype == np.float32 or stores(a, b, c)) or not factor_steps(a, b):
        return 0
    return with_tiles(pairs, compiler) if min(m, k, n) >= NARROWEST_BY_TILES else pairs


def with_tiles(pairs: int, compiler: Compiler | None = None) -> int:
    """The form ``pairs``, or tiles in place of ``vdpbf16ps`` where they are right."""
    return TILES if pairs == INSTRUCTION and by_tiles(compiler) else pairs


def by_tiles(compiler: Compiler | None = None) -> bool:
    """Whether products by Intel's tiles are right here, which is tried once; False where ``NEONLIKE_AMX`` is 0."""
    compiler = compiler or find_compiler()
    return has_tiles(compiler) and settings.AMX.get() and tiles_are_right(compiler)


@cache
def tiles_are_right(compiler: Compiler) -> bool:
    """Whether the system permits tiles, and products of small whole numbers by them are exact."""
    exact = (_is_exact(size, compiler) for size in OF_A_TEST)
    return tiles_work(ask_for_tiles(compiler), exact, "tdpbf16ps", "bfloat16 is multiplied by vdpbf16ps")


def _is_exact(size: tuple[int, int, int], compiler: Compiler) -> bool:
    """Whether products (m, k) x (k, n) of whole numbers by tiles are right, of rows and of columns."""
    m, k, n = size
    a, b = ((np.arange(x * y).reshape(x, y) * 7 % 17 - 8).astype(np.float32) for x, y in ((m, k), (k, n)))
    wanted = a.astype(int) @ b.astype(int)
    for one, other in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        found = np.full((m, n), np.nan, np.float32)
        if launch := find_launch(one, other, found, compiler, TILES):
            launch(address(one), address(other), address(found))
        if not np.array_equal(found, wanted):
            return False
    return True


def are_stored(a: Array, b: Array) -> bool:
    """Whether both factors are stored in bfloat16, which kernels of pairs read as they are."""
    return a.dtype.name == b.dtype.name == BFLOAT16


def stores(a: Array, b: Array, c: Array) -> bool:
    """Whether all three are stored in bfloat16, and kernels of pairs round what they have added up in float32."""
    return c.dtype.name == BFLOAT16 and are_stored(a, b)


def context(a: Array, b: Array, c: Array, pairs: int) -> dict[str, Any]:
    """Context of the kernel's template for c = a . b in ``pairs``, which :func:`pairs_of` returned.

    Parameters
    ----------
    a, b, c : arrays
    pairs : int
    """
    stored = {"stored": BFLOAT16} if are_stored(a, b) else {}
    result = {"result": BFLOAT16} if stores(a, b, c) else {}
    return {"real": REAL_TYPES[compute_dtype(c.dtype)], **context_of(pairs), **stored, **result}


def depth_of_parts(sizes: Sequence[int], itemsize: int) -> int:
    """Into parts of how many products the kernel divides the inner dimension; 0: it does not.

    It does where results are so few that threads would have little to share. Each part has sums of its own, so results
    depend on this, and the number of threads must have no say in it. ``sizes``: steps of A and B by row and column, of
    C by row, then m, k, n.
    """
    m, k, n = sizes[-3:]
    if k < LEAST_IN_PARTS or min(m, n) < TILE_ROWS or max(m, n) > WIDEST_OF_PARTS:
        return 0
    results, at_once = m * n * itemsize, sizes[0] == sizes[3] == 1
    if results > (2 if at_once else 1) * BYTES_OF_PART:
        return 0
    most = min(MOST_PARTS, BYTES_OF_PARTS // results)
    return math.ceil(max(min(k / FEWEST_PARTS, DEPTH / 2), k / most) / LANES) * LANES


class GemmLaunch:
    """The kernel for matrices of one layout.

    Parameters
    ----------
    function : ctypes function
    sizes : sequence of int
        Steps of A and B by row and column, of C by row, then m, k, n.
    threads : int
    swapped : bool
        Whether the transposed product is computed.
    itemsize : int
        Bytes of a sum.
    numbers : int
        Products of a sum, also where k counts pairs.
    halved : bool
        Whether results are stored in bfloat16, and sums of several steps of the inner dimension in working memory.
    """

    __slots__ = ("bytes", "function", "meta", "serial", "swapped")

    def __init__(
        self,
        function: Any,
        sizes: Sequence[int],
        threads: int,
        swapped: bool,
        itemsize: int,
        numbers: int,
        halved: bool = False,
    ) -> None:
        m, k, n = sizes[-3:]
        by_rows = m >= n or m * DEPTH * itemsize > SHARED_BYTES
        columns = min(n, SHARED_BYTES // (DEPTH * itemsize)) + LANES
        depth = depth_of_parts(sizes, itemsize)
        self.function, self.swapped = function, swapped
        fields = [(*sizes, by_rows, count, depth, numbers) for count in (threads, 1)]
        self.meta, self.serial = ((ctypes.c_int64 * len(some))(*some) for some in fields)
        if depth:
            parts = math.ceil(k / depth)
            elements = parts * m * (n + LANES) + min(threads, parts) * DEPTH * (PACKED_BY_THREAD + columns)
        else:
            sums = m * sizes[4] + LANES if halved and k > DEPTH_BY_TILES else 0
            elements = sums + DEPTH * ((columns if by_rows else m + ROWS_BY_TILES) + threads * PACKED_BY_THREAD)
        self.bytes = elements * itemsize

    def __call__(self, a: Any, b: Any, c: Any, alpha: float = 1.0, beta: float = 0.0) -> None:
        """Multiply the matrices at these addresses.

        Parameters
        ----------
        a, b, c : int
            Addresses.
        alpha, beta : float
        """
        held = held_workspace(self.bytes)  # referenced until the kernel returns
        if self.swapped:
            a, b = b, a
        self.function(a, b, c, self.serial if forks.forked else self.meta, alpha, beta, held[1])

    def program(self, alpha: float, beta: float) -> Program:
        """The program of the product; its operands are a, b and c."""
        meta = ctypes.addressof(self.serial if forks.forked else self.meta)
        given = words_of(struct.pack("=4q2dq", 0, 0, 0, meta, alpha, beta, 0))
        places = (1, 0, 2) if self.swapped else (0, 1, 2)
        return program_of(self.function.packed, given, places, 6, self.bytes)._replace(keep=self)


def find_launch(a: Array, b: Array, c: Array, compiler: Compiler | None = None, pairs: int = 0) -> GemmLaunch | None:
    """Our kernel for arrays of these layouts, see :func:`gemm`; None if there is none.

    ``pairs``: factors of float32 are rounded to bfloat16 in this form, see ``pairs.h``, and those of bfloat16 are
    multiplied in it into float32; 0: they are not.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n)
    compiler : Compiler, optional
    pairs : int
    """
    size, given = c.itemsize, a.itemsize
    halved = pairs != 0 and stores(a, b, c)
    if not (c.dtype in REAL_TYPES or halved) or a.dtype != b.dtype or not (a.size and b.size):
        return None
    swapped = c.strides[1] != size and c.strides[0] == size
    if swapped:
        a, b, c = b.T, a.T, c.T
    (m, k), n = a.shape, b.shape[1]
    if c.strides[1] != size and n != 1:
        return None
    steps = factor_steps(a, b) if pairs and (c.dtype == np.float32 or halved) else ()
    pairs = pairs if steps else 0
    if (a.dtype != c.dtype or halved) and not (pairs and are_stored(a, b)):
        return None
    function = GEMM.variant(compiler or find_compiler(), **context(a, b, c, pairs))
    if function is None:
        return None
    threads = threads_for(m * k * n, PARALLEL_PRODUCTS)
    steps = steps or tuple(step // given for step in (*a.strides, *b.strides))
    sizes = (*steps, c.strides[0] // size, m, half(k) if pairs else k, n)
    return GemmLaunch(function, sizes, threads, swapped, compute_dtype(c.dtype).itemsize, k, halved)


def square_of_pairs(pairs: int, size: int) -> Callable[[], Any]:
    """A product of square matrices of ``size`` rows, whose factors are rounded to ``pairs``, to measure its rate."""
    a, b, out = (np.ones((size, size), np.float32) for _ in range(3))
    return partial(multiply, a, b, out, pairs=pairs)
