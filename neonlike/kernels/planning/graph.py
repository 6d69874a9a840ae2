"""Step 3 of an assignment (docs/tour.md): its expression graph as lists, and the key of its plan.

The key holds structure, aliasing, dtypes, contiguity, and the sizes that are 1 or equal; no sizes, no addresses, no
values of numbers. Assignments with equal keys run the same plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from neonlike.checks import shown
from neonlike.errors import AliasError
from neonlike.optree.dtypes import compute_dtype, whole_as_float
from neonlike.optree.moves import drop_axes
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS, Kind
from neonlike.optree.shapes import FREE, Shape, ShapeTypeError, stretches_to

NUMBER_FLOAT = 1 << 24
NUMBER_INT = 2 << 24
NUMBER_UNSIGNED = 4 << 24
"""References: a node is its index i >= 0, leaf k is -1-k, and number s is NUMBER_FLOAT + s or NUMBER_INT + s, or
NUMBER_UNSIGNED + s for a whole number beyond int64 in uint64."""

MOST_WINDOWS = 64
"""Maximum number of parts that a concatenation assigns to windows; beyond it ``concat`` copies the parts."""

Key: TypeAlias = tuple[Any, ...]


class Leaf(Protocol):
    """Properties of a tensor that the planner needs."""

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        ...

    @property
    def plan_key(self) -> int:
        """Number of what a plan depends on: dtype, rank, sizes of 1 and contiguity."""
        ...

    @property
    def root(self) -> object | None:
        """Identity of the allocation; None for foreign memory, which may overlap anything."""
        ...

    def __getitem__(self, index: Any) -> Any: ...

    def alias_of(self, other: Any) -> int:
        """0 no shared memory, 1 exactly the same elements, 2 any other overlap."""
        ...


class Graph:
    """Distinct nodes in post-order, the leaves and numbers they use, and the assigned targets.

    Attributes
    ----------
    nodes, args : lists, one entry per node
        ``args[i]`` are references (see ``NUMBER_FLOAT``).
    leaves, numbers : lists
    roots : list of references, one per target
    targets : list of tensors
    assigned : list of tensors
        The tensors on the left-hand sides: the targets, except for a tensor written in windows (see
        :func:`_in_windows`).
    windows : list of int
        For each target the number of its assigned tensor; empty without windows.
    draws : list of int
        Slots in ``numbers`` of the calls of ``rand`` nodes, which are others in each run.
    sized : bool
        True if the shape of some node does not follow from its operands.
    fresh : bool
        True if the targets are discarded should the run fail, and none rounds stochastically.
    key : tuple
    text : str
        Description for people; created when a stage first needs it (``arrays.expression_text``).
    """

    __slots__ = (
        "args", "assigned", "draws", "fresh", "key", "leaves", "nodes", "numbers", "roots", "sized", "targets", "text",
        "windows",
    )  # fmt: skip

    def __init__(self, targets: list[Any]) -> None:
        self.nodes: list[OpTreeNode] = []
        self.args: list[tuple[int, ...]] = []
        self.leaves: list[Any] = []
        self.numbers: list[Any] = []
        self.roots: list[int] = []
        self.targets = self.assigned = targets
        self.windows: list[int] = []
        self.draws: list[int] = []
        self.sized = self.fresh = False
        self.key: Key = ()
        self.text = ""

    def layout(self) -> tuple[Any, ...]:
        """Shapes and strides of all tensors: with the plan's key, they determine kernels and their costs."""
        layout: list[Any] = [(tensor.shape, tensor.array.strides) for tensor in (*self.targets, *self.leaves)]
        if self.sized:
            layout += [node.shape for node in self.nodes]
        return tuple(layout)

    def sizes(self) -> tuple[Shape, ...]:
        """Shapes of all tensors, and of nodes where they do not follow from those."""
        shapes = [tensor.shape for tensor in (*self.targets, *self.leaves)]
        if self.sized:
            shapes += [node.shape for node in self.nodes]
        return tuple(shapes)

    def redraw(self, index: int, node: OpTreeNode) -> None:
        """Replace the ``rand`` node at ``index`` by ``node``, with its seed and call number for kernels."""
        assert node.attrs is not None
        seed, call = (reference & (NUMBER_FLOAT - 1) for reference in self.args[index])
        self.numbers[seed], self.numbers[call] = node.attrs["seed"], node.attrs["call"]
        self.nodes[index] = node


def linearize(pairs: Sequence[tuple[Any, Any]], fresh: bool = False) -> Graph:
    """List the graph of ``pairs`` (target, expression) and compute its key.

    ``fresh``: the targets are discarded should the run fail.

    Raises
    ------
    ShapeTypeError
        If an expression does not broadcast to its target.
    AliasError
        If two targets share memory.
    """
    graph = Graph([target for target, _ in pairs])
    graph.fresh = fresh and not any(target.rounding for target in graph.targets)
    for _, root in pairs:
        if root.__class__ is OpTreeNode and root.spec is _CONCAT:
            pairs = _in_windows(graph, pairs)
            break
    memo: dict[int, int] = {}
    key: list[Any] = []
    for target, root in pairs:
        if isinstance(root, Expression) and root.shape != target.shape:
            root = _fitted(root, target)
        if root.__class__ is OpTreeNode:
            found = memo.get(id(root))
            graph.roots.append(_visit(root, graph, memo, key, 0) if found is None else found)
        else:
            graph.roots.append(_leaf_or_number(root, graph, memo, key))
    _finish_key(graph, key)
    return graph


def _in_windows(graph: Graph, pairs: Sequence[tuple[Any, Any]]) -> Sequence[tuple[Any, Any]]:
    """Split each concatenation in ``pairs`` into assignments to windows of its target, which avoids a second copy.

    This requires that all parts are computed in the dtype of the whole, and at most ``MOST_WINDOWS`` parts; otherwise
    ``concat`` is a separate stage.
    """
    parts: list[tuple[Any, Any]] = []
    for number, pair in enumerate(pairs):
        of_one = list(_windows(*pair))
        parts += of_one
        graph.windows += [number] * len(of_one)
    if len(parts) == len(pairs):
        graph.windows = []
        return pairs
    graph.targets = [target for target, _ in parts]
    return parts


def _windows(target: Any, root: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs (window of ``target``, expression) that together assign ``root`` to ``target``."""
    operands = root.operands if root.__class__ is OpTreeNode and root.spec is _CONCAT else ()
    whole = compute_dtype(root.dtype) if operands else None
    fits = len(operands) <= MOST_WINDOWS and all(compute_dtype(part.dtype) == whole for part in operands)
    if not operands or not fits or not stretches_to(root.shape, target.shape):
        yield target, root
        return
    before = (slice(None),) * (root.attrs["axis"] + len(target.shape) - len(root.shape))
    if len(before) >= len(target.shape) or root.shape[root.attrs["axis"]] != target.shape[len(before)]:
        yield target, root
        return
    start = 0
    for part in operands:
        end = start + part.shape[root.attrs["axis"]]
        yield from _windows(target[(*before, slice(start, end))], part)
        start = end


def _fitted(root: Any, target: Any) -> Any:
    """Return ``root`` without leading axes that ``target`` lacks."""
    extra = len(root.shape) - len(target.shape)
    if root.shape is FREE:
        return root
    if stretches_to(root.shape, target.shape):
        return drop_axes(root, extra) if extra > 0 else root
    text = str(root)
    text = text if len(text) < 120 else text[:117] + "..."
    raise ShapeTypeError(
        f"assignment: cannot store {root.shape} in a tensor of shape {target.shape}: {text}; sizes must be equal or 1"
    )


def _visit(node: OpTreeNode, graph: Graph, memo: dict[int, int], key: list[Any], depth: int) -> int:
    """Append ``node``'s nodes to ``graph`` in post-order and return its reference.

    This is the hot path of assignments that Python runs: floats, tensors and elementwise nodes are handled inline.
    """
    references: list[int] = []
    for operand in node.operands:
        kind = operand.__class__
        if kind is float:
            numbers = graph.numbers
            references.append(NUMBER_FLOAT + len(numbers))
            numbers.append(operand)
            continue
        found = memo.get(id(operand))
        if found is None:
            if kind is OpTreeNode:
                shallow = depth < _DEEP
                found = _visit(operand, graph, memo, key, depth + 1) if shallow else _walk(operand, graph, memo, key)
            elif (part := getattr(operand, "plan_key", None)) is not None:
                leaves = graph.leaves
                found = memo[id(operand)] = -1 - len(leaves)
                leaves.append(operand)
                key.append(part)
            else:
                found = _number(operand, graph)
        references.append(found)
    if node.attrs is None and node.spec.kind is _ELEMENTWISE:
        args = tuple(references)
        nodes = graph.nodes
        reference = len(nodes)
        nodes.append(node)
        graph.args.append(args)
        key += (node.spec, args)
    else:
        reference = _add_node(node, references, graph, key)
    memo[id(node)] = reference
    return reference


def _walk(root: OpTreeNode, graph: Graph, memo: dict[int, int], key: list[Any]) -> int:
    """Iterative form of :func:`_visit`, for chains of thousands of nodes."""
    node, references, operands = root, list[int](), iter(root.operands)
    stack: list[tuple[OpTreeNode, list[int], Iterator[Any]]] = []
    while True:
        for operand in operands:
            if operand.__class__ is OpTreeNode:
                found = memo.get(id(operand))
                if found is None:
                    stack.append((node, references, operands))
                    node, references, operands = operand, [], iter(operand.operands)
                    break
                references.append(found)
            else:
                references.append(_leaf_or_number(operand, graph, memo, key))
        else:
            reference = memo[id(node)] = _add_node(node, references, graph, key)
            if not stack:
                return reference
            node, references, operands = stack.pop()
            references.append(reference)


def _add_node(node: OpTreeNode, references: list[int], graph: Graph, key: list[Any]) -> int:
    args, attrs = tuple(references), node.attrs
    if attrs is not None and "value" in attrs:  # a tree of numbers
        graph.numbers.append(attrs["value"])
        return NUMBER_FLOAT + len(graph.numbers) - 1
    if node.spec is _RAND:
        args = _draw(node, graph)
        key.append(node.dtype.char)
    graph.nodes.append(node)
    graph.args.append(args)
    key.append(node.spec)
    key.append(args)
    if attrs is not None:
        for name in node.spec.keyed:
            key.append(attrs[name])
    if node.spec.kind in _RESHAPING:
        graph.sized = True
    return len(graph.nodes) - 1


def _draw(node: OpTreeNode, graph: Graph) -> tuple[int, int]:
    """References to seed and call of a ``rand`` node, stored as numbers because they change between runs."""
    assert node.attrs is not None
    slot = len(graph.numbers)
    graph.numbers += (node.attrs["seed"], node.attrs["call"])
    graph.draws.append(slot + 1)
    return NUMBER_INT + slot, NUMBER_INT + slot + 1


def _leaf_or_number(operand: Any, graph: Graph, memo: dict[int, int], key: list[Any]) -> int:
    """Return the reference of a tensor or number, adding it to ``graph``."""
    try:
        part = operand.plan_key
    except AttributeError:
        return _number(operand, graph)
    found = memo.get(id(operand))
    if found is None:
        found = memo[id(operand)] = -1 - len(graph.leaves)
        graph.leaves.append(operand)
        key.append(part)
    return found


def _number(value: int | float, graph: Graph) -> int:
    slot = len(graph.numbers)
    if isinstance(value, int) and not -(2**63) <= value < 2**64:  # only beside floats; integers would have raised
        value = whole_as_float("assignment", value)
    graph.numbers.append(value)
    if isinstance(value, float):
        return NUMBER_FLOAT + slot
    return (NUMBER_INT if value < 2**63 else NUMBER_UNSIGNED) + slot


def _finish_key(graph: Graph, key: list[Any]) -> None:
    """Add targets, aliasing and the pattern of equal sizes to the key."""
    targets, leaves = graph.targets, graph.leaves
    first = targets[0].shape
    uniform = len(targets) == 1 and not graph.sized
    for position, target in enumerate(targets):
        root = target.root
        key += (graph.roots[position], target.plan_key)
        for leaf in leaves:
            if leaf.shape != first:
                uniform = False
            if leaf is target:
                key.append(1)
            elif (own := leaf.root) is root or own is None or root is None:
                key.append(leaf.alias_of(target))
            else:
                key.append(0)
        if position:
            _refuse_overlap(targets, position, graph.windows)
    if not uniform:
        key.append(_size_pattern(graph))
    if graph.fresh:
        key.append("fresh")
    graph.key = tuple(key)


def _refuse_overlap(targets: list[Any], position: int, windows: list[int]) -> None:
    target = targets[position]
    for place, other in enumerate(targets[:position]):
        separate = other.root is not target.root and other.root is not None and target.root is not None
        if windows and windows[place] == windows[position]:
            continue  # windows of one target are disjoint
        if other is target or (not separate and other.alias_of(target)):
            raise AliasError(
                f"assignment: targets {shown(other)} and {shown(target)} share memory, so the result depends on the "
                "order; assign them one after the other"
            )


def _size_pattern(graph: Graph) -> Key:
    """Sizes renamed by first appearance (1 stays 1): equal patterns broadcast and fuse alike."""
    shapes = [thing.shape for thing in graph.targets]
    shapes += [thing.shape for thing in graph.leaves]
    if graph.sized:
        sized = [n for n in graph.nodes if n.attrs is not None]
        shapes += [n.shape for n in sized if n.spec.name in _SIZED or n.spec.kind is Kind.CALL]
    key = tuple(shapes)
    pattern = _patterns.get(key)
    if pattern is None:
        names: dict[int, int] = {1: -1}
        pattern = tuple([tuple([names.setdefault(size, len(names)) for size in shape]) for shape in key])
        if len(_patterns) >= 4096:
            _patterns.clear()
        _patterns[key] = pattern
    return pattern


_patterns: dict[tuple[Shape, ...], Key] = {}
_DEEP = 50
"""Depth at which the recursive :func:`_visit` hands over to the iterative :func:`_walk`."""
_ELEMENTWISE = Kind.ELEMENTWISE
_RAND, _CONCAT = OPS["rand"], OPS["concat"]
_RESHAPING = frozenset((Kind.MOVE, Kind.CONTRACTION, Kind.CALL, Kind.SCAN))
"""Kinds with other axes in results than in operands: fusion then depends on the equality of sizes."""
_SIZED = frozenset(("broadcast", "untake", "untake_along", "view", "unview", "argsort"))
"""Ops with shapes that do not follow from their operands, so that the key needs the pattern of sizes."""
