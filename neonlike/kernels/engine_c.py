"""The C engine: each loop stage of a plan becomes a compiled function, called through ctypes.

A stage is compiled for the layout it meets (flat, nested, rows or columns; see ``forms``) when it first meets it.
What has no C form, and everything when compiling fails, runs on the NumPy engine: slower, never different.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.errors import KernelCompileError
from neonlike.kernels import compile_c, forms
from neonlike.kernels.blocks import Run
from neonlike.kernels.emit import Array, Kernel, make_kernel, unsupported
from neonlike.kernels.graph import Graph
from neonlike.kernels.interp import LoopStage, NumpyEngine, StageFunction
from neonlike.kernels.layout import Axis, collapse
from neonlike.kernels.plan import Plan, Stage, StageKind
from neonlike.kernels.render import header
from neonlike.kernels.threads import thread_count
from neonlike.logger import logger
from neonlike.optree import npfuncs
from neonlike.optree.show import infix

HEADERS = ("vecmath.h", "vecmath_f32.h", "vecmath_f64.h", "vecmath_small.h", "intmath.h")
PARALLEL_WORK = 1 << 17
"""Elements times cost below which starting threads costs more than it saves."""
MAX_OPS, MAX_ARGUMENTS = 256, 512
"""Longer stages run on the NumPy engine: compiling them takes minutes, and calls have a limit of arguments."""
MAX_WIDTH = 256
"""Columns that the arrays of a column block are made for; passed to the template."""
_CACHE_BYTES = 1 << 18
"""Size the inputs of a column block should fit in when they are read more than once."""

Launch = tuple[Any, Any, int, int]
"""Function, meta array, count of rows or elements, threads."""


@dataclass(frozen=True, slots=True)
class Form:
    """A variant of a stage's kernel for one layout: its key, sizes and steps to call it with, count of rows."""

    key: tuple[str, int, tuple[int, ...]]
    meta: list[int]
    count: int


class CEngine(NumpyEngine):
    """Runs plans with compiled C where it can."""

    name = "c"

    def stage_functions(self, plan: Plan, graph: Graph) -> list[StageFunction]:
        """One function a stage, and the copies that end a run."""
        made = super().stage_functions(plan, graph)
        for position, stage in enumerate(plan.stages):
            if stage.kind in (StageKind.ELEMENTWISE, StageKind.REDUCE):
                fallback = made[position].__self__  # type: ignore[attr-defined]
                made[position] = CStage(plan, stage, graph, fallback).run
            else:
                made[position] = _quiet(made[position])
        return made

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        stages: Any = plan.engine.get(self.name) or self.compile(plan, graph)
        run = Run(graph)
        for stage in stages:
            stage(run)

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A function that runs ``plan`` on these very tensors again and again."""
        stages: Any = plan.engine.get(self.name) or self.compile(plan, graph)
        stage = getattr(stages[0], "__self__", None)
        if len(stages) == 1 and isinstance(stage, CStage) and (bound := stage.bind(Run(graph))) is not None:
            return bound
        return super().prepare(plan, graph)


def _quiet(stage: StageFunction) -> StageFunction:
    def run(run: Run) -> None:
        with np.errstate(all="ignore"):
            stage(run)

    return run


class CStage:
    """One stage and its compiled variants."""

    def __init__(self, plan: Plan, stage: Stage, graph: Graph, fallback: LoopStage) -> None:
        self.stage, self.fallback = stage, fallback
        small = len(stage.values) <= MAX_OPS and len(graph.leaves) + len(graph.numbers) <= MAX_ARGUMENTS
        self.usable = small and unsupported([plan.values[i] for i in stage.values]) is None
        self.kernel: Kernel = make_kernel(plan, stage, graph) if self.usable else Kernel(plan, stage)
        self.arrays = [*self.kernel.inputs, *self.kernel.outputs]
        roots = [graph.nodes[r] for r in graph.roots if 0 <= r < len(graph.nodes)]
        self.comment = "; ".join(infix(root) for root in roots).replace("*/", "* /")[:400] or "copy"
        self.cost = 1 + sum(plan.values[i].spec.flops for i in stage.values) / 8
        self.variants: dict[Any, Any] = {}
        self.launches: dict[Any, Launch | None] = {}
        self.flat = self._is_flat(graph)
        self.number_slots = [number.slot for number in self.kernel.numbers]
        self.input_slots = self._leaf_slots()

    def _is_flat(self, graph: Graph) -> bool:
        """True if every array is contiguous over the whole space or a single element; part of the plan's key."""
        if self.stage.kind is not StageKind.ELEMENTWISE or not self.usable:
            return False
        return all(self._contiguous(array, graph) for array in self.arrays)

    def _contiguous(self, array: Array, graph: Graph) -> bool:
        if math.prod(array.shape) == 1 and array.kind != "target":
            return True
        if array.shape != self.stage.shape or array.perm is not None:
            return False
        tensors = {"leaf": graph.leaves, "target": graph.targets}
        return array.kind == "temp" or bool(tensors[array.kind][array.index].is_contiguous)

    def _leaf_slots(self) -> tuple[list[int], list[int]] | None:
        """Leaf and target slots when a flat stage touches only tensors: the hot path."""
        stored = any(store.buffered for store in self.stage.stores)
        if not self.flat or stored or self.stage.saved or any(a.kind != "leaf" for a in self.kernel.inputs):
            return None
        return [a.index for a in self.kernel.inputs], [a.index for a in self.kernel.outputs]

    # Running

    def run(self, run: Run) -> None:
        """Execute the stage."""
        slots, graph = self.input_slots, run.graph
        if slots is not None:
            targets = graph.targets
            launch = self._flat_launch(targets[slots[1][0]].shape)
            if launch is not None:
                leaves, numbers = graph.leaves, graph.numbers
                launch[0](
                    *[leaves[i].address for i in slots[0]],
                    *[targets[i].address for i in slots[1]],
                    *[numbers[i] for i in self.number_slots],
                    None,
                    launch[2],
                    1 if compile_c.forked else launch[3],
                )
                return
        if not self.usable or not self._run_general(run):
            with np.errstate(all="ignore"):
                self.fallback.run(run)

    def bind(self, run: Run) -> Callable[[], None] | None:
        """The launch on fixed tensors, if the stage is flat."""
        slots, graph = self.input_slots, run.graph
        launch = self._flat_launch(graph.targets[0].shape) if slots is not None else None
        if slots is None or launch is None:
            return None
        function = launch[0]
        arguments = [
            *[graph.leaves[i].address for i in slots[0]],
            *[graph.targets[i].address for i in slots[1]],
            *[graph.numbers[i] for i in self.number_slots],
        ]
        values = [kind(value) for kind, value in zip(function.argtypes, arguments)]
        threads = ctypes.c_int64(launch[3])
        values += [ctypes.c_void_p(None), ctypes.c_int64(launch[2]), threads]

        def call() -> None:
            if compile_c.forked:
                threads.value = 1
            function(*values)

        return call

    def _flat_launch(self, shape: tuple[int, ...]) -> Launch | None:
        launch = self.launches.get(shape, False)
        if launch is False:
            function = self._variant(self._flat_key())
            count = math.prod(shape)
            launch = None if function is None else (function, None, count, self._threads(count))
            self._remember(shape, launch)
        return launch  # type: ignore[return-value]

    def _flat_key(self) -> tuple[str, int, tuple[int, ...]]:
        return "flat", 1, tuple(1 if array.shape == self.stage.shape else 0 for array in self.arrays)

    def text(self, graph: Graph) -> str | None:
        """C source of the kernel that runs for the tensors of ``graph``; None where NumPy does."""
        if not self.usable:
            return None
        if self.flat:
            return self.source(*self._flat_key())[1]
        run = Run(graph)
        for array in self.kernel.inputs:
            if array.kind == "temp":
                value = self.kernel.plan.values[array.index]
                run.temps[array.index] = np.empty(value.source.of(graph), array.dtype)
        arrays = [*[self._array(run, array) for array in self.kernel.inputs], *self.fallback.outputs(run)]
        form = self._form(self.stage.space.of(graph), arrays)
        return None if form is None else self.source(*form.key)[1]

    def _run_general(self, run: Run) -> bool:
        """Collapse the arrays' axes, choose a form and launch; False if there is no C form for this layout."""
        inputs = [self._array(run, array) for array in self.kernel.inputs]
        outputs = self.fallback.outputs(run)
        arrays = [*inputs, *outputs]
        shape = self.stage.space.of(run.graph)
        key = (shape, tuple([(a.shape, a.strides) for a in arrays]))
        launch = self.launches.get(key, False)
        if launch is False:
            launch = self._plan_launch(shape, arrays)
            self._remember(key, launch)
        if launch is None or launch is True:
            return False
        pointers = [a.__array_interface__["data"][0] for a in arrays]
        numbers = [run.graph.numbers[i] for i in self.number_slots]
        return not launch[0](*pointers, *numbers, launch[1], launch[2], 1 if compile_c.forked else launch[3])

    def _array(self, run: Run, array: Array) -> npfuncs.Array:
        found: npfuncs.Array = (
            run.graph.leaves[array.index].array if array.kind == "leaf" else run.temps[array.index]
        )
        return found if array.perm is None else found.transpose(array.perm)

    def _remember(self, key: Any, launch: Launch | None) -> None:
        if len(self.launches) >= 256:
            self.launches.clear()
        self.launches[key] = launch

    def _threads(self, count: int) -> int:
        """Threads worth starting; what a fork inherits is not worth it (see ``compile_c.after_fork_serial``)."""
        return 1 if count * self.cost < PARALLEL_WORK else thread_count()

    def _plan_launch(self, shape: tuple[int, ...], arrays: list[npfuncs.Array]) -> Launch | None:
        """Function and arguments for these arrays; None if there is no C form for their layout."""
        form = self._form(shape, arrays)
        function = None if form is None else self._variant(form.key)
        if form is None or function is None:
            return None
        return function, _pack(form.meta), form.count, self._threads(math.prod(shape))

    def _form(self, shape: tuple[int, ...], arrays: list[npfuncs.Array]) -> Form | None:
        if math.prod(shape) == 0:
            return None
        axes = collapse(shape, self.stage.axes, arrays)
        if self.stage.kind is StageKind.ELEMENTWISE:
            return _nested(axes, len(arrays), math.prod(shape))
        return self._reduction(axes, len(arrays))

    def _reduction(self, axes: list[Axis], count: int) -> Form | None:
        """Rows or columns, whichever runs along memory; None if kept and reduced axes alternate more than that."""
        none = Axis(1, False, (0,) * count)
        pattern = "".join("R" if axis.reduced else "K" for axis in axes)
        if pattern not in ("", "K", "R", "KR", "RK", "KRK"):
            return None
        along = next((axis for axis in axes if axis.reduced), Axis(1, True, (0,) * count))
        before = axes[0] if pattern in ("K", "KR", "KRK") else none
        after = axes[-1] if pattern in ("RK", "KRK") else none
        if after.size == 1 and before.size > 1 and self._runs_down(before, along):
            before, after = none, before
        if after.size == 1:
            meta = [along.size]
            for i in range(count):
                meta += [before.steps[i], along.steps[i]]
            return Form(("rows", 1, _classes(along.steps)), meta, before.size)
        width = self._width(along.size, after.size)
        blocks = -(-after.size // width)
        meta = [along.size, after.size, blocks, width]
        for i in range(count):
            meta += [before.steps[i], along.steps[i], after.steps[i]]
        return Form(("columns", 1, _classes(after.steps)), meta, before.size * blocks)

    def _runs_down(self, kept: Axis, reduced_axis: Axis) -> bool:
        """True if memory is contiguous along the kept axis rather than the reduced one."""
        across = sum(step == 1 for step in kept.steps[: len(self.kernel.inputs)])
        along = sum(step == 1 for step in reduced_axis.steps[: len(self.kernel.inputs)])
        return across > along

    def _width(self, length: int, columns: int) -> int:
        """Columns of a block: few enough that several passes find them in the cache, enough for long reads."""
        fitting = _CACHE_BYTES // (4 * max(1, len(self.kernel.inputs)) * max(1, length))
        width = min(MAX_WIDTH, max(128, fitting // 32 * 32))
        return width if columns >= width * thread_count() else 32

    # Compiling

    def _variant(self, key: tuple[str, int, tuple[int, ...]]) -> Any:
        """The function for a form, compiled when first asked for; None if that fails."""
        if key not in self.variants:
            self.variants[key] = self._compile(*key)
        return self.variants[key]

    def source(self, form: str, rank: int, inner: tuple[int, ...]) -> tuple[str, str]:
        """Name and C text of a variant; the name is a hash of the text."""

        def text(name: str) -> str:
            if form in ("flat", "nested"):
                return forms.elementwise(self.kernel, name, rank, inner, form == "flat")
            if form == "rows":
                return forms.rows(self.kernel, name, inner)
            return forms.columns(self.kernel, name, inner, MAX_WIDTH)

        name = "nl_" + hashlib.sha256(text("k").encode()).hexdigest()[:16]
        return name, text(name)

    def _compile(self, form: str, rank: int, inner: tuple[int, ...]) -> Any:
        name, text = self.source(form, rank, inner)
        try:
            library = compile_c.build(text, name, self.comment, headers={h: header(f"c/{h}") for h in HEADERS})
        except KernelCompileError as error:
            logger.error("%s\nThis expression runs on the NumPy engine instead.", error)
            return None
        function = getattr(library, name)
        kinds = {"double": ctypes.c_double, "int64_t": ctypes.c_int64}
        function.argtypes = (
            [ctypes.c_void_p] * len(self.arrays)
            + [kinds[number.ctype] for number in self.kernel.numbers]
            + [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        )
        function.restype = None if form in ("flat", "nested") else ctypes.c_int
        return function


def _classes(steps: tuple[int, ...]) -> tuple[int, ...]:
    """Steps as the templates tell them apart: 0, 1, or 2 for any other."""
    return tuple(step if step in (0, 1) else 2 for step in steps)


def _nested(axes: list[Axis], count: int, size: int) -> Form:
    axes = axes or [Axis(1, False, (0,) * count)]
    meta = [axis.size for axis in axes] + [axis.steps[i] for i in range(count) for axis in axes]
    return Form(("nested", len(axes), _classes(axes[-1].steps)), meta, size // axes[-1].size)


def _pack(values: list[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)
