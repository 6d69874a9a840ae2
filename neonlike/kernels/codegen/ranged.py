"""Sums of squares in float64 for its range alone: they are first summed in float32.

The square of a float32 may overflow float32, so norms square in float64 (op ``widen``), which takes twice as long and
is needed for few rows. A sum of float32 squares is as exact as other float32 sums, unless it is infinite or so small
that squares underflowed. So a pass with such sums gets a narrow form that runs first; templates run the original pass
if a sum of the narrow one is out of range.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from neonlike.kernels.codegen.emit import Line
from neonlike.kernels.codegen.passes import Level, Passes, ReduceForm
from neonlike.kernels.codegen.reductions import Reduction
from neonlike.kernels.planning.lower import Arg, NumberArg, Value, ValueArg
from neonlike.optree.dtypes import F32, F64


def with_narrow(form: ReduceForm, passes: Passes) -> Passes:
    """Add narrow forms to ``passes`` where possible."""
    levels = [replace(level, narrow=_narrow(form, level)) for level in passes.levels]
    after = [*levels[1:], passes.final]
    for k, level in enumerate(after):
        before = levels[k].narrow
        if before is not None and level.settle is not None:
            settle = replace(level.settle, narrow=_narrow_settle(form, level.settle, before.ranged))
            after[k] = replace(level, settle=settle)
    return replace(passes, levels=(levels[0], *after[:-1]), final=after[-1])


def in_float(level: Level, lines: tuple[Line, ...], sums: Mapping[int | str, Reduction]) -> Level:
    """Narrow form of ``level``: other lines, and replacements for some of its reductions.

    Parameters
    ----------
    level : Level
    lines : tuple of Line
    sums : mapping
        Reductions by the indices of those that they replace.
    """
    reductions = tuple([sums.get(r.index, r) for r in level.reductions])
    return replace(level, lines=lines, reductions=reductions, ranged=tuple(sums))


def _narrow(form: ReduceForm, level: Level) -> Level | None:
    """Convert ``level`` to float32 squares; None if no squares are float64 for its range alone."""
    computed = {line.name for line in level.lines}
    sums, lines = dict[int | str, Reduction](), dict[str, Line]()
    for r in level.reductions:
        squared = _widened_square(form, form.values.by_index[int(r.index)])
        if squared is None:
            continue
        square, wide = squared
        if {f"v{square.index}", f"v{wide.index}"} <= computed:
            sums[r.index] = replace(r, ctype="float")
            lines[f"v{wide.index}"] = Line(f"v{wide.index}", "float", form.writer.operand(wide.args[0])[0])
            lines[f"v{square.index}"] = Line(f"v{square.index}", "float", f"v{wide.index} * v{wide.index}")
    others = [line.text for line in level.lines if line.name not in lines]
    others += [*level.cached, *(r.operand for r in level.reductions if r.index not in sums)]
    if not sums or _mentions(others, lines):
        return None
    return in_float(level, tuple([lines.get(line.name, line) for line in level.lines]), sums)


def _narrow_settle(form: ReduceForm, settle: Level, sums: Collection[int | str]) -> Level | None:
    """Settle lines for sums in range, in float32 as far as possible; None if nothing changes."""
    single = {int(index) for index in sums}
    known = {line.name for line in settle.known}
    computed = [value for line in settle.lines if line.name not in known and (value := _named(form, line))]
    for value in computed:
        if value.dtype == F64 and _is_single(form, value, single):
            single.add(value.index)
    if len(single) == len(sums):
        return None
    writer = replace(form.writer, single=frozenset(single))
    lines = {f"v{value.index}": writer.line(value) for value in computed}
    names = {f"v{index}" for index in sums}
    lines |= {line.name: replace(line, ctype="float") for line in settle.known if line.name in names}
    return replace(settle, lines=tuple([lines.get(line.name, line) for line in settle.lines]), ranged=tuple(sums))


def _named(form: ReduceForm, line: Line) -> Value | None:
    """The value computed by a line."""
    return form.values.by_index.get(int(line.name[1:])) if re.fullmatch(r"v\d+", line.name) else None


def _is_single(form: ReduceForm, value: Value, single: Collection[int]) -> bool:
    """Whether a value is float64 for its range alone: a widened float32, or computed from such values and numbers."""
    if value.spec.name == "widen":
        return form.writer.operand(value.args[0])[1] == F32
    known = [isinstance(arg, ValueArg) and arg.value in single for arg in value.args]
    return any(known) and all(here or isinstance(arg, NumberArg) for here, arg in zip(known, value.args))


def _widened_square(form: ReduceForm, value: Value) -> tuple[Value, Value] | None:
    """The square summed by ``value``, and its widened float32 operand; None if it sums anything else."""
    square = _value(form, value.args[0]) if value.spec.name == "sum" else None
    wide = _value(form, square.args[0]) if square is not None and square.spec.name == "sqr" else None
    if square is None or wide is None or wide.spec.name != "widen" or wide.dtype != F64:
        return None
    return (square, wide) if form.writer.operand(wide.args[0])[1] == F32 else None


def _value(form: ReduceForm, arg: Arg) -> Value | None:
    """The value of this stage behind ``arg``; None for an array or a number."""
    return next((form.values.by_index[i] for i in form.values.computed([arg])), None)


def _mentions(texts: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of ``names`` occurs as a word in ``texts``."""
    word = re.compile(rf"\b({'|'.join(names)})\b")
    return any(word.search(text) for text in texts)
