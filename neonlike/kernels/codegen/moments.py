"""Sums of squares around a mean of the same stage, such as a variance, in a single read of memory.

A long row is cut into parts. With D and Q the sums of ``x - c`` and of its square over the n elements of a part, for
any c, ``sum(sqr(x - m)) = Q + (c - m)*(2*D + n*(c - m))`` for any m, so Q is computed before m is known. No digit is
lost as long as c is near the mean of the part (Chan, Golub, LeVeque 1979). ``sum(x - m) = D + n*(c - m)``, which
corrects a variance for the rounding of its mean, follows as well. Squares may be of differences in a wider type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from neonlike.kernels.codegen.emit import Line, type_of
from neonlike.kernels.codegen.passes import Level, ReduceForm
from neonlike.kernels.codegen.ranged import in_float
from neonlike.kernels.codegen.reductions import Reduction
from neonlike.kernels.planning.lower import Arg, Value
from neonlike.optree.dtypes import F32, F64, compute_dtype


@dataclass(frozen=True, slots=True)
class Pair:
    """``sum(sqr(x - m))``, value ``index``, of the second pass with m = ``mean``; and ``sum(x)`` of the first.

    ``rest`` is ``sum(x - m)``, or None if not needed; ``square`` is the type of the squares, possibly wider than
    ``ctype``, and possibly for its range alone (``ranged``, see ranged.py).
    """

    index: int
    total: int
    mean: int
    difference: int
    operand: Arg
    ctype: str
    square: str
    ranged: bool
    rest: int | None = None

    @property
    def deviations(self) -> str:
        """Name of the sum of deviations."""
        return f"{self.index}d"

    @property
    def squares(self) -> str:
        """Name of the sum of their squares."""
        return f"{self.index}q"


@dataclass(frozen=True, slots=True)
class Moments:
    """Template context: the pairs, their pass, and whether the first pass computes more than their sums."""

    pairs: list[Pair]
    level: Level
    others: bool


def find_moments(form: ReduceForm) -> Moments | None:
    """Match all reductions of the second pass to pairs with the first; None if any is something else."""
    first, second = (form.values.reductions(depth) for depth in (1, 2))
    pairs = [pair for pair in (_pair(form, value, first) for value in second) if pair is not None]
    found = [replace(pair, rest=_rest(form, pair, second)) for pair in pairs]
    if not found or {v.index for v in second} != {i for pair in found for i in (pair.index, pair.rest)} - {None}:
        return None
    level = form.read([pair.operand for pair in found])
    texts = [(pair, form.writer.operand(pair.operand)[0]) for pair in found]
    lines = [Line(f"e{pair.index}", pair.ctype, f"{text} - around{pair.index}") for pair, text in texts]
    level = replace(level, lines=(*level.lines, *lines), reductions=tuple(_sums(found)))
    short = {pair.squares: replace(pair, square=pair.ctype) for pair in found if pair.ranged}
    if short:
        sums: dict[int | str, Reduction] = {r.index: r for r in _sums(short.values()) if r.index in short}
        level = replace(level, narrow=in_float(level, level.lines, sums))
    return Moments(found, level, {pair.total for pair in found} != {value.index for value in first})


def _sums(pairs: Iterable[Pair]) -> Iterator[Reduction]:
    """For each pair, the sums of deviations and of their squares."""
    for pair in pairs:
        yield _sum(pair.deviations, pair.ctype, f"e{pair.index}")
        deviation = f"e{pair.index}" if pair.square == pair.ctype else f"({pair.square})e{pair.index}"
        yield _sum(pair.squares, pair.square, f"{deviation} * {deviation}")


def _pair(form: ReduceForm, value: Value, before: list[Value]) -> Pair | None:
    """Match ``value`` with the sum of the first pass that it belongs to."""
    root = _squared(form, value.args[0]) if value.spec.name == "sum" else None
    widened = root is not None and root.spec.name in ("cast", "widen") and compute_dtype(root.dtype) == F64
    difference = _computed(form, root.args[0]) if root is not None and widened else root
    if root is None or difference is None or difference.spec.name != "sub":
        return None
    for operand, mean in (difference.args, difference.args[::-1]):
        known = _computed(form, mean)
        if known is None or not form.values.is_row_value(known.index):
            continue
        total = next((v for v in before if v.spec.name == "sum" and v.args[0] == operand), None)
        dtypes = {compute_dtype(v.dtype) for v in (difference, known)} | {form.writer.operand(operand)[1]}
        if total is not None and dtypes in ({F32}, {F64}) and compute_dtype(value.dtype) in (*dtypes, F64):
            types = type_of(difference.dtype), type_of(value.dtype)
            ranged = root.spec.name == "widen" and types[0] == "float"
            return Pair(value.index, total.index, known.index, difference.index, operand, *types, ranged)
    return None


def _rest(form: ReduceForm, pair: Pair, second: list[Value]) -> int | None:
    """The sum of the differences squared in ``pair``."""
    for value in second:
        summed = _computed(form, value.args[0]) if value.spec.name == "sum" else None
        if summed is not None and summed.index == pair.difference:
            return value.index
    return None


def _squared(form: ReduceForm, arg: Arg) -> Value | None:
    """The value squared in ``arg``."""
    value = _computed(form, arg)
    if value is None or not (value.spec.name == "sqr" or (value.spec.name == "mul" and value.args[0] == value.args[1])):
        return None
    return _computed(form, value.args[0])


def _computed(form: ReduceForm, arg: Arg) -> Value | None:
    """The value of this stage behind ``arg``; None for an array or a number."""
    return next((form.values.by_index[index] for index in form.values.computed([arg])), None)


def _sum(name: str, ctype: str, operand: str) -> Reduction:
    """A sum that is not a value of the stage."""
    p, q = f"p{name}[l]", [f"q{name}[{k}]" for k in range(4)]
    pairs = ((q[0], q[1]), (q[2], q[3]), (q[0], q[2]), (p, q[0]))
    return Reduction(
        name, "", ctype, "double", ctype, "0", operand,
        lane=f"{p} + {operand}", fold=f"{p} + p{name}[l + s]", merge=f"t{name} + other", column="", merge_column="",
        four=tuple([f"{a} = {a} + {b};" for a, b in pairs]),
    )  # fmt: skip
