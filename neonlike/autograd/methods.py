"""Operators and methods of variables, put on the class here: they build what ``ops`` builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.autograd import ops
from neonlike.autograd.html import of_variable
from neonlike.autograd.leaves import const, derived, param
from neonlike.autograd.parameters import get_params
from neonlike.autograd.variable import Variable, made
from neonlike.errors import DTypeError, GradientError
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import apply, is_operand

F: Any = Functions

def _operator(op: str, build: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The methods of a binary operator and its reflected form."""

    def forward(self: Variable, other: Any) -> Any:
        kind = other.__class__
        if kind is Variable:
            return made(op, build(self._expr, other._expr), (self, other))
        if kind is float or kind is int:
            return made(op, build(self._expr, other), (self,))
        return derived(op, build, self, other) if is_operand(other) else NotImplemented

    def reflected(self: Variable, other: Any) -> Any:
        kind = other.__class__
        if kind is float or kind is int:
            return made(op, build(other, self._expr), (self,))
        return derived(op, build, other, self) if is_operand(other) else NotImplemented

    return forward, reflected


def _power(base: Any, exponent: Any) -> Any:
    return base**exponent


_METHODS = (
    "exp", "flatten", "log", "max", "mean", "min", "norm2", "prod", "relu", "reshape", "sigmoid", "sqrt", "sum", "tanh",
    "transpose", "variance", "cast",
)  # fmt: skip
"""Functions of ``ops`` that are methods too."""


def _swapped(self: Variable) -> Variable:
    """The last two axes swapped."""
    return ops.transpose(self, -2, -1)


def _set_item(self: Variable, key: Any, value: Any) -> None:
    """Variables are not written in parts: what was computed from them would not know."""
    raise GradientError(
        f"{self!r} is not written in parts; write to the memory of a parameter, p.value[...] = x, or make another "
        "variable: autograd.where, mask_fill, index_fill, index_add_to_target"
    )


def _format(self: Variable, spec: str) -> str:
    """``f"{loss:.3f}"``: the one element; without a format, as ``repr``."""
    return format(self.item(), spec) if spec else repr(self)


def _copied(tensor: Any, is_parameter: bool, name: str | None) -> Variable:
    return (param if is_parameter else const)(tensor, name=name)


def _reduce(self: Variable) -> tuple[Any, ...]:
    """Copies and pickles of constants and parameters: variables of their own, without the derivatives gathered."""
    if self.op is not None:
        raise DTypeError(
            f"{self!r} cannot be copied or saved, as what it was made of may still change; copy or save its value, "
            "v.value"
        )
    return _copied, (self.value, self.needs_grad, self.name)


def _applied(self: Variable, spec: Any, operands: tuple[Any, ...]) -> Variable:
    """``spec`` of the op table on ``operands``, of which this is one: what its builder does for variables."""
    return derived(spec.name, lambda *expressions: apply(spec, expressions), *operands)


def _attach() -> None:
    operators = {
        "add": F.add, "sub": F.subtract, "mul": F.multiply, "truediv": F.divide, "pow": _power, "mod": F.mod,
        "matmul": F.dot,
    }  # fmt: skip
    for name, build in operators.items():
        forward, reflected = _operator(name, build)
        setattr(Variable, f"__{name}__", forward)
        setattr(Variable, f"__r{name}__", reflected)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        forward, _ = _operator(name, getattr(F, name))
        setattr(Variable, f"__{name}__", forward)
    for name, build in {"neg": F.negative, "abs": F.absolute}.items():
        setattr(Variable, f"__{name}__", lambda self, op=name, build=build: made(op, build(self._expr), (self,)))
    for name in _METHODS:
        setattr(Variable, name, getattr(ops, name))
    more = {"T": property(_swapped), "__getitem__": ops.index, "__setitem__": _set_item, "_applied": _applied,
            "get_params": get_params, "_repr_html_": of_variable,
            "__format__": _format, "__int__": lambda self: int(self.item()), "__reduce__": _reduce}  # fmt: skip
    for name, function in more.items():
        setattr(Variable, name, function)


_attach()
