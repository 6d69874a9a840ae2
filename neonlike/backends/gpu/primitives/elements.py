"""Describes elements to templates of primitives, as ``cuda/elements.j2`` declares them, and their grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neonlike.kernels.codegen.emit import STORAGE, convert_store, load_element, type_of
from neonlike.kernels.cuda.fit import ALIGNMENT, NARROW, THREADS
from neonlike.optree.dtypes import DType, compute_dtype


def vector_length(dtype: DType, innermost: int, aligned: bool) -> int:
    """Elements of an access: as many as 16 bytes hold, or fewer that divide the ``innermost`` size; 1 if unaligned.

    Parameters
    ----------
    dtype : dtype
    innermost : int
    aligned : bool
        Whether tensors start at multiples of 16 bytes.
    """
    length = ALIGNMENT // dtype.itemsize if aligned else 1
    while innermost % length:
        length //= 2
    return length


def element_types(dtype: DType, vector: int, sizes: Sequence[int]) -> dict[str, Any]:
    """The context of ``elements.j2`` for accesses of ``vector`` elements of tensors of these ``sizes``.

    Parameters
    ----------
    dtype : dtype
    vector : int
    sizes : sequence of int
    """
    computed = compute_dtype(dtype)
    return {
        "threads": THREADS,
        "vector": vector,
        "align": vector * dtype.itemsize,
        "element": STORAGE[dtype.name],
        "real": STORAGE[computed.name],
        "load": load_element("x", dtype),
        "store": convert_store("x", computed, dtype),
        "index": "int64_t" if is_wide(sizes) else "int32_t",
    }


def conversions(dtype: DType) -> dict[str, str]:
    """The context of templates without ``elements.j2`` for the elements that they load and store."""
    return {
        "storage": STORAGE[dtype.name],
        "real": type_of(dtype),
        "load": load_element("element", dtype),
        "store": convert_store("number", compute_dtype(dtype), dtype),
    }


def is_wide(sizes: Sequence[int]) -> bool:
    """Whether places in tensors of these sizes need 64 bits."""
    return max(sizes, default=0) >= NARROW


def blocks_for(count: int) -> tuple[int, int, int]:
    """The grid of ``count`` threads, in blocks of ``THREADS``."""
    return -(-count // THREADS), 1, 1


BLOCK = (THREADS, 1, 1)
