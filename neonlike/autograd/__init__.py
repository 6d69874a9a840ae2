"""Reverse-mode differentiation of what a program computes, as it computes it (docs/autograd.md).

``const`` and ``param`` make variables, operators and the functions here make more of them, ``backprop`` of a scalar one
fills in the derivatives. All of it is lazy, and ends in the op-trees and compound primitives that layers use.
"""

from __future__ import annotations

from neonlike.autograd import methods as _methods  # noqa: F401
from neonlike.autograd import ops
from neonlike.autograd.blocks import check_gradient, checkpoint, grad
from neonlike.autograd.leaves import const, param, zero_grad
from neonlike.autograd.lifetimes import scope
from neonlike.autograd.op import Op, op
from neonlike.autograd.ops import *  # noqa: F403
from neonlike.autograd.precision import LossScaler
from neonlike.autograd.report import MemoryReport, memory_report
from neonlike.autograd.variable import FreedError, Variable

__all__ = [
    "FreedError", "LossScaler", "MemoryReport", "Op", "Variable", "check_gradient", "checkpoint", "const", "grad",
    "memory_report", "op", "ops", "param", "scope", "zero_grad", *ops.__all__,
]  # fmt: skip
