"""The C kernel of an elementwise stage: the context of its template.

It is *flat* (one axis), *nested* (rows of any strides), *turned* (inputs that are contiguous along another axis than
the innermost are transposed by tiles) or by *blocks* (of rows too short for vectors; inputs that are the same in all
rows, or along a row, are written out for a block).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from neonlike.kernels.c.fit import BLOCK_MAX, TILE
from neonlike.kernels.c.forms import access, halves_along, library, parameters, streamed_outputs
from neonlike.kernels.c.schedule import REPEATED, REVERSED, SPREAD, TURNED, CSchedule
from neonlike.kernels.c.sizes import elementwise_sizes
from neonlike.kernels.codegen.emit import Array, Kernel, Line, Writer, type_of
from neonlike.kernels.codegen.narrow import Narrow, find_narrow
from neonlike.kernels.codegen.range_check import RangeCheck, find_range_check
from neonlike.kernels.codegen.render import TemplateSource

CHECKED_STRIP = 1024
"""Elements whose ranges are checked at a time, if nothing is buffered."""
VECTOR = 8
"""Elements that are written at once where one is spread along a row. 16 of float32, which cross the ends of cache lines
more often, took longer."""
TILED = frozenset({TURNED, REPEATED, SPREAD})
"""Classes of arrays whose elements are copied to a buffer on the stack, where they are contiguous."""
CHUNK, CHUNK_COST = 32, 12
"""Elements of float16 that are converted, computed and converted back in registers, and most flops for which that
pays: ``a*b + a`` takes 0.6 of the time that it takes by strips."""


def elementwise(kernel: Kernel, schedule: CSchedule) -> TemplateSource:
    """Source of an elementwise kernel."""
    narrow = find_narrow(kernel)
    checked = narrow is not None and bool(narrow.checked or narrow.numbers)
    arrays = [*kernel.inputs, *kernel.outputs]
    inner = [1 if abs(kind) in TILED else kind for kind in schedule.inner]
    chunk = CHUNK if sum(value.spec.flops for value in kernel.values) <= CHUNK_COST else 0
    wide = _wide(kernel, inner, chunk)
    writer = Writer(kernel, wide=wide)
    if narrow is not None and not checked:
        writer = Writer(kernel, whole=narrow.dtype, saturated=narrow.saturated, wide=wide)
    index_of = {a.name: access(step, "i", f"step_{a.name}") for a, step in zip(arrays, inner)}
    loads = [(writer.load(a, index_of[a.name]), index_of[a.name] == "0") for a in kernel.inputs]
    streamed = streamed_outputs(kernel, inner) if schedule.streamed else []
    draws = [] if schedule.form == "turned" else _draws(writer, dict(zip((a.name for a in arrays), inner)))
    drawn = {line.name for line in draws}
    made = [writer.line(v) for v in kernel.values]
    loaded = [line for line, constant in loads if not constant]
    lines = loaded + [Line(n.name, n.ctype, f"draw_{n.name}[i - strip]") if n.name in drawn else n for n in made]
    check = find_range_check(writer, loaded, lines)
    if narrow is not None and checked:
        check = _narrow_check(kernel, narrow, index_of, streamed)
    context = {
        "narrow": narrow,
        "draws": draws,
        "streamed": [{"name": a.name, "ctype": a.ctype} for a in streamed],
        "hoisted": [line for line, constant in loads if constant],
        "lines": lines,
        "check": check,
        "strip_size": "NL_STRIP" if draws or streamed or writer.wide or narrow is None else str(CHECKED_STRIP),
        "stores": _stores(writer, index_of, streamed),
        **_axes(arrays, schedule),
        **_stretches(kernel, inner, writer.wide, streamed, chunk),
        "ahead": _ahead(kernel, schedule) if streamed else [],
        **parameters(kernel),
    }
    return TemplateSource("c/elementwise.c.j2", context, library())


def _wide(kernel: Kernel, inner: Sequence[int], chunk: int) -> dict[str, str]:
    """Texts of the elements of float16 arrays that are converted by chunks or by strips."""
    wide = halves_along(kernel, inner, (1,), f"i - {'from' if chunk else 'strip'}")
    return wide | halves_along(kernel, inner, (REVERSED,), f"{'to' if chunk else 'end'} - 1 - i")


def _stores(writer: Writer, index_of: dict[str, str], streamed: Collection[Array]) -> list[str]:
    return [
        writer.store(replace(a, name=f"staged_{a.name}"), arg, "i - strip")
        if a in streamed and a.name not in writer.wide
        else writer.store(a, arg, index_of[a.name])
        for a, arg in zip(writer.kernel.outputs, writer.kernel.sinks)
    ]


def _narrow_check(kernel: Kernel, narrow: Narrow, index_of: dict[str, str], streamed: Collection[Array]) -> RangeCheck:
    """The test whether ``narrow`` holds for a strip, and the loop for strips for which it does."""
    writer = Writer(kernel, whole=narrow.dtype, saturated=narrow.saturated)
    loads = {a.name: writer.load(a, index_of[a.name]) for a in kernel.inputs}
    least = 1 << narrow.bits
    read = [(loads[a.name].name, a.dtype.kind == "i") for a in narrow.checked]
    tests = [
        Line(
            "range_whole",
            "uint32_t",
            f"(uint32_t){name} + {least}" if signed else f"(uint32_t){name} | (uint32_t){name} << 1",
        )
        for name, signed in read
    ]
    conditions = [f"range_whole >> {narrow.bits + 1} == 0"] if tests else []
    return RangeCheck(
        [loads[a.name] for a in narrow.checked],
        tests,
        [line for name, line in loads.items() if index_of[name] != "0"] + [writer.line(v) for v in kernel.values],
        conditions + [f"{name} >= {-least} && {name} < {least}" for name in narrow.numbers],
        [line for name, line in loads.items() if index_of[name] == "0"],
        _stores(writer, index_of, streamed),
        afterwards=bool(tests) and not kernel.overlaps,
    )


def _axes(arrays: Sequence[Array], schedule: CSchedule) -> dict[str, Any]:
    """The axes outside a row, and how the arrays lie along a row and in transposed tiles."""
    form, rank = schedule.form, schedule.rank
    by_rows = rank - 1 if form in ("turned", "blocks") else rank
    paired = list(zip(arrays, schedule.inner))
    repeated, spread = ([a for a, kind in paired if kind == wanted] for wanted in (REPEATED, SPREAD))
    return {
        "flat": form == "flat",
        "rank": rank,
        "sizes": elementwise_sizes(rank, blocks=form == "blocks"),
        "segments": False,
        "outer": range(by_rows - 2, -1, -1),
        "inner_steps": [a.name for a, kind in paired if kind == 2],
        "turned": [
            {"name": a.name, "ctype": a.ctype, "sign": "-" if kind < 0 else "+"}
            for a, kind in paired
            if abs(kind) == TURNED
        ],
        "straight": [a for a, kind in paired if abs(kind) not in TILED],
        "blocks": form == "blocks",
        "repeated": repeated,
        "spread": spread,
        "vector": VECTOR,
        "tile": BLOCK_MAX if form == "blocks" else TILE,
    }


def _stretches(
    kernel: Kernel, inner: Sequence[int], wide: Collection[str], streamed: Collection[Array], chunk: int
) -> dict[str, Any]:
    """Context of a strip of a row besides its loop: float16 conversion."""
    steps = zip((*kernel.inputs, *kernel.outputs), inner)
    along = {a.name: "-" if step < 0 else "+" for a, step in steps if abs(step) == 1 and a.kind != "counter"}
    first, last = ("from", "to") if chunk else ("strip", "end")

    def stretch(array: Array) -> dict[str, str]:
        start = f"{array.name} + {first}" if along[array.name] == "+" else f"{array.name} - ({last} - 1)"
        staged = f"staged_{array.name} + ({first} - strip)"
        return {"name": array.name, "half": array.half, "stretch": staged if array in streamed else start}

    return {
        "chunk": chunk if wide else 0,
        "widened": [stretch(a) for a in kernel.inputs if a.name in wide],
        "narrowed": [stretch(a) for a in kernel.outputs if a.name in wide],
    }


def _ahead(kernel: Kernel, schedule: CSchedule) -> list[dict[str, str]]:
    """Inputs of which the next strip is prefetched: those that are contiguous in memory."""
    steps = zip(kernel.inputs, schedule.inner)
    return [
        {"name": a.name, "sign": "-" if step < 0 else "+"}
        for a, step in steps
        if abs(step) == 1 and a.kind != "counter"
    ]


def _draws(writer: Writer, inner: dict[str, int]) -> list[Line]:
    """Calls that draw a strip of random numbers at a time, for draws with consecutive positions along a row."""
    draws: list[Line] = []
    for value in writer.kernel.values:
        counter = writer.kernel.counter(value)
        if value.spec.name == "rand" and counter is not None and inner[counter.name] == 1:
            name, ctype = f"v{value.index}", type_of(value.dtype)
            numbers = ", ".join(writer.operand(arg)[0] for arg in value.args)
            suffix = "f64" if ctype == "double" else "f32"
            text = f"nl_draw_{suffix}(room_{name}, {counter.name} + strip, end - strip, {numbers})"
            draws.append(Line(name, ctype, text))
    return draws
