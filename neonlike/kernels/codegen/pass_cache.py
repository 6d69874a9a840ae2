"""Selection of values that a reduction's pass keeps for later passes, and of their storage.

By rows, values are kept in a row buffer. By columns, one value is kept in an output that is overwritten later; or the
inputs and values that several passes need of a block of columns are *packed* in a separate block of memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from neonlike.kernels.codegen.emit import STORAGE, Array, type_of
from neonlike.kernels.codegen.reduce_values import ReduceValues
from neonlike.kernels.planning.lower import Arg, ValueArg
from neonlike.optree.dtypes import compute_dtype

CACHE_COST = 8
"""Flops above which a value is kept between the passes over a row, not recomputed."""
PACKED_INDEX = "at * pitch + b"
"""Index of an element in a packed block."""


class Packed(NamedTuple):
    """An input or value in a packed block; ``offset`` is in bytes per element."""

    name: str
    ctype: str
    itemsize: int
    offset: int


@dataclass(frozen=True, slots=True)
class PassCache:
    """The kept values.

    Attributes
    ----------
    values : set of int
    output : Array or None
        The output that holds the single kept value.
    packed : mapping of str to Packed
        Packed arrays and values, by name.
    """

    values: frozenset[int] = frozenset()
    output: Array | None = None
    packed: Mapping[str, Packed] = field(default_factory=dict)

    @property
    def bytes_packed(self) -> int:
        """Bytes per element of the packed block."""
        return _bytes_of(self.packed)


def cache_in_rows(values: ReduceValues) -> PassCache:
    """Keep values in row buffers."""
    return PassCache(_worth_keeping(values))


def cache_in_output(values: ReduceValues) -> PassCache:
    """Keep a single value in an output, if no pass from its computation on reads the same memory."""
    chosen = _worth_keeping(values)
    output = next((array for array in values.kernel.outputs if _can_hold(values, chosen, array)), None)
    return PassCache() if output is None else PassCache(chosen, output)


def cache_packed(values: ReduceValues, along: Collection[str]) -> PassCache:
    """Keep values, and inputs ``along`` memory that several passes read, in a packed block."""
    chosen = _worth_keeping(values)
    return PassCache(chosen, packed=_packed(values, chosen, along))


def _worth_keeping(values: ReduceValues) -> frozenset[int]:
    """Values that a later pass would recompute at a higher cost than keeping them."""
    kept: set[int] = set()
    before: set[int] = set()
    for args in values.wanted():
        here: set[int] = set()
        stack = values.computed(args)
        while stack:
            index = stack.pop()
            if index in here or index in kept or values.is_row_value(index):
                continue
            if index in before and _cost(values, index) >= CACHE_COST:
                kept.add(index)
                continue
            here.add(index)
            stack += values.computed(values.by_index[index].args)
        before |= here
    return frozenset(kept)


def _cost(values: ReduceValues, index: int) -> int:
    """Flops to compute value ``index`` from memory and row values, counted only up to the limit."""
    total, stack = 0, [index]
    while stack and total < CACHE_COST:
        value = values.by_index[stack.pop()]
        total += value.spec.flops
        stack += [below for below in values.computed(value.args) if not values.is_row_value(below)]
    return total


def _reached(values: ReduceValues, args: Sequence[Arg], stops: Collection[int]) -> Iterator[Arg]:
    """Inputs and values in a pass over ``args``, each once, without operands of the values in ``stops``."""
    seen: set[Arg] = set()
    stack = list(args)
    while stack:
        arg = stack.pop()
        if arg in seen:
            continue
        seen.add(arg)
        yield arg
        for index in values.computed([arg]):
            stack += () if index in stops else values.by_index[index].args


def _can_hold(values: ReduceValues, cached: Collection[int], output: Array) -> bool:
    """True if ``output`` can hold the single kept value."""
    if len(cached) != 1 or not values.covers(output):
        return False
    (index,) = cached
    if compute_dtype(values.by_index[index].dtype) != output.dtype:
        return False
    made = False
    for args in values.wanted():
        reached = list(_reached(values, args, (index,) if made else ()))
        read = [array for arg in reached if (array := values.kernel.find(arg)) is not None]
        if made and any((output.name, array.name) in values.kernel.overlaps for array in read):
            return False
        made = made or ValueArg(index) in reached
    return True


def _packed(values: ReduceValues, cached: Collection[int], along: Collection[str]) -> dict[str, Packed]:
    """Positions in the packed block; of 16-bit inputs in float32.

    A value takes the place of an input that no later pass reads, because it is computed at the input's last read.
    """
    readers: dict[str, list[int]] = {}
    makers: dict[int, int] = {}
    known = frozenset(filter(values.is_row_value, values.by_index))
    for number, args in enumerate(values.wanted()):
        reached = list(_reached(values, args, known | makers.keys()))
        for array in filter(None, map(values.kernel.find, reached)):
            if array.name in along:
                readers.setdefault(array.name, []).append(number)
        makers |= {index: number for index in cached - makers.keys() if ValueArg(index) in reached}
    packed: dict[str, Packed] = {}
    for array in values.kernel.inputs:
        if len(readers.get(array.name, [])) > 1:
            dtype = compute_dtype(array.dtype) if array.half else array.dtype  # so that they are converted once
            packed[array.name] = Packed(array.name, STORAGE[dtype.name], dtype.itemsize, _bytes_of(packed))
    free = {name: readers[name][-1] for name in packed}
    for index, maker in sorted(makers.items()):
        dtype = compute_dtype(values.by_index[index].dtype)
        ctype = type_of(dtype)
        place = next((n for n in free if free[n] <= maker and packed[n].ctype == ctype), "")
        offset = packed[place].offset if place else _bytes_of(packed)
        free.pop(place, None)
        packed[f"v{index}"] = Packed(f"v{index}", ctype, dtype.itemsize, offset)
    return packed


def _bytes_of(packed: Mapping[str, Packed]) -> int:
    return max((one.offset + one.itemsize for one in packed.values()), default=0)
