"""Less common operators of tensors and expressions: ``@ & | ^ ~ << >>`` and ``divmod``.

They are attached to :class:`~neonlike.optree.node.Expression` here, which defines arithmetic and comparison itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.errors import DTypeError
from neonlike.optree import builders, node
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.forms import mark
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS, OpSpec

Builder = Callable[..., OpTreeNode]

BINARY = {
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
"""Python's name of an operator -> row."""


def builder(spec: OpSpec) -> Builder:
    """Create the builder of an elementwise row with ``spec.arity`` operands."""
    checked = spec.dtype is DTypeRule.WHOLE  # the dtypes of all operands determine the op
    makers: dict[int, Callable[[OpSpec], Builder]] = {1: node.unary, 2: node.binary, 3: node.ternary}
    if not checked and spec.arity in makers:
        return makers[spec.arity](spec)

    def apply(*operands: Any) -> OpTreeNode:
        if len(operands) != spec.arity:
            raise DTypeError(f"{spec.name}: takes {spec.arity} operands, got {len(operands)}")
        return node.apply(spec, operands)

    apply.__name__ = apply.__qualname__ = spec.name
    return mark(apply, "recalled", spec)


def _attach(name: str, build: Callable[[Any, Any], Any]) -> None:
    """Attach the operator ``name`` and its reflected form."""

    def forward(self: Expression, other: Any) -> Any:
        return build(self, other)

    def reflected(self: Expression, other: Any) -> Any:
        return build(other, self)

    setattr(Expression, f"__{name}__", forward)
    setattr(Expression, f"__r{name}__", reflected)


def _divmod(a: Any, b: Any) -> tuple[OpTreeNode, OpTreeNode]:
    return a // b, a % b


_OTHERS = tuple(builder(OPS[row]) for row in (*BINARY.values(), "invert"))
OPERATORS: tuple[Any, ...] = (*node.OPERATORS, builders.dot, *_OTHERS)
"""Operators in the order of ``enum operator`` of ``templates/c/fastpath/fastpath_builders.h``."""

for _name, _build in zip(("matmul", *BINARY), (builders.dot, *_OTHERS)):
    _attach(_name, _build)
_attach("divmod", _divmod)
setattr(Expression, "__invert__", _OTHERS[-1])  # noqa: B010  (mypy takes it for the class's own)
