"""Stable sort of indices on a device, with asynchronous reports of indices out of range.

Up to ``ONE_BLOCK`` indices are sorted by a single launch, more by a few launches per digit of 8 bits. A sort produces
the indices as keys, and their original positions; equal ones stay in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from neonlike.kernels.codegen.emit import STORAGE
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Call
from neonlike.optree.dtypes import DType

ONE_BLOCK, BLOCK_THREADS = 1 << 14, 1024
"""Maximum number of indices sorted by one block, and its threads."""
TILE, THREADS = 2048, 256
"""Indices per block for larger sorts, and its threads."""
DIGIT = 8
"""Bits per sorting pass."""
LARGEST = (1 << 31) - 1
"""Maximum number of indices, and maximum key: 32 bits each."""
ONE = (1, 1, 1)
NOTHING = -(1 << 63)
"""Marker for skipping no index."""

_INDICES = "5Q6q"
BLOCK = CudaRoutine("cuda/sort.cu.j2", _INDICES, "sort of indices")
KEYS = CudaRoutine("cuda/sort.cu.j2", "5Q5q", "keys of indices")
CLEAR = CudaRoutine("cuda/sort.cu.j2", "Q", "mark of indices out of range")
COUNT = CudaRoutine("cuda/sort.cu.j2", "2Q2q", "counts of digits")
SCAN = CudaRoutine("cuda/sort.cu.j2", "Qq", "sums of counts")
PLACE = CudaRoutine("cuda/sort.cu.j2", "5Q2q", "sort by a digit")


class Room(NamedTuple):
    """Working memory of a sort, as byte offsets from its start.

    Attributes
    ----------
    keys, numbers : int
        Two buffers of int32 (n,) each; results are in those at ``keys_at`` and ``numbers_at``.
    bad : int
        An int32 flag: whether an index was out of range.
    counts, size : int
        Offset of the digit counts; total size.
    """

    keys: int
    numbers: int
    bad: int
    counts: int
    size: int
    keys_at: int
    numbers_at: int


def passes(limit: int) -> int:
    """Number of digits of the keys 0 to ``limit``."""
    return max(1, -(-limit.bit_length() // DIGIT))


def room_for(n: int, limit: int) -> Room:
    """Working memory of a sort of ``n`` indices below ``limit``."""
    keys, numbers, bad = 0, 8 * n, 16 * n
    blocks = 0 if n <= ONE_BLOCK else -(-n // TILE)
    last = passes(limit) % 2 * 4 * n
    return Room(keys, numbers, bad, bad + 4, bad + 4 + 4 * blocks * (1 << DIGIT), keys + last, numbers + last)


def ready_sort(
    device: Device,
    index: tuple[int, DType, int],
    base: int,
    sizes: tuple[int, int],
    fault: tuple[int, int],
    skipped: int = NOTHING,
    wraps: bool = False,
) -> list[Call]:
    """Callables that queue the sort of a vector of indices.

    Parameters
    ----------
    device : Device
    index : (address, dtype, step)
        Integers, with their distance in elements.
    base : int
        Address of memory divided as in :func:`room_for`.
    sizes : (n, limit)
        Number of indices, at least 1, and the end of their range. Skipped indices get the key ``limit``, and so come
        last.
    fault : (address, report)
        Address for reports of indices out of range, and the number of the report.
    skipped : int
        An index to be skipped.
    wraps : bool
        Whether negative indices count from the end.
    """
    (n, limit), (at, kind, step), (word, report) = sizes, index, fault
    room = room_for(n, limit)
    typed: dict[str, Any] = {"index_type": STORAGE[kind.name], "wraps": wraps}
    arrays = at, base + room.keys, base + room.numbers, base + room.bad, word
    if n <= ONE_BLOCK:
        given = (*arrays, n, step, limit, skipped, report, passes(limit))
        return [BLOCK.bind(device, ONE, (BLOCK_THREADS, 1, 1), given, form="block", threads=BLOCK_THREADS, **typed)]
    blocks, values = (-(-n // THREADS), 1, 1), (*arrays, n, step, limit, skipped, report)
    calls: list[Call] = [
        CLEAR.bind(device, ONE, ONE, (base + room.bad,), form="clear", threads=32),
        KEYS.bind(device, blocks, (THREADS, 1, 1), values, form="keys", threads=THREADS, **typed),
    ]
    for digit in range(passes(limit)):
        calls += _ready_pass(device, base, room, n, digit)
    return calls


def _ready_pass(device: Device, base: int, room: Room, n: int, digit: int) -> list[Call]:
    tiles, counts, shift = -(-n // TILE), base + room.counts, DIGIT * digit
    grid, block = (tiles, 1, 1), (THREADS, 1, 1)
    source, target = (4 * n * ((digit + turn) % 2) for turn in (0, 1))
    keys, numbers = base + room.keys, base + room.numbers
    arrays = keys + source, numbers + source, counts, keys + target, numbers + target
    given: dict[str, Any] = {"threads": THREADS, "tile": TILE}
    scan = (BLOCK_THREADS, 1, 1), (counts, tiles << DIGIT)
    return [
        COUNT.bind(device, grid, block, (keys + source, counts, n, shift), form="count", **given),
        SCAN.bind(device, ONE, *scan, form="scan", threads=BLOCK_THREADS),
        PLACE.bind(device, grid, block, (*arrays, n, shift), form="place", **given),
    ]
