"""The memory pool of a device over a source that only counts. No GPU is needed."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from typing import Any

import pytest

from neonlike.backends.gpu.memory.pool import (
    GRANULE,
    SLAB_BYTES,
    SMALL_BYTES,
    Exhausted,
    MemoryBlock,
    Pool,
    rounded,
    text,
)
from neonlike.errors import ArgumentError, DeviceMemoryError

MIB = 1 << 20


class Counting:
    """Source of a limited number of bytes; it checks that returned memory is its own and is not used afterwards."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit, self.taken, self.next = limit, dict[int, int](), 1 << 32
        self.takes = self.settles = 0

    def take(self, nbytes: int) -> int:
        self.takes += 1
        if sum(self.taken.values()) + nbytes > self.limit:
            raise Exhausted
        address, self.next = self.next, self.next + nbytes
        self.taken[address] = nbytes
        return address

    def give(self, handle: Any) -> None:
        del self.taken[handle]

    def settle(self) -> None:
        self.settles += 1

    def room(self) -> tuple[int, int]:
        return self.limit - sum(self.taken.values()), self.limit


def test_sizes_waste_an_eighth_at_most() -> None:
    for nbytes in [*range(1, 5000), *(random.Random(0).randrange(1, 1 << 34) for _ in range(2000))]:
        size = rounded(nbytes)
        assert size >= nbytes
        assert size % GRANULE == 0
        assert rounded(size) == size
        assert size - nbytes < max(GRANULE, nbytes / 8 + 1)
    with pytest.raises(ArgumentError, match="-1"):
        rounded(-1)
    assert rounded(0) == GRANULE


def test_memory_is_used_again() -> None:
    pool = Pool(source := Counting())
    first = pool.allocate(1000)
    address = first.address
    del first
    assert pool.allocate(1000).address == address
    large = pool.allocate(10 * MIB)
    place = large.address
    del large
    again = pool.allocate(9 * MIB)  # a little smaller: the kept block is not too wasteful
    assert (again.address, again.capacity) == (place, 10 * MIB)
    del again
    assert pool.allocate(7 * MIB).address != place
    assert (source.takes, source.settles) == (3, 0)


def test_blocks_never_overlap() -> None:
    pool, rng = Pool(source := Counting()), random.Random(1)
    alive: list[MemoryBlock] = []
    for _ in range(3000):
        if alive and rng.random() < 0.5:
            alive.pop(rng.randrange(len(alive)))
        else:
            alive.append(pool.allocate(int(2 ** rng.uniform(0, 22))))
        if rng.random() < 0.01:
            pool.release()
    spans = sorted((block.address, block.address + block.capacity) for block in alive)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert all(block.address % GRANULE == 0 and block.nbytes <= block.capacity for block in alive)
    segments = [(start, start + nbytes) for start, nbytes in source.taken.items()]
    assert all(any(low <= start and end <= high for low, high in segments) for start, end in spans)
    stats = pool.stats()
    assert (stats.blocks, stats.used) == (len(alive), sum(block.capacity for block in alive))
    assert stats.reserved == sum(source.taken.values())
    alive.clear()
    pool.release()
    assert (source.taken, pool.stats().used, pool.stats().reserved) == ({}, 0, 0)


def test_small_blocks_share_slabs() -> None:
    pool = Pool(source := Counting())
    blocks = [pool.allocate(GRANULE) for _ in range(SLAB_BYTES // GRANULE)]
    assert source.takes == 1
    assert len({block.address for block in blocks}) == len(blocks)
    blocks.append(pool.allocate(1))
    assert source.takes == 2
    del blocks[1:-1]
    assert pool.release() == 0  # a block in each slab is in use
    del blocks[0]
    assert pool.release() == SLAB_BYTES
    assert pool.allocate(SMALL_BYTES + 1).capacity > SMALL_BYTES


def test_peaks() -> None:
    pool = Pool(Counting())
    a = pool.allocate(4 * MIB)
    b = pool.allocate(2 * MIB)
    del a, b
    stats = pool.stats()
    assert (stats.used, stats.used_peak, stats.reserved, stats.reserved_peak) == (0, 6 * MIB, 6 * MIB, 6 * MIB)
    assert (stats.requests, stats.driver_requests, stats.blocks) == (2, 2, 0)
    pool.release()
    pool.reset_peaks()
    assert (pool.stats().used_peak, pool.stats().reserved_peak) == (0, 0)


def test_kept_memory_is_given_back_before_giving_up() -> None:
    pool = Pool(source := Counting(10 * MIB))
    for size in (3, 4, 2):
        pool.allocate(size * MIB)
    assert sum(source.taken.values()) == 9 * MIB
    assert pool.allocate(8 * MIB).nbytes == 8 * MIB
    assert (sum(source.taken.values()), source.settles) == (8 * MIB, 1)


def test_an_error_names_what_was_asked_and_what_there_is() -> None:
    pool = Pool(Counting(10 * MIB), "GPU 3")
    held = [pool.allocate(3 * MIB), pool.allocate(1000)]
    with pytest.raises(DeviceMemoryError) as caught:
        pool.allocate(64 * MIB)
    for words in ("GPU 3", "64.00 MiB asked", "3.00 MiB are in use", "2 blocks", "5.00 MiB of 10.00 MiB", "smaller"):
        assert words in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    assert pool.allocate(2 * MIB).nbytes == 2 * MIB  # what fits still does
    assert held[0].nbytes == 3 * MIB


def test_a_single_small_block_may_fit_where_a_slab_does_not() -> None:
    pool = Pool(Counting(SLAB_BYTES - GRANULE))
    assert pool.allocate(1000).capacity == rounded(1000)


def test_cycles_are_collected_before_giving_up() -> None:
    pool = Pool(Counting(10 * MIB))
    gc.disable()
    try:
        cycle: list[Any] = [pool.allocate(8 * MIB)]
        cycle.append(cycle)
        del cycle
        assert pool.allocate(8 * MIB).nbytes == 8 * MIB
    finally:
        gc.enable()


def test_lent_memory_is_waited_for() -> None:
    pool = Pool(source := Counting())
    block = pool.allocate(1000)
    block.lent = True
    del block
    assert source.settles == 0
    pool.allocate(1000)
    assert source.settles == 1
    pool.allocate(1000)
    assert source.settles == 1


def test_without_pooling_every_block_is_the_sources_own() -> None:
    pool = Pool(source := Counting(), pooled=False)
    blocks = [pool.allocate(nbytes) for nbytes in (1, 1000, 1000, 3 * MIB, 0)]
    assert sorted(source.taken.values()) == [1, 1, 1000, 1000, 3 * MIB]
    assert [block.capacity for block in blocks] == [1, 1000, 1000, 3 * MIB, 1]
    del blocks[:4]
    pool.allocate(1000)
    assert sorted(source.taken.values()) == [1, 1000]
    assert source.takes == 6
    blocks.clear()
    pool.release()
    assert source.taken == {}
    with pytest.raises(ArgumentError):
        pool.allocate(-1)


def test_blocks_may_outlive_their_pool_and_die_anywhere() -> None:
    pool = Pool(Counting())
    blocks = [pool.allocate(100) for _ in range(10)]
    thread = threading.Thread(target=blocks.clear)
    thread.start()
    thread.join()
    assert pool.stats().blocks == 0
    last = pool.allocate(100)
    del pool
    gc.collect()
    del last


def test_a_collection_inside_a_request_may_make_requests() -> None:
    """Code of users runs when garbage is collected, also while the pool's lock is held."""
    source = Counting()
    pool = Pool(source)

    class Greedy:
        def __del__(self) -> None:
            found.append(pool.allocate(100).address)

    found: list[int] = []
    take = source.take

    def collecting(nbytes: int) -> int:
        cycle: list[Any] = [Greedy()]
        cycle.append(cycle)
        del cycle
        source.take = take  # type: ignore[method-assign]
        gc.collect()
        return take(nbytes)

    source.take = collecting  # type: ignore[method-assign]
    block = pool.allocate(100)
    assert (len(found), source.takes) == (1, 2)
    assert any(start <= block.address < start + size for start, size in source.taken.items())
    assert pool.stats().blocks == 1


def test_threads_share_a_pool() -> None:
    pool = Pool(Counting())
    held: list[list[MemoryBlock]] = [[] for _ in range(4)]

    def work(mine: list[MemoryBlock], seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(500):
            mine.append(pool.allocate(rng.randrange(1, 10_000)))
            if len(mine) > 20:
                mine.pop(rng.randrange(20))

    threads = [threading.Thread(target=work, args=(mine, seed)) for seed, mine in enumerate(held)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alive = [block for mine in held for block in mine]
    assert len({block.address for block in alive}) == len(alive)
    assert pool.stats().blocks == len(alive)


def test_sizes_for_people() -> None:
    assert [text(n) for n in (0, 1023, 1536, 3 << 20, 5 << 30)] == [
        "0 bytes", "1023 bytes", "1.50 kiB", "3.00 MiB", "5.00 GiB",
    ]  # fmt: skip
