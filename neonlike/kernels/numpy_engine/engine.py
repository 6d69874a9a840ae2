"""Steps 6 and 7 of an assignment (docs/tour.md) on the NumPy engine: execute a plan's stages block by block.

It is the fallback without a compiler, and the reference for testing generated code. Blocks fit in the cache. A REDUCE
stage runs *resident*, with the whole reduced extent of a block in the cache and every intermediate computed once, or
*streamed*, pass by pass over blocks with combined partial results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.kernels.numpy_engine.blocks import (
    BLOCK_ELEMENTS,
    MIN_COLUMNS,
    RESIDENT_ELEMENTS,
    run_partial,
    run_program,
)
from neonlike.kernels.numpy_engine.program import AXES, BlockProgram, Sink
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import ValueArg
from neonlike.kernels.planning.plan import Plan, Stage, StageKind, Store, pass_depths
from neonlike.kernels.run.call_stage import CallStage
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.stage import (
    ExecutableStage,
    Layouts,
    Run,
    WholeOperandStage,
    leaf_types,
    loop_outputs,
    mask_of,
    store_result,
)
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.npfuncs import Array
from neonlike.optree.ops import Kind
from neonlike.optree.shapes import Shape, contiguous_strides, is_reshape, reduced


class NumpyEngine(Engine):
    """Runs plans with NumPy."""

    name = "numpy"

    def stage(self, plan: Plan, position: int, graph: Graph) -> ExecutableStage:
        """The stage at ``position`` as NumPy calls; see ``Engine.stage``.

        Parameters
        ----------
        plan, position, graph
            As of ``Engine.stage``.
        """
        stage = plan.stages[position]
        if stage.kind is StageKind.CALL:
            return CallStage(plan, stage, graph)
        if stage.kind is StageKind.CONTRACTION or stage.kind is StageKind.MOVE:
            return _CALLS.get(plan.values[stage.values[0]].spec.name, NumpyCallStage)(plan, stage, graph)
        return LoopStage(plan, stage, graph)

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        with np.errstate(all="ignore"):
            super().execute(plan, graph)


def _replay(steps: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Callable[[], None]:
    def run() -> None:
        with np.errstate(all="ignore"):
            for function, arguments in steps:
                function(*arguments)

    return run


# Stages that are one library call -------------------------------------------------------------------------------


class NumpyCallStage(WholeOperandStage):
    """A product, a move or a scan: one NumPy call on whole arrays."""

    def run(self, run: Run) -> None:
        """Execute the stage."""
        self._allocate(run)
        self._compute(run)

    def bind(self, run: Run) -> Callable[[], None]:
        """Bind the stage to the arrays of ``run``, allocating its temporaries."""
        self._allocate(run)
        return lambda: self._compute(run)

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """Empty: NumPy computes it."""
        self._allocate(layouts)
        return []

    def _compute(self, run: Run) -> None:
        value = self.value
        arrays = [run.array(one, 0) for one in self.inputs]
        out, attrs = run.temps[value.index], run.attrs(value.node)
        with np.errstate(all="ignore"):
            value.spec.numpy(*arrays, out, **{key: attrs[key] for key in self.keys})
            store_result(run, out, self.others)


class ClassesStage(NumpyCallStage):
    """Check of indices against a size, in each run the size of another value's axis."""

    def _compute(self, run: Run) -> None:
        (read,) = self.inputs
        self.value.spec.numpy(run.array(read, 0), run.temps[self.value.index], limit=self.value.limit(run.graph))


class ViewStage(NumpyCallStage):
    """``view`` and ``unview``: windows of data in memory are read in place; other windows are copied.

    The memory must not change before the last read of the window: this holds for temporaries, and for tensors that
    share no memory with a target. Windows of non-contiguous elements are copied, because later stages are faster then.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    graph : Graph
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        super().__init__(plan, stage, graph)
        (read,) = self.inputs
        fixed = read.kind == "temp" or not any(graph.leaves[read.index].alias_of(t) for t in graph.targets)
        self.may_show = fixed and not stage.stores
        self.is_view = self.value.spec.name == "view"

    def run(self, run: Run) -> None:
        """Execute the stage."""
        if not self._show(run):
            super().run(run)

    def bind(self, run: Run) -> Callable[[], None]:
        """Bind the stage to the arrays of ``run``; nothing to do if its result is a window of one of them."""
        return _nothing if self._show(run) else super().bind(run)

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """Empty: NumPy computes it."""
        return [] if self._show(layouts) else super().sources(layouts)

    def _show(self, run: Run) -> bool:
        """Whether the result is a window of the operand, and then becomes a temporary of ``run``."""
        if not self.may_show:
            return False
        source = run.array(self.inputs[0], 0)
        if source.dtype != compute_dtype(self.value.dtype):
            return False
        shape, strides, offset = layout = run.attrs(self.value.node)["layout"]
        if not self.is_view:
            result = self.value.source.of(run.graph)
            if source.size != math.prod(result) or not is_reshape(layout):
                return False  # there are zeros around the window, or another order
            shape, strides = result, contiguous_strides(result)
        size = source.itemsize
        if source.strides != contiguous_strides(source.shape, size) or 0 in source.shape or strides[-1] != 1:
            return False
        shown = [step * size for step in strides]
        if isinstance(source, ArrayLayout):
            run.temps[self.value.index] = ArrayLayout(shape, source.dtype, shown)
        else:
            run.temps[self.value.index] = np.ndarray(shape, source.dtype, source, offset * size, shown)
        return True


_CALLS: dict[str, type[NumpyCallStage]] = {"view": ViewStage, "unview": ViewStage, "classes": ClassesStage}
"""Stage classes of ops that take more than one NumPy call."""


def _nothing() -> None:
    """Stage without work."""


# Stages that are loops --------------------------------------------------------------------------------------------


class LoopStage(ExecutableStage):
    """An elementwise or reduce stage; streamed programs are compiled on first use.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    graph : Graph
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        self.plan, self.stage = plan, stage
        self.leaves = leaf_types(graph)
        self.target_types = {store.target: graph.targets[store.target].dtype for store in stage.stores}
        self.target_shapes = {store.target: graph.targets[store.target].shape for store in stage.stores}
        self.aliased = any(
            leaf is graph.targets[s.target] or leaf.alias_of(graph.targets[s.target])
            for s in stage.stores
            for leaf in graph.leaves
        )
        sinks = self._sinks(stage.saved, stage.stores)
        self.resident = BlockProgram(plan, stage.values, {}, sinks, self.leaves, stage.shape)
        self.simple = self._simple_slots()
        self.streamed: list[BlockProgram] | None = None
        self.mergeable = all(
            plan.values[i].spec.combine is not None for i in stage.values if plan.values[i].spec.kind is Kind.REDUCTION
        )

    def _sinks(self, saved: list[int], stores: list[Store]) -> list[Sink]:
        ndim = len(self.stage.shape)
        sinks = [
            Sink(ValueArg(i), mask_of(value.shape, ndim), compute_dtype(value.dtype), True)
            for i in saved
            for value in (self.plan.values[i],)
        ]
        for store in stores:
            mask = mask_of(self.target_shapes[store.target], ndim)
            direct = store.buffered or not self.aliased
            sinks.append(Sink(store.arg, mask, self.target_types[store.target], direct))
        return sinks

    def bind(self, run: Run) -> Callable[[], None] | None:
        """Instructions on fixed arrays, if one block covers the stage and nothing changes between runs."""
        stage, program = self.stage, self.resident
        shape = stage.space.of(run.graph)
        if program.needs_coordinates or not stage.writes_targets_only:
            return None
        if math.prod(shape) > BLOCK_ELEMENTS:
            return None
        inputs = [run.array(source, program.ndim) for source in program.inputs]
        numbers = [run.graph.numbers[slot] for slot in program.number_slots]
        registers = program.registers(shape, inputs, numbers, loop_outputs(self.plan, stage, run))
        registers[AXES] = stage.axes
        return _replay(program.bind(registers))

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """Empty: NumPy computes it."""
        loop_outputs(self.plan, self.stage, layouts)
        return []

    def _simple_slots(self) -> tuple[list[int], list[int]] | None:
        """Leaf and target slots, if the stage only maps whole tensors of one rank to targets; the common case."""
        stage, program = self.stage, self.resident
        if stage.kind is not StageKind.ELEMENTWISE or program.needs_coordinates or not stage.writes_targets_only:
            return None
        for source in program.inputs:
            if source.kind != "leaf" or source.perm is not None or len(self.leaves[source.index][0]) != program.ndim:
                return None
        return [source.index for source in program.inputs], [store.target for store in stage.stores]

    def run(self, run: Run) -> None:
        """Execute the stage."""
        stage, program = self.stage, self.resident
        if self.simple is not None:
            graph = run.graph
            shape = graph.targets[self.simple[1][0]].shape
            if math.prod(shape) <= BLOCK_ELEMENTS:
                leaves, targets, values = graph.leaves, graph.targets, graph.numbers
                program.run(
                    program.registers(
                        shape,
                        [leaves[i].array for i in self.simple[0]],
                        [values[i] for i in program.number_slots],
                        [targets[i].array for i in self.simple[1]],
                    )
                )
                return
        shape = stage.space.of(run.graph)
        outputs = loop_outputs(self.plan, stage, run)
        limit = BLOCK_ELEMENTS if stage.kind is StageKind.ELEMENTWISE else RESIDENT_ELEMENTS
        if math.prod(shape) > limit and stage.kind is StageKind.REDUCE and self.mergeable:
            if not _fits_resident(shape, stage.axes):
                self._run_streamed(run, shape, outputs)
                return
        run_program(program, run, outputs, shape, stage.axes, limit)

    def _run_streamed(self, run: Run, shape: Shape, outputs: list[Array]) -> None:
        """Pass by pass: partial reductions of each level, then the values that depend on them."""
        if self.streamed is None:
            self._compile_streamed()
        assert self.streamed is not None
        stage = self.stage
        for program, level in zip(self.streamed, self.levels):
            totals = run_partial(program, run, [self.plan.values[i] for i in level], shape, stage.axes)
            for index, total in zip(level, totals):
                run.temps[index] = total.result()
        small = reduced(shape, stage.axes)
        pairs = list(zip(self._all_sinks(), outputs))
        for program, wanted, space in ((self.streamed[-2], True, shape), (self.streamed[-1], False, small)):
            chosen = [array for (_, full), array in pairs if full is wanted]
            if chosen:
                run_program(program, run, chosen, space, (), BLOCK_ELEMENTS)

    def _all_sinks(self) -> list[tuple[Sink, bool]]:
        """Sinks, each with a flag for the whole space (else the reduced one)."""
        shape = self.stage.shape
        return [
            (sink, sink.mask == mask_of(shape, len(shape))) for sink in self._sinks(self.stage.saved, self.stage.stores)
        ]

    def _compile_streamed(self) -> None:
        """Compile programs for each level of reductions, then one for full-size results and one for reduced ones."""
        plan, stage = self.plan, self.stage
        levels = reduction_levels(plan, stage)
        self.levels = [[i for i, level in levels.items() if level == wanted] for wanted in sorted(set(levels.values()))]
        ndim = len(stage.shape)
        programs: list[BlockProgram] = []
        done: dict[int, str] = {}
        for level in self.levels:
            sinks = [
                Sink(ValueArg(i), mask_of(plan.values[i].shape, ndim), compute_dtype(plan.values[i].dtype), True)
                for i in level
            ]
            needed = _needed(plan, stage, [ValueArg(i) for i in level], set(done))
            programs.append(BlockProgram(plan, needed, dict(done), sinks, self.leaves, stage.shape))
            done.update({i: "acc" for i in level})
        for full, space in ((True, stage.shape), (False, stage.reduced_shape)):
            sinks = [sink for sink, is_full in self._all_sinks() if is_full is full]
            needed = _needed(plan, stage, [sink.arg for sink in sinks], set(done))
            programs.append(BlockProgram(plan, needed, dict(done), sinks, self.leaves, space))
        self.streamed = programs


def _fits_resident(shape: Shape, axes: tuple[int, ...]) -> bool:
    """True if blocks with the whole reduced extent are neither too large nor too narrow."""
    extent = math.prod(shape[a] for a in axes)
    last = len(shape) - 1
    if last in axes:
        return extent <= RESIDENT_ELEMENTS
    return extent * min(shape[last], MIN_COLUMNS) <= RESIDENT_ELEMENTS


def reduction_levels(plan: Plan, stage: Stage) -> dict[int, int]:
    """Pass of each reduction in ``stage``: one more than the reductions it depends on."""
    depth = pass_depths([plan.values[index] for index in stage.values])
    return {i: depth[i] for i in stage.values if plan.values[i].spec.kind is Kind.REDUCTION}


def _needed(plan: Plan, stage: Stage, args: list[Any], known: set[int]) -> list[int]:
    """Values of ``stage`` to compute for ``args``, given those in ``known``."""
    here = set(stage.values)
    seen: set[int] = set()
    stack = [a.value for a in args if isinstance(a, ValueArg)]
    while stack:
        index = stack.pop()
        if index in seen or index in known or index not in here:
            continue
        seen.add(index)
        stack += [a.value for a in plan.values[index].args if isinstance(a, ValueArg)]
    return sorted(seen)
