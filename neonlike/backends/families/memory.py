"""Waiting for the device, and what its memory is used for."""

from __future__ import annotations

from neonlike.backends.families.base import Family
from neonlike.backends.memory import MemoryStats


class MemoryFamily(Family):
    """``synchronize``; ``memory_stats``, ``reset_memory_peaks``, ``release_memory``."""

    def synchronize(self) -> None:
        """Wait until everything queued so far has run; on the CPU it has when a call returns.

        Raises
        ------
        BackendUnavailable
            If a GPU's backend was closed.
        """
        self.check_open("synchronize")

    def memory_stats(self) -> MemoryStats:
        """Bytes of memory in use and kept, now and at most; :class:`~neonlike.backends.memory.MemoryStats` says which.

        On the CPU this looks at every object of the process, which takes some milliseconds.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> before = be.memory_stats().used
        >>> t = be.zeros((1024, 1024))
        >>> (be.memory_stats().used - before) >> 20
        4
        """
        raise NotImplementedError

    def reset_memory_peaks(self) -> None:
        """Let the peaks of :meth:`memory_stats` start from now."""
        raise NotImplementedError

    def release_memory(self) -> int:
        """Give memory that is kept and not in use back, for other programs; the number of bytes.

        On a GPU to the driver. On the CPU it is what kernels called by this thread worked in.
        """
        raise NotImplementedError
