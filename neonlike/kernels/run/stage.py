"""What the stages of every engine share: one run of a plan, the arrays a stage reads in it and those it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, Perm, Value, ValueArg
from neonlike.kernels.planning.plan import Plan, Store
from neonlike.kernels.run.convert import converter
from neonlike.kernels.run.memory import aligned_empty
from neonlike.optree.dtypes import DType, compute_dtype
from neonlike.optree.npfuncs import Array
from neonlike.optree.shapes import Shape

Mask: TypeAlias = tuple[bool, ...]
"""Which axes of a stage's space an array has; along the others it is broadcast."""


@dataclass(frozen=True, slots=True)
class Source:
    """An input array: ``kind`` is "leaf" (slot), "temp" or "acc" (value index)."""

    kind: str
    index: int
    perm: Perm
    mask: Mask
    dtype: DType


class Run:
    """One execution of a plan: the arrays it reads and writes.

    Attributes
    ----------
    temps : dict
        Values in memory, by index.
    results : dict
        All results of each compound primitive, as tensors, by the index of its value; there once one has run.
    """

    __slots__ = ("graph", "results", "temps")
    results: dict[int, list[Any]]

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.temps: dict[int, Array] = {}

    def attrs(self, node: int) -> dict[str, Any]:
        """Attributes of a node in this run."""
        return self.graph.nodes[node].attrs or {}

    def array(self, source: Source, ndim: int) -> Array:
        """The array behind ``source``, with at least ``ndim`` axes."""
        array: Array = self.graph.leaves[source.index].array if source.kind == "leaf" else self.temps[source.index]
        if source.perm is not None:
            array = array.transpose(source.perm)
        return array if array.ndim >= ndim else array[(None,) * (ndim - array.ndim)]


def buffer_key(target: int) -> int:
    """Key in ``Run.temps`` of the array that stands in for a target still to be read."""
    return -1 - target


StageFunction: TypeAlias = Callable[[Run], None]


# What a stage reads -----------------------------------------------------------------------------------------------


def mask_of(shape: Shape, ndim: int) -> Mask:
    """Which of ``ndim`` axes ``shape``, aligned on the last, really has."""
    return (False,) * (ndim - len(shape)) + tuple([size != 1 for size in shape])


def leaf_types(graph: Graph) -> list[tuple[Shape, DType]]:
    """Shape and dtype of each leaf."""
    return [(leaf.shape, leaf.dtype) for leaf in graph.leaves]


def input_of(
    plan: Plan, leaves: Sequence[tuple[Shape, DType]], arg: Arg, ndim: int, boundary: Mapping[int, str]
) -> Source:
    """The array that ``arg`` reads, in a space of ``ndim`` axes; ``boundary`` says of what kind values are."""
    if isinstance(arg, LeafArg):
        shape, dtype = leaves[arg.slot]
        permuted = shape if arg.perm is None else tuple(shape[i] for i in arg.perm)
        return Source("leaf", arg.slot, arg.perm, mask_of(permuted, ndim), dtype)
    assert isinstance(arg, ValueArg)
    value = plan.values[arg.value]
    shape = value.shape if arg.perm is None else tuple(value.shape[i] for i in arg.perm)
    kind = boundary.get(arg.value, "temp")
    return Source(kind, arg.value, arg.perm, mask_of(shape, ndim), compute_dtype(value.dtype))


def inputs_of(plan: Plan, graph: Graph, value: Value) -> list[Source]:
    """The arrays that the operands of ``value`` are, which a stage of its own reads whole."""
    leaves = leaf_types(graph)
    return [input_of(plan, leaves, arg, len(value.shape), {}) for arg in value.args]


# What a stage writes ----------------------------------------------------------------------------------------------


def result_array(run: Run, value: Value, dtype: DType, direct: Store | None) -> Array:
    """Where a product or a move writes: the target of ``direct``, or a temporary."""
    found = aligned_empty(value.source.of(run.graph), dtype) if direct is None else destination(run, direct)
    run.temps[value.index] = found
    return found


def destination(run: Run, store: Store) -> Array:
    """Where ``store`` goes: its target, or a new array that stands in for a target still to be read."""
    target = run.graph.targets[store.target]
    array: Array = target.array
    if store.buffered:
        array = run.temps[buffer_key(store.target)] = aligned_empty(target.shape, target.dtype)
    return array


def store_result(run: Run, result: Array, stores: list[Store]) -> None:
    """Convert ``result`` into the destinations of ``stores``, which are there already."""
    for store in stores:
        target = run.graph.targets[store.target]
        out = run.temps[buffer_key(store.target)] if store.buffered else target.array
        converter(target.dtype)(result, out)


class CopyBack:
    """The end of a run for a target that was still read: its values move from the array that stood in for it."""

    def __init__(self, target: int) -> None:
        self.target = target

    def run(self, run: Run) -> None:
        """Copy."""
        np.copyto(run.graph.targets[self.target].array, run.temps[buffer_key(self.target)])

    def bind(self, run: Run) -> Callable[[], None]:
        """The copy on the arrays of ``run``."""
        return partial(np.copyto, run.graph.targets[self.target].array, run.temps[buffer_key(self.target)])
