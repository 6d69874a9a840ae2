"""The steps by which the CPython extension builds what a marked function of several nodes builds.

A function of ``(a, axis)`` such as ``softmax`` says in Python which nodes it makes. :func:`steps_of` calls it with a
sample of ``a``, and reads the nodes off the expression that comes back; ``templates/c/fastpath/fastpath_nodes.h`` makes
them again for other operands and axes. So the definition stands in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from neonlike.errors import NeonlikeError
from neonlike.optree.dtypes import F16, F32, F64, DType
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS
from neonlike.optree.tape import Rule, rule_of

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
