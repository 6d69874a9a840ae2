"""The result of ``be.memory_stats()``, on every backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of memory, now and at peak since the start or the last ``be.reset_memory_peaks()``.

    On a GPU these are the numbers of the memory pool shared by its backends. On the CPU tensors use memory that NumPy
    requests from the system, and the numbers are of the process: they are counted on demand, so peaks are the largest
    numbers seen by calls of ``memory_stats``.

    Attributes
    ----------
    used, used_peak : int
        On a GPU, bytes in blocks in use, rounded up to block sizes. On the CPU, memory of living tensors; several views
        of one memory count once, and wrapped foreign memory does not count.
    reserved, reserved_peak : int
        Used and cached bytes: in the pool of a GPU; on the CPU the backend's scratch memory, and the working memory of
        kernels called by this thread.
    blocks : int
        Number of memory blocks in use.
    requests, driver_requests : int
        Number of blocks allocated by a GPU's pool so far, and of memory requests to the device. 0 on the CPU.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> stats = be.memory_stats()
    >>> stats.used <= stats.used_peak
    True
    """

    used: int
    used_peak: int
    reserved: int
    reserved_peak: int
    blocks: int
    requests: int
    driver_requests: int
