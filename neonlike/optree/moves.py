"""Builders of ops that move values without computing: transposes, windows, gathers, and their gradients."""

from __future__ import annotations

import math
from typing import Any

from neonlike.checks import brief
from neonlike.errors import ShapeError
from neonlike.optree import builders, shapes
from neonlike.optree.node import Expression, OpTreeNode, expression
from neonlike.optree.shapes import Shape


def transpose(a: Any, axes: Any = None) -> Expression:
    """``a`` with axes permuted (None: the last two swapped); a view for tensors, a node for expressions."""
    a = expression("transpose", a)
    if isinstance(a, OpTreeNode):
        return builders.transpose(a, axes)
    view: Expression = a.permuted(shapes.permutation("transpose", axes, len(a.shape)))
    return view


def broadcast_to(a: Any, shape: Shape) -> Expression:
    """``a`` broadcast to ``shape``."""
    operand = expression("broadcast_to", a)
    if operand.shape == tuple(shape):
        return operand
    if not shapes.stretches_to(operand.shape, shape):
        raise ShapeError(f"broadcast_to: {operand.shape} does not stretch to {tuple(shape)}; sizes must be equal or 1")
    return builders.move("broadcast", (operand,), {"shape": tuple(shape)}, tuple(shape))


def take(a: Any, indices: Any, axis: int) -> OpTreeNode:
    """Gather slices of ``a`` along ``axis`` by integer ``indices`` (list, array or tensor, read as a vector).

    Parameters
    ----------
    a : expression
    indices : integers
    axis : int
    """
    a = expression("take", a)
    axes = shapes.normalize_axes("take", axis, a.shape)
    if axis is None or len(axes) != 1:
        raise ShapeError(f"take: needs one axis of {a.shape}, got axis={brief(axis)}")
    (axis,) = axes
    positions = builders.index_operand("take", indices, a.shape[axis], a.backend)
    shape = (*a.shape[:axis], math.prod(positions.shape), *a.shape[axis + 1 :])
    return builders.move("take", (a, positions), {"axis": axis}, shape)


def untake(d: Any, indices: Any, shape: Shape, axis: int) -> OpTreeNode:
    """Zeros of ``shape`` with slices of ``d`` scatter-added at ``indices``: the gradient of :func:`take`.

    Parameters
    ----------
    d : expression
    indices : integers
    shape : tuple of int
    axis : int
    """
    return builders.move("untake", (expression("untake", d), indices), {"axis": axis}, shape)


def view(a: Any, layout: tuple[Any, ...]) -> OpTreeNode:
    """Strided window of ``a``; ``layout`` is (shape, strides in elements, offset)."""
    return builders.move("view", (expression("view", a),), {"layout": layout}, tuple(layout[0]))


def drop_axes(a: Any, count: int) -> Expression:
    """Drop the first ``count`` axes, of size 1, of ``a``."""
    shape = a.shape[count:]
    return view(a, (shape, shapes.contiguous_strides(shape), 0))


def unview(d: Any, shape: Shape, layout: tuple[Any, ...]) -> OpTreeNode:
    """Zeros of ``shape`` with ``d`` in the window of ``layout``: the gradient of :func:`view`.

    Parameters
    ----------
    d : expression
    shape : tuple of int
    layout : tuple
        (shape, strides in elements, offset) of the window.
    """
    return builders.move("unview", (expression("unview", d),), {"layout": layout}, shape)
