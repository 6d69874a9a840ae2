"""Base class of the CPU's kernel implementations, with the criterion for streaming stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neonlike.backends.family import Family
from neonlike.backends.tensors.operands import Array, host, written
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.memory import LINE
from neonlike.optree.dtypes import HALVES, DType, compute_dtype

STREAMED_RESULT_BYTES = 32 << 20
"""Bytes above which results of convolution and pooling use streaming stores: caches could not hold them until read."""


class CompiledFamily(Family):
    """Base of the families' overrides.

    Attributes
    ----------
    compiler : Compiler or None
        Found once, when the backend is created: checking the environment per call takes longer than small kernels.
        None: the families' definitions run.
    """

    compiler: Compiler | None

    def _pairs_of(self, dtype: DType) -> int:
        """The form of pairs of bfloat16 that factors of ``dtype`` are rounded to, see ``pairs.h``; 0: none."""
        raise NotImplementedError


def in_lines(out: Array) -> bool:
    """Whether rows of a contiguous array are aligned whole cache lines, as streaming stores require."""
    return (int(address(out) or 0) | out.shape[-1] * out.itemsize) % LINE == 0


def in_place(dtype: DType) -> tuple[str, DType | None]:
    """The kind of 16-bit floats, for kernels that read and write them, and ``dtype``; empty and None for others."""
    half = HALVES.get(dtype.name, "")
    return half, dtype if half else None


def strided(tensor: Any) -> Array:
    """Values of ``tensor`` in the compute dtype, with any strides: its own memory if it has that dtype."""
    array: Array = tensor.asnumpyarray()
    return array if array.dtype == compute_dtype(array.dtype) else host(tensor)


@contextmanager
def strided_written(tensor: Any) -> Iterator[Array]:
    """As ``written`` of ``tensors/operands.py``, with any strides: views are written in place."""
    if tensor.dtype == compute_dtype(tensor.dtype):
        yield tensor.asnumpyarray()
        return
    with written(tensor) as array:
        yield array
