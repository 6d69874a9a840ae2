"""Which dtypes exist, how they promote, and in which type a node is computed.

Three rules, the same on every backend:

* a float beats an integer, the wider float wins (float16 < float32 < float64);
* integer arithmetic is exact: it is typed and computed as int64, and saturates when stored in a narrower type;
* Python and NumPy *scalars* are weak: they never widen a tensor's float type.

float16 expressions are computed in float32 and rounded once, when stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from neonlike.errors import DTypeError

DType: TypeAlias = np.dtype[Any]

F16: DType = np.dtype(np.float16)
F32: DType = np.dtype(np.float32)
F64: DType = np.dtype(np.float64)
I64: DType = np.dtype(np.int64)
BOOL: DType = np.dtype(np.bool_)

FLOATS: tuple[DType, ...] = (F16, F32, F64)
INTEGERS: tuple[DType, ...] = tuple(np.dtype(c) for c in ("i1", "u1", "i2", "u2", "i4", "u4", "i8"))
SUPPORTED: tuple[DType, ...] = (*FLOATS, *INTEGERS, BOOL)

_FLOAT_RANK = {F16: 1, F32: 2, F64: 3}


class DTypeRule(Enum):
    """How an op's result dtype follows from the promoted dtype of its operands."""

    SAME = "same"  # floats stay, integers become int64
    FLOAT = "float"  # floats stay, integers become float32
    TRUTH = "truth"  # 0 or 1, in the operands' float type (float32 for integers)
    INDEX = "index"  # int64 positions


def as_dtype(value: Any, operation: str = "dtype") -> DType:
    """Return ``value`` as one of the supported dtypes.

    Raises
    ------
    DTypeError
        If ``value`` names no dtype, or one that tensors cannot hold.
    """
    try:
        dtype: DType = np.dtype(value)
    except TypeError as error:
        raise DTypeError(f"{operation}: {value!r} is not a dtype; use e.g. np.float32") from error
    if dtype not in _SUPPORTED_SET or not dtype.isnative:
        names = ", ".join(d.name for d in SUPPORTED)
        raise DTypeError(f"{operation}: tensors cannot hold {dtype.name}; supported are {names}")
    return dtype


def promote(dtypes: Iterable[DType]) -> DType:
    """Promoted dtype of operands: the widest float if there is one, else int64."""
    best: DType | None = None
    for dtype in dtypes:
        if dtype in _FLOAT_RANK and (best is None or _FLOAT_RANK[dtype] > _FLOAT_RANK[best]):
            best = dtype
    return best if best is not None else I64


def result_dtype(rule: DTypeRule, promoted: DType) -> DType:
    """dtype of a node whose operands promote to ``promoted``."""
    if rule is DTypeRule.INDEX:
        return I64
    if promoted in _FLOAT_RANK:
        return promoted
    return I64 if rule is DTypeRule.SAME else F32


def compute_dtype(dtype: DType) -> DType:
    """Type a node of ``dtype`` is computed in: float16 in float32, integers in int64, others as they are."""
    if dtype is F32 or dtype is F64:
        return dtype
    return F32 if dtype == F16 else I64


_SUPPORTED_SET = frozenset(SUPPORTED)
