"""Copies between host and device through pinned memory, in the order of the device's stream.

Pageable memory cannot be copied asynchronously. So data passes through a few pinned buffers; an event after each copy
marks when its buffer is free. A copy to the device returns when the last part is queued, a copy to the host when
everything has arrived, with each part unpacked while the next one is copied.

On the device's stream an upload would start after all previously queued work. Large uploads use a separate stream, into
staging buffers in device memory: they cross the bus while kernels run. The device's stream waits for a staged part and
copies it to its destination, at the speed of device memory. So no tensor and no memory of the pool is written out of
order.

    uploads   | wait: part is free | host -> part | event |
    device's    ... kernels ...                           | wait | part -> tensor | event: part is free | kernels ...
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pycuda.driver as driver

from neonlike.backends.geometry.counts import power_of_two
from neonlike.backends.gpu.memory.array import DeviceArray, Piece, ascending, pieces
from neonlike.backends.gpu.memory.pool import rounded

Bytes = npt.NDArray[np.uint8]

BUFFERS = 4
BUFFER_BYTES = 4 << 20
SMALLEST_BYTES = 64 << 10
"""Initial size of a buffer, which grows as needed up to ``BUFFER_BYTES``."""
PARTS = 16
"""Maximum number of staging buffers in device memory, of ``BUFFER_BYTES`` each, allocated as needed: bounds uploads."""
OVERLAPPED_BYTES = 256 << 10
"""Size below which uploads, of a few microseconds, use the device's stream."""
NON_BLOCKING = 1
"""CU_STREAM_NON_BLOCKING: the driver's default stream and this one do not synchronize."""


class Buffer:
    """Pinned bytes, with the event after their last copy."""

    def __init__(self) -> None:
        self.bytes: Bytes = np.empty(0, np.uint8)
        self.event: Any = None
        self.pending = False

    def ready(self, nbytes: int) -> Bytes:
        """Return ``nbytes`` of the buffer, after its queued copy is done."""
        self.wait()
        if self.event is None:
            self.event = driver.Event(driver.event_flags.DISABLE_TIMING)
        if len(self.bytes) < nbytes:
            size = max(SMALLEST_BYTES, power_of_two(nbytes) if nbytes <= BUFFER_BYTES else rounded(nbytes))
            try:
                self.bytes = driver.pagelocked_empty(size, np.uint8)
            except driver.MemoryError:  # no more can be pinned: the driver stages the copy itself, and waits
                self.bytes = np.empty(size, np.uint8)
        return self.bytes[:nbytes]

    def queued(self, stream: Any) -> None:
        """Record that a copy with this buffer was queued on ``stream``."""
        self.event.record(stream)
        self.pending = True

    def wait(self) -> None:
        """Wait for that copy."""
        if self.pending:
            self.event.synchronize()
            self.pending = False


class Part:
    """A staging buffer in device memory, with the event after which it is free."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory: Any = driver.mem_alloc(self.nbytes)
        self.free: Any = driver.Event(driver.event_flags.DISABLE_TIMING)


class Ahead(Protocol):
    """Copies started before their destination is known; see :class:`neonlike.backends.gpu.memory.ahead.UploadAhead`."""

    def land(self, host: int, nbytes: int, address: int) -> bool:
        """Queue the final copy from ``host`` to ``address``; return whether one had been started there.

        Parameters
        ----------
        host, address : int
            Addresses on host and device.
        nbytes : int
        """
        ...

    def release(self) -> int:
        """Free device memory that waits for copies and return its number of bytes."""
        ...

    def close(self) -> None:
        """Free all memory."""
        ...


class Transfer:
    """Copies in the order of ``stream``.

    Parameters
    ----------
    stream : pycuda.driver.Stream
    attend : callable
        Makes the stream's context current in this thread.

    Attributes
    ----------
    lock : threading.RLock
        Held while a copy is being queued.
    aheads : list of Ahead
        Uploads that may have copied an array already.
    """

    def __init__(self, stream: Any, attend: Callable[[], None]) -> None:
        self.stream, self._attend = stream, attend
        self.uploads: Any = driver.Stream(NON_BLOCKING)
        self._parts: deque[Part] = deque()
        self._queueing = 0  # copies in progress in this thread
        self.lock, self.aheads = threading.RLock(), list[Ahead]()
        self._ring = itertools.cycle([Buffer() for _ in range(BUFFERS)])

    def up(self, host: npt.NDArray[Any], array: DeviceArray) -> None:
        """Copy the contiguous ``host`` into ``array`` of the same shape; ``host`` may change afterwards."""
        data: Bytes = host.reshape(-1).view(np.uint8)
        with self.lock:
            if array.c_contiguous:
                self._up(data, array.address)
                return
            self.stream.synchronize()  # the copies below are synchronous, but not ordered by the stream
            flipped, axes = ascending(array)
            data = np.ascontiguousarray(np.flip(host, axes)).reshape(-1).view(np.uint8)
            for piece in pieces(flipped):
                copy = _rectangle(piece)
                copy.set_src_host(data[piece.offset : piece.offset + piece.width * piece.height])
                copy.src_pitch, copy.dst_pitch = piece.width, piece.pitch
                copy.set_dst_device(piece.address)
                copy(aligned=False)

    def down(self, array: DeviceArray, host: npt.NDArray[Any]) -> None:
        """Copy ``array`` into the contiguous ``host`` of the same shape."""
        with self.lock:
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

    def release(self) -> int:
        """Free the staging buffers in device memory, after waiting for copies, and return their number of bytes.

        They stay while a copy is being queued: by another thread, or by this one during a garbage collection.
        """
        if not self.lock.acquire(blocking=False):
            return 0
        try:
            if self._queueing:
                return 0
            return sum(ahead.release() for ahead in self.aheads) + self._release_parts()
        finally:
            self.lock.release()

    def close(self) -> None:
        """End early uploads; a thread that starts new ones continues without them."""
        for ahead in list(self.aheads):
            ahead.close()

    def _release_parts(self) -> int:
        if not self._parts:
            return 0
        self.uploads.synchronize()
        self.stream.synchronize()
        nbytes = sum(part.nbytes for part in self._parts)
        while self._parts:
            self._parts.pop().memory.free()
        return nbytes

    @contextlib.contextmanager
    def queueing(self) -> Iterator[None]:
        """Context for queueing a copy: no other thread queues one, and nothing is released."""
        with self.lock:
            self._queueing += 1
            try:
                yield
            finally:
                self._queueing -= 1

    def _up(self, data: Bytes, address: int) -> None:
        with self.queueing():
            if not any(ahead.land(data.ctypes.data, len(data), address) for ahead in self.aheads):
                self._queue_up(data, address)

    def _queue_up(self, data: Bytes, address: int) -> None:
        for start in range(0, len(data), BUFFER_BYTES):
            piece = data[start : start + BUFFER_BYTES]
            buffer = next(self._ring)
            pinned = buffer.ready(len(piece))
            pinned[:] = piece
            part = self._next_part() if len(data) >= OVERLAPPED_BYTES else None
            if part is None:
                driver.memcpy_htod_async(address + start, pinned, self.stream)
                buffer.queued(self.stream)
                continue
            self.uploads.wait_for_event(part.free)
            driver.memcpy_htod_async(part.memory, pinned, self.uploads)
            buffer.queued(self.uploads)
            self.stream.wait_for_event(buffer.event)
            driver.memcpy_dtod_async(address + start, part.memory, len(piece), self.stream)
            part.free.record(self.stream)

    def _next_part(self) -> Part | None:
        """The least recently used part, or a new one while that is in use; None if there is no memory for any."""
        parts = self._parts
        if parts and (len(parts) == PARTS or parts[0].free.query()):
            parts.rotate(-1)
        else:
            try:
                parts.append(Part(BUFFER_BYTES))
            except driver.MemoryError:
                parts.rotate(-1)
        return parts[-1] if parts else None

    def _down(self, address: int, data: Bytes) -> None:
        coming: list[tuple[Buffer, Bytes, Bytes]] = []
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
    """A 2-D copy of the size of ``piece``."""
    copy = driver.Memcpy2D()
    copy.width_in_bytes, copy.height = piece.width, piece.height
    return copy


def _unpack(buffer: Buffer, pinned: Bytes, part: Bytes) -> None:
    buffer.wait()
    part[:] = pinned
