"""Expressions as text: prefix and infix forms, Graphviz graphs."""

from __future__ import annotations

from typing import Any

from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.walk import leaves, postorder

_LONGEST = 2000
"""Maximum length of the text of a shared graph, which could grow without bound."""


def names(root: Any) -> dict[int, str]:
    """Names of the tensors in ``root``: their own, or t0, t1, ..."""
    return {id(leaf): getattr(leaf, "name", None) or f"t{i}" for i, leaf in enumerate(leaves(root))}


def _render(root: Any, infix: bool) -> str:
    """Text of ``root``, built from the leaves up; long parts are truncated."""
    named = names(root)
    texts: dict[int, str] = {}

    def text(operand: Any) -> str:
        if isinstance(operand, OpTreeNode):
            return texts[id(operand)]
        return named[id(operand)] if isinstance(operand, Expression) else f"{operand!r}"

    for node in postorder(root):
        parts = [text(operand) for operand in node.operands]
        if infix and node.spec.symbol and len(parts) == 2:
            made = f"({parts[0]} {node.spec.symbol} {parts[1]})"
        else:
            parts += [f"{key}={value}" for key, value in (node.attrs or {}).items() if key in node.spec.keyed]
            made = f"{node.spec.name}({', '.join(parts)})"
        texts[id(node)] = made if len(made) <= _LONGEST else made[: _LONGEST - 3] + "..."
    return text(root)


def prefix(root: Any) -> str:
    """Prefix form, such as ``sig(add(mul(t0, t1), t2))``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]], name="x")
    >>> str(x * 2 + 1)
    'add(mul(x, 2), 1)'
    """
    return _render(root, infix=False)


def infix(root: Any) -> str:
    """Infix form, such as ``sig(((t0 * t1) + t2))``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]], name="x")
    >>> (x * 2 + 1).pp()
    '((x * 2) + 1)'
    """
    return _render(root, infix=True)


def to_dot(root: Any) -> str:
    """Graphviz source of the graph: boxes are tensors, ellipses ops with their shapes.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]], name="x")
    >>> (x + 1).to_dot().splitlines()[0]
    'digraph optree {'
    """
    lines = ["digraph optree {", "  rankdir=BT;"]
    named = names(root)
    for leaf in leaves(root):
        lines.append(f'  n{id(leaf)} [shape=box, label="{named[id(leaf)]}\\n{leaf.shape} {leaf.dtype.name}"];')
    for node in postorder(root):
        lines.append(f'  n{id(node)} [label="{node.spec.name}\\n{node.shape}"];')
        for position, operand in enumerate(node.operands):
            if isinstance(operand, Expression):
                lines.append(f"  n{id(operand)} -> n{id(node)};")
            else:
                number = f"c{id(node)}_{position}"
                lines.append(f'  {number} [shape=plaintext, label="{operand}"];')
                lines.append(f"  {number} -> n{id(node)};")
    return "\n".join([*lines, "}"])
