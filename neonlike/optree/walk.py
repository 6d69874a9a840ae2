"""Iterative walks over graphs; chains of thousands of nodes need no recursion."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from neonlike.optree.node import Expression, OpTreeNode


def ordered(
    roots: Iterable[Any], below: Callable[[Any], Iterable[Any]], stop: Container[int] = (), kind: type = OpTreeNode
) -> list[Any]:
    """Lists the objects of ``kind`` reached from ``roots`` by ``below``, each once, in topological order, users last.

    Of siblings the last one comes first. Objects whose ids are in ``stop`` are left out, and are not gone through.

    Parameters
    ----------
    roots : iterable of objects
        Those of another class are left out.
    below : callable
        Lists what an object leads to.
    stop : container of int
    kind : type
    """
    order: list[Any] = []
    met: set[int] = set()
    path: list[Any] = []
    stack = [one for one in roots if isinstance(one, kind)]
    while stack:
        one = stack.pop()
        if one is None:  # all below the last of the path is listed
            order.append(path.pop())
        elif id(one) not in met and id(one) not in stop:
            met.add(id(one))
            path.append(one)
            stack.append(None)
            stack += [under for under in below(one) if isinstance(under, kind)]
    return order


def postorder(root: Any) -> list[OpTreeNode]:
    """Distinct nodes of ``root``, operands before users."""
    return ordered((root,), lambda node: node.operands[::-1])


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
