"""The C kernel of an elementwise stage: what its template is rendered with.

It is *flat* (one axis), *nested* (rows of any steps) or *turned* (inputs whose memory runs along another axis than the
innermost are turned tile by tile).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from neonlike.kernels.emit import Array, Kernel, Line, Writer, type_of
from neonlike.kernels.fit import REVERSED, TILE, TURNED
from neonlike.kernels.forms import access, halves_along, parameters, streamed_outputs
from neonlike.kernels.range_check import find_range_check
from neonlike.kernels.render import Source


def elementwise(kernel: Kernel, rank: int, classes: Sequence[int], form: str) -> Source:
    """Source of an elementwise kernel of ``rank`` axes.

    ``classes`` holds each array's innermost step as ``fit`` tells them apart; ``form`` is "flat", "nested" or "turned",
    with `` streamed`` behind it where outputs go past the caches.
    """
    form, _, option = form.partition(" ")
    writer = Writer(kernel)
    arrays = [*kernel.inputs, *kernel.outputs]
    inner = [1 if abs(kind) == TURNED else kind for kind in classes]
    writer.wide = halves_along(kernel, inner, (1,), "i - strip")
    writer.wide |= halves_along(kernel, inner, (REVERSED,), "end - 1 - i")
    index_of = {a.name: access(step, "i", f"step_{a.name}") for a, step in zip(arrays, inner)}
    loads = [(writer.load(a, index_of[a.name]), index_of[a.name] == "0") for a in kernel.inputs]
    streamed = streamed_outputs(kernel, inner) if option else []
    draws = [] if form == "turned" else _draws(writer, dict(zip((a.name for a in arrays), inner)))
    drawn = {line.name for line in draws}
    made = [writer.line(v) for v in kernel.values]
    loaded = [line for line, constant in loads if not constant]
    lines = loaded + [Line(n.name, n.ctype, f"draw_{n.name}[i - strip]") if n.name in drawn else n for n in made]
    context = {
        "draws": draws,
        "streamed": [{"name": a.name, "ctype": a.ctype} for a in streamed],
        "hoisted": [line for line, constant in loads if constant],
        "lines": lines,
        "check": find_range_check(writer, loaded, lines),
        "stores": [
            writer.store(replace(a, name=f"near_{a.name}"), arg, "i - strip")
            if a in streamed and a.name not in writer.wide
            else writer.store(a, arg, index_of[a.name])
            for a, arg in zip(kernel.outputs, kernel.sinks)
        ],
        **_axes(arrays, rank, classes, form),
        **_stretches(kernel, inner, writer.wide, streamed),
        **parameters(kernel),
    }
    return Source("c/elementwise.c.j2", context)


def _axes(arrays: Sequence[Array], rank: int, classes: Sequence[int], form: str) -> dict[str, Any]:
    """Where sizes and steps are in meta: of the axes outside a row, of a row, and of tiles that are turned."""
    steps_at = {a.name: rank + position * rank for position, a in enumerate(arrays)}
    last = {a.name: {"name": a.name, "index": at + rank - 1} for a, at in zip(arrays, steps_at.values())}
    by_rows = rank - 1 if form == "turned" else rank
    outer = [
        {"size": axis, "steps": [{"array": a.name, "index": steps_at[a.name] + axis} for a in arrays]}
        for axis in range(by_rows - 2, -1, -1)
    ]
    paired = list(zip(arrays, classes))
    return {
        "flat": form == "flat",
        "rank": rank,
        "outer": outer,
        "inner_steps": [last[a.name] | {"name": f"step_{a.name}"} for a, kind in paired if kind == 2],
        "turned": [
            last[a.name] | {"ctype": a.ctype, "sign": "-" if kind < 0 else "+"}
            for a, kind in paired
            if abs(kind) == TURNED
        ],
        "straight": [last[a.name] | {"declaration": a.declaration} for a, kind in paired if abs(kind) != TURNED],
        "tile": TILE,
    }


def _stretches(
    kernel: Kernel, inner: Sequence[int], wide: Collection[str], streamed: Collection[Array]
) -> dict[str, Any]:
    """What is done with a strip of a row beside its loop: float16 converted, what comes next fetched."""
    steps = zip((*kernel.inputs, *kernel.outputs), inner)
    along = {a.name: "-" if step < 0 else "+" for a, step in steps if abs(step) == 1 and a.kind != "counter"}
    return {
        "widened": [_stretch(a, along) for a in kernel.inputs if a.name in wide],
        "narrowed": [_stretch(a, along, a in streamed) for a in kernel.outputs if a.name in wide],
        "ahead": [{"name": a.name, "sign": along[a.name]} for a in kernel.inputs if streamed and a.name in along],
    }


def _stretch(array: Array, along: dict[str, str], streamed: bool = False) -> dict[str, str]:
    """The elements strip to end of a float16 ``array``, as they lie in memory."""
    from_start = f"{array.name} + strip" if along[array.name] == "+" else f"{array.name} - (end - 1)"
    return {"name": array.name, "stretch": f"near_{array.name}" if streamed else from_start}


def _draws(writer: Writer, inner: dict[str, int]) -> list[Line]:
    """Calls that draw a strip of random numbers at once, for the draws whose numbers follow each other in a row."""
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
