"""A reduce stage sorted for its template: which pass makes which reduction, what is known before, what is kept.

A *pass* goes once over the reduced axis. Between passes, values that do not vary along it are *settled*; after the
last one, results of the whole space are stored in one more loop, the *final* one.
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
"""Flops an element below which a pass by rows is as long as its additions; four go into a partial result at a time."""
LIGHT_LANES, LANES = 16, 32
"""Partial results side by side in a light pass by rows, which reads memory in its order with so few, and in another.

Against 64, a sum of squares of 1M elements took 0.92 of the time; a softmax of 16M 0.93, and with 16 1.02.
"""
ARRAY_CALLS = {"exp": "nl_exp_array_f32"}
"""Functions of vecmath_array.h, which take the place of float32 ops over a stretch of a row."""


@dataclass(frozen=True, slots=True)
class Level:
    """One pass, and in ``settle`` what is computed once a row before it."""

    reductions: tuple[Reduction, ...] = ()
    known: tuple[Line, ...] = ()
    hoisted: tuple[Line, ...] = ()
    lines: tuple[Line, ...] = ()
    stores: tuple[str, ...] = ()
    light: bool = False
    ahead: tuple[str, ...] = ()  # arrays that lie along memory
    fetched: tuple[Any, ...] = ()  # those whose next row is fetched meanwhile
    share: tuple[int, int] = (0, 1)  # of its cache lines, which
    widened: tuple[str, ...] = ()  # float16 arrays, stretches of which are converted at once
    padded: tuple[Array, ...] | None = None  # what it reads, if all of that lies along memory, but what is widened
    cached: tuple[str, ...] = ()
    reads_cache: bool = False
    kept: tuple[Line, ...] = ()
    settle: Level | None = None
    call: ArrayCall | None = None
    narrow: Level | None = None  # what is tried first, see ranged.py
    ranged: tuple[int | str, ...] = ()  # the reductions of a narrow form that may be out of range

    @property
    def by_fours(self) -> bool:
        """Whether four elements may meet each other before they meet a partial result."""
        return self.light and not self.cached and not any(r.position for r in self.reductions)

    @property
    def lanes(self) -> int:
        """Partial results side by side, by rows in C; of narrow ones as many more as fit in their place."""
        if not self.light:
            return LANES
        widest = max((r.itemsize for r in self.reductions if not r.position), default=4)
        return LIGHT_LANES * 4 // widest


@dataclass(frozen=True, slots=True)
class ArrayCall:
    """A pass over a stretch of a row around a call of ``function``, for machines where that is faster.

    Lines ``before`` lead to its ``operand``, those ``after`` go on from ``value``. The stretch lies in ``room``, where
    the value is cached; in an array of its own if that is empty.
    """

    function: str
    operand: str
    value: str
    room: str
    before: Level
    after: Level


@dataclass(frozen=True, slots=True)
class Passes:
    """All passes of a stage, as templates read them."""

    levels: tuple[Level, ...]
    final: Level
    row_values: tuple[Line, ...]
    """Values kept for a row (or a block of columns) between passes."""
    row_level: Level
    """Stores of what is as small as the reductions."""

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
    """The state that the passes so far left behind: the values that are cached, and the arrays that are packed."""

    cached: frozenset[int] = frozenset()
    packed: frozenset[str] = frozenset()


NOTHING_DONE = Done()


class Reached(NamedTuple):
    """The inputs of a loop: arrays to load, values to compute, row values, and values cached by a pass before it."""

    arrays: tuple[Array, ...]
    computed: frozenset[int]
    known: frozenset[int]
    cached: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReduceForm:
    """How the passes of a reduce stage are written.

    Attributes
    ----------
    values : ReduceValues
    writer : Writer
    index_of : mapping
        Text of each array's index in a pass, by the array's name.
    by_columns : bool
        Columns side by side, else one row after the other.
    cache : PassCache
    along : set of str
        Arrays that a pass reads, or blocks of which it reads, along memory.
    streamed : set of str
        Outputs that a final loop stores in ``staged_<name>``, at ``streamed_index``.
    cache_index : str
        Index of an element in the cache of a row.
    calls : bool
        Whether passes may be written around calls.
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
        """All passes, each of which knows what those before it left behind."""
        levels: list[Level] = []
        done = NOTHING_DONE
        for depth in range(1, self.values.passes + 1):
            level, done = self._level(depth, done)
            levels.append(level)
        row_values = [value for value in self.kernel.values if self.values.is_row_value(value.index)]
        sums = [Line(f"e{r.index}", r.ctype, "") for level in levels for r in level.reductions if r.joins]
        return Passes(tuple(levels), self._final(done), (*map(_declared, row_values), *sums), self._row_level())

    def _level(self, depth: int, done: Done) -> tuple[Level, Done]:
        """Pass ``depth`` (from 1): its reductions and the inner lines they need; and what is left behind after it."""
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
        """The last pass, which stores what covers the whole space."""
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
        """The texts of a reduction that a pass makes."""
        found = describe_reduction(self.writer, value)
        beside = any(value.index == shifted.most for shifted in self.values.shifted.values())
        return with_sum(found, value) if beside else found

    def _line(self, index: int) -> Line:
        """The line of a value that is no reduction of a pass."""
        value, shifted = self.values.by_index[index], self.values.shifted.get(index)
        return self.writer.line(value) if shifted is None else sum_line(self.writer, value, shifted)

    def _call(self, args: list[Arg], reached: Reached, done: Done) -> ArrayCall | None:
        """A pass that computes ``args`` around the only call among what it has ``reached``; None if there is none."""
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
        """The loads and lines that compute ``args`` in an inner loop, or in one over rows."""
        return self._written(self._reach(args, done), done)[0]

    def _reach(
        self, args: Iterable[Arg], done: Done, fresh: frozenset[int] = frozenset(), called: int | None = None
    ) -> Reached:
        """Walk from ``args`` down to memory, to what is known, and to the value that is ``called``.

        Row values are known, but for those that are ``fresh``, which are computed here.
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
        """The lines for what was reached, and what is left behind after them."""
        by_index = self.values.by_index
        known = [replace(_declared(by_index[i]), text=f"w_v{i}[b]") for i in sorted(reached.known)]
        loads: dict[bool, list[Line]] = {False: [], True: []}
        for array in reached.arrays:
            loads[not self.by_columns and not self.values.varies(array.shape)].append(self._load(array, done))
        again = [replace(_declared(by_index[i]), text=self._cached_text(i)) for i in sorted(reached.cached)]
        lines = [*(known if self.by_columns else ()), *loads[False], *again]
        lines += [self._line(index) for index in sorted(reached.computed)]
        names = [array.name for array in reached.arrays]
        ahead = [name for name in names if name in self.along and name not in done.packed]
        packed = [name for name in ahead if name in self.cache.packed]
        fresh = sorted(self.cache.values & reached.computed)
        output = self.cache.output
        if output is not None and (fresh or reached.cached) and output.name in self.along:
            ahead.append(output.name)
        cached = [f"packed_{name}[{PACKED_INDEX}] = {name}[{self.index_of[name]}];" for name in packed]
        cached += [f"{self._cached_text(index)} = v{index};" for index in fresh]
        level = Level(
            known=tuple(known),
            hoisted=tuple(loads[True]),
            lines=tuple(lines),
            light=sum(by_index[index].spec.flops for index in reached.computed) < LIGHT_COST,
            ahead=tuple(ahead),
            widened=tuple([name for name in names if name in self.writer.wide]),
            cached=tuple(cached),
            reads_cache=bool(reached.cached),
        )
        return level, Done(done.cached.union(fresh), done.packed.union(packed))

    def _load(self, array: Array, done: Done) -> Line:
        """The line that reads ``array``, where it is packed already from there."""
        line = self.writer.load(array, self.index_of[array.name])
        if array.name not in done.packed:
            return line
        return replace(line, text=self.writer.load(replace(array, name=f"packed_{array.name}"), PACKED_INDEX).text)

    def _cached_text(self, index: int) -> str:
        output = self.cache.output
        if output is not None:
            return f"{output.name}[{self.index_of[output.name]}]"
        if self.cache.packed:
            return f"packed_v{index}[{PACKED_INDEX}]"
        return f"cached_v{index}[{self.cache_index}]"


def widened(values: ReduceValues, wide: Mapping[str, str], packed: Iterable[str] = ()) -> dict[str, str]:
    """Where passes read and write float16 arrays, of ``wide``: those that vary and are not ``packed``."""
    arrays = (*values.kernel.inputs, *values.kernel.outputs)
    chosen = {a.name for a in arrays if a.name in wide and values.varies(a.shape)} - set(packed)
    return {name: text for name, text in wide.items() if name in chosen}


def _declared(value: Value) -> Line:
    return Line(f"v{value.index}", type_of(value.dtype), "")
