"""Upload of batches ahead of their turn, during the training step of the previous batch.

A prefetching thread writes an array into pinned memory and starts its copy at once, on a separate stream, into one of
two device buffers. At the batch's turn, ``tensor.set(array)`` finds the array by its address: the device's stream waits
for the copy and moves the elements to their destination, at the speed of device memory, and the buffer is free for the
next copy. The training thread neither waits nor copies.

    reading   read k+1 -> pinned |
    copies      | wait: buffer is free | pinned -> buffer | event |
    device's      ... batch k is trained with ...           | wait | buffer -> tensor | event: buffer is free | k+1 ...
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pycuda.driver as driver

from neonlike.backends.gpu.memory import transfer
from neonlike.backends.gpu.memory.pool import rounded
from neonlike.backends.gpu.memory.transfer import NON_BLOCKING, Buffer, Part, Transfer

PARTS = 2
"""Maximum number of device buffers per array of a batch: one is filled while the other waits for its turn."""


class Owner(Protocol):
    """The destination device."""

    transfer: Transfer

    @property
    def usable(self) -> bool:
        """Whether the driver still responds."""
        ...

    def attend(self) -> None:
        """Make the device's context current in this thread."""
        ...

    def fail(self, doing: str, error: Any) -> NoReturn:
        """Raise this library's error for a driver error."""
        ...


class _Sent:
    """An array in transit: in pinned memory, and in ``part`` once its copy has started."""

    def __init__(self) -> None:
        self.buffer, self.nbytes = Buffer(), 0
        self.part: Part | None = None


class _Lane:
    """State of the arrays at one position of the batches.

    Attributes
    ----------
    turn : iterator of _Sent
        The next slots to be written, in rotation.
    free : deque of Part
        Device buffers that may be filled: their readers are queued.
    waiting : deque of _Sent
        Arrays in pinned memory that wait for a buffer.
    """

    def __init__(self, batches: int) -> None:
        self.turn: Iterator[_Sent] = itertools.cycle([_Sent() for _ in range(batches)])
        self.free: deque[Part] = deque()
        self.waiting: deque[_Sent] = deque()
        self.made = 0


class UploadAhead:
    """Copies of batches to ``device`` before their destination is known; see the module's text.

    Parameters
    ----------
    device : Owner
    batches : int
        Maximum number in transit or in use: an array is overwritten by the one this many batches later.
    leave : callable
        Detaches the device's context from this thread.
    """

    def __init__(self, device: Owner, batches: int, leave: Callable[[], None]) -> None:
        self._device, self._batches, self._leave = device, batches, leave
        self._lanes: list[_Lane] = []
        self._parts: list[Part] = []
        self._known: dict[int, tuple[_Lane, _Sent]] = {}
        self._sending, self._closed, self._place = threading.Lock(), False, 0
        self._stream: Any = None
        device.transfer.aheads.append(self)

    def begin(self) -> None:
        """Start a batch: the next array is its first."""
        self._place = 0

    def send(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Start copying ``array`` to the device.

        Returns
        -------
        ndarray
            The same values, read-only, in memory that is reused ``batches`` later; ``tensor.set`` of it finds the copy.
            ``array`` itself if, by its size or layout, an early start gains nothing.

        Raises
        ------
        DeviceError, BackendUnavailable
            If the driver fails.
        """
        place, self._place = self._place, self._place + 1
        if array.nbytes < transfer.OVERLAPPED_BYTES or not array.flags.c_contiguous or array.dtype.hasobject:
            return array
        with self._sending:
            if self._closed:
                return array
            self._device.attend()
            try:
                return self._sent(place, array)
            except driver.Error as error:
                self._device.fail("copy to the device", error)
            finally:
                self._leave()  # PyCUDA aborts the process if it exits while a thread like this one has a context

    def _sent(self, place: int, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Send the array at ``place`` of its batch; see :meth:`send`."""
        while place >= len(self._lanes):
            self._lanes.append(_Lane(self._batches))
        lane = self._lanes[place]
        sent = next(lane.turn)
        with self._device.transfer.queueing():
            self._forget(lane, sent)
        pinned = sent.buffer.ready(array.nbytes)  # waits for the last copy from there: this thread only
        pinned[:] = array.reshape(-1).view(np.uint8)
        with self._device.transfer.queueing():
            sent.nbytes = array.nbytes
            self._known[pinned.ctypes.data] = lane, sent
            lane.waiting.append(sent)
            self._start(lane)
        host: npt.NDArray[Any] = pinned.view(array.dtype).reshape(array.shape)
        host.flags.writeable = False  # the copy would miss the changes
        return host

    def land(self, host: int, nbytes: int, address: int) -> bool:
        """Queue the final copy of the array at ``host`` to ``address``; False if no copy has started.

        Parameters
        ----------
        host : int
            Address of the array.
        nbytes : int
        address : int
            On the device.
        """
        if host not in self._known:
            return False
        lane, sent = self._known.pop(host)
        stream = self._device.transfer.stream
        part, sent.part = sent.part, None
        if part is None:  # no memory was left for a buffer
            lane.waiting.remove(sent)
            driver.memcpy_htod_async(address, sent.buffer.bytes[:nbytes], stream)
            sent.buffer.queued(stream)
            return True
        stream.wait_for_event(sent.buffer.event)
        driver.memcpy_dtod_async(address, part.memory, nbytes, stream)
        part.free.record(stream)
        lane.free.append(part)
        self._start(lane)
        return True

    def release(self) -> int:
        """Free unused device buffers and return their number of bytes."""
        nbytes = 0
        for lane in self._lanes:
            while lane.free:
                nbytes += self._drop(lane, lane.free.popleft())
        return nbytes

    def close(self) -> None:
        """Free all memory, after the copies in progress."""
        device = self._device
        if not device.usable:  # nothing of its context is ever freed
            return
        with self._sending:
            self._closed = True
        with device.transfer.queueing():
            if self in device.transfer.aheads:
                device.transfer.aheads.remove(self)
            device.attend()
            try:
                if self._stream is not None:
                    self._stream.synchronize()
                    device.transfer.stream.synchronize()  # an interrupt may have prevented an event's recording
                while self._parts:
                    self._parts.pop().memory.free()
            except driver.Error as error:
                device.fail("copy to the device", error)
            self._known.clear()
            self._lanes.clear()

    def _forget(self, lane: _Lane, sent: _Sent) -> None:
        """Reset ``sent`` for reuse; its previous contents may never have been requested."""
        self._known = {host: known for host, known in self._known.items() if known[1] is not sent}
        if sent in lane.waiting:
            lane.waiting.remove(sent)
        if sent.part is not None:
            lane.free.append(sent.part)
            sent.part = None

    def _start(self, lane: _Lane) -> None:
        """Copy waiting arrays, as far as there are buffers."""
        while lane.waiting:
            sent = lane.waiting[0]
            part = self._free_part(lane, sent.nbytes)
            if part is None:
                return
            if self._stream is None:
                self._stream = driver.Stream(NON_BLOCKING)
            self._stream.wait_for_event(part.free)
            driver.memcpy_htod_async(part.memory, sent.buffer.bytes[: sent.nbytes], self._stream)
            sent.buffer.queued(self._stream)
            sent.part = part
            lane.waiting.popleft()

    def _free_part(self, lane: _Lane, nbytes: int) -> Part | None:
        """A buffer of ``nbytes`` bytes; None while both are in use, or if there is no memory for any."""
        while lane.free:
            part = lane.free.popleft()
            if part.nbytes >= nbytes:
                return part
            self._drop(lane, part)
        if lane.made == PARTS:
            return None
        try:
            part = Part(rounded(nbytes))
        except driver.MemoryError:
            return None
        lane.made += 1
        self._parts.append(part)
        return part

    def _drop(self, lane: _Lane, part: Part) -> int:
        """Free ``part``, used only by queued copies, and return its number of bytes."""
        self._stream.synchronize()
        part.free.synchronize()
        part.memory.free()
        self._parts.remove(part)
        lane.made -= 1
        return part.nbytes
