"""Texts of reductions for templates: adding a value to a partial result, and merging partial results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neonlike.kernels.codegen.emit import Writer, expression, type_of
from neonlike.kernels.planning.lower import Value
from neonlike.optree.dtypes import F32, compute_dtype
from neonlike.optree.ops import OPS

_ITEMSIZES = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2}
_STARTS = {"sum": "0", "prod": "1", "any": "0", "all": "1"}


@dataclass(frozen=True, slots=True)
class Reduction:
    """Texts of one reduction; see the templates for their use."""

    index: int | str  # str for a reduction that is not a value of the stage
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
    magnitude: bool = False  # nan is detected separately, see nl_magnitude_f32
    itemsize: int = 4  # bytes of a partial result, 4 for any larger
    joins: Mapping[str, str] = field(default_factory=dict, repr=False)  # for a maximum with a sum beside it, also
    # described by `start` (shifted.py): functions that join the sums of two maxima, by the type of the sums

    @property
    def beside(self) -> str:
        """Name of the companion merged with the reduction: its position, or a sum; "" without one."""
        return f"at{self.index}" if self.position else f"s{self.index}" if self.joins else ""

    @property
    def beside_type(self) -> str:
        """Type of the companion within a block."""
        return "int64_t" if self.position else self.ctype

    @property
    def beside_total(self) -> str:
        """Type of the companion in merged partial results."""
        return "int64_t" if self.position else "double"


def describe_reduction(writer: Writer, value: Value) -> Reduction:
    """The texts of reduction ``value``."""
    spec, out = value.spec, type_of(value.dtype)
    if spec.name in ("argmax", "argmin"):
        return _describe_place(writer, value)
    narrow, operand = _operand(writer, value)
    i, dtype = value.index, compute_dtype(value.dtype)
    extreme, largest = spec.name in ("max", "min"), spec.name == "max"
    ctype = narrow or out
    total = ctype if extreme else "double" if dtype == F32 and spec.name in ("sum", "prod") else out
    start = _STARTS.get(spec.name) or _worst(largest, ctype)
    merger = OPS[spec.combine or ""]
    if spec.name in ("any", "all"):
        operand = f"({operand} != 0)"
    magnitude = extreme and dtype == F32 and writer.language == "c"
    plain = extreme and (magnitude or bool(narrow))

    def combine(a: str, b: str) -> str:
        return _extreme(largest, a, b) if extreme and narrow else expression(merger, [a, b], dtype, writer.language)

    def add(a: str, b: str) -> str:
        return _extreme(largest, a, b) if plain else f"{a} + {b}" if narrow else combine(a, b)

    q = [f"q{i}[{k}]" for k in range(4)]
    return Reduction(
        i, "", ctype, total, out, start, operand,
        lane=add(f"p{i}[l]", operand), fold=add(f"p{i}[l]", f"p{i}[l + s]"), merge=combine(f"t{i}", "other"),
        four=tuple([f"{a} = {add(a, b)};" for a, b in ((q[0], q[1]), (q[2], q[3]), (q[0], q[2]), (f"p{i}[l]", q[0]))]),
        column=add(f"p{i}[b]", operand), merge_column=combine(f"t{i}[b]", "other"), magnitude=magnitude,
        itemsize=_ITEMSIZES.get(ctype, 4),
    )  # fmt: skip


def _describe_place(writer: Writer, value: Value) -> Reduction:
    """Texts of an argmax or argmin."""
    largest, i = value.spec.name == "argmax", value.index
    narrow, operand = _operand(writer, value)
    _, have = writer.operand(value.args[0])
    better = OPS["maximum" if largest else "minimum"]
    ctype = narrow or type_of(have)
    read = writer.kernel.find(value.args[0]) is not None  # for computed operands, compilers lose the vector code
    magnitude = read and have == F32 and writer.language == "c"

    def best(a: str, b: str) -> str:
        return _extreme(largest, a, b) if narrow or magnitude else expression(better, [a, b], have, writer.language)

    return Reduction(
        i, ">" if largest else "<", ctype, ctype, type_of(value.dtype), _worst(largest, ctype), operand,
        lane=best(f"p{i}[l]", operand), fold=best(f"p{i}[l]", f"p{i}[l + s]"),
        merge="", column="", merge_column="", magnitude=magnitude, itemsize=_ITEMSIZES.get(ctype, 4),
    )  # fmt: skip


def _operand(writer: Writer, value: Value) -> tuple[str, str]:
    """Narrow type of ``value``'s partial results, "" for the usual one, and the operand in it."""
    narrow, (operand, _) = _narrow(writer, value), writer.operand(value.args[0])
    return narrow, f"({narrow}){operand}" if narrow else operand


def _narrow(writer: Writer, value: Value) -> str:
    """Type of the partial results of an integer array if narrower than int64; otherwise "".

    Extremes stay in the type of the elements. Sums of 8 and 16 bits fit in 32 bits until they are emptied, after at
    most a thousand elements.
    """
    array = writer.kernel.find(value.args[0])
    if writer.language != "c" or array is None or array.dtype.kind not in "iu" or array.dtype.itemsize == 8:
        return ""
    if value.spec.name in ("max", "min", "argmax", "argmin"):
        return array.ctype
    return "int32_t" if value.spec.name == "sum" and array.dtype.itemsize < 4 else ""


def _extreme(largest: bool, a: str, b: str) -> str:
    """The larger or smaller of ``a`` and ``b``, neither of which is nan."""
    return f"{b} {'>' if largest else '<'} {a} ? {b} : {a}"


def _worst(largest: bool, ctype: str) -> str:
    """Neutral start of a search for the maximum or minimum."""
    if ctype in ("float", "double"):
        return "-INFINITY" if largest else "INFINITY"
    name = ctype[:-2].upper()
    return f"{name}_MAX" if not largest else "0" if ctype[0] == "u" else f"{name}_MIN"
