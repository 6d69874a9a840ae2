"""Joining, cutting and rearranging: new shapes of expressions without arithmetic.

A part or a new shape of a tensor is a view if one exists; for an expression it is a lazy ``view`` node. Joining is the
op ``concat``: in an assignment to a tensor, each part is computed directly into its window.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from neonlike.checks import brief, is_real
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree import builders, moves, shapes, windows
from neonlike.optree.node import Expression, OpTreeNode, expression, is_number, is_operand
from neonlike.optree.shapes import FREE, Shape


def one_axis(name: str, axis: Any, shape: Shape) -> int:
    """Normalize ``axis`` of ``shape`` to a number from 0 on.

    Parameters
    ----------
    name : str
        Operation, for the message.
    axis : int
        Negative ones count from the end.
    shape : tuple of int

    Raises
    ------
    ShapeError
        If it is not exactly one axis of ``shape``.
    """
    if axis.__class__ is int and -len(shape) <= axis < len(shape):  # the common case
        return int(axis % len(shape))
    axes = shapes.normalize_axes(name, axis, shape)
    if axis is None or len(axes) != 1:
        raise ShapeError(f"{name}: needs one axis of {shape}, got axis={brief(axis)}")
    return axes[0]


def in_line(a: Expression, axis: Any) -> tuple[Expression, Any]:
    """Return ``a`` and ``axis``; for the axis None, the elements in C order as a column (n, 1), and axis 0."""
    return (reshape(a, (math.prod(a.shape), 1)), 0) if axis is None else (a, axis)


def whole_number(name: str, what: str, value: Any) -> int:
    """Convert ``value`` to an int, or raise DTypeError.

    Parameters
    ----------
    name, what : str
        Operation and argument, for the message.
    value : object
    """
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"{name}: {what} must be an integer, got {brief(value)}") from None


# Parts --------------------------------------------------------------------------------------------------------------


def sliced(a: Any, axis: int, start: int, stop: int, step: int = 1) -> Expression:
    """Slices ``start`` to ``stop`` of ``a`` along ``axis``: a view of a tensor, a lazy ``view`` of an expression.

    Neither bound is negative. ``stop`` is excluded; with a ``step`` of -1 it is included.

    Parameters
    ----------
    a : expression
    axis : int
    start, stop, step : int
    """
    count = len(range(start, stop + (step < 0) * step, step))
    if count == a.shape[axis] and step == 1:
        return a  # type: ignore[no-any-return]
    if not isinstance(a, OpTreeNode):
        end = None if step < 0 and stop == 0 else stop + (step < 0) * step
        part: Expression = a[(*[slice(None)] * axis, slice(start, end, step))]
        return part
    return _window(a, axis, windows.Pick(start if count else 0, step, count))


def _window(a: Expression, axis: int, pick: windows.Pick) -> Expression:
    """The slices of ``a`` along ``axis`` that ``pick`` says, lazily, also those of a tensor."""
    picks = [windows.Pick(0, 1, size) for size in a.shape]
    picks[axis] = pick
    return (windows.picked if isinstance(a, OpTreeNode) else windows.window)(a, tuple(picks))


def cuts(name: str, where: Any, size: int) -> list[int]:
    """Boundaries of parts: ``where`` is a number of equal parts or the cut positions, as in NumPy.

    Parameters
    ----------
    name : str
        Operation, for messages.
    where : int or sequence of int
    size : int
        Of the axis.

    Raises
    ------
    ShapeError
        If the parts would not be equal.
    DTypeError
        If ``where`` is neither an integer nor a sequence of integers.
    """
    if isinstance(where, (list, tuple)) or (hasattr(where, "tolist") and getattr(where, "ndim", 0) == 1):
        positions = [slice(None, whole_number(name, "each position", p)).indices(size)[1] for p in where]
        return [0, *positions, size]
    parts = whole_number(name, "the number of parts", where)
    if parts < 1 or size % parts:
        raise ShapeError(
            f"{name}: {size} cannot be cut into {parts} equal parts; pass the positions to cut at, as a list"
        )
    return [size // parts * i for i in range(parts + 1)]


def split(a: Any, where: Any, axis: Any = 0) -> list[Expression]:
    """Split ``a`` along ``axis`` into ``where`` equal parts, or at the positions in ``where``.

    Parameters
    ----------
    a : expression
    where : int or sequence of int
    axis : int
    """
    a = expression("split", a)
    axis = one_axis("split", axis, a.shape)
    ends = cuts("split", where, a.shape[axis])
    return [sliced(a, axis, low, max(low, high)) for low, high in itertools.pairwise(ends)]


def flip(a: Any, axis: Any = None) -> Expression:
    """Reverse the order of ``a`` along ``axis`` (int, tuple, or None for all)."""
    made = expression("flip", a)
    for each in shapes.normalize_axes("flip", axis, made.shape):
        made = sliced(made, each, made.shape[each] - 1, 0, -1) if made.shape[each] > 1 else made
    return made


# Other shapes -------------------------------------------------------------------------------------------------------


def reshape(a: Any, shape: Shape) -> Expression:
    """Reshape ``a``, in C order, to ``shape``: a view where one exists, else a lazy copy."""
    source = expression("reshape", a)
    assert math.prod(shape) == math.prod(source.shape)
    if source.shape == shape:
        return source
    if isinstance(source, OpTreeNode):
        return windows.reshape(source, shape)
    found: Expression | None = source._reshaped(shape)  # type: ignore[attr-defined]
    return moves.view(source, windows.contiguous(shape)) if found is None else found


def expand_dims(a: Any, axis: Any) -> Expression:
    """Insert a new axis of size 1 into ``a`` at position ``axis`` of the result, or at each of a tuple of axes."""
    a = expression("expand_dims", a)
    several = isinstance(axis, (list, tuple))
    longer = (*a.shape, *[1] * (len(axis) if several else 1))
    axes = shapes.normalize_axes("expand_dims", axis if several else one_axis("expand_dims", axis, longer), longer)
    sizes = iter(a.shape)
    return reshape(a, tuple(1 if i in axes else next(sizes) for i in range(len(longer))))


def squeeze(a: Any, axis: Any = None) -> Expression:
    """Remove axes of size 1 from ``a``: ``axis`` (int or tuple), or for None all; two axes always remain.

    Raises
    ------
    ShapeError
        If a given axis has another size, or fewer than two axes would remain.
    """
    a = expression("squeeze", a)
    axes = [i for i in shapes.normalize_axes("squeeze", axis, a.shape) if axis is not None or a.shape[i] == 1]
    if any(a.shape[i] != 1 for i in axes):
        raise ShapeError(f"squeeze: axis {brief(axis)} of {a.shape} is larger than 1; leave out axes of size 1")
    spare = len(a.shape) - 2
    if axis is not None and len(axes) > spare:
        raise ShapeError(f"squeeze: without axis {brief(axis)} {a.shape} would have fewer than two axes")
    left_out = axes[: min(len(axes), spare)]
    return reshape(a, tuple(size for i, size in enumerate(a.shape) if i not in left_out))


# Joining ------------------------------------------------------------------------------------------------------------


def _parts(name: str, parts: Any, backend: Any) -> list[Expression]:
    """Convert ``parts`` to expressions with shapes.

    Raises
    ------
    ArgumentError
        If there are none, or it is not a list or tuple.
    ShapeError
        For a number, which has no extent to join.
    """
    if parts.__class__ is list or parts.__class__ is tuple:  # the common case
        for part in parts:
            if not isinstance(part, Expression) or part.shape is FREE or is_number(part):
                break
        else:
            if parts:
                return list(parts)
    if isinstance(parts, Expression) or is_operand(parts) or not isinstance(parts, Sequence) or isinstance(parts, str):
        raise ArgumentError(
            f"{name}: expected a list or tuple of tensors and expressions, got {type(parts).__name__}; write [a, b]"
        )
    if not parts:
        raise ArgumentError(f"{name}: needs at least one tensor or expression, got an empty {type(parts).__name__}")
    backend = backend or next((b for part in parts if (b := getattr(part, "backend", None)) is not None), None)
    if any(is_number(part) for part in parts):
        raise ShapeError(f"{name}: a number has no shape to join; use be.full or an array of the shape you mean")
    return [expression(name, part, backend) for part in parts]


def concat(parts: Any, axis: Any = 0, backend: Any = None) -> Expression:
    """Join a list of tensors and expressions along ``axis``; for None, their elements as a column (n, 1).

    Parameters
    ----------
    parts : list or tuple of expressions
    axis : int or None
    backend : Backend, optional
        For arrays.

    Raises
    ------
    ShapeError
        If sizes differ along any axis but ``axis``.
    """
    found = _parts("concatenate", parts, backend)
    if axis is None:
        found, axis = [in_line(part, None)[0] for part in found], 0
    first = found[0].shape
    axis = one_axis("concatenate", axis, first)
    before, behind = first[:axis], first[axis + 1 :]
    for position, part in enumerate(found):
        size = part.shape
        if len(size) != len(first) or size[:axis] != before or size[axis + 1 :] != behind:
            raise ShapeError(
                f"concatenate: along axis {axis}, part {position} of shape {part.shape} does not fit part 0 of shape "
                f"{first}; all other sizes must be equal"
            )
    if len(found) == 1:
        return found[0]
    shape = (*before, sum([part.shape[axis] for part in found]), *behind)
    return builders.move("concat", tuple(found), {"axis": axis}, shape)


def stack(parts: Any, axis: Any = 0, backend: Any = None) -> Expression:
    """Join ``parts``, all of one shape, along a new axis, which is ``axis`` of the result.

    Parameters
    ----------
    parts : list or tuple of expressions
    axis : int
    backend : Backend, optional
        For arrays.
    """
    found = _parts("stack", parts, backend)
    for position, part in enumerate(found):
        if part.shape != found[0].shape:
            raise ShapeError(
                f"stack: part {position} of shape {part.shape} differs from part 0 of shape {found[0].shape}; "
                "all must have one shape"
            )
    sizes = found[0].shape
    axis = one_axis("stack", axis, (1, *sizes))
    one = (*sizes[:axis], 1, *sizes[axis:])
    return concat([_reshaped(part, one) for part in found], axis)


def _reshaped(a: Any, shape: Shape) -> Expression:
    """Reshape ``a``, a tensor in C order lazily too: a view of it would be made by Python each time."""
    lazy = not isinstance(a, OpTreeNode) and a.is_contiguous
    return moves.view(a, windows.contiguous(shape)) if lazy else reshape(a, shape)


def parts_of(d: Any, z: Any, parts: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients of ``parts``: slices of ``d``, the gradient of their concatenation ``z``.

    Parameters
    ----------
    d, z : expressions
    parts : sequence of expressions
    """
    axis = z.attrs["axis"]
    ends = itertools.accumulate((part.shape[axis] for part in parts), initial=0)
    return tuple(sliced(d, axis, low, high) for low, high in itertools.pairwise(ends))


def roll(a: Any, shift: Any, axis: Any = None) -> Expression:
    """Shift ``a`` cyclically by ``shift`` along ``axis``.

    Both may be tuples, with one shift per axis or one for all. Without an axis, all elements are shifted in C order.

    Parameters
    ----------
    a : expression
    shift : int or tuple of int
    axis : int, tuple of int, or None
    """
    made: Expression = expression("roll", a)
    shifts = [whole_number("roll", "shift", by) for by in (shift if isinstance(shift, (list, tuple)) else [shift])]
    if axis is None:
        return reshape(_rolled(reshape(made, (1, math.prod(made.shape))), sum(shifts), 1), made.shape)
    axes = [one_axis("roll", one, made.shape) for one in (axis if isinstance(axis, (list, tuple)) else [axis])]
    if len(axes) == 1:
        axes = axes * len(shifts)
    elif len(shifts) == 1:
        shifts = shifts * len(axes)
    if len(axes) != len(shifts):
        raise ShapeError(f"roll: {len(shifts)} shifts for {len(axes)} axes; give one for each, or one for all")
    for one, by in zip(axes, shifts):
        made = _rolled(made, by, one)
    return made


def _rolled(a: Any, by: int, axis: int) -> Expression:
    size = a.shape[axis]
    by %= max(size, 1)
    if not by:
        return a  # type: ignore[no-any-return]
    return concat([_window(a, axis, windows.Pick(first, 1, n)) for first, n in ((size - by, by), (0, size - by))], axis)


MOST_PARTS = 10**6
"""Maximum number of copies joined by :func:`tile` along an axis; each is an operand of the node."""


def tile(a: Any, counts: Any) -> Expression:
    """Repeat ``a`` ``counts[i]`` times along axis i; the last counts are for the last axes, as in NumPy."""
    made = expression("tile", a)
    given = counts if isinstance(counts, (list, tuple)) else (counts,)
    times = [whole_number("tile", "each count", n) for n in given]
    if any(n < 0 for n in times):
        raise ShapeError(f"tile: counts must not be negative, got {brief(counts)}")
    if any(n > MOST_PARTS for n in times):
        raise ShapeError(f"tile: a count is at most {MOST_PARTS}, got {str(counts)[:60]}; axes of size 1 broadcast")
    times = [1] * (len(made.shape) - len(times)) + times
    while len(made.shape) < len(times):
        made = expand_dims(made, 0)
    for axis, n in enumerate(times):
        made = sliced(made, axis, 0, 0) if n == 0 else concat([made] * n, axis)
    return made


PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
"""Sources of the border of :func:`pad`: a value, or elements of the operand at the positions of NumPy's ``pad``."""


def pad(a: Any, widths: Any, value: Any = 0, mode: str = "constant") -> Expression:
    """Pad ``a`` with ``value``: ``widths`` elements before and after each axis.

    Widths are one number, one pair (before, after) for all axes, or one pair per axis; so is the value.

    Parameters
    ----------
    a : expression
    widths : int, pair, or pairs
    value : number, pair, or pairs
        For the mode "constant".
    mode : str
        One of :data:`PAD_MODES`.

    Raises
    ------
    ShapeError
        For widths that are negative or do not fit the axes, and for a mode without an element to repeat.
    DTypeError
        If a value is not a number.
    ArgumentError
        For an unknown mode.
    """
    made = expression("pad", a)
    if mode not in PAD_MODES:
        raise ArgumentError(f"pad: mode must be one of {', '.join(PAD_MODES)}, got {brief(mode)}")
    if mode != "constant":
        for axis, ends in enumerate(_widths(widths, len(made.shape))):
            made = _repeated_around(made, axis, ends, mode)
        return made
    pairs = _values(value, len(made.shape))
    constants: dict[str, Any] = {}  # by their texts: 0.0 and -0.0 are equal
    for axis, (ends, numbers) in enumerate(zip(_widths(widths, len(made.shape)), pairs)):
        parts = [made]
        for n, number, at in zip(ends, numbers, (0, 2)):
            if n:
                shape = (*made.shape[:axis], n, *made.shape[axis + 1 :])
                parts.insert(at, _filled(shape, number, made, constants))
        made = concat(parts, axis)
    return made


def _repeated_around(a: Any, axis: int, ends: tuple[int, int], mode: Any) -> Expression:
    """Extend ``a`` by some of its elements before and after ``axis``."""
    size = a.shape[axis]
    if ends == (0, 0):
        return a  # type: ignore[no-any-return]
    if not size:
        raise ShapeError(f"pad: axis {axis} of {a.shape} has no element to repeat in mode {mode!r}; pad with a value")
    return moves.take(a, np.pad(np.arange(size), ends, mode), axis)


def _filled(shape: Shape, number: Any, like: Any, constants: dict[str, Any]) -> OpTreeNode:
    """A ``shape`` filled with a number, in the dtype of ``like``; ``constants`` are those of numbers met before."""
    constant = constants.get(repr(number))
    if constant is None:
        constant = constants[repr(number)] = like.backend.array([[number]], dtype=like.dtype)
    return builders.move("broadcast", (constant,), {"shape": shape}, shape)


def _pairs(name: str, given: Any, ndim: int) -> list[Any]:
    """A pair per axis, from a number for all ends, a pair for all axes, or a list of pairs."""
    ends = list(given) if isinstance(given, (list, tuple)) else [given, given]
    pairs = ends if ends and all(isinstance(pair, (list, tuple)) for pair in ends) else [ends] * ndim
    pairs = [list(pair) * 2 if len(pair) == 1 else pair for pair in pairs]
    if len(pairs) == 1:
        pairs = pairs * ndim
    if len(pairs) != ndim or any(len(pair) != 2 for pair in pairs):
        raise ShapeError(
            f"pad: {name} must be a number, a pair (before, after), or one for each of {ndim} axes; got {brief(given)}"
        )
    return pairs


def _values(value: Any, ndim: int) -> list[Any]:
    pairs = _pairs("values", value, ndim)
    for number in itertools.chain(*pairs):
        if not is_real(number):
            raise DTypeError(f"pad: the value must be a number, got {brief(number)}")
    return pairs


def _widths(widths: Any, ndim: int) -> list[tuple[int, int]]:
    """Widths as a pair per axis."""
    pairs = _pairs("widths", widths, ndim)
    found = [(whole_number("pad", "each width", low), whole_number("pad", "each width", high)) for low, high in pairs]
    if any(n < 0 for pair in found for n in pair):
        raise ShapeError(f"pad: widths must not be negative, got {brief(widths)}")
    return found
