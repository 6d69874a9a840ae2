"""Accounting of host memory used by a process's tensors, counted on demand."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any, NamedTuple

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
    for tensor in _living():
        array, root = getattr(tensor, "array", None), getattr(tensor, "root", None)
        if array is None or root is None:  # under construction, or over foreign memory
            continue
        while isinstance(array.base, np.ndarray):
            array = array.base
        found[array.__array_interface__["data"][0]] = array.nbytes
    return found


class _Met(NamedTuple):
    """Tensors met by a search, and how often the garbage collector had looked at objects that are not young."""

    collections: tuple[int, ...]
    tensors: list[weakref.ref[CPUTensor]]


_last = _Met((), [])
_MOVES_AT_ANY_TIME = sys.version_info >= (3, 14)
"""Whether the garbage collector takes objects for old in small steps, which it does not count."""


def _living() -> list[CPUTensor]:
    """All living tensors.

    To search all objects takes 0.2 us for each, some milliseconds in a small program. As long as the garbage collector
    has taken none for old since the last search, those made since are young, and only these are searched.
    """
    global _last
    young = _among(gc.get_objects(generation=0)) + _among(gc.get_objects(generation=1))
    collections = _collections()
    if collections == _last.collections and not _MOVES_AT_ANY_TIME:
        young += [tensor for reference in _last.tensors if (tensor := reference()) is not None]
        found = [*{id(tensor): tensor for tensor in young}.values()]
    else:
        found = _among(gc.get_objects())
    _last = _Met(collections, [*map(weakref.ref, found)])
    return found


def _among(things: list[Any]) -> list[CPUTensor]:
    """The tensors among objects, in a list of their own: what lists all objects is in itself, if it is kept."""
    return [thing for thing in things if issubclass(type(thing), CPUTensor)]


def _collections() -> tuple[int, ...]:
    """How often the garbage collector has looked at objects that are not young."""
    return tuple(generation["collections"] for generation in gc.get_stats()[1:])
