"""neon's view of a node, for scripts that look inside: tuples ``(op_dict, left, right)``, lists, keys, traversal.

``op_dict`` is ``{'op': name, 'shape': shape, ...}``. None of this is used by the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.errors import DTypeError
from neonlike.optree import functions, node, show
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS, Kind


def op_dict(self: OpTreeNode) -> dict[str, Any]:
    """The op with its shape and attributes."""
    found: dict[str, Any] = {"op": self.spec.name, "shape": tuple(self.shape)}
    for key, value in (self.attrs or {}).items():
        found[key] = value[0] if key == "axis" and isinstance(value, tuple) and len(value) == 1 else value
    return found


def as_tuple(self: OpTreeNode) -> tuple[Any, ...]:
    """``(op_dict, left, right)``, missing operands None; ``where`` has a fourth member."""
    operands = (*self.operands, None, None)[: max(2, len(self.operands))]
    return (op_dict(self), *operands)


def traverse(self: OpTreeNode, ls: list[Any]) -> list[Any]:
    """Append operands, then op dicts, in post-order to ``ls``, shared parts repeated; returns ``ls``."""
    stack: list[tuple[Any, bool]] = [(self, False)]
    while stack:
        item, expanded = stack.pop()
        if not isinstance(item, OpTreeNode):
            ls.append(item)
        elif expanded:
            ls.append(op_dict(item))
        else:
            stack.append((item, True))
            stack.extend((operand, False) for operand in reversed(item.operands))
    return ls


def key(self: OpTreeNode) -> tuple[Any, ...]:
    """Hashable post-order tuple: tensors, numbers, and ``op`` or ``(op, axis)``."""
    return tuple(
        ((item["op"], item["axis"]) if "axis" in item else item["op"]) if isinstance(item, dict) else item
        for item in traverse(self, [])
    )


def intrinsic_key_maps(self: OpTreeNode) -> tuple[tuple[Any, ...], dict[Any, int], dict[int, Any]]:
    """The key with tensors replaced by ``(index, shape)``, and the maps tensor -> index and index -> tensor."""
    index_of: dict[Any, int] = {}
    parts = []
    for item in key(self):
        if isinstance(item, Expression):
            parts.append((index_of.setdefault(item, len(index_of)), item.shape))
        else:
            parts.append(item)
    return tuple(parts), index_of, {index: tensor for tensor, index in index_of.items()}


def execute(self: OpTreeNode) -> Any:
    """Assignments execute when built, so an expression has nothing to execute.

    Raises
    ------
    DTypeError
        Always; names what to write instead.
    """
    raise DTypeError(f"execute: {self} assigns nothing; write target[:] = expression, or call astensor()")


def optree_to_list(optree: Any) -> Any:
    """Nested lists ``[op_dict, left, right]`` of an expression; other things are returned as they are."""
    if not isinstance(optree, OpTreeNode):
        return optree
    return [op_dict(optree), *(optree_to_list(operand) for operand in as_tuple(optree)[1:])]


def list_to_optree(parts: Any) -> Any:
    """The expression of nested lists made by :func:`optree_to_list`."""
    if not isinstance(parts, (list, tuple)):
        return parts
    description = dict(parts[0])
    description.pop("shape", None)
    return build(description.pop("op"), *(list_to_optree(part) for part in parts[1:3]), **description)


def build(op: str, a: Any, b: Any, out: Any = None, **attrs: Any) -> Any:
    """Node of the op called ``op``; ``assign`` and ``out`` compute at once and return the tensor.

    Raises
    ------
    DTypeError
        If there is no such op, or an operand cannot be used.
    """
    if op == "assign":
        return a.backend.assign(a, b)
    if op not in OPS:
        raise DTypeError(f"OpTreeNode.build: no op is called {op!r}; choose one of {', '.join(OPS)}")
    spec = OPS[op]
    if spec.kind is Kind.ELEMENTWISE:
        operands = (a,) if spec.arity == 1 else (a, b)
        made: Any = node.apply(spec, operands)
    elif spec.kind is Kind.REDUCTION:
        made = node.reduce(spec, a, attrs.get("axis"))
    elif op == "dot":
        made = node.dot(a, b)
    elif op == "transpose":
        made = functions.transpose(a, attrs.get("axes"))
    elif op == "take":
        made = functions.take(a, b, attrs["axis"])
    elif op == "onehot":
        made = functions.onehot(attrs.get("idx", a), attrs["axis"])
    else:
        raise DTypeError(f"OpTreeNode.build: {op!r} cannot be built by name; use the backend's method")
    return made if out is None else out.backend.assign(out, made)


METHODS: dict[str, Callable[..., Any]] = {
    "traverse": traverse,
    "key": key,
    "intrinsic_key_maps": intrinsic_key_maps,
    "execute": execute,
    "pp": show.infix,
    "to_dot": show.to_dot,
    "optree_to_list": lambda self, tree: optree_to_list(tree),
    "list_to_optree": lambda self, parts: list_to_optree(parts),
}
"""Methods of a node found here by ``OpTreeNode.__getattr__``."""
