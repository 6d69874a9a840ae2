"""Memory of intermediate tensors that are gone, for those to come: what a workspace is to kernels.

A training step by variables makes the same tensors each time. The system clears the pages of fresh memory when they are
first touched, which took as long as computing a small transformer.
"""

from __future__ import annotations

import math
import time
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.kernels.run.memory import PAGED_FROM, aligned_empty
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

LEAST, MOST = PAGED_FROM, 32 << 20
"""Bytes of the smallest and the largest piece that is used again.

The allocator has small ones at hand, and larger ones are huge pages, which are few to clear.
"""

WAITING = 256 << 20
"""Bytes that wait to be used again, at most, when there was none of a size that is asked for."""

UNUSED = 5.0
"""Seconds after which pieces are given back of which more waited, all that time, than were asked for."""

_BYTE = np.dtype(np.uint8)


class Lent(weakref.ref[Any]):
    """A reference to the array over ``memory`` that a tensor was given, told when the last view of it is gone."""

    __slots__ = ("memory",)

    memory: npt.NDArray[Any]


class Reuse:
    """Pieces of memory by size: lent, or waiting to be used again."""

    def __init__(self) -> None:
        self._lent: dict[int, Lent] = {}  # by their ids: references hash as what they refer to
        self._waiting: dict[int, list[Lent]] = {}
        self._least: dict[int, int] = {}  # of each size asked for since then: how few were left waiting
        self._since = 0.0

    def empty(self, shape: Shape, dtype: DType) -> npt.NDArray[Any]:
        """As :func:`aligned_empty`, in memory that was used before where there is some.

        Raises
        ------
        OutOfMemory
        """
        size = math.prod(shape) * dtype.itemsize
        if not LEAST <= size <= MOST:
            return aligned_empty(shape, dtype)
        return self.piece(size).view(dtype).reshape(shape)

    def piece(self, size: int) -> npt.NDArray[Any]:
        """So many bytes, of any size, in memory that was used before where there is some; the last view gives it back.

        Raises
        ------
        OutOfMemory
        """
        waiting = self._waiting.setdefault(size, [])
        last = self._taken(waiting)
        left = len(waiting)
        if left < self._least.get(size, left + 1):
            self._least[size] = left
        if (now := time.monotonic()) > self._since + UNUSED:
            self._release_unused(now)
        if last is None and self.waiting_bytes() > WAITING:
            self.release()
        memory = aligned_empty((size,), _BYTE) if last is None else last.memory
        array = np.frombuffer(memory.data, _BYTE)  # over a buffer, so that it is the base of all views of it
        # A builtin as callback: it runs no Python code, in which an interrupt could be raised and lost.
        lent = Lent(array, waiting.append)
        lent.memory = memory
        self._lent[id(lent)] = lent
        return array

    def _taken(self, waiting: list[Lent]) -> Lent | None:
        """The last of ``waiting``, which it leaves; None if another thread was faster, or there is none."""
        try:
            last = waiting.pop()
        except IndexError:
            return None
        del self._lent[id(last)]
        return last

    def _release_unused(self, now: float) -> None:
        """Give back what was not asked for since this was called before."""
        least, self._least, self._since = self._least, {}, now
        for size, waiting in list(self._waiting.items()):
            for _ in range(least.get(size, len(waiting))):
                self._taken(waiting)

    def waiting_bytes(self) -> int:
        """Bytes that wait to be used again."""
        return sum(size * len(waiting) for size, waiting in list(self._waiting.items()))

    def release(self) -> None:
        """Give back what waits."""
        for waiting in list(self._waiting.values()):
            while self._taken(waiting) is not None:
                pass


pieces = Reuse()
"""Those of the process."""
