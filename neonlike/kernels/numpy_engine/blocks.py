"""Execution of a register program over a whole space: in cache-sized blocks, spread over threads.

The blocks depend only on the shape, so results are the same for any number of threads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from neonlike.kernels.numpy_engine.program import AXES, POSITION, BlockPosition, BlockProgram
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Value
from neonlike.kernels.run.stage import Mask, Run
from neonlike.kernels.run.threads import parallel
from neonlike.optree.dtypes import F64, compute_dtype, is_float
from neonlike.optree.npfuncs import Array
from neonlike.optree.ops import OPS
from neonlike.optree.shapes import Shape

BLOCK_ELEMENTS = 1 << 16
"""Elements of an elementwise block: 256 kB of float32; smaller ones lose more to call and lock overhead."""
RESIDENT_ELEMENTS = 1 << 17
"""Elements of a block with a whole reduced extent."""
STREAM_ELEMENTS = 1 << 16
"""Elements of a block of a streamed reduction."""
MIN_COLUMNS = 64
"""Minimum width of column blocks; narrower ones would waste vector units, and are streamed by rows instead."""


class Total:
    """Running result of a streamed reduction; sums are kept in float64."""

    def __init__(self, value: Value, graph: Graph) -> None:
        shape = value.source.of(graph)
        self.dtype = compute_dtype(value.dtype)
        self.part = np.empty(shape, self.dtype)
        self.combine = OPS[value.spec.combine or ""].numpy
        self.wide = F64 if value.spec.name in ("sum", "prod") and is_float(self.dtype) else self.dtype
        self.value = np.empty(shape, self.wide)
        self.seen: dict[tuple[int, ...], tuple[slice, ...]] = {}

    def add(self, region: tuple[slice, ...], where: tuple[int, ...]) -> None:
        """Merge ``part[region]``; ``where`` identifies the region."""
        if where in self.seen:
            self.combine(self.value[region], self.part[region], self.value[region])
        else:
            self.seen[where] = region
            self.value[region] = self.part[region]

    def merge(self, other: Total) -> None:
        """Add the results of later blocks from ``other``."""
        for where, region in other.seen.items():
            if where in self.seen:
                self.combine(self.value[region], other.value[region], self.value[region])
            else:
                self.seen[where] = region
                self.value[region] = other.value[region]

    def result(self) -> Array:
        """The finished reduction."""
        return self.value.astype(self.dtype, copy=False)


def run_program(
    program: BlockProgram,
    run: Run,
    outputs: list[Array],
    shape: Shape,
    axes: tuple[int, ...],
    limit: int,
) -> None:
    """Run ``program`` over ``shape`` in blocks of about ``limit`` elements, never cutting ``axes``.

    Parameters
    ----------
    program : BlockProgram
    run : Run
    outputs : list of arrays
    shape : tuple of int
    axes : tuple of int
    limit : int
    """
    numbers = [run.graph.numbers[slot] for slot in program.number_slots]
    inputs = [run.array(source, program.ndim) for source in program.inputs]
    if math.prod(shape) <= limit:
        registers = program.registers(shape, inputs, numbers, outputs)
        registers[AXES] = axes
        if program.needs_coordinates:
            registers[POSITION] = BlockPosition((0,) * len(shape), shape)
        program.run(registers)
        return
    blocks = _Blocks(program, inputs, outputs, shape, axes)
    if not axes and not program.needs_coordinates:
        blocks.flatten()
    work = groups(list(tiles(blocks.shape, axes, limit)))

    def do(group: list[tuple[slice, ...]]) -> None:
        with np.errstate(all="ignore"):
            for tile in group:
                blocks.run_tile(tile, numbers)

    parallel(do, work)


def run_partial(
    program: BlockProgram, run: Run, values: list[Value], shape: Shape, axes: tuple[int, ...]
) -> list[Total]:
    """Reduce ``values`` over blocks that may cut ``axes``; partial results are merged in a fixed order.

    Parameters
    ----------
    program : BlockProgram
    run : Run
    values : list of Value
        Reductions.
    shape : tuple of int
    axes : tuple of int
        The reduced ones.
    """
    numbers = [run.graph.numbers[slot] for slot in program.number_slots]
    inputs = [run.array(source, program.ndim) for source in program.inputs]
    masks = [sink.mask for sink in program.sinks]

    def do(job: tuple[list[tuple[slice, ...]], list[Total]]) -> None:
        group, totals = job
        blocks = _Blocks(program, inputs, [t.part for t in totals], shape, axes)
        with np.errstate(all="ignore"):
            for tile in group:
                blocks.run_tile(tile, numbers)
                for total, mask in zip(totals, masks):
                    total.add(_region(tile, mask), tuple([s.start if m else -1 for s, m in zip(tile, mask)]))

    jobs = [(group, [Total(v, run.graph) for v in values]) for group in groups(list(tiles(shape, (), STREAM_ELEMENTS)))]
    parallel(do, jobs)
    first = jobs[0][1]
    for _, totals in jobs[1:]:
        for mine, other in zip(first, totals):
            mine.merge(other)
    return first


class _Blocks:
    """A program's arrays over a space, cut tile by tile."""

    def __init__(
        self, program: BlockProgram, inputs: list[Array], outputs: list[Array], shape: Shape, axes: tuple[int, ...]
    ) -> None:
        self.program, self.shape, self.axes = program, shape, axes
        ndim = program.ndim
        self.inputs = inputs
        self.outputs = [a if a.ndim == ndim else a[(None,) * (ndim - a.ndim)] for a in outputs]
        self.input_masks = [source.mask for source in program.inputs]
        self.output_masks = [sink.mask for sink in program.sinks]

    def flatten(self) -> None:
        """Treat the space as one axis if every array is a single element or contiguous over all of it."""
        arrays = (*self.inputs, *self.outputs)
        if not all(a.size == 1 or (a.shape == self.shape and a.flags.c_contiguous) for a in arrays):
            return
        self.shape = (math.prod(self.shape),)
        self.inputs = [a.reshape(-1) for a in self.inputs]
        self.outputs = [a.reshape(-1) for a in self.outputs]
        self.input_masks = [(any(mask),) for mask in self.input_masks]
        self.output_masks = [(any(mask),) for mask in self.output_masks]

    def run_tile(self, tile: tuple[slice, ...], numbers: list[Any]) -> None:
        """Run the program on one tile."""
        program = self.program
        registers = program.registers(
            tuple([s.stop - s.start for s in tile]),
            [a[_region(tile, m)] for a, m in zip(self.inputs, self.input_masks)],
            numbers,
            [a[_region(tile, m)] for a, m in zip(self.outputs, self.output_masks)],
        )
        registers[AXES] = self.axes
        if program.needs_coordinates:
            registers[POSITION] = BlockPosition(tuple([s.start for s in tile]), self.shape)
        program.run(registers)


def groups(work: list[tuple[slice, ...]]) -> list[list[tuple[slice, ...]]]:
    """Group ``work`` in at most 16 runs of neighbours, the units of work for threads."""
    count = min(16, len(work))
    return [work[len(work) * i // count : len(work) * (i + 1) // count] for i in range(count)]


def _region(tile: tuple[slice, ...], mask: Mask) -> tuple[slice, ...]:
    return tuple([part if present else _ALL for part, present in zip(tile, mask)])


_ALL = slice(None)


def tiles(shape: Shape, fixed: tuple[int, ...], limit: int) -> Iterator[tuple[slice, ...]]:
    """Blocks of ``shape`` with about ``limit`` elements, cutting outer axes first and never ``fixed`` ones.

    Parameters
    ----------
    shape : tuple of int
    fixed : tuple of int
        Axes.
    limit : int
    """
    steps = list(shape)
    size = math.prod(shape)
    for axis, extent in enumerate(shape):
        if size <= limit or axis in fixed or extent == 1:
            continue
        steps[axis] = max(1, limit * extent // size)
        size = size // extent * steps[axis]
    ranges = [[slice(i, min(i + step, extent)) for i in range(0, extent, step)] for step, extent in zip(steps, shape)]
    return itertools.product(*ranges)
