"""Forms of CUDA kernels, and their template contexts.

* elementwise: a thread computes a few elements at once, by vectorized accesses of 16 bytes where alignment allows it;
* *turned*: inputs transposed against the output are read through tiles in shared memory, by vectors if possible;
* reductions, of rows (neighbouring threads share one) or of columns (neighbouring threads take one each): all passes in
  one kernel with the row in registers if it fits, else split into parts with a launch per pass; the last block of a row
  stores the per-row results.

``fit`` selects one. The lines of a kernel come from the same walk as in C (``emit``, ``passes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from neonlike.kernels.codegen.emit import Array, Kernel, Line, Writer, type_of
from neonlike.kernels.codegen.headers import Library
from neonlike.kernels.codegen.pass_cache import PassCache, cache_in_rows
from neonlike.kernels.codegen.passes import Level, ReduceForm
from neonlike.kernels.codegen.reduce_values import ReduceValues, reduce_values
from neonlike.kernels.codegen.render import TemplateSource
from neonlike.kernels.codegen.shifted import with_shifted
from neonlike.kernels.cuda.compile import headers
from neonlike.kernels.cuda.fit import (
    ALIGNMENT,
    COUNTING,
    STRIPS,
    THREADS,
    TILE,
    TILE_ROWS,
    TURNED,
    MapKey,
    ReduceKey,
    strips,
)
from neonlike.optree.dtypes import I64

SEED = "round_seed"
"""Name of the argument for the seed of stochastic rounding."""


@dataclass(frozen=True, slots=True)
class Rounded:
    """Stochastic rounding of an output: mantissa bits kept, the counter of its elements, the call's number."""

    digits: int
    counter: str
    call: str


def with_rounding(kernel: Kernel, digits: dict[str, int]) -> tuple[Kernel, dict[str, Rounded]]:
    """Add an element counter to ``kernel`` for each rounded output (by name), and return each output's rounding."""
    rounded = {name: Rounded(n, f"r_{name}", f"call_{name}") for name, n in digits.items()}
    shape = kernel.outputs[0].shape
    counters = [Array(r.counter, "counter", -1, I64, shape) for r in rounded.values()]
    return replace(kernel, inputs=[*kernel.inputs, *counters]), rounded


@lru_cache(maxsize=1)
def library() -> Library:
    """Headers available to kernels, read when one is first written."""
    return Library(headers(), {"division.h": "functions.h"}, always=("types.h",))


def _writer(kernel: Kernel, rounded: dict[str, Rounded], texts: dict[str, str]) -> Writer:
    draws = {name: (how.digits, f"(x{how.counter[1:]}, {SEED}, {how.call})") for name, how in rounded.items()}
    return Writer(kernel, "cuda", element_texts=texts, rounded=draws)


def parameters(
    kernel: Kernel, rounded: dict[str, Rounded], room: bool = False, tickets: bool = False
) -> list[str]:
    """Declarations of a kernel's arguments; arrays are ``g_<name>``, and ``meta`` is last.

    Parameters
    ----------
    kernel : Kernel
    rounded : dict
        Stochastic rounding of outputs, by names of arrays.
    room : bool
        Whether there is a workspace of partial results.
    tickets : bool
        Whether blocks count who is last.
    """
    shared = {name for pair in kernel.overlaps for name in pair}
    found = []
    for array in [*kernel.inputs, *kernel.outputs]:
        if array.kind != "counter":
            const = "const " if array in kernel.inputs else ""
            restrict = "" if array.name in shared else "__restrict__ "
            found.append(f"{const}{array.ctype} *{restrict}g_{array.name}")
    found += [f"const {number.ctype} {number.name}" for number in kernel.numbers]
    if rounded:
        found += [f"const int64_t {SEED}", *(f"const int64_t {how.call}" for how in rounded.values())]
    found += ["nl_cell *const cells"] if room else []
    found += ["unsigned int *const tickets"] if tickets else []
    return [*found, "const nl_meta meta"]


class Offsets:
    """Texts that unravel an index into positions along axes, and the offsets of arrays; sizes are in ``meta``.

    Parameters
    ----------
    arrays : sequence of Array
    rank : int
        Number of axes; the steps of each array follow each other in ``meta`` from ``steps`` on.
    steps : int
        Place in ``meta`` of the first array's steps.
    wide : bool
    """

    def __init__(self, arrays: Sequence[Array], rank: int, steps: int, wide: bool) -> None:
        self.at = {array.name: steps + i * rank for i, array in enumerate(arrays)}
        self.wide = wide
        self.size = steps + len(arrays) * rank

    def positions(self, source: str, prefix: str, rank: int, divisors: int) -> list[str]:
        """Lines that unravel ``source`` into ``<prefix>0`` to ``<prefix><rank - 1>``; the last varies fastest.

        Parameters
        ----------
        source : str
            Variable of the index.
        prefix : str
            Beginning of the names.
        rank : int
            Number of axes.
        divisors : int
            Place in ``meta`` of the first axis's divisor.
        """
        lines = []
        for axis in range(rank - 1, 0, -1):
            at = divisors + 3 * axis
            how = f"nl_quotient({source}, meta.v[{at + 1}], meta.v[{at + 2}])"
            if self.wide:
                how = f"{source} / meta.v[{at}]"
            lines.append(f"const nl_index {prefix}q{axis} = {how};")
            lines.append(f"const nl_index {prefix}{axis} = {source} - {prefix}q{axis} * meta.v[{at}];")
            source = f"{prefix}q{axis}"
        return [*lines, f"const nl_index {prefix}0 = {source};"] if rank else []

    def step(self, name: str, axis: int) -> str:
        """An array's step along an axis."""
        return f"meta.v[{self.at[name] + axis}]"

    def offset(self, name: str, prefix: str, axes: range, first: int = 0) -> str:
        """An array's offset at the positions ``<prefix><i>`` of ``axes``, with steps starting at ``first``.

        Parameters
        ----------
        name : str
            Of the array.
        prefix : str
            Beginning of the positions' names.
        axes : range
        first : int
        """
        return " + ".join(f"{prefix}{axis} * {self.step(name, first + axis)}" for axis in axes)


def _local(array: Array, offset: str, constant: bool) -> str:
    """Declaration of an array's pointer (or position) in a thread."""
    if array.kind == "counter":
        return f"const int64_t {array.name} = {offset or '0'};"
    const = "const " if constant else ""
    return f"{const}{array.ctype} *const {array.name} = g_{array.name}{' + ' if offset else ''}{offset};"


def _chunks(arrays: Sequence[Array], vector: int) -> list[dict[str, Any]]:
    """The vector type of ``vector`` elements, for each element type."""
    sizes = {array.ctype: array.dtype.itemsize for array in arrays if array.kind != "counter"}
    return [{"ctype": t, "align": min(ALIGNMENT, vector * size)} for t, size in sorted(sizes.items())]


def _named(array: Array) -> dict[str, str]:
    return {"name": array.name, "ctype": array.ctype}


# Elementwise --------------------------------------------------------------------------------------------------------


def elementwise(kernel: Kernel, key: MapKey, rounded: dict[str, Rounded]) -> TemplateSource:
    """Source of an elementwise kernel.

    Parameters
    ----------
    kernel : Kernel
    key : MapKey
    rounded : dict
        As of :func:`parameters`.
    """
    arrays = [*kernel.inputs, *kernel.outputs]
    offsets = Offsets(arrays, key.rank, 2 + 3 * key.rank, key.wide)
    context = {
        "index_type": "int64_t" if key.wide else "int32_t",
        "parameters": parameters(kernel, rounded),
        "meta": offsets.size,
        "positions": offsets.positions("tile" if key.turned else "chunk", "i", key.rank, 2),
    }
    if key.turned and key.vector > 1:
        context |= _by_strips(kernel, key, offsets)
        return TemplateSource("cuda/turned_vectors.cu.j2", context, library())
    if key.turned:
        context |= _turned(kernel, key, rounded, offsets)
        return TemplateSource("cuda/turned.cu.j2", context, library())
    context |= _straight(kernel, key, rounded, offsets)
    return TemplateSource("cuda/elementwise.cu.j2", context, library())


def _straight(kernel: Kernel, key: MapKey, rounded: dict[str, Rounded], offsets: Offsets) -> dict[str, Any]:
    arrays = [*kernel.inputs, *kernel.outputs]
    classes = dict(zip((a.name for a in arrays), key.classes))
    last, many = key.rank - 1, key.vector > 1
    vectors = [a for a in arrays if many and classes[a.name] and a.kind != "counter"]
    writer = _writer(kernel, rounded, {a.name: f"vector_{a.name}.v[l]" for a in vectors})
    counting = [a for a in kernel.inputs if a.kind == "counter" and classes[a.name] and many]
    loads = [(a, writer.load(a, f"l * {offsets.step(a.name, last)}" if a in counting else "0")) for a in kernel.inputs]
    inside = [*counting, *vectors]
    draws, made = _draws(kernel, key, writer, classes)
    return {
        "threads": THREADS,
        "vector": key.vector,
        "guarded": many and key.rank == 1,
        "inner": f"i{last}",
        "chunks": _chunks(vectors, key.vector),
        "locals": _pointers(kernel, key, offsets, vectors),
        "hoisted": [line for a, line in loads if a not in inside] + draws,
        "fetched": [_named(a) for a in vectors if a in kernel.inputs],
        "written": [_named(a) for a in vectors if a in kernel.outputs],
        "lines": [line for a, line in loads if a in inside] + made,
        "stores": [writer.store(a, arg, "0") for a, arg in zip(kernel.outputs, kernel.sinks)],
    }


def _pointers(kernel: Kernel, key: MapKey, offsets: Offsets, vectors: Sequence[Array]) -> list[str]:
    """Declarations of the arrays at a thread's first element; ``vectors`` run along its elements."""
    last, many = key.rank - 1, key.vector > 1
    found = []
    for array, moves in zip((*kernel.inputs, *kernel.outputs), key.classes):
        parts = [offsets.offset(array.name, "i", range(last))]
        if moves:
            counted = f"i{last} * {key.vector}" if many else f"i{last}"
            parts.append(counted if array in vectors else f"{counted} * {offsets.step(array.name, last)}")
        found.append(_local(array, " + ".join(filter(None, parts)), array in kernel.inputs))
    return found


def _draws(kernel: Kernel, key: MapKey, writer: Writer, classes: dict[str, int]) -> tuple[list[Line], list[Line]]:
    """Lines that draw a vector's random numbers at once, if its counter is consecutive; lines of all values."""
    draws, lines = [], []
    for value in kernel.values:
        line, counter = writer.line(value), kernel.counter(value)
        counting = counter is not None and classes[counter.name] == COUNTING
        if value.spec.name == "rand" and line.ctype == "float" and counter is not None and counting:
            numbers = ", ".join(writer.operand(arg)[0] for arg in value.args)
            text = f"nl_draw_f32<{key.vector}>({counter.name}, {numbers})"
            draws.append(Line(f"draw_{line.name}", f"nl_numbers<{key.vector}>", text))
            line = Line(line.name, line.ctype, f"draw_{line.name}.v[l]")
        lines.append(line)
    return draws, lines


def _turned(kernel: Kernel, key: MapKey, rounded: dict[str, Rounded], offsets: Offsets) -> dict[str, Any]:
    arrays = [*kernel.inputs, *kernel.outputs]
    turned = [a for a, kind in zip(arrays, key.classes) if kind == TURNED]
    writer = _writer(kernel, rounded, {a.name: f"tile_{a.name}[threadIdx.x][y]" for a in turned})
    down, across = key.rank - 2, key.rank - 1
    base = {a.name: offsets.offset(a.name, "i", range(down)) for a in arrays}
    locals_ = []
    for array in arrays:
        if array not in turned:
            here = f"row * {offsets.step(array.name, down)} + column * {offsets.step(array.name, across)}"
            offset = " + ".join(filter(None, [base[array.name], here]))
            locals_.append(_local(array, offset, array in kernel.inputs))
    tiles = [_named(a) | {"base": base[a.name] or "0", "step": offsets.step(a.name, across)} for a in turned]
    return {
        "tile": TILE,
        "rows": TILE_ROWS,
        "down": f"i{down}",
        "across": f"i{across}",
        "turned": tiles,
        "locals": locals_,
        "lines": [writer.load(a, "0") for a in kernel.inputs] + [writer.line(v) for v in kernel.values],
        "stores": [writer.store(a, arg, "0") for a, arg in zip(kernel.outputs, kernel.sinks)],
    }


def _by_strips(kernel: Kernel, key: MapKey, offsets: Offsets) -> dict[str, Any]:
    """As :func:`_turned`, by vectors: of columns for reading tiles, of rows for using them."""
    arrays = [*kernel.inputs, *kernel.outputs]
    classes = dict(zip((a.name for a in arrays), key.classes))
    turned = [a for a in arrays if classes[a.name] == TURNED]
    vectors = [a for a in arrays if classes[a.name]]
    writer = _writer(kernel, {}, {a.name: f"vector_{a.name}.v[l]" for a in vectors})
    down, across = key.rank - 2, key.rank - 1
    base = {a.name: offsets.offset(a.name, "i", range(down)) for a in arrays}
    pointers = []
    for array in arrays:
        if array not in turned:
            parts = [base[array.name], f"row * {offsets.step(array.name, down)}", "column" * bool(classes[array.name])]
            pointers.append(_local(array, " + ".join(filter(None, parts)), array in kernel.inputs))
    tile, size = strips(turned[0].dtype.itemsize), turned[0].dtype.itemsize
    loads = [(a, writer.load(a, "0")) for a in kernel.inputs]
    return {
        "threads": THREADS,
        "strips": STRIPS,
        "tile": tile,
        "align": tile.rows * size,
        "chunks": _chunks(vectors, key.vector),
        "units": sorted({a.ctype for a in turned}),
        "down": f"i{down}",
        "across": f"i{across}",
        "turned": [_named(a) | {"base": base[a.name], "step": offsets.step(a.name, across)} for a in turned],
        "locals": pointers,
        "hoisted": [line for a, line in loads if a not in vectors],
        "fetched": [_named(a) for a in vectors if a in kernel.inputs and a not in turned],
        "written": [_named(a) for a in kernel.outputs],
        "lines": [line for a, line in loads if a in vectors] + [writer.line(v) for v in kernel.values],
        "stores": [writer.store(a, arg, "0") for a, arg in zip(kernel.outputs, kernel.sinks)],
    }


# Reductions ---------------------------------------------------------------------------------------------------------


def reduction(kernel: Kernel, key: ReduceKey) -> TemplateSource:
    """Source of a reduction: one kernel, or one per pass (``<name>_pass<i>``) and others after the passes."""
    arrays = [*kernel.inputs, *kernel.outputs]
    head = 4 + 3 * key.kept
    offsets = Offsets(arrays, key.kept + key.reduced, head + 3 * key.reduced, key.wide)
    values = reduce_values(kernel) if key.held else with_shifted(reduce_values(kernel))
    moving = [a for a in arrays if values.varies(a.shape)]
    vectors = _vector_arrays(kernel, key, moving)
    form = _form(values, key, offsets, moving, vectors)
    passes = form.passes()
    tickets = key.counted and not passes.final.stores
    context = passes.context() | {
        "index_type": "int64_t" if key.wide else "int32_t",
        "parameters": parameters(kernel, {}, room=key.split, tickets=tickets),
        "tickets": tickets,
        "meta": offsets.size,
        "key": key,
        "rooms": _rooms(key, passes.levels),
        "halves": [key.vector >> step for step in range(1, key.vector.bit_length())],
        "chunks": _chunks(vectors, key.vector),
        "rows_at": offsets.positions("row", "i", key.kept, 4),
        "locals": [_local(a, offsets.offset(a.name, "i", range(key.kept)), a in kernel.inputs) for a in arrays],
        "elements_at": offsets.positions("at", "j", key.reduced, head) if key.reduced > 1 else [],
        "places": [
            f"const nl_index off_{a.name} = {offsets.offset(a.name, 'j', range(key.reduced), key.kept)};"
            for a in (moving if key.reduced > 1 else [])
        ],
        "moving": [a.name for a in moving] if key.reduced > 1 else [],
        "held": [_named(a) for a in vectors if a in kernel.inputs],
        "vector_outputs": [_named(a) for a in vectors if a in kernel.outputs],
        "index_of": form.index_of,
        "reads": [_read_by(level, kernel.inputs) for level in (*passes.levels, passes.final)],
        "cached": [Line(f"v{i}", type_of(values.by_index[i].dtype), "") for i in sorted(form.cache.values)],
        "fields": _fields(passes.levels),
        "overlap": bool(kernel.overlaps),
    }
    return TemplateSource("cuda/reduce.cu.j2", context, library())


def _form(
    values: ReduceValues, key: ReduceKey, offsets: Offsets, moving: Sequence[Array], vectors: Sequence[Array]
) -> ReduceForm:
    """Passes over a row, along which the ``moving`` arrays vary; those in ``vectors`` go through registers."""
    kernel = values.kernel
    held = kernel.inputs if key.held else ()
    turn, lane = "k" if key.held > 1 else "0", "l" if key.vector > 1 else "0"
    texts = {a.name: f"vector_{a.name}{f'[{turn}]' if a in held else ''}.v[{lane}]" for a in vectors}
    along = {a.name: f"off_{a.name}" if key.reduced > 1 else f"at * {offsets.step(a.name, key.kept)}" for a in moving}
    return ReduceForm(
        values,
        Writer(kernel, "cuda", element_texts=texts),
        {a.name: along.get(a.name, "0") for a in (*kernel.inputs, *kernel.outputs)},
        by_columns=False,
        cache=cache_in_rows(values) if key.held else PassCache(),
        cache_index=f"k * {key.vector} + l" if key.held > 1 < key.vector else turn if key.held > 1 else lane,
    )


def _vector_arrays(kernel: Kernel, key: ReduceKey, moving: Sequence[Array]) -> list[Array]:
    """Arrays accessed through registers: all inputs if rows are kept there, all arrays if accesses are vectorized."""
    memory = [a for a in moving if a.kind != "counter"]
    return [a for a in memory if key.vector > 1 or (key.held and a in kernel.inputs)]


def _read_by(level: Level, inputs: list[Array]) -> list[str]:
    """Names of the inputs used by the lines of a pass."""
    used = {line.name for line in level.lines}
    return [a.name for a in inputs if f"x{a.name[1:]}" in used]


def _rooms(key: ReduceKey, levels: Sequence[Level]) -> list[str]:
    """Declarations of shared memory: a cell per thread or warp for each type of result or companion.

    By columns, a few more cells keep the cells read by a warp in different banks.
    """
    every = [reduction for level in levels for reduction in level.reductions]
    both = [reduction for reduction in every if reduction.beside]
    names = {f"{r.ctype} room_{r.ctype}" for r in every} | {f"{r.beside_type} beside_{r.beside_type}" for r in both}
    if key.split:
        names |= {f"{r.total} room_{r.total}" for r in every}
        names |= {f"{r.beside_total} beside_{r.beside_total}" for r in both}
    return [f"{name}[{key.most + 32 if key.columns else key.most // 32}]" for name in sorted(names)]


def _fields(levels: Sequence[Level]) -> dict[Any, int]:
    """Offset of each reduction's total in a row's partial results, followed by its companion, such as a position."""
    fields: dict[Any, int] = {}
    count = 0
    for level in levels:
        for reduction in level.reductions:
            fields[reduction.index] = count
            count += 2 if reduction.beside else 1
    return fields


def cells_of(kernel: Kernel) -> int:
    """Number of 8-byte partial results of a row: one per reduction, two with a position."""
    reductions = [v for v in kernel.values if v.spec.name in _POSITIONS or v.spec.kind.value == "reduction"]
    return sum(2 if value.spec.name in _POSITIONS else 1 for value in reductions)


_POSITIONS = ("argmax", "argmin")
