"""Waiting for the device, and what its memory is used for."""

from __future__ import annotations

from typing import Any, Protocol

from neonlike.backends.families.base import Family
from neonlike.backends.memory import MemoryStats


class Uploads(Protocol):
    """See :meth:`MemoryFamily.upload_ahead`."""

    def begin(self) -> None:
        """A batch begins."""
        ...

    def send(self, array: Any) -> Any:
        """Begin to copy a NumPy array; returns one with the same values, not to be written."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class MemoryFamily(Family):
    """``synchronize``, ``wait_for``, ``upload_ahead``; ``memory_stats``, ``release_memory``; ``workspace_bytes``."""

    def synchronize(self) -> None:
        """Wait until everything queued so far has run; on the CPU it has when a call returns.

        Raises
        ------
        BackendUnavailable
            If a GPU's backend was closed.
        """
        self.check_open("synchronize")

    def wait_for(self, stream: Any) -> None:
        """Order a GPU's backend and a stream of another library; on the CPU nothing is queued that could wait.

        Parameters
        ----------
        stream : object or int
            See ``NervanaGPU.wait_for``.
        """
        self.check_open("wait_for")

    def upload_ahead(self, batches: int) -> Uploads | None:
        """An object that begins copies of batches to a GPU before their turn, for :class:`neonlike.data.Prefetch`.

        Parameters
        ----------
        batches : int
            How many may be on their way, or in use, at a time.

        Returns
        -------
        Uploads or None
            ``begin()`` is called before each batch, ``send(array)`` of its arrays, in the same order for each, by one
            thread, and ``close()`` at the end; ``tensor.set`` of what ``send`` returns finds the copy. None on the CPU,
            where there is nothing to gain.
        """
        self.check_open("upload_ahead")
        return None

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

    def workspace_bytes(self, layer: Any, operation: str = "fprop") -> int:
        """Bytes that a call of ``layer`` takes on this backend beside its tensors, with as many threads as there are.

        Parameters
        ----------
        layer : what ``conv_layer``, ``deconv_layer``, ``pool_layer`` or ``attention_layer`` returned
            At its N images, or samples, and in its dtype, of contiguous tensors.
        operation : "fprop", "bprop" or, of a convolution, "update"

        Raises
        ------
        DTypeError
            If it is no such layer.
        ArgumentError
            If there is no such operation.

        Notes
        -----
        Compiled kernels keep to it, and what they take is kept for the next call of the same thread. Where a
        primitive runs by its definition in NumPy, it is an upper bound, of memory of the host.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.pool_layer(None, "avg", 16, 2, H=8, W=8, R=3, S=3)
        >>> be.workspace_bytes(layer) < 4096
        True
        """
        return self._workspace(layer, operation)

    def release_memory(self) -> int:
        """Give memory that is kept and not in use back, for other programs; the number of bytes.

        On a GPU to the driver. On the CPU it is what kernels called by this thread worked in.
        """
        raise NotImplementedError
