"""The backward pass over a tape, in stages that each compute what is pending and let go of what was kept for it.

See :mod:`neonlike.optree.tape`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from neonlike.optree.keeping import Entry, TapeWalk
from neonlike.optree.node import OpTreeNode
from neonlike.optree.sweep import GradNode, Sweep, by_memory, of_memory
from neonlike.optree.tape import Note, kept, stand_in

_CHAIN = 12
"""Ops of a gradient that goes two ways, above which it is computed once; the planner's own limit within a plan."""


class Backward(Sweep):
    """Sweeps from ``root``, with the gradient ``incoming``, and computes gradients on the way.

    Parameters
    ----------
    root : expression
    incoming : tensor of its shape
    keep_graph : bool
        Leave kept values to a further pass.
    wanted : container of ids, optional
        The nodes and parameters' tensors whose gradients are wanted; None: those of all parameters.
    walk : TapeWalk, optional
        All below ``root``, where that was listed before; it is used up.
    note : callable, optional
        Is told what was assigned.

    Attributes
    ----------
    gradients : dict
        Tensors by the ids of the nodes and parameters' tensors wanted.
    """

    def __init__(
        self,
        root: Any,
        incoming: Any,
        keep_graph: bool = False,
        wanted: Container[int] | None = None,
        walk: TapeWalk | None = None,
        note: Note | None = None,
    ) -> None:
        self.note, self.keep_graph, self.be = note, keep_graph, incoming.backend
        self.wanted = () if wanted is None else wanted
        self.gradients: dict[int, Any] = {}
        self.pending: dict[int, GradNode] = {}  # tensors whose gradients were not computed yet
        walk = walk or TapeWalk([root], True, wanted)
        if not walk.is_resolved:
            walk.resolve()
        super().__init__(root, incoming, walk)
        self.pending = walk.leaves
        self._flush(None)

    def visit(self, entry: Entry) -> None:
        """Compute the gradient gathered at ``entry``, where that is to be done here, and pass it on."""
        node = entry.node
        wanted = id(node) in self.wanted
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
        self.pass_on(entry, d, z, forms)
        unfinished, length = entry.unfinished or entry.heavy, entry.length + 1
        for to in entry.below:
            if to.__class__ is Entry:
                to.unfinished, to.length = to.unfinished or unfinished, to.length + length
            elif to is not None:
                self.pending[id(to)] = to

    def leave(self, entry: Entry) -> None:
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
            parameter, before = views[0].node._original_base, self.gradients.get(key)
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
            if self.note is not None:
                self.note(pairs)
        if entry is not None:
            entry.total, entry.unfinished, entry.length = pairs[0][0], False, 0


def _worth_computing(entry: Entry) -> bool:
    """Whether the gradient would be computed several times if it stayed an expression, or hold up memory."""
    if not entry.deep:
        return False
    deep = sum(one.deep for one in entry.below if one.__class__ is Entry)
    return deep > 0 if entry.heavy else deep > 1 and (entry.unfinished or entry.length > _CHAIN)
