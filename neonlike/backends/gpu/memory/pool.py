"""Memory pool of a device: freed memory is kept and reused in stream order.

All work on a device is queued on one stream. Memory freed while a kernel still uses it can be reused at once: work
queued by its new owner runs after that kernel. So neither allocating nor freeing memory waits.

A request is rounded up to one of eight size classes per power of two. Small blocks are cut from slabs, large ones are
driver allocations. A block is returned when its object is freed, by any thread, inside a garbage collection or while
the interpreter exits: this only appends to a queue, which the next request empties.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from neonlike.backends.memory import MemoryStats
from neonlike.errors import ArgumentError, DeviceMemoryError

GRANULE = 256
"""Alignment and granularity of blocks in bytes."""
SLAB_BYTES = 2 << 20
"""Size of the slabs that small blocks are cut from; drivers map memory in pages of this size."""
SMALL_BYTES = 256 << 10
"""Maximum size of a block cut from a slab."""
WIDER = 2
"""Number of larger size classes whose cached blocks may serve a request: at most 1.25 times the memory."""


class Exhausted(Exception):
    """A source has no memory left."""


class MemorySource(Protocol):
    """Source of a pool's memory: the driver, or a test."""

    def take(self, nbytes: int) -> Any:
        """Return a handle whose ``int()`` is the address; raises Exhausted."""
        ...

    def give(self, handle: Any) -> None:
        """Return memory that is no longer used."""
        ...

    def settle(self) -> None:
        """Wait until all work that may use freed memory is done, including other libraries' work."""
        ...

    def room(self) -> tuple[int, int]:
        """Free and total bytes of the device."""
        ...


class Segment:
    """Memory from the source: a slab of ``count`` blocks of ``size`` bytes, or one block.

    Parameters
    ----------
    handle : object
        Of the source.
    size, count : int
    """

    __slots__ = ("address", "count", "free", "handle", "size")

    def __init__(self, handle: Any, size: int, count: int) -> None:
        self.handle, self.address = handle, int(handle)
        self.size, self.count, self.free = size, count, count


class MemoryBlock:
    """A block of device memory, returned to its pool when the object is freed.

    Attributes
    ----------
    address : int
    nbytes : int
        Requested size.
    lent : bool
        True if another library knows the address: it may use it on streams other than the pool's.
    ours : bool
        True: no other object refers to the same memory.
    """

    ours: ClassVar[bool] = True

    __slots__ = ("__weakref__", "_give_back", "_segment", "address", "lent", "nbytes")

    def __init__(self, address: int, nbytes: int, segment: Segment, give_back: Callable[[Any], None]) -> None:
        self.address, self.nbytes, self.lent = address, nbytes, False
        self._segment, self._give_back = segment, give_back

    def __del__(self) -> None:
        self._give_back((self.address, self._segment, self.lent))

    @property
    def capacity(self) -> int:
        """Size of the block in bytes, at least ``nbytes``."""
        return self._segment.size


class Pool:
    """Allocates blocks from a source; see the module's text.

    Parameters
    ----------
    source : MemorySource
    name : str
        Name for messages.
    pooled : bool
        False: every block is a separate allocation of exactly the requested size, so that memory checkers see its end
        and
        its release. Each request then waits for the device.
    """

    def __init__(self, source: MemorySource, name: str = "GPU", pooled: bool = True) -> None:
        self.source, self.name, self.pooled = source, name, pooled
        self._kept: dict[int, list[tuple[int, Segment]]] = {}
        self._segments: set[Segment] = set()
        self._returned: deque[tuple[int, Segment, bool]] = deque()
        self._lock = threading.RLock()  # a garbage collection inside may run user code that allocates
        self._used = self._used_peak = self._reserved = self._reserved_peak = 0
        self._blocks = self._requests = self._driver_requests = 0

    def allocate(self, nbytes: int) -> MemoryBlock:
        """Allocate a block of at least ``nbytes`` bytes with undefined contents.

        Raises
        ------
        DeviceMemoryError
            If there is not enough memory, even after returning cached blocks.
        """
        size = rounded(nbytes)
        if not self.pooled:
            size = max(nbytes, 1)
        with self._lock:
            if self._returned:
                self._collect()
                if not self.pooled:
                    self._drop()
            found = self._find(size)
            if found is None:
                self._grow(size, nbytes)
                found = self._find(size)
                assert found is not None
            address, segment = found
            segment.free -= 1
            self._blocks += 1
            self._requests += 1
            self._used += segment.size
            if self._used > self._used_peak:
                self._used_peak = self._used
            return MemoryBlock(address, nbytes, segment, self._returned.append)

    def release(self) -> int:
        """Return cached memory to the device, after waiting for it, and return its number of bytes."""
        with self._lock:
            self._collect()
            return self._drop()

    def stats(self) -> MemoryStats:
        """Statistics of memory in use, now and at peak."""
        with self._lock:
            self._collect()
            return MemoryStats(
                self._used, self._used_peak, self._reserved, self._reserved_peak,
                self._blocks, self._requests, self._driver_requests,
            )  # fmt: skip

    def reset_peaks(self) -> None:
        """Restart the peaks from the memory in use now."""
        with self._lock:
            self._collect()
            self._used_peak, self._reserved_peak = self._used, self._reserved

    def held(self) -> AbstractContextManager[Any]:
        """Context in which no other thread takes memory from the source or returns any."""
        return self._lock

    def exhausted(self, what: str) -> str:
        """Error message: the request ``what`` that failed, and the users of the memory."""
        with self._lock:
            free, total = self.source.room()
            return (
                f"{self.name}: out of memory: {what}; {text(self._used)} are in use here in {self._blocks} blocks, "
                f"{text(self._reserved - self._used)} kept in parts of slabs, {text(free)} of {text(total)} are free "
                "on the device, other programs included; delete tensors, use a smaller batch, or a smaller dtype"
            )

    # Requires the lock

    def _collect(self) -> None:
        """Cache the blocks of freed objects."""
        lent = False
        while self._returned:
            address, segment, was_lent = self._returned.popleft()
            lent = lent or was_lent
            segment.free += 1
            self._blocks -= 1
            self._used -= segment.size
            self._kept.setdefault(segment.size, []).append((address, segment))
        if lent:
            self.source.settle()

    def _drop(self) -> int:
        """Free segments without blocks in use and return their number of bytes."""
        idle = {segment for segment in self._segments if segment.free == segment.count}
        if not idle:
            return 0
        self.source.settle()
        self._kept = {
            size: left
            for size, entries in self._kept.items()
            if (left := [entry for entry in entries if entry[1] not in idle])
        }
        for segment in idle:
            self._segments.discard(segment)
            self.source.give(segment.handle)
        freed = sum(segment.size * segment.count for segment in idle)
        self._reserved -= freed
        return freed

    def _find(self, size: int) -> tuple[int, Segment] | None:
        """Find a cached block of ``size`` or slightly more."""
        for _ in range(WIDER + 1):
            if entries := self._kept.get(size):
                return entries.pop()
            size = following(size)
        return None

    def _grow(self, size: int, nbytes: int) -> None:
        """Cache at least one block for ``size``: new memory, after freeing all cached memory if necessary."""
        count = SLAB_BYTES // size if size <= SMALL_BYTES and self.pooled else 1
        segment = self._take(size, count)
        if segment is None:
            gc.collect()  # tensors in reference cycles
            self.release()
            if self._find_and_keep(size):
                return
            segment = self._take(size, count) or (self._take(size, 1) if count > 1 else None)
        if segment is None:
            raise DeviceMemoryError(self.exhausted(f"{text(nbytes)} asked for"))
        self._segments.add(segment)
        self._reserved += segment.size * segment.count
        self._reserved_peak = max(self._reserved_peak, self._reserved)
        entries = self._kept.setdefault(size, [])
        entries.extend((segment.address + size * place, segment) for place in range(segment.count - 1, -1, -1))

    def _find_and_keep(self, size: int) -> bool:
        """Whether a block for ``size`` exists by now; it stays in the cache."""
        found = self._find(size)
        if found is not None:
            self._kept[found[1].size].append(found)
        return found is not None

    def _take(self, size: int, count: int) -> Segment | None:
        self._driver_requests += 1
        try:
            return Segment(self.source.take(size * count), size, count)
        except Exhausted:
            return None


def rounded(nbytes: int) -> int:
    """Round ``nbytes`` up to a block size.

    Raises
    ------
    ArgumentError
        If it is negative.
    """
    if nbytes <= GRANULE:
        if nbytes < 0:
            raise ArgumentError(f"memory: cannot allocate {nbytes} bytes")
        return GRANULE
    step = max(GRANULE, 1 << ((nbytes - 1).bit_length() - 4))
    return -(-nbytes // step) * step


def following(size: int) -> int:
    """The size of a block after ``size``."""
    return rounded(size + 1)


def text(nbytes: int) -> str:
    """Format a number of bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("kiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes} bytes"
