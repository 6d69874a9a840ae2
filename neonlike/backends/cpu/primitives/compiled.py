"""Base class of the CPU's kernel implementations, and when they use streaming stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neonlike.backends.families.base import Family
from neonlike.backends.families.operands import Array, host, written
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.memory import LINE
from neonlike.optree.dtypes import compute_dtype

STREAMED_RESULT_BYTES = 32 << 20
"""Larger results of convolution and pooling are written by streaming stores: caches cannot hold them until a read."""


class CompiledFamily(Family):
    """Base of the families' overrides.

    Attributes
    ----------
    compiler : Compiler or None
        Found when the backend was made: looking at the environment in each call takes longer than small kernels. None:
        the families' definitions run.
    """

    compiler: Compiler | None


def in_lines(out: Array) -> bool:
    """Whether each row of a contiguous array is aligned and consists of whole cache lines, as streaming stores need."""
    return (int(address(out) or 0) | out.shape[-1] * out.itemsize) % LINE == 0


def strided(tensor: Any) -> Array:
    """Values of ``tensor`` in the dtype computed in, of any strides: its own memory if it has that dtype."""
    array: Array = tensor.asnumpyarray()
    return array if array.dtype == compute_dtype(array.dtype) else host(tensor)


@contextmanager
def strided_written(tensor: Any) -> Iterator[Array]:
    """As ``written`` of ``families/operands.py``, of any strides: views are written where they lie."""
    if tensor.dtype == compute_dtype(tensor.dtype):
        yield tensor.asnumpyarray()
        return
    with written(tensor) as array:
        yield array
