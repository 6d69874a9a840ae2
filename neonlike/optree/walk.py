"""Iterative walks over expression graphs; chains of thousands of nodes need no recursion."""

from __future__ import annotations

from typing import Any

from neonlike.optree.node import Expression, OpTreeNode


def postorder(root: Any) -> list[OpTreeNode]:
    """Distinct nodes of ``root``, operands before users."""
    order: list[OpTreeNode] = []
    done: set[int] = set()
    stack = [root] if isinstance(root, OpTreeNode) else []
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        waiting = [o for o in node.operands[::-1] if isinstance(o, OpTreeNode) and id(o) not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        done.add(id(node))
        order.append(node)
    return order


def leaves(root: Any) -> list[Any]:
    """Distinct tensors of ``root``, in order of appearance."""
    if isinstance(root, Expression) and not isinstance(root, OpTreeNode):
        return [root]
    found: dict[int, Any] = {}
    for node in postorder(root):
        for operand in node.operands:
            if isinstance(operand, Expression) and not isinstance(operand, OpTreeNode):
                found.setdefault(id(operand), operand)
    return list(found.values())


def structure(root: Any) -> tuple[Any, ...]:
    """Hashable form of ``root``: ops, attributes, numbers, and tensors by identity."""
    numbering: dict[int, int] = {}
    parts: list[Any] = []
    for node in postorder(root):
        references = tuple(
            numbering[id(o)] if isinstance(o, OpTreeNode) else ("t", id(o)) if isinstance(o, Expression) else ("n", o)
            for o in node.operands
        )
        numbering[id(node)] = len(numbering)
        attrs = tuple(node.attrs.items()) if node.attrs else ()
        parts.append((node.spec.name, references, attrs))
    return tuple(parts) if parts else (("t", id(root)),)
