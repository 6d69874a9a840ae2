"""Batches that cross the bus before their turn, while the batch before them is trained with.

A thread that reads ahead writes an array into pinned memory and begins its copy at once, on a stream of its own, into
one of two buffers in device memory. When the batch's turn has come, ``tensor.set(array)`` finds the array by its
address: the device's stream waits for the copy and moves the elements to where they belong, at the speed of device
memory, and the buffer takes what is copied next. The thread of the training waits for nothing, and copies nothing
itself.

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
"""Most buffers in device memory for each array of a batch: one is filled while the other waits for its turn."""


class Owner(Protocol):
    """The device that is copied to."""

    transfer: Transfer

    @property
    def usable(self) -> bool:
        """Whether the driver still answers."""
        ...

    def attend(self) -> None:
        """Make its context current in this thread."""
        ...

    def fail(self, doing: str, error: Any) -> NoReturn:
        """Raise the error of this library for one of the driver's."""
        ...


class _Sent:
    """An array on its way: in pinned memory, and in ``part`` once its copy has begun."""

    def __init__(self) -> None:
        self.buffer, self.nbytes = Buffer(), 0
        self.part: Part | None = None


class _Lane:
    """What the arrays at one place of the batches pass through.

    Attributes
    ----------
    turn : iterator of _Sent
        The next to be written, round and round.
    free : deque of Part
        Buffers in device memory that may be filled: what reads them is queued.
    waiting : deque of _Sent
        Arrays in pinned memory that wait for such a buffer.
    """

    def __init__(self, batches: int) -> None:
        self.turn: Iterator[_Sent] = itertools.cycle([_Sent() for _ in range(batches)])
        self.free: deque[Part] = deque()
        self.waiting: deque[_Sent] = deque()
        self.made = 0


class UploadAhead:
    """Copies of batches to ``device`` that begin before it is known where to; see the text of the module.

    Parameters
    ----------
    device : Owner
    batches : int
        How many may be on their way, or in use, at a time: an array is written over by the one so many later.
    leave : callable
        Takes the device's context from this thread.
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
        """A batch begins: the next array is its first."""
        self._place = 0

    def send(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Begin to copy ``array`` to the device.

        Returns
        -------
        ndarray
            The same values, not to be written, in memory that is used again so many batches later; ``tensor.set`` of it
            finds the copy. ``array`` itself if it is so small, or lies so, that to begin early gains nothing.

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
        """See :meth:`send`, of the array at ``place`` of its batch."""
        while place >= len(self._lanes):
            self._lanes.append(_Lane(self._batches))
        lane = self._lanes[place]
        sent = next(lane.turn)
        with self._device.transfer.queueing():
            self._forget(lane, sent)
        pinned = sent.buffer.ready(array.nbytes)  # waits for the last copy from there: this thread, none else
        pinned[:] = array.reshape(-1).view(np.uint8)
        with self._device.transfer.queueing():
            sent.nbytes = array.nbytes
            self._known[pinned.ctypes.data] = lane, sent
            lane.waiting.append(sent)
            self._start(lane)
        host: npt.NDArray[Any] = pinned.view(array.dtype).reshape(array.shape)
        host.flags.writeable = False  # the copy would not see it
        return host

    def land(self, host: int, nbytes: int, address: int) -> bool:
        """Queue the end of the copy of the array at ``host``, to ``address``; False if none has begun."""
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
        """Free the buffers in device memory that hold nothing; the number of bytes."""
        nbytes = 0
        for lane in self._lanes:
            while lane.free:
                nbytes += self._drop(lane, lane.free.popleft())
        return nbytes

    def close(self) -> None:
        """Give all memory back, after the copies under way."""
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
                    device.transfer.stream.synchronize()  # an interrupt may have kept an event from being recorded
                while self._parts:
                    self._parts.pop().memory.free()
            except driver.Error as error:
                device.fail("copy to the device", error)
            self._known.clear()
            self._lanes.clear()

    def _forget(self, lane: _Lane, sent: _Sent) -> None:
        """``sent`` is written anew; what was in it may never have been asked for."""
        self._known = {host: known for host, known in self._known.items() if known[1] is not sent}
        if sent in lane.waiting:
            lane.waiting.remove(sent)
        if sent.part is not None:
            lane.free.append(sent.part)
            sent.part = None

    def _start(self, lane: _Lane) -> None:
        """Copy what waits, as far as there are buffers."""
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
        """A buffer of so many bytes; None while both are in use, or if there is no memory for any."""
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
        """Free ``part``, which nothing but copies that are queued uses; its number of bytes."""
        self._stream.synchronize()
        part.free.synchronize()
        part.memory.free()
        self._parts.remove(part)
        lane.made -= 1
        return part.nbytes
