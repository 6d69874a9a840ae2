"""Range checks before loops of functions that are fast for most numbers only.

Below 2^20 an angle is reduced by three multiplications, beyond by four to ten times as much arithmetic; a quarter of
pow's instructions are about bases that are negative, 0 or not finite. Vector code cannot choose for each element; so
the operands of a strip are checked first, and a loop with the fast functions follows if all are in range, else one with
those that take any number. Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from neonlike.kernels.codegen.emit import Line, Writer
from neonlike.kernels.planning.lower import Value, ValueArg
from neonlike.optree.dtypes import F64, compute_dtype

BOUNDED_CALLS = {"sin": "angle", "cos": "angle", "tan": "angle", "pow": "pow"}
"""Ops whose function has a fast form, ``nl_<op>_bounded``, and what its check ``nl_..._in_range`` is named for."""
CHECK_COST = 12
"""Flops above which computing the operands twice costs more than it saves."""


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """The check of a strip before its loop.

    Attributes
    ----------
    lines : list of Line
        They compute the operands.
    tests : list of Line
        Texts that tell where an operand is out of range, and the variables in which they are combined bit by bit.
    bounded : list of Line
        All lines of the loop that follows if none is.
    conditions : list of str
        Texts that are true if none is.
    hoisted : list of Line
        What comes before that loop.
    stores : list of str
        What it stores; none: as the other loop does.
    afterwards : bool
        Whether that loop checks as it computes, and the other one follows where it was wrong.
    """

    lines: list[Line]
    tests: list[Line]
    bounded: list[Line]
    conditions: list[str]
    hoisted: list[Line] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    afterwards: bool = False

    @property
    def totals(self) -> list[Line]:
        """The variables, each once."""
        return list({test.name: test for test in self.tests}.values())


def find_range_check(writer: Writer, loads: Iterable[Line], lines: Iterable[Line]) -> RangeCheck | None:
    """The check for the loop of ``loads`` and ``lines``; None if there is nothing to check, or it would not pay."""
    values = {value.index: value for value in writer.kernel.values}
    chosen: list[Value] = []
    below: set[int] = set()
    for value in values.values():
        if value.spec.name in BOUNDED_CALLS:
            more = below | _below(writer, value, values)
            nested = any(values[index].spec.name in BOUNDED_CALLS for index in more)
            if not nested and sum(values[index].spec.flops for index in more) <= CHECK_COST:
                chosen.append(value)
                below = more
    if not chosen:
        return None
    tests = [_test(writer, value) for value in chosen]
    needed = [*chosen, *(values[index] for index in below)]
    read = {writer.operand(arg)[0] for value in needed for arg in value.args}
    counters = [counter for value in needed if (counter := writer.kernel.counter(value)) is not None]
    read |= {writer.load(counter, "").name for counter in counters}
    return RangeCheck(
        [line for line in loads if line.name in read] + [writer.line(values[index]) for index in sorted(below)],
        tests,
        [_bounded(line, chosen) for line in lines],
        [f"{name} >= 0" for name in dict.fromkeys(test.name for test in tests)],
    )


def _below(writer: Writer, value: Value, values: dict[int, Value]) -> set[int]:
    """The values that the operand of ``value`` is computed from."""
    found: set[int] = set()
    stack = list(value.args)
    while stack:
        arg = stack.pop()
        if isinstance(arg, ValueArg) and writer.kernel.find(arg) is None and arg.value not in found:
            found.add(arg.value)
            stack += values[arg.value].args
    return found


def _test(writer: Writer, value: Value) -> Line:
    suffix, ctype = ("f64", "int64_t") if compute_dtype(value.dtype) == F64 else ("f32", "int32_t")
    operands = ", ".join(writer.converted_operands(value))
    return Line(f"range_{suffix}", ctype, f"nl_{BOUNDED_CALLS[value.spec.name]}_in_range_{suffix}({operands})")


def _bounded(line: Line, chosen: Iterable[Value]) -> Line:
    """``line`` with the fast function if it computes one of ``chosen``."""
    for value in chosen:
        if line.name == f"v{value.index}":
            function = f"nl_{value.spec.name}_"
            return replace(line, text=line.text.replace(function, f"{function}bounded_"))
    return line
