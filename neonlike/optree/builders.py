"""Builders of reductions, products, moves and scans; ``node`` has those of elementwise rows, beside the operators."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from neonlike.checks import brief
from neonlike.errors import DTypeError, ShapeError
from neonlike.optree import shapes
from neonlike.optree.dtypes import F32, F64, DType, DTypeRule, is_index, promote, result_dtype
from neonlike.optree.forms import recalled
from neonlike.optree.node import INDEXED, Expression, OpTreeNode, common_backend, expression, node_dtype
from neonlike.optree.npfuncs import check_range
from neonlike.optree.ops import OPS, Kind, OpSpec
from neonlike.optree.shapes import FREE, Shape


def reduce(spec: OpSpec, a: Any, axis: Any, backend: Any = None) -> OpTreeNode:
    """Reduce ``a`` over ``axis`` (int, tuple of ints or None for all); reduced axes keep size 1.

    Parameters
    ----------
    spec : OpSpec
        Row of a reduction.
    a : expression or array
    axis : int, tuple of int, or None
    backend : Backend, optional
        For an array.

    Raises
    ------
    ShapeError
        For a wrong axis, or an empty reduction by an op without identity.
    """
    a = expression(spec.name, a, backend)
    if spec.dtype is DTypeRule.INDEX and (axis is None or isinstance(axis, (tuple, list))):
        raise ShapeError(f"{spec.name}: needs one axis, got axis={brief(axis)}; reshape to reduce over several")
    shape = a.shape
    if axis.__class__ is int or axis is None:
        axes, small = _reduced_over(axis, shape, spec.name)
    else:
        axes = shapes.normalize_axes(spec.name, axis, shape)
        small = shapes.reduced(shape, axes)
    if spec.identity is None and 0 in shape and any(shape[i] == 0 for i in axes):
        raise ShapeError(f"{spec.name}: {shape} is empty along axis {axis}, and {spec.name} of nothing is undefined")
    dtype = a.dtype
    if spec.dtype is DTypeRule.INDEX or not (dtype is F32 or dtype is F64):
        dtype = result_dtype(spec.dtype, promote((dtype,)))
    return OpTreeNode(spec, (a,), {"axis": axes}, small, dtype, a.backend)


@lru_cache(maxsize=1024)
def _reduced_over(axis: int | None, shape: Shape, name: str) -> tuple[tuple[int, ...], Shape]:
    """Normalized axes, and ``shape`` reduced over them."""
    axes = shapes.normalize_axes(name, axis, shape)
    return axes, shapes.reduced(shape, axes)


@recalled
def dot(a: Any, b: Any, backend: Any = None) -> OpTreeNode:
    """Lazy matrix product of 2-D operands (m, k) x (k, n) -> (m, n).

    Parameters
    ----------
    a : expression or array (m, k)
    b : expression or array (k, n)
    backend : Backend, optional
        For arrays.

    Raises
    ------
    ShapeError
        If an operand is not 2-D, or the inner sizes differ.
    """
    backend = backend or getattr(a, "backend", None) or getattr(b, "backend", None)
    operands = (expression("dot", a, backend), expression("dot", b, backend))
    shape = shapes.dot(operands[0].shape, operands[1].shape)
    return OpTreeNode(OPS["dot"], operands, None, shape, *_dtype_and_backend(OPS["dot"], operands))


def cast(a: Any, dtype: DType = F64) -> Any:
    """Convert ``a`` to another dtype of expressions; an ``a`` of that dtype is returned itself."""
    if a.dtype is dtype or a.dtype == dtype:
        return a
    return OpTreeNode(OPS["cast"], (a,), {"bits": 8 * dtype.itemsize}, a.shape, dtype, a.backend)


def transpose(a: OpTreeNode, axes: Any = None) -> OpTreeNode:
    """Lazy transpose of a node; ``axes`` None swaps the last two."""
    if a.shape is FREE:
        return a
    order = shapes.permutation("transpose", axes, len(a.shape))
    shape = tuple(a.shape[i] for i in order)
    return OpTreeNode(OPS["transpose"], (a,), {"axes": order}, shape, a.dtype, a.backend)


def move(name: str, operands: tuple[Any, ...], attrs: dict[str, Any], shape: Shape) -> OpTreeNode:
    """Build a node of kind MOVE, ZERO or SCAN with a given shape.

    Parameters
    ----------
    name : str
        Name of the op.
    operands : tuple of expressions
    attrs : dict
        Attributes of the node.
    shape : tuple of int
    """
    spec = OPS[name]
    assert spec.kind in (Kind.MOVE, Kind.ZERO, Kind.SCAN)
    return OpTreeNode(spec, operands, attrs, shape, *_dtype_and_backend(spec, operands))


def _dtype_and_backend(spec: OpSpec, operands: tuple[Any, ...]) -> tuple[DType, Any]:
    """Dtype and backend of a node; operands of one float dtype, the usual case, need no rules, nor do indices."""
    dtype, backend = operands[0].dtype, operands[0].backend
    if (dtype is F32 or dtype is F64) and backend is not None and spec.dtype is not DTypeRule.INDEX:
        indexed = spec.name in INDEXED
        for operand in operands:
            if operand.backend is not backend or (operand.dtype is not dtype and not indexed):
                break
        else:
            return dtype, backend
    return node_dtype(spec, operands), common_backend(spec.name, operands)


def index_operand(name: str, indices: Any, limit: int | None, backend: Any, vector: bool = True) -> Any:
    """Convert integer indices to a tensor; host indices (lists, arrays) become a ``vector``, or keep their shape.

    Host indices are checked against ``limit``, and negative ones count from the end.

    Parameters
    ----------
    name : str
        Operation, for messages.
    indices : integer tensor, array or nested lists
    limit : int or None
        Size of the axis; None: host indices are not checked.
    backend : Backend
        For host indices.
    vector : bool
        Host indices become (1, n).

    Raises
    ------
    DTypeError
        If the indices are not integers.
    IndexRangeError
        If a host index is out of range.
    """
    if isinstance(indices, Expression):
        if not is_index(indices.dtype):
            raise DTypeError(f"{name}: indices must be integers, got {indices.dtype.name}; make them int32 or int64")
        return indices
    try:
        host = np.asarray(indices)
    except (TypeError, ValueError):  # lists of different lengths, or with other entries than numbers
        raise DTypeError(f"{name}: indices must be integers, got a {type(indices).__name__} of other things") from None
    if host.size == 0:
        host = host.astype(np.int64)  # an empty list has no dtype
    if host.dtype.kind not in "iu":
        raise DTypeError(f"{name}: indices must be integers, got {host.dtype} from {type(indices).__name__}")
    if limit is not None:
        check_range(name, host, limit)
        host = host.astype(np.int64)
        if host.size and host.min() < 0:
            host = np.where(host < 0, host + limit, host)
    positions: Expression = backend.array(host.reshape(1, -1) if vector else host, dtype=np.int64)
    return positions
