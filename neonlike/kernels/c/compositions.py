"""The steps by which the CPython extension builds what a marked function of several nodes builds.

A function of ``(a, axis)`` such as ``softmax`` says in Python which nodes it makes. :func:`steps_of` calls it with a
sample of ``a``, and reads the nodes off the expression that comes back; ``templates/c/fastpath/fastpath_nodes.h`` makes
them again for other operands and axes. So the definition stands in one place. Nodes of any other function are read off
by :func:`tree_steps`, and made again for operands alike: ``fastpath_recalled.h``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from neonlike.errors import NeonlikeError
from neonlike.optree.dtypes import F16, F32, F64, DType
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS, Kind
from neonlike.optree.tape import Rule, rule_of
from neonlike.optree.walk import leaves, ordered, postorder

ELEMENTWISE, REDUCED, REDUCED_TO_CONSTANT, CONVERTED, RULED = range(5)
"""Kinds of a step, those of ``enum step``; the last two of float32 arguments only."""

Operand = Any
"""The number of an earlier step, 0 for the argument; ``(constant,)``; None for the count of elements per result."""
Step = tuple[Any, tuple[Operand, ...], int, Any]
"""The row of an op, its operands, the kind; of a conversion its attributes, of a rule (its class, name, grad, key)."""


class NoComposition(NeonlikeError, TypeError):
    """A marked function builds other nodes than the extension can."""


@cache
def steps_of(function: Callable[[Any, int], OpTreeNode]) -> tuple[Step, ...]:
    """The step of each node that ``function`` makes, in its order.

    Raises
    ------
    NoComposition
        If a node is neither elementwise nor a reduction over the axis, nor a conversion, nor a rule for the argument.
    """
    first, second = (_read(function, columns) for columns in (7, 11))
    return tuple(
        (spec, tuple(None if a != b else a for a, b in zip(operands, others)), kind, more)
        for (spec, operands, kind, more), (_, others, _, _) in zip(first, second, strict=True)
    )


@cache
def same_in_halves(function: Callable[[Any, int], OpTreeNode]) -> bool:
    """Whether ``function`` makes the same nodes of an argument in 16 bits, all of which have its dtype."""
    try:
        return _read(function, 7) == _read(function, 7, F16)
    except NoComposition:
        return False


def _read(function: Callable[[Any, int], OpTreeNode], columns: int, dtype: DType = F32) -> list[Step]:
    """The steps for an argument of so many columns, reduced over them: their count is a constant yet."""
    sample = OpTreeNode(OPS["neg"], (1.0,), None, (3, columns), dtype, object())
    place: dict[int, int] = {id(sample): 0}
    steps: list[Step] = []

    def add(node: OpTreeNode) -> None:
        for operand in node.operands:
            if isinstance(operand, OpTreeNode) and id(operand) not in place:
                add(operand)
        operands = tuple(place[id(o)] if isinstance(o, OpTreeNode) else (o,) for o in node.operands)
        steps.append((node.spec, operands, *_kind(node, sample)))
        place[id(node)] = len(steps)

    add(function(sample, 1))
    return steps


def _kind(node: OpTreeNode, sample: OpTreeNode) -> tuple[int, Any]:
    """Kind of the step, and what else it is made of."""
    attrs, rule = node.attrs, rule_of(node)
    if sample.dtype is F16 and node.dtype is not F16:
        raise NoComposition(f"{node.spec.name} of float16 is {node.dtype.name}")
    if attrs is None and node.dtype in (F16, F32, F64):
        return ELEMENTWISE, None
    if attrs == {"axis": (1,)}:
        return REDUCED, None
    if attrs == {"axis": (1,), "constant": True}:
        return REDUCED_TO_CONSTANT, None
    if attrs == {"bits": 8 * node.dtype.itemsize} and (node.dtype is F32 or node.dtype is F64):
        return CONVERTED, attrs
    if rule is not None and node.dtype is F32 and rule == Rule(rule.name, (sample,), rule.grad, key=rule.key):
        return RULED, (Rule, rule.name, rule.grad, rule.key)
    raise NoComposition(f"{node.spec.name} with {attrs} is no step of a composition")


# Trees --------------------------------------------------------------------------------------------------------------

LARGEST_CONSTANT = 1 << 12
"""Bytes of a tensor that all trees made by one recipe share, such as the border of ``pad``."""
_PLAIN = (int, float, str, bool, type(None))

TreeStep = tuple[Any, tuple[Any, ...], "dict[str, Any] | None", Any, Any]
"""The row of an op, its operands, attributes, shape and dtype. An operand is the number of an earlier step, one of the
call below 0 (-1 is the first), or ``(constant,)``."""


def tree_steps(root: Any, given: tuple[Any, ...], backend: Any) -> tuple[TreeStep, ...] | None:
    """The steps that make the nodes of ``root``, which was built of the operands ``given`` of ``backend``.

    None if the extension cannot make them: ``root`` is no new node of the backend, or a node says more than its
    operands, attributes, shape and dtype, as random numbers, calls of primitives and gradient rules do. None too if the
    nodes may follow from values, or from what expressions consist of: an operand that is in none of them was looked at.
    """
    place = {id(one): -1 - k for k, one in enumerate(given)}
    memory = {id(tensor._original_base) for one in given for tensor in leaves(one)}
    steps: list[TreeStep] = []
    for node in ordered((root,), lambda node: node.operands, stop=place):
        operands = tuple(place.get(id(one), (one,)) for one in node.operands)
        if not _is_plain(node, backend) or not all(
            isinstance(one, int) or _is_constant(one[0], memory) for one in operands
        ):
            return None
        place[id(node)] = len(steps)
        attrs = None if node.attrs is None else dict(node.attrs)  # some builders add to those of a node that they made
        steps.append((node.spec, operands, attrs, node.shape, node.dtype))
    used = {one for _, operands, *_ in steps for one in operands if isinstance(one, int)}
    if not all(-1 - k in used for k, one in enumerate(given) if isinstance(one, Expression)) or _are_nested(given):
        return None
    return tuple(steps) or None


def _are_nested(given: tuple[Any, ...]) -> bool:
    """Whether an operand is a part of another, which may have been looked into as far as that."""
    ids = {id(one) for one in given}
    below = (part for one in given for node in postorder(one) for part in node.operands)
    return any(id(part) in ids for part in below)


def _is_tensor(one: Any) -> bool:
    return isinstance(one, Expression) and not isinstance(one, OpTreeNode)


def _is_plain(node: OpTreeNode, backend: Any) -> bool:
    """Whether a node is one of ``backend`` that is made by its row, operands, attributes, shape and dtype alone."""
    if node.backend is not backend or node.spec.kind is Kind.CALL or node.spec.name == "rand":
        return False
    return node.attrs is None or all(map(_is_value, node.attrs.values()))


def _is_value(value: Any) -> bool:
    return all(map(_is_value, value)) if isinstance(value, tuple) else type(value) in _PLAIN


def _is_constant(operand: Any, memory: set[int]) -> bool:
    """Whether trees may share ``operand``: a number, or a small tensor apart from the memory of the call's operands.

    A tensor in that memory is a part of an operand, or one below it: the function has looked into an expression.
    """
    if type(operand) in (int, float, bool):
        return True
    base = operand._original_base if _is_tensor(operand) else None
    return base is not None and base.nbytes <= LARGEST_CONSTANT and id(base) not in memory
