"""Gather and scatter-add along an axis as compiled C: ``take`` and ``untake``.

There are three arrays: the *wide* one, along whose axis the indices point; the *narrow* one, with one slice for each
index; the indices. ``take`` writes the narrow one, ``untake`` adds into the wide one. Strides choose the form: *by
rows* if the written array is contiguous within its slices, *by picks* if it is contiguous along the indexed axis.
Scatter-add of slices of *few* elements has a third form. Indices are checked before anything is written; if one is out
of range, NumPy runs the stage again and raises the error.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import workers
from neonlike.kernels.c.copies import joined_steps, stored_steps
from neonlike.kernels.c.forms import HEADERS
from neonlike.kernels.c.routine import INT, POINTER, WithEntry
from neonlike.kernels.c.stage import PARALLEL_WORK, load_function
from neonlike.kernels.codegen.emit import STORAGE, Array, Kernel, Writer, convert_store
from neonlike.kernels.codegen.render import header_texts
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import NumberArg, ValueArg
from neonlike.kernels.planning.plan import Plan, Stage
from neonlike.kernels.run import forks
from neonlike.kernels.run.arrays import expression_text, remember
from neonlike.kernels.run.convert import converter
from neonlike.kernels.run.placing import Placing
from neonlike.kernels.run.program import RELEASE_WORK, Fragment, Source, Step, Word
from neonlike.kernels.run.stage import Layouts, Run, WholeOperandStage, destination, store_result
from neonlike.kernels.run.threads import thread_count
from neonlike.optree import npfuncs
from neonlike.optree.dtypes import DType, compute_dtype, is_float
from neonlike.optree.shapes import contiguous_strides

ROW_BLOCK = 1 << 14
"""Elements of a slice in one unit of work (gather by rows)."""
PICK_CHUNK = 1 << 11
"""Elements of a row in one unit of work (gather by picks); their offsets fit on the stack."""
SUM_WIDTHS = {"rows": 256, "picks": 8}
"""Elements of a slice in one unit of work of a scatter-add, by form: their accumulators stay in the L1 cache."""
SUM_RANGE = 1 << 12
"""Elements of the result in one unit of work of a scatter-add: still cached from being cleared when they are added
to."""

FEW = 8
"""Elements of a slice up to which scatter-add keeps accumulators for all positions and does not sort the indices."""

FormKey: TypeAlias = tuple[str, bool, bool, bool]
"""Form; whether the innermost stride of source and of result is 1 (False where the form does not use it); whether
offsets fit in 32 bits."""

META = (
    "limit", "count", "index_step", "wide_step", "narrow_step",
    "inner", "wide_inner", "narrow_inner", "width", "reach", "outer_axes",
)  # fmt: skip
"""Head of the meta array; size, wide stride and narrow stride of each outer axis follow."""
META_AT = {name: position for position, name in enumerate(META)}


MOVES = ("take", "untake")
"""The ops of this module."""


def usable(plan: Plan, stage: Stage, ops: Container[str] = MOVES) -> bool:
    """Whether ``stage`` is one of ``ops`` and has a kernel: its operands are arrays and its result is not permuted.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    ops : container of str
        Names of ops.
    """
    value = plan.values[stage.values[0]]
    if value.spec.name not in ops or any(isinstance(arg, NumberArg) for arg in value.args):
        return False
    return all(isinstance(store.arg, ValueArg) and store.arg.perm is None for store in stage.stores)


# Layouts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """Variant of a kernel for three arrays, its meta array (see ``META``), units of work and elements touched."""

    key: tuple[Any, ...]
    meta: list[int]
    units: int
    work: int


def layout_of(wide: npfuncs.Array, narrow: npfuncs.Array, index_step: int, axis: int, scatter: bool) -> Layout | None:
    """Kernel variant and arguments for these arrays; None if there is nothing to do or their shapes do not match.

    Parameters
    ----------
    wide : array
        What is read by indices, or written.
    narrow : array
        One slice for each index.
    index_step : int
        Step between indices, in elements.
    axis : int
    scatter : bool
        Whether ``wide`` is written.
    """
    others = [k for k in range(wide.ndim) if k != axis]
    if wide.ndim != narrow.ndim or any(wide.shape[k] != narrow.shape[k] for k in others):
        return None
    if wide.size == 0 or narrow.size == 0:
        return None
    steps = [[step // a.itemsize for step in a.strides] for a in (wide, narrow)]
    read, written = (1, 0) if scatter else (0, 1)
    outer = merged_axes([(wide.shape[k], steps[0][k], steps[1][k]) for k in others if wide.shape[k] > 1], 1 + written)
    inner = outer.pop() if outer else (1, 1, 1)
    along = (wide.shape[axis], steps[0][axis], steps[1][axis]), (narrow.shape[axis], steps[0][axis], steps[1][axis])
    by_rows = inner[0] > 1 and (along[written][0] == 1 or abs(inner[1 + written]) <= abs(along[written][1 + written]))
    limit, count, slices = wide.shape[axis], narrow.shape[axis], math.prod(size for size, *_ in outer)
    innermost = inner if by_rows else along[written]
    width = reach = 0
    short = False
    if not scatter:
        form, width = ("rows", ROW_BLOCK) if by_rows else ("picks", PICK_CHUNK)
        pieces = -(-inner[0] // width) * count if by_rows else inner[0] * -(-count // width)
        short = not by_rows and (limit - 1) * abs(steps[0][axis]) < 1 << 31
    elif inner[0] * slices == 1 or (inner[0] * slices <= FEW and limit <= 4 * count):
        form, innermost, pieces = "few", along[written], inner[0]
    else:
        form = "rows" if by_rows else "picks"
        reach = max(1, min(SUM_RANGE // (min(inner[0], SUM_WIDTHS[form]) if by_rows else 1), -(-limit // 16)))
        pieces = -(-inner[0] // SUM_WIDTHS[form]) * -(-limit // reach)
    unit_read = innermost[1 + read] == 1 and (by_rows or form == "few")
    key = form, unit_read, innermost[1 + written] == 1, short
    head = (limit, count, index_step, steps[0][axis], steps[1][axis], *inner, width, reach, len(outer))
    meta = [*head, *(number for one in outer for number in one)]
    return Layout(key, meta, pieces * slices, narrow.size + (wide if scatter else narrow).size)


def merged_axes(axes: Sequence[tuple[int, ...]], by: int) -> list[tuple[int, ...]]:
    """``axes`` (size, strides) by decreasing stride at position ``by``; neighbours merged where all strides allow."""
    merged: list[tuple[int, ...]] = []
    for size, *steps in sorted(axes, key=lambda axis: -abs(axis[by])):
        if merged and all(before == step * size for before, step in zip(merged[-1][1:], steps)):
            merged[-1] = (merged[-1][0] * size, *steps)
        else:
            merged.append((size, *steps))
    return merged


# The stage ----------------------------------------------------------------------------------------------------------

ARGUMENTS = (*[POINTER] * 4, INT, INT)
"""Arguments of the kernels: source, indices, result, meta array, units of work, threads."""
MoveLaunch: TypeAlias = tuple[Any, Any, int, int]
"""Function, meta array, units of work, threads."""


class MoveStage(WholeOperandStage):
    """One gather or scatter and its compiled variants.

    Attributes
    ----------
    dtype : dtype
        Of what the kernel writes.
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        super().__init__(plan, stage, graph)
        value = self.value
        self.scatter = value.spec.name == "untake"
        self.axis: int = graph.nodes[value.node].attrs["axis"] % len(value.shape)  # type: ignore[index]
        if self.direct is None and len(stage.stores) == 1 and not plan.kept(stage):
            self.direct, self.others = stage.stores[0], []  # converted by the kernel
            self.dtype = graph.targets[self.direct.target].dtype
        self.comment = expression_text(graph)
        self.variants: dict[Any, Any] = {}
        self.launches: dict[Any, MoveLaunch | None] = {}

    # Running

    def run(self, run: Run) -> None:
        """Execute the stage.

        Raises
        ------
        IndexRangeError
            If an index is out of range; nothing was written then.
        """
        out = self._allocate(run)
        source, indices = self._operands(run)
        flat = indices.reshape(-1)
        launch = self._launch(source, flat.dtype, flat.size, flat.strides[0] // flat.itemsize, out)
        threads = 1 if launch is None or forks.forked else launch[3]
        if launch is None or launch[0](
            source.__array_interface__["data"][0],
            flat.__array_interface__["data"][0],
            out.__array_interface__["data"][0],
            launch[1],
            launch[2],
            threads,
        ):
            self._run_numpy(source, indices, out)
        if self.others:
            self._convert(run, out)

    def steps(self, run: Placing) -> Fragment | None:
        """The kernel of the stage on the arrays of ``run``, for the program of its plan; None where NumPy runs."""
        out = self._allocate(run)
        source, indices = self._operands(run)
        step = _step_between(indices)
        launch = None if step is None else self._launch(source, indices.dtype, indices.size, step, out)
        return self._kernel_steps(run, launch, [*map(run.read, self.inputs), run.written(out)], out)

    def _kernel_steps(
        self, run: Placing, launch: MoveLaunch | None, places: Sequence[Word], out: Any
    ) -> Fragment | None:
        """The kernel on arrays that begin at ``places``, and the conversions of ``out`` that follow."""
        if launch is None or launch[0].packed is None:
            return None
        function, meta, units, threads = launch
        words: tuple[Word, ...] = (
            *places, (Source.PLAIN, ctypes.addressof(meta)), (Source.PLAIN, units), (Source.THREADS, threads)
        )  # fmt: skip
        kernel = Fragment((Step(function.packed, words),), out.size >= RELEASE_WORK, True, launch)
        others = [destination(run, store) for store in self.others]
        return joined_steps([kernel, *[stored_steps(run, to, run.written(to), out, run.written(out)) for to in others]])

    def _operands(self, run: Run) -> tuple[npfuncs.Array, npfuncs.Array]:
        source, indices = [run.array(operand, 0) for operand in self.inputs]
        return source, indices

    def _run_numpy(self, source: npfuncs.Array, indices: npfuncs.Array, out: npfuncs.Array) -> None:
        """Compute the stage with NumPy, which raises errors before it writes."""
        self._store_numpy([source, indices], out, {"axis": self.axis})

    def _store_numpy(self, arrays: list[npfuncs.Array], out: npfuncs.Array, attrs: dict[str, Any]) -> None:
        computed = compute_dtype(self.value.dtype)
        exact = out.dtype == computed
        result = out if exact else np.empty(out.shape, computed)
        with np.errstate(all="ignore"):
            self.value.spec.numpy(*arrays, result, **attrs)
            if not exact:
                converter(out.dtype)(result, out)

    def _convert(self, run: Run, out: npfuncs.Array) -> None:
        with np.errstate(all="ignore"):
            store_result(run, out, self.others)

    def _launch(self, source: Any, index: DType, count: int, step: int, out: Any) -> MoveLaunch | None:
        """Function and arguments for these arrays and ``count`` indices ``step`` apart; None where NumPy runs."""
        key = (source.shape, source.strides, count, step, out.shape, out.strides)
        launch = self.launches.get(key, False)
        if launch is False:
            layout = self._layout(source, count, step, out)
            function = None if layout is None else self._variant(layout.key, source.dtype, index)
            launch = remember(self.launches, key, launch_of(layout, function))
        return launch  # type: ignore[return-value]

    def _layout(self, source: npfuncs.Array, count: int, index_step: int, out: npfuncs.Array) -> Layout | None:
        """How to move by ``count`` indices; None where NumPy runs."""
        wide, narrow = (out, source) if self.scatter else (source, out)
        if narrow.ndim != wide.ndim or narrow.shape[self.axis] != count or count == 0:
            return None
        return layout_of(wide, narrow, index_step, self.axis, self.scatter)

    # Compiling

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """The kernel for arrays that lie like these; none where NumPy runs."""
        out = self._allocate(layouts)
        source, indices = self._operands(layouts)
        layout = self._layout(source, indices.size, 1, out)  # steps between indices are arguments
        return [] if layout is None else [self._source(layout.key, source.dtype, indices.dtype)]

    def _source(self, key: FormKey, read: DType, index: DType) -> KernelSource:
        form, unit_source, unit_out, short = key
        context: dict[str, Any] = {
            "at": META_AT,
            "by_rows": form == "rows",
            "unit_source": unit_source,
            "unit_out": unit_out,
            "index_type": STORAGE[index.name],
        }
        copies = read == self.dtype and not self.scatter
        if self.scatter:
            template = "c/scatter_few.c.j2" if form == "few" else "c/scatter.c.j2"
            place = "j * source_step" if form == "few" else "b * source_inner"
            context |= {"width": SUM_WIDTHS.get(form, 0), "total_type": "double" if is_float(read) else "uint64_t"}
            context |= self._types(read, place, "sum")
        else:
            template = "c/gather.c.j2"
            place = "i * source_inner" if form == "rows" else "offsets[i]"
            context |= {"chunk": PICK_CHUNK, "offset_type": "int32_t" if short else "int64_t", "converts": not copies}
            context |= self._copied(read, place) if copies else self._types(read, place, "x")
        source = WithEntry(template, context, ARGUMENTS)
        headers = (workers.HEADER, "packed.h") if copies else HEADERS
        return KernelSource(source, source.name, self.comment, header_texts(headers))

    def _copied(self, dtype: DType, place: str) -> dict[str, Any]:
        """Template context for copies without conversion: one kernel for all dtypes of a size."""
        ctype = f"uint{8 * dtype.itemsize}_t"
        return {"source_type": ctype, "out_type": ctype, "value_type": ctype, "load": f"from[{place}]", "result": "x"}

    def _types(self, read: DType, place: str, result: str) -> dict[str, Any]:
        line = Writer(Kernel(self.plan, self.stage)).load(Array("from", "leaf", 0, read, ()), place)
        value = compute_dtype(read)
        return {
            "source_type": STORAGE[read.name],
            "out_type": STORAGE[self.dtype.name],
            "value_type": line.ctype,
            "load": line.text,
            "result": convert_store(result, value, self.dtype),
        }

    def _variant(self, key: FormKey, read: DType, index: DType) -> Any:
        """The compiled function for a form; None if compiling failed."""
        if key not in self.variants:
            self.variants[key] = self._compile(self._source(key, read, index))
        return self.variants[key]

    def _compile(self, kernel: KernelSource) -> Any:
        return load_function(kernel, ARGUMENTS, ctypes.c_int)


def launch_of(layout: Layout | None, function: Any) -> MoveLaunch | None:
    """The launch of ``function``, the kernel's variant for ``layout``; None without one of them: NumPy runs."""
    if layout is None or function is None:
        return None
    threads = 1 if layout.work < PARALLEL_WORK else min(thread_count(), layout.units)
    return function, (ctypes.c_int64 * len(layout.meta))(*layout.meta), layout.units, threads


def _step_between(indices: Any) -> int | None:
    """The step between indices in their order, in elements; None if that is not one step."""
    steps = [step // indices.itemsize for step, size in zip(indices.strides, indices.shape, strict=True) if size != 1]
    if len(steps) < 2:
        return steps[0] if steps else 1
    return 1 if tuple(indices.strides) == contiguous_strides(indices.shape, indices.itemsize) else None
