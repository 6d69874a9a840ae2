"""The tape: values and derivatives of op-trees that are built, asked for and differentiated piece by piece.

A tape is no list of its own: the nodes of an op-tree are its entries, their gradient rules (the op table's, those of
compound primitives, a user's) its operations, and reverse post-order the order to play it in. Two things are added.

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
lazy pass computes nothing: its gradients are expressions of the original nodes, and can be differentiated themselves.
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
from neonlike.optree.ops import NON_DIFFERENTIABLE, OPS, Kind
from neonlike.optree.shapes import contiguous_strides

BROADCAST = OPS["broadcast"]
_ELEMENTWISE = Kind.ELEMENTWISE
_DEAR = frozenset((Kind.CONTRACTION, Kind.CALL, Kind.REDUCTION, Kind.SCAN))
_MANY = 1 << 40
"""Costs are counted up to this; a node that is used twice counts twice, so they may double with each node."""
Note = Callable[[list[tuple[Any, Any]]], None]
"""Is told the pairs of an assignment that was just made for a value or a gradient."""
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
    """Remember the results of ``node``; ``leads``: a gradient has to go to it."""
    # A builtin as callback: it runs no Python code, in which an interrupt could be raised and lost.
    alive = weakref.ref(node, partial(kept.pop, id(node)))
    kept[id(node)] = Kept(alive, tensors[0], tuple(tensors[1:]), why, leads)


def order_of(roots: Iterable[Any], stop: Container[int] = ()) -> list[OpTreeNode]:
    """Distinct nodes below ``roots``, operands before users; without those whose ids are in ``stop``, and what only
    they need."""
    order: list[OpTreeNode] = []
    done: set[int] = set()
    stack = [root for root in roots if root.__class__ is OpTreeNode and id(root) not in stop]
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        below = node.operands
        if node.spec is BROADCAST and (rule := rule_of(node)) is not None:
            below = (*below, *rule.parents)
        ready = True
        for operand in below:
            if operand.__class__ is OpTreeNode and id(operand) not in done and id(operand) not in stop:
                stack.append(operand)
                ready = False
        if ready:
            stack.pop()
            done.add(id(node))
            order.append(node)
    return order


class Entry:
    """One node of the tape, with what is known of it.

    Attributes
    ----------
    node : OpTreeNode
    inputs : tuple
        What its gradient goes to: nodes, tensors, numbers.
    below : list
        What a gradient goes on to, one an input: an entry, a parameter's tensor, or of a node that is not listed what
        was kept; None: a constant. Entries may be constants too, then they do not ``lead``.
    lead : bool
        Whether a gradient has to come here: it reaches a parameter.
    dear, heavy, deep : bool
        Whether its value is a stage of its own; whether its gradient is; and whether such a one passes a gradient on,
        here or below.
    weight, forced : int
        Flops an element to compute it again from tensors and dear nodes, and these nodes' bytes.
    soft, hard : bool, int
        Whether elementwise rules read its value, which share a kernel; how many dear ones do, each in a kernel.
    why : str
        Why its value is kept; or how it will be had again, or that nothing reads it.
    total, unfinished, length
        The gradient gathered so far; whether a dear op of it was not computed yet; how many ops it has.
    """

    __slots__ = (
        "below", "dear", "deep", "forced", "hard", "heavy", "inputs", "lead", "length", "node", "now", "reached",
        "soft", "total", "unfinished", "weight", "why",
    )  # fmt: skip

    node: OpTreeNode
    inputs: tuple[Any, ...]
    now: Any
    total: Any
    why: str

    def __init__(self, node: OpTreeNode, inputs: tuple[Any, ...]) -> None:
        self.node = self.now = node
        self.inputs = inputs
        self.below: list[Any] = []
        self.lead = self.dear = self.heavy = self.deep = self.soft = self.reached = self.unfinished = False
        self.weight = self.forced = self.hard = self.length = 0
        self.total = None
        self.why = ""


def leads(below: Any) -> bool:
    """Whether a gradient has to go to one of :attr:`Entry.below`."""
    return below.lead if below.__class__ is Entry else below is not None


class Walk:
    """The entries below ``roots``, operands before users.

    Parameters
    ----------
    roots : expressions
    through_kept : bool
        Whether to list what kept nodes were computed from, too.
    only : set of int, optional
        The ids of the tensors of those parameters whose gradients are wanted; None: all.
    also : ids of nodes
        Whose gradients are wanted besides.

    Attributes
    ----------
    entries : dict
        By the ids of the nodes; ``order`` is a list of them.
    complete : bool
        Whether no kept node was met, below which there is more.
    """

    def __init__(
        self, roots: Iterable[Any], through_kept: bool, only: set[int] | None = None, also: Container[int] = ()
    ) -> None:
        self.only, self.also = only, also
        self.entries: dict[int, Entry] = {}
        self.complete, self.is_resolved = True, False
        entries, stop = self.entries, () if through_kept else kept
        stack = [root for root in roots if root.__class__ is OpTreeNode and id(root) not in stop]
        while stack:
            node = stack[-1]
            if id(node) in entries:
                stack.pop()
                continue
            rule = rule_of(node) if node.spec is BROADCAST else None
            waiting = len(stack)
            listed = node.operands if rule is None and node.spec is not PART else (*node.operands, *inputs(node))
            for operand in listed:
                if operand.__class__ is OpTreeNode and id(operand) not in entries and id(operand) not in stop:
                    stack.append(operand)
            if len(stack) == waiting:
                stack.pop()
                entries[id(node)] = self._entry(node, rule)
        self.order = list(entries.values())

    def _entry(self, node: OpTreeNode, rule: Rule | None) -> Entry:
        spec, entries = node.spec, self.entries
        entry = Entry(node, sources(node) if rule is None else rule.parents)
        lead, deep, weight, forced = id(node) in self.also, False, spec.flops, 0
        for operand in entry.inputs:
            kind = operand.__class__
            below: Any = None
            if kind is OpTreeNode:
                below = entries.get(id(operand))
                if below is None:
                    self.complete = False
                    below = kept[id(operand)] if kept[id(operand)].leads else None
                    lead = lead or below is not None
                else:
                    lead, deep = lead or below.lead, deep or below.deep
                    weight += below.weight
                    forced += below.forced
            elif kind is not float and isinstance(operand, Expression) and self.wants(operand):
                lead, below = True, operand
            entry.below.append(below)
        entry.lead = lead and (rule is not None or spec.grad is not NON_DIFFERENTIABLE)
        if spec.kind is not _ELEMENTWISE and is_dear(node):
            entry.dear = True
            entry.heavy = spec.kind is not Kind.REDUCTION if rule is None else rule.heavy
            weight, forced = 0, node_bytes(node)
        entry.deep = entry.lead and (deep or entry.heavy)
        entry.weight, entry.forced = weight if weight < _MANY else _MANY, forced if forced < _MANY else _MANY
        return entry

    def wants(self, tensor: Any) -> bool:
        """Whether ``tensor`` is a parameter whose gradient is wanted, or a view of one."""
        base = tensor if tensor.base is None else tensor._original_base
        return base.is_parameter and (self.only is None or id(base) in self.only)

    def resolve(self) -> None:
        """Set ``now`` of each entry: the node as it is best computed now, from kept tensors and views of them."""
        now: dict[int, Any] = {}
        self.is_resolved = True
        for key, entry in self.entries.items():
            saved = kept.get(key)
            entry.now = now[key] = _current(entry.node, now) if saved is None else saved.tensor


# What stands for a node ---------------------------------------------------------------------------------------------


def replaced(expressions: Sequence[Any], others: dict[int, Any]) -> list[Any]:
    """``expressions`` with others in the places of the nodes and tensors whose ids are given."""
    now = dict(others)
    for node in order_of(expressions, others):
        now[id(node)] = _current(node, now)
    return [now.get(id(expression), expression) for expression in expressions]


def _current(node: OpTreeNode, now: dict[int, Any]) -> Any:
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
