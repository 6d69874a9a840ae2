"""Reverse-mode sweep: carries gradients from an expression to its operands, for all front ends.

A :class:`Sweep` lists the nodes below its root in topological order. It notes where the gradient of each goes, and
whether it leads to something wanted. Then it visits them in reverse. The gradient rule of a node (a
:class:`~.tape.Rule` of its own, or that of its row in the op table) makes an increment for each input of the gradient
gathered there. An increment is summed to the shape of its input where that was broadcast, and added to those of other
users. The gradients of views are placed in the tensor they view (:func:`of_memory`).

Rules build expressions, so gradients are expressions and can be differentiated again: second derivatives need nothing
else. Each front end begins a sweep and adds what is its own. :class:`.Autodiff` keeps the gradients of all tensors for
later questions. :class:`.TapeSweep` computes gradients in stages and lets go of kept values. Variables ask either, and
add the results to ``partial_derivative``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from neonlike.errors import GradientError
from neonlike.optree.calls import sources
from neonlike.optree.dtypes import is_float
from neonlike.optree.functions import F as Functions
from neonlike.optree.joining import joined
from neonlike.optree.moves import drop_axes
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import NON_DIFFERENTIABLE
from neonlike.optree.shapes import FREE, Shape
from neonlike.optree.tape import BROADCAST, Rule, empty_like, order_of, replaced, rule_of

F: Any = Functions


class GradNode:
    """A node or tensor of a sweep, with the gradient gathered at it while its users are visited.

    Attributes
    ----------
    total : expression or None
        The gradient so far.
    lead : bool
        Whether a gradient has to come here.
    rule : Rule or None
        A node's own gradient rule; None: that of the op table.
    inputs : tuple
        The operands of the rule: nodes, tensors and numbers.
    below : list of GradNode or None
        Where the increment of each input is gathered; None: the input is a constant.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optree.sweep import GradNode
    >>> used_twice = GradNode(gen_backend("cpu").ones((2, 2)))
    >>> used_twice.add(0.5)
    >>> used_twice.add(0.25)
    >>> used_twice.total
    0.75
    """

    __slots__ = ("below", "inputs", "lead", "node", "rule", "total")

    rule: Rule | None
    inputs: tuple[Any, ...]
    below: list[Any]

    def __init__(self, node: Any) -> None:
        self.node, self.lead = node, True
        self.total: Any = None

    def add(self, increment: Any) -> None:
        """Accumulate the contribution of one use."""
        self.total = increment if self.total is None else self.total + increment


class Sweep:
    """Lists the nodes below ``root``, operands before users, and carries a gradient down to them.

    Parameters
    ----------
    root : expression
    wanted : container of ids, optional
        Nodes and tensors to differentiate by; a tensor includes its views. None: all of them.
    stop : container of ids
        Nodes where the list ends: they are not in it, nor operands of theirs alone.

    Attributes
    ----------
    steps : dict
        The nodes that are listed, by id.
    leaves : dict
        The tensors that are wanted, and the nodes in ``stop`` that are, by id.
    """

    node_type: type[GradNode] = GradNode

    def __init__(self, root: Any, wanted: Container[int] | None = None, stop: Container[int] = ()) -> None:
        self.root, self.wanted = root, wanted
        self.steps: dict[int, Any] = {}
        self.leaves: dict[int, GradNode] = {}
        for node in order_of([root], stop):
            self.steps[id(node)] = self._step(node)

    def _step(self, node: OpTreeNode) -> Any:
        step = self.node_type(node)
        step.rule = rule = rule_of(node) if node.spec is BROADCAST else None
        step.inputs = sources(node) if rule is None else rule.parents
        step.below = below = []
        lead = False
        for operand in step.inputs:
            to: GradNode | None = None
            if operand.__class__ is OpTreeNode:
                to = self.steps.get(id(operand)) or self._unlisted(operand)
            elif isinstance(operand, Expression):
                to = self._leaf(operand)
            below.append(to)
            lead = lead or (to is not None and to.lead)
        if node.spec.grad is NON_DIFFERENTIABLE and rule is None:
            lead = False
        step.lead = (lead or self._wants(node)) and node.shape is not FREE and is_float(node.dtype)
        return step

    def _leaf(self, one: Any) -> GradNode | None:
        """Where the gradient at a tensor, or at a node in ``stop``, is gathered; None if it is not wanted."""
        found = self.leaves.get(id(one))
        if found is None and is_float(one.dtype) and self._wants(one):
            found = self.leaves[id(one)] = GradNode(one)
        return found

    def _unlisted(self, node: OpTreeNode) -> GradNode | None:
        return self._leaf(node)

    def _wants(self, one: Any) -> bool:
        return self.wanted is None or id(memory_of(one)) in self.wanted

    def run(self, incoming: Any) -> None:
        """Visit the nodes in reverse, with the gradient ``incoming`` at the root, and leave theirs in them."""
        order = list(self.steps.values())
        start = order[-1] if order else self._leaf(self.root)
        if start is not None and start.lead:
            start.add(incoming)
        while order:
            step = order.pop()
            if step.total is not None:
                step.total = joined(step.total)
                self._visit(step)
            self._leave(step)

    def _visit(self, step: Any) -> None:
        self._pass_on(step, step.total, step.node, step.inputs)

    def _pass_on(self, step: Any, d: Any, z: Any, forms: Sequence[Any]) -> None:
        """Give each input of ``step`` the increment that its rule makes of the gradient ``d``.

        The rule reads ``z`` for the value, and ``forms`` for those of the inputs.
        """
        grad: Any = step.node.spec.grad if step.rule is None else step.rule.grad
        if grad is NON_DIFFERENTIABLE:
            return
        for to, operand, increment in zip(step.below, step.inputs, grad(F, d, z, *forms)):
            if increment is not None and to is not None and to.lead:
                if increment.shape != operand.shape:
                    increment = unbroadcast(increment, operand.shape)
                to.add(increment)

    def _leave(self, step: Any) -> None:
        """The visit of a step is over, or no gradient came to it."""


def gradients(root: Any, incoming: Any, wanted: Iterable[Any], stop: bool = False) -> dict[int, Any]:
    """Gradients of ``root`` as expressions, by the ids of the nodes and tensors ``wanted``; constants have none.

    With ``stop`` they are partial derivatives: the nodes ``wanted`` pass no gradient on to their own operands.

    Parameters
    ----------
    root : expression
    incoming : expression
        The gradient at ``root``, of its shape.
    wanted : iterable of nodes and tensors
    stop : bool
    """
    by_id = {id(one): one for one in wanted}
    sweep = Sweep(root, by_id, by_id if stop else ())
    sweep.run(incoming)
    found = {key: of_memory(by_id[key], views) for key, views in by_memory(sweep.leaves.values()).items()}
    found |= {key: sweep.steps[key].total for key in by_id.keys() & sweep.steps.keys()}
    return {key: gradient for key, gradient in found.items() if gradient is not None}


def differentiated(define: Callable[..., Any], d: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Increments for ``operands`` of the gradient ``d`` at the expression ``define(*operands)``.

    It is the gradient rule of a primitive without one: ``define`` says in ops what the primitive computes.

    Parameters
    ----------
    define : callable
        Builds the expression of expressions like the operands; it is not computed.
    d : expression of its shape
    operands : expressions
        Those that it does not depend on get None.
    """
    given = (d, *operands)
    empty = [empty_like(one, d.backend) for one in given]
    found = gradients(define(*empty[1:]), empty[0], empty[1:], stop=True)
    increments = replaced([found.get(id(one)) for one in empty[1:]], dict(zip(map(id, empty), given)))
    return tuple(increments)


# Accumulation ---------------------------------------------------------------------------------------------------------


def unbroadcast(gradient: Any, shape: Shape) -> Any:
    """``gradient`` summed (or stretched) to ``shape``, undoing the broadcasting of an operand of that shape."""
    extra = len(gradient.shape) - len(shape)
    axes = tuple(range(extra)) + tuple(
        axis for axis, size in enumerate(shape, max(extra, 0)) if size == 1 and gradient.shape[axis] != 1
    )
    if axes:
        gradient = F.sum(gradient, axis=axes)
    if extra > 0:
        gradient = drop_axes(gradient, extra)
    return gradient if gradient.shape == shape else F.broadcast_to(gradient, shape)


def memory_of(one: Any) -> Any:
    """The tensor that owns the memory of ``one``; of a node itself."""
    return one if one.__class__ is OpTreeNode or one.base is None else one._original_base


def by_memory(leaves: Iterable[GradNode]) -> dict[int, list[GradNode]]:
    """``leaves`` that got a gradient, by the id of the tensor that owns their memory."""
    found: dict[int, list[GradNode]] = {}
    for leaf in leaves:
        if leaf.total is not None:
            found.setdefault(id(memory_of(leaf.node)), []).append(leaf)
    return found


def of_memory(tensor: Any, related: Sequence[GradNode]) -> Any:
    """Gradient with respect to ``tensor`` from those of tensors that see its memory."""
    total = None
    for gathered in related:
        part = _as_seen_by(tensor, gathered.node, gathered.total)
        if part is None:
            return _through_base(tensor, tensor._original_base, related)
        total = part if total is None else total + part
    return total


def _as_seen_by(tensor: Any, leaf: Any, gradient: Any) -> Any:
    """Gradient of ``leaf`` for a ``tensor`` of the same elements, in the same or transposed order; else None."""
    if leaf is tensor or leaf.layout == tensor.layout:
        return gradient
    return F.transpose(gradient) if leaf.T.layout == tensor.layout else None


def _through_base(tensor: Any, base: Any, related: Sequence[GradNode]) -> Any:
    """Place the gradients of all views in the tensor they view, then look at ``tensor``'s part of it."""
    if not base.is_contiguous or any(gathered.node.dtype != base.dtype for gathered in related):
        raise GradientError(f"Autodiff: cannot map the gradient of views to {base}: it is strided or reinterpreted")
    total = None
    for gathered in related:
        part = _as_seen_by(base, gathered.node, gathered.total)
        if part is None:
            part = F.unview(gathered.total, base.shape, gathered.node.layout)
        total = part if total is None else total + part
    seen = _as_seen_by(tensor, base, total)
    return F.view(total, tensor.layout) if seen is None else seen
