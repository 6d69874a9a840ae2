"""The tape: values and derivatives of op-trees that are built, asked for and differentiated piece by piece.

A tape is no list of its own: the nodes of an op-tree are its entries, their gradient rules (the op table's, those of
compound primitives, a user's) its operations, and reverse post-order the order to play it in. Two things are added.

* *Kept values.* When a value is asked for that will be differentiated, one plan computes it and everything the backward
  pass will read that is dear to compute again: products, primitives, reductions, gathers, and chains of exponentials and
  the like that several of its kernels would repeat. What is cheap, elementwise from kept tensors, is not kept: the
  kernel that needs it computes it again. Which values a rule reads is found by asking the rule once (:func:`reads`).
  Kept tensors belong to their nodes, and go with them.
* *Stages of the backward pass.* Gradients stay expressions and fuse, until the pass comes to a dear node with others
  below it, or a dear gradient goes two ways: there it is computed, together with the derivatives of parameters that are
  pending, by one plan. Kept values behind that point are dropped, so memory falls as the pass proceeds.

A chain of elementwise ops is thus one kernel forward and one backward; a multi-layer perceptron has a plan a layer. With
``lazy`` nothing is computed, and gradients are expressions of the original nodes, which have derivatives themselves.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from neonlike.errors import GradientError
from neonlike.optree.autodiff import GradNode, of_memory, unbroadcast
from neonlike.optree.calls import PART, part
from neonlike.optree.dtypes import is_float
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import NON_DIFFERENTIABLE, OPS, Kind, OpSpec
from neonlike.optree.shapes import FREE, contiguous_strides

F: Any = Functions
HEAVY = 8
"""Flops an element from which a chain is kept that two or more kernels of the backward pass would repeat."""

_BROADCAST = OPS["broadcast"]
_ELEMENTWISE = Kind.ELEMENTWISE
_DEAR = frozenset((Kind.CONTRACTION, Kind.CALL, Kind.REDUCTION, Kind.SCAN))
_CHEAP_MOVES = frozenset(("transpose", "broadcast", "view"))
_CHAIN = 12
"""Ops of a gradient that goes two ways, above which it is computed once; the planner's own limit within a plan."""


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
    """

    name: str
    parents: tuple[Any, ...]
    grad: Callable[..., Any]
    dear: bool


def ruled(value: Expression, rule: Rule) -> OpTreeNode:
    """``value`` with another gradient; nothing is done when it runs."""
    attrs = {"shape": value.shape, "rule": rule}
    return OpTreeNode(_BROADCAST, (value,), attrs, value.shape, value.dtype, value.backend)


def rule_of(node: OpTreeNode) -> Rule | None:
    """The gradient that :func:`ruled` gave to ``node``."""
    return node.attrs.get("rule") if node.spec is _BROADCAST and node.attrs is not None else None


def inputs(node: OpTreeNode) -> tuple[Any, ...]:
    """What the gradient at ``node`` goes to."""
    rule = rule_of(node)
    return node.operands if rule is None else rule.parents


# Kept values ----------------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """The value of a node, and of a primitive its further results; ``alive`` is a reference to the node."""

    alive: weakref.ref[OpTreeNode]
    tensor: Any
    parts: tuple[Any, ...]
    why: str
    leads: bool

    @property
    def nbytes(self) -> int:
        """Bytes of all results."""
        return sum(tensor.nbytes for tensor in (self.tensor, *self.parts))


kept: dict[int, Kept] = {}
"""By the id of the node; an entry goes when its node does."""


def keep(node: OpTreeNode, tensors: Sequence[Any], why: str, leads: bool) -> None:
    """Remember the results of ``node``; ``leads``: a gradient has to go to it."""
    # A builtin as callback: it runs no Python code, in which an interrupt could be raised and lost.
    alive = weakref.ref(node, partial(kept.pop, id(node)))
    kept[id(node)] = Kept(alive, tensors[0], tuple(tensors[1:]), why, leads)


def order_of(roots: Iterable[Any], stop: Container[int] = kept) -> list[OpTreeNode]:
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
        if node.spec is _BROADCAST and (rule := rule_of(node)) is not None:
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


def leading(
    order: Sequence[OpTreeNode], only: set[int] | None = None, also: Iterable[int] = (), stop: bool = False
) -> set[int]:
    """Ids of the nodes among ``order`` whose gradient reaches a parameter.

    ``only``: of parameters, those whose tensors have these ids. ``also``: the nodes of these ids, too; with ``stop``
    nothing below them.
    """
    found: set[int] = set(also)
    for node in order:
        if rule_of(node) is None and node.spec.grad is NON_DIFFERENTIABLE:
            continue
        for operand in inputs(node):
            if leads(operand, found, only):
                found.add(id(node))
                break
    return found


def leads(operand: Any, nodes: set[int], only: set[int] | None = None) -> bool:
    """Whether a gradient has to go to ``operand``: a parameter, a view of one, one of ``nodes``, or a kept node above
    one."""
    if operand.__class__ is OpTreeNode:
        if id(operand) in nodes:
            return True
        entry = kept.get(id(operand)) if only is None else None
        return entry is not None and entry.leads
    if not isinstance(operand, Expression):
        return False
    base = operand._original_base  # type: ignore[attr-defined]
    return base.is_parameter and (only is None or id(base) in only)


# Which values a rule reads --------------------------------------------------------------------------------------------

_reads: dict[OpSpec, tuple[tuple[int, ...], ...]] = {}


def reads(node: OpTreeNode) -> tuple[tuple[int, ...], ...]:
    """For each input of ``node`` what its gradient reads: i for the value of input i, -1 for the node's own."""
    rule = rule_of(node)
    if rule is None and (found := _reads.get(node.spec)) is not None:
        return found
    found = _asked(node, node.spec.grad if rule is None else rule.grad, inputs(node))
    if rule is None and node.spec.kind is not Kind.CALL:  # of a primitive it depends on the request
        _reads[node.spec] = found
    return found


def _asked(node: OpTreeNode, grad: Any, operands: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
    """The answer of ``grad`` for operands, of which no two are the same, that stand for those of ``node``."""
    backend = node.backend
    stand_ins = tuple(
        OpTreeNode(_BROADCAST, (), {"shape": o.shape}, o.shape, o.dtype, backend)
        if isinstance(o, Expression)
        else OpTreeNode(_BROADCAST, (), {"shape": (1, 1)}, (1, 1), node.dtype, backend)
        for o in operands
    )
    z = OpTreeNode(node.spec, stand_ins, node.attrs, node.shape, node.dtype, backend)
    d = OpTreeNode(_BROADCAST, (), {"shape": node.shape}, node.shape, node.dtype, backend)
    names = {id(z): -1, **{id(stand_in): place for place, stand_in in enumerate(stand_ins)}}
    found = []
    try:
        increments = grad(F, d, z, *stand_ins)
    except GradientError:  # there is none; the backward pass will say so
        increments = (None,) * len(operands)
    for increment in increments:
        below = order_of([increment], names) if increment.__class__ is OpTreeNode else []
        seen = [increment, *(operand for node in below for operand in node.operands)]
        found.append(tuple(sorted({names[id(one)] for one in seen if id(one) in names})))
    return tuple(found)


# What is worth keeping ------------------------------------------------------------------------------------------------


def choose(
    order: Sequence[OpTreeNode], roots: Iterable[OpTreeNode], lead: set[int]
) -> dict[int, tuple[OpTreeNode, str]]:
    """The nodes whose values the backward pass will read and that are worth keeping, with the reasons; ``roots`` are
    computed in any case. ``lead`` has the ids of nodes that :func:`leading` found."""
    own = {id(root) for root in roots}
    reached = set(own)
    weight, forced = _costs(order)
    soft: set[int] = set()  # read by elementwise rules, which share a kernel
    hard: dict[int, int] = {}  # how many dear ops read it, each in a kernel of its own
    found: dict[int, tuple[OpTreeNode, str]] = {}
    for node in reversed(order):
        key = id(node)
        operands = inputs(node)
        if key in reached:
            reached.update([id(o) for o in operands if o.__class__ is OpTreeNode])
            if key in lead:
                dear = is_dear(node)
                for operand, needed in zip(operands, reads(node)):
                    for place in needed if leads(operand, lead) else ():
                        read = id(node if place < 0 else operands[place])
                        if dear and place >= 0:
                            hard[read] = hard.get(read, 0) + 1
                        else:
                            soft.add(read)
        uses = hard.get(key, 0) + (key in soft)
        if not uses or key in own:
            continue
        if why := _worth(node, uses, weight[key], forced[key]):
            found[key] = node, why
            continue
        for operand in operands:
            if operand.__class__ is OpTreeNode:
                hard[id(operand)] = hard.get(id(operand), 0) + hard.get(key, 0)
                if key in soft:
                    soft.add(id(operand))
    return found


def is_dear(node: OpTreeNode) -> bool:
    """Whether ``node`` is more than a few instructions an element in somebody else's kernel."""
    kind = node.spec.kind
    if kind is _ELEMENTWISE:
        return False
    if (rule := rule_of(node)) is not None:
        return rule.dear
    return kind in _DEAR or (kind is Kind.MOVE and node.spec.name not in _CHEAP_MOVES)


def _costs(order: Sequence[OpTreeNode]) -> tuple[dict[int, int], dict[int, int]]:
    """For each node the flops an element to compute it again from tensors and dear nodes, and these nodes' bytes."""
    weight: dict[int, int] = {}
    forced: dict[int, int] = {}
    for node in order:
        key = id(node)
        if is_dear(node):
            weight[key], forced[key] = 0, node_bytes(node)
            continue
        total, below = node.spec.flops, 0
        for operand in inputs(node):
            total += weight.get(id(operand), 0)
            below += forced.get(id(operand), 0)
        weight[key], forced[key] = min(total, 1 << 20), min(below, 1 << 60)
    return weight, forced


def node_bytes(node: OpTreeNode) -> int:
    """Bytes of the value."""
    return math.prod(node.shape) * node.dtype.itemsize


def _worth(node: OpTreeNode, uses: int, weight: int, forced: int) -> str:
    """Why ``node`` is kept; empty if it is computed again."""
    if node.shape is FREE:
        return ""
    if is_dear(node):
        return "dear to compute again"
    if forced and forced >= node_bytes(node):
        return "computing it again would keep as much below it"
    if weight >= HEAVY and uses > 1:
        return f"{weight} flops an element, read by {uses} kernels"
    return ""


# Values ---------------------------------------------------------------------------------------------------------------


def compute(roots: Sequence[OpTreeNode], differentiable: bool) -> list[Any]:
    """Tensors of the values of ``roots``, by one plan that also computes what is to be kept.

    Values that were kept are not computed again. With ``differentiable`` those of the roots are kept too.
    """
    missing = list({id(root): root for root in roots if id(root) not in kept}.values())
    if not missing:
        return [kept[id(root)].tensor for root in roots]
    order = order_of(missing)
    lead = leading(order) if differentiable else set()
    chosen = choose(order, missing, lead) if differentiable else {}
    now = resolved(order)
    be = missing[0].backend
    pairs, made = [], []
    for node, why in [*((node, "asked for") for node in missing), *chosen.values()]:
        results = _results(node, now[id(node)])
        tensors = [be.fresh(result.shape, result.dtype) for result in results]
        pairs += zip(tensors, results)
        made.append((node, tensors, why))
    be.assign_many(pairs)
    values = {}
    for node, tensors, why in made:
        values[id(node)] = tensors[0]
        if differentiable:
            keep(node, tensors, why, id(node) in lead)
    return [values[id(root)] if id(root) in values else kept[id(root)].tensor for root in roots]


def _results(node: OpTreeNode, resolved_node: Any) -> list[Any]:
    """What to compute of ``node``: all results of a primitive, since its gradient may read them."""
    if node.spec.kind is not Kind.CALL or node.spec is PART:
        return [resolved_node]
    count = len(node.attrs["request"].results)  # type: ignore[index]
    return [part(resolved_node, position) for position in range(count)]


def resolved(order: Sequence[OpTreeNode]) -> dict[int, Any]:
    """Each node as it is best computed now: from kept tensors, windows of which are views. By the node's id."""
    now: dict[int, Any] = {}
    for node in order:
        entry = kept.get(id(node))
        now[id(node)] = _current(node, now) if entry is None else entry.tensor
    return now


def replaced(expressions: Sequence[Any], others: dict[int, Any]) -> list[Any]:
    """``expressions`` with others in the places of the nodes and tensors whose ids are given."""
    now = dict(others)
    for node in order_of(expressions, others):
        now[id(node)] = _current(node, now)
    return [now.get(id(expression), expression) for expression in expressions]


def _current(node: OpTreeNode, now: dict[int, Any]) -> Any:
    if node.spec is PART and (entry := kept.get(id(node.operands[0]))) is not None:
        return (entry.tensor, *entry.parts)[node.attrs["part"]]  # type: ignore[index]
    changed = False
    operands = []
    for operand in node.operands:
        if isinstance(operand, Expression):
            new = now.get(id(operand))
            if new is None:
                new = kept[id(operand)].tensor if operand.__class__ is OpTreeNode else operand
            changed = changed or new is not operand
            operand = new
        operands.append(operand)
    if node.spec is _BROADCAST and rule_of(node) is not None:
        return operands[0]
    if node.spec.name == "view" and (view := _view(node, operands[0])) is not None:
        return view
    return OpTreeNode(node.spec, tuple(operands), node.attrs, node.shape, node.dtype, node.backend) if changed else node


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


def _stand_in(node: OpTreeNode, entry: Kept) -> Any:
    """The kept value as what a gradient rule takes for ``node``: with its attributes, if it has any."""
    if node.attrs is None:
        return entry.tensor
    attrs = {name: value for name, value in node.attrs.items() if name not in ("picks", "rule")}
    attrs |= {"shape": node.shape, "parts": (entry.tensor, *entry.parts)}
    return OpTreeNode(_BROADCAST, (entry.tensor,), attrs, node.shape, node.dtype, node.backend)


# Gradients ------------------------------------------------------------------------------------------------------------


class _Total(GradNode):
    """The gradient gathered at a node; ``dear``: it has a dear op that was not computed yet. ``length``: its ops."""

    __slots__ = ("dear", "length")

    def __init__(self, owner: Any) -> None:
        super().__init__(owner)
        self.dear, self.length = False, 0


class Backward:
    """One backward pass from ``root``, whose gradient is ``incoming``.

    Parameters
    ----------
    root : node
    incoming : expression of its shape
    lazy : bool
        Compute nothing: :attr:`gradients` are expressions.
    keep_graph : bool
        Leave kept values to a further pass.
    also : nodes
        Whose gradients are wanted besides those of parameters.
    only : set of int, optional
        The ids of the tensors of those parameters whose gradients are wanted; None: all.
    stop : bool
        Pass no gradient on from the nodes in ``also``.

    Attributes
    ----------
    gradients : dict
        Gradients by the ids of parameters' tensors and of the nodes in ``also``.
    """

    def __init__(
        self,
        root: Any,
        incoming: Any,
        lazy: bool = False,
        keep_graph: bool = False,
        also: Iterable[Any] = (),
        only: set[int] | None = None,
        stop: bool = False,
    ) -> None:
        self.lazy, self.keep_graph, self.only, self.stop = lazy, keep_graph or lazy, only, stop
        self.be = incoming.backend
        self.gradients: dict[int, Any] = {}
        self.also = {id(node) for node in also}
        self.totals: dict[int, _Total] = {}
        self.pending: dict[int, dict[int, GradNode]] = {}  # by parameter, then by the view of it
        self.parameters: dict[int, Any] = {}
        self._give(root, incoming, False, 0)
        order = order_of([root], stop=())
        self.lead = leading(order, only, self.also)
        self.deep = self._deep(order)
        self.now: dict[int, Any] = {} if lazy else resolved(order)
        for node in reversed(order):
            self._step(node)
        self._flush(None)

    def _deep(self, order: Sequence[OpTreeNode]) -> set[int]:
        """Ids of the nodes at or below which a dear node passes a gradient on."""
        found: set[int] = set()
        for node in order:
            if id(node) in self.lead and (is_dear(node) or any(id(o) in found for o in inputs(node))):
                found.add(id(node))
        return found

    def _step(self, node: OpTreeNode) -> None:
        """Pass the gradient at ``node`` on to its inputs, and forget the node."""
        key = id(node)
        total = self.totals.pop(key, None)
        if total is not None and key in self.lead:
            operands = inputs(node)
            if not self.lazy and total.total.__class__ is OpTreeNode and self._worth_computing(node, total, operands):
                self._flush(total)
            if key in self.also:
                self.gradients[key] = total.total
            if not (self.stop and key in self.also):
                self._pass_on(node, total, operands)
        if not self.keep_graph:
            kept.pop(key, None)
        self.now.pop(key, None)

    def _worth_computing(self, node: OpTreeNode, total: _Total, operands: tuple[Any, ...]) -> bool:
        """Whether the gradient would be computed several times if it stayed an expression, or holds up memory."""
        if id(node) in self.also:
            return True
        deep = sum(id(operand) in self.deep for operand in operands)
        if is_dear(node):
            return deep > 0
        return deep > 1 and (total.dear or total.length > _CHAIN)

    def _pass_on(self, node: OpTreeNode, total: _Total, operands: tuple[Any, ...]) -> None:
        rule = rule_of(node)
        grad = node.spec.grad if rule is None else rule.grad
        if grad is NON_DIFFERENTIABLE:
            return
        z, forms = node, operands
        if not self.lazy:
            now = self.now
            entry = kept.get(id(node))
            z = now[id(node)] if entry is None else _stand_in(node, entry)
            forms = tuple([now.get(id(o), o) if o.__class__ is OpTreeNode else o for o in operands])
        increments = grad(F, total.total, z, *forms)
        dear = total.dear or is_dear(node)
        for operand, increment in zip(operands, increments):
            if increment is None or not leads(operand, self.lead, self.only):
                continue
            if operand.shape is FREE or not is_float(operand.dtype):
                continue
            self._give(operand, unbroadcast(increment, operand.shape), dear, total.length + 1)

    def _give(self, operand: Any, increment: Any, dear: bool, length: int) -> None:
        """Add to the gradient at ``operand``."""
        if operand.__class__ is OpTreeNode:
            total = self.totals.get(id(operand))
            if total is None:
                total = self.totals[id(operand)] = _Total(operand)
            total.add(increment)
            total.dear, total.length = total.dear or dear, total.length + length
            return
        parameter = operand._original_base
        self.parameters[id(parameter)] = parameter
        views = self.pending.setdefault(id(parameter), {})
        views.setdefault(id(operand), GradNode(operand)).add(increment)

    def _flush(self, total: _Total | None) -> None:
        """Compute the derivatives of parameters that are pending, and ``total``, by one plan."""
        if self.lazy:
            for key, views in self.pending.items():
                self.gradients[key] = of_memory(self.parameters[key], list(views.values()))
            return
        pairs = []
        if total is not None:
            pairs.append((self.be.fresh(total.owner.shape, total.owner.dtype), total.total))
        for key, views in self.pending.items():
            parameter = self.parameters[key]
            gradient = of_memory(parameter, list(views.values()))
            made = self.gradients.get(key)
            if made is None:
                made = self.gradients[key] = self.be.fresh(parameter.shape, parameter.dtype)
                pairs.append((made, gradient))
            else:
                pairs.append((made, made + gradient))
        self.pending.clear()
        if pairs:
            self.be.assign_many(pairs)
        if total is not None:
            total.total, total.dear, total.length = pairs[0][0], False, 0
