"""Chooses the form of a stage's CUDA kernel that fits the arrays it meets (see ``forms``), and its launch.

How a sum is split never depends on the device: results are the same on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from neonlike import settings
from neonlike.kernels.codegen.layout import Axis, Counter, collapse
from neonlike.kernels.cuda.device import Capabilities, Size3
from neonlike.optree.shapes import Shape

THREADS = 256
"""Threads of a block, unless a form needs more."""
WAVES = 32
"""Most blocks for each multiprocessor in an elementwise launch; the threads loop over what is left."""
MAX_VECTOR, ALIGNMENT = 8, 16
"""Most elements of a vectorized access, and most bytes of one."""
COUNTING = 2
"""Class of a counter that goes up by one along a vector and starts it at a multiple of the vector's length."""
RANKS = (1, 2, 4, 8)
"""Numbers of axes that kernels are compiled for; others get further axes of size 1."""
TURNED = 3
"""Class of a transposed input: contiguous along the last axis but one, and read through a tile in shared memory."""
TILE, TILE_ROWS, MIN_TURNED, MAX_TURNED = 32, 8, 8, 4
"""Side of such a tile, rows of threads that fill it, least size of its two axes, most inputs that are read so."""
STRIPS = 8
"""Vectors down such a tile, and side by side in what a warp writes of it, where threads access memory by vectors."""
HELD_TARGET, HELD_MOST = 8, 16
"""Elements of a row that a thread keeps in registers, wanted and at most; over the number of arrays that are read."""
ROW_PART, COLUMN_PART = 1 << 14, 1 << 10
"""Elements of a row, or of a column, that a block reduces where long ones are split because there are few."""
LONGEST_ROW, LONGEST_COLUMN = 1 << 16, 1 << 13
"""Longer ones are always split: this bounds the float32 sum of one thread to some hundred terms."""
FULL = 256
"""Blocks from which rows are not split to fill the device. A constant: sums must not depend on the device."""
MAX_PARTS = 1 << 15
"""Most parts that a row is split into."""
TICKETS = 4096
"""Groups of blocks, one for each of the grid's x, whose last one a split reduction can find."""
NARROW = 1 << 30
"""Counts and offsets below this are int32, with room for what the threads of the last block add to them."""
MOST_THREADS, HELD_THREADS, MIN_COLUMNS = 1024, 1024, 4
"""Most threads of a block; most that share a row kept in registers; fewest columns of a reduction by columns."""


@dataclass(frozen=True, slots=True)
class MapKey:
    """Form of an elementwise kernel.

    ``classes`` has for each array 1 if its step along the innermost axis is not 0, else 0, or ``TURNED`` or
    ``COUNTING``. A thread computes ``vector`` elements at once; if these are several, they are contiguous in all arrays
    of class 1, and transposed inputs are read by vectors too. ``wide``: offsets are int64. Each form is a kernel to
    compile, so there are few: steps are arguments, and ranks are rounded up to ``RANKS``.
    """

    rank: int
    classes: tuple[int, ...]
    vector: int
    wide: bool

    @property
    def turned(self) -> bool:
        """Whether inputs are transposed through shared memory."""
        return TURNED in self.classes


@dataclass(frozen=True, slots=True)
class ReduceKey:
    """Form of a reduction. A row is the elements of one result, wherever they lie.

    How many threads share a row is no part of the form: each form is a kernel to compile.

    Attributes
    ----------
    columns : bool
        Neighbouring threads take neighbouring rows, since memory is contiguous across rows rather than along them.
    most : int
        Most threads of a block.
    kept, reduced : int
        Number of axes that are kept, and of those that are reduced.
    held : int
        Vectors of ``vector`` elements that a thread keeps in registers from the first pass to the last; 0: rows are
        too long for that and read again in each pass.
    split : bool
        Rows are split into parts, each reduced by a block of its own, with one launch for each pass.
    counted : bool
        There are counters for the blocks of each row that is split (``tickets.py``).
    """

    columns: bool
    most: int
    kept: int
    reduced: int
    vector: int
    held: int
    wide: bool
    split: bool
    counted: bool = False


Key: TypeAlias = MapKey | ReduceKey


@dataclass(frozen=True, slots=True)
class Fit:
    """The form for certain arrays, and its launch: numbers of the argument ``meta``, grid, block, partial results."""

    key: Key
    meta: list[int]
    grid: Size3
    block: Size3
    cells: int = 0


def fit_map(shape: Shape, arrays: Sequence[Any], inputs: int, aligned: bool, device: Capabilities) -> Fit:
    """The form of an elementwise kernel over ``shape``; the first ``inputs`` of ``arrays`` are read.

    ``aligned`` says that all of them start at multiples of ``ALIGNMENT`` bytes.
    """
    axes = collapse(shape, (), list(arrays))
    axes = merged(sorted(axes, key=lambda axis: -abs(axis.steps[-1])))
    axes = axes or [Axis(1, False, tuple([int(array.shape == shape) for array in arrays]))]
    inner = axes[-1]
    wide = needs_wide(axes, len(arrays))
    if len(axes) > 1 and min(inner.size, axes[-2].size) >= MIN_TURNED:
        turned = [i for i, array in enumerate(arrays[:inputs]) if _is_turned(i, array, axes)]
        if turned:
            return _fit_turned(_padded(axes, len(arrays)), turned[:MAX_TURNED], arrays, aligned, wide)
    moving = [i for i, array in enumerate(arrays) if inner.steps[i] and not isinstance(array, Counter)]
    vector = _vector(axes[:-1], inner, arrays, moving, aligned, exact=len(axes) > 1)
    classes = [int(step != 0 or vector == 1) for step in inner.steps]
    for i, array in enumerate(arrays):
        if isinstance(array, Counter) and inner.steps[i] == 1 and not any(a.steps[i] % vector for a in axes[:-1]):
            classes[i] = COUNTING if vector % 4 == 0 else classes[i]
    axes = _padded(axes, len(arrays))
    chunks = -(-inner.size // vector)
    count = chunks * math.prod(axis.size for axis in axes[:-1])
    sizes = [axis.size for axis in axes[:-1]] + [chunks]
    meta = [count, inner.size, *divisors(sizes, wide)]
    meta += [axis.steps[i] for i in range(len(arrays)) for axis in axes]
    blocks = max(1, min(-(-count // THREADS), WAVES * device.multiprocessors))
    return Fit(MapKey(len(axes), tuple(classes), vector, wide), meta, (blocks, 1, 1), (THREADS, 1, 1))


def _is_turned(i: int, array: Any, axes: list[Axis]) -> bool:
    """Whether an input is contiguous along the last axis but one, and strided along the last."""
    return axes[-1].steps[i] not in (0, 1) and axes[-2].steps[i] == 1 and not isinstance(array, Counter)


def _padded(axes: list[Axis], arrays: int) -> list[Axis]:
    """``axes`` with leading axes of size 1, so that their number is one of ``RANKS``; as they are if there are more."""
    rank = next((rank for rank in RANKS if rank >= len(axes)), len(axes))
    return [Axis(1, axes[0].reduced, (0,) * arrays)] * (rank - len(axes)) + axes


def _fit_turned(axes: list[Axis], turned: list[int], arrays: Sequence[Any], aligned: bool, wide: bool) -> Fit:
    """Tiles of the last two axes, one a block; the axes before are unraveled from the block's number."""
    down, across = axes[-2].size, axes[-1].size
    by_vectors = aligned and _has_strips(axes, turned, arrays)
    tile = strips(arrays[turned[0]].itemsize) if by_vectors else Strips(1, 1, 1, TILE, TILE)
    sizes = [*(axis.size for axis in axes[:-2]), -(-down // tile.down), -(-across // tile.across)]
    meta = [down, across, *divisors(sizes, wide)]
    meta += [axis.steps[i] for i in range(len(arrays)) for axis in axes]
    classes = [int(step != 0 or not by_vectors) for step in axes[-1].steps]
    for i in turned:
        classes[i] = TURNED
    block = (STRIPS, THREADS // STRIPS, 1) if by_vectors else (TILE, TILE_ROWS, 1)
    return Fit(MapKey(len(axes), tuple(classes), tile.vector, wide), meta, (math.prod(sizes), 1, 1), block)


class Strips(NamedTuple):
    """How threads read and write a tile that is turned.

    Attributes
    ----------
    vector : int
        Elements of a row that a thread computes and writes.
    rows, columns : int
        Elements of a column that it reads at once, and columns beside each other of which it does, as they share cells.
    down, across : int
        Rows and columns of a tile.
    """

    vector: int
    rows: int
    columns: int
    down: int
    across: int


def strips(size: int) -> Strips:
    """The tile of elements of ``size`` bytes (2, 4 or 8): its rows are 32 cells of 4 or 8 bytes."""
    vector, columns = ALIGNMENT // size, max(1, 4 // size)
    rows = vector // columns
    return Strips(vector, rows, columns, STRIPS * rows, 32 * columns)


def _has_strips(axes: list[Axis], turned: list[int], arrays: Sequence[Any]) -> bool:
    """Whether all arrays, if they start at multiples of ``ALIGNMENT``, can be read and written by vectors."""
    size = arrays[turned[0]].itemsize
    if size not in (2, 4, 8) or any(isinstance(array, Counter) for array in arrays):
        return False
    tile, (*outer, down, across) = strips(size), axes
    if down.size % tile.rows or across.size % tile.vector:
        return False
    for i, array in enumerate(arrays):
        if i in turned:
            whole = array.itemsize == size and not any(axis.steps[i] % tile.rows for axis in (*outer, across))
        else:
            even = not any(axis.steps[i] % tile.vector for axis in (*outer, down))
            whole = across.steps[i] == 0 or (across.steps[i] == 1 and even)
        if not whole:
            return False
    return True


def fit_reduce(shape: Shape, axes: tuple[int, ...], arrays: Sequence[Any], inputs: int, aligned: bool) -> Fit:
    """The form of a reduction of ``shape`` over ``axes``; see :func:`fit_map`."""
    found = collapse(shape, axes, list(arrays))
    none = (0,) * len(arrays)
    kept = merged([axis for axis in found if not axis.reduced]) or [Axis(1, False, none)]
    reduced = merged([axis for axis in found if axis.reduced]) or [Axis(1, True, none)]
    length, count = (math.prod(axis.size for axis in part) for part in (reduced, kept))
    columns = _by_columns(kept[-1], reduced[-1], inputs)
    moving = [i for i, a in enumerate(arrays) if not isinstance(a, Counter) and _varies(a.shape, shape, axes)]
    vector = 1
    if not columns and len(reduced) == 1:
        vector = _vector(kept, reduced[0], arrays, moving, aligned, exact=True)
    threads, rows, held = _shares(columns, length, vector, sum(i < inputs for i in moving))
    parts, part = 1, length
    if not held:
        part = _part(columns, length, -(-count // rows))
        parts = -(-length // part)
        if parts > 1:
            threads, rows = (32, 32) if columns else (THREADS, 1)
    wide = needs_wide([*kept, *reduced], len(arrays))
    most = THREADS if threads * rows <= THREADS else MOST_THREADS
    kept, reduced = _padded(kept, len(arrays)), _padded(reduced, len(arrays))
    grid, split = (-(-count // rows), parts, 1), parts > 1
    counted = split and grid[0] <= TICKETS and settings.GPU_TICKETS.get()
    key = ReduceKey(columns, most, len(kept), len(reduced), vector, held, wide, split, counted)
    meta = [length, count, parts, part]
    meta += divisors([axis.size for axis in kept], wide) + divisors([axis.size for axis in reduced], wide)
    meta += [axis.steps[i] for i in range(len(arrays)) for axis in (*kept, *reduced)]
    block = (rows, threads, 1) if columns else (threads, rows, 1)
    return Fit(key, meta, grid, block, parts * count)


def _varies(shape: Shape, space: Shape, axes: tuple[int, ...]) -> bool:
    """True if something of ``shape`` varies along one of ``axes`` of ``space``."""
    missing = len(space) - len(shape)
    return any(axis >= missing and shape[axis - missing] != 1 for axis in axes)


def _by_columns(kept: Axis, reduced: Axis, inputs: int) -> bool:
    """True if memory is contiguous along the kept axes rather than the reduced ones."""
    if kept.size < MIN_COLUMNS:
        return False
    across = sum(step == 1 for step in kept.steps[:inputs])
    along = sum(step == 1 for step in reduced.steps[:inputs])
    return across > along or (reduced.size == 1 and across == along)


def _shares(columns: bool, length: int, vector: int, read: int) -> tuple[int, int, int]:
    """Threads a row, rows a block, and vectors of a row that a thread keeps in registers: 0 if rows are too long.

    The last takes few values, since each is a kernel to compile. ``read`` is the number of arrays read.
    """
    chunks, few = -(-length // vector), max(1, read)
    most = 32 if columns else HELD_THREADS
    held = max(1, HELD_TARGET // few // vector)
    threads = min(most, 1 << (-(-chunks // held) - 1).bit_length())
    if threads * held < chunks:
        held = held * 2 if held * vector * 2 <= max(HELD_MOST // few, vector) else 0
        if threads * held < chunks:
            return (32, 32, 0) if columns else (512, 1, 0)
    if columns:
        return threads, max(32, THREADS // threads), held
    return threads, THREADS // threads if threads <= 32 else 1, held


def _part(columns: bool, length: int, blocks: int) -> int:
    """How much of a row or column a block reduces."""
    part, longest = (COLUMN_PART, LONGEST_COLUMN) if columns else (ROW_PART, LONGEST_ROW)
    if length <= longest and (blocks >= FULL or length < 2 * part):
        return length
    while length > part * MAX_PARTS:
        part *= 2
    return part


def merged(axes: list[Axis]) -> list[Axis]:
    """``axes``, with neighbours merged into one where every array's steps allow it."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and all(outer == step * axis.size for outer, step in zip(merged[-1].steps, axis.steps)):
            merged[-1] = Axis(merged[-1].size * axis.size, axis.reduced, axis.steps)
        else:
            merged.append(axis)
    return merged


def _vector(
    outer: list[Axis], inner: Axis, arrays: Sequence[Any], moving: list[int], aligned: bool, exact: bool
) -> int:
    """Elements of a vectorized access: as many as fill ``ALIGNMENT`` bytes of the narrowest array, or 1.

    The ``moving`` arrays have to be contiguous along ``inner``, and all their rows aligned to an access. ``exact``: the
    innermost size has to be a multiple of it, too.
    """
    if not aligned or not moving or any(inner.steps[i] != 1 for i in moving):
        return 1
    vector = min(MAX_VECTOR, ALIGNMENT // min(arrays[i].itemsize for i in moving))
    even = not exact or inner.size % vector == 0
    return vector if even and all(axis.steps[i] % vector == 0 for i in moving for axis in outer) else 1


def needs_wide(axes: list[Axis], arrays: int) -> bool:
    """True if counts or offsets do not fit in 32 bits, with room for what is added to them."""
    if math.prod(axis.size for axis in axes) >= NARROW:
        return True
    return any(sum(abs(axis.steps[i]) * axis.size for axis in axes) >= NARROW for i in range(arrays))


def divisors(sizes: list[int], wide: bool) -> list[int]:
    """Size, multiplier and shift of each axis for ``nl_quotient`` of types.h."""
    numbers: list[int] = []
    for size in sizes:
        shift = (size - 1).bit_length()
        multiplier = 0 if wide else ((1 << 32) * ((1 << shift) - size)) // size + 1
        numbers += [size, multiplier - (1 << 32) if multiplier >= 1 << 31 else multiplier, shift]
    return numbers
