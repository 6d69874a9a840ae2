"""Selection of a stage's CUDA kernel form by its arrays (see ``forms``), and of its launch.

The split of a sum never depends on the device: results are the same on all devices.
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
"""Default number of threads per block."""
WAVES = 32
"""Maximum number of blocks per multiprocessor in an elementwise launch; threads loop over the rest."""
MAX_VECTOR, ALIGNMENT = 8, 16
"""Maximum number of elements in a vectorized access, and its maximum size in bytes."""
COUNTING = 2
"""Class of a counter that increases by one along a vector and is a multiple of its length at its start."""
RANKS = (1, 2, 4, 8)
"""Numbers of axes with compiled kernels; others are padded with axes of size 1."""
TURNED = 3
"""Class of a transposed input: contiguous along the last axis but one, and read through a tile in shared memory."""
TILE, TILE_ROWS, MIN_TURNED, MAX_TURNED = 32, 8, 8, 4
"""Side of such a tile, rows of threads that fill it, minimum size of its two axes, maximum number of such inputs."""
STRIPS = 8
"""Vectors down such a tile, and side by side in a warp's writes, where threads access memory by vectors."""
HELD_TARGET, HELD_MOST = 8, 16
"""Elements of a row that a thread keeps in registers: target and maximum, divided by the number of arrays read."""
ROW_PART, COLUMN_PART = 1 << 14, 1 << 10
"""Elements of a row, or of a column, reduced by one block where few long ones are split."""
LONGEST_ROW, LONGEST_COLUMN = 1 << 16, 1 << 13
"""Length from which rows and columns are always split, which bounds a thread's float32 sum to some hundred terms."""
FULL = 256
"""Number of blocks from which rows are not split to fill the device. Constant: sums must not depend on the device."""
MAX_PARTS = 1 << 15
"""Maximum number of parts of a row."""
TICKETS = 4096
"""Number of block groups, one per x of the grid, that can detect their last block in a split reduction."""
NARROW = 1 << 30
"""Bound for int32 counts and offsets, with room for the increments of the last block's threads."""
MOST_THREADS, HELD_THREADS, MIN_COLUMNS = 1024, 1024, 4
"""Maximum threads per block; maximum threads per row kept in registers; minimum columns of a reduction by columns."""


@dataclass(frozen=True, slots=True)
class MapKey:
    """Form of an elementwise kernel.

    ``classes`` has for each array 1 if its step along the innermost axis is not 0, else 0, or ``TURNED`` or
    ``COUNTING``. A thread computes ``vector`` elements at once; if there are several, they are contiguous in all arrays
    of class 1, and transposed inputs are also read by vectors. ``wide``: offsets are int64. Each form is a separate
    kernel to compile, so there are few: steps are arguments, and ranks are rounded up to ``RANKS``.
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
    """Form of a reduction. A row is the elements of one result, regardless of layout.

    The number of threads per row is not part of the form, since each form is a separate kernel to compile.

    Attributes
    ----------
    columns : bool
        Neighbouring threads take neighbouring rows, because memory is contiguous across rows, not along them.
    most : int
        Maximum threads per block.
    kept, reduced : int
        Numbers of kept and of reduced axes.
    held : int
        Vectors of ``vector`` elements that a thread keeps in registers from the first pass to the last; 0: rows are too
        long and read again in each pass.
    split : bool
        Rows are split into parts, each reduced by a separate block, with one launch per pass.
    counted : bool
        There are counters for the blocks of each split row (``tickets.py``).
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
    """Form for given arrays, and its launch: numbers of the argument ``meta``, grid, block, partial results."""

    key: Key
    meta: list[int]
    grid: Size3
    block: Size3
    cells: int = 0


def fit_map(shape: Shape, arrays: Sequence[Any], inputs: int, aligned: bool, device: Capabilities) -> Fit:
    """Select the form of an elementwise kernel over ``shape``; the first ``inputs`` of ``arrays`` are read.

    ``aligned`` states that all of them start at multiples of ``ALIGNMENT`` bytes.

    Parameters
    ----------
    shape : tuple of int
    arrays : sequence
        Arrays and counters: inputs, then outputs.
    inputs : int
    aligned : bool
    device : Capabilities
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
    """Pad ``axes`` with leading axes of size 1 to one of ``RANKS``; more axes are left unchanged."""
    rank = next((rank for rank in RANKS if rank >= len(axes)), len(axes))
    return [Axis(1, axes[0].reduced, (0,) * arrays)] * (rank - len(axes)) + axes


def _fit_turned(axes: list[Axis], turned: list[int], arrays: Sequence[Any], aligned: bool, wide: bool) -> Fit:
    """Tiles of the last two axes, one per block; the leading axes are unraveled from the block's number."""
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
    """Thread accesses to a transposed tile.

    Attributes
    ----------
    vector : int
        Elements of a row that a thread computes and writes.
    rows, columns : int
        Elements of a column in one read, and number of adjacent columns read, since they share cells.
    down, across : int
        Rows and columns of a tile.
    """

    vector: int
    rows: int
    columns: int
    down: int
    across: int


def strips(size: int) -> Strips:
    """Tile of elements of ``size`` bytes (2, 4 or 8), with rows of 32 cells of 4 or 8 bytes."""
    vector, columns = ALIGNMENT // size, max(1, 4 // size)
    rows = vector // columns
    return Strips(vector, rows, columns, STRIPS * rows, 32 * columns)


def _has_strips(axes: list[Axis], turned: list[int], arrays: Sequence[Any]) -> bool:
    """Whether all arrays, if they start at multiples of ``ALIGNMENT``, can be accessed by vectors."""
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
    """Select the form of a reduction of ``shape`` over ``axes``; see :func:`fit_map`.

    Parameters
    ----------
    shape : tuple of int
    axes : tuple of int
    arrays, inputs, aligned
        As of :func:`fit_map`.
    """
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
    """True if an array of ``shape`` varies along one of ``axes`` of ``space``."""
    missing = len(space) - len(shape)
    return any(axis >= missing and shape[axis - missing] != 1 for axis in axes)


def _by_columns(kept: Axis, reduced: Axis, inputs: int) -> bool:
    """True if memory is contiguous along the kept axes, not the reduced ones."""
    if kept.size < MIN_COLUMNS:
        return False
    across = sum(step == 1 for step in kept.steps[:inputs])
    along = sum(step == 1 for step in reduced.steps[:inputs])
    return across > along or (reduced.size == 1 and across == along)


def _shares(columns: bool, length: int, vector: int, read: int) -> tuple[int, int, int]:
    """Threads per row, rows per block, and vectors of a row that a thread keeps in registers (0 if rows are too long).

    The last takes few values, since each is a separate kernel to compile. ``read`` is the number of arrays read.
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
    """Length of the part of a row or column that one block reduces."""
    part, longest = (COLUMN_PART, LONGEST_COLUMN) if columns else (ROW_PART, LONGEST_ROW)
    if length <= longest and (blocks >= FULL or length < 2 * part):
        return length
    while length > part * MAX_PARTS:
        part *= 2
    return part


def merged(axes: list[Axis]) -> list[Axis]:
    """Merge neighbours in ``axes`` where every array's steps allow it."""
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
    """Elements per vectorized access: as many as fill ``ALIGNMENT`` bytes of the narrowest array, or 1.

    The ``moving`` arrays have to be contiguous along ``inner``, with all rows aligned to an access. ``exact``: the
    innermost size has to be a multiple of it, too.
    """
    if not aligned or not moving or any(inner.steps[i] != 1 for i in moving):
        return 1
    vector = min(MAX_VECTOR, ALIGNMENT // min(arrays[i].itemsize for i in moving))
    even = not exact or inner.size % vector == 0
    return vector if even and all(axis.steps[i] % vector == 0 for i in moving for axis in outer) else 1


def needs_wide(axes: list[Axis], arrays: int) -> bool:
    """True if counts or offsets do not fit in 32 bits, with room for increments."""
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
