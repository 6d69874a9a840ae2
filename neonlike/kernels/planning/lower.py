"""Lowering: conversion of expression nodes to the planner's values.

Transposes disappear: they are pushed through elementwise ops and reductions down to the leaves, where a transpose is
only a view; the transpose of a product or a gather is a view of its result. Nodes with free shapes (``rand``,
``onehot``) get the shape of their use, and float64 if it is float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from neonlike.errors import ShapeError
from neonlike.kernels.planning.graph import NUMBER_FLOAT, Graph
from neonlike.optree.dtypes import F32, F64, DType, is_float
from neonlike.optree.ops import OPS, UNITS, Kind, OpSpec
from neonlike.optree.shapes import FREE, Shape, stretches_to

Perm: TypeAlias = "tuple[int, ...] | None"


@dataclass(frozen=True, slots=True)
class LeafArg:
    """Operand read from leaf ``slot``, with axes permuted by ``perm``."""

    slot: int
    perm: Perm = None


@dataclass(frozen=True, slots=True)
class NumberArg:
    """Operand that is number ``slot``; its value is a kernel argument."""

    slot: int


@dataclass(frozen=True, slots=True)
class ValueArg:
    """Operand that is another value; a permuted one is a view, and must be in memory."""

    value: int
    perm: Perm = None


Arg: TypeAlias = LeafArg | NumberArg | ValueArg


@dataclass(frozen=True, slots=True)
class ShapeSource:
    """Source of a shape when a plan runs: that of a node, of its first operand, or of a target, permuted."""

    kind: str  # "node", "operand" or "target"
    index: int
    perm: Perm = None

    def of(self, graph: Graph) -> Shape:
        """The shape in ``graph``."""
        if self.kind == "target":
            shape: Shape = graph.targets[self.index].shape
        else:
            node = graph.nodes[self.index]
            shape = node.shape if self.kind == "node" else node.operands[0].shape
        return shape if self.perm is None else tuple([shape[i] for i in self.perm])


@dataclass(slots=True)
class Value:
    """One op in the planner's graph.

    Attributes
    ----------
    node : int
        Index in ``Graph.nodes``; holds attributes that may change between runs (seeds, layouts).
    axes : tuple of int
        Reduced axes of a reduction, or the class axis of ``onehot``, in this value's axis order.
    perm : permutation or None
        Axis order relative to the node's.
    shape : tuple of int
        Shape in the planning run; only equality and 1s may be relied on.
    limits : list of (ShapeSource, int)
        For ``classes``: shapes of the uses, and their class axes.
    """

    index: int
    spec: OpSpec
    args: tuple[Arg, ...]
    node: int
    dtype: DType
    shape: Shape
    source: ShapeSource
    perm: Perm = None
    axes: tuple[int, ...] = ()
    users: list[int] = field(default_factory=list)
    limits: list[tuple[ShapeSource, int]] = field(default_factory=list)

    def limit(self, graph: Graph) -> int:
        """Number of classes: the bound for the values of ``classes``."""
        return min(source.of(graph)[axis] for source, axis in self.limits)


@dataclass(slots=True)
class Lowered:
    """Values in topological order, and the argument of each target."""

    values: list[Value]
    roots: list[Arg]


def lower(graph: Graph) -> Lowered:
    """Turn ``graph`` into values; see the module docstring."""
    needed = _needed_permutations(graph)
    where: dict[tuple[int, Perm], Arg] = {}
    values: list[Value] = []
    made: dict[Any, Arg] = {}
    for index in range(len(graph.nodes)):
        for perm in needed[index]:
            where[index, perm] = _lower_node(graph, index, perm, where, values, made)
    roots = [_arg(graph, reference, None, where) for reference in graph.roots]
    _resolve_free(graph, values, roots)
    return Lowered(values, roots)


def _identity(perm: Perm) -> Perm:
    return None if perm is None or perm == tuple(range(len(perm))) else perm


def _pushable(graph: Graph, index: int) -> bool:
    """True if a transpose of node ``index`` can be moved to its operands."""
    node = graph.nodes[index]
    kind = node.spec.kind
    if kind is Kind.ELEMENTWISE:
        ndim = len(node.shape)
        return all(
            not hasattr(operand, "shape") or operand.shape is FREE or len(operand.shape) == ndim or _is_value(operand)
            for operand in node.operands
        )
    return kind in (Kind.REDUCTION, Kind.ZERO) or node.spec.name == "transpose"


def _is_value(operand: Any) -> bool:
    return getattr(operand, "attrs", None) is not None and "value" in operand.attrs


def _child_permutation(graph: Graph, index: int, perm: Perm) -> Perm:
    """Permutation required of the operands if node ``index`` is computed as ``perm``."""
    node = graph.nodes[index]
    if node.spec.name == "transpose":
        axes: tuple[int, ...] = node.attrs["axes"]  # type: ignore[index]
        return _identity(axes if perm is None else tuple(axes[i] for i in perm))
    return perm if node.spec.kind is not Kind.MOVE and _pushable(graph, index) else None


def _needed_permutations(graph: Graph) -> list[list[Perm]]:
    """For each node, the required axis orders, users before operands."""
    needed: list[list[Perm]] = [[] for _ in graph.nodes]

    def ask(reference: int, perm: Perm) -> None:
        if 0 <= reference < NUMBER_FLOAT:
            if perm is not None and not _pushable(graph, reference):
                perm = None  # computed as it is, and read through a view
            if perm not in needed[reference]:
                needed[reference].append(perm)

    for reference in graph.roots:
        ask(reference, None)
    for index in range(len(graph.nodes) - 1, -1, -1):
        for perm in needed[index]:
            child = _child_permutation(graph, index, perm)
            for reference in graph.args[index]:
                ask(reference, child)
    return needed


def _arg(graph: Graph, reference: int, perm: Perm, where: dict[tuple[int, Perm], Arg]) -> Arg:
    """Argument for ``reference`` in axis order ``perm``."""
    if reference < 0:
        return LeafArg(-1 - reference, perm)
    if reference >= NUMBER_FLOAT:
        return NumberArg(reference & (NUMBER_FLOAT - 1))
    if perm is not None and not _pushable(graph, reference):
        plain = where[reference, None]
        assert isinstance(plain, ValueArg)
        return ValueArg(plain.value, perm)
    return where[reference, perm]


def _lower_node(
    graph: Graph,
    index: int,
    perm: Perm,
    where: dict[tuple[int, Perm], Arg],
    values: list[Value],
    made: dict[Any, Arg],
) -> Arg:
    """Value of a node; equal ops on equal operands share one value (``x - mean(x)``, ``var(x)``)."""
    node = graph.nodes[index]
    child = _child_permutation(graph, index, perm)
    args = tuple(_arg(graph, reference, child, where) for reference in graph.args[index])
    if node.spec.name == "transpose":
        return args[0]
    shape = node.shape if perm is None or node.shape is FREE else tuple(node.shape[i] for i in perm)
    axes: tuple[int, ...] = ()
    if node.attrs is not None and node.spec.kind in (Kind.REDUCTION, Kind.ZERO) and "axis" in node.attrs:
        axis = node.attrs["axis"]
        axes = axis if isinstance(axis, tuple) else (axis,)
        if perm is not None:
            axes = tuple(sorted(perm.index(a) for a in axes))
    same = (node.spec, args, axes, perm, shape, node.dtype)
    if node.spec.kind in _SHARED and shape is not FREE and same in made:
        return made[same]
    source = ShapeSource("node", index, perm)
    values.append(Value(len(values), node.spec, args, index, node.dtype, shape, source, perm, axes))
    made[same] = ValueArg(len(values) - 1)
    return made[same]


_SHARED = (Kind.ELEMENTWISE, Kind.REDUCTION)
"""Kinds of nodes that share a value if equal (common subexpressions)."""


def _resolve_free(graph: Graph, values: list[Value], roots: list[Arg]) -> None:
    """Give free values the shape of their use: the target, or the first user with a shape.

    Raises
    ------
    ShapeError
        If a free value is used with two shapes.
    """
    for target, root in enumerate(roots):
        if isinstance(root, ValueArg) and values[root.value].shape is FREE:
            place = graph.targets[target]
            _fix(values[root.value], place.shape, place.dtype, ShapeSource("target", target), graph)
    for user in reversed(values):
        for arg in user.args:
            if isinstance(arg, ValueArg) and graph.nodes[values[arg.value].node].shape is FREE:
                _fix(values[arg.value], user.shape, user.dtype, user.source, graph)
    for value in values:
        if value.spec is OPS["onehot"] and isinstance(arg := value.args[0], ValueArg):
            values[arg.value].limits.append((value.source, value.axes[0]))
    for target, root in enumerate(roots):
        if isinstance(root, ValueArg) and values[root.value].spec is OPS["rand"]:
            roots[target] = _narrowed(values, root, graph.targets[target].dtype)


def _narrowed(values: list[Value], root: ValueArg, dtype: DType) -> Arg:
    """Random numbers reduced to the mantissa bits of ``dtype``: rounding to 16 bits would give 1 for the largest."""
    if not is_float(dtype) or dtype.itemsize != 2:
        return root
    drawn = values[root.value]
    spec = UNITS[dtype.name]
    values.append(Value(len(values), spec, (root,), drawn.node, F32, drawn.shape, drawn.source, drawn.perm))
    return ValueArg(len(values) - 1)


def _fix(value: Value, shape: Shape, dtype: DType, source: ShapeSource, graph: Graph) -> None:
    if value.shape is not FREE and value.shape != shape:
        raise ShapeError(
            f"{value.spec.name}: used at two shapes, {value.shape} and {shape}; "
            "assign it to a tensor of the shape you mean first"
        )
    if value.spec.name == "onehot":
        indices: Shape = graph.nodes[value.node].operands[0].shape
        if value.perm is not None:
            indices = tuple(indices[i] for i in value.perm)
        if len(shape) != 2 or not stretches_to(indices, shape):
            raise ShapeError(
                f"onehot: indices of shape {indices} along axis {value.axes[0]} do not fit a use of shape {shape}; "
                "the other axis must have as many entries as there are indices"
            )
    value.shape = shape
    value.source = source
    if dtype == F64 and value.dtype == F32:
        value.dtype = F64
