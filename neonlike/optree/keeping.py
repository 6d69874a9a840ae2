"""What a variable's value costs: which values the backward pass will read, which of them are kept, and computing both.

See :mod:`neonlike.optree.tape` for why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neonlike.errors import GradientError
from neonlike.optree.calls import PART, part
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import Kind, OpSpec
from neonlike.optree.shapes import FREE
from neonlike.optree.tape import BROADCAST, Entry, Walk, inputs, keep, kept, node_bytes, order_of, rule_of

F: Any = Functions
HEAVY = 8
"""Flops an element from which a chain is kept that two or more kernels of the backward pass would repeat."""

# Which values a rule reads --------------------------------------------------------------------------------------------

_reads: dict[OpSpec, tuple[tuple[int, ...], ...]] = {}


def reads(node: OpTreeNode) -> tuple[tuple[int, ...], ...]:
    """For each input of ``node`` what its gradient reads: i for the value of input i, -1 for the node's own."""
    rule = rule_of(node) if node.spec is BROADCAST else None
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
        OpTreeNode(BROADCAST, (), {"shape": o.shape}, o.shape, o.dtype, backend)
        if isinstance(o, Expression)
        else OpTreeNode(BROADCAST, (), {"shape": (1, 1)}, (1, 1), node.dtype, backend)
        for o in operands
    )
    z = OpTreeNode(node.spec, stand_ins, node.attrs, node.shape, node.dtype, backend)
    d = OpTreeNode(BROADCAST, (), {"shape": node.shape}, node.shape, node.dtype, backend)
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

AGAIN = "computed again in the kernels that read it"


def choose(walk: Walk, roots: Iterable[Any]) -> list[Entry]:
    """The entries whose values the backward pass will read and that are worth keeping, ``why`` says why; ``roots`` are
    computed in any case."""
    entries = walk.entries
    own = {id(root) for root in roots}
    for key in own & entries.keys():
        entries[key].reached = True
    found = []
    for entry in reversed(walk.order):
        if not entry.reached:
            continue
        below = [entries.get(id(o)) for o in entry.inputs]
        for one in below:
            if one is not None:
                one.reached = True
        if entry.lead:
            _note_reads(walk, entry, below)
        if id(entry.node) in own or not (entry.soft or entry.hard):
            continue
        if _worth_keeping(entry):
            found.append(entry)
            continue
        entry.why = AGAIN
        for one in below:
            if one is not None:
                one.hard += entry.hard
                one.soft = one.soft or entry.soft
    return found


def _note_reads(walk: Walk, entry: Entry, below: list[Entry | None]) -> None:
    """Note which values the gradient rule of ``entry`` reads."""
    for operand, needed in zip(entry.inputs, reads(entry.node)):
        if not needed or not walk.leads(operand):
            continue
        for place in needed:
            read = entry if place < 0 else below[place]
            if read is None:
                continue
            if entry.heavy and place >= 0:
                read.hard += 1
            else:
                read.soft = True


def _worth_keeping(entry: Entry) -> bool:
    """Whether the value is kept; ``why`` has the reason then."""
    uses = entry.hard + entry.soft
    if entry.node.shape is FREE:
        return False
    if entry.dear:
        entry.why = "dear to compute again"
    elif entry.forced and entry.forced >= node_bytes(entry.node):
        entry.why = "computing it again would keep as much below it"
    elif entry.weight >= HEAVY and uses > 1:
        entry.why = f"{entry.weight} flops an element, read by {uses} kernels"
    return entry.why != ""


# Values ---------------------------------------------------------------------------------------------------------------


def compute(roots: Sequence[OpTreeNode], differentiable: bool) -> list[Any]:
    """Tensors of the values of ``roots``, by one plan that also computes what is to be kept.

    Values that were kept are not computed again. With ``differentiable`` those of the roots are kept too.
    """
    missing = list({id(root): root for root in roots if id(root) not in kept}.values())
    values: dict[int, Any] = {}
    if missing:
        walk = Walk(missing, through_kept=False)
        walk.resolve()
        wanted = [walk.entries[id(root)] for root in missing]
        if differentiable:
            for entry in wanted:
                entry.why = "asked for"
            wanted += choose(walk, missing)
        values = _computed(missing[0].backend, wanted, differentiable)
    return [values[id(root)] if id(root) in values else kept[id(root)].tensor for root in roots]


def _computed(be: Any, wanted: Sequence[Entry], keeping: bool) -> dict[int, Any]:
    """The values of ``wanted`` in new tensors, by the ids of the nodes."""
    pairs: list[tuple[Any, Any]] = []
    made = []
    for entry in wanted:
        results = _results(entry)
        tensors = [be.fresh(result.shape, result.dtype) for result in results]
        pairs += zip(tensors, results)
        made.append((entry, tensors))
    be.assign_many(pairs)
    for entry, tensors in made if keeping else ():
        keep(entry.node, tensors, entry.why, entry.lead)
    return {id(entry.node): tensors[0] for entry, tensors in made}


def _results(entry: Entry) -> list[Any]:
    """What to compute of a node: all results of a primitive, since its gradient may read them."""
    node = entry.node
    if node.spec.kind is not Kind.CALL or node.spec is PART:
        return [entry.now]
    count = len(node.attrs["request"].results)  # type: ignore[index]
    return [part(entry.now, position) for position in range(count)]
