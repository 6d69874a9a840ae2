"""What reduce templates say of each reduction: how a value is added to a partial result, how two of these merge."""

from __future__ import annotations

from dataclasses import dataclass

from neonlike.kernels.emit import Writer, expression, type_of
from neonlike.kernels.lower import Value
from neonlike.optree.dtypes import F32, I64, DType, compute_dtype
from neonlike.optree.ops import OPS

_STARTS = {"sum": "0", "prod": "1", "any": "0", "all": "1"}


@dataclass(frozen=True, slots=True)
class Reduction:
    """Texts of one reduction; see the templates for where each is used."""

    index: int | str  # str of what is no value of the stage
    position: str  # ">" or "<" for argmax and argmin
    ctype: str
    total: str
    out: str
    start: str
    operand: str
    lane: str
    fold: str
    merge: str
    column: str
    merge_column: str
    four: tuple[str, ...] = ()
    magnitude: bool = False  # nan is found beside the reduction, see nl_magnitude_f32


def describe_reduction(writer: Writer, value: Value) -> Reduction:
    """The texts of reduction ``value``."""
    spec, out = value.spec, type_of(value.dtype)
    operand, have = writer.operand(value.args[0])
    i = value.index
    if spec.name in ("argmax", "argmin"):
        largest = spec.name == "argmax"
        better = OPS["maximum" if largest else "minimum"]
        ctype = type_of(have)
        return Reduction(
            i, ">" if largest else "<", ctype, ctype, out, _worst(largest, have), operand,
            lane=expression(better, [f"p{i}[l]", operand], have, writer.language),
            fold=expression(better, [f"p{i}[l]", f"p{i}[l + s]"], have, writer.language),
            merge="", column="", merge_column="",
        )  # fmt: skip
    dtype = compute_dtype(value.dtype)
    total = "double" if dtype == F32 and spec.name in ("sum", "prod") else out
    start = _STARTS.get(spec.name) or _worst(spec.name == "max", dtype)
    merger = OPS[spec.combine or ""]

    def combine(a: str, b: str) -> str:
        return expression(merger, [a, b], dtype, writer.language)

    if spec.name in ("any", "all"):
        operand = f"({operand} != 0)"
    magnitude = spec.name in ("max", "min") and dtype == F32 and writer.language == "c"
    sign = ">" if spec.name == "max" else "<"
    q = [f"q{i}[{k}]" for k in range(4)]

    def add(total: str, new: str) -> str:
        return f"{new} {sign} {total} ? {new} : {total}" if magnitude else combine(total, new)

    return Reduction(
        i, "", out, total, out, start, operand,
        lane=add(f"p{i}[l]", operand), fold=add(f"p{i}[l]", f"p{i}[l + s]"), merge=combine(f"t{i}", "other"),
        four=tuple([f"{a} = {add(a, b)};" for a, b in ((q[0], q[1]), (q[2], q[3]), (q[0], q[2]), (f"p{i}[l]", q[0]))]),
        column=add(f"p{i}[b]", operand), merge_column=combine(f"t{i}[b]", "other"), magnitude=magnitude,
    )  # fmt: skip


def _worst(largest: bool, dtype: DType) -> str:
    """What every value is at least as good as, in search of the largest or the smallest."""
    if dtype == I64:
        return "INT64_MIN" if largest else "INT64_MAX"
    return "-INFINITY" if largest else "INFINITY"
