"""Data of a plan: the stages of an assignment, each of which becomes one kernel.

A plan knows no device. A :class:`Stage` is

* ELEMENTWISE: one pass over a space;
* REDUCE: several passes over one space and one set of axes (softmax: max, sum of exp, divide);
* CONTRACTION: a matrix product; an elementwise stage that consumes only its result is its epilogue;
* MOVE: a gather, scatter, window, concatenation, scan or sort;
* CALL: a compound primitive of the backend, or one of its results.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, ShapeSource, Value, ValueArg
from neonlike.optree.ops import Kind
from neonlike.optree.shapes import Shape, reduced


class StageKind(Enum):
    """Loop structure of a stage."""

    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    CONTRACTION = "contraction"
    MOVE = "move"
    CALL = "call"


UNFUSED = {
    Kind.CONTRACTION: StageKind.CONTRACTION,
    Kind.MOVE: StageKind.MOVE,
    Kind.CALL: StageKind.CALL,
    Kind.SCAN: StageKind.MOVE,
}
"""Kinds of ops that read whole operands from memory and do not fuse, with their stage kinds."""


@dataclass(slots=True)
class Store:
    """A result of a stage written to a target, through a temporary while the target is still read (``buffered``).

    If ``shared``, later stages read the value from the target, so that it needs no temporary.
    """

    target: int
    arg: Arg
    buffered: bool = False
    shared: bool = False


@dataclass(slots=True)
class Stage:
    """One kernel.

    Attributes
    ----------
    space, shape
        The iteration space: its source, and its shape in the planning run.
    axes : reduced axes of a REDUCE stage
    values : list of int
        Values computed here, in topological order.
    saved : list of int
        Values written to temporaries for later stages.
    stores : list of Store
    reason : str
        Reason for a separate stage.
    epilogue : bool
        True for an elementwise stage that continues the preceding product.
    """

    index: int
    kind: StageKind
    space: ShapeSource
    shape: Shape
    reason: str
    axes: tuple[int, ...] = ()
    values: list[int] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    epilogue: bool = False

    @property
    def reduced_shape(self) -> Shape:
        """The space with reduced axes 1."""
        return reduced(self.shape, self.axes)

    @property
    def writes_targets_only(self) -> bool:
        """Whether no later stage reads the results of this one."""
        return not self.saved and not any(store.buffered or store.shared for store in self.stores)


@dataclass(slots=True)
class Plan:
    """Values and stages, in order, for one key; independent of the planning run."""

    values: list[Value]
    stages: list[Stage]
    executable: dict[str, Any] = field(default_factory=dict)
    """Executable stages, each engine's under its name, and other facts that are found once for the plan."""
    spent: list[tuple[int, ...]] = field(default_factory=list)
    """For each stage, and each final copy of a run, the values in memory that are not read afterwards."""
    sizes: tuple[Shape, ...] = ()
    """Sizes of the graph that it was made of, which shapes of values and stages are for."""

    def __post_init__(self) -> None:
        last: dict[int, int] = {}
        for stage in self.stages:
            args = [arg for index in stage.values for arg in self.values[index].args]
            args += [store.arg for store in stage.stores]
            read = [arg.value for arg in args if isinstance(arg, ValueArg)]
            last.update(dict.fromkeys([*read, *stage.values], stage.index))
        copies = sum(store.buffered for stage in self.stages for store in stage.stores)
        after: list[list[int]] = [[] for _ in range(len(self.stages) + copies)]
        for value, position in last.items():
            after[position].append(value)
        self.spent = [tuple(values) for values in after]

    def kept(self, stage: Stage) -> list[int]:
        """Values of ``stage`` that other stages read: excludes a product's or move's result that is only stored."""
        others = [other for other in self.stages if other is not stage]
        args = [arg for other in others for index in other.values for arg in self.values[index].args]
        args += [store.arg for other in others for store in other.stores]
        read = {arg.value for arg in args if isinstance(arg, ValueArg)}
        return [index for index in stage.saved if index in read]


def is_unfused(value: Value) -> bool:
    """True for ops that read whole operands from memory."""
    if value.spec.name == "broadcast":
        return False
    return value.spec.kind in UNFUSED


def reads_any_index(graph: Graph, values: list[Value], value: Value) -> bool:
    """True if ``value`` gathers or scatters with indices that may be out of range.

    Indices from an ``argsort`` along the same axis, of the same size, never are.

    Parameters
    ----------
    graph : Graph
    values : list of Value
        Those of the plan.
    value : Value
    """
    name = value.spec.name
    if name in ("take", "untake", "classes"):
        return True
    if name not in ("take_along", "untake_along"):
        return False
    places, axis = value.args[1], graph.nodes[value.node].attrs["axis"]  # type: ignore[index]
    if not isinstance(places, ValueArg) or places.perm is not None or values[places.value].spec.name != "argsort":
        return True
    order = graph.nodes[values[places.value].node]
    long = value.shape if name == "untake_along" else graph.nodes[value.node].operands[0].shape
    return bool(order.attrs["axis"] != axis or order.operands[0].shape[axis] != long[axis])  # type: ignore[index]


def pass_depths(values: Sequence[Value], settled: Collection[int] = ()) -> dict[int, int]:
    """For each value of a stage, the number of passes over the reduced axes before it is known, including its own.

    Reductions in ``settled`` need no pass: they follow from others.
    """
    depth: dict[int, int] = {}
    for value in values:
        below = max([depth.get(arg.value, 0) for arg in value.args if isinstance(arg, ValueArg)], default=0)
        depth[value.index] = below + (value.spec.kind is Kind.REDUCTION and value.index not in settled)
    return depth
