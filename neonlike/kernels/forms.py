"""The forms a C kernel takes, and the context its template is rendered with.

* elementwise, *flat* (everything contiguous or a single element), *nested* (any steps) or *turned* (inputs whose
  memory runs along the rows are turned tile by tile);
* reduction by *rows*: the reduced axis innermost;
* reduction by *columns*: the reduced axis outside, columns side by side in the vector unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from neonlike.kernels.emit import Array, Kernel, Line, Writer, expression, type_of
from neonlike.kernels.fit import TILE, TURNED
from neonlike.kernels.lower import Arg, Value, ValueArg
from neonlike.kernels.plan import pass_depths
from neonlike.kernels.render import Source
from neonlike.optree.dtypes import F32, I64, DType, compute_dtype
from neonlike.optree.ops import OPS, Kind


def parameters(kernel: Kernel) -> dict[str, Any]:
    """Context every template needs."""
    return {"arrays": [*kernel.inputs, *kernel.outputs], "numbers": kernel.numbers}


def access(step: int, index: str, name: str) -> str:
    """Index text for an array with a ``step`` of 0, 1 or anything else (then a variable ``name`` holds it)."""
    return "0" if step == 0 else index if step == 1 else f"{index} * {name}"


# Elementwise --------------------------------------------------------------------------------------------------------


def elementwise(kernel: Kernel, rank: int, inner: Sequence[int], form: str) -> Source:
    """Source of an elementwise kernel of ``rank`` axes.

    ``inner`` holds each array's innermost step (2: any, ``TURNED``: memory runs along the axis before); ``form`` is
    "flat", "nested" or "turned".
    """
    writer = Writer(kernel)
    arrays = [*kernel.inputs, *kernel.outputs]
    index_of = {
        a.name: access(1 if step == TURNED else step, "i", f"step_{a.name}") for a, step in zip(arrays, inner)
    }
    loads = [(writer.load(a, index_of[a.name]), index_of[a.name] == "0") for a in kernel.inputs]
    steps_at = {a.name: rank + position * rank for position, a in enumerate(arrays)}
    turned = [a for a, step in zip(arrays, inner) if step == TURNED]
    by_rows = rank - 1 if form == "turned" else rank
    outer = [
        {"size": axis, "steps": [{"array": a.name, "index": steps_at[a.name] + axis} for a in arrays]}
        for axis in range(by_rows - 2, -1, -1)
    ]
    draws = [] if turned else _draws(writer, dict(zip((a.name for a in arrays), inner)))
    drawn = {line.name for line in draws}
    made = [writer.line(v) for v in kernel.values]
    context = {
        "draws": draws,
        "flat": form == "flat",
        "rank": rank,
        "outer": [] if form == "flat" else outer,
        "inner_steps": [
            {"name": f"step_{a.name}", "index": steps_at[a.name] + rank - 1}
            for a, step in zip(arrays, inner)
            if step not in (0, 1, TURNED)
        ],
        "turned": [{"name": a.name, "ctype": a.ctype, "index": steps_at[a.name] + rank - 1} for a in turned],
        "straight": [
            {"name": a.name, "declaration": a.declaration, "index": steps_at[a.name] + rank - 1}
            for a in arrays
            if a not in turned
        ],
        "tile": TILE,
        "hoisted": [line for line, constant in loads if constant],
        "lines": [line for line, constant in loads if not constant]
        + [Line(n.name, n.ctype, f"draw_{n.name}[i - strip]") if n.name in drawn else n for n in made],
        "stores": [writer.store(a, arg, index_of[a.name]) for a, arg in zip(kernel.outputs, kernel.sinks)],
        **parameters(kernel),
    }
    return Source("c/elementwise.c.j2", context)


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


STASH_COST = 8
"""Flops above which a value is kept between the passes over a row rather than computed again."""

# Reductions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reduction:
    """Texts of one reduction; see the templates for where each is used."""

    index: int
    position: str  # ">" or "<" for argmax and argmin
    ctype: str
    total: str
    out: str
    start: str
    operand: str
    lane: str
    fold: str
    merge: str
    column: str
    merge_column: str
    magnitude: bool = False  # nan is found beside the reduction, see nl_magnitude_f32


@dataclass(slots=True)
class Level:
    """One pass, and in ``settle`` what is computed once a row before it."""

    reductions: list[Reduction] = field(default_factory=list)
    known: list[Line] = field(default_factory=list)
    hoisted: list[Line] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    stashed: list[str] = field(default_factory=list)
    kept: list[Line] = field(default_factory=list)
    settle: Any = None


_STARTS = {"sum": "0", "prod": "1", "any": "0", "all": "1"}


def describe_reduction(writer: Writer, value: Value) -> Reduction:
    """The texts of reduction ``value``."""
    spec, out = value.spec, type_of(value.dtype)
    operand, have = writer.operand(value.args[0])
    i = value.index
    if spec.name in ("argmax", "argmin"):
        largest = spec.name == "argmax"
        better = OPS["maximum" if largest else "minimum"]
        ctype = type_of(have)
        return Reduction(
            i, ">" if largest else "<", ctype, ctype, out, _worst(largest, have), operand,
            lane=expression(better, [f"p{i}[l]", operand], have, "c"),
            fold=expression(better, [f"p{i}[l]", f"p{i}[l + s]"], have, "c"), merge="", column="", merge_column="",
        )  # fmt: skip
    dtype = compute_dtype(value.dtype)
    total = "double" if dtype == F32 and spec.name in ("sum", "prod") else out
    start = _STARTS.get(spec.name) or _worst(spec.name == "max", dtype)
    merger = OPS[spec.combine or ""]

    def combine(a: str, b: str) -> str:
        return expression(merger, [a, b], dtype, "c")

    if spec.name in ("any", "all"):
        operand = f"({operand} != 0)"
    magnitude = spec.name in ("max", "min") and dtype == F32
    sign = ">" if spec.name == "max" else "<"

    def add(total: str, new: str) -> str:
        return f"{new} {sign} {total} ? {new} : {total}" if magnitude else combine(total, new)

    return Reduction(
        i, "", out, total, out, start, operand,
        lane=add(f"p{i}[l]", operand), fold=add(f"p{i}[l]", f"p{i}[l + s]"), merge=combine(f"t{i}", "other"),
        column=add(f"p{i}[b]", operand), merge_column=combine(f"t{i}[b]", "other"), magnitude=magnitude,
    )  # fmt: skip


def _worst(largest: bool, dtype: DType) -> str:
    """What every value is at least as good as, in search of the largest or the smallest."""
    if dtype == I64:
        return "INT64_MIN" if largest else "INT64_MAX"
    return "-INFINITY" if largest else "INFINITY"


class ReduceForm:
    """Sorts a reduce stage's values by pass, and by whether they vary along the reduced axes.

    Parameters
    ----------
    kernel : Kernel
    load : function of (array, once a row?) giving the line that loads it
    """

    def __init__(self, kernel: Kernel, index_of: dict[str, str], by_columns: bool) -> None:
        self.kernel, self.writer = kernel, Writer(kernel)
        self.index_of, self.by_columns = index_of, by_columns
        self.stage = kernel.stage
        self.values = {value.index: value for value in kernel.values}
        self.depth = pass_depths(kernel.values)
        self.passes = max(self.depth.values(), default=0)
        self.stashes: set[int] = set()
        self._stashed: set[int] = set()

    def varies(self, shape: tuple[int, ...]) -> bool:
        """True if something of ``shape`` varies along a reduced axis."""
        missing = len(self.stage.shape) - len(shape)
        return any(axis >= missing and shape[axis - missing] != 1 for axis in self.stage.axes)

    def is_row_value(self, index: int) -> bool:
        """True for reductions and what is computed of them and of row-level inputs."""
        value = self.values[index]
        return value.spec.kind is Kind.REDUCTION or not self.varies(value.shape)

    def row_values(self) -> list[Line]:
        """Values kept for a row (or a block of columns) between passes."""
        chosen = [value for value in self.kernel.values if self.is_row_value(value.index)]
        return [Line(f"v{value.index}", type_of(value.dtype), "") for value in chosen]

    def _read(self, args: Iterable[Arg], row_level: bool, level: Level) -> None:
        """Fill ``level`` with the loads and lines that compute ``args`` in a row-level or an inner loop."""
        arrays: dict[str, Array] = {}
        order: dict[int, None] = {}
        known: dict[int, None] = {}
        again: dict[int, None] = {}
        stack = list(args)
        while stack:
            arg = stack.pop()
            array = self.kernel.find(arg)
            if array is not None:
                arrays[array.name] = array
            elif isinstance(arg, ValueArg) and not any(arg.value in seen for seen in (order, known, again)):
                if self.is_row_value(arg.value) and not (row_level and arg.value in self._fresh):
                    known[arg.value] = None
                elif arg.value in self._stashed:
                    again[arg.value] = None
                else:
                    order[arg.value] = None
                    stack.extend(self.values[arg.value].args)
                    counter = self.kernel.counter(self.values[arg.value])
                    if counter is not None:
                        arrays[counter.name] = counter
        for index in sorted(known):
            name = f"v{index}"
            level.known.append(Line(name, type_of(self.values[index].dtype), f"w_{name}[b]"))
        for array in arrays.values():
            once = not self.varies(array.shape)
            line = self.writer.load(array, self.index_of[array.name])
            (level.hoisted if once and not self.by_columns else level.lines).append(line)
        if self.by_columns:
            level.lines = level.known + level.lines
        for index in sorted(again):
            level.lines.append(Line(f"v{index}", type_of(self.values[index].dtype), f"stash_v{index}[at]"))
        level.lines += [self.writer.line(self.values[index]) for index in sorted(order)]
        fresh = self.stashes & order.keys()
        self._stashed |= fresh
        level.stashed = [f"v{index}" for index in sorted(fresh)]

    _fresh: frozenset[int] = frozenset()

    def settle(self, depth: int) -> Level:
        """Row-level values that become computable after ``depth`` passes."""
        fresh = [
            v for v in self.kernel.values
            if self.depth[v.index] == depth and self.is_row_value(v.index) and v.spec.kind is not Kind.REDUCTION
        ]  # fmt: skip
        level = Level()
        self._fresh = frozenset(v.index for v in fresh)
        if fresh:
            self._read([ValueArg(v.index) for v in fresh], True, level)
        self._fresh = frozenset()
        made = [v for v in self.kernel.values if v.spec.kind is Kind.REDUCTION and self.depth[v.index] == depth]
        level.reductions = [describe_reduction(self.writer, v) for v in made]
        if not self.by_columns:
            names = {f"v{v.index}" for v in made}
            level.known = [line for line in level.known if line.name not in names]
            loads = {line.name for line in level.hoisted}
            level.lines = [line for line in level.lines if line.name not in loads]
        level.kept = [Line(f"v{v.index}", type_of(v.dtype), "") for v in fresh]
        return level

    def level(self, depth: int) -> Level:
        """Pass ``depth`` (from 1): its reductions and the inner lines they need."""
        made = [v for v in self.kernel.values if v.spec.kind is Kind.REDUCTION and self.depth[v.index] == depth]
        level = Level(settle=self.settle(depth - 1))
        self._read([v.args[0] for v in made], False, level)
        level.reductions = [describe_reduction(self.writer, v) for v in made]
        return level

    def final(self) -> Level:
        """The last pass, which stores what covers the whole space."""
        level = Level(settle=self.settle(self.passes))
        chosen = [(a, arg) for a, arg in zip(self.kernel.outputs, self.kernel.sinks) if self._covers(a)]
        self._read([arg for _, arg in chosen], False, level)
        level.stores = [self.writer.store(a, arg, self.index_of[a.name]) for a, arg in chosen]
        return level

    def row_level(self) -> Level:
        """Stores of what is as small as the reductions."""
        level = Level()
        chosen = [(a, arg) for a, arg in zip(self.kernel.outputs, self.kernel.sinks) if not self._covers(a)]
        self._read([arg for _, arg in chosen], False, level)
        level.stores = [self.writer.store(a, arg, self.index_of[a.name]) for a, arg in chosen]
        return level

    def choose_stashes(self) -> None:
        """Mark values that one pass computes and a later one would compute again, where keeping them costs less."""
        outputs = zip(self.kernel.outputs, self.kernel.sinks)
        wanted: list[list[Arg]] = [[] for _ in range(self.passes)]
        wanted.append([arg for array, arg in outputs if self._covers(array)])
        for value in self.kernel.values:
            if value.spec.kind is Kind.REDUCTION:
                wanted[self.depth[value.index] - 1].append(value.args[0])
        before: set[int] = set()
        for args in wanted:
            here: set[int] = set()
            stack = [arg.value for arg in args if isinstance(arg, ValueArg) and self.kernel.find(arg) is None]
            while stack:
                index = stack.pop()
                if index in here or index in self.stashes or self.is_row_value(index):
                    continue
                if index in before and self._cost(index) >= STASH_COST:
                    self.stashes.add(index)
                    continue
                here.add(index)
                below = [arg for arg in self.values[index].args if isinstance(arg, ValueArg)]
                stack += [arg.value for arg in below if self.kernel.find(arg) is None]
            before |= here

    def _cost(self, index: int) -> int:
        """Flops of computing value ``index`` from memory and row values; counted no further than needed."""
        total, stack = 0, [index]
        while stack and total < STASH_COST:
            value = self.values[stack.pop()]
            total += value.spec.flops
            below = [arg for arg in value.args if isinstance(arg, ValueArg) and self.kernel.find(arg) is None]
            stack += [arg.value for arg in below if not self.is_row_value(arg.value)]
        return total

    def _covers(self, array: Array) -> bool:
        return array.shape == self.stage.shape

    def context(self) -> dict[str, Any]:
        """Template context."""
        row_level = self.row_level()
        return {
            "levels": [self.level(depth) for depth in range(1, self.passes + 1)],
            "final": self.final(),
            "row_values": self.row_values(),
            "row_level": row_level,
            "row_lines": row_level.lines,
            "row_stores": row_level.stores,
            **parameters(self.kernel),
        }


def rows(kernel: Kernel, inner: Sequence[int], split: int) -> Source:
    """Source of a reduction by rows; ``inner`` holds each array's step within a row (2: any).

    ``split`` is 0, or the length of the parts in which a long row goes through all threads.
    """
    arrays = [*kernel.inputs, *kernel.outputs]
    index_of = {a.name: access(step, "at", f"step_{a.name}") for a, step in zip(arrays, inner)}
    form = ReduceForm(kernel, index_of, by_columns=False)
    if not split:
        form.choose_stashes()
    context = form.context()
    stashes = [form.values[index] for index in sorted(form.stashes)]
    context["split"] = split
    context["stashes"] = [Line(f"v{value.index}", type_of(value.dtype), "") for value in stashes]
    context["stash_bytes"] = sum(compute_dtype(value.dtype).itemsize for value in stashes)
    context["inner_steps"] = [
        {"name": f"step_{a.name}", "index": 2 + 2 * i} for i, (a, s) in enumerate(zip(arrays, inner)) if s not in (0, 1)
    ]
    context["arrays"] = [_with_row_step(a, 1 + 2 * i) for i, a in enumerate(arrays)]
    return Source("c/reduce_rows.c.j2", context)


def _with_row_step(array: Array, index: int) -> dict[str, Any]:
    return {"name": array.name, "declaration": array.declaration, "row_step": index}


def columns(kernel: Kernel, right: Sequence[int], width: int) -> Source:
    """Source of a reduction by columns, at most ``width`` to a block; ``right`` holds the steps between columns."""
    arrays = [*kernel.inputs, *kernel.outputs]
    form = ReduceForm(kernel, {}, by_columns=True)
    for array, step in zip(arrays, right):
        across = access(step, "b", f"right_{array.name}")
        down = f"at * down_{array.name}" if form.varies(array.shape) else ""
        form.index_of[array.name] = " + ".join(part for part in (down, across) if part and part != "0") or "0"
    context = form.context()
    context["arrays"] = [
        {"name": a.name, "declaration": a.declaration, "steps": [4 + 3 * i, 5 + 3 * i, 6 + 3 * i]}
        for i, a in enumerate(arrays)
    ]
    context["width"] = width
    return Source("c/reduce_columns.c.j2", context)
