"""Copies between host and device through pinned memory, queued on the device's stream.

Memory that the operating system may move cannot be copied while the host goes on. So data passes through a few
pinned buffers; an event after each copy says when its buffer may be used again. A copy to the device returns as soon
as the last part is queued, a copy to the host when all has arrived, parts being unpacked while the next one comes.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pycuda.driver as driver

from neonlike.backends.gpu.array import DeviceArray, Piece, ascending, pieces

Bytes = npt.NDArray[np.uint8]

BUFFERS = 4
BUFFER_BYTES = 4 << 20
SMALLEST_BYTES = 64 << 10
"""A buffer starts this small and grows to what it is used for, up to ``BUFFER_BYTES``."""


class _Buffer:
    """Pinned bytes, and the event after their last copy."""

    def __init__(self) -> None:
        self.bytes: Bytes = np.empty(0, np.uint8)
        self.event: Any = None
        self.pending = False

    def ready(self, nbytes: int) -> Bytes:
        """``nbytes`` of it, after what was queued with it has run."""
        self.wait()
        if self.event is None:
            self.event = driver.Event(driver.event_flags.DISABLE_TIMING)
        if len(self.bytes) < nbytes:
            size = max(SMALLEST_BYTES, 1 << (nbytes - 1).bit_length())
            try:
                self.bytes = driver.pagelocked_empty(size, np.uint8)
            except driver.MemoryError:  # the system pins no more: the driver copies once more itself, and waits
                self.bytes = np.empty(size, np.uint8)
        return self.bytes[:nbytes]

    def queued(self, stream: Any) -> None:
        """A copy with it was put on ``stream``."""
        self.event.record(stream)
        self.pending = True

    def wait(self) -> None:
        """Until that copy has run."""
        if self.pending:
            self.event.synchronize()
            self.pending = False


class Transfer:
    """Copies on ``stream``.

    Parameters
    ----------
    stream : pycuda.driver.Stream
    attend : callable
        Makes the stream's context current in this thread.
    """

    def __init__(self, stream: Any, attend: Callable[[], None]) -> None:
        self.stream, self._attend = stream, attend
        self._lock = threading.RLock()
        self._ring = itertools.cycle([_Buffer() for _ in range(BUFFERS)])

    def up(self, host: npt.NDArray[Any], array: DeviceArray) -> None:
        """Copy the contiguous ``host`` into ``array`` of the same shape; ``host`` may change afterwards."""
        data: Bytes = host.reshape(-1).view(np.uint8)
        with self._lock:
            if array.c_contiguous:
                self._up(data, array.address)
                return
            self.stream.synchronize()  # what follows runs at once
            flipped, axes = ascending(array)
            turned: Bytes = np.ascontiguousarray(np.flip(host, axes)).reshape(-1).view(np.uint8)
            for piece in pieces(flipped):
                copy = _rectangle(piece)
                copy.set_src_host(turned[piece.offset : piece.offset + piece.width * piece.height])
                copy.src_pitch, copy.dst_pitch = piece.width, piece.pitch
                copy.set_dst_device(piece.address)
                copy(aligned=False)

    def down(self, array: DeviceArray, host: npt.NDArray[Any]) -> None:
        """Copy ``array`` into the contiguous ``host`` of the same shape."""
        with self._lock:
            if array.c_contiguous:
                self._down(array.address, host.reshape(-1).view(np.uint8))
                return
            self.stream.synchronize()
            flipped, axes = ascending(array)
            data: Bytes = np.empty(host.nbytes, np.uint8)
            for piece in pieces(flipped):
                copy = _rectangle(piece)
                copy.set_src_device(piece.address)
                copy.src_pitch, copy.dst_pitch = piece.pitch, piece.width
                copy.set_dst_host(data[piece.offset : piece.offset + piece.width * piece.height])
                copy(aligned=False)
            host[...] = np.flip(data.view(host.dtype).reshape(host.shape), axes)

    def _up(self, data: Bytes, address: int) -> None:
        for start in range(0, len(data), BUFFER_BYTES):
            part = data[start : start + BUFFER_BYTES]
            buffer = next(self._ring)
            pinned = buffer.ready(len(part))
            pinned[:] = part
            driver.memcpy_htod_async(address + start, pinned, self.stream)
            buffer.queued(self.stream)

    def _down(self, address: int, data: Bytes) -> None:
        coming: list[tuple[_Buffer, Bytes, Bytes]] = []
        for start in range(0, len(data), BUFFER_BYTES):
            part = data[start : start + BUFFER_BYTES]
            buffer = next(self._ring)
            pinned = buffer.ready(len(part))
            driver.memcpy_dtoh_async(pinned, address + start, self.stream)
            buffer.queued(self.stream)
            coming.append((buffer, pinned, part))
            if len(coming) == BUFFERS // 2:
                _unpack(*coming.pop(0))
        for arrived in coming:
            _unpack(*arrived)


def _rectangle(piece: Piece) -> Any:
    """A copy of the size of ``piece``."""
    copy = driver.Memcpy2D()
    copy.width_in_bytes, copy.height = piece.width, piece.height
    return copy


def _unpack(buffer: _Buffer, pinned: Bytes, part: Bytes) -> None:
    buffer.wait()
    part[:] = pinned
