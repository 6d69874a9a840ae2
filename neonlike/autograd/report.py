"""Reports the memory of a graph of variables: numbers and bytes, and for each op why its value is kept or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from neonlike.autograd import lifetimes
from neonlike.optree import tape
from neonlike.optree.backward import Entry, TapeSweep
from neonlike.optree.keeping import AGAIN, choose
from neonlike.optree.node import OpTreeNode


class MemoryReport(NamedTuple):
    """Numbers of tensors, and their bytes.

    Attributes
    ----------
    parameters, parameter_bytes
    constants, constant_bytes
    intermediates, intermediate_bytes
        Values that were asked for or are kept for a backward pass.
    derivatives, derivative_bytes
        What ``partial_derivative`` holds.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.param([[1.0, 2.0]])
    >>> report = (x * 2).memory_report()
    >>> report.parameters, report.parameter_bytes
    (1, 8)
    """

    parameters: int = 0
    parameter_bytes: int = 0
    constants: int = 0
    constant_bytes: int = 0
    intermediates: int = 0
    intermediate_bytes: int = 0
    derivatives: int = 0
    derivative_bytes: int = 0

    def __str__(self) -> str:
        numbers = iter(self)
        names = (field for field in self._fields if not field.endswith("bytes"))
        return "\n".join(f"{name:13} {next(numbers):6} {next(numbers):14,} bytes" for name in names)


def memory_report() -> MemoryReport:
    """The memory of all variables that are alive.

    Intermediates are those kept for backward passes; a value that was asked for and whose graph a backward pass has
    freed belongs to whoever holds the variable.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = autograd.param([[1.0, 2.0]])
    >>> autograd.memory_report().parameters >= 1
    True
    """
    alive = [variable for reference in list(lifetimes.registered.values()) if (variable := reference()) is not None]
    return _report([v for v in alive if not v.is_freed], list(tape.kept.values()))


def of_graph(variables: Iterable[Any]) -> MemoryReport:
    """The memory of these variables, and of what is kept of the expressions between them."""
    listed = [v for v in variables if not v.is_freed]
    nodes = tape.order_of([v._expr for v in listed])
    return _report(listed, [entry for node in nodes if (entry := tape.kept.get(id(node))) is not None])


def _report(variables: list[Any], kept: list[tape.Kept]) -> MemoryReport:
    inputs = [v for v in variables if v.op is None]
    parameters = _unique(v.value for v in inputs if v.needs_grad)
    constants = _unique(v.value for v in inputs if not v.needs_grad)
    between = _unique(tensor for entry in kept for tensor in entry.tensors)
    between |= _unique(v._tensor for v in variables if v.op is not None and v._tensor is not None)
    derivatives = _unique(v._derivative for v in variables if v._derivative is not None)
    groups = (parameters, constants, between, derivatives)
    return MemoryReport(*(n for group in groups for n in (len(group), sum(t.nbytes for t in group.values()))))


def _unique(tensors: Iterable[Any]) -> dict[int, Any]:
    return {id(tensor): tensor for tensor in tensors}


# Reasons --------------------------------------------------------------------------------------------------------------


def explain(variable: Any) -> str:
    """See :meth:`Variable.explain`."""
    root = variable._expr
    if not variable.needs_grad or root.__class__ is not OpTreeNode:
        return f"{variable!r}: nothing is kept, since no derivative flows through it"
    sweep = TapeSweep(root, through_kept=False)
    choose(sweep, set())
    lines = [f"{variable!r}: what its value and its backward pass keep"]
    total = 0
    for whole in TapeSweep(root, through_kept=True).steps.values():
        node = whole.node
        what, nbytes = _fate(node, sweep.steps.get(id(node)), node is root)
        total += nbytes
        if nbytes or (what and whole.lead):
            lines.append(f"  {_name(node):20} {'x'.join(map(str, node.shape)):14} {what}")
    lines.append(f"  {total:,} bytes kept")
    return "\n".join(lines)


def _name(node: OpTreeNode) -> str:
    rule = tape.rule_of(node)
    return node.spec.name if rule is None else rule.name


def _fate(node: OpTreeNode, entry: Entry | None, is_root: bool) -> tuple[str, int]:
    """The fate of the value of ``node``, and the bytes kept of it; empty for nodes inside an op."""
    found = tape.kept.get(id(node))
    if found is not None:
        return f"kept, {found.nbytes:,} bytes: {found.why}", found.nbytes
    if entry is None:
        return "below what is kept: read no more", 0
    if not entry.reached:
        return "", 0
    size = tape.node_bytes(node)
    if is_root:
        return f"will be computed when asked for, {size:,} bytes", size
    if not entry.why:
        return "not kept: the backward pass does not read it", 0
    return ("not kept: " + AGAIN, 0) if entry.why == AGAIN else (f"will be kept, {size:,} bytes: {entry.why}", size)
