"""Ops along one axis: cumulative sums and products, sorting, and gathers with one index per element."""

from __future__ import annotations

from typing import Any

from neonlike.errors import ShapeError
from neonlike.optree import builders, moves, shapes
from neonlike.optree.arrange import in_line, one_axis, reshape, whole_number
from neonlike.optree.node import Expression, OpTreeNode, expression
from neonlike.optree.ops import OpSpec
from neonlike.optree.shapes import Shape


def _scan(name: str, a: Any, axis: Any, attrs: dict[str, Any]) -> OpTreeNode:
    a, axis = in_line(expression(name, a), axis)
    made = builders.move(name, (a,), {"axis": one_axis(name, axis, a.shape), **attrs}, a.shape)
    return made


def cumsum(a: Any, axis: Any, reverse: bool = False) -> OpTreeNode:
    """Cumulative sums of ``a`` along ``axis``; ``reverse`` starts from the end.

    Parameters
    ----------
    a : expression
    axis : int or None
        None: all elements in C order.
    reverse : bool
    """
    return _scan("cumsum", a, axis, {"reverse": bool(reverse)})


def cumprod(a: Any, axis: Any, reverse: bool = False) -> OpTreeNode:
    """Cumulative products of ``a`` along ``axis``; ``reverse`` starts from the end.

    Parameters
    ----------
    a, axis, reverse
        As of :func:`cumsum`.
    """
    return _scan("cumprod", a, axis, {"reverse": bool(reverse)})


def position(spec: OpSpec, a: Any, axis: Any, backend: Any = None) -> Expression:
    """First position of an extreme along ``axis``; for None, among all elements in C order.

    Parameters
    ----------
    spec : OpSpec
        Row of ``argmax`` or ``argmin``.
    a : expression
    axis : int or None
    backend : Backend, optional
        For an array.
    """
    a = expression(spec.name, a, backend)
    if axis is not None:
        return builders.reduce(spec, a, axis, backend)
    return reshape(builders.reduce(spec, *in_line(a, None)), (1,) * len(a.shape))


def argsort(a: Any, axis: Any = -1, descending: bool = False, count: Any = None) -> OpTreeNode:
    """Positions along ``axis`` in the order of the values, limited to the first ``count`` (None: all).

    Equal values keep their order; nan comes last either way.

    Parameters
    ----------
    a : expression
    axis : int or None
        None: all elements in C order.
    descending : bool
    count : int, optional

    Raises
    ------
    ShapeError
        If there are fewer values.
    """
    a, axis = in_line(expression("argsort", a), axis)
    axis = one_axis("argsort", axis, a.shape)
    size = a.shape[axis]
    wanted = size if count is None else whole_number("topk", "k", count)
    if not 0 <= wanted <= size:
        raise ShapeError(f"topk: axis {axis} of {a.shape} has {size} values, got k={wanted}")
    made = builders.move(
        "argsort",
        (a,),
        {"axis": axis, "descending": bool(descending), "count": wanted},
        (*a.shape[:axis], wanted, *a.shape[axis + 1 :]),
    )
    return made


def take_along(a: Any, indices: Any, axis: Any) -> OpTreeNode:
    """Gather along ``axis``, one index per element: ``out[.., j, ..] = a[.., indices[.., j, ..], ..]``.

    Both operands are broadcast along the other axes.

    Parameters
    ----------
    a : expression
    indices : integer tensor, array or nested lists
    axis : int or None
        None: all elements in C order.

    Raises
    ------
    ShapeError
        If ``indices`` has another size along another axis, and neither size is 1.
    """
    a = expression("take_along_axis", a)
    flat = axis is None
    a, axis = in_line(a, axis)
    axis = one_axis("take_along_axis", axis, a.shape)
    places = builders.index_operand("take_along_axis", indices, a.shape[axis], a.backend, vector=False)
    if flat:
        places, _ = in_line(places, None)
    ours, theirs = (each.shape[:axis] + each.shape[axis + 1 :] for each in (a, places))
    if len(ours) != len(theirs) or any(n != m and 1 not in (n, m) for n, m in zip(ours, theirs)):
        raise ShapeError(
            f"take_along_axis: indices of shape {places.shape} do not fit {a.shape}; "
            f"all sizes but that of axis {axis} must be equal, or 1"
        )
    if ours != theirs:
        common = shapes.broadcast_two("take_along_axis", ours, theirs)
        a, places = (
            moves.broadcast_to(each, (*common[:axis], each.shape[axis], *common[axis:])) for each in (a, places)
        )
    return builders.move("take_along", (a, places), {"axis": axis}, places.shape)


def untake_along(d: Any, indices: Any, shape: Shape, axis: int) -> OpTreeNode:
    """Zeros of ``shape`` with elements of ``d`` scatter-added along ``axis``: the gradient of :func:`take_along`.

    Parameters
    ----------
    d : expression
    indices : integer tensor
        Of the shape of ``d``.
    shape : tuple of int
    axis : int
    """
    return builders.move("untake_along", (expression("untake_along", d), indices), {"axis": axis}, shape)


def sort(a: Any, axis: Any = -1, descending: bool = False) -> OpTreeNode:
    """Sort ``a`` along ``axis``.

    Parameters
    ----------
    a, axis, descending
        As of :func:`argsort`.
    """
    a, axis = in_line(expression("sort", a), axis)
    axis = one_axis("sort", axis, a.shape)
    return take_along(a, argsort(a, axis, descending), axis)


def topk(a: Any, k: Any, axis: Any = -1, largest: bool = True) -> tuple[Expression, Expression]:
    """The ``k`` largest (or smallest) values along ``axis``, best first, and their positions.

    Parameters
    ----------
    a : expression
    k : int
    axis : int or None
        None: all elements in C order.
    largest : bool
    """
    a, axis = in_line(expression("topk", a), axis)
    axis = one_axis("topk", axis, a.shape)
    places = argsort(a, axis, descending=largest, count=k)
    return take_along(a, places, axis), places
