"""Expressions from texts, such as ``"sig(a*b + c)"``, as in numexpr.

The text is parsed by Python's own parser (``ast``), translated to a list of steps for a stack machine, and cached;
Python executes nothing of it. It may contain operand names, numbers, operators, comparisons (also chained), windows
(``a[:, 1]``) and calls of the functions in :func:`functions`; everything else is refused.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from neonlike.errors import ArgumentError, NeonlikeError, did_you_mean
from neonlike.optree import windows
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.functions import COMPOSED, F
from neonlike.optree.node import Expression, OpTreeNode
from neonlike.optree.ops import OPS, Kind

Step = tuple[Callable[..., Any], int, tuple[Any, ...]]
"""A function, the number of values it pops from the stack, and its further arguments."""

MAX_LENGTH = 100_000
_CALLABLE = (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.CONTRACTION)
_ALSO = ("transpose", "cumsum", "cumprod")
_BEYOND = 2**64
"""The smallest whole number with more than 64 bits."""


class Formula(NamedTuple):
    """A parsed text: names of its operands, and steps that leave one value on the stack."""

    names: tuple[str, ...]
    steps: tuple[Step, ...]

    def build(self, operands: Mapping[str, Any]) -> Any:
        """Build the expression from ``operands`` (tensors, expressions, numbers) by name."""
        stack: list[Any] = []
        for function, count, more in self.steps:
            taken = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            stack.append(operands[more[0]] if function is _operand else function(*taken, *more))
        (result,) = stack
        return result


def functions() -> set[str]:
    """Names of callable functions: the builders of the op table, and the functions composed of them."""
    rows = [spec for spec in OPS.values() if spec.kind in _CALLABLE]
    return {name for spec in rows for name in spec.builders if hasattr(F, name)} | {*COMPOSED, *_ALSO}


@lru_cache(maxsize=1024)
def parse(text: str) -> Formula:
    """Parse ``text`` to steps.

    Raises
    ------
    ArgumentError
        If it is not an expression, or contains unsupported parts.
    """
    if len(text) > MAX_LENGTH:
        raise ArgumentError(f"eval: the text has {len(text)} characters, more than {MAX_LENGTH}; split it")
    try:
        tree = ast.parse(text.strip(), "<eval>", "eval").body
    except SyntaxError as error:
        raise ArgumentError(f"eval: {error.msg} at character {error.offset or 0} of {_short(text)}") from None
    except (RecursionError, MemoryError):
        raise ArgumentError(f"eval: {_short(text)} is nested too deeply; split it") from None
    except ValueError as error:
        raise ArgumentError(f"eval: {error} in {_short(text)}") from None
    names: dict[str, None] = {}
    steps: list[Step] = []
    stack: list[tuple[ast.AST, Step | None]] = [(tree, None)]
    while stack:  # children before the step that uses their values; without recursion, so that sums may be long
        node, step = stack.pop()
        if step is not None:
            steps.append(step)
            continue
        children, step = _translate(node, text)
        if step[0] is _operand:
            names[step[2][0]] = None
        stack.append((node, step))
        stack += [(child, None) for child in reversed(children)]
    return Formula(tuple(names), tuple(steps))


def _translate(node: ast.AST, text: str) -> tuple[list[ast.AST], Step]:
    """The operands of ``node``, and the step that uses their values."""
    if isinstance(node, ast.Constant):
        return [], (_number, 0, (_literal_number(node, text),))
    if isinstance(node, ast.Name):
        return [], (_operand, 0, (node.id,))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return [node.left, node.right], (_BINARY[type(node.op)], 2, ())
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return [node.operand], (_UNARY[type(node.op)], 1, ())
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops):
        tests = tuple(_COMPARISONS[type(op)] for op in node.ops)
        return [node.left, *node.comparators], (_compare, 1 + len(tests), (tests,))
    if isinstance(node, ast.Subscript):
        return [node.value], (_index, 1, (_literal_index(node.slice, text),))
    if isinstance(node, ast.Call):
        return list(node.args), _call_step(node, text)
    hint = _HINTS.get(type(node), "; it may hold operands, numbers, operators, comparisons, windows and calls")
    raise ArgumentError(f"eval: {_segment(node, text)} has no meaning in a text{hint}")


def _call_step(node: ast.Call, text: str) -> Step:
    known = functions()
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in known:
        raise ArgumentError(
            f"eval: {_segment(node.func, text)} is no function that a text can call{did_you_mean(name, known)}"
        )
    options = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in ("out", "backend"):
            raise ArgumentError(f"eval: {_segment(node, text)}: calls take no {keyword.arg or '**'}")
        options[keyword.arg] = _literal_index(keyword.value, text)
    spec = next((s for s in OPS.values() if name in s.builders), None)
    if spec is not None and spec.dtype is DTypeRule.INDEX and spec.kind is Kind.REDUCTION and len(node.args) == 1:
        options.setdefault("axis", 1)  # as in the backend's method
    return _call, len(node.args), (name, options)


# Literals -------------------------------------------------------------------------------------------------------------


def _literal_number(node: ast.Constant, text: str) -> int | float:
    """A number of the text, if tensors can hold it."""
    value = node.value
    if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) >= _BEYOND):
        raise ArgumentError(f"eval: {_segment(node, text)} is no number that a tensor can hold")
    return value


def _literal_index(node: ast.AST | None, text: str) -> Any:
    """A constant integer, slice, None, or a tuple of these."""
    if isinstance(node, ast.Tuple):
        return tuple(_literal_item(item, text) for item in node.elts)
    return _literal_item(node, text)


def _literal_item(node: ast.AST | None, text: str) -> Any:
    if isinstance(node, ast.Slice):
        return slice(*(_literal_item(part, text) for part in (node.lower, node.upper, node.step)))
    if node is None or (isinstance(node, ast.Constant) and (node.value is None or node.value is ...)):
        return None if node is None else node.value
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if isinstance(inner, ast.Constant):
        value = _literal_number(inner, text)
        return -value if negative else value
    raise ArgumentError(f"eval: {_segment(node, text)} must be a constant: an index and an option are part of the text")


def _segment(node: ast.AST, text: str) -> str:
    """Source text of ``node``, for a message."""
    part = ast.get_source_segment(text.strip(), node) if hasattr(node, "lineno") else None
    return _short(part or type(node).__name__)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


# Actions of steps ----------------------------------------------------------------------------------------------------


def _operand(name: str) -> Any:
    raise AssertionError(f"{name} is looked up by Formula.build")


def _number(value: Any) -> Any:
    return value


def _folding(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an operator ``function``: for numbers alone it is computed at once, within the range of tensors' numbers."""

    def apply(*operands: Any) -> Any:
        if any(isinstance(operand, Expression) for operand in operands):
            return function(*operands)
        try:
            value = _SAFE.get(function, function)(*operands)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise ArgumentError(f"eval: {function.__name__} of {', '.join(map(str, operands))}: {error}") from None
        if not isinstance(value, (int, float)) or (isinstance(value, int) and abs(value) >= _BEYOND):
            raise ArgumentError(f"eval: {function.__name__} of {', '.join(map(str, operands))} is no number of tensors")
        return value

    return apply


def _power(x: int | float, y: int | float) -> Any:
    """x ** y; as an integer only if the result is small, because Python would compute huge numbers for a long time."""
    small = isinstance(x, int) and isinstance(y, int) and 0 <= y < 64
    return x**y if small else float(x) ** float(y)


def _shift_left(x: int, y: int) -> int:
    return x << y if y < 64 else 0


_SAFE: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.pow: _power,
    operator.lshift: _shift_left,
    operator.invert: lambda x: not x if isinstance(x, bool) else ~x,
}
_BINARY: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: _folding(operator.add), ast.Sub: _folding(operator.sub), ast.Mult: _folding(operator.mul),
    ast.Div: _folding(operator.truediv), ast.FloorDiv: _folding(operator.floordiv), ast.Mod: _folding(operator.mod),
    ast.Pow: _folding(operator.pow), ast.MatMult: _folding(operator.matmul), ast.BitAnd: _folding(operator.and_),
    ast.BitOr: _folding(operator.or_), ast.BitXor: _folding(operator.xor), ast.LShift: _folding(operator.lshift),
    ast.RShift: _folding(operator.rshift),
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[..., Any]] = {
    ast.USub: _folding(operator.neg), ast.UAdd: _folding(operator.pos), ast.Invert: _folding(operator.invert),
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[..., Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_HINTS: dict[type[ast.AST], str] = {
    ast.BoolOp: "; combine truth values with & and |, each in parentheses: (a > 0) & (b < 1)",
    ast.UnaryOp: "; write ~ for not: ~(a > 0)",
    ast.IfExp: "; write where(condition, a, b)",
    ast.Attribute: "; attributes are not read: compute it before, or write transpose(a) for a.T",
    ast.Compare: "; compare with == != < <= > >=",
    ast.Tuple: "; an axis of several is named: sum(a, axis=(0, 1))",
}


def _compare(*values: Any) -> Any:
    """Chained comparison ``a < b <= c``: the conjunction, elementwise."""
    *operands, tests = values
    total: Any = None
    for test, left, right in zip(tests, operands, operands[1:]):
        found = test(left, right)
        if total is None:
            total = found
        elif isinstance(total, Expression) or isinstance(found, Expression):
            total = F.logical_and(total, found)
        else:
            total = total and found
    return total


def _index(value: Any, key: Any) -> Any:
    if isinstance(value, OpTreeNode):
        return windows.index(value, key)
    if isinstance(value, Expression):
        return value[key]  # type: ignore[index]  # a view of a tensor
    raise ArgumentError(f"eval: the number {value} has no elements to choose")


def _call(*values: Any) -> Any:
    *operands, name, options = values
    try:
        return getattr(F, name)(*operands, **options)
    except NeonlikeError:
        raise
    except (AttributeError, TypeError):
        given = ", ".join([*("..." for _ in operands), *(f"{key}={value!r}" for key, value in options.items())])
        raise ArgumentError(f"eval: {name}({given}) is no way to call {name}; see docs/ops.md") from None
