"""neon's class of op names."""

from __future__ import annotations

from typing import ClassVar

from neonlike.optree.ops import OPS, Kind


class OpCollection:
    """neon's sets of op names, derived from the op table."""

    zero_operand_ops: ClassVar[set[str]]
    unary_ops: ClassVar[set[str]]
    binary_ops: ClassVar[set[str]]
    reduction_ops: ClassVar[set[str]]
    float_ops: ClassVar[set[str]]
    ew_ops: ClassVar[set[str]]


def _fill_op_collection() -> None:
    ops = OPS.values()
    OpCollection.zero_operand_ops = {op.name for op in ops if op.kind is Kind.ZERO}
    OpCollection.reduction_ops = {op.name for op in ops if op.kind is Kind.REDUCTION}
    OpCollection.unary_ops = {op.name for op in ops if op.kind is Kind.ELEMENTWISE and op.arity == 1} | {"transpose"}
    OpCollection.binary_ops = {op.name for op in ops if op.kind is Kind.ELEMENTWISE and op.arity == 2}
    OpCollection.binary_ops |= {"dot", "assign"}
    OpCollection.float_ops = OpCollection.zero_operand_ops | OpCollection.unary_ops | OpCollection.binary_ops
    OpCollection.ew_ops = OpCollection.float_ops - {"dot", "transpose"}


_fill_op_collection()
