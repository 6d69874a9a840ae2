"""The supported dtypes, their promotion rules, and the dtypes of computation.

Four rules, the same on every backend:

* a float beats an integer, and the wider float wins (float16, bfloat16 < float32 < float64); float16 with bfloat16,
  neither of which includes the other, gives float32;
* integer arithmetic is exact: typed and computed as int64, and saturated when stored in a narrower dtype;
* uint64 arithmetic is typed and computed as uint64, modulo 2**64, with whole numbers from 0 to 2**64 - 1; integers of
  other dtypes and negative numbers, which have no common dtype with it, are refused. Comparisons accept all;
* Python and NumPy *scalars* are weak: they never widen a tensor's float type.

Expressions of float16 and bfloat16 are computed in float32 and rounded once, when stored: to nearest, ties to even,
nan preserved, overflow to infinity. NumPy has no bfloat16; the package ml_dtypes provides the dtype and is imported on
first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from neonlike.errors import DTypeError

DType: TypeAlias = np.dtype[Any]

F16: DType = np.dtype(np.float16)
F32: DType = np.dtype(np.float32)
F64: DType = np.dtype(np.float64)
I64: DType = np.dtype(np.int64)
U64: DType = np.dtype(np.uint64)
BOOL: DType = np.dtype(np.bool_)

BFLOAT16 = "bfloat16"
"""Name of the dtype; :func:`bfloat16` returns the dtype itself."""
HALVES = {"float16": "f16", BFLOAT16: "bf16"}
"""Kinds of 16-bit floats, as names of C functions have them."""

FLOATS: tuple[DType, ...] = (F16, F32, F64)
"""Float dtypes of NumPy; :func:`is_float` knows all float dtypes."""
INTEGERS: tuple[DType, ...] = tuple(np.dtype(c) for c in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"))
SUPPORTED: tuple[DType, ...] = (*FLOATS, *INTEGERS, BOOL)


def half_of(dtype: DType) -> str:
    """The kind of 16-bit floats that ``dtype`` is, see :data:`HALVES`; empty for others.

    NumPy finds the name of a dtype by Python: in a microsecond, which is saved for other sizes.
    """
    return HALVES.get(dtype.name, "") if dtype.itemsize == 2 else ""


class DTypeRule(Enum):
    """Rule for an op's result dtype, given the promoted dtype of its operands."""

    SAME = "same"  # floats and uint64 stay, other integers become int64
    FLOAT = "float"  # floats stay, integers become float32
    TRUTH = "truth"  # 0 or 1, in the operands' float type (float32 for integers)
    INDEX = "index"  # int64 positions
    WHOLE = "whole"  # as SAME; floats are refused


@cache
def bfloat16() -> DType:
    """Return the dtype bfloat16: sign, exponent and the first 7 mantissa bits of float32.

    Raises
    ------
    DTypeError
        If the package that provides it is not installed.
    """
    try:
        import ml_dtypes
    except ImportError as error:
        raise DTypeError(
            f"bfloat16: NumPy has no such dtype, and ml_dtypes, which has, cannot be imported ({error}); install it "
            "with: pip install 'neonlike[bfloat16]'"
        ) from error
    found: DType = np.dtype(ml_dtypes.bfloat16)
    return found


def is_float(dtype: DType) -> bool:
    """Whether ``dtype``, a supported dtype, is a float; bfloat16, unknown to NumPy, has the kind "V" there."""
    return dtype.kind in "fV"


def is_index(dtype: DType) -> bool:
    """Whether elements of ``dtype`` can be positions: integers within int64, as which they are read."""
    return dtype.kind in "iu" and dtype != U64


def as_dtype(value: Any, operation: str = "dtype") -> DType:
    """Convert ``value`` to a supported dtype in this machine's byte order.

    Raises
    ------
    DTypeError
        If ``value`` is not a dtype, or tensors cannot hold it.
    """
    if isinstance(value, np.dtype) and value in _SUPPORTED_SET:  # as from tensors: native byte order
        return value
    if isinstance(value, str) and value == BFLOAT16:
        return bfloat16()
    try:
        dtype: DType = np.dtype(value)
    except Exception as error:  # NumPy, or an object with a dtype of its own, may raise anything
        sizes = "; several sizes are a tuple, as in zeros((3, 4))" if isinstance(value, int) else ""
        raise DTypeError(f"{operation}: {str(value)[:80]!r} is not a dtype; use e.g. np.float32{sizes}") from error
    if not dtype.isnative:
        dtype = dtype.newbyteorder("=")
    if not holds(dtype):
        names = ", ".join([*(d.name for d in SUPPORTED), BFLOAT16])
        raise DTypeError(f"{operation}: tensors cannot hold {dtype.name}; supported are {names}")
    return dtype


def holds(dtype: DType) -> bool:
    """Whether tensors can hold ``dtype``."""
    return (dtype in _SUPPORTED_SET or (dtype.kind == "V" and dtype.name == BFLOAT16)) and bool(dtype.isnative)


def promote(dtypes: Sequence[DType]) -> DType:
    """Promoted dtype of operands: the widest float if there is one, uint64 if all are uint64, else int64."""
    best: DType | None = None
    for dtype in dtypes:
        if dtype is best or not is_float(dtype):
            continue
        if best is None or dtype.itemsize > best.itemsize:
            best = dtype
        elif dtype.itemsize == best.itemsize and dtype != best:  # float16 and bfloat16
            best = F32
    if best is not None:
        return best
    return U64 if U64 in dtypes and all(dtype == U64 for dtype in dtypes) else I64


def check_whole(operation: str, dtypes: Sequence[DType], whole: DType, numbers: Iterable[float]) -> None:
    """Raise for integers without common dtype; ``whole`` is the promoted dtype of ``dtypes``.

    Parameters
    ----------
    operation : str
        For messages.
    dtypes : sequence of dtype
        Of the operands.
    whole : dtype
    numbers : iterable of numbers
        Operands that are numbers.

    Raises
    ------
    DTypeError
        If uint64 meets another integer dtype, or a number exceeds the dtype of computation.
    """
    if whole is I64 and U64 in dtypes:
        other = next(dtype for dtype in dtypes if dtype != U64)
        raise DTypeError(
            f"{operation}: uint64 and {other.name} have no common integer dtype; convert one of them with "
            'astype("int64") or astype("uint64"), which saturate, or both with astype("float64"), which rounds'
        )
    for number in numbers:
        if not (0 <= number < 2**64 if whole is U64 else -(2**63) <= number < 2**63):
            raise DTypeError(
                f"{operation}: {str(number)[:40]} does not fit in {whole.name}, in which the integers beside it are "
                "computed; write it as a float, or convert the tensor with astype(dtype)"
            )


def whole_as_float(operation: str, number: int) -> float:
    """Convert a whole number beyond 64 bits to the nearest float.

    Raises
    ------
    DTypeError
        If it is larger than any float.
    """
    try:
        return float(number)
    except OverflowError:
        raise DTypeError(f"{operation}: {str(number)[:40]}... is larger than any float") from None


def result_dtype(rule: DTypeRule, promoted: DType) -> DType:
    """dtype of a node whose operands promote to ``promoted``."""
    if rule is DTypeRule.INDEX:
        return I64
    if is_float(promoted):
        return promoted
    return F32 if rule in (DTypeRule.FLOAT, DTypeRule.TRUTH) else promoted


def compute_dtype(dtype: DType) -> DType:
    """Dtype of computation: float32 for float16 and bfloat16, int64 for integers except uint64."""
    if dtype is F32 or dtype is F64:
        return dtype
    return F32 if is_float(dtype) else U64 if dtype == U64 else I64


def wide_dtype(dtype: DType) -> DType:
    """The widest dtype of the same kind as ``dtype``, used for accumulation."""
    return F64 if is_float(dtype) else compute_dtype(dtype)


_SUPPORTED_SET = frozenset(SUPPORTED)
