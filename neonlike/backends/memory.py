"""The result of ``be.memory_stats()``, on every backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of memory, now and at most since the start or the last ``be.reset_memory_peaks()``.

    On a GPU these are the numbers of the memory pool that all backends on it share. On the CPU tensors lie in memory
    that NumPy asks the system for, and the numbers are of the process: they are counted when they are asked for, so
    that peaks are the largest numbers that a call of ``memory_stats`` found.

    Attributes
    ----------
    used, used_peak : int
        On a GPU, in blocks that are in use, rounded up as they were handed out. On the CPU, in the memory of tensors
        that live; several views of one memory count once, and memory of others that was wrapped does not.
    reserved, reserved_peak : int
        Used, and kept for later: by the pool of a GPU; on the CPU the scratch memory of the backend, and the memory
        that kernels called by this thread work in.
    blocks : int
        Pieces of memory in use.
    requests, driver_requests : int
        Blocks that the pool of a GPU handed out so far, and how often the device was asked for memory. 0 on the CPU.
    """

    used: int
    used_peak: int
    reserved: int
    reserved_peak: int
    blocks: int
    requests: int
    driver_requests: int
