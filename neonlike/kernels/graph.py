"""Step 2 of a run: an assignment's expression graph as lists, and the key of its plan.

The key holds structure, aliasing, dtypes, which sizes are 1 and which are equal, and contiguity; no sizes, no
addresses, no values of numbers. Two assignments with equal keys run the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from neonlike.errors import AliasError, ShapeError
from neonlike.optree.node import OpTreeNode
from neonlike.optree.shapes import FREE, Shape, stretches_to

NUMBER_FLOAT = 1 << 24
NUMBER_INT = 2 << 24
"""References: a node is its index i >= 0, a leaf k is -1-k, number s is NUMBER_FLOAT + s or NUMBER_INT + s."""

Key: TypeAlias = tuple[Any, ...]


class Leaf(Protocol):
    """What the planner needs to know of a tensor."""

    @property
    def shape(self) -> Shape: ...

    @property
    def plan_key(self) -> int: ...

    def alias_of(self, other: Any) -> int:
        """0 no shared memory, 1 exactly the same elements, 2 any other overlap."""
        ...


class Graph:
    """Distinct nodes in post-order, the leaves and numbers they use, and the assigned targets.

    Attributes
    ----------
    nodes, args : lists, one entry a node
        ``args[i]`` are references (see ``NUMBER_FLOAT``).
    leaves, numbers : lists
    roots : list of references, one a target
    targets : list of tensors
    key : tuple
    """

    __slots__ = ("args", "key", "leaves", "nodes", "numbers", "roots", "targets")

    def __init__(self, targets: list[Any]) -> None:
        self.nodes: list[OpTreeNode] = []
        self.args: list[tuple[int, ...]] = []
        self.leaves: list[Any] = []
        self.numbers: list[Any] = []
        self.roots: list[int] = []
        self.targets = targets
        self.key: Key = ()


def linearize(pairs: Sequence[tuple[Any, Any]]) -> Graph:
    """List the graph of ``pairs`` (target, expression) and compute its key.

    Raises
    ------
    ShapeError
        If an expression does not broadcast to its target.
    AliasError
        If two targets share memory.
    """
    graph = Graph([target for target, _ in pairs])
    memo: dict[int, int] = {}
    key: list[Any] = []
    for target, root in pairs:
        shape = root.shape if hasattr(root, "shape") else (1, 1)
        if shape != target.shape and shape is not FREE and not stretches_to(shape, target.shape):
            raise ShapeError(
                f"assignment: cannot store {shape} in a tensor of shape {target.shape}: {_short(root)}; "
                "sizes must be equal or 1"
            )
        reference = memo.get(id(root))
        if reference is None:
            reference = _reference(root, graph, memo, key) if not isinstance(root, OpTreeNode) else None
        if reference is None:
            _walk(root, graph, memo, key)
            reference = memo[id(root)]
        graph.roots.append(reference)
    _finish_key(graph, key)
    return graph


def _short(root: Any) -> str:
    text = str(root)
    return text if len(text) < 120 else text[:117] + "..."


def _walk(root: OpTreeNode, graph: Graph, memo: dict[int, int], key: list[Any]) -> None:
    """Append ``root``'s nodes to ``graph`` in post-order. Iterative: chains of thousands of nodes are fine."""
    nodes, all_args = graph.nodes, graph.args
    stack = [root]
    while stack:
        node = stack[-1]
        identity = id(node)
        if identity in memo:
            stack.pop()
            continue
        attrs = node.attrs
        if attrs is not None and "value" in attrs:  # a tree of numbers
            stack.pop()
            memo[identity] = NUMBER_FLOAT + len(graph.numbers)
            graph.numbers.append(attrs["value"])
            continue
        depth = len(stack)
        for operand in node.operands[::-1]:
            if operand.__class__ is OpTreeNode and id(operand) not in memo:
                stack.append(operand)
        if len(stack) > depth:
            continue
        references = tuple(
            [
                memo[id(operand)]
                if operand.__class__ not in _NUMBERS and id(operand) in memo
                else _reference(operand, graph, memo, key)
                for operand in node.operands
            ]
        )
        stack.pop()
        memo[identity] = len(nodes)
        nodes.append(node)
        all_args.append(references)
        key.append(node.spec.name)
        key.append(references)
        if attrs is not None:
            for name in node.spec.keyed:
                key.append(attrs[name])


_NUMBERS = frozenset((int, float, bool))


def _reference(operand: Any, graph: Graph, memo: dict[int, int], key: list[Any]) -> int:
    """Reference of a leaf or a number, added to ``graph``."""
    kind = operand.__class__
    if kind in _NUMBERS or isinstance(operand, (int, float)):
        base = NUMBER_FLOAT if isinstance(operand, float) else NUMBER_INT
        graph.numbers.append(operand)
        return base + len(graph.numbers) - 1
    reference = -1 - len(graph.leaves)
    graph.leaves.append(operand)
    memo[id(operand)] = reference
    key.append(operand.plan_key)
    return reference


def _finish_key(graph: Graph, key: list[Any]) -> None:
    """Add targets, aliasing and the pattern of equal sizes to the key."""
    targets, leaves = graph.targets, graph.leaves
    first = targets[0].shape
    uniform = True
    for position, target in enumerate(targets):
        key.append(graph.roots[position])
        key.append(target.plan_key)
        for leaf in leaves:
            key.append(1 if leaf is target else leaf.alias_of(target))
        for other in targets[:position]:
            if other is target or other.alias_of(target):
                raise AliasError(
                    f"assignment: targets {other} and {target} share memory, so the result depends on the order; "
                    "assign them one after the other"
                )
    for leaf in leaves:
        if leaf.shape != first:
            uniform = False
            break
    if not uniform or len(targets) > 1:
        key.append(_size_pattern(graph))
    graph.key = tuple(key)


def _size_pattern(graph: Graph) -> Key:
    """Sizes renamed by first appearance (1 stays 1): equal patterns broadcast and fuse alike."""
    names: dict[int, int] = {1: -1}
    pattern = [
        tuple([names.setdefault(size, len(names)) for size in thing.shape])
        for thing in (*graph.targets, *graph.leaves)
    ]
    pattern += [
        tuple([names.setdefault(size, len(names)) for size in node.shape])
        for node in graph.nodes
        if node.attrs is not None and node.spec.name in _SIZED
    ]
    return tuple(pattern)


_SIZED = frozenset(("broadcast", "untake", "view", "unview"))
