"""The schedule of a stage's kernel for given arrays, and the sizes and strides that it is called with.

A *column block* is a range of adjacent columns that a thread reduces at a time. *Far* arrays exceed the caches: their
rows are software-prefetched.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from neonlike.kernels.c.fit_lanes import fit_lanes
from neonlike.kernels.c.schedule import REPEATED, REVERSED, SPREAD, TURNED, CSchedule, Fit
from neonlike.kernels.c.sizes import BY_COLUMNS, BY_ROWS, elementwise_sizes
from neonlike.kernels.codegen.layout import Axis, Counter, collapse, merged
from neonlike.kernels.planning.plan import Stage, StageKind
from neonlike.kernels.run.memory import LINE
from neonlike.kernels.run.threads import thread_count
from neonlike.optree.shapes import Shape

MAX_WIDTH, FAR_WIDTH = 512, 256
"""Most columns of a column block (passed to the template), and most of a far one.

Wider blocks take less time up to 1024 columns, but too many prefetches would be in flight.
"""
FAR_BYTES, AHEAD = 8 << 20, 8
"""Total size of the arrays from which they are far, and the rows that are prefetched ahead then.

Hardware prefetchers do not follow strides as long as a row. Measured at 16M elements, float32: softmax over axis 0
took 0.7 to 0.8 of the time; below 8 MiB 1.1. Light reductions read four rows at a time, which hides latency well
enough: with prefetching, a sum of 4096 rows of 4096 took 1.25 of the time, of 1024 rows of 8 KiB 1.5.
"""
PACKED_BYTES, PACKED_WIDTH = 4 << 20, 64
"""Most bytes of a packed column block, which a thread copies to contiguous memory, and its least columns.

At 4096 rows of float32, blocks of 256 columns took less time than of 128 or 512.
"""
PIPED_BYTES = 1 << 20
"""Bytes of a packed block from which blocks are pipelined instead, all with ``PACKED_WIDTH`` columns.

Measured at 16M elements, float32: softmax over axis 0 took 0.75 of the time at 4096 rows, 0.86 at 2048; a division by
the standard deviation 0.89 of it at 4096 and 1.1 at 1024.
"""
SPLIT = 65536
"""Length from which rows are split into parts of this length, which threads share."""
SHORT_ROW, MANY_ROWS = 48, 64
"""Longest rows, and fewest of them, that are reduced by columns although memory is contiguous along rows.

Measured, float32, sums and softmaxes: up to 12 times faster at rows of 8.
"""
SEARCHED_COLUMNS = 10
"""Columns up to which argmax over more than ``SPLIT`` rows treats each column as a row with a stride.

Threads share the parts of such a row. 3, 4 and 10 columns of float32 took 0.12, 0.32 and 0.64 of the time by columns,
which use one thread.
"""
MANY_DEEP = 16
"""``MANY_ROWS`` if axes on both sides of the kept one are reduced: rows would consist of many short segments."""
FEW_ROWS, FEW_WIDTH, FEW_BYTES = 16, 128, 1 << 20
"""Most rows that are reduced column by column in registers (unrolled), the columns of such a block, and the total size
of the arrays from which such a kernel is compiled, one for each number of rows.

Memory is then read in as many streams as there are rows, which hardware prefetchers follow, unlike blocks read row by
row: the maximum of 4 rows of 1M float32 took 0.54 of the time, sums of 16 rows 0.6 to 0.8.
"""
TILE, MIN_TURNED = 32, 8
"""Rows and columns of the tiles in which ``TURNED`` inputs are transposed, and the least sizes of axes for which it
pays."""
ROW_MAX, SPREAD_ROW, BLOCK, BLOCK_MAX = 255, 8, 1024, 2048
"""Longest rows that are computed by blocks, rows from which a light expression is not if an input is the same along
each, elements of a block, and their limit where more are needed to fill cache lines.

A loop over elements that ends with each row works on a part of a vector, or on none: where an input is the same in
all rows, rows of 3 to 12 float32 took 2 to 7 times as long as one row of all, of float16 15 to 70 times, and 200 of a
sigmoid 1.1 times. Where an input is the same along each row, writing it out takes about as long as to end a loop; but
``exp(x - input)`` took 0.2 to 0.9 of the time.
"""
BLOCKED_LEAST = 2 * BLOCK
"""Elements below which rows are not computed by blocks: to write out inputs would take longer."""
WRITTEN_BYTES = 1 << 16
"""Most bytes of the buffers that inputs are written out to: they are on the stack, which may be small."""


def fit(
    stage: Stage,
    shape: Shape,
    arrays: list[Any],
    inputs: int,
    lanes: bool = False,
    once: bool = True,
    light: bool = False,
) -> Fit | None:
    """The schedule for ``arrays`` (the first ``inputs`` of them are read); None if there is none.

    ``lanes``: a reduction may be by lanes; ``once``: it reads memory once and writes nothing of that size; ``light``:
    it does little arithmetic besides its reductions.

    Parameters
    ----------
    stage : Stage
    shape : tuple of int
        Of the space.
    arrays : list
        Arrays, layouts and counters: inputs, then outputs.
    inputs : int
    lanes, once, light : bool
    """
    if math.prod(shape) == 0:
        return None
    axes = collapse(shape, stage.axes, arrays)
    if stage.kind is StageKind.ELEMENTWISE:
        return _elementwise(axes, arrays, shape, inputs, light)
    if lanes and (found := _by_lanes(axes, len(arrays), once)) is not None:
        return found
    nbytes = sum(a.nbytes for a in arrays if not isinstance(a, Counter))
    far, few = nbytes > FAR_BYTES and not light, light and nbytes > FEW_BYTES
    searched = once and not lanes
    return _reduction(axes, len(arrays), inputs, far, few, searched) or _interleaved(axes, len(arrays), inputs, far)


def _elementwise(axes: list[Axis], arrays: list[Any], shape: Shape, inputs: int, light: bool) -> Fit:
    """Flat if one axis is left, turned if an input is transposed (contiguous along another axis), else nested.

    Rows that are too short for vectors are computed by blocks of them where inputs allow it. If there is a single
    element, arrays of the space's shape count as contiguous.
    """
    axes = axes or [Axis(1, False, tuple([int(array.shape == shape) for array in arrays]))]
    axes = merged(sorted(axes, key=lambda axis: -abs(axis.steps[-1])))  # along the memory of the (last) output
    size = math.prod(shape)
    steps = [step if step in (0, 1, REVERSED) else 2 for step in axes[-1].steps]
    if len(axes) > 1 and axes[-1].size >= MIN_TURNED:
        _turn(axes, steps, [i for i, array in enumerate(arrays[:inputs]) if not isinstance(array, Counter)])
    along = [[axis.steps[i] for axis in axes] for i in range(len(arrays))]
    sizes = elementwise_sizes(len(axes)).fill([axis.size for axis in axes], along)
    if len(axes) == 1:
        return Fit(CSchedule("flat", 1, tuple(steps)), sizes, size)
    rows = size // axes[-1].size
    if all(abs(step) != TURNED for step in steps):
        nested = Fit(CSchedule("nested", len(axes), tuple(steps)), sizes, rows)
        return _blocks(axes, steps, arrays, light) or nested
    tiles = -(-axes[-2].size // TILE)
    return Fit(CSchedule("turned", len(axes), tuple(steps)), sizes, rows // axes[-2].size * tiles)


def _blocks(axes: list[Axis], steps: list[int], arrays: list[Any], light: bool) -> Fit | None:
    """By blocks of rows that hold a whole number of cache lines; None if that does not pay, or rows are not alike."""
    height, width = axes[-2].size, axes[-1].size
    itemsize = min(array.itemsize for array in arrays if not isinstance(array, Counter))
    line = LINE // max(itemsize, 4)
    unit = line // math.gcd(width, line)
    if width > ROW_MAX or unit * width > BLOCK_MAX or width * height < BLOCKED_LEAST:
        return None
    if light and width * itemsize > LINE and width * itemsize % LINE == 0:
        return None
    classes = []
    for i, (down, right) in enumerate(zip(axes[-2].steps, axes[-1].steps)):
        if down == right * width:  # rows follow each other
            classes.append(steps[i])
        elif isinstance(arrays[i], Counter) or (down and right):
            return None
        else:
            classes.append(SPREAD if down else REPEATED)
    written = [array.itemsize for array, kind in zip(arrays, classes) if kind in (REPEATED, SPREAD)]
    if sum(written) * BLOCK_MAX > WRITTEN_BYTES:
        return None
    if SPREAD in classes and light and width >= SPREAD_ROW and itemsize > 2:
        return None
    each = unit * max(1, BLOCK // (unit * width))
    along = [[axis.steps[i] for axis in axes] for i in range(len(arrays))]
    sizes = elementwise_sizes(len(axes), blocks=True).fill([*[axis.size for axis in axes], each], along)
    outer = math.prod(axis.size for axis in axes[:-2])
    return Fit(CSchedule("blocks", len(axes), tuple(classes)), sizes, outer * -(-height // each))


def _turn(axes: list[Axis], steps: list[int], memory: list[int]) -> None:
    """Mark transposed arrays of ``memory`` in ``steps``, and move the axis of their unit stride next to the last."""
    for i in memory:
        along = next((axis for axis in axes[:-1] if abs(axis.steps[i]) == 1 and axis.size >= MIN_TURNED), None)
        if steps[i] == 2 and along is not None:
            axes.remove(along)
            axes.insert(-1, along)
            break
    for i in memory:
        if steps[i] == 2 and abs(axes[-2].steps[i]) == 1 and axes[-2].size >= MIN_TURNED:
            steps[i] = TURNED * axes[-2].steps[i]


def _reduction(axes: list[Axis], count: int, inputs: int, far: bool, few: bool, searched: bool) -> Fit | None:
    """By rows or columns, whichever is contiguous; None if rows or columns have several axes."""
    none = Axis(1, False, (0,) * count)
    pattern = "".join("R" if axis.reduced else "K" for axis in axes)
    if pattern not in ("", "K", "R", "KR", "RK", "KRK"):
        return None
    along = next((axis for axis in axes if axis.reduced), Axis(1, True, (0,) * count))
    before = axes[0] if pattern in ("K", "KR", "KRK") else none
    after = axes[-1] if pattern in ("RK", "KRK") else none
    if after.size == 1 and before.size > 1 and (_runs_down(before, along, inputs) or _short(before, along)):
        before, after = none, before
    if searched and before.size == 1 and after.size <= SEARCHED_COLUMNS and along.size > SPLIT:
        before, after = after, none
    if after.size == 1:
        sizes = BY_ROWS.fill([along.size], zip(before.steps, along.steps))
        schedule = CSchedule("rows" if along.size <= SPLIT else "split", 1, _classes(along.steps))
        return Fit(schedule, sizes, before.size)
    few = few and along.size <= FEW_ROWS and after.size >= FEW_WIDTH
    width = FEW_WIDTH if few else _width(before.size, after.size, far and along.size > AHEAD)
    blocks = -(-after.size // width)
    ahead = AHEAD if far and blocks > 1 and along.size > AHEAD else 0
    sizes = BY_COLUMNS.fill(
        [along.size, after.size, blocks, width, ahead], zip(before.steps, along.steps, after.steps)
    )
    schedule = CSchedule("columns", 1, _classes(after.steps), unrolled=along.size if few else 0)
    return Fit(schedule, sizes, before.size * blocks)


def _by_lanes(axes: list[Axis], count: int, once: bool) -> Fit | None:
    """By lanes, see ``fit_lanes``; arrays of class 1 vary along lanes."""
    found = fit_lanes(axes, count, once)
    if found is None:
        return None
    classes = tuple(1 if i in found.along else 2 if found.across.steps[i] else 0 for i in range(count))
    return Fit(CSchedule("lanes", 1, classes), found.sizes, found.blocks)


def _interleaved(axes: list[Axis], count: int, inputs: int, far: bool) -> Fit:
    """Rows in segments, or deep columns: kept and reduced axes in any order.

    Axes other than that of a row or a column are outer axes of the sizes.
    """
    kept, reduced = [axis for axis in axes if not axis.reduced], [axis for axis in axes if axis.reduced]
    zeros = (0,) * count
    reduced = reduced or [Axis(1, True, zeros)]
    along = max(reduced, key=lambda axis: (_unit_steps(axis, inputs), axis is reduced[-1]))
    across = max(kept, default=None, key=lambda axis: (_unit_steps(axis, inputs), axis is kept[-1]))
    by_rows = across is None or (
        _unit_steps(across, inputs) <= _unit_steps(along, inputs)
        and not (along.size <= SHORT_ROW and across.size >= MANY_DEEP)
    )
    reduced = [axis for axis in reduced if axis is not along]
    if by_rows:
        steps = along.steps
        sizes = BY_ROWS.fill([along.size], zip(zeros, steps), (kept, reduced))
        extent = math.prod(axis.size for axis in kept)
    else:
        assert across is not None
        outer, steps = [axis for axis in kept if axis is not across], across.steps
        extent = math.prod(axis.size for axis in outer)
        width = _width(extent, across.size, far)
        blocks = -(-across.size // width)
        head = [along.size, across.size, blocks, width, 0]
        sizes = BY_COLUMNS.fill(head, zip(zeros, along.steps, steps), (outer, reduced))
        extent *= blocks
    return Fit(CSchedule("segments" if by_rows else "deep", 1, _classes(steps)), sizes, extent)


def _unit_steps(axis: Axis, inputs: int) -> int:
    """The number of inputs that are contiguous along ``axis``."""
    return sum(step == 1 for step in axis.steps[:inputs])


def packed(found: Fit, nbytes: int, threads: int, piped: bool = False, single: bool = False) -> Fit:
    """``found``, by columns, with blocks narrow enough to be packed, ``nbytes`` per element; itself if none are.

    ``piped``: blocks may be pipelined instead, which pays if they are large; ``single``: a single one is packed, too.

    Parameters
    ----------
    found : Fit
    nbytes, threads : int
    piped, single : bool
    """
    length, columns, blocks, width, ahead = found.sizes[: len(BY_COLUMNS.names)]
    most = min(width, PACKED_BYTES // max(1, length * nbytes) // 32 * 32)
    if not nbytes or (blocks == 1 and not single) or most < PACKED_WIDTH:
        return found
    piped = piped and length * nbytes * most > PIPED_BYTES
    unit, most = (PACKED_WIDTH, PACKED_WIDTH) if piped else (32, most)
    outer = found.count // blocks
    blocks = -(-columns // most)
    if outer < threads:
        blocks = -(-blocks // threads) * threads
    width = -(-columns // (unit * blocks)) * unit
    blocks = -(-columns // width)
    sizes = [length, columns, blocks, width, ahead, *found.sizes[len(BY_COLUMNS.names) :]]
    return Fit(replace(found.schedule, packed=not piped, piped=piped), sizes, outer * blocks)


def _runs_down(kept: Axis, along: Axis, inputs: int) -> bool:
    """True if memory is contiguous along the kept axis rather than the reduced one."""
    return _unit_steps(kept, inputs) > _unit_steps(along, inputs)


def _short(kept: Axis, along: Axis) -> bool:
    """True if rows are so short and so many that reducing them by columns, with strided reads, is faster."""
    return along.size <= SHORT_ROW and kept.size >= MANY_ROWS


def _width(outer: int, columns: int, far: bool) -> int:
    """Columns of a block: as many as fit, but so that all threads have the same number of blocks."""
    blocks = -(-columns // (FAR_WIDTH if far else MAX_WIDTH))
    threads = thread_count()
    if outer < threads:
        blocks = -(-blocks // threads) * threads
    return min(MAX_WIDTH, max(32, -(-columns // (32 * blocks)) * 32))


def _classes(steps: tuple[int, ...]) -> tuple[int, ...]:
    """Classes of strides that templates distinguish: 0, 1, or 2 for any other."""
    return tuple(step if step in (0, 1) else 2 for step in steps)
