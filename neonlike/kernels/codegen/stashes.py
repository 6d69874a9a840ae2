"""What the passes of a reduction keep for later ones, rather than read or compute it again, and where.

By rows, values lie in a buffer of a row. By columns, one value lies in an output that is overwritten later; or what
several passes need of a block of columns, inputs too, is *packed*: it lies in a block of memory of its own, ``near``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from neonlike.kernels.codegen.emit import Array, type_of
from neonlike.kernels.codegen.reduce_values import ReduceValues
from neonlike.kernels.planning.lower import Arg, ValueArg
from neonlike.optree.dtypes import compute_dtype

STASH_COST = 8
"""Flops above which a value is kept between the passes over a row rather than computed again."""
NEAR = "at * pitch + b"
"""Index of an element in a packed block."""


class Near(NamedTuple):
    """An input or a value kept in a packed block; ``offset`` counts bytes an element."""

    name: str
    ctype: str
    itemsize: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stashes:
    """The values that are kept.

    Attributes
    ----------
    values : set of int
    output : Array or None
        The output that holds the only one.
    near : mapping of str to Near
        What is packed, by the name of the array or value.
    """

    values: frozenset[int] = frozenset()
    output: Array | None = None
    near: Mapping[str, Near] = field(default_factory=dict)

    @property
    def bytes_packed(self) -> int:
        """Bytes of the packed block for each of its elements."""
        return _bytes_of(self.near)


def stash_in_rows(values: ReduceValues) -> Stashes:
    """Values in buffers of a row."""
    return Stashes(_worth_keeping(values))


def stash_in_output(values: ReduceValues) -> Stashes:
    """A value in an output, if it is the only one and no pass from the one that makes it on reads the same memory."""
    chosen = _worth_keeping(values)
    output = next((array for array in values.kernel.outputs if _can_hold(values, chosen, array)), None)
    return Stashes() if output is None else Stashes(chosen, output)


def stash_packed(values: ReduceValues, along: Collection[str]) -> Stashes:
    """Values, and the inputs ``along`` memory that several passes read, in a packed block."""
    chosen = _worth_keeping(values)
    return Stashes(chosen, near=_near(values, chosen, along))


def _worth_keeping(values: ReduceValues) -> frozenset[int]:
    """Values that one pass computes and a later one would compute again, where keeping them costs less."""
    kept: set[int] = set()
    before: set[int] = set()
    for args in values.wanted():
        here: set[int] = set()
        stack = values.computed(args)
        while stack:
            index = stack.pop()
            if index in here or index in kept or values.is_row_value(index):
                continue
            if index in before and _cost(values, index) >= STASH_COST:
                kept.add(index)
                continue
            here.add(index)
            stack += values.computed(values.by_index[index].args)
        before |= here
    return frozenset(kept)


def _cost(values: ReduceValues, index: int) -> int:
    """Flops of computing value ``index`` from memory and row values; counted no further than needed."""
    total, stack = 0, [index]
    while stack and total < STASH_COST:
        value = values.by_index[stack.pop()]
        total += value.spec.flops
        stack += [below for below in values.computed(value.args) if not values.is_row_value(below)]
    return total


def _reached(values: ReduceValues, args: Sequence[Arg], stops: Collection[int]) -> Iterator[Arg]:
    """What a pass over ``args`` reads and computes, each once, but not what values in ``stops`` are made of."""
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


def _can_hold(values: ReduceValues, stashes: Collection[int], output: Array) -> bool:
    """True if ``output`` can keep the only stash."""
    if len(stashes) != 1 or not values.covers(output):
        return False
    (index,) = stashes
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


def _near(values: ReduceValues, stashes: Collection[int], along: Collection[str]) -> dict[str, Near]:
    """Places in the packed block.

    A stash takes the place of an input that no later pass reads, since it is made where that is read last.
    """
    readers: dict[str, list[int]] = {}
    makers: dict[int, int] = {}
    known = frozenset(filter(values.is_row_value, values.by_index))
    for number, args in enumerate(values.wanted()):
        reached = list(_reached(values, args, known | makers.keys()))
        for array in filter(None, map(values.kernel.find, reached)):
            if array.name in along:
                readers.setdefault(array.name, []).append(number)
        makers |= {index: number for index in stashes - makers.keys() if ValueArg(index) in reached}
    near: dict[str, Near] = {}
    for array in values.kernel.inputs:
        if len(readers.get(array.name, [])) > 1:
            near[array.name] = Near(array.name, array.ctype, array.dtype.itemsize, _bytes_of(near))
    free = {name: readers[name][-1] for name in near}
    for index, maker in sorted(makers.items()):
        dtype = compute_dtype(values.by_index[index].dtype)
        ctype = type_of(dtype)
        place = next((n for n in free if free[n] <= maker and near[n].ctype == ctype), "")
        offset = near[place].offset if place else _bytes_of(near)
        free.pop(place, None)
        near[f"v{index}"] = Near(f"v{index}", ctype, dtype.itemsize, offset)
    return near


def _bytes_of(near: Mapping[str, Near]) -> int:
    return max((one.offset + one.itemsize for one in near.values()), default=0)
