"""The steps of an unroll: lists of per-step tensors, all checked before any is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from neonlike.backends.expressions.activation import refuse_inputs
from neonlike.backends.tensor import Tensor
from neonlike.backends.tensors.operands import check_apart, check_tensors, require_tensors
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree.dtypes import DType, is_float

Pairs = frozenset[frozenset[str]]
MOST_BYTES = 1 << 62
"""A number of bytes larger than any memory."""


@dataclass(frozen=True, slots=True)
class Unroll:
    """Request of an unroll, forward or backward, for its hook; a separate :class:`Steps` has the tensors.

    Attributes
    ----------
    steps, units, samples : int
        Number of steps; size of the state h: ``(units, samples)``.
    dtype : numpy.dtype
        Float dtype of all tensors.
    activation, gate_activation : callable
        With ``bprop`` for a backward unroll. A simple layer has no gates: None.
    """

    steps: int
    units: int
    samples: int
    dtype: DType
    activation: Any
    gate_activation: Any = None


@dataclass(frozen=True, slots=True)
class Steps:
    """The tensors of an unroll, in the order of computation.

    Attributes
    ----------
    operation : str
    roles : dict of name to list of tensors
        Step s of every role; None for optional tensors.
    units, samples : int
        Size of the state h: ``(units, samples)``.
    dtype : numpy.dtype
        Float dtype of all tensors.
    """

    operation: str
    roles: dict[str, list[Any]]
    units: int
    samples: int
    dtype: DType

    def __len__(self) -> int:
        return len(next(iter(self.roles.values())))

    def each(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """The tensors of the roles ``names``, step after step."""
        return zip(*[self.roles[name] for name in names])


def gather_steps(
    backend: Any,
    operation: str,
    lists: Mapping[str, tuple[Any, int]],
    units: int,
    num_steps: int,
    num_used_steps: int | None,
    reverse: bool,
    optional: Sequence[str] = (),
) -> Steps:
    """Check ``lists``, of tensors ``(rows, N)`` for each name's ``(list, rows)``, cut and order them.

    The shortest list has one tensor per step. Others may have surplus tensors at the end, which are ignored, as in
    neon, which pairs them by ``zip``: for example the last of the states h_0 ... h_T.

    Parameters
    ----------
    backend : Backend
    operation : str
        Method, for messages.
    lists : dict
        (list of tensors, rows) by the names of the arguments.
    units : int
        Rows of the state.
    num_steps : int
        Number of steps.
    num_used_steps : int or None
        Leading steps to compute; None: all.
    reverse : bool
        The last step comes first.
    optional : sequence of str
        Lists that may hold None.

    Raises
    ------
    DTypeError
        If an entry is not a tensor of ``backend``, or dtypes are not one float dtype.
    ShapeError
        If a list has fewer than ``num_steps`` entries, or all have more, or a tensor has another shape.
    ArgumentError
        If ``num_used_steps`` is negative.
    """
    backend.check_open(operation)
    used = num_steps if num_used_steps is None else min(num_used_steps, num_steps)
    if used < 0:
        raise ArgumentError(f"{operation}: num_used_steps must not be negative, got {num_used_steps}")
    roles: dict[str, list[Any]] = {}
    for name, (tensors, _) in lists.items():
        if not isinstance(tensors, (list, tuple)):
            raise DTypeError(f"{operation}: {name} must be a list of tensors, one a step, got {type(tensors).__name__}")
        if len(tensors) < num_steps:
            raise ShapeError(f"{operation}: {name} has {len(tensors)} tensors, but there are {num_steps} steps")
        chosen = list(tensors[:used])
        roles[name] = chosen[::-1] if reverse else chosen
    if num_steps < min(len(tensors) for tensors, _ in lists.values()):
        raise ShapeError(f"{operation}: every list has more tensors than there are steps, which are {num_steps}")
    like = next((t for role in roles.values() for t in role if isinstance(t, Tensor)), None)
    samples = like.shape[-1] if like is not None else 0
    dtype = like.dtype if like is not None else backend.default_np_dtype
    for name, (_, rows) in lists.items():
        _check_role(backend, operation, name, roles[name], (rows, samples), dtype, name in optional)
    return Steps(operation, roles, units, samples, dtype)


def _check_role(
    backend: Any,
    operation: str,
    name: str,
    tensors: list[Any],
    shape: tuple[int, ...],
    dtype: DType,
    optional: bool,
) -> None:
    kind = backend.tensor_cls
    for tensor in tensors:
        if tensor.__class__ is kind and tensor.backend is backend and tensor.shape == shape and tensor.dtype == dtype:
            continue
        if tensor is None and optional:
            continue
        if tensor is None:
            raise DTypeError(f"{operation}: {name} must hold a tensor for every step, got None")
        check_tensors(backend, operation, **{name: tensor})
        if tensor.shape != shape:
            raise ShapeError(f"{operation}: {name} must hold tensors of shape {shape}, got {tensor.shape}")
        if tensor.dtype != dtype:
            raise DTypeError(
                f"{operation}: {name} holds {tensor.dtype.name}, other tensors {dtype.name}; use one dtype"
            )
    if not is_float(dtype):
        raise DTypeError(f"{operation}: {name} must hold floats, got {dtype.name}")


def check_parameters(
    backend: Any,
    operation: str,
    dtype: DType | None,
    shape: tuple[int, int],
    weight: Any,
    bias: Any = None,
    hint: str = "",
) -> None:
    """Raise unless ``weight`` has ``shape``, and ``bias``, if given, one element per row; dtype None: any dtype.

    Parameters
    ----------
    backend : Backend
    operation : str
        Method, for messages.
    dtype : dtype or None
    shape : (int, int)
        Of the weight.
    weight : Tensor
    bias : Tensor or None
    hint : str
        Said after the expected shape.

    Raises
    ------
    ShapeError, DTypeError
        If they do not fit.
    """
    require_tensors(backend, operation, W_recur=weight)
    check_tensors(backend, operation, bias=bias)
    if weight.shape != shape:
        raise ShapeError(f"{operation}: W_recur must be {shape}{hint}, got {weight.shape}")
    if bias is not None and bias.size != shape[0]:
        raise ShapeError(f"{operation}: bias must be {(shape[0], 1)}, got {bias.shape}")
    for name, tensor in (("W_recur", weight), ("bias", bias)):
        if tensor is not None and dtype is not None and tensor.dtype != dtype:
            raise DTypeError(f"{operation}: {name} is {tensor.dtype.name}, the steps are {dtype.name}; use one dtype")


def check_overlaps(steps: Steps, outputs: Sequence[str], allowed: Pairs, **whole: Any) -> None:
    """Raise AliasError if, within a step, an output shares memory with another role, unless the pair is ``allowed``.

    ``whole`` are tensors of all steps (weight, bias), which no output may share memory with.

    Parameters
    ----------
    steps : Steps
    outputs : sequence of str
        Roles that are written.
    allowed : set of pairs
        Roles that may share memory within a step.
    **whole : Tensor or None
        By the names of the arguments.
    """
    roots = {name: _roots(tensors) for name, tensors in steps.roles.items()}
    for position, name in enumerate(outputs):
        others = [other for other in steps.roles if other not in outputs[: position + 1]]
        for other in others:
            if frozenset((name, other)) not in allowed and _may_meet(roots[name], roots[other]):
                for mine, its in steps.each(name, other):
                    check_apart(steps.operation, {name: mine}, {other: its})
        for other, tensor in whole.items():
            if tensor is not None and _may_meet(roots[name], _roots([tensor])):
                for mine in steps.roles[name]:
                    check_apart(steps.operation, {name: mine}, {other: tensor})


def _roots(tensors: Sequence[Any]) -> set[Any]:
    """Allocations that contain ``tensors``; None for foreign memory."""
    return {getattr(tensor, "root", None) for tensor in tensors if tensor is not None}


def _may_meet(a: set[Any], b: set[Any]) -> bool:
    return not a.isdisjoint(b) or (None in a and bool(b)) or (None in b and bool(a))


def pairs(*names: tuple[str, str]) -> Pairs:
    """Pairs of roles, in both orders."""
    return frozenset(frozenset(pair) for pair in names)


def check_activation(operation: str, backward: bool, **functions: Any) -> None:
    """Raise DTypeError unless each function is callable, or has a ``bprop`` of the outputs if that is needed.

    Parameters
    ----------
    operation : str
        Method, for messages.
    backward : bool
        Whether ``bprop`` is needed.
    **functions : objects
        By the names of the arguments.
    """
    for name, function in functions.items():
        needed: Callable[..., Any] | None = getattr(function, "bprop", None) if backward else function
        if not callable(needed) or isinstance(function, type):
            what = "a method bprop(h), the derivative as a function of the output" if backward else "callable"
            raise DTypeError(
                f"{operation}: {name} must {'have' if backward else 'be'} {what}, as the transforms of "
                f"neonlike.transforms; got {type(function).__name__}"
            )
        if backward:
            refuse_inputs(operation, function)


# Memory layout for kernels


def row_strides(steps: Steps) -> list[int] | None:
    """Row stride of each role's tensors in elements; None if samples are not adjacent somewhere."""
    size, found = steps.dtype.itemsize, list[int]()
    for tensors in steps.roles.values():
        for tensor in tensors:
            row, column = (0, size) if tensor is None else tensor.geometry[1]
            if column != size and steps.samples > 1:
                return None
            found.append(row // size)
    return found


def same_or_apart(a: str, b: str, steps: Steps) -> bool:
    """Whether in each step the tensors of both roles are identical or share no memory.

    Parameters
    ----------
    a, b : str
        Names of the roles.
    steps : Steps
    """
    for mine, its in steps.each(a, b):
        if mine is its or mine is None or its is None:
            continue
        if mine.geometry == its.geometry and mine.geometry[1][1] == steps.dtype.itemsize:
            pitch, width = abs(mine.geometry[1][0]), steps.samples * steps.dtype.itemsize
            if pitch and width <= (mine.address - its.address) % pitch <= pitch - width:
                continue  # disjoint columns of one matrix
        if mine.alias_of(its) == 2:
            return False
    return True


def samples_apart(steps: Steps) -> bool:
    """Whether samples are independent: memory of one in some step never holds another sample in any step.

    A kernel may then compute some samples through all steps before it starts with others.
    """
    width = steps.samples * steps.dtype.itemsize
    where = {(t.address, t.shape[0], t.geometry[1][0]) for role in steps.roles.values() for t in role if t is not None}
    end, pitch, starts = 0, 0, set[int]()
    for low, rows, row in sorted(where):
        here = row if rows > 1 else MOST_BYTES
        if here < width:
            return False  # reversed or overlapping rows
        if low >= end:
            if not _are_apart(starts, pitch, width):
                return False
            end, pitch, starts = low, here, set()
        elif here != pitch:
            return False
        starts.add(low % pitch)
        end = max(end, low + (rows - 1) * row + width)
    return _are_apart(starts, pitch, width)


def elements_apart(steps: Steps) -> bool:
    """Whether elements are independent: memory of one in some step never holds another position in any step.

    Each can then be computed through all steps by a separate thread, which needs the results of others only where the
    definition sums over them.
    """
    if not samples_apart(steps):
        return False
    where = set[tuple[int, int, int, int]]()
    for tensor in (tensor for role in steps.roles.values() for tensor in role if tensor is not None):
        rows = tensor.shape[0]
        pitch = tensor.geometry[1][0] if rows > 1 else MOST_BYTES
        where.add((pitch, tensor.address % pitch, tensor.address, rows))
    return all(a[:2] != b[:2] or a[2] + a[3] * a[0] <= b[2] for a, b in pairwise(sorted(where)))


def _are_apart(starts: set[int], pitch: int, width: int) -> bool:
    """Whether pieces of ``width`` bytes with these starts, in rows ``pitch`` apart, do not overlap."""
    ordered = sorted(starts)
    return all(b - a >= width for a, b in zip(ordered, [*ordered[1:], ordered[0] + pitch] if ordered else ()))
