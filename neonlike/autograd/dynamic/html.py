"""Shows dynamic graphs and their variables in notebooks: tables, for which Graphviz is not needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from neonlike.autograd.dynamic.dot import Entry
from neonlike.autograd.html import of_variable
from neonlike.optree.html import MOST_LINES, heading, text


def of_tensor_variable(self: Any) -> str:
    """HTML of a variable of a dynamic graph: nothing is computed or allocated for it."""
    storage = self._storage
    if storage is None or self.graph.closed:
        return heading("TensorVariable", "freed", name=self.name)
    kind = "constant" if self.is_constant else "alias" if self.window is not None else "variable"
    head = heading("TensorVariable", kind, name=self.name)
    if storage.node is None:
        return head + f"<div>{text(repr(self))}: nothing was written to it yet</div>"
    return head + of_variable(storage.node)


def of_graph(closed: bool, values: Iterable[Entry]) -> str:
    """HTML of a graph: a line for each value, in the order in which commands made them."""
    if closed:
        return heading("DynamicGraph", "closed")
    entries = _in_order(values)
    lines = [_line(entry) for entry in entries[:MOST_LINES]]
    if len(entries) > MOST_LINES:
        lines.append(f"<tr><td>… {len(entries) - MOST_LINES} more</td></tr>")
    head = "<tr><th>value</th><th>command</th><th>of</th></tr>"
    return heading("DynamicGraph", f"{len(entries)} values") + f"<table>{head}{''.join(lines)}</table>"


def _line(entry: Entry) -> str:
    made = entry.made
    kind = "constant" if entry.constant else ""
    command = kind if made is None else made.text.removesuffix("()") or made.name
    inputs = "" if made is None else ", ".join(one.name for one in made.inputs)
    what = f"<b>{text(entry.name)}</b> {text(entry.text)}"
    return f"<tr><td>{what}</td><td>{text(command)}</td><td>{text(inputs)}</td></tr>"


def _in_order(values: Iterable[Entry]) -> list[Entry]:
    """``values`` and what they were made of, each after what it was made of."""
    found: dict[int, Entry] = {}
    stack = list(values)[::-1]
    while stack:
        entry = stack[-1]
        inputs = () if entry.made is None else entry.made.inputs
        missing = [one for one in inputs if id(one) not in found]
        if id(entry) in found or not missing:
            found.setdefault(id(entry), stack.pop())
        else:
            stack += missing
    return list(found.values())
