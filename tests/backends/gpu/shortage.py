"""A GPU whose memory runs out at a chosen request, and the contents of its other memory."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from neonlike.backends.gpu.memory.pool import MemoryBlock

COLLECT = "neonlike.backends.gpu.memory.pool.gc.collect"
"""What a pool does before it gives up: here it takes longer than everything else."""
SMALL = "neonlike.backends.gpu.memory.pool.SMALL_BYTES"
"""Of blocks that share a slab."""


@contextmanager
def running_out(be: Any, after: int) -> Iterator[None]:
    """In this block the pool of ``be``'s device serves so many requests and refuses the next one, as if full."""
    pool, numbers, allocate = be.device.pool, itertools.count(), be.device.pool.allocate

    def limited(nbytes: int) -> MemoryBlock:
        if next(numbers) != after:
            return allocate(nbytes)  # type: ignore[no-any-return]
        nothing: Any = lambda *_: None  # noqa: E731
        with mock.patch.multiple(pool, _find=nothing, _take=nothing), mock.patch(COLLECT):
            allocate(nbytes)
        raise AssertionError("a pool without memory has raised")

    with mock.patch.object(pool, "allocate", limited):
        yield


@contextmanager
def driver_running_out(be: Any, after: int) -> Iterator[None]:
    """The driver has memory for so many requests in this block; returned memory serves later ones.

    Each block is a request, as large ones are.
    """
    pool, numbers, take = be.device.pool, itertools.count(), be.device.pool._take
    be.release_memory()

    def limited(size: int, count: int) -> Any:
        return take(size, count) if next(numbers) < after else None

    with mock.patch(SMALL, -1), mock.patch.object(pool, "_take", limited), mock.patch(COLLECT):
        yield


class Held:
    """Memory handed out by the device of ``be`` while :meth:`noted` lasts, and its contents."""

    def __init__(self, be: Any) -> None:
        self.device = be.device
        self._blocks: list[weakref.ref[MemoryBlock]] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record the memory handed out in this block."""
        pool, allocate = self.device.pool, self.device.pool.allocate

        def noting(nbytes: int) -> MemoryBlock:
            block: MemoryBlock = allocate(nbytes)
            self._blocks.append(weakref.ref(block))
            return block

        with mock.patch.object(pool, "allocate", noting):
            yield

    def bytes(self) -> list[Any]:
        """Contents of the blocks still in use."""
        return [self.device.to_host(array) for array in self._arrays()]

    def restore(self, values: list[Any]) -> None:
        """Write back the contents returned by :meth:`bytes`."""
        for array, value in zip(self._arrays(), values, strict=True):
            self.device.from_host(value, array)

    def _arrays(self) -> list[Any]:
        kind, alive = np.dtype(np.uint8), [block for ref in self._blocks if (block := ref()) is not None]
        return [self.device.view(block, block.address, (block.nbytes,), (1,), kind) for block in alive]


def equal(a: list[Any], b: list[Any]) -> bool:
    """Whether two answers of :meth:`Held.bytes` are the same."""
    return len(a) == len(b) and all(map(np.array_equal, a, b))
