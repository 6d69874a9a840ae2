"""A stable sort of indices on a device, and the report of those that are out of range, for which no host waits.

Up to ``ONE_BLOCK`` indices are sorted by a single launch, more by some for each digit of 8 bits. A sort leaves the
indices as keys, and the positions where they stood; equal ones stay in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from neonlike.kernels.codegen.emit import STORAGE
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.optree.dtypes import DType

ONE_BLOCK, BLOCK_THREADS = 1 << 14, 1024
"""Most indices that one block sorts, and its threads."""
TILE, THREADS = 2048, 256
"""Indices of a block where there are more, and its threads."""
DIGIT = 8
"""Bits that a pass sorts by."""
LARGEST = (1 << 31) - 1
"""Most indices, and the largest key: 32 bits each."""
ONE = (1, 1, 1)
NOTHING = -(1 << 63)
"""No index is left out."""

_INDICES = "5Q6q"
BLOCK = CudaRoutine("cuda/sort.cu.j2", _INDICES, "sort of indices")
KEYS = CudaRoutine("cuda/sort.cu.j2", "5Q5q", "keys of indices")
CLEAR = CudaRoutine("cuda/sort.cu.j2", "Q", "mark of indices out of range")
COUNT = CudaRoutine("cuda/sort.cu.j2", "2Q2q", "counts of digits")
SCAN = CudaRoutine("cuda/sort.cu.j2", "Qq", "sums of counts")
PLACE = CudaRoutine("cuda/sort.cu.j2", "5Q2q", "sort by a digit")


class Room(NamedTuple):
    """Where a sort works, in bytes behind the start of its memory.

    Attributes
    ----------
    keys, numbers : int
        Two buffers of int32 (n,) each; the results are in those at ``keys_at`` and ``numbers_at``.
    bad : int
        An int32: whether an index was out of range.
    counts, size : int
        Of digits; all bytes.
    """

    keys: int
    numbers: int
    bad: int
    counts: int
    size: int
    keys_at: int
    numbers_at: int


def passes(limit: int) -> int:
    """Digits of the keys 0 to ``limit``."""
    return max(1, -(-limit.bit_length() // DIGIT))


def room_for(n: int, limit: int) -> Room:
    """The working memory of a sort of ``n`` indices below ``limit``."""
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
) -> list[Callable[[], None]]:
    """Callables that queue the sort of a vector of indices.

    Parameters
    ----------
    index : (address, dtype, step)
        Integers, so many elements apart.
    base : int
        Address of memory as :func:`room_for` divides it.
    sizes : (n, limit)
        Indices, at least 1, and the end of their range. What is left out gets the key ``limit``, so it comes last.
    fault : (address, report)
        Where an index out of range is reported, and the number of what it is reported for.
    skipped : int
        An index to be left out.
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
    calls = [
        CLEAR.bind(device, ONE, ONE, (base + room.bad,), form="clear", threads=32),
        KEYS.bind(device, blocks, (THREADS, 1, 1), values, form="keys", threads=THREADS, **typed),
    ]
    for digit in range(passes(limit)):
        calls += _ready_pass(device, base, room, n, digit)
    return calls


def _ready_pass(device: Device, base: int, room: Room, n: int, digit: int) -> list[Callable[[], None]]:
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
