"""``expression[index]`` and ``expression.reshape(...)``: nodes for a part or another shape of an expression.

Their meaning is that of a tensor with the same values (:mod:`.indexing`). A ``view`` node copies a window out of
memory, so it is pushed towards the tensors if that is cheaper: ``(a + b)[0]`` becomes ``a[0] + b[0]``, one kernel that
reads one row. It is not pushed through a gather, through a product or reduction that would hardly shrink, through
random numbers, which would differ in a smaller shape, or where it would repeat too many ops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from neonlike.checks import brief
from neonlike.errors import ShapeError
from neonlike.optree import moves, shapes
from neonlike.optree.indexing import select
from neonlike.optree.node import Expression, OpTreeNode, is_number
from neonlike.optree.ops import Kind
from neonlike.optree.shapes import FREE, Shape
from neonlike.optree.truth import as_mask

MOST_NODES = 12
"""Maximum number of nodes created by pushing one window down; beyond it the whole expression is computed, then cut."""
DEEPEST = 100
"""Maximum depth of nodes that a window or a reshape is pushed through, by recursive calls."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The positions ``start``, ``start + step``, ... of one axis; without ``kept`` the axis is dropped."""

    start: int
    step: int
    count: int
    kept: bool = True

    def of(self, inner: Pick) -> Pick:
        """Compose these positions with those of ``inner``."""
        return Pick(inner.start + inner.step * self.start, inner.step * self.step, self.count, self.kept)

    def is_all(self, size: int) -> bool:
        """Whether these are all ``size`` positions of an axis, in order."""
        return self == Pick(0, 1, size)

    def as_index(self) -> Any:
        """The positions as an index for a tensor's ``[]``."""
        if not self.kept:
            return self.start
        stop = self.start + self.step * self.count
        return slice(self.start, stop if stop >= 0 else None, self.step) if self.count else slice(0, 0)


Picks = tuple[Pick, ...]


def index(node: Expression, key: Any, moved: bool = True) -> Expression:
    """``node[key]`` as an expression: the elements of ``tensor[key]`` for a tensor of that shape.

    If not ``moved``, the window stays on top of ``node``.

    Parameters
    ----------
    node : expression
    key : index
        As of a tensor's ``[]``.
    moved : bool
        Push the window down to the tensors.

    Raises
    ------
    IndexRangeError
        If an integer is out of range, or there are too many indices, ellipses or lists.
    IndexTypeError
        If an index is not an integer, slice, ellipsis, list, array or integer tensor.
    ShapeError
        If the node has a free shape.
    """
    if node.shape is FREE:
        raise ShapeError(f"index {brief(key)}: {node} has no shape of its own; assign it to a tensor and index that")
    if (plain := _plain(key)) is not None:
        return _at(node, _picks(plain, node.shape), moved)
    if as_mask(key) is not None:
        return node.astensor()[key]  # type: ignore[attr-defined, no-any-return]  # their number depends on values
    chosen = select(key, node.shape)
    made = _at(node, tuple(_pick(basic, size) for basic, size in zip(chosen.basic, node.shape)), moved)
    return made if chosen.gather is None else moves.take(made, chosen.gather, chosen.gather_axis or 0)


def _at(node: Expression, picks: Picks, moved: bool) -> Expression:
    if _is_whole(picks, node.shape):
        return node
    return picked(node, picks) if moved else window(node, picks)


Plain = tuple[int | tuple[int | None, ...], ...]
"""An index of integers and slices, the latter as start, stop and step."""


def _plain(key: Any) -> Plain | None:
    """Return ``key`` if it has only Python integers and slices of them; else None."""
    found: list[Any] = []
    for item in key if key.__class__ is tuple else (key,):
        if item.__class__ is slice:
            item = (item.start, item.stop, item.step)
            for end in item:
                if end is not None and end.__class__ is not int:
                    return None
        elif item.__class__ is not int:
            return None
        found.append(item)
    return tuple(found)


@lru_cache(maxsize=1024)
def _picks(plain: Plain, shape: Shape) -> Picks:
    """The positions that ``[plain]`` selects from a tensor of ``shape``."""
    basic = select(tuple(slice(*item) if isinstance(item, tuple) else item for item in plain), shape).basic
    return tuple(_pick(item, size) for item, size in zip(basic, shape))


def reshape(self: OpTreeNode, *shape: Any) -> Expression:
    """Reshape the elements in C order, as an expression; one entry may be -1. At least 2-D.

    Raises
    ------
    ShapeError
        If the sizes do not match, or the expression has a free shape.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> (be.array([[1., 2.], [3., 4.]]) + 1).reshape(1, -1).tolist()
    [[2.0, 3.0, 4.0, 5.0]]
    """
    if self.shape is FREE:
        raise ShapeError(f"reshape: {self} has no shape of its own; assign it to a tensor and reshape that")
    new = shapes.regrouped(self.shape, shape)
    if new == self.shape or is_number(self):
        return self
    moved = _Reshaping(self.shape, new).of(self)
    return moves.view(_unshaped(self), contiguous(new)) if moved is None else moved


def contiguous(shape: Shape) -> tuple[Shape, tuple[int, ...], int]:
    """Layout of elements in C order."""
    return shape, shapes.contiguous_strides(shape), 0


def picked(node: Expression, picks: Picks) -> Expression:
    """The elements of ``node`` at ``picks``, one per axis."""
    moved = _Picking().of(node, picks)
    return window(node, picks) if moved is None else moved


def _pick(basic: Any, size: int) -> Pick:
    if not isinstance(basic, slice):
        return Pick(basic, 1, 1, kept=False)
    positions = range(size)[basic]
    return Pick(positions.start if positions else 0, positions.step, len(positions))


def _is_whole(picks: Picks, shape: Shape) -> bool:
    return all(pick.is_all(size) for pick, size in zip(picks, shape))


def _shape(picks: Picks) -> Shape:
    return tuple(pick.count for pick in picks if pick.kept)


def _unshaped(node: Expression) -> Expression:
    """Return ``node``, or the operand of a reshape, which another reshape can read directly."""
    while isinstance(node, OpTreeNode) and _is_reshape(node):
        node = node.operands[0]
    return node


def _is_reshape(node: OpTreeNode) -> bool:
    return (
        node.spec.name == "view"
        and math.prod(node.shape) == math.prod(node.operands[0].shape)
        and node.attrs is not None
        and node.attrs["layout"] == contiguous(node.shape)
    )


def window(node: Expression, picks: Picks) -> Expression:
    """Create a ``view`` of ``node``, of a tensor too, or of the operand of a reshape."""
    layout, numbers = _layout(picks, node.shape)
    if isinstance(node, OpTreeNode) and _is_reshape(node):
        return moves.view(_unshaped(node), layout)
    made = moves.view(node, layout)
    made.attrs["picks"] = numbers  # type: ignore[index]
    return made


@lru_cache(maxsize=1024)
def _layout(picks: Picks, shape: Shape) -> tuple[tuple[Shape, tuple[int, ...], int], tuple[Any, ...]]:
    """The window of ``picks`` in an array of ``shape``, and their numbers."""
    strides = shapes.contiguous_strides(shape)
    kept = [(pick, step) for pick, step in zip(picks, strides) if pick.kept]
    offset = sum(pick.start * step for pick, step in zip(picks, strides)) if all(p.count for p in picks) else 0
    layout = (_shape(picks), tuple(pick.step * step for pick, step in kept), offset)
    return layout, tuple((p.start, p.step, p.count, p.kept) for p in picks)


# Pushing windows and reshapes down to the tensors -----------------------------------------------------------------


class _TooMuch(Exception):
    """Pushing down would create too many nodes, or cannot be completed."""


class _Picking:
    """Pushes one window down an expression; a shared node is rewritten once."""

    def __init__(self) -> None:
        self.made: dict[tuple[int, Picks], Expression] = {}
        self.depth = 0

    def of(self, root: Expression, picks: Picks) -> Expression | None:
        """Return ``root`` at ``picks`` with the window pushed down; None if it is better on top."""
        try:
            return self._moved(root, picks)
        except _TooMuch:
            return None

    def _at(self, operand: Any, picks: Picks) -> Any:
        """Return ``operand`` at ``picks``, with a window on top where it cannot be pushed further."""
        if is_number(operand) or _is_whole(picks, operand.shape):
            return operand
        key = (id(operand), picks)
        if key not in self.made:
            if len(self.made) >= MOST_NODES or self.depth >= DEEPEST:
                raise _TooMuch
            self.depth += 1
            moved = self._moved(operand, picks)
            self.depth -= 1
            self.made[key] = window(operand, picks) if moved is None else moved
        return self.made[key]

    def _moved(self, operand: Expression, picks: Picks) -> Expression | None:
        if not isinstance(operand, OpTreeNode):
            return _tensor_at(operand, picks)
        kind, name = operand.spec.kind, operand.spec.name
        if operand.attrs is not None and "picks" in operand.attrs:  # a window of a window
            outer = iter(picks)
            inner = tuple(Pick(*numbers) for numbers in operand.attrs["picks"])
            both = tuple(next(outer).of(pick) if pick.kept else pick for pick in inner)
            whole: Expression = self._at(operand.operands[0], both)
            return whole
        if kind is Kind.ELEMENTWISE:
            return self._elementwise(operand, picks)
        if kind is Kind.REDUCTION:
            return self._reduction(operand, picks)
        if name == "dot":
            return self._product(operand, picks)
        if name == "transpose" and all(pick.kept for pick in picks):
            axes: tuple[int, ...] = operand.attrs["axes"]  # type: ignore[index]
            untransposed = tuple(picks[axes.index(axis)] for axis in range(len(axes)))
            return moves.transpose(self._at(operand.operands[0], untransposed), axes)
        return None

    def _elementwise(self, node: OpTreeNode, picks: Picks) -> OpTreeNode | None:
        """The op on its operands' selected elements; broadcast axes of an operand keep their single element."""
        operands = []
        for operand in node.operands:
            if is_number(operand):
                operands.append(operand)
                continue
            if operand.shape is FREE or (len(operand.shape) < len(picks) and not all(pick.kept for pick in picks)):
                return None
            aligned = zip(picks[len(picks) - len(operand.shape) :], operand.shape, node.shape[-len(operand.shape) :])
            own = tuple(Pick(0, 1, 1, pick.kept) if size == 1 != whole else pick for pick, size, whole in aligned)
            operands.append(self._at(operand, own))
        return OpTreeNode(node.spec, tuple(operands), node.attrs, _shape(picks), node.dtype, node.backend)

    def _reduction(self, node: OpTreeNode, picks: Picks) -> Expression | None:
        """Reduce the selected part alone, if it is at most half of the results.

        Reducing nearly everything for each of several windows would cost more than one reduction of the whole.
        """
        axes: tuple[int, ...] = node.attrs["axis"]  # type: ignore[index]
        (operand,) = node.operands
        if 2 * math.prod(_shape(picks)) > math.prod(node.shape) or not _keeps(picks, axes):
            return None
        inside = tuple(
            Pick(0, 1, size) if axis in axes else pick for axis, (pick, size) in enumerate(zip(picks, operand.shape))
        )
        if isinstance(operand, OpTreeNode) and operand.spec.kind not in (Kind.ELEMENTWISE, Kind.REDUCTION):
            return None
        within = self._at(operand, inside)
        dropped = [axis for axis, pick in enumerate(picks) if not pick.kept]
        left = tuple(axis - sum(before < axis for before in dropped) for axis in axes)
        return OpTreeNode(node.spec, (within,), {"axis": left}, _shape(picks), node.dtype, node.backend)

    def _product(self, node: OpTreeNode, picks: Picks) -> Expression | None:
        """Multiply fewer rows and columns, if the result is at most half: one large product is faster."""
        if 2 * math.prod(_shape(picks)) > math.prod(node.shape) or 0 in _shape(picks):
            return None
        left, right = node.operands
        inner = Pick(0, 1, left.shape[1])
        operands = self._at(left, (picks[0], inner)), self._at(right, (inner, picks[1]))
        return OpTreeNode(node.spec, operands, None, _shape(picks), node.dtype, node.backend)


def _keeps(picks: Picks, axes: tuple[int, ...]) -> bool:
    """Whether ``axes``, of size 1, stay unchanged."""
    return all(picks[axis].kept and picks[axis].count == 1 for axis in axes)


class _Reshaping:
    """Pushes a reshape down elementwise ops with operands of one shape, or of one element."""

    def __init__(self, old: Shape, new: Shape) -> None:
        self.old, self.new = old, new
        self.made: dict[int, Expression] = {}
        self.depth = 0

    def of(self, root: OpTreeNode) -> Expression | None:
        """Return ``root`` with the new shape; None if it must be computed first."""
        try:
            moved: Expression = self._moved(root)
        except _TooMuch:
            return None
        return moved

    def _moved(self, operand: Any) -> Any:
        if is_number(operand):
            return operand
        if operand.shape != self.old:
            if operand.shape is not FREE and math.prod(operand.shape) == 1 and len(operand.shape) <= len(self.new):
                return operand
            raise _TooMuch
        if id(operand) not in self.made:
            if len(self.made) >= MOST_NODES or self.depth >= DEEPEST:
                raise _TooMuch
            self.depth += 1
            self.made[id(operand)] = self._reshaped(operand)
            self.depth -= 1
        return self.made[id(operand)]

    def _reshaped(self, operand: Any) -> Expression:
        if not isinstance(operand, OpTreeNode):
            if not (operand.is_contiguous and _is_mappable(operand)):
                raise _TooMuch
            shown: Expression = operand.viewed(self.new)
            return shown
        if operand.spec.kind is not Kind.ELEMENTWISE:
            raise _TooMuch
        parts = tuple(self._moved(part) for part in operand.operands)
        return OpTreeNode(operand.spec, parts, operand.attrs, self.new, operand.dtype, operand.backend)


def _is_mappable(tensor: Any) -> bool:
    """True if gradients of a view of ``tensor`` can be mapped to its base tensor."""
    return bool(tensor.base is None and tensor.is_contiguous) or bool(tensor._original_base.is_contiguous)


def _tensor_at(tensor: Any, picks: Picks) -> Expression | None:
    if not _is_mappable(tensor):
        return None
    view: Expression = tensor[tuple(pick.as_index() for pick in picks)]
    return view
