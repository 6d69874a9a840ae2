"""Sums of windows in zeros that lie side by side: the gradient of a value that was read in parts, as one concatenation.

The gradient of each window of a value is zeros of its shape around the gradient of the window. Where the windows are
all of it, as queries, keys and values of one product are, or the gates of a recurrent cell, adding these reads and
writes everything once a window; joining them writes each element once.
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
    """``total``; if that is a sum of ``unview`` nodes whose windows are side by side all of it, their concatenation."""
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
    """The ``unview`` nodes that ``total`` is the sum of; None if there is anything else in it."""
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
    """The axis along which windows of these layouts, in this order, are all elements of ``whole``; None: there is none.

    Each window has its elements in the order of the whole, so that their concatenation has it too.
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
