"""The tape: values and derivatives of op-trees that are built, asked for and differentiated piece by piece.

A tape is no list of its own: the nodes of an op-tree are its entries, their gradient rules (the op table's, those of
compound primitives, a user's) its operations, and :mod:`.sweep` plays it. Two things are added.

* *Kept values* (:mod:`.keeping`). When a value is asked for that will be differentiated, one plan computes it and all
  that the backward pass will read and is dear to compute again: products, primitives, reductions, gathers, and chains
  of exponentials and the like that several of its kernels would repeat. What is cheap, elementwise from kept tensors,
  is not kept: the kernel that needs it computes it again. Which values a rule reads is found by asking the rule once.
  Kept tensors belong to their nodes, and go with them.
* *Stages of the backward pass* (:mod:`.backward`). Gradients stay expressions and fuse, until the pass comes to a dear
  node with others below it, or a dear gradient goes two ways: there it is computed, together with the derivatives of
  parameters that are pending, by one plan. Kept values behind that point are dropped: memory falls as it proceeds.
  Of a value that was read in parts, which are all of it, the gradient is a concatenation (:mod:`.joining`).

A chain of elementwise ops is thus one kernel forward and one backward; a multi-layer perceptron has a plan a layer. A
sweep alone (:func:`.sweep.gradients`) computes nothing: its gradients are expressions of the original nodes.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from neonlike.optree.calls import PART, sources
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS, Kind
from neonlike.optree.shapes import contiguous_strides
from neonlike.optree.walk import ordered

BROADCAST = OPS["broadcast"]
_DEAR = frozenset((Kind.CONTRACTION, Kind.CALL, Kind.REDUCTION, Kind.SCAN))
CHEAP_MOVES = frozenset(("transpose", "broadcast", "view"))
"""Ops that show a tensor otherwise; of what is kept they are views."""


class Rule(NamedTuple):
    """The gradient of an op that is written in others: it replaces what their rules would give.

    Attributes
    ----------
    name : str
    parents : tuple of Expression
        What the gradient goes to.
    grad : callable
        ``grad(F, d, z, *parents)``, as a rule of the op table.
    dear : bool
        Whether the value is worth keeping.
    heavy : bool
        Whether the gradient is more than elementwise ops and reductions.
    key : int or None
        Equal for rules whose ``grad`` gives equal gradients, see :func:`rule_key`; None: any other may differ.
    """

    name: str
    parents: tuple[Any, ...]
    grad: Callable[..., Any]
    dear: bool = True
    heavy: bool = False
    key: int | None = None


_rule_keys: dict[Any, int] = {}
_rule_numbers = itertools.count()
_MOST_RULES = 1 << 12


def rule_key(*what: Any) -> int | None:
    """A number that stands for ``what``: the name of a gradient rule, and what it depends on besides its arguments.

    None if that cannot be told: there are lists among it, or there are too many rules. 1, 1.0 and True differ.
    """
    told = tuple([(one.__class__, repr(one) if one.__class__ is float else one) for one in what])  # 0.0 is not -0.0
    try:
        found = _rule_keys.get(told)
        if found is None and len(_rule_keys) < _MOST_RULES:
            found = _rule_keys.setdefault(told, next(_rule_numbers))
    except TypeError:
        return None
    return found


def ruled(value: Expression, rule: Rule) -> OpTreeNode:
    """``value`` with another gradient; nothing is done when it runs."""
    attrs = {"shape": value.shape, "rule": rule}
    return OpTreeNode(BROADCAST, (value,), attrs, value.shape, value.dtype, value.backend)


def rule_of(node: OpTreeNode) -> Rule | None:
    """The gradient that :func:`ruled` gave to ``node``."""
    return node.attrs.get("rule") if node.spec is BROADCAST and node.attrs is not None else None


def is_dear(node: OpTreeNode) -> bool:
    """Whether ``node`` is more than a few instructions an element in somebody else's kernel."""
    if node.spec is BROADCAST:
        rule = rule_of(node)
        return rule is not None and rule.dear
    kind = node.spec.kind
    return kind in _DEAR or (kind is Kind.MOVE and node.spec.name not in CHEAP_MOVES)


def node_bytes(node: OpTreeNode) -> int:
    """Bytes of the value."""
    return math.prod(node.shape) * node.dtype.itemsize


def inputs(node: OpTreeNode) -> tuple[Any, ...]:
    """The expressions that the gradient at ``node`` goes to."""
    rule = rule_of(node)
    return sources(node) if rule is None else rule.parents


# Kept values ----------------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """The value of a node, and of a primitive its further results; ``alive`` is a reference to the node.

    The value may be an expression: of a primitive of whose results only the others are worth keeping.
    """

    alive: weakref.ref[OpTreeNode]
    tensor: Any
    parts: tuple[Any, ...]
    why: str
    leads: bool

    @property
    def nbytes(self) -> int:
        """Bytes of all results."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def tensors(self) -> list[Any]:
        """The tensors of them that are there."""
        return [result for result in (self.tensor, *self.parts) if result.__class__ is not OpTreeNode]


kept: dict[int, Kept] = {}
"""By the id of the node; an entry goes when its node does."""


def keep(node: OpTreeNode, tensors: Sequence[Any], why: str, leads: bool) -> None:
    """Remember the results of ``node``; ``leads``: a gradient has to go to it.

    Parameters
    ----------
    node : OpTreeNode
    tensors : sequence of Tensor
        The node's value, and further results.
    why : str
        The reason, for reports.
    leads : bool
    """
    # A builtin as callback: it runs no Python code, in which an interrupt could be raised and lost.
    alive = weakref.ref(node, partial(kept.pop, id(node)))
    kept[id(node)] = Kept(alive, tensors[0], tuple(tensors[1:]), why, leads)


def order_of(roots: Iterable[Any], stop: Container[int] = ()) -> list[OpTreeNode]:
    """Distinct nodes below ``roots``, by operands and by what gradients go to; see :func:`~.walk.ordered`."""
    return ordered(roots, _below, stop)


def _below(node: OpTreeNode) -> tuple[Any, ...]:
    operands = node.operands
    if node.spec is BROADCAST or node.spec is PART:
        passed_to = inputs(node)
        return operands if passed_to is operands else (*operands, *passed_to)
    return operands


# What stands for a node ---------------------------------------------------------------------------------------------


def replaced(expressions: Sequence[Any], others: dict[int, Any]) -> list[Any]:
    """``expressions`` with others in the places of the nodes and tensors whose ids are given."""
    now = dict(others)
    for node in order_of(expressions, others):
        now[id(node)] = current(node, now)
    return [now.get(id(expression), expression) for expression in expressions]


def current(node: OpTreeNode, now: dict[int, Any]) -> Any:
    """``node`` with its operands as ``now`` has them, or else as they are kept, or else as they are."""
    operands = node.operands
    if node.spec is PART and (entry := kept.get(id(operands[0]))) is not None:
        return (entry.tensor, *entry.parts)[node.attrs["part"]]  # type: ignore[index]
    changed = False
    for operand in operands:
        if isinstance(operand, Expression):
            new = now.get(id(operand))
            if new is not operand and (new is not None or operand.__class__ is OpTreeNode):
                changed = True
                break
    if changed:
        operands = tuple([_now(operand, now) for operand in operands])
    if node.spec is BROADCAST and rule_of(node) is not None:
        return operands[0]
    if node.spec.name == "view" and (view := _view(node, operands[0])) is not None:
        return view
    return OpTreeNode(node.spec, operands, node.attrs, node.shape, node.dtype, node.backend) if changed else node


def _now(operand: Any, now: dict[int, Any]) -> Any:
    found = now.get(id(operand)) if isinstance(operand, Expression) else operand
    if found is None:
        found = kept[id(operand)].tensor if operand.__class__ is OpTreeNode else operand
    return found


def _view(node: OpTreeNode, operand: Any) -> Any:
    """A window of a tensor as a view of it; None if it must be copied."""
    if operand.__class__ is OpTreeNode:
        return None
    shape, strides, offset = node.attrs["layout"]  # type: ignore[index]
    picks = node.attrs.get("picks")  # type: ignore[union-attr]
    if picks is not None:
        if not all(count for _, _, count, _ in picks):
            return None
        return operand[tuple(start if not whole else _slice(start, step, count) for start, step, count, whole in picks)]
    whole = not offset and math.prod(shape) == math.prod(operand.shape) and strides == contiguous_strides(shape)
    return operand.reshape(shape) if whole and operand.is_contiguous else None


def _slice(start: int, step: int, count: int) -> slice:
    stop = start + step * count
    return slice(start, stop if stop >= 0 else None, step)


def stand_in(node: OpTreeNode, *results: Any) -> Any:
    """The tensors of a value as what a gradient rule takes for ``node``: with its attributes, if it has any."""
    if node.attrs is None:
        return results[0]
    attrs = {name: value for name, value in node.attrs.items() if name not in ("picks", "rule")}
    attrs |= {"shape": node.shape, "parts": results}
    return OpTreeNode(BROADCAST, results[:1], attrs, node.shape, node.dtype, node.backend)


def empty_like(one: Any, backend: Any) -> OpTreeNode:
    """A node without operands, of the shape and dtype of ``one``; stands for it where a rule is asked."""
    return OpTreeNode(BROADCAST, (), {"shape": one.shape}, one.shape, one.dtype, backend)
