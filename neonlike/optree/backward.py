"""The tape's sweep: what values cost, and the backward pass in stages, which computes gradients and frees kept values.

See :mod:`neonlike.optree.tape`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import Kind
from neonlike.optree.sweep import GradNode, Sweep, by_memory, memory_of, of_memory
from neonlike.optree.tape import current, is_dear, kept, node_bytes, stand_in

_ELEMENTWISE = Kind.ELEMENTWISE
_MANY = 1 << 40
"""Costs are counted up to this; a node that is used twice counts twice, so they may double with each node."""
_CHAIN = 12
"""Ops of a gradient that goes two ways, above which it is computed once; the planner's own limit within a plan."""


class Entry(GradNode):
    """A node of the tape, with the costs of its value.

    Attributes
    ----------
    now : expression or tensor
        The node as it is best computed now, from kept tensors and views of them.
    dear, heavy, deep : bool
        Whether its value is a stage of its own; whether its gradient is; and whether such a one passes a gradient on,
        here or below.
    weight, forced : int
        Flops an element to compute it again from tensors and dear nodes, and these nodes' bytes.
    reached : bool
        Whether the root is computed from it.
    soft, hard : bool, int
        Whether elementwise rules read its value, which share a kernel; how many dear ones do, each in a kernel.
    why : str
        Why its value is kept; or how it will be had again, or that nothing reads it.
    unfinished, length
        Whether a dear op of the gradient gathered so far was not computed yet; how many ops it has.
    """

    __slots__ = (
        "dear", "deep", "forced", "hard", "heavy", "length", "now", "reached", "soft", "unfinished", "weight", "why",
    )  # fmt: skip

    node: OpTreeNode
    now: Any
    deep: bool
    weight: int
    forced: int

    def __init__(self, node: OpTreeNode) -> None:
        self.node = self.now = node
        self.total = None
        self.dear = self.heavy = self.soft = self.reached = self.unfinished = False
        self.hard = self.length = 0
        self.why = ""


class TapeSweep(Sweep):
    """A sweep that counts what values cost, and computes gradients by few plans.

    Parameters
    ----------
    root : expression
    through_kept : bool
        Whether to list what kept nodes were computed from, too.
    wanted : container of ids, optional
        Nodes and parameters' tensors to differentiate by. None: all parameters.

    Attributes
    ----------
    complete : bool
        Whether no kept node was met, below which there is more.
    """

    node_type = Entry

    def __init__(self, root: Any, through_kept: bool, wanted: Container[int] | None = None) -> None:
        self.complete, self.is_resolved = True, False
        super().__init__(root, wanted, () if through_kept else kept)

    def _wants(self, one: Any) -> bool:
        if self.wanted is not None:
            return id(memory_of(one)) in self.wanted
        return one.__class__ is not OpTreeNode and (one if one.base is None else memory_of(one)).is_parameter

    def _unlisted(self, node: OpTreeNode) -> GradNode | None:
        self.complete = False
        return GradNode(node) if kept[id(node)].leads else None

    def _step(self, node: OpTreeNode) -> Entry:
        entry: Entry = super()._step(node)
        spec, rule = node.spec, entry.rule
        deep, weight, forced = False, spec.flops, 0
        for below in entry.below:
            if below.__class__ is Entry:
                deep = deep or below.deep
                weight += below.weight
                forced += below.forced
        if spec.kind is not _ELEMENTWISE and is_dear(node):
            entry.dear = True
            entry.heavy = spec.kind is not Kind.REDUCTION if rule is None else rule.heavy
            weight, forced = 0, node_bytes(node)
        entry.deep = entry.lead and (deep or entry.heavy)
        entry.weight, entry.forced = weight if weight < _MANY else _MANY, forced if forced < _MANY else _MANY
        return entry

    def resolve(self) -> None:
        """Set ``now`` of each entry."""
        now: dict[int, Any] = {}
        self.is_resolved = True
        for key, entry in self.steps.items():
            saved = kept.get(key)
            entry.now = now[key] = current(entry.node, now) if saved is None else saved.tensor

    def compute(self, incoming: Any, keep_graph: bool = False) -> dict[int, Any]:
        """Tensors of the gradients, by the ids of the nodes and parameters' tensors wanted; once for each sweep.

        Parameters
        ----------
        incoming : tensor
            The gradient at the root.
        keep_graph : bool
            Leave kept values to a further pass.
        """
        self.be, self.keep_graph = incoming.backend, keep_graph
        self.gradients: dict[int, Any] = {}
        self.pending: dict[int, GradNode] = {}  # tensors whose gradients were not computed yet
        if not self.is_resolved:
            self.resolve()
        self.run(incoming)
        self.pending = self.leaves
        self._flush(None)
        return self.gradients

    def _visit(self, entry: Entry) -> None:
        """Compute the gradient gathered at ``entry``, where that is to be done here, and pass it on."""
        node = entry.node
        wanted = self.wanted is not None and id(node) in self.wanted
        if entry.total.__class__ is OpTreeNode and (wanted or _worth_computing(entry)):
            self._flush(entry)
        if wanted:
            self.gradients[id(node)] = entry.total
        saved = kept.get(id(node))
        if saved is not None:
            z = stand_in(node, saved.tensor, *saved.parts)
        else:
            z = entry.now if entry.now.__class__ is OpTreeNode else stand_in(node, entry.now)
        forms = tuple([b.now if b.__class__ is Entry else o for o, b in zip(entry.inputs, entry.below)])
        d, entry.total = entry.total, None
        self._pass_on(entry, d, z, forms)
        unfinished, length = entry.unfinished or entry.heavy, entry.length + 1
        for to in entry.below:
            if to.__class__ is Entry:
                to.unfinished, to.length = to.unfinished or unfinished, to.length + length
            elif to is not None:
                self.pending[id(to)] = to

    def _leave(self, entry: Entry) -> None:
        """Let go of what was kept for the visit of ``entry``."""
        entry.now = None
        if not self.keep_graph:
            kept.pop(id(entry.node), None)

    def _flush(self, entry: Entry | None) -> None:
        """Compute the derivatives of parameters that are pending, and the gradient of an entry, by one plan."""
        pairs = []
        if entry is not None:
            pairs.append((self.be.fresh(entry.node.shape, entry.node.dtype), entry.total))
        for key, views in by_memory(self.pending.values()).items():
            parameter, before = memory_of(views[0].node), self.gradients.get(key)
            gradient = of_memory(parameter, views)
            if before is None:
                self.gradients[key] = self.be.fresh(parameter.shape, parameter.dtype)
                pairs.append((self.gradients[key], gradient))
            else:
                pairs.append((before, before + gradient))
        for leaf in self.pending.values():
            leaf.total = None
        self.pending = {}
        if pairs:
            self.be.assign_fresh(pairs)
        if entry is not None:
            entry.total, entry.unfinished, entry.length = pairs[0][0], False, 0


def _worth_computing(entry: Entry) -> bool:
    """Whether the gradient would be computed several times if it stayed an expression, or hold up memory."""
    if not entry.deep:
        return False
    deep = sum(one.deep for one in entry.below if one.__class__ is Entry)
    return deep > 0 if entry.heavy else deep > 1 and (entry.unfinished or entry.length > _CHAIN)
