"""Operands of kernels on a GPU: contiguous elements of the dtype that a kernel takes, copied on the device where not.

What ``host`` and ``written`` of ``tensors/operands.py`` are for the definitions, without a copy to the host. Copies
live in memory of the pool, which may be given back as soon as the kernels are queued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from neonlike.errors import OutOfMemory
from neonlike.optree.dtypes import DType


def plain(tensor: Any, dtype: DType | None = None) -> Any:
    """``tensor`` if it is contiguous and of ``dtype`` (None: whichever it has), else a copy that is; to be read."""
    wanted = tensor.dtype if dtype is None else dtype
    if tensor.is_contiguous and tensor.dtype == wanted:
        return tensor
    return _copied(tensor, tensor.backend.fresh(tensor.shape, dtype=wanted))


@contextmanager
def stored(tensor: Any, keep: bool = False, dtype: DType | None = None) -> Iterator[Any]:
    """The same to be written: what is not ``tensor`` is copied to it when the block ends without an exception.

    With ``keep`` it holds the old values first, else they are undefined.

    Parameters
    ----------
    tensor : GPUTensor
    keep : bool
    dtype : dtype, optional
        None: the tensor's.
    """
    wanted = tensor.dtype if dtype is None else dtype
    if tensor.is_contiguous and tensor.dtype == wanted:
        yield tensor
        return
    stand_in = tensor.backend.fresh(tensor.shape, dtype=wanted)
    yield _copied(tensor, stand_in) if keep else stand_in
    _copied(stand_in, tensor)


@contextmanager
def put_back(tensors: Iterable[Any]) -> Iterator[None]:
    """Put back the contents of ``tensors`` (some may be None) if the memory runs out in the block.

    For what is computed by many assignments, which take memory one after the other.
    """
    held = list({id(tensor): tensor for tensor in tensors if tensor is not None}.values())
    copies = [_copied(tensor, tensor.backend.fresh(tensor.shape, dtype=tensor.dtype)) for tensor in held]
    calls = [tensor.backend.queue.copy(copy.array, tensor.array) for copy, tensor in zip(copies, held)]
    try:
        yield
    except OutOfMemory:
        for call in calls:
            call()
        raise


def _copied(source: Any, target: Any) -> Any:
    """``target`` with the values of ``source``, rounded to nearest."""
    target.backend.queue.copy(source.array, target.array)()
    return target
