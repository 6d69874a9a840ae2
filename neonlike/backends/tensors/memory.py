"""Waiting for the device, and accounting of its memory."""

from __future__ import annotations

from typing import Any, Protocol

from neonlike.backends.family import Family
from neonlike.backends.memory import MemoryStats


class Uploads(Protocol):
    """Early uploads; see :meth:`MemoryFamily.upload_ahead`."""

    def begin(self) -> None:
        """Start a batch."""
        ...

    def send(self, array: Any) -> Any:
        """Start copying a NumPy array; return a read-only one with the same values."""
        ...

    def close(self) -> None:
        """Release the memory."""
        ...


class MemoryFamily(Family):
    """``synchronize``, ``wait_for``, ``upload_ahead``; ``memory_stats``, ``release_memory``; ``workspace_bytes``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.memory_stats().used >= 0
    True
    """

    def synchronize(self) -> None:
        """Wait until all queued work is done; on the CPU it is done when a call returns.

        Raises
        ------
        BackendUnavailable
            If the GPU backend is closed.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.synchronize()
        """
        self.check_open("synchronize")

    def wait_for(self, stream: Any) -> None:
        """Order a GPU backend and a stream of another library; on the CPU nothing is queued.

        Parameters
        ----------
        stream : object or int
            See ``NervanaGPU.wait_for``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.wait_for(0)
        """
        self.check_open("wait_for")

    def upload_ahead(self, batches: int) -> Uploads | None:
        """Create an object that starts copies of batches to a GPU ahead of time, for :class:`neonlike.data.Prefetch`.

        Parameters
        ----------
        batches : int
            Maximum number of batches in transit or in use at a time.

        Returns
        -------
        Uploads or None
            One thread calls ``begin()`` before each batch, ``send(array)`` for its arrays, in the same order for each
            batch, and ``close()`` at the end; ``tensor.set`` of the result of ``send`` uses the copy. None on the CPU,
            which needs no copies.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.upload_ahead(2) is None
        True
        """
        self.check_open("upload_ahead")
        return None

    def memory_stats(self) -> MemoryStats:
        """Bytes of memory in use and reserved, now and at peak; see :class:`~neonlike.backends.memory.MemoryStats`.

        On the CPU this visits every object of the process, which takes some milliseconds.

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
        """Restart the peaks of :meth:`memory_stats`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.reset_memory_peaks()
        """
        raise NotImplementedError

    def workspace_bytes(self, layer: Any, operation: str = "fprop") -> int:
        """Bytes of workspace of a call of ``layer`` on this backend, at the current number of threads.

        Parameters
        ----------
        layer : result of ``conv_layer``, ``deconv_layer``, ``pool_layer`` or ``attention_layer``
            With its N images, or samples, its dtype, and contiguous tensors.
        operation : "fprop", "bprop" or, of a convolution, "update"

        Raises
        ------
        DTypeError
            If it is not such a layer.
        ArgumentError
            If the operation does not exist.

        Notes
        -----
        Compiled kernels keep to it, and keep their workspace for the next call of the same thread. For a
        primitive that runs by its NumPy definition, it is an upper bound of host memory.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.pool_layer(None, "avg", 16, 2, H=8, W=8, R=3, S=3)
        >>> be.workspace_bytes(layer) >= 0
        True
        """
        return self._workspace(layer, operation)

    def release_memory(self) -> int:
        """Return unused reserved memory to the system and return its number of bytes.

        On a GPU it goes to the driver. On the CPU it is the working memory of kernels called by this thread.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.release_memory() >= 0
        True
        """
        raise NotImplementedError
