"""Accounting of host memory used by a process's tensors, counted on demand."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

from neonlike.backends.cpu.tensor import CPUTensor
from neonlike.backends.memory import MemoryStats
from neonlike.backends.tensors.memory import MemoryFamily
from neonlike.kernels.run.reuse import pieces
from neonlike.kernels.run.workspace import kept_bytes, release_workspace

_peaks = {"used": 0, "reserved": 0}


class HostMemory(MemoryFamily):
    """``memory_stats`` and related methods for host memory."""

    _scratch: Any

    def memory_stats(self) -> MemoryStats:
        """See :meth:`MemoryFamily.memory_stats`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.memory_stats().used >= 0
        True
        """
        blocks = _memory_of_tensors()
        used = sum(blocks.values())
        reserved = used + kept_bytes() + pieces.waiting_bytes() + (0 if self._scratch is None else self._scratch.nbytes)
        _peaks.update(used=max(used, _peaks["used"]), reserved=max(reserved, _peaks["reserved"]))
        return MemoryStats(used, _peaks["used"], reserved, _peaks["reserved"], len(blocks), 0, 0)

    def reset_memory_peaks(self) -> None:
        """See :meth:`MemoryFamily.reset_memory_peaks`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.reset_memory_peaks()
        """
        _peaks.update(used=0, reserved=0)
        self.memory_stats()

    def release_memory(self) -> int:
        """See :meth:`MemoryFamily.release_memory`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.release_memory() >= 0
        True
        """
        kept = kept_bytes() + pieces.waiting_bytes()
        release_workspace()
        pieces.release()
        return kept


def _memory_of_tensors() -> dict[int, int]:
    """Map the address of each memory block of living tensors to its size in bytes."""
    found: dict[int, int] = {}
    for thing in gc.get_objects():
        if not issubclass(type(thing), CPUTensor):
            continue
        array, root = getattr(thing, "array", None), getattr(thing, "root", None)
        if array is None or root is None:  # under construction, or over foreign memory
            continue
        while isinstance(array.base, np.ndarray):
            array = array.base
        found[array.__array_interface__["data"][0]] = array.nbytes
    return found
