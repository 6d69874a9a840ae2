"""Products of int8: kernels multiply words of four numbers that follow each other along the inner dimension.

A product is a convolution whose weights are a matrix of int8: a row for each map, in which four channels are a word,
and each word is followed by those of the other taps. A product of matrices has one tap. Sums are exact.
"""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from neonlike import settings
from neonlike.kernels.c.routine import INT, POINTER, REAL, Routine, address, threads_for
from neonlike.kernels.c.simd import ask_for_tiles, has_byte_tiles, tiles_work, vector_bytes
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.memory import aligned_empty
from neonlike.optree.npfuncs import Array

META = (
    "GROUPS", "CHANNELS", "QUADS_OF_GROUP", "MAPS", "N", "D", "H", "W", "PADDED_D", "PADDED_H", "PADDED_W",
    "PAD_D", "PAD_H", "PAD_W", "T", "R", "S", "DILATION_D", "DILATION_H", "DILATION_W",
    "STRIDE_D", "STRIDE_H", "STRIDE_W", "M", "P", "Q", "SOURCE_STEP", "RESULT_STEP", "RELU", "TOGETHER", "THREADS",
)  # fmt: skip
"""Numbers that describe a product; channels and maps are those of a group, steps those between channels and maps."""
HEADERS = ("int8/quads.h", "int8/quad_tiles.h", "tiles.h")
PACKED = Routine(
    "c/int8/product.c.j2", (*(POINTER,) * 8, REAL, REAL), "product in int8 of quantized input", HEADERS
)
MATRICES = Routine("c/int8/product.c.j2", (POINTER,) * 5, "product of matrices of int8", HEADERS)
PANELS = Routine("c/int8/panels.c.j2", (*(POINTER,) * 3, INT, INT), "panels of a matrix of int8", HEADERS)
PARALLEL_PRODUCTS = 1 << 21
"""Multiplications from which more than one thread pays."""
MOST_TOGETHER, BYTES_TOGETHER = 16, 1 << 17
"""Panels of columns that a thread takes at a time, and their bytes: results of a row are written in longer pieces."""
FIT_IN_INT32 = (1 << 17) - 1
"""Most products of two int8 whose sum always fits in int32."""
INSTRUCTION, WORDS_OF_16_BITS, PLAIN, TILES = 1, 2, 3, 4
"""Forms of the arithmetic, see ``quads.h``; the first takes the second's or third's where there is no instruction.
The last is by Intel's tiles, see ``quad_tiles.h``."""
SIDE = 16
"""Rows of a processor's tile, and words of each."""
FEWEST_BY_TILES, NARROWEST_BY_TILES, SHORTEST_BY_TILES = 1 << 18, SIDE, 2 * SIDE
"""Multiplications, rows and columns, and numbers along the inner dimension from which tiles are used, where there are.

By reasoning, as no such processor was at hand to measure: tiles multiply 1,024 numbers in a cycle, as Intel says, and
``vpdpbusd`` 64 or 128. From these sizes on, more than an eighth of the tiles is used. Beginning and ending with tiles
takes some hundred cycles of a unit of work, and ``vpdpbusd`` 2,000 and more for the least of these products.
"""
OF_A_TEST = ((77, 300, 45), (45, 83, 170))
"""Sizes (m, k, n) of products that are tried before tiles are used; their ends fill no tile."""
Triple = tuple[int, int, int]


def quads_of(count: int) -> int:
    """Words of ``count`` numbers."""
    return -(-count // 4)


def _whole_tiles(maps: int, rows: int) -> int:
    """Rows of all tiles that hold so many maps."""
    return -(-maps // rows) * rows


def _depth(words: int, form: int) -> int:
    """Words along the inner dimension of packed panels: those of whole tiles, or as many as there are."""
    return _whole_tiles(words, SIDE) if form == TILES else words


class Sizes(NamedTuple):
    """Sizes of a product: those of a convolution, without its dtype; of a matrix product W columns of one pixel.

    Attributes
    ----------
    groups : int
    channels, maps : int
        Of one group.
    images : int
    inside, taps, outside, padding, strides, dilation : tuple of int
        Depth, height, width of the input, the filter and the output.
    """

    groups: int
    channels: int
    maps: int
    images: int
    inside: Triple
    taps: Triple
    outside: Triple
    padding: Triple
    strides: Triple
    dilation: Triple

    @property
    def padded(self) -> Triple:
        """Depth, height and width of the input with its padding; the width is a multiple of the stride."""
        depth, height, width = (size + 2 * pad for size, pad in zip(self.inside, self.padding))
        return depth, height, -(-width // self.strides[2]) * self.strides[2]

    @property
    def quads(self) -> int:
        """Words of the channels of a group."""
        return quads_of(self.channels)

    @property
    def depth(self) -> int:
        """Words along the inner dimension."""
        return self.quads * int(np.prod(self.taps))

    @property
    def products(self) -> int:
        """Multiplications."""
        return self.groups * self.maps * self.depth * 4 * int(np.prod(self.outside)) * self.images

    def together(self, columns: int, threads: int, form: int) -> int:
        """Panels of ``columns`` results that a thread takes at a time: a cache holds them, and many units are left."""
        panels, nbytes = int(np.prod(self.outside)) * self.images // columns, 4 * columns * _depth(self.depth, form)
        return max(1, min(MOST_TOGETHER, BYTES_TOGETHER // nbytes, panels // (4 * threads)))

    def words(self, columns: int, threads: int, form: int) -> int:
        """Words of working memory: those of the padded input, and panels of ``columns`` for each thread."""
        lines = self.groups * self.quads * int(np.prod(self.padded)) * self.images
        panels = self.together(columns, threads, form) * _depth(self.depth, form) * columns
        return lines + columns + threads * (panels + columns)


@lru_cache(maxsize=512)
def matrix_sizes(m: int, k: int, n: int) -> Sizes:
    """Sizes of the product (m, k) x (k, n).

    Parameters
    ----------
    m, k, n : int
    """
    row, one, none = (1, 1, n), (1, 1, 1), (0, 0, 0)
    return Sizes(1, k, m, 1, row, one, row, none, one, one)


def may_fill_tiles(maps: int, numbers: int) -> bool:
    """Whether weights of so many maps and numbers along the inner dimension fill tiles, with columns enough.

    Parameters
    ----------
    maps, numbers : int
    """
    return maps >= NARROWEST_BY_TILES and numbers >= SHORTEST_BY_TILES


def fills_tiles(sizes: Sizes) -> bool:
    """Whether a product is multiplied by tiles where there are any.

    Parameters
    ----------
    sizes : Sizes
    """
    columns, numbers = int(np.prod(sizes.outside)) * sizes.images, sizes.channels * int(np.prod(sizes.taps))
    enough = columns >= NARROWEST_BY_TILES and sizes.products >= FEWEST_BY_TILES
    return enough and may_fill_tiles(sizes.maps, numbers)


def form_of(sizes: Sizes, compiler: Compiler) -> int:
    """The form of the arithmetic that is fastest for a product, see ``quads.h``.

    Parameters
    ----------
    sizes : Sizes
    compiler : Compiler
    """
    return TILES if fills_tiles(sizes) and by_tiles(compiler) else INSTRUCTION


def by_tiles(compiler: Compiler) -> bool:
    """Whether products of int8 by Intel's tiles are right here, which is tried once; False where ``NEONLIKE_AMX`` is 0.

    Parameters
    ----------
    compiler : Compiler
    """
    return has_byte_tiles(compiler) and settings.AMX.get() and tiles_are_right(compiler)


@cache
def tiles_are_right(compiler: Compiler) -> bool:
    """Whether the system permits tiles, and small products of int8 by them are exact."""
    exact = (_is_exact(size, compiler) for size in OF_A_TEST)
    return tiles_work(ask_for_tiles(compiler), exact, "tdpbsud", "int8 is multiplied by vpdpbusd")


def _is_exact(size: tuple[int, int, int], compiler: Compiler) -> bool:
    """Whether the product (m, k) x (k, n) of int8 of all sizes and both signs by tiles is right."""
    m, k, n = size
    a, b = ((np.arange(x * y).reshape(x, y) * 77 % 256 - 128).astype(np.int8) for x, y in ((m, k), (k, n)))
    found = np.zeros((m, n), np.int32)
    if call := matrix_call(a, b, found, compiler, TILES):
        call.run()
    return np.array_equal(found, a.astype(int) @ b.astype(int))


class Tile(NamedTuple):
    """A register tile: ``rows`` by two vectors of ``nbytes``."""

    rows: int
    nbytes: int

    @property
    def lanes(self) -> int:
        """Words of a vector."""
        return self.nbytes // 4

    @property
    def columns(self) -> int:
        """Results of a row."""
        return 2 * self.lanes


def tile_of(compiler: Compiler | None, form: int = INSTRUCTION) -> Tile:
    """The register tile for this machine: of 32 registers, or of 16; or two by two of the processor's tiles."""
    if form == TILES:
        return Tile(2 * SIDE, 4 * SIDE)
    nbytes = vector_bytes(compiler)
    return Tile(12 if nbytes == 64 else 4, nbytes)


class Panels(NamedTuple):
    """Weights as kernels read them.

    Attributes
    ----------
    quads : ndarray of int32
        Panels of words, and a vector more, which kernels may read.
    less : ndarray of int64
        128 times the sum of each row.
    """

    quads: Array
    less: Array


def panels_of(weights: Array, groups: int, compiler: Compiler | None, form: int = INSTRUCTION) -> Panels | None:
    """Panels of the weights (maps, numbers along the inner dimension) of all groups; None if there is no kernel.

    Parameters
    ----------
    weights : int8 array
    groups : int
    compiler : Compiler or None
    form : int
        Of the arithmetic: :data:`TILES` have panels of their own.
    """
    if compiler is None:
        return None
    tile = tile_of(compiler, form)
    function = PANELS.variant(compiler, tile=tile, **({"quads": TILES} if form == TILES else {}))
    if function is None:
        return None
    maps, depth = len(weights) // groups, _depth(quads_of(weights.shape[1]), form)
    all_rows = _whole_tiles(maps, tile.rows)
    size = all_rows * depth
    quads = aligned_empty((groups * size + tile.lanes,), np.dtype(np.int32))
    less = np.empty(groups * all_rows, np.int64)
    quads[groups * size :] = 0
    for group in range(groups):
        part = np.ascontiguousarray(weights[group * maps : (group + 1) * maps])
        words, sums = address(quads[group * size :]), address(less[group * all_rows :])
        function(address(part), words, sums, maps, weights.shape[1])
    return Panels(quads, less)


@lru_cache(maxsize=512)
def _meta(sizes: Sizes, source_step: int, result_step: int, relu: bool, columns: int, threads: int, form: int) -> Any:
    s = sizes
    numbers = (
        s.groups, s.channels, s.quads, s.maps, s.images, *s.inside, *s.padded, *s.padding, *s.taps, *s.dilation,
        *s.strides, *s.outside, source_step, result_step, relu, s.together(columns, threads, form), threads,
    )  # fmt: skip
    return (ctypes.c_int64 * len(META))(*numbers)


def quantized_call(
    sizes: Sizes,
    addresses: tuple[int | None, ...],
    weights: tuple[int, ...],
    steps: tuple[int, int],
    inverse: float,
    slope: float | None,
    compiler: Compiler,
    form: int = INSTRUCTION,
) -> KernelCall | None:
    """The call that quantizes an input of float32 and multiplies it by weights; None if there is no kernel.

    Parameters
    ----------
    sizes : Sizes
    addresses : tuple
        Of the input, the bias or None, and the result.
    weights : tuple of int
        Addresses of their panels (two) and of the scales of the rows; hold them as long as the call.
    steps : tuple of int
        Elements between channels of the input, and between maps of the result.
    inverse : float
        What the input is multiplied by before it is rounded.
    slope : float or None
        Of a rectifier; None: there is none.
    compiler : Compiler
    form : int
        Of the arithmetic, such as :data:`INSTRUCTION`; that of the panels.
    """
    tile, threads = tile_of(compiler, form), threads_for(sizes.products, PARALLEL_PRODUCTS)
    function = PACKED.variant(
        compiler, quads=form, tile=tile, source="float", result="float", packed=True, meta=META
    )
    if function is None:
        return None
    meta = _meta(sizes, *steps, slope is not None, tile.columns, threads, form)
    work = 4 * sizes.words(tile.columns, threads, form)
    tail = (*weights, ctypes.addressof(meta), inverse, slope or 0.0)
    return KernelCall(function, addresses, tail, work, keep=meta)


def matrix_call(
    a: Array, b: Array, c: Array, compiler: Compiler, form: int = 0
) -> KernelCall | None:
    """The call for c = a . b of int8 matrices into int32 or float32; None if their rows are not contiguous.

    Parameters
    ----------
    a, b, c : arrays (m, k), (k, n), (m, n)
        None of them empty; ``c`` shares no memory with the others.
    compiler : Compiler
    form : int
        As of :func:`quantized_call`; 0: the fastest.
    """
    (m, k), n = a.shape, b.shape[1]
    if (a.strides[1] != 1 and k > 1) or (m > 1 and a.strides[0] != k) or (b.strides[1] != 1 and n > 1):
        return None
    if c.strides[1] != c.itemsize and n > 1:
        return None
    sizes = matrix_sizes(m, k, n)
    form = form or form_of(sizes, compiler)
    tile = tile_of(compiler, form)
    threads = threads_for(sizes.products, PARALLEL_PRODUCTS)
    result = "float" if c.dtype == np.float32 else "int32_t"
    function = MATRICES.variant(
        compiler, quads=form, tile=tile, source="int8_t", result=result, packed=False, meta=META
    )
    if function is None:
        return None
    meta = _meta(sizes, b.strides[0], c.strides[0] // c.itemsize, False, tile.columns, threads, form)
    packed = _whole_tiles(m, tile.rows) * (2 + _depth(sizes.quads, form))
    work = 4 * (packed + sizes.words(tile.columns, threads, form))
    addresses = (address(a), address(b), address(c))
    return KernelCall(function, addresses, (ctypes.addressof(meta),), work, keep=meta)
