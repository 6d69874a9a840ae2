"""Selection of the ops for ``&``, ``|``, ``^`` and ``~``: bitwise for integers, logical for truth values.

Truth values are 0 or 1 in the float type of the compared operands, so that ``be.sum(a > 0)`` counts and ``(a > 0) * b``
masks without a conversion. So ``(a > 0) & (b < 1)`` has float operands, and their source determines the op:
comparisons, logic, tests such as ``isnan``, bool tensors, and moves of these (transposes, gathers, ...) are truth
values. Other floats are refused, since 0.5 has no bits to combine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.errors import DTypeError
from neonlike.optree.dtypes import BOOL, DTypeRule, is_float
from neonlike.optree.ops import OPS, OpSpec

_MOVES = ("transpose", "broadcast", "view", "unview", "take", "take_along", "concat")
"""Ops with elements taken from their operands; ``unview`` adds zeros."""


def is_truth(operand: Any) -> bool:
    """True for a bool, a bool tensor, and an expression with values 0 or 1 by its op."""
    stack, seen = [operand], set()
    while stack:
        item = stack.pop()
        spec = getattr(item, "spec", None)
        if spec is not None and spec.name in _MOVES:
            if id(item) not in seen:
                seen.add(id(item))
                stack += item.operands if spec.name == "concat" else item.operands[:1]
        elif spec is None and not (isinstance(item, bool) or getattr(item, "dtype", None) == BOOL):
            return False
        elif spec is not None and spec.dtype is not DTypeRule.TRUTH:
            return False
    return True


def as_mask(index: Any) -> Any:
    """Return ``index`` if it is a mask in a tensor's shape (a list as an array), else None."""
    if hasattr(index, "backend"):
        return index if is_truth(index) else None
    if isinstance(index, list) and index and isinstance(index[0], (list, np.ndarray)):
        try:
            index = np.asarray(index)
        except ValueError:  # of different lengths: not a mask
            return None
    return index if isinstance(index, np.ndarray) and index.dtype == BOOL and index.ndim > 1 else None


def on_bits_or_truth(spec: OpSpec, operands: tuple[Any, ...]) -> OpSpec:
    """Return ``spec``, a row for integers, or its logical counterpart if all operands are truth values.

    Raises
    ------
    DTypeError
        If an operand is neither an integer nor, like all others, a truth value.
    """
    if spec.logical and all(map(is_truth, operands)):
        return OPS[spec.logical]
    for operand in operands:
        attrs = getattr(operand, "attrs", None) or {}
        value = attrs.get("value", operand)  # a tree of numbers
        if not _is_whole(value):
            raise DTypeError(_refusal(spec, _named(operands)))
    return spec


def _refusal(spec: OpSpec, came: str) -> str:
    if spec.logical:
        return f"{spec.name}: takes integers, or truth values only, got {came}; write a != 0 to make truth values"
    return f"{spec.name}: takes integers, got {came}; store it in an integer tensor"


def _is_whole(value: Any) -> bool:
    """True for an integer of at most 64 bits, and for a tensor or expression of integers."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    return not isinstance(value, float) and not is_float(value.dtype)


def _named(operands: tuple[Any, ...]) -> str:
    """Describe the operands for a message."""
    return " and ".join(
        "truth values" if is_truth(o) else repr(o) if isinstance(o, (int, float)) else str(o.dtype) for o in operands
    )
