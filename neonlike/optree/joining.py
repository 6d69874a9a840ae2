"""Sums of adjacent windows: the gradient of a value read in parts becomes one concatenation.

The gradient of each window of a value is the window's gradient, padded with zeros to the value's shape. If the windows
together cover the value, like queries, keys and values of one product or the gates of a recurrent cell, adding them
reads and writes everything once per window; joining them writes each element once.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from neonlike.optree import arrange
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS
from neonlike.optree.shapes import Shape, contiguous_strides

_ADD, _UNVIEW = OPS["add"], OPS["unview"]


def joined(total: Any) -> Any:
    """Return ``total``, or a concatenation if it is a sum of ``unview`` nodes with adjacent windows that cover it."""
    if total.__class__ is not OpTreeNode or total.spec is not _ADD:
        return total
    terms = _terms(total)
    if terms is None or len({term.dtype for term in terms}) > 1:
        return total
    terms.sort(key=_offset)
    axis = _axis([term.attrs["layout"] for term in terms], total.shape)  # type: ignore[index]
    if axis is None:
        return total
    return arrange.reshape(arrange.concat([term.operands[0] for term in terms], axis), total.shape)


def _terms(total: OpTreeNode) -> list[OpTreeNode] | None:
    """The ``unview`` nodes in the sum ``total``; None if it has other terms."""
    found, stack = [], [total]
    while stack:
        node = stack.pop()
        if node.__class__ is not OpTreeNode or node.shape != total.shape:
            return None
        if node.spec is _ADD:
            stack += node.operands
        elif node.spec is _UNVIEW:
            found.append(node)
        else:
            return None
    return found


def _offset(term: OpTreeNode) -> int:
    offset: int = term.attrs["layout"][2]  # type: ignore[index]
    return offset


def _axis(layouts: list[tuple[Shape, tuple[int, ...], int]], whole: Shape) -> int | None:
    """The axis along which windows of these layouts, in this order, cover ``whole``; None without one.

    Each window keeps the element order of the whole, so that their concatenation does, too.
    """
    first = layouts[0][0]
    for axis in range(len(first)):
        if any(len(shape) != len(first) for shape, _, _ in layouts):
            return None
        ends = list(itertools.accumulate((shape[axis] for shape, _, _ in layouts), initial=0))
        joint = (*first[:axis], ends[-1], *first[axis + 1 :])
        strides = contiguous_strides(joint)
        if math.prod(joint) == math.prod(whole) and all(
            (*shape[:axis], *shape[axis + 1 :]) == (*first[:axis], *first[axis + 1 :])
            and tuple(steps) == strides
            and offset == start * strides[axis]
            for (shape, steps, offset), start in zip(layouts, ends)
        ):
            return axis
    return None
