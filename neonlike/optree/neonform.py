"""neon's representation of a node, for scripts that inspect it: tuples ``(op_dict, left, right)``, lists, keys.

``op_dict`` is ``{'op': name, 'shape': shape, ...}``. The engine uses none of this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.checks import brief, checked
from neonlike.errors import ArgumentError, DTypeError
from neonlike.optree import along, arrange, builders, functions, moves, node, show
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import MANY, OPS, Kind
from neonlike.optree.walk import postorder


def op_dict(self: OpTreeNode) -> dict[str, Any]:
    """The op with its shape and attributes; ``rand`` also has its backend, ``onehot`` its indices as ``idx``."""
    found: dict[str, Any] = {"op": self.spec.name, "shape": tuple(self.shape)}
    for key, value in (self.attrs or {}).items():
        found[key] = value[0] if key == "axis" and isinstance(value, tuple) and len(value) == 1 else value
    if self.spec.name == "rand":
        found["backend"] = self.backend
    elif self.spec.name == "onehot":
        found["idx"] = self.operands[0]
    return found


def as_tuple(self: OpTreeNode) -> tuple[Any, ...]:
    """The tuple ``(op_dict, left, right)``, with None for missing operands; ``where`` has a fourth member.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]], name="x")
    >>> op, left, right = (x + 1).as_tuple()
    >>> op["op"], left is x, right
    ('add', True, 1)
    """
    operands = (*self.operands, None, None)[: max(2, len(self.operands))]
    return (op_dict(self), *operands)


@checked
def traverse(self: OpTreeNode, ls: list[Any]) -> list[Any]:
    """Append operands, then op dicts, to ``ls`` in post-order, repeating shared parts, and return ``ls``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]])
    >>> (x + 1).traverse([])[1:]
    [1, {'op': 'add', 'shape': (1, 2)}]
    """
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
    """Hashable post-order tuple: tensors, numbers, and ``op`` or ``(op, axis)``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]])
    >>> be.sum(x + 1, axis=1).key()[1:]
    (1, 'add', ('sum', 1))
    """
    return tuple(
        ((item["op"], item["axis"]) if "axis" in item else item["op"]) if isinstance(item, dict) else item
        for item in traverse(self, [])
    )


def intrinsic_key_maps(self: OpTreeNode) -> tuple[tuple[Any, ...], dict[Any, int], dict[int, Any]]:
    """The key with tensors replaced by ``(index, shape)``, and the maps tensor -> index and index -> tensor.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]])
    >>> (x * x).intrinsic_key_maps()[0]
    ((0, (1, 2)), (0, (1, 2)), 'mul')
    """
    index_of: dict[Any, int] = {}
    parts = []
    for item in key(self):
        if isinstance(item, Expression):
            parts.append((index_of.setdefault(item, len(index_of)), item.shape))
        else:
            parts.append(item)
    return tuple(parts), index_of, {index: tensor for tensor, index in index_of.items()}


def execute(self: OpTreeNode) -> Any:
    """Raise an error: assignments execute when built, so an expression has nothing to execute.

    Raises
    ------
    ArgumentError
        Always; the message names the alternative.
    """
    raise ArgumentError(f"execute: {self} assigns nothing; write target[:] = expression, or call astensor()")


def optree_to_list(optree: Any) -> Any:
    """Convert an expression to nested lists ``[op_dict, left, right]``; other objects are returned unchanged.

    Shared parts become the same list.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]])
    >>> OpTreeNode.optree_to_list(x + 1)[0::2]
    [{'op': 'add', 'shape': (1, 2)}, 1]
    """
    made: dict[int, list[Any]] = {}
    for item in postorder(optree):
        made[id(item)] = [
            op_dict(item),
            *(made.get(id(part), part) if isinstance(part, OpTreeNode) else part for part in as_tuple(item)[1:]),
        ]
    return made.get(id(optree), optree)


def list_to_optree(parts: Any) -> Any:
    """Convert nested lists of :func:`optree_to_list` to an expression; other objects are returned unchanged.

    Raises
    ------
    DTypeError
        If a list does not start with an op dict of a known op.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]])
    >>> OpTreeNode.list_to_optree([{"op": "add"}, x, 1]).tolist()
    [[2.0, 3.0]]
    """
    made: dict[int, Any] = {}
    stack: list[Any] = [parts]
    while stack:
        item = stack[-1]
        inner = [p for p in item[1:] if _is_list(p) and id(p) not in made] if _is_list(item) else []
        if inner:
            stack.extend(inner)
            continue
        stack.pop()
        if _is_list(item) and id(item) not in made:
            made[id(item)] = _from_list(item, [made.get(id(p), p) if _is_list(p) else p for p in item[1:]])
    return made.get(id(parts), parts)


def _is_list(item: Any) -> bool:
    return isinstance(item, (list, tuple))


def _from_list(item: Any, operands: list[Any]) -> Any:
    if not item or not isinstance(item[0], dict) or "op" not in item[0]:
        raise DTypeError(f"list_to_optree: a list must start with a dict that has an 'op', got {item[:1]}")
    attrs = dict(item[0])
    name = attrs.pop("op")
    return _make(name, _given(operands), attrs)


def build(op: str, a: Any, b: Any, out: Any = None, **attrs: Any) -> Any:
    """Build a node of the op named ``op``; ``assign`` and ``out`` compute at once and return the tensor.

    Missing operands are None; ``axis``, ``axes`` and ``idx`` (of ``onehot``) are keyword arguments.

    Parameters
    ----------
    op : str
        Name of the op.
    a, b : operands or None
    out : tensor, optional
        Receives the result.
    **attrs : objects
        Other members of the op dict.

    Raises
    ------
    DTypeError
        If the op does not exist, or an operand is unusable.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> x = be.array([[1., 2.]])
    >>> OpTreeNode.build("sum", x, None, axis=1).tolist()
    [[3.0]]
    """
    if isinstance(op, str) and op == "assign":
        return _assign(a, b)
    made = _make(op, _given((a, b)), attrs)
    return made if out is None else _assign(out, made)


def _given(operands: Any) -> list[Any]:
    """Strip trailing Nones from ``operands``."""
    kept = list(operands)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _assign(target: Any, value: Any) -> Any:
    if not isinstance(target, Expression) or isinstance(target, OpTreeNode):
        raise DTypeError(f"OpTreeNode.build: the target of assign must be a tensor, got {type(target).__name__}")
    return target.backend.assign(target, value)


def _make(name: str, operands: list[Any], attrs: dict[str, Any]) -> Any:
    """Build a node of any op from its operands and the other members of its op dict."""
    spec = OPS.get(name) if isinstance(name, str) else None
    if spec is None:
        raise DTypeError(f"OpTreeNode.build: no op is called {brief(name)}; choose one of {', '.join(OPS)}")
    if name == "onehot" and not operands:
        operands = [attrs.get("idx")]
    if len(operands) != spec.arity and spec.arity != MANY:
        raise DTypeError(f"OpTreeNode.build: {name} takes {spec.arity} operands, got {len(operands)}")
    if spec.kind is Kind.ELEMENTWISE:
        return node.apply(spec, tuple(operands))
    if spec.kind is Kind.REDUCTION:
        return builders.reduce(spec, operands[0], attrs.get("axis"))
    arguments, make = _OTHERS[name]
    missing = [argument for argument in arguments if argument not in attrs and argument != "axes"]
    if missing:
        raise DTypeError(f"OpTreeNode.build: {name} needs {', '.join(missing)} by keyword")
    return make(*operands, *(attrs.get(argument) for argument in arguments))


_OTHERS: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "dot": ((), builders.dot),
    "transpose": (("axes",), moves.transpose),
    "broadcast": (("shape",), moves.broadcast_to),
    "concat": (("axis",), lambda *given: arrange.concat(given[:-1], given[-1])),
    "cumsum": (("axis", "reverse"), along.cumsum),
    "cumprod": (("axis", "reverse"), along.cumprod),
    "argsort": (("axis", "descending", "count"), along.argsort),
    "take_along": (("axis",), along.take_along),
    "untake_along": (("shape", "axis"), along.untake_along),
    "classes": (("axis",), lambda indices, axis: builders.move("classes", (indices,), {"axis": axis}, indices.shape)),
    "take": (("axis",), moves.take),
    "untake": (("shape", "axis"), moves.untake),
    "view": (("layout",), moves.view),
    "unview": (("shape", "layout"), moves.unview),
    "onehot": (("axis",), functions.onehot),
    "rand": (("backend", "seed", "call"), functions.rand),
}
"""Other ops than elementwise ones and reductions: members of the op dict passed to the function, and the function."""


METHODS: dict[str, Any] = {
    "build": staticmethod(build),
    "optree_to_list": staticmethod(optree_to_list),
    "list_to_optree": staticmethod(list_to_optree),
    "as_tuple": as_tuple,
    "traverse": traverse,
    "key": key,
    "intrinsic_key_maps": intrinsic_key_maps,
    "execute": execute,
    "pp": show.infix,
    "to_dot": show.to_dot,
}
"""The methods that ``methods`` attaches to nodes."""
