"""The forms a C kernel takes, and the context its template is rendered with.

* elementwise: see ``elementwise``;
* reduction by *rows*: the reduced axis innermost;
* reduction by *columns*: the reduced axis outside, columns side by side in the vector unit;
* reduction by *lanes*: a stretch of memory, of kept and reduced axes, side by side in the vector unit;
* rows and columns with more axes, kept and reduced ones in any order: rows of *segments*, *deep* columns.

Any may be *streamed*: results larger than the caches are stored past them. Columns may be *packed*: what several
passes need of a block, larger than a cache because its rows lie far apart, is copied to memory of its own. Both are
*piped*: the passes over a block and over its neighbours take turns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from neonlike.kernels.c.fit import REVERSED, SPLIT
from neonlike.kernels.c.fit_lanes import LANES as LANE_ROW
from neonlike.kernels.codegen.emit import Array, Kernel, Line, type_of
from neonlike.kernels.codegen.moments import find_moments
from neonlike.kernels.codegen.passes import LANES, LIGHT_COST, LIGHT_LANES, Level, ReduceForm
from neonlike.kernels.codegen.render import Source
from neonlike.kernels.planning.plan import pass_depths
from neonlike.optree.dtypes import F16, compute_dtype
from neonlike.optree.ops import Kind


def parameters(kernel: Kernel) -> dict[str, Any]:
    """Context every template needs; ``words`` are the arguments as NL_PACKED of packed.h takes them."""
    arrays = [*kernel.inputs, *kernel.outputs]
    kinds = ["integer" if array.kind == "counter" else "pointer" for array in arrays]
    kinds += ["real" if number.ctype == "double" else "integer" for number in kernel.numbers]
    words = [f"w[{i}].{kind}" for i, kind in enumerate([*kinds, "pointer", "integer", "integer"])]
    return {"arrays": arrays, "numbers": kernel.numbers, "words": ", ".join(words)}


def access(step: int, index: str, name: str) -> str:
    """Index text for an array with a ``step`` of 0, 1, -1 or anything else (then a variable ``name`` holds it)."""
    return {0: "0", 1: index, REVERSED: f"-{index}"}.get(step, f"{index} * {name}")


def halves_along(kernel: Kernel, steps: Sequence[int], along: Collection[int], index: str) -> dict[str, str]:
    """Where elements of float16 arrays are that run along the inner loop: in stretches that are converted at once."""
    arrays = zip((*kernel.inputs, *kernel.outputs), steps)
    return {a.name: f"wide_{a.name}[{index}]" for a, step in arrays if step in along and a.dtype == F16}


def _narrowed(kernel: Kernel, wide: Collection[str], streamed: Collection[Array]) -> list[dict[str, Any]]:
    """Outputs that are converted from such stretches, those to be stored past the caches in memory of the kernel's."""
    return [{"name": a.name, "streamed": a in streamed} for a in kernel.outputs if a.name in wide]


def streamed_outputs(kernel: Kernel, inner: Sequence[int]) -> list[Array]:
    """Outputs to be stored past the caches: those that run along the inner loop."""
    outputs = zip(kernel.outputs, inner[len(kernel.inputs) :])
    return [a for a, step in outputs if step == 1 and a in kernel.streamable()]


# Reductions ---------------------------------------------------------------------------------------------------------


PLACES = 64
"""Candidates side by side in a search for a place, by rows."""


def rows(kernel: Kernel, inner: Sequence[int], split: int, streams: bool, segments: bool = False) -> Source:
    """Source of a reduction by rows; ``inner`` holds each array's step within a row (2: any).

    ``split`` is 0, or the length of the parts in which a long row goes through all threads; ``streams`` says whether
    results as large as the inputs are stored past the caches; ``segments`` that a row has several stretches of memory.
    """
    arrays = [*kernel.inputs, *kernel.outputs]
    index_of = {a.name: access(step, "at", f"step_{a.name}") for a, step in zip(arrays, inner)}
    form = ReduceForm(kernel, index_of, by_columns=False)
    form.along = {a.name for a, step in zip(arrays, inner) if step == 1 and a.kind != "counter"}
    form.calls = True
    form.widen(halves_along(kernel, inner, (1,), "at - strip"))
    if not split:
        form.choose_stashes()
    stashes = [form.values[index] for index in sorted(form.stashes)]
    streamed = [a for a in (streamed_outputs(kernel, inner) if streams else []) if a.shape == kernel.stage.shape]
    form.streamed = {a.name for a in streamed}
    context = form.context() | parameters(kernel)
    context["streamed"] = [{"name": a.name, "ctype": a.ctype} for a in streamed]
    context["narrowed"] = _narrowed(kernel, form.writer.wide, streamed)
    context["split"] = split
    context["segments"] = 1 + 2 * len(arrays) if segments else 0  # where the axes besides begin in meta
    context["moments"] = find_moments(form) if split and not segments else None
    context["selects"] = form.selects()
    context["places"] = PLACES
    context["far_bytes"] = sum(a.dtype.itemsize for a in kernel.inputs if a.name in form.along and form.varies(a.shape))
    for level in context["levels"]:
        level.padded = _padded(form, level)
    context["brief"] = None if split or segments else _brief(context)
    context["halves"] = {lanes: _halves(lanes) for lanes in (LIGHT_LANES, LANES, PLACES)}
    context["stashes"] = [Line(f"v{value.index}", type_of(value.dtype), "") for value in stashes]
    context["stash_bytes"] = sum(compute_dtype(value.dtype).itemsize for value in stashes)
    context["inner_steps"] = [
        {"name": f"step_{a.name}", "index": 2 + 2 * i} for i, (a, s) in enumerate(zip(arrays, inner)) if s not in (0, 1)
    ]
    context["arrays"] = [_with_row_step(a, 1 + 2 * i) for i, a in enumerate(arrays)]
    if not split and (form.passes > 1 or not context["final"].stores):
        next_row = [
            described
            for described, a in zip(context["arrays"], kernel.inputs)
            if a.name in form.along and a.shape == kernel.stage.shape
        ]
        _fetch(next_row, context["levels"], context["final"], bool(streamed))
    return Source("c/reduce_rows.c.j2", context)


def _padded(form: ReduceForm, level: Level) -> list[Array] | None:
    """The arrays that vary along a row, if a light pass reads them in its order, and nothing else; None otherwise."""
    arrays = [a for a in form.kernel.inputs if form.varies(a.shape)]
    if not level.by_fours or level.again or level.lanes != LIGHT_LANES or any(a.name not in form.along for a in arrays):
        return None
    return [a for a in arrays if a.name not in level.widened]


def _brief(context: dict[str, Any]) -> dict[str, list[Line]] | None:
    """What a row needs before and after its only pass, where that is light and stores nothing; None otherwise."""
    level, final, row_level = context["levels"][0], context["final"], context["row_level"]
    if len(context["levels"]) > 1 or not level.by_fours or final.stores:
        return None
    before = {line.name: line for line in (*level.settle.hoisted, *level.settle.lines, *level.hoisted)}
    after = {
        line.name: line for line in (*final.settle.hoisted, *final.settle.lines, *row_level.hoisted, *row_level.lines)
    }
    return {"before": [*before.values()], "after": [line for name, line in after.items() if name not in before]}


def _fetch(next_row: list[dict[str, Any]], levels: list[Level], final: Level, streams: bool) -> None:
    """Choose the passes over a row that fetch the next one.

    The second, which has most to compute. Where none has much, and results go past the caches,
    the last and the final one by turns: a layer norm of 16M elements took 0.92 of the time.
    """
    shared = streams and all(level.light for level in levels)
    chosen = [levels[-1], final] if shared else [levels[min(1, len(levels) - 1)]]
    for position, level in enumerate(chosen):
        level.fetched, level.share = next_row, (position, len(chosen))


def _halves(lanes: int) -> list[int]:
    """How far apart the lanes are that are folded, step by step."""
    return [lanes >> step for step in range(1, lanes.bit_length())]


def _with_row_step(array: Array, index: int) -> dict[str, Any]:
    return {"name": array.name, "declaration": array.declaration, "row_step": index}


def columns(kernel: Kernel, right: Sequence[int], width: int, options: Collection[str] = ()) -> Source:
    """Source of a reduction by columns, at most ``width`` to a block; ``right`` holds the steps between columns.

    ``options`` are "packed" and "streamed", or "piped", see above; or "deep", if there are axes besides.
    """
    arrays = [*kernel.inputs, *kernel.outputs]
    piped = "piped" in options
    form = _by_columns(kernel, right, piped or "packed" in options)
    streams = piped or "streamed" in options
    streamed = [a for a in (streamed_outputs(kernel, right) if streams else []) if a.name in form.along]
    form.streamed = {a.name for a in streamed}
    if not piped:
        form.widen(halves_along(kernel, right, (1,), "b - c"))
    if piped:
        form.streamed_index, form.calls = "l", True
    context = form.context() | parameters(kernel)
    context["arrays"] = [
        {"name": a.name, "declaration": a.declaration, "steps": [5 + 3 * i, 6 + 3 * i, 7 + 3 * i]}
        for i, a in enumerate(arrays)
    ]
    context["streamed"] = [{"name": a.name, "ctype": a.ctype} for a in streamed]
    context["narrowed"] = _narrowed(kernel, form.writer.wide, streamed)
    context["near"] = list(form.near.values())
    context["near_bytes"] = form.near_bytes()
    first, second = [*context["levels"], context["final"]][:2]
    # The second pass reads no memory: it fetches what the first will of the next block (0.92 of a softmax's time).
    second.fetched = [name for name in first.ahead if piped or name in form.near]
    context["width"], context["placed"] = width, False
    context["by_fours"] = not context["final"].stores and len(context["levels"]) == 1 and first.by_fours
    context["segments"] = 5 + 3 * len(arrays) if "deep" in options else 0
    context["few"] = next((int(option) for option in options if option.isdigit()), 0)
    if piped:
        return Source("c/reduce_piped.c.j2", context | {"lanes": PIPED_LANES, "chunk": CHUNK})
    return Source("c/reduce_columns.c.j2", context)


def lanes(kernel: Kernel, classes: Sequence[int]) -> Source:
    """Source of a reduction by lanes; ``classes`` are 1 for arrays along the lanes, else their step between columns."""
    arrays = [*kernel.inputs, *kernel.outputs]
    form = ReduceForm(kernel, {}, by_columns=True)
    for array, step in zip(arrays, classes):
        across = access(0 if step == 0 else 2, "k", f"right_{array.name}")
        form.index_of[array.name] = f"at * down_{array.name} + b" if step == 1 else across
        if step == 1 and array.kind != "counter":
            form.along.add(array.name)
    form.choose_stashes()
    form.widen(halves_along(kernel, classes, (1,), "b - c"))
    context = form.context() | parameters(kernel)
    passes = [*context["levels"], context["final"]]
    known = {line.name for level in passes for line in level.known}
    for level in passes:
        level.ahead = []  # lanes lie one after the other
    context["arrays"] = [
        {"name": a.name, "declaration": a.declaration, "steps": [7 + 2 * i, 8 + 2 * i]} for i, a in enumerate(arrays)
    ]
    context["narrowed"] = _narrowed(kernel, form.writer.wide, ())
    context["placed"] = any("[k * " in line.text for level in passes for line in level.lines)
    context["spread"] = [line for line in context["row_values"] if line.name in known]
    context["most_reductions"] = max(len(level.reductions) for level in context["levels"])
    context["segments"] = 7 + 2 * len(arrays)
    return Source("c/reduce_lanes.c.j2", context | {"width": LANE_ROW, "part": SPLIT})


PIPED_LANES, CHUNK = 64, 16
"""Columns of a piped block whose partial results lie in registers, and rows that a pass goes over at a time.

At 16M elements, 16 rows at a time took 0.85 to 1.02 of the time of 32, 8 rows 0.83 to 1.04.
"""


def knows_no_positions(kernel: Kernel) -> bool:
    """True if it may be by lanes, and its passes over columns piped: these templates know no positions."""
    return all(value.spec.name not in ("argmax", "argmin") for value in kernel.values)


def reads_once(kernel: Kernel) -> bool:
    """True if one pass reads all, and nothing as large is written."""
    once = max(pass_depths(kernel.values).values(), default=0) <= 1
    return once and all(array.shape != kernel.stage.shape for array in kernel.outputs)


def is_light(kernel: Kernel) -> bool:
    """True if reductions take most of the work (as :attr:`Level.light`, of all values together)."""
    return sum(value.spec.flops for value in kernel.values if value.spec.kind is not Kind.REDUCTION) < LIGHT_COST


def packing(kernel: Kernel, right: Sequence[int], large: bool, threads: int) -> int:
    """Bytes that an element of a packed column block takes; 0 if packing is not worth it.

    Without it stashes are written to a result, whose rows threads share: what one fetches ahead, another writes. And
    parts of rows that lie far apart fall on few places of a cache. Measured, float32: softmax over axis 0 took 0.5 to
    0.75 of the time up to 1M elements and at 16M on two threads; on one, 0.8 at 16M and 1.2 below.
    """
    form = _by_columns(kernel, right, True)
    covers = any(a.shape == kernel.stage.shape for a in kernel.outputs)
    return form.near_bytes() if (covers if large else threads > 1 and form.stashes) else 0


def _by_columns(kernel: Kernel, right: Sequence[int], packs: bool) -> ReduceForm:
    arrays = [*kernel.inputs, *kernel.outputs]
    form = ReduceForm(kernel, {}, by_columns=True, packs=packs)
    for array, step in zip(arrays, right):
        across = access(step, "b", f"right_{array.name}")
        down = f"at * down_{array.name}" if form.varies(array.shape) else ""
        form.index_of[array.name] = " + ".join(part for part in (down, across) if part and part != "0") or "0"
        if step == 1 and down and array.kind != "counter":
            form.along.add(array.name)
    form.choose_stashes()
    return form
