"""Memory of other libraries: kept alive until arrays on it are gone and the work queued on it is done.

Other libraries reuse freed memory in the order of their own streams, which need not wait for ours. So the owner of such
memory is released when an event queued after its last use is reached. Nobody waits for that: events are checked when
such memory comes or goes, and after waits for the device.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any, ClassVar

import pycuda.driver as driver

from neonlike.errors import BackendUnavailable, DeviceError

MOST_BYTES = 256 << 20
"""Maximum bytes of memory waiting for events; beyond it the oldest is waited for."""


class ForeignMemory:
    """Memory of another library that keeps its ``owner`` alive; released as described in the module's text.

    Parameters
    ----------
    device : GpuDevice
    address, nbytes : int
    owner : object
    """

    ours: ClassVar[bool] = False
    """Several of these may refer to the same memory."""

    def __init__(self, device: Any, address: int, nbytes: int, owner: Any) -> None:
        self.device, self.address, self.nbytes, self.owner = device, address, nbytes, owner
        device.parting.collect()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be exiting
            self.device.parting.add(self.owner, self.nbytes)


class Parting:
    """Owners of memory without remaining arrays of ``device``; see the module's text.

    Parameters
    ----------
    device : GpuDevice
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._left: deque[tuple[Any, int]] = deque()
        self._marked: deque[tuple[Any, list[Any], int]] = deque()
        self._bytes = 0
        self._lock = threading.RLock()  # a garbage collection inside may free such memory

    def add(self, owner: Any, nbytes: int) -> None:
        """Release ``owner``, of ``nbytes`` bytes, once the work queued so far is done."""
        self._left.append((owner, nbytes))
        self.collect()

    def collect(self) -> None:
        """Release owners that no queued work needs any more, unless this thread is capturing a graph."""
        if self.device.capture.is_active:
            return
        gone: list[Any] = []  # freed after the lock is released
        with self._lock:
            try:
                self._look(gone)
            except (driver.Error, DeviceError, BackendUnavailable):
                if not self.device.usable:  # no work runs any more
                    gone += [*self._left, *self._marked]
                    self._left.clear()
                    self._marked.clear()

    def _look(self, gone: list[Any]) -> None:
        """Record new arrivals, and move finished ones to ``gone``; requires the lock."""
        if not self._left and not self._marked:
            return
        self.device.attend()
        if self._left:
            event = driver.Event(driver.event_flags.DISABLE_TIMING)
            event.record(self.device.stream)
            came = [self._left.popleft() for _ in range(len(self._left))]
            nbytes = sum(size for _, size in came)
            self._marked.append((event, came, nbytes))
            self._bytes += nbytes
        while self._marked:
            event, owners, nbytes = self._marked[0]
            if not event.query():
                if self._bytes <= MOST_BYTES:
                    break
                event.synchronize()
            self._marked.popleft()
            self._bytes -= nbytes
            gone.append(owners)
