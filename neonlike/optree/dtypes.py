"""Which dtypes exist, how they promote, and in which type a node is computed.

Three rules, the same on every backend:

* a float beats an integer, the wider float wins (float16, bfloat16 < float32 < float64); float16 with bfloat16, neither
  of which holds the other, is float32;
* integer arithmetic is exact: it is typed and computed as int64, and saturates when stored in a narrower type;
* Python and NumPy *scalars* are weak: they never widen a tensor's float type.

Expressions of float16 and of bfloat16 are computed in float32 and rounded once, when stored: to nearest, halves to
even, nan kept, infinity where they overflow. NumPy does not know bfloat16; the package ml_dtypes brings its dtype, and
is imported when that is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
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
BOOL: DType = np.dtype(np.bool_)

BFLOAT16 = "bfloat16"
"""Its name; the dtype itself is :func:`bfloat16`."""

FLOATS: tuple[DType, ...] = (F16, F32, F64)
"""Those that NumPy has; :func:`is_float` knows all."""
INTEGERS: tuple[DType, ...] = tuple(np.dtype(c) for c in ("i1", "u1", "i2", "u2", "i4", "u4", "i8"))
SUPPORTED: tuple[DType, ...] = (*FLOATS, *INTEGERS, BOOL)


class DTypeRule(Enum):
    """How an op's result dtype follows from the promoted dtype of its operands."""

    SAME = "same"  # floats stay, integers become int64
    FLOAT = "float"  # floats stay, integers become float32
    TRUTH = "truth"  # 0 or 1, in the operands' float type (float32 for integers)
    INDEX = "index"  # int64 positions
    WHOLE = "whole"  # of integers int64; floats are refused


@cache
def bfloat16() -> DType:
    """The dtype bfloat16: sign, exponent and the first 7 bits of mantissa of float32.

    Raises
    ------
    DTypeError
        If the package that has it is not installed.
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
    """Whether ``dtype``, which tensors can hold, is a float; the kind of bfloat16, unknown to NumPy, is "V" there."""
    return dtype.kind in "fV"


def as_dtype(value: Any, operation: str = "dtype") -> DType:
    """Return ``value`` as one of the supported dtypes, in this machine's byte order.

    Raises
    ------
    DTypeError
        If ``value`` names no dtype, or one that tensors cannot hold.
    """
    if isinstance(value, np.dtype) and value in _SUPPORTED_SET:  # as tensors have them, native too
        return value
    if isinstance(value, str) and value == BFLOAT16:
        return bfloat16()
    try:
        dtype: DType = np.dtype(value)
    except Exception as error:  # whatever NumPy, or an object with a dtype of its own, says of what names none
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


def promote(dtypes: Iterable[DType]) -> DType:
    """Promoted dtype of operands: the widest float if there is one, else int64."""
    best: DType | None = None
    for dtype in dtypes:
        if dtype is best or not is_float(dtype):
            continue
        if best is None or dtype.itemsize > best.itemsize:
            best = dtype
        elif dtype.itemsize == best.itemsize and dtype != best:  # float16 and bfloat16
            best = F32
    return best if best is not None else I64


def result_dtype(rule: DTypeRule, promoted: DType) -> DType:
    """dtype of a node whose operands promote to ``promoted``."""
    if rule is DTypeRule.INDEX:
        return I64
    if is_float(promoted):
        return promoted
    return F32 if rule in (DTypeRule.FLOAT, DTypeRule.TRUTH) else I64


def compute_dtype(dtype: DType) -> DType:
    """Type a node of ``dtype`` is computed in: float16 and bfloat16 in float32, integers in int64."""
    if dtype is F32 or dtype is F64:
        return dtype
    return F32 if is_float(dtype) else I64


_SUPPORTED_SET = frozenset(SUPPORTED)
