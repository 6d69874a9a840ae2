"""Memory of other libraries: kept while arrays on it live, and then until what was queued on it has run.

Other libraries hand freed memory out again in the order of their own streams, which need not wait for ours. So an
object that owns such memory is let go when an event that was queued after its last use is reached. Nobody waits for
that: it is looked at when such memory comes or goes, and after waits for the device.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any, ClassVar

import pycuda.driver as driver

from neonlike.errors import BackendUnavailable, DeviceError

MOST_BYTES = 256 << 20
"""Of memory that waits for its event; where it is more, the oldest is waited for."""


class ForeignMemory:
    """Memory of another library, whose ``owner`` is kept while this lives; it is let go as the module's text says."""

    ours: ClassVar[bool] = False
    """There may be any number of these for the same memory."""

    def __init__(self, device: Any, address: int, nbytes: int, owner: Any) -> None:
        self.device, self.address, self.nbytes, self.owner = device, address, nbytes, owner
        device.parting.collect()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be exiting
            self.device.parting.add(self.owner, self.nbytes)


class Parting:
    """Owners of memory that no array of ``device`` lies on any more; see the module's text.

    Parameters
    ----------
    device : GpuDevice
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._left: deque[tuple[Any, int]] = deque()
        self._marked: deque[tuple[Any, list[Any], int]] = deque()
        self._bytes = 0
        self._lock = threading.RLock()  # a collection of garbage inside may free such memory

    def add(self, owner: Any, nbytes: int) -> None:
        """Let ``owner`` of so many bytes go once what is queued by now has run."""
        self._left.append((owner, nbytes))
        self.collect()

    def collect(self) -> None:
        """Let go what no queued work needs any more. While this thread records a graph, that has to wait."""
        if self.device.recorder.is_busy:
            return
        gone: list[Any] = []  # freed when the lock is not held any more
        with self._lock:
            try:
                self._look(gone)
            except (driver.Error, DeviceError, BackendUnavailable):
                if not self.device.usable:  # nothing runs any more
                    gone += [*self._left, *self._marked]
                    self._left.clear()
                    self._marked.clear()

    def _look(self, gone: list[Any]) -> None:
        """Mark what has come, and move what was reached to ``gone``, under the lock."""
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
