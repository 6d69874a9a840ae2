"""A stage of a plan as engines execute it: what it can do, one run of a plan, what a stage reads and writes in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, Perm, Value, ValueArg
from neonlike.kernels.planning.plan import Plan, Stage, Store
from neonlike.kernels.run.convert import converter
from neonlike.kernels.run.reuse import pieces
from neonlike.optree.dtypes import DType, compute_dtype
from neonlike.optree.npfuncs import Array
from neonlike.optree.shapes import Shape

Mask: TypeAlias = tuple[bool, ...]
"""Which axes of a stage's space an array has; along the others it is broadcast."""


@dataclass(frozen=True, slots=True)
class Input:
    """An array that a stage reads: ``kind`` is "leaf" (slot), "temp" or "acc" (value index)."""

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

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.temps: dict[int, Any] = {}
        self.results: dict[int, list[Any]] = {}

    def empty(self, shape: Shape, dtype: DType) -> Any:
        """A temporary: contiguous, its elements undefined.

        Raises
        ------
        OutOfMemory
        """
        return pieces.empty(shape, dtype)

    def attrs(self, node: int) -> dict[str, Any]:
        """Attributes of a node in this run."""
        return self.graph.nodes[node].attrs or {}

    def array(self, read: Input, ndim: int) -> Array:
        """The array behind ``read``, with at least ``ndim`` axes."""
        array: Array = self.graph.leaves[read.index].array if read.kind == "leaf" else self.temps[read.index]
        if read.perm is not None:
            array = array.transpose(read.perm)
        return array if array.ndim >= ndim else array[(None,) * (ndim - array.ndim)]


class Layouts(Run):
    """How the arrays of a run would lie: as :class:`Run`, but its temporaries have no memory, so nothing can run."""

    __slots__ = ()

    def empty(self, shape: Shape, dtype: DType) -> Any:
        """Where a temporary would be; nothing is allocated."""
        return ArrayLayout(shape, dtype)


class ExecutableStage(Protocol):
    """One stage of a plan on an engine: made once, executed on the tensors of any graph that has the plan's key."""

    def run(self, run: Run) -> None:
        """Execute the stage, or queue it on a device; compiles what is not compiled yet."""
        ...

    def bind(self, run: Run) -> Callable[[], None] | None:
        """The stage on the arrays of ``run``, to be called again and again; None if it has to look each time.

        What it writes is allocated now. Stages are bound in the order of the plan.
        """
        return None

    def ready(self, run: Run) -> Callable[[], object]:
        """A callable that executes the stage once. One that can allocates and compiles now, so that a clock may start.

        Stages are made ready in the order of the plan.
        """
        return partial(self.run, run)

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """The kernels that the stage would run on arrays that lie like these; none where there is no kernel of its own.

        Follows from shapes, strides, dtypes and alignment alone: it allocates nothing and needs no device. How the
        temporaries that it writes would lie is left in ``layouts``: ask the stages of a plan in their order.
        """
        ...

    def factors(self, layouts: Layouts) -> str:
        """The precision of factors that the stage multiplies, after :meth:`sources`; empty: no product, or unknown."""
        return ""


def buffer_key(target: int) -> int:
    """Key in ``Run.temps`` of the array that stands in for a target still to be read."""
    return -1 - target


# What a stage reads -----------------------------------------------------------------------------------------------


def mask_of(shape: Shape, ndim: int) -> Mask:
    """A mask of the ``ndim`` axes that ``shape``, aligned on the last, really has."""
    return (False,) * (ndim - len(shape)) + tuple([size != 1 for size in shape])


def leaf_types(graph: Graph) -> list[tuple[Shape, DType]]:
    """Shape and dtype of each leaf."""
    return [(leaf.shape, leaf.dtype) for leaf in graph.leaves]


def input_of(
    plan: Plan, leaves: Sequence[tuple[Shape, DType]], arg: Arg, ndim: int, boundary: Mapping[int, str]
) -> Input:
    """The array that ``arg`` reads, in a space of ``ndim`` axes; ``boundary`` says of what kind values are.

    Parameters
    ----------
    plan : Plan
    leaves : sequence of (shape, dtype)
    arg : Arg
    ndim : int
    boundary : mapping
        Kinds by numbers of values.
    """
    if isinstance(arg, LeafArg):
        shape, dtype = leaves[arg.slot]
        permuted = shape if arg.perm is None else tuple(shape[i] for i in arg.perm)
        return Input("leaf", arg.slot, arg.perm, mask_of(permuted, ndim), dtype)
    assert isinstance(arg, ValueArg)
    value = plan.values[arg.value]
    shape = value.shape if arg.perm is None else tuple(value.shape[i] for i in arg.perm)
    kind = boundary.get(arg.value, "temp")
    return Input(kind, arg.value, arg.perm, mask_of(shape, ndim), compute_dtype(value.dtype))


def inputs_of(plan: Plan, graph: Graph, value: Value) -> list[Input]:
    """The arrays that the operands of ``value`` are, which a stage of its own reads whole.

    Parameters
    ----------
    plan : Plan
    graph : Graph
    value : Value
    """
    leaves = leaf_types(graph)
    return [input_of(plan, leaves, arg, len(value.shape), {}) for arg in value.args]


# What a stage writes ----------------------------------------------------------------------------------------------


def loop_outputs(plan: Plan, stage: Stage, run: Run) -> list[Any]:
    """Arrays for the saved values and the stores of a loop; temporaries are made unless they are there.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    run : Run
    """
    outputs: list[Any] = []
    for index in stage.saved:
        if index not in run.temps:
            value = plan.values[index]
            run.temps[index] = run.empty(value.source.of(run.graph), compute_dtype(value.dtype))
        outputs.append(run.temps[index])
    for store in stage.stores:
        outputs.append(destination(run, store))
        if store.shared:
            assert isinstance(store.arg, ValueArg)
            run.temps[store.arg.value] = outputs[-1]
    return outputs


def destination(run: Run, store: Store) -> Any:
    """Where ``store`` goes: its target, or an array that stands in for a target still to be read."""
    target = run.graph.targets[store.target]
    if not store.buffered:
        return target.array
    key = buffer_key(store.target)
    if key not in run.temps:
        run.temps[key] = run.empty(target.shape, target.dtype)
    return run.temps[key]


def store_result(run: Run, result: Array, stores: list[Store]) -> None:
    """Convert ``result`` into the destinations of ``stores``, which are there already.

    Parameters
    ----------
    run : Run
    result : array
    stores : list of Store
    """
    for store in stores:
        target = run.graph.targets[store.target]
        out = run.temps[buffer_key(store.target)] if store.buffered else target.array
        converter(target.dtype)(result, out)


_ARGUMENTS = ("axis", "layout", "reverse", "descending")
"""Attributes that the functions of products, moves and scans take."""


class WholeOperandStage(ExecutableStage):
    """A product, a move or a scan, which reads whole operands: what it reads, and where its result goes.

    Attributes
    ----------
    direct : Store or None
        The target that is written as it is computed; without one, a temporary is.
    others : list of Store
        What the result is converted into afterwards.
    alone : bool
        Whether that is one target, and nobody reads the result in the dtype it is computed in.
    """

    def __init__(self, plan: Plan, stage: Stage, graph: Graph) -> None:
        (index,) = stage.values
        self.plan, self.stage = plan, stage
        self.value = value = plan.values[index]
        self.inputs = inputs_of(plan, graph, value)
        self.dtype: DType = compute_dtype(value.dtype)
        self.direct = next((s for s in stage.stores if not s.buffered and _exact(s, graph, self.dtype)), None)
        self.others = [store for store in stage.stores if store is not self.direct]
        self.alone = self.direct is None and len(self.others) == 1 and not plan.kept(stage)
        self.keys = [name for name in _ARGUMENTS if name in (graph.nodes[value.node].attrs or {})]

    def _allocate(self, run: Run) -> Any:
        """The array that the result goes to; temporaries that later stages read are made."""
        for store in self.others:
            destination(run, store)
        direct = self.direct
        out = run.empty(self.value.source.of(run.graph), self.dtype) if direct is None else destination(run, direct)
        run.temps[self.value.index] = out
        return out

    def _only_target(self, run: Run) -> Any:
        """The array of the only target, if nobody reads the result in the dtype it is computed in; else None."""
        return destination(run, self.others[0]) if self.alone else None


def _exact(store: Store, graph: Graph, dtype: DType) -> bool:
    """Whether ``store`` takes a result of ``dtype`` without a conversion, its axes in their order."""
    same = graph.targets[store.target].dtype == dtype
    return same and isinstance(store.arg, ValueArg) and store.arg.perm is None


class CopyBack(ExecutableStage):
    """The end of a run for a target that was still read: its values move from the array that stood in for it."""

    def __init__(self, target: int) -> None:
        self.target = target

    def run(self, run: Run) -> None:
        """Copy."""
        np.copyto(run.graph.targets[self.target].array, run.temps[buffer_key(self.target)])

    def bind(self, run: Run) -> Callable[[], None]:
        """The copy on the arrays of ``run``."""
        return partial(np.copyto, run.graph.targets[self.target].array, run.temps[buffer_key(self.target)])

    def sources(self, layouts: Layouts) -> list[KernelSource]:
        """None: a call of NumPy."""
        return []
