"""Range checks before loops, for functions with a fast form for most numbers.

Below 2^20 an angle is reduced by three multiplications, above by four to ten times as much arithmetic; a quarter of
pow's instructions handle bases that are negative, 0 or not finite. Vector code cannot branch per element; so the
operands of a strip are checked first, followed by a loop with the fast functions if all are in range, or else by the
general loop. Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from neonlike.kernels.codegen.emit import Line, Writer
from neonlike.kernels.planning.lower import Value, ValueArg
from neonlike.optree.dtypes import F64, compute_dtype

BOUNDED_CALLS = {"sin": "angle", "cos": "angle", "tan": "angle", "pow": "pow"}
"""Ops with a fast form, ``nl_<op>_bounded``, and the name used in its check ``nl_..._in_range``."""
CHECK_COST = 12
"""Flops above which computing the operands twice costs more than it saves."""


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """The check of a strip before its loop.

    Attributes
    ----------
    lines : list of Line
        Lines that compute the operands.
    tests : list of Line
        Tests for operands out of range, and the variables that combine them bitwise.
    bounded : list of Line
        All lines of the fast loop.
    conditions : list of str
        Conditions for the fast loop.
    hoisted : list of Line
        Lines before the fast loop.
    stores : list of str
        Stores of the fast loop; empty: those of the general loop.
    afterwards : bool
        Whether the fast loop checks while computing, followed by the general loop on failure.
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
    """The check for the loop of ``loads`` and ``lines``; None if there is nothing to check, or it would not pay.

    Parameters
    ----------
    writer : Writer
    loads, lines : iterables of Line
    """
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
    """The values from which the operand of ``value`` is computed."""
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
    """Use the fast function in ``line`` if it computes one of ``chosen``."""
    for value in chosen:
        if line.name == f"v{value.index}":
            function = f"nl_{value.spec.name}_"
            return replace(line, text=line.text.replace(function, f"{function}bounded_"))
    return line
