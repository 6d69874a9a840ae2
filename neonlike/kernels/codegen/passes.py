"""Passes of a reduce stage for its template: reductions of each pass, and known and kept values.

A *pass* goes once over the reduced axis. Between passes, values that do not vary along it are *settled*; after the last
one, a *final* loop stores results of the whole space.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from neonlike.kernels.codegen.emit import Array, Kernel, Line, Writer, type_of
from neonlike.kernels.codegen.pass_cache import CACHE_COST, PACKED_INDEX, PassCache
from neonlike.kernels.codegen.reduce_values import ReduceValues
from neonlike.kernels.codegen.reductions import Reduction, describe_reduction
from neonlike.kernels.codegen.shifted import sum_line, with_sum
from neonlike.kernels.planning.lower import Arg, Value, ValueArg
from neonlike.optree.dtypes import F32, compute_dtype

LIGHT_COST = 8
"""Flops per element below which a pass by rows is limited by its additions; four are then added into one partial
result."""
LIGHT_LANES, LANES = 16, 32
"""Number of parallel partial results: in a light pass by rows, limited by reading memory in order, and in others.

Compared with 64, a sum of squares of 1M elements took 0.92 of the time; a softmax of 16M 0.93, and with 16 1.02.
"""
ARRAY_CALLS = {"exp": "nl_exp_array_f32"}
"""Functions of vecmath_array.h that replace float32 ops over a stretch of a row."""


@dataclass(frozen=True, slots=True)
class Level:
    """One pass, with ``settle`` computed once per row before it."""

    reductions: tuple[Reduction, ...] = ()
    known: tuple[Line, ...] = ()
    hoisted: tuple[Line, ...] = ()
    lines: tuple[Line, ...] = ()
    stores: tuple[str, ...] = ()
    light: bool = False
    ahead: tuple[str, ...] = ()  # arrays contiguous along the pass
    fetched: tuple[Any, ...] = ()  # of these, arrays with the next row prefetched
    share: tuple[int, int] = (0, 1)  # its share of their cache lines
    widened: tuple[Array, ...] = ()  # 16-bit arrays converted in stretches
    padded: tuple[Array, ...] | None = None  # its inputs, if all of them but widened ones are contiguous along the pass
    cached: tuple[str, ...] = ()
    reads_cache: bool = False
    kept: tuple[Line, ...] = ()
    settle: Level | None = None
    call: ArrayCall | None = None
    narrow: Level | None = None  # tried first, see ranged.py
    ranged: tuple[int | str, ...] = ()  # reductions of a narrow form that may be out of range

    @property
    def by_fours(self) -> bool:
        """Whether four elements may be combined before they meet a partial result."""
        return self.light and not self.cached and not any(r.position for r in self.reductions)

    @property
    def lanes(self) -> int:
        """Number of parallel partial results, by rows in C; narrower ones are proportionally more."""
        if not self.light:
            return LANES
        widest = max((r.itemsize for r in self.reductions if not r.position), default=4)
        return LIGHT_LANES * 4 // widest


@dataclass(frozen=True, slots=True)
class ArrayCall:
    """A pass over a stretch of a row around a call of ``function``, for machines where that is faster.

    Lines ``before`` compute its ``operand``, and those ``after`` continue from ``value``. The stretch is stored in
    ``room``, the cache of the value, or in a separate array if that is empty.
    """

    function: str
    operand: str
    value: str
    room: str
    before: Level
    after: Level


@dataclass(frozen=True, slots=True)
class Passes:
    """All passes of a stage, for templates."""

    levels: tuple[Level, ...]
    final: Level
    row_values: tuple[Line, ...]
    """Values kept for a row (or a block of columns) between passes."""
    row_level: Level
    """Stores of results with the size of the reductions."""

    def context(self) -> dict[str, Any]:
        """Template context."""
        return {
            "levels": list(self.levels),
            "final": self.final,
            "row_values": self.row_values,
            "row_level": self.row_level,
            "row_lines": self.row_level.lines,
            "row_stores": self.row_level.stores,
        }


class Done(NamedTuple):
    """State after some passes: cached values, and packed arrays."""

    cached: frozenset[int] = frozenset()
    packed: frozenset[str] = frozenset()


NOTHING_DONE = Done()


class Reached(NamedTuple):
    """Inputs of a loop: arrays to load, values to compute, row values, and values cached by an earlier pass."""

    arrays: tuple[Array, ...]
    computed: frozenset[int]
    known: frozenset[int]
    cached: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReduceForm:
    """Parameters for writing the passes of a reduce stage.

    Attributes
    ----------
    values : ReduceValues
    writer : Writer
    index_of : mapping
        Text of each array's index in a pass, by the array's name.
    by_columns : bool
        True: columns side by side; False: one row after the other.
    cache : PassCache
    along : set of str
        Arrays that a pass reads, whole or in blocks, along memory.
    streamed : set of str
        Outputs that a final loop stores in ``staged_<name>`` at ``streamed_index``.
    cache_index : str
        Index of an element in a row's cache.
    calls : bool
        Whether passes may use calls on stretches.
    """

    values: ReduceValues
    writer: Writer
    index_of: Mapping[str, str]
    by_columns: bool
    cache: PassCache = field(default_factory=PassCache)
    along: frozenset[str] = frozenset()
    streamed: frozenset[str] = frozenset()
    streamed_index: str = "at - strip"
    cache_index: str = "at"
    calls: bool = False

    @property
    def kernel(self) -> Kernel:
        """The kernel of the stage."""
        return self.values.kernel

    # Passes

    def passes(self) -> Passes:
        """All passes, each based on the state left by the previous ones."""
        levels: list[Level] = []
        done = NOTHING_DONE
        for depth in range(1, self.values.passes + 1):
            level, done = self._level(depth, done)
            levels.append(level)
        row_values = [value for value in self.kernel.values if self.values.is_row_value(value.index)]
        sums = [Line(f"e{r.index}", r.ctype, "") for level in levels for r in level.reductions if r.joins]
        return Passes(tuple(levels), self._final(done), (*map(_declared, row_values), *sums), self._row_level())

    def _level(self, depth: int, done: Done) -> tuple[Level, Done]:
        """Pass ``depth`` (from 1): its reductions and their inner lines; and the state after it."""
        made = self.values.reductions(depth)
        args = [value.args[0] for value in made]
        reached = self._reach(args, done)
        level, left = self._written(reached, done)
        level = replace(
            level,
            settle=self._settle(depth - 1),
            reductions=tuple(map(self._reduction, made)),
            call=self._call(args, reached, done) if self.calls else None,
        )
        return level, left

    def _final(self, done: Done) -> Level:
        """The last pass, which stores the results of the whole space."""
        chosen = [(a, arg) for a, arg in zip(self.kernel.outputs, self.kernel.sinks) if self.values.covers(a)]
        level = self.read([arg for _, arg in chosen], done)
        stores = [
            self.writer.store(replace(a, name=f"staged_{a.name}"), arg, self.streamed_index)
            if a.name in self.streamed and a.name not in self.writer.wide
            else self.writer.store(a, arg, self.index_of[a.name])
            for a, arg in chosen
        ]
        written = {a.name for a, _ in chosen} & self.along - self.streamed
        ahead = (*level.ahead, *sorted(written.difference(level.ahead)))
        return replace(level, settle=self._settle(self.values.passes), stores=tuple(stores), ahead=ahead)

    def _row_level(self) -> Level:
        chosen = [(a, arg) for a, arg in zip(self.kernel.outputs, self.kernel.sinks) if not self.values.covers(a)]
        stores = [self.writer.store(a, arg, self.index_of[a.name]) for a, arg in chosen]
        return replace(self.read([arg for _, arg in chosen]), stores=tuple(stores))

    def _settle(self, depth: int) -> Level:
        """Row values that become computable after ``depth`` passes."""
        fresh, made = self.values.settled(depth), self.values.reductions(depth)
        level = Level()
        if fresh:
            args = [ValueArg(value.index) for value in fresh]
            reached = self._reach(args, NOTHING_DONE, frozenset(arg.value for arg in args))
            level, _ = self._written(reached, NOTHING_DONE)
        if not self.by_columns:
            names, loads = {f"v{v.index}" for v in made}, {line.name for line in level.hoisted}
            level = replace(
                level,
                known=tuple([line for line in level.known if line.name not in names]),
                lines=tuple([line for line in level.lines if line.name not in loads]),
            )
        return replace(level, reductions=tuple(map(self._reduction, made)), kept=tuple(map(_declared, fresh)))

    def _reduction(self, value: Value) -> Reduction:
        """Texts of a reduction computed in a pass."""
        found = describe_reduction(self.writer, value)
        beside = any(value.index == shifted.most for shifted in self.values.shifted.values())
        return with_sum(found, value) if beside else found

    def _line(self, index: int) -> Line:
        """Line of a value that is not a reduction of a pass."""
        value, shifted = self.values.by_index[index], self.values.shifted.get(index)
        return self.writer.line(value) if shifted is None else sum_line(self.writer, value, shifted)

    def _call(self, args: list[Arg], reached: Reached, done: Done) -> ArrayCall | None:
        """A pass that computes ``args`` around the single call in ``reached``; None if there is none."""
        by_index = self.values.by_index
        values = [by_index[i] for i in reached.computed if by_index[i].spec.name in ARRAY_CALLS]
        if len(values) != 1 or compute_dtype(values[0].dtype) != F32:
            return None
        (value,) = values
        first = self._reach(value.args, done)
        before, between = self._written(first, done)
        second = self._reach(args, between, called=value.index)
        if sum(by_index[index].spec.flops for index in first.computed & second.computed) >= CACHE_COST:
            return None
        after, _ = self._written(second, between)
        room = ("packed_v" if self.cache.packed else "cached_v") + str(value.index)
        (operand,) = self.writer.converted_operands(value)
        return ArrayCall(
            ARRAY_CALLS[value.spec.name],
            operand,
            f"v{value.index}",
            room if value.index in self.cache.values else "",
            before,
            after,
        )

    # Loops

    def read(self, args: Iterable[Arg], done: Done = NOTHING_DONE) -> Level:
        """Loads and lines that compute ``args`` in an inner loop, or in a loop over rows."""
        return self._written(self._reach(args, done), done)[0]

    def _reach(
        self, args: Iterable[Arg], done: Done, fresh: frozenset[int] = frozenset(), called: int | None = None
    ) -> Reached:
        """Walk from ``args`` down to memory, to known values, and to the value ``called``.

        Row values are known, except for those in ``fresh``, which are computed here.
        """
        arrays: dict[str, Array] = {}
        computed: set[int] = set()
        known: set[int] = set()
        again: set[int] = set()
        stack = list(args)
        while stack:
            arg = stack.pop()
            array = self.kernel.find(arg)
            if array is not None:
                arrays[array.name] = array
            elif isinstance(arg, ValueArg) and not any(arg.value in seen for seen in (computed, known, again)):
                value = self.values.by_index[arg.value]
                if self.values.is_row_value(arg.value) and arg.value not in fresh:
                    known.add(arg.value)
                elif arg.value in done.cached:
                    again.add(arg.value)
                elif arg.value != called:
                    computed.add(arg.value)
                    stack.extend(self.values.args(value))
                    if (counter := self.kernel.counter(value)) is not None:
                        arrays[counter.name] = counter
        return Reached(tuple(arrays.values()), *map(frozenset, (computed, known, again)))

    def _written(self, reached: Reached, done: Done) -> tuple[Level, Done]:
        """Lines for the reached values, and the state after them."""
        by_index = self.values.by_index
        known = [replace(_declared(by_index[i]), text=f"w_v{i}[b]") for i in sorted(reached.known)]
        loads: dict[bool, list[Line]] = {False: [], True: []}
        for array in reached.arrays:
            loads[not self.by_columns and not self.values.varies(array.shape)].append(self._load(array, done))
        again = [replace(_declared(by_index[i]), text=self._cached_text(i)) for i in sorted(reached.cached)]
        lines = [*(known if self.by_columns else ()), *loads[False], *again]
        lines += [self._line(index) for index in sorted(reached.computed)]
        names, wide = [array.name for array in reached.arrays], self.writer.wide.keys()
        ahead = [name for name in names if name in self.along and name not in done.packed]
        packed = [name for name in ahead if name in self.cache.packed]
        fresh = sorted(self.cache.values & reached.computed)
        output = self.cache.output
        if output is not None and (fresh or reached.cached) and output.name in self.along:
            ahead.append(output.name)
        read = {array.name: self._load(array, done).name for array in reached.arrays if array.half}
        read |= {name: f"{name}[{self.index_of[name]}]" for name in packed if name not in read}
        cached = [f"packed_{name}[{PACKED_INDEX}] = {read[name]};" for name in packed]
        cached += [f"{self._cached_text(index)} = v{index};" for index in fresh]
        level = Level(
            known=tuple(known),
            hoisted=tuple(loads[True]),
            lines=tuple(lines),
            light=sum(by_index[index].spec.flops for index in reached.computed) < LIGHT_COST,
            ahead=tuple(ahead),
            widened=tuple([a for a in self.kernel.inputs if a.name in set(names) & wide - done.packed]),
            cached=tuple(cached),
            reads_cache=bool(reached.cached),
        )
        return level, Done(done.cached.union(fresh), done.packed.union(packed))

    def _load(self, array: Array, done: Done) -> Line:
        """Line that loads ``array``, from its packed copy if there is one."""
        line = self.writer.load(array, self.index_of[array.name])
        if array.name not in done.packed:
            return line
        if array.half:
            return replace(line, text=f"packed_{array.name}[{PACKED_INDEX}]")
        return replace(line, text=self.writer.load(replace(array, name=f"packed_{array.name}"), PACKED_INDEX).text)

    def _cached_text(self, index: int) -> str:
        output = self.cache.output
        if output is not None:
            return f"{output.name}[{self.index_of[output.name]}]"
        if self.cache.packed:
            return f"packed_v{index}[{PACKED_INDEX}]"
        return f"cached_v{index}[{self.cache_index}]"


def widened(values: ReduceValues, wide: Mapping[str, str]) -> dict[str, str]:
    """Index texts for the ``wide`` float16 arrays of passes: those that vary.

    Parameters
    ----------
    values : ReduceValues
    wide : mapping
        Index texts by names of arrays.
    """
    arrays = (*values.kernel.inputs, *values.kernel.outputs)
    chosen = {a.name for a in arrays if a.name in wide and values.varies(a.shape)}
    return {name: text for name, text in wide.items() if name in chosen}


def _declared(value: Value) -> Line:
    return Line(f"v{value.index}", type_of(value.dtype), "")
