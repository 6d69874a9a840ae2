"""Integer arithmetic in 8, 16 or 32 bits where it gives the same bits as in 64.

Integer expressions are exact in int64 and saturate when stored, which uses an eighth of a vector register's capacity
for int8. So the range of every value is derived from the dtypes of the inputs: products of int8 fit in int16. Where a
dtype allows too much (a product of two int32), and for numbers, which are arguments, the analysis finds the largest
2**k such that operands from -2**k to 2**k - 1 keep all values within 32 bits. A strip of operands is checked first, and
computed in 64 bits if one is out of range. A final sum or difference of operands in the target's range needs neither:
it
saturates in the target's type.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from neonlike.kernels.codegen.emit import Array, Kernel
from neonlike.kernels.planning.lower import Arg, NumberArg, ValueArg
from neonlike.optree.dtypes import I64, DType, compute_dtype

Range: TypeAlias = tuple[int, int]
"""Minimum and maximum of a value."""

WIDTHS: tuple[DType, ...] = tuple(np.dtype(f"i{nbytes}") for nbytes in (1, 2, 4))
_SIZED = frozenset((*WIDTHS, *(np.dtype(f"u{width.itemsize}") for width in WIDTHS)))
LEAST_BITS = {8: 6, 16: 7, 32: 8}
"""Minimum k per width: below it, most programs' numbers would be out of range."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Narrower arithmetic of a kernel.

    Attributes
    ----------
    dtype : dtype
        Compute dtype.
    bits : int
        k of the range from -2**k to 2**k - 1.
    checked : list of Array
        Inputs with elements to be checked against the range.
    numbers : list of str
        Names of numbers to be checked against the range.
    saturated : set of int
        Sums and differences that saturate.
    """

    dtype: DType
    bits: int
    checked: list[Array]
    numbers: list[str]
    saturated: frozenset[int] = frozenset()


def find_narrow(kernel: Kernel) -> Narrow | None:
    """The narrowest compute dtype of ``kernel``; None for int64, or if it computes with floats, too."""
    if not _is_whole(kernel):
        return None
    saturated = _saturated(kernel)
    for clips, dtype in ((False, WIDTHS[0]), (False, WIDTHS[1]), (False, WIDTHS[2]), (True, WIDTHS[2])):
        if saturated is not None and saturated.dtype.itemsize <= dtype.itemsize:
            return saturated
        width = 8 * dtype.itemsize
        for bits in range(width - 1 - clips, LEAST_BITS[width] - 1, -1):
            reads = {array.name: _limits(array.dtype) for array in kernel.inputs}
            wide = [array for array in kernel.inputs if clips and not _within(reads[array.name], _signed(bits))]
            reads |= {array.name: _clipped(reads[array.name], bits) for array in wide}
            if _all_within(kernel, reads, bits, _signed(width - 1)):
                return Narrow(dtype, bits, wide, [number.name for number in kernel.numbers])
            if not kernel.numbers and not clips:
                break  # the range does not depend on k
    return None


def _is_whole(kernel: Kernel) -> bool:
    arrays = [*kernel.inputs, *kernel.outputs]
    return (
        all(array.kind != "counter" and array.dtype.kind in "iub" for array in arrays)
        and all(array.dtype.itemsize < 8 for array in kernel.inputs)
        and all(number.ctype == "int64_t" for number in kernel.numbers)
        and all(value.spec.name in _RULES and compute_dtype(value.dtype) == I64 for value in kernel.values)
    )


def _saturated(kernel: Kernel) -> Narrow | None:
    """The targets' dtype, if all values are in its range except for stored sums and differences."""
    dtype = kernel.outputs[0].dtype
    arrays = [*kernel.inputs, *kernel.outputs]
    if dtype not in _SIZED or max(a.dtype.itemsize for a in arrays) > dtype.itemsize:
        return None
    if any(array.dtype != dtype for array in kernel.outputs):
        return None
    used = {arg.value for value in kernel.values for arg in value.args if isinstance(arg, ValueArg)}
    stored = {arg.value for arg in kernel.sinks if isinstance(arg, ValueArg)} - used
    last = frozenset(v.index for v in kernel.values if v.index in stored and v.spec.name in ("add", "sub"))
    reads, bits = {array.name: _limits(array.dtype) for array in kernel.inputs}, 8 * dtype.itemsize - 1
    if not _all_within(kernel, reads, bits, _limits(dtype), last):
        return None
    return Narrow(dtype, bits, [], [number.name for number in kernel.numbers], last)


def _all_within(
    kernel: Kernel, reads: dict[str, Range], bits: int, limits: Range, beside: Collection[int] = ()
) -> bool:
    """Whether all inputs and values are within ``limits``, except for the values in ``beside``."""
    made: dict[int, Range] = {}

    def of(arg: Arg) -> Range:
        if isinstance(arg, NumberArg):
            return _signed(bits)
        array = kernel.find(arg)
        if array is not None:
            return reads[array.name]
        assert isinstance(arg, ValueArg)
        return made[arg.value]

    for value in kernel.values:
        made[value.index] = _RULES[value.spec.name](*map(of, value.args))
    kept = [found for index, found in made.items() if index not in beside]
    numbers = [_signed(bits)] if kernel.numbers else []
    return all(_within(found, limits) for found in (*reads.values(), *kept, *numbers))


def _limits(dtype: DType) -> Range:
    if dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _signed(bits: int) -> Range:
    return -(1 << bits), (1 << bits) - 1


def _within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _clipped(found: Range, bits: int) -> Range:
    low, high = _signed(bits)
    return max(found[0], low), min(found[1], high)


# Ranges of results ------------------------------------------------------------------------------------------------


def _mul(a: Range, b: Range) -> Range:
    products = [x * y for x, y in itertools.product(a, b)]
    return min(products), max(products)


def _abs(a: Range) -> Range:
    return max(a[0], -a[1], 0), max(-a[0], a[1])


def _sqr(a: Range) -> Range:
    low, high = _abs(a)
    return low * low, high * high


def _bits(*of: Range) -> Range:
    """Range of a bitwise op: the result has no more bits than the operands, sign excluded."""
    return _signed(max(max(high, -low - 1).bit_length() for low, high in of))


def _union(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _same(a: Range) -> Range:
    return a


_RULES: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _mul,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": _abs,
    "sgn": lambda a: (-1, 1),
    "sqr": _sqr,
    "relu": lambda a: (max(a[0], 0), max(a[1], 0)),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "where": lambda condition, a, b: _union(a, b),
    "bitwise_and": _bits,
    "bitwise_or": _bits,
    "bitwise_xor": _bits,
    "invert": lambda a: (~a[1], ~a[0]),
    **dict.fromkeys(("rint", "floor", "ceil", "trunc", "broadcast"), _same),
}
"""Op -> function from the ranges of its operands to the range of its result."""
