"""The backward pass over a tape, in stages that each compute what is pending and let go of what was kept for it.

See :mod:`neonlike.optree.tape`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from neonlike.optree.autodiff import GradNode, of_memory, unbroadcast
from neonlike.optree.dtypes import is_float
from neonlike.optree.functions import F as Functions
from neonlike.optree.joining import joined
from neonlike.optree.node import OpTreeNode
from neonlike.optree.tape import BROADCAST, Entry, Note, Walk, kept, leads, rule_of, stand_in

F: Any = Functions
_CHAIN = 12
"""Ops of a gradient that goes two ways, above which it is computed once; the planner's own limit within a plan."""


class Backward:
    """One backward pass from ``root``, whose gradient is ``incoming``.

    Parameters
    ----------
    root : expression
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
    walk : Walk, optional
        All below ``root``, where that was listed before; it is used up.
    note : callable, optional
        Is told what was assigned.

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
        walk: Walk | None = None,
        note: Note | None = None,
    ) -> None:
        self.note = note
        self.lazy, self.keep_graph, self.stop = lazy, keep_graph or lazy, stop
        self.be = incoming.backend
        self.gradients: dict[int, Any] = {}
        self.also = {id(node) for node in also}
        self.pending: dict[int, dict[int, GradNode]] = {}  # by parameter, then by the view of it
        self.parameters: dict[int, Any] = {}
        walk = walk or Walk([root], True, only, self.also)
        if not (lazy or walk.is_resolved):
            walk.resolve()
        order, entries = walk.order, walk.entries
        self._give(entries.get(id(root), root), incoming, False, 0)
        entries.clear()
        while order:
            entry = order.pop()
            self._step(entry)
            if not self.keep_graph:
                kept.pop(id(entry.node), None)
        self._flush(None)

    def _step(self, entry: Entry) -> None:
        """Pass the gradient of an entry on to its inputs."""
        if entry.total is None or not entry.lead:
            return
        entry.total = joined(entry.total)
        wanted = id(entry.node) in self.also
        if not self.lazy and entry.total.__class__ is OpTreeNode and (wanted or self._worth_computing(entry)):
            self._flush(entry)
        if wanted:
            self.gradients[id(entry.node)] = entry.total
            if self.stop:
                return
        self._pass_on(entry)

    def _worth_computing(self, entry: Entry) -> bool:
        """Whether the gradient would be computed several times if it stayed an expression, or hold up memory."""
        if not entry.deep:
            return False
        deep = sum(one.deep for one in entry.below if one.__class__ is Entry)
        return deep > 0 if entry.heavy else deep > 1 and (entry.unfinished or entry.length > _CHAIN)

    def _pass_on(self, entry: Entry) -> None:
        node = entry.node
        rule = rule_of(node) if node.spec is BROADCAST else None
        grad: Any = node.spec.grad if rule is None else rule.grad
        z, forms = node, entry.inputs
        if not self.lazy:
            saved = kept.get(id(node))
            if saved is not None:
                z = stand_in(node, saved.tensor, *saved.parts)
            else:
                z = entry.now if entry.now.__class__ is OpTreeNode else stand_in(node, entry.now)
            forms = tuple([b.now if b.__class__ is Entry else o for o, b in zip(forms, entry.below)])
        unfinished, length = entry.unfinished or entry.heavy, entry.length + 1
        increments = grad(F, entry.total, z, *forms)
        entry.total = None
        for goes_to, operand, increment in zip(entry.below, entry.inputs, increments):
            if increment is not None and leads(goes_to) and is_float(operand.dtype):
                if increment.shape != operand.shape:
                    increment = unbroadcast(increment, operand.shape)
                self._give(goes_to, increment, unfinished, length)

    def _give(self, to: Any, increment: Any, unfinished: bool, length: int) -> None:
        """Add to the gradient at an entry, or at a parameter's tensor."""
        if to.__class__ is Entry:
            to.total = increment if to.total is None else to.total + increment
            to.unfinished, to.length = to.unfinished or unfinished, to.length + length
            return
        parameter = to._original_base
        self.parameters[id(parameter)] = parameter
        views = self.pending.setdefault(id(parameter), {})
        views.setdefault(id(to), GradNode(to)).add(increment)

    def _flush(self, entry: Entry | None) -> None:
        """Compute the derivatives of parameters that are pending, and the gradient of an entry, by one plan."""
        pairs = []
        if entry is not None:
            pairs.append((self.be.fresh(entry.node.shape, entry.node.dtype), entry.total))
        for key, views in self.pending.items():
            parameter, before = self.parameters[key], self.gradients.get(key)
            gradient = of_memory(parameter, list(views.values()))
            if self.lazy:
                self.gradients[key] = gradient
            elif before is None:
                self.gradients[key] = self.be.fresh(parameter.shape, parameter.dtype)
                pairs.append((self.gradients[key], gradient))
            else:
                pairs.append((before, before + gradient))
        self.pending.clear()
        if pairs:
            self.be.assign_fresh(pairs)
            if self.note is not None:
                self.note(pairs)
        if entry is not None:
            entry.total, entry.unfinished, entry.length = pairs[0][0], False, 0
