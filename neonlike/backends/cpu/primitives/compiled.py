"""Base class of the CPU's kernel implementations, with the criterion for streaming stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from neonlike.backends.family import Family
from neonlike.backends.tensors.operands import Array, host, written
from neonlike.kernels.c.convert import conversions, convertible
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.memory import LINE
from neonlike.optree.dtypes import F32, DType, compute_dtype, half_of

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

    def _stored(self, tensor: Any, dims: Sequence[int] | None = None, kind: DType | None = None) -> Array:
        """The array that ``host`` gives, but with 16-bit floats as they lie in memory if a kernel can convert them.

        :meth:`_converting` has the program convert them to ``kind`` before the kernel, which computes in it.
        """
        return host(tensor, dims, self._stored_dtype(tensor, kind or compute_dtype(tensor.dtype)))

    def _stored_written(
        self, tensor: Any, dims: Sequence[int], keep: bool, kind: DType | None = None
    ) -> AbstractContextManager[Array]:
        """The array that ``written`` gives, but with 16-bit floats as they lie in memory, as in :meth:`_stored`."""
        return written(tensor, dims, keep, self._stored_dtype(tensor, kind or compute_dtype(tensor.dtype)))

    def _stored_dtype(self, tensor: Any, kind: DType) -> DType:
        dtype: DType = tensor.dtype
        return dtype if kind == F32 and convertible(dtype, self.compiler) else kind

    def _converting(
        self,
        call: KernelCall,
        arrays: Sequence[Array | None],
        written: dict[int, bool],
        known: Sequence[int] = (),
    ) -> KernelCall:
        """``call`` on ``arrays``, of which the kernel gets 16-bit floats in float32, but those that it knows.

        ``written``: which of them it writes, and whether it reads their old values; ``known``: which it reads and
        writes in 16 bits.
        """
        others = [None if which in known else array for which, array in enumerate(arrays)]
        converted = conversions(others, self.compiler, written)
        return call._replace(addresses=tuple(map(address, arrays)), converted=converted)


def in_lines(out: Array) -> bool:
    """Whether rows of a contiguous array are aligned whole cache lines, as streaming stores require."""
    return (int(address(out) or 0) | out.shape[-1] * out.itemsize) % LINE == 0


def in_place(dtype: DType) -> tuple[str, DType | None]:
    """The kind of 16-bit floats, for kernels that read and write them, and ``dtype``; empty and None for others."""
    half = half_of(dtype)
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
