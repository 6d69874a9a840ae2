"""The forms a C kernel takes, and the context its template is rendered with.

* elementwise: see ``elementwise``;
* reduction by *rows*: the reduced axis is the inner loop;
* reduction by *columns*: the reduced axis is the outer loop, columns are vector lanes;
* reduction by *lanes*: the elements of a contiguous stretch of kept and reduced axes are vector lanes;
* rows and columns with more axes, kept and reduced ones in any order: rows of *segments*, *deep* columns.

Any may be *streamed*: results larger than the caches are written with streaming stores. Columns may be *packed*: the
part of a column block that several passes read, whose rows are far apart in memory, is copied to a contiguous buffer.
Columns that are both are *piped*: passes over a block are interleaved with those over the blocks before and after it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from neonlike.kernels.c.fit import MAX_WIDTH, SPLIT
from neonlike.kernels.c.fit_lanes import LANES as LANE_ROW
from neonlike.kernels.c.schedule import REVERSED, CSchedule
from neonlike.kernels.c.sizes import BY_COLUMNS, BY_LANES, BY_ROWS
from neonlike.kernels.codegen.emit import Array, Kernel, Line, Writer, type_of
from neonlike.kernels.codegen.headers import Library
from neonlike.kernels.codegen.moments import find_moments
from neonlike.kernels.codegen.pass_cache import PassCache, cache_in_output, cache_in_rows, cache_packed
from neonlike.kernels.codegen.passes import LANES, LIGHT_COST, LIGHT_LANES, Level, Passes, ReduceForm, widened
from neonlike.kernels.codegen.ranged import with_narrow
from neonlike.kernels.codegen.reduce_values import reduce_values
from neonlike.kernels.codegen.render import TemplateSource, header_texts
from neonlike.kernels.planning.plan import pass_depths
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.ops import Kind

HEADERS = (
    *(f"vecmath/vecmath{part}.h" for part in ("", "_small", "_f32", "_f64", "_more", "_array")),
    *(f"vecmath/vecmath_{part}.h" for part in ("power", "trigonometry", "angles", "hyperbolic", "exact")),
    "division.h", "intmath.h", "intmath_narrow.h", "philox.h", "stream.h", "halves.h", "packed.h", "team.h",
)  # fmt: skip
"""What kernels of op-trees may include."""
_PARTS = dict.fromkeys(("vecmath_small.h", "vecmath_f32.h", "vecmath_f64.h"), "vecmath.h")
_PARTS["division.h"] = "vecmath_more.h"


@lru_cache(maxsize=1)
def library() -> Library:
    """The headers of op-trees, read when a kernel is first written."""
    return Library(header_texts(HEADERS), _PARTS, system=True)


def parameters(kernel: Kernel) -> dict[str, Any]:
    """Context that every template needs; ``words`` are the arguments of NL_PACKED in packed.h."""
    arrays = [*kernel.inputs, *kernel.outputs]
    kinds = ["integer" if array.kind == "counter" else "pointer" for array in arrays]
    kinds += ["real" if number.ctype == "double" else "integer" for number in kernel.numbers]
    words = [f"w[{i}].{kind}" for i, kind in enumerate([*kinds, "pointer", "integer", "integer"])]
    return {"arrays": arrays, "numbers": kernel.numbers, "words": ", ".join(words)}


def access(step: int, index: str, name: str) -> str:
    """Index text of an array with stride 0, 1, -1 or any other, which is then in a variable ``name``.

    Parameters
    ----------
    step : int
        0, 1, -1, or anything else for any other stride.
    index : str
        Text of the position.
    name : str
        Variable of a stride.
    """
    return {0: "0", 1: index, REVERSED: f"-{index}"}.get(step, f"{index} * {name}")


def halves_along(kernel: Kernel, steps: Sequence[int], along: Collection[int], index: str) -> dict[str, str]:
    """Texts of the elements of 16-bit arrays contiguous along the inner loop: those of blocks converted to float32.

    Parameters
    ----------
    kernel : Kernel
    steps : sequence of int
        Of each array along the inner loop.
    along : collection of int
        The steps of contiguous arrays.
    index : str
        Text of the position.
    """
    arrays = zip((*kernel.inputs, *kernel.outputs), steps)
    return {a.name: f"wide_{a.name}[{index}]" for a, step in arrays if step in along and a.half}


def _narrowed(kernel: Kernel, wide: Collection[str], streamed: Collection[Array]) -> list[dict[str, Any]]:
    """Outputs that are converted from such blocks; streamed ones are collected in a buffer first."""
    return [{"name": a.name, "half": a.half, "streamed": a in streamed} for a in kernel.outputs if a.name in wide]


def streamed_outputs(kernel: Kernel, inner: Sequence[int]) -> list[Array]:
    """Outputs for streaming stores: those that are contiguous along the inner loop."""
    outputs = zip(kernel.outputs, inner[len(kernel.inputs) :])
    return [a for a, step in outputs if step == 1 and a in kernel.streamable()]


# Reductions ---------------------------------------------------------------------------------------------------------


PLACES = 64
"""Lanes of argmax by rows."""
PIPED_LANES, CHUNK = 64, 16
"""Columns of a pipelined block whose accumulators stay in registers, and rows that a pass processes at a time.

At 16M elements, 16 rows at a time took 0.85 to 1.02 of the time of 32, 8 rows 0.83 to 1.04.
"""


def rows(kernel: Kernel, schedule: CSchedule) -> TemplateSource:
    """Source of a reduction by rows, by rows that are split, or by segments of rows."""
    arrays = [*kernel.inputs, *kernel.outputs]
    split, segments = 0 if schedule.form == "rows" else SPLIT, schedule.form == "segments"
    streamed = streamed_outputs(kernel, schedule.inner) if schedule.streamed else []
    streamed = [a for a in streamed if a.shape == kernel.stage.shape]
    form = _by_rows(kernel, schedule.inner, streamed, caches=not split)
    passes = form.passes()
    passes = replace(passes, levels=tuple([replace(level, padded=_padded(form, level)) for level in passes.levels]))
    if not split and (form.values.passes > 1 or not passes.final.stores):
        whole = [a for a in kernel.inputs if a.name in form.along and form.values.covers(a)]
        passes = _fetching(passes, tuple(whole), bool(streamed))
    passes = with_narrow(form, passes)
    moments = find_moments(form) if split and not segments else None
    loops = [*passes.levels, *([moments.level] if moments else [])]
    context = passes.context() | parameters(kernel) | _streams(kernel, form, streamed) | _cached_rows(form)
    context |= {
        "split": split,
        "sizes": BY_ROWS,
        "segments": segments,
        "moments": moments,
        "selects": form.values.selects(),
        "places": PLACES,
        "far_bytes": _far_bytes(form) if any(_asks_for_more(level, bool(split)) for level in loops) else 0,
        "brief": None if split or segments else _brief(passes),
        "halves": {lanes: _halves(lanes) for lanes in (LIGHT_LANES, LANES, PLACES)},
        "inner_steps": [a.name for a, step in zip(arrays, schedule.inner) if step not in (0, 1)],
    }
    return TemplateSource("c/reduce/rows.c.j2", context, library())


def _by_rows(kernel: Kernel, inner: Sequence[int], streamed: Sequence[Array], caches: bool) -> ReduceForm:
    """The passes over rows; ``inner`` holds each array's stride within a row (2: any)."""
    arrays = [*kernel.inputs, *kernel.outputs]
    values = reduce_values(kernel)
    return ReduceForm(
        values,
        Writer(kernel, wide=widened(values, halves_along(kernel, inner, (1,), "at - strip"))),
        {a.name: access(step, "at", f"step_{a.name}") for a, step in zip(arrays, inner)},
        by_columns=False,
        cache=cache_in_rows(values) if caches else PassCache(),
        along=frozenset(a.name for a, step in zip(arrays, inner) if step == 1 and a.kind != "counter"),
        streamed=frozenset(a.name for a in streamed),
        calls=True,
    )


def _asks_for_more(level: Level, split: bool) -> bool:
    """Whether a pass fetches memory ahead, if rows are more than caches hold."""
    adds = any(not r.position for r in level.reductions)
    return adds and level.light and bool(level.fetched or (split and level.ahead))


def _far_bytes(form: ReduceForm) -> int:
    """Bytes that an element of a row takes in the inputs that run along it."""
    varying = [a for a in form.kernel.inputs if a.name in form.along and form.values.varies(a.shape)]
    return sum(a.dtype.itemsize for a in varying)


def _streams(kernel: Kernel, form: ReduceForm, streamed: Sequence[Array]) -> dict[str, Any]:
    """Context of outputs with streaming stores or float16 conversion."""
    return {
        "streamed": [{"name": a.name, "ctype": a.ctype} for a in streamed],
        "narrowed": _narrowed(kernel, form.writer.wide, streamed),
    }


def _cached_rows(form: ReduceForm) -> dict[str, Any]:
    """Context of the values saved in buffers of a row's length."""
    values = [form.values.by_index[index] for index in sorted(form.cache.values)]
    return {
        "cached": [Line(f"v{value.index}", type_of(value.dtype), "") for value in values],
        "cached_bytes": sum(compute_dtype(value.dtype).itemsize for value in values),
    }


def _padded(form: ReduceForm, level: Level) -> tuple[Array, ...] | None:
    """The arrays that vary along a row, if a light pass reads only them, contiguously; None otherwise."""
    arrays = [a for a in form.kernel.inputs if form.values.varies(a.shape)]
    if not level.by_fours or level.reads_cache or level.lanes != LIGHT_LANES:
        return None
    if any(a.name not in form.along for a in arrays):
        return None
    return tuple([a for a in arrays if a not in level.widened])


def _brief(passes: Passes) -> dict[str, list[Line]] | None:
    """Lines before and after the only pass over a row, if that is light and stores nothing; None otherwise."""
    level, final, row_level = passes.levels[0], passes.final, passes.row_level
    if len(passes.levels) > 1 or not level.by_fours or final.stores:
        return None
    assert level.settle is not None and final.settle is not None
    before = {line.name: line for line in (*level.settle.hoisted, *level.settle.lines, *level.hoisted)}
    after = {
        line.name: line for line in (*final.settle.hoisted, *final.settle.lines, *row_level.hoisted, *row_level.lines)
    }
    return {"before": [*before.values()], "after": [line for name, line in after.items() if name not in before]}


def _fetching(passes: Passes, next_row: tuple[Any, ...], streams: bool) -> Passes:
    """``passes``, one or two of which prefetch the next row.

    The second pass, which has most arithmetic. If all are light and results are streamed, the last and the final one by
    turns: a layer norm of 16M elements took 0.92 of the time.
    """
    levels = list(passes.levels)
    if streams and all(level.light for level in levels):
        levels[-1] = replace(levels[-1], fetched=next_row, share=(0, 2))
        final = replace(passes.final, fetched=next_row, share=(1, 2))
        return replace(passes, levels=tuple(levels), final=final)
    chosen = min(1, len(levels) - 1)
    levels[chosen] = replace(levels[chosen], fetched=next_row)
    return replace(passes, levels=tuple(levels))


def _halves(lanes: int) -> list[int]:
    """Distances between the lanes that are combined in the steps of a tree reduction."""
    return [lanes >> step for step in range(1, lanes.bit_length())]


def columns(kernel: Kernel, schedule: CSchedule) -> TemplateSource:
    """Source of a reduction by columns or deep columns."""
    right, piped = schedule.inner, schedule.piped
    form = _by_columns(kernel, right, piped or schedule.packed)
    streamed = streamed_outputs(kernel, right) if piped or schedule.streamed else []
    streamed = [a for a in streamed if a.name in form.along]
    packed = form.cache.packed
    wide = {} if piped else widened(form.values, halves_along(kernel, right, (1,), "b - c"))
    form = replace(
        form,
        writer=replace(form.writer, wide=wide),
        streamed=frozenset(a.name for a in streamed),
        streamed_index="l" if piped else "b",
        calls=piped,
    )
    passes = form.passes()
    first = passes.levels[0]
    # The second pass reads only packed memory: it prefetches the next block (0.92 of a softmax's time).
    passes = _fetching_blocks(passes, tuple([name for name in first.ahead if piped or name in packed]))
    passes = passes if piped else with_narrow(form, passes)
    context = passes.context() | parameters(kernel) | _streams(kernel, form, streamed)
    context |= {
        "sizes": BY_COLUMNS,
        "packed": list(packed.values()),
        "packed_bytes": form.cache.bytes_packed,
        "width": MAX_WIDTH,
        "placed": False,
        "by_fours": not passes.final.stores and len(passes.levels) == 1 and first.by_fours,
        "segments": schedule.form == "deep",
        "few": schedule.unrolled,
    }
    if piped:
        return TemplateSource("c/reduce/piped.c.j2", context | {"lanes": PIPED_LANES, "chunk": CHUNK}, library())
    return TemplateSource("c/reduce/columns.c.j2", context, library())


def _fetching_blocks(passes: Passes, names: tuple[str, ...]) -> Passes:
    """``passes``, the second of which prefetches the next block of the arrays of these names."""
    if len(passes.levels) == 1:
        return replace(passes, final=replace(passes.final, fetched=names))
    first, second, *others = passes.levels
    return replace(passes, levels=(first, replace(second, fetched=names), *others))


def lanes(kernel: Kernel, schedule: CSchedule) -> TemplateSource:
    """Source of a reduction by lanes; arrays of class 1 vary along lanes, others have a column stride."""
    form = _by_lanes(kernel, schedule.inner)
    passes = form.passes()  # without prefetching: rows of lanes are contiguous
    passes = replace(
        passes,
        levels=tuple([replace(level, ahead=()) for level in passes.levels]),
        final=replace(passes.final, ahead=()),
    )
    passes = with_narrow(form, passes)
    loops = [*passes.levels, passes.final]
    known = {line.name for level in loops for line in level.known}
    context = passes.context() | parameters(kernel)
    context |= {
        "sizes": BY_LANES,
        "narrowed": _narrowed(kernel, form.writer.wide, ()),
        "placed": any("[k * " in line.text for level in loops for line in level.lines),
        "spread": [line for line in passes.row_values if line.name in known],
        "most_reductions": max(len(level.reductions) for level in passes.levels),
        "segments": True,
        "width": LANE_ROW,
        "part": SPLIT,
    }
    return TemplateSource("c/reduce/lanes.c.j2", context, library())


def _by_lanes(kernel: Kernel, classes: Sequence[int]) -> ReduceForm:
    """The passes over rows of lanes."""
    arrays = [*kernel.inputs, *kernel.outputs]
    values = reduce_values(kernel)
    index_of = {}
    for array, step in zip(arrays, classes):
        across = access(0 if step == 0 else 2, "k", f"right_{array.name}")
        index_of[array.name] = f"at * down_{array.name} + b" if step == 1 else across
    return ReduceForm(
        values,
        Writer(kernel, wide=widened(values, halves_along(kernel, classes, (1,), "b - c"))),
        index_of,
        by_columns=True,
        cache=cache_in_output(values),
        along=frozenset(a.name for a, step in zip(arrays, classes) if step == 1 and a.kind != "counter"),
        streamed_index="b",
    )


def knows_no_positions(kernel: Kernel) -> bool:
    """True if reductions may be by lanes or piped: the templates of both have no argmax and argmin."""
    return all(value.spec.name not in ("argmax", "argmin") for value in kernel.values)


def reads_once(kernel: Kernel) -> bool:
    """True if one pass reads all inputs, and no output has the size of the space."""
    once = max(pass_depths(kernel.values).values(), default=0) <= 1
    return once and all(array.shape != kernel.stage.shape for array in kernel.outputs)


def is_light(kernel: Kernel) -> bool:
    """True if reductions are most of the work (as :attr:`Level.light`, for all values together)."""
    return sum(value.spec.flops for value in kernel.values if value.spec.kind is not Kind.REDUCTION) < LIGHT_COST


def packing(kernel: Kernel, right: Sequence[int], large: bool, threads: int) -> int:
    """Bytes per element of a packed column block; 0 if packing does not pay.

    Without packing, values are saved in a result, whose rows threads share: what one prefetches, another writes. And
    parts of rows at a large stride map to few cache sets. Measured, float32: softmax over axis 0 took 0.5 to 0.75 of
    the time up to 1M elements and at 16M on two threads; on one, 0.8 at 16M and 1.2 below. A result of 16 bits can hold
    no value of float32, which would be computed twice.

    Parameters
    ----------
    kernel : Kernel
    right : sequence of int
        Stride of each array between columns; 2: any.
    large : bool
        Whether the space is large.
    threads : int
    """
    cache = _by_columns(kernel, right, packs=True).cache
    covers = any(a.shape == kernel.stage.shape for a in kernel.outputs)
    return cache.bytes_packed if (covers if large else cache.values and (threads > 1 or keeps_halves(kernel))) else 0


def keeps_halves(kernel: Kernel) -> bool:
    """True if results of the size of the space are of 16 bits, so that none can keep a value of float32."""
    halves = {array.half for array in kernel.outputs if array.shape == kernel.stage.shape}
    return bool(halves) and "" not in halves


def _by_columns(kernel: Kernel, right: Sequence[int], packs: bool) -> ReduceForm:
    """The passes over columns; ``right`` holds each array's stride between columns (2: any)."""
    values = reduce_values(kernel)
    index_of, along = {}, set()
    for array, step in zip((*kernel.inputs, *kernel.outputs), right):
        across = access(step, "b", f"right_{array.name}")
        down = f"at * down_{array.name}" if values.varies(array.shape) else ""
        index_of[array.name] = " + ".join(part for part in (down, across) if part and part != "0") or "0"
        if step == 1 and down and array.kind != "counter":
            along.add(array.name)
    cache = cache_packed(values, along) if packs else cache_in_output(values)
    return ReduceForm(values, Writer(kernel), index_of, by_columns=True, cache=cache, along=frozenset(along))
