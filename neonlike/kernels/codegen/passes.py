"""A reduce stage sorted for its template: which pass makes which reduction, what is known before, what is kept.

A *pass* goes once over the reduced axis. Between passes, values that do not vary along it are *settled*; after the
last one, results of the whole space are stored in one more loop, the *final* one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from neonlike.kernels.codegen.emit import Array, Kernel, Line, Writer, type_of
from neonlike.kernels.codegen.reductions import Reduction, describe_reduction
from neonlike.kernels.planning.lower import Arg, ValueArg
from neonlike.kernels.planning.plan import pass_depths
from neonlike.optree.dtypes import F32, DTypeRule, compute_dtype
from neonlike.optree.ops import Kind

LIGHT_COST = 8
"""Flops an element below which a pass by rows is as long as its additions; four go into a partial result at a time."""
LIGHT_LANES, LANES = 16, 32
"""Partial results side by side in a light pass by rows, which reads memory in its order with so few, and in another.

Against 64, a sum of squares of 1M elements took 0.92 of the time; a softmax of 16M 0.93, and with 16 1.02.
"""
ARRAY_CALLS = {"exp": "nl_exp_array_f32"}
"""Functions of vecmath_array.h, which take the place of float32 ops over a stretch of a row."""
STASH_COST = 8
"""Flops above which a value is kept between the passes over a row rather than computed again."""


@dataclass(slots=True)
class Level:
    """One pass, and in ``settle`` what is computed once a row before it."""

    reductions: list[Reduction] = field(default_factory=list)
    known: list[Line] = field(default_factory=list)
    hoisted: list[Line] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    light: bool = False
    ahead: list[str] = field(default_factory=list)  # arrays that lie along memory
    fetched: list[Any] = field(default_factory=list)  # those whose next row is fetched meanwhile
    share: tuple[int, int] = (0, 1)  # of its cache lines, which
    widened: list[str] = field(default_factory=list)  # float16 arrays, stretches of which are converted at once
    padded: list[Array] | None = None  # what it reads, if all of that lies along memory, but what is widened
    stashed: list[str] = field(default_factory=list)
    again: bool = False  # whether it reads what a pass before it stashed
    kept: list[Line] = field(default_factory=list)
    settle: Any = None
    call: Call | None = None

    @property
    def by_fours(self) -> bool:
        """Whether four elements may meet each other before they meet a partial result."""
        return self.light and not self.stashed and not any(r.position for r in self.reductions)

    @property
    def lanes(self) -> int:
        """Partial results side by side, by rows in C; of narrow ones as many more as fit in their place."""
        if not self.light:
            return LANES
        widest = max((r.itemsize for r in self.reductions if not r.position), default=4)
        return LIGHT_LANES * 4 // widest


@dataclass(frozen=True, slots=True)
class Call:
    """A pass over a stretch of a row around a call of ``function``, for machines where that is faster.

    Lines ``before`` lead to its ``operand``, those ``after`` go on from ``value``. The stretch lies in ``room``, where
    the value is stashed; in an array of its own if that is empty.
    """

    function: str
    operand: str
    value: str
    room: str
    before: Level
    after: Level


class Near(NamedTuple):
    """An input or a value kept in a block of columns; ``offset`` counts bytes an element."""

    name: str
    ctype: str
    itemsize: int
    offset: int


NEAR = "at * pitch + b"
"""Index of an element in such a block."""


class ReduceForm:
    """Sorts a reduce stage's values by pass, and by whether they vary along the reduced axes.

    Parameters
    ----------
    kernel : Kernel
    index_of : dict
        Text of each array's index in a pass, by the array's name.
    by_columns : bool
        Columns side by side, else one row after the other.
    packs : bool
        By columns: what a pass reads or makes and a later one needs again is kept in a block of its own, ``near``.
    language : str
        "c" or "cuda".
    """

    def __init__(
        self, kernel: Kernel, index_of: dict[str, str], by_columns: bool, packs: bool = False, language: str = "c"
    ) -> None:
        self.kernel, self.writer = kernel, Writer(kernel, language)
        self.index_of, self.by_columns, self.packs = index_of, by_columns, packs
        self.stage = kernel.stage
        self.values = {value.index: value for value in kernel.values}
        self.depth = pass_depths(kernel.values)
        self.passes = max(self.depth.values(), default=0)
        self.stashes: set[int] = set()
        self.along: set[str] = set()  # arrays that a pass reads, or blocks of which it reads, along memory
        self.streamed: set[str] = set()
        self.streamed_index = "b" if by_columns else "at - strip"
        self.calls = False  # whether passes may be written around calls
        self.stash_array: Array | None = None
        self.near: dict[str, Near] = {}
        self.stash_index = "at"
        self._stashed: set[int] = set()
        self._packed: set[str] = set()
        self._called: int | None = None

    def widen(self, wide: dict[str, str]) -> None:
        """Have the passes read and write these arrays where ``wide`` says, but those that are packed or row-level."""
        arrays = (*self.kernel.inputs, *self.kernel.outputs)
        chosen = {a.name for a in arrays if a.name in wide and self.varies(a.shape) and a.name not in self.near}
        self.writer.wide = {name: text for name, text in wide.items() if name in chosen}

    def varies(self, shape: tuple[int, ...]) -> bool:
        """True if something of ``shape`` varies along a reduced axis."""
        missing = len(self.stage.shape) - len(shape)
        return any(axis >= missing and shape[axis - missing] != 1 for axis in self.stage.axes)

    def is_row_value(self, index: int) -> bool:
        """True for reductions and what is computed of them and of row-level inputs."""
        value = self.values[index]
        return value.spec.kind is Kind.REDUCTION or not self.varies(value.shape)

    def selects(self) -> bool:
        """True if a reduction is of truth values, of relu or of exp2, which are a constant in one case or in both."""
        reduced = [value.args[0] for value in self.kernel.values if value.spec.kind is Kind.REDUCTION]
        here = [arg.value for arg in reduced if isinstance(arg, ValueArg) and self.kernel.find(arg) is None]
        made = [self.values[index].spec for index in here]  # what another stage made is an array
        return any(spec.dtype is DTypeRule.TRUTH or spec.name in ("relu", "exp2") for spec in made)

    def row_values(self) -> list[Line]:
        """Values kept for a row (or a block of columns) between passes."""
        chosen = [value for value in self.kernel.values if self.is_row_value(value.index)]
        return [Line(f"v{value.index}", type_of(value.dtype), "") for value in chosen]

    def read(self, args: Iterable[Arg], row_level: bool, level: Level) -> Iterable[int]:
        """Fill ``level`` with the loads and lines that compute ``args`` in a row-level or an inner loop.

        Returns the values computed there.
        """
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
                elif arg.value != self._called:
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
            (level.hoisted if once and not self.by_columns else level.lines).append(self._load(array))
        level.widened = [name for name in arrays if name in self.writer.wide]
        level.ahead = [name for name in arrays if name in self.along and name not in self._packed]
        packed = [name for name in level.ahead if name in self.near]
        if self.by_columns:
            level.lines = level.known + level.lines
        level.again = bool(again)
        for index in sorted(again):
            level.lines.append(Line(f"v{index}", type_of(self.values[index].dtype), self._stash_text(index)))
        level.lines += [self.writer.line(self.values[index]) for index in sorted(order)]
        level.light = sum(self.values[index].spec.flops for index in order) < LIGHT_COST
        fresh = self.stashes & order.keys()
        self._stashed |= fresh
        level.stashed = [f"near_{name}[{NEAR}] = {name}[{self.index_of[name]}];" for name in packed]
        level.stashed += [f"{self._stash_text(index)} = v{index};" for index in sorted(fresh)]
        self._packed.update(packed)
        if self.stash_array is not None and (fresh or again) and self.stash_array.name in self.along:
            level.ahead.append(self.stash_array.name)
        return order

    def _load(self, array: Array) -> Line:
        """The line that reads ``array``, where it is packed already from there."""
        line = self.writer.load(array, self.index_of[array.name])
        if array.name not in self._packed:
            return line
        return replace(line, text=self.writer.load(replace(array, name=f"near_{array.name}"), NEAR).text)

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
            self.read([ValueArg(v.index) for v in fresh], True, level)
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
        level, args = Level(settle=self.settle(depth - 1)), [v.args[0] for v in made]
        kept = set(self._stashed), set(self._packed)
        computed = self.read(args, False, level)
        level.reductions = [describe_reduction(self.writer, v) for v in made]
        level.call = self._call(args, computed, kept) if self.calls else None
        return level

    def _call(self, args: list[Arg], computed: Iterable[int], before_it: tuple[set[int], set[str]]) -> Call | None:
        """A pass that computes ``args`` around the only call among ``computed``; what was stashed and packed before."""
        values = [self.values[index] for index in computed if self.values[index].spec.name in ARRAY_CALLS]
        if len(values) != 1 or compute_dtype(values[0].dtype) != F32:
            return None
        (value,), before, after, kept = values, Level(), Level(), (self._stashed, self._packed)
        self._stashed, self._packed = before_it
        first = self.read(value.args, False, before)
        self._called = value.index
        twice = set(first) & set(self.read(args, False, after))
        self._called, (self._stashed, self._packed) = None, kept
        if sum(self.values[index].spec.flops for index in twice) >= STASH_COST:
            return None
        room = ("near_v" if self.packs else "stash_v") + str(value.index) if value.index in self.stashes else ""
        (operand,) = self.writer.converted_operands(value)
        return Call(ARRAY_CALLS[value.spec.name], operand, f"v{value.index}", room, before, after)

    def final(self) -> Level:
        """The last pass, which stores what covers the whole space."""
        level = Level(settle=self.settle(self.passes))
        chosen = [(a, arg) for a, arg in zip(self.kernel.outputs, self.kernel.sinks) if self._covers(a)]
        self.read([arg for _, arg in chosen], False, level)
        level.stores = [
            self.writer.store(replace(a, name=f"near_{a.name}"), arg, self.streamed_index)
            if a.name in self.streamed and a.name not in self.writer.wide
            else self.writer.store(a, arg, self.index_of[a.name])
            for a, arg in chosen
        ]
        written = {a.name for a, _ in chosen} & self.along - self.streamed
        level.ahead += sorted(written.difference(level.ahead))
        return level

    def row_level(self) -> Level:
        """Stores of what is as small as the reductions."""
        level = Level()
        chosen = [(a, arg) for a, arg in zip(self.kernel.outputs, self.kernel.sinks) if not self._covers(a)]
        self.read([arg for _, arg in chosen], False, level)
        level.stores = [self.writer.store(a, arg, self.index_of[a.name]) for a, arg in chosen]
        return level

    def choose_stashes(self) -> None:
        """Mark values that one pass computes and a later one would compute again, where keeping them costs less.

        By rows they are kept in a buffer of a row; by columns one is, in an output that is overwritten later.
        """
        before: set[int] = set()
        for args in self._wanted():
            here: set[int] = set()
            stack = self._computed(args)
            while stack:
                index = stack.pop()
                if index in here or index in self.stashes or self.is_row_value(index):
                    continue
                if index in before and self._cost(index) >= STASH_COST:
                    self.stashes.add(index)
                    continue
                here.add(index)
                stack += self._computed(self.values[index].args)
            before |= here
        if self.packs:
            self._choose_near()
        elif self.by_columns:
            self.stash_array = next((a for a in self.kernel.outputs if self._can_hold(a)), None)
            self.stashes = set() if self.stash_array is None else self.stashes

    def _choose_near(self) -> None:
        """Give stashes, and inputs along memory that several passes read, a place in the near block.

        A stash takes the place of an input that no later pass reads, since it is made where that is read last.
        """
        readers: dict[str, list[int]] = {}
        makers: dict[int, int] = {}
        for number, args in enumerate(self._wanted()):
            seen: set[Arg] = set()
            stack = list(args)
            while stack:
                arg = stack.pop()
                array = self.kernel.find(arg)
                if arg in seen:
                    continue
                seen.add(arg)
                if array is not None and array.name in self.along:
                    readers.setdefault(array.name, []).append(number)
                elif array is None and isinstance(arg, ValueArg) and arg.value not in makers:
                    stack += [] if self.is_row_value(arg.value) else self.values[arg.value].args
            makers |= {i: number for i in self.stashes - makers.keys() if ValueArg(i) in seen}
        for array in self.kernel.inputs:
            if len(readers.get(array.name, [])) > 1:
                self.near[array.name] = Near(array.name, array.ctype, array.dtype.itemsize, self.near_bytes())
        free = {name: readers[name][-1] for name in self.near}
        for index, maker in sorted(makers.items()):
            dtype = compute_dtype(self.values[index].dtype)
            ctype = type_of(dtype)
            place = next((n for n in free if free[n] <= maker and self.near[n].ctype == ctype), "")
            offset = self.near[place].offset if place else self.near_bytes()
            free.pop(place, None)
            self.near[f"v{index}"] = Near(f"v{index}", ctype, dtype.itemsize, offset)

    def near_bytes(self) -> int:
        """Bytes of the near block for each of its elements."""
        return max((near.offset + near.itemsize for near in self.near.values()), default=0)

    def _wanted(self) -> list[list[Arg]]:
        """What each pass computes, and last what the final loop stores."""
        wanted: list[list[Arg]] = [[] for _ in range(self.passes)]
        for value in self.kernel.values:
            if value.spec.kind is Kind.REDUCTION:
                wanted[self.depth[value.index] - 1].append(value.args[0])
        outputs = zip(self.kernel.outputs, self.kernel.sinks)
        return [*wanted, [arg for array, arg in outputs if self._covers(array)]]

    def _computed(self, args: Iterable[Arg]) -> list[int]:
        return [arg.value for arg in args if isinstance(arg, ValueArg) and self.kernel.find(arg) is None]

    def _can_hold(self, output: Array) -> bool:
        """True if ``output`` can keep the only stash: no pass from the one that makes it on reads the same memory."""
        if len(self.stashes) != 1 or not self._covers(output):
            return False
        (index,) = self.stashes
        if compute_dtype(self.values[index].dtype) != output.dtype:
            return False
        made = False
        for args in self._wanted():
            seen: set[Arg] = set()
            stack = list(args)
            while stack:
                arg = stack.pop()
                array = self.kernel.find(arg)
                if array is not None and made and (output.name, array.name) in self.kernel.overlaps:
                    return False
                if isinstance(arg, ValueArg) and arg not in seen and array is None:
                    seen.add(arg)
                    if not (made and arg.value == index):
                        stack += self.values[arg.value].args
            made = made or ValueArg(index) in seen
        return True

    def _stash_text(self, index: int) -> str:
        if self.stash_array is not None:
            return f"{self.stash_array.name}[{self.index_of[self.stash_array.name]}]"
        if self.packs:
            return f"near_v{index}[{NEAR}]"
        return f"stash_v{index}[{self.stash_index}]"

    def _cost(self, index: int) -> int:
        """Flops of computing value ``index`` from memory and row values; counted no further than needed."""
        total, stack = 0, [index]
        while stack and total < STASH_COST:
            value = self.values[stack.pop()]
            total += value.spec.flops
            stack += [below for below in self._computed(value.args) if not self.is_row_value(below)]
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
        }
