"""Short HTML of tensors and expressions for notebooks; only a corner of the values is fetched.

It computes nothing and never raises: unreadable values are reported in the text.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from neonlike.errors import NeonlikeError
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.shapes import FREE

EDGE = 5
"""Rows and columns of the displayed corner."""
MOST_LINES = 40
"""Maximum number of lines of a tree."""
_CELL = ' style="text-align:right"'
_MORE = "<td>…</td>"


def text(value: Any) -> str:
    """Escape ``value`` as HTML text."""
    return html.escape(str(value))


def sizes(shape: Sequence[int]) -> str:
    """Format a shape."""
    return "any shape" if shape is FREE else " × ".join(map(str, shape))


def heading(kind: str, *facts: str, name: str | None = None) -> str:
    """Format a line: the kind in bold, the name, and facts as text.

    Parameters
    ----------
    kind : str
        Name of the class.
    *facts : str
        Empty ones are left out.
    name : str, optional
        Of the object.
    """
    named = f" <i>{text(name)}</i>" if name else ""
    return f"<div><b>{text(kind)}</b>{named} {text(', '.join(fact for fact in facts if fact))}</div>"


def facts_of(value: Any) -> list[str]:
    """Facts about a value: shape, dtype and backend."""
    backend = value.backend
    where = "" if backend is None else f"on {getattr(backend, 'backend_name', type(backend).__name__)}"
    return [sizes(value.shape), value.dtype.name, where]


def values_of(tensor: Any) -> str:
    """Table of the first rows and columns of ``tensor``, at the first entry of each leading axis."""
    try:
        leading = tuple(slice(0, 1) for _ in tensor.shape[:-2])
        corner = tensor[(*leading, slice(0, EDGE), slice(0, EDGE))].get()
    except NeonlikeError as error:  # a closed backend, a lost GPU
        return f"<div>its values cannot be read: {text(error)}</div>"
    corner = corner.reshape(corner.shape[-2:])
    rows, columns = tensor.shape[-2:]
    more = _MORE if columns > EDGE else ""
    lines = ["".join(f"<td{_CELL}>{text(_number(one))}</td>" for one in row) + more for row in corner]
    if rows > EDGE:
        lines.append(_MORE * (corner.shape[1] + bool(more)))
    table = "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
    if tensor.ndim <= 2:
        return table
    return f"<div>[{', '.join(['0'] * (tensor.ndim - 2))}, :, :]</div>{table}"


def _number(value: Any) -> str:
    return f"{float(value):.4g}" if value.dtype.kind in "fV" else str(value)


def of_tensor(tensor: Any) -> str:
    """HTML of a tensor: facts and the corner of its values."""
    return heading(type(tensor).__name__, *facts_of(tensor), name=tensor.name) + values_of(tensor)


def tree(root: Any, below: Callable[[Any], Iterable[Any]], line: Callable[[Any], str]) -> str:
    """Nested lists of ``root`` and its parts; a shared part is expanded at its first occurrence.

    Parameters
    ----------
    root : object
        The first entry.
    below : callable
        Returns the parts of an entry.
    line : callable
        Returns the HTML of an entry.
    """
    parts: list[str] = []
    seen: set[int] = set()
    stack: list[Any] = [(root,)]
    count = 0
    while stack:
        top = stack.pop()
        if top.__class__ is str:
            parts.append(top)
            continue
        (entry,) = top
        count += 1
        if count > MOST_LINES:
            parts.append("<li>…</li>")
            stack = [one for one in stack if one.__class__ is str]
            continue
        inside = list(below(entry))
        again = id(entry) in seen and bool(inside)
        seen.add(id(entry))
        parts.append(f"<li>{line(entry)}{' (as above)' if again else ''}")
        stack.append("</li>")
        if inside and not again:
            stack += ["</ul>", *((one,) for one in reversed(inside)), "<ul>"]
    return f"<ul>{''.join(parts)}</ul>"


def of_expression(self: Expression) -> str:
    """HTML of a tensor, or of an expression, for notebooks."""
    if not isinstance(self, OpTreeNode):
        return of_tensor(self)
    head = heading("expression", *facts_of(self), "not computed")
    return f"{head}<details><summary>{text(self.spec.name)}</summary>{tree(self, _operands, _node)}</details>"


def _operands(entry: Any) -> Iterable[Any]:
    return entry.operands if isinstance(entry, OpTreeNode) else ()


def _node(entry: Any) -> str:
    if isinstance(entry, OpTreeNode):
        return f"<b>{text(entry.spec.name)}</b> {text(sizes(entry.shape))}"
    if isinstance(entry, Expression):
        named = getattr(entry, "name", None) or type(entry).__name__
        return text(f"{named} {sizes(entry.shape)} {entry.dtype.name}")
    return text(entry)
