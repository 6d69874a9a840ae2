"""Ops along one axis as compiled C: scans (cumulative sums and products), argsort, ``take_along``, ``untake_along``.

A line is all elements along the axis at one position of the other axes. Lines that are adjacent in memory are
processed in vector lanes. One thread processes a whole line, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c.forms import HEADERS
from neonlike.kernels.c.moves import ARGUMENTS, Layout, MoveLaunch, MoveStage, launch_of, merged_axes
from neonlike.kernels.c.routine import WithEntry
from neonlike.kernels.codegen.emit import STORAGE, convert_store
from neonlike.kernels.codegen.line_texts import RUNNING_TOTALS, key_texts
from neonlike.kernels.codegen.render import header_texts
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan, Stage
from neonlike.kernels.run import forks
from neonlike.kernels.run.arrays import remember
from neonlike.kernels.run.placing import Placing, after
from neonlike.kernels.run.program import Fragment
from neonlike.kernels.run.stage import Layouts, Run
from neonlike.optree import npfuncs
from neonlike.optree.dtypes import I64, DType, is_float

FORMS = {"cumsum": "scan", "cumprod": "scan", "argsort": "sort", "take_along": "take", "untake_along": "untake"}
"""Template of each op."""
WIDTHS = {"scan": 64, "sort": 8, "take": 64, "untake": 8}
"""Adjacent lines that a kernel processes at a time."""
COST = {"scan": 2, "sort": 30, "take": 2, "untake": 4}
"""Work per element, in units of one copied element: decides whether threads pay."""

Key: TypeAlias = tuple[int, bool, bool]
"""Lines at a time; whether the elements of a line are contiguous in source and result; whether the lines are."""

META = (
    "read", "written", "scratch", "source_step", "index_step", "out_step",
    "inner", "source_inner", "index_inner", "out_inner", "outer_axes",
)  # fmt: skip
"""Head of the meta array: sizes along the axis, bytes of scratch memory for each thread, strides; size and three
strides of each outer axis follow."""
META_AT = {name: position for position, name in enumerate(META)}
META_AT |= {"limit": META_AT["read"], "count": META_AT["written"]}


def layout_of(form: str, source: npfuncs.Array, index: npfuncs.Array | None, out: npfuncs.Array, axis: int,
              room: int) -> Layout | None:  # fmt: skip
    """Kernel variant and arguments for these arrays; None if there is nothing to do. ``room``: bytes of scratch
    memory for each element of a line.

    Parameters
    ----------
    form : "scan", "sort", "take" or "untake"
    source, out : arrays
    index : array or None
    axis : int
    room : int
    """
    arrays = [source, out if index is None else index, out]
    if any(a.size == 0 for a in arrays) or source.shape[axis] >= 1 << 32:
        return None
    steps = [[step // a.itemsize for step in a.strides] for a in arrays]
    if index is None:
        steps[1] = [0] * out.ndim
    others = [k for k in range(out.ndim) if k != axis and out.shape[k] > 1]
    outer = merged_axes([(out.shape[k], *(s[k] for s in steps)) for k in others], 3)
    inner = outer.pop() if outer else (1, 0, 0, 0)
    along = [s[axis] for s in steps]
    by_rows = inner[0] == 1 or abs(along[2]) <= abs(inner[3]) or out.shape[axis] == 1 == source.shape[axis]
    width = 1 if by_rows else WIDTHS[form]
    longest = max(source.shape[axis], out.shape[axis])
    lines = {"scan": 0, "sort": width + 1, "take": 0, "untake": width}[form]
    scratch = -(-lines * longest * room // 64) * 64
    units = math.prod(size for size, *_ in outer) * -(-inner[0] // width)
    head = (source.shape[axis], out.shape[axis], scratch, *along, *inner, len(outer))
    meta = [*head, *(number for one in outer for number in one)]
    key = (width, by_rows and along[0] == along[2] == 1, not by_rows and inner[1] == inner[3] == 1)
    return Layout(key, meta, units, max(source.size, out.size) * COST[form])


class LineStage(MoveStage):
    """One scan, sort, gather or scatter-add along lines, and its compiled variants.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    graph : Graph
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        super().__init__(plan, stage, graph)
        self.form = FORMS[self.value.spec.name]
        attrs: Any = graph.nodes[self.value.node].attrs
        self.attrs = {key: attrs[key] for key in self.keys}

    # Running

    def run(self, run: Run) -> None:
        """Execute the stage.

        Raises
        ------
        IndexRangeError
            If an index is out of range; nothing was written then.
        """
        out = self._allocate(run)
        arrays = [run.array(operand, 0) for operand in self.inputs]
        launch = self._ready(arrays, out)
        if launch is None or launch[0](*launch[1], 1 if forks.forked else launch[2]):
            self._on_numpy(arrays, out)
        if self.others:
            self._convert(run, out)

    def steps(self, run: Placing) -> Fragment | None:
        """The kernel of the stage on the arrays of ``run``, for the program of its plan; None where NumPy runs."""
        out = self._allocate(run)
        arrays = [run.array(operand, 0) for operand in self.inputs]
        read, place = [*map(run.read, self.inputs)], run.written(out)
        if self.attrs.get("reverse"):
            read[0], place = after(read[0], self._to_last(arrays[0])), after(place, self._to_last(out))
        return self._kernel_steps(run, self._found(*self._flipped(arrays, out)), [read[0], read[-1], place], out)

    def _to_last(self, array: Any) -> int:
        """Bytes from the first element along the axis to the last one."""
        return int((array.shape[self.axis] - 1) * array.strides[self.axis])

    def _on_numpy(self, arrays: list[npfuncs.Array], out: npfuncs.Array) -> None:
        """Compute the stage with NumPy, which raises errors before it writes."""
        self._store_numpy(arrays, out, self.attrs)

    def _ready(self, arrays: list[npfuncs.Array], out: npfuncs.Array) -> tuple[Any, tuple[Any, ...], int] | None:
        """Function, arguments without the number of threads, and that number; None where NumPy runs."""
        source, index, written = self._flipped(arrays, out)
        found = self._found(source, index, written)
        if found is None:
            return None
        function, meta, units, threads = found
        pointers = [a.__array_interface__["data"][0] for a in (source, source if index is None else index, written)]
        return function, (*pointers, meta, units), threads

    def _found(self, source: Any, index: Any, written: Any) -> MoveLaunch | None:
        """The launch on arrays that lie like these; None where NumPy runs."""
        key = tuple((a.shape, a.strides) for a in (source, written, *([] if index is None else [index])))
        found = self.launches.get(key, False)
        if found is False:
            layout = self._line_layout(source, index, written)
            function = None if layout is None else self._line_variant(layout.key, source.dtype, index)
            found = remember(self.launches, key, launch_of(layout, function))
        return found  # type: ignore[return-value]

    def _flipped(
        self, arrays: list[npfuncs.Array], out: npfuncs.Array
    ) -> tuple[npfuncs.Array, npfuncs.Array | None, npfuncs.Array]:
        """Source, indices and result; source and result flipped along the axis for ``reverse``."""
        source, index = arrays[0], arrays[1] if len(arrays) > 1 else None
        if self.attrs.get("reverse"):
            turn = (*[slice(None)] * self.axis, slice(None, None, -1))
            source, out = source[turn], out[turn]
        return source, index, out

    def _line_layout(self, source: npfuncs.Array, index: npfuncs.Array | None, out: npfuncs.Array) -> Layout | None:
        room = {"sort": 16 if source.itemsize == 8 else 8}.get(self.form, 8)
        return layout_of(self.form, source, index, out, self.axis, room)

    # Compiling

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """The kernel for arrays that lie like these; none where NumPy runs."""
        out = self._allocate(layouts)
        source, index, out = self._flipped([layouts.array(operand, 0) for operand in self.inputs], out)
        layout = self._line_layout(source, index, out)
        return [] if layout is None else [self._line_source(layout.key, source.dtype, index)]

    def _line_source(self, key: Key, read: DType, index: npfuncs.Array | None) -> KernelSource:
        width, unit, unit_inner = key
        context: dict[str, Any] = {
            "at": META_AT, "form": self.form, "width": width, "unit": unit, "unit_inner": unit_inner,
            "checks": index is not None, "index_type": "char" if index is None else STORAGE[index.dtype.name],
        }  # fmt: skip
        if self.form == "sort":
            texts = key_texts(read, self.attrs["descending"])
            context |= texts | {"source_type": texts["bits_type"], "out_type": STORAGE[self.dtype.name]}
            context["result"] = convert_store("place", I64, self.dtype)
        elif self.form == "take" and read == self.dtype:
            context |= self._copied(read, "i * source_inner")
        else:
            context |= self._types(read, "i * source_inner", "x" if self.form == "take" else "sum")
            context["total_type"] = "double" if is_float(read) else "uint64_t"
        context["start"], context["sign"] = RUNNING_TOTALS.get(self.value.spec.name, ("", ""))
        if self.form == "untake":
            context["at"] = META_AT | {"limit": META_AT["written"], "count": META_AT["read"]}
        source = WithEntry(f"c/lines/{self.form}.c.j2", context, ARGUMENTS)
        return KernelSource(source, source.name, self.comment, header_texts(HEADERS))

    def _line_variant(self, key: Key, read: DType, index: npfuncs.Array | None) -> Any:
        if key not in self.variants:
            self.variants[key] = self._compile(self._line_source(key, read, index))
        return self.variants[key]
