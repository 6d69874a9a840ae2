"""Choice of the values kept for the backward pass, by the costs of keeping and of recomputing.

See :mod:`neonlike.optree.tape` for the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neonlike.errors import GradientError
from neonlike.optree.backward import Entry, TapeSweep
from neonlike.optree.calls import PART, part
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import Kind, OpSpec
from neonlike.optree.shapes import FREE
from neonlike.optree.tape import (
    BROADCAST,
    CHEAP_MOVES,
    empty_like,
    inputs,
    keep,
    kept,
    node_bytes,
    order_of,
    rule_of,
)

F: Any = Functions
HEAVY = 8
"""Flops per element from which a chain is kept if at least two kernels of the backward pass would repeat it."""

# Values read by a gradient rule ---------------------------------------------------------------------------------------

FURTHER = -2
"""Stands for a primitive's further results among the values that a gradient rule reads."""

_reads: dict[OpSpec, tuple[tuple[int, ...], ...]] = {}


def reads(node: OpTreeNode) -> tuple[tuple[int, ...], ...]:
    """Values read by the gradient of each input of ``node``.

    i stands for the value of input i, -1 for the node's own, and ``FURTHER`` for a primitive's further results.
    """
    rule = rule_of(node) if node.spec is BROADCAST else None
    if rule is None and (found := _reads.get(node.spec)) is not None:
        return found
    found = _asked(node, node.spec.grad if rule is None else rule.grad, inputs(node))
    if rule is None and node.spec.kind is not Kind.CALL:  # depends on a primitive's request
        _reads[node.spec] = found
    return found


def _asked(node: OpTreeNode, grad: Any, operands: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
    """Trace ``grad`` with distinct stand-ins for the operands of ``node`` and return what it reads."""
    backend = node.backend
    number = OpTreeNode(BROADCAST, (), {"shape": (1, 1)}, (1, 1), node.dtype, backend)
    stand_ins = tuple(empty_like(o if isinstance(o, Expression) else number, backend) for o in operands)
    z = OpTreeNode(node.spec, stand_ins, node.attrs, node.shape, node.dtype, backend)
    d = empty_like(node, backend)
    names = {id(z): -1, **{id(stand_in): place for place, stand_in in enumerate(stand_ins)}}
    found = []
    try:
        increments = grad(F, d, z, *stand_ins)
    except GradientError:  # there is no gradient; the backward pass will report it
        increments = (None,) * len(operands)
    for increment in increments:
        below = order_of([increment], names) if increment.__class__ is OpTreeNode else []
        seen = [increment, *(operand for node in below if node.spec is not PART for operand in node.operands)]
        read = {names[id(one)] for one in seen if id(one) in names}
        read |= {FURTHER for node in below if node.spec is PART and node.operands[0] is z}
        found.append(tuple(sorted(read)))
    return tuple(found)


# What is worth keeping ------------------------------------------------------------------------------------------------

AGAIN = "computed again in the kernels that read it"


def choose(sweep: TapeSweep, valued: set[int]) -> list[Entry]:
    """The entries whose values the backward pass will read and that are worth keeping, ``why`` says why; the root is
    computed in any case. To ``valued`` are added the ids of nodes whose first result is read."""
    root = sweep.steps.get(id(sweep.root))
    if root is not None:
        root.reached = True
    found = []
    for entry in reversed(sweep.steps.values()):
        if not entry.reached:
            continue
        below = [one for one in entry.below if one.__class__ is Entry]
        for one in below:
            one.reached = True
        if entry.lead:
            _note_reads(entry, valued)
        if entry is root or not (entry.soft or entry.hard):
            continue
        if _worth_keeping(entry):
            found.append(entry)
            continue
        entry.why = AGAIN
        for one in below:
            one.hard += entry.hard
            one.soft = one.soft or entry.soft
            valued.add(id(one.node))
    return found


def _note_reads(entry: Entry, valued: set[int]) -> None:
    """Record the values read by the gradient rule of ``entry``."""
    for goes_to, needed in zip(entry.below, reads(entry.node)):
        if not needed or goes_to is None or not goes_to.lead:
            continue
        for place in needed:
            read = entry if place < 0 else entry.below[place]
            if read.__class__ is not Entry:
                continue
            if place != FURTHER:
                valued.add(id(read.node))
            if entry.heavy and place >= 0:
                read.hard += 1
            else:
                read.soft = True


def _worth_keeping(entry: Entry) -> bool:
    """Whether to keep the value; if so, ``why`` states the reason."""
    uses = entry.hard + entry.soft
    if entry.node.shape is FREE or (entry.node.spec.name in CHEAP_MOVES and rule_of(entry.node) is None):
        return False
    if entry.dear:
        entry.why = "dear to compute again"
    elif entry.forced and entry.forced >= node_bytes(entry.node):
        entry.why = "computing it again would keep as much below it"
    elif entry.weight >= HEAVY and uses > 1:
        entry.why = f"{entry.weight} flops an element, read by {uses} kernels"
    return entry.why != ""


# Values ---------------------------------------------------------------------------------------------------------------


def compute(root: OpTreeNode, differentiable: bool) -> tuple[Any, TapeSweep | None]:
    """Tensor of the value of ``root``, by one plan that also computes what is to be kept.

    Values that were kept are not computed again. With ``differentiable`` that of the root is kept too. The sweep
    is returned for the backward pass, if it lists all that this needs.
    """
    entry = kept.get(id(root))
    if entry is not None:
        if entry.tensor.__class__ is not OpTreeNode:
            return entry.tensor, None
        del kept[id(root)]  # the value was not worth keeping, and is computed with the rest once more
    sweep = TapeSweep(root, through_kept=False)
    sweep.resolve()
    wanted, valued = [sweep.steps[id(root)]], {id(root)}
    if differentiable:
        wanted[0].why = "asked for"
        wanted += choose(sweep, valued)
        sweep.is_resolved = len(wanted) == 1
    value = _computed(root.backend, wanted, differentiable, valued)
    return value, sweep if sweep.complete else None


def _computed(be: Any, wanted: Sequence[Entry], keeping: bool, valued: set[int]) -> Any:
    """Compute the values of ``wanted`` into new tensors; returns the first.

    For primitives that are not ``valued`` the further results are kept, and their call in place of the first.
    """
    pairs: list[tuple[Any, Any]] = []
    made = []
    for entry in wanted:
        results = _results(entry)
        tensors = [be.fresh(result.shape, result.dtype) for result in results]
        pairs += zip(tensors, results)
        made.append((entry, tensors))
    be.assign_fresh(pairs)
    value = made[0][1][0]
    for entry, tensors in made if keeping else ():
        if len(tensors) > 1 and id(entry.node) not in valued:
            tensors[0] = None
        keep_results(entry.node, tensors, entry.why, entry.lead)
    return value


def keep_results(node: OpTreeNode, results: list[Any], why: str, leads: bool) -> None:
    """As :func:`~neonlike.optree.tape.keep`; an expression stands for the first of ``results`` if that is None.

    Parameters
    ----------
    node : OpTreeNode
    results : list
        Tensors, the node's own first, which may be None.
    why : str
        The reason, for reports.
    leads : bool
        Whether a gradient has to go to the node.
    """
    if results[0] is None:
        results[0] = OpTreeNode(node.spec, node.operands, node.attrs, node.shape, node.dtype, node.backend)
    keep(node, results, why, leads)


def _results(entry: Entry) -> list[Any]:
    """List the values to compute for a node: all results of a primitive, since its gradient may read them."""
    node = entry.node
    if node.spec.kind is not Kind.CALL or node.spec is PART:
        return [entry.now]
    count = len(node.attrs["request"].results)  # type: ignore[index]
    return [part(entry.now, position) for position in range(count)]
