"""``be.synchronize`` and ``be.memory_stats`` on every backend."""

from __future__ import annotations

import dataclasses
import gc
import random
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu import memory
from neonlike.backends.cpu.tensor import CPUTensor

MEGABYTE = 1 << 20


def test_everything_ran_when_synchronize_returns(be: Any) -> None:
    out = be.zeros((300, 300))
    out[:] = out + 3
    assert be.synchronize() is None
    assert np.all(out.get() == 3)


def test_memory_follows_the_tensors(be: Any) -> None:
    be.release_memory()
    be.reset_memory_peaks()
    before = be.memory_stats()
    t = be.empty((MEGABYTE, 4))
    view = t[: 1 << 10]
    now = be.memory_stats()
    assert 16 * MEGABYTE <= now.used - before.used < 17 * MEGABYTE
    assert now.blocks == before.blocks + 1, "a view is no memory of its own"
    assert now.reserved >= now.used
    del t
    assert be.memory_stats().used == now.used, "the view needs it"
    del view
    after = be.memory_stats()
    assert (after.used, after.blocks) == (before.used, before.blocks)
    assert after.used_peak == now.used
    assert after.reserved_peak >= now.reserved
    be.reset_memory_peaks()
    assert be.memory_stats().used_peak == after.used


def test_numbers_are_whole(be: Backend) -> None:
    stats = be.memory_stats()
    assert all(type(value) is int and value >= 0 for value in dataclasses.asdict(stats).values())


@pytest.mark.cpu_only("host memory")
def test_memory_of_others_is_not_counted(be: Any) -> None:
    before = be.memory_stats()
    host = np.zeros((MEGABYTE, 4), np.float32)
    wrapped = be.wrap(host)
    assert be.memory_stats().used == before.used
    wrapped[:] = 1
    assert host.all()


@pytest.mark.cpu_only("host memory")
def test_scratch_and_workspace_are_kept(be: Any) -> None:
    before = be.memory_stats()
    be.set_scratch_size(8 * MEGABYTE)
    be.scratch_buffer(1000)
    kept = be.memory_stats()
    assert kept.used == before.used
    assert 8 * MEGABYTE <= kept.reserved - before.reserved < 9 * MEGABYTE
    be.scratch_buffer_reset()
    assert be.memory_stats().reserved == before.reserved
    given_back = be.release_memory()
    assert be.memory_stats().reserved == before.reserved - given_back
    assert be.release_memory() == 0


@pytest.mark.cpu_only("host memory")
@pytest.mark.parametrize("seed", range(3))
def test_tensors_are_found_however_old_they_are(be: Any, seed: int) -> None:
    """Between two searches the garbage collector may have run, over any of its generations, or not."""
    rng, held = random.Random(seed), [be.empty((2, 2))]
    for _ in range(60):
        for _ in range(rng.randrange(4)):
            held.append(be.empty((2, 3)) if rng.random() < 0.5 else rng.choice(held)[:1])
        if len(held) > 9:
            del held[rng.randrange(1, len(held)) :]
        if (generation := rng.randrange(6)) < 3:
            gc.collect(generation)
        living = {id(thing) for thing in gc.get_objects() if isinstance(thing, CPUTensor)}
        found = [id(tensor) for tensor in memory._living()]
        assert len(found) == len(set(found)) and set(found) >= living
        assert {id(tensor) for tensor in held} <= living


@pytest.mark.cpu_only("host memory")
def test_searches_soon_after_each_other_look_at_what_is_new(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.disable()
    try:
        be.memory_stats()
        asked: list[Any] = []
        search = gc.get_objects
        monkeypatch.setattr(gc, "get_objects", lambda generation=None: asked.append(generation) or search(generation))
        new = be.empty((2, 3))
        assert any(tensor is new for tensor in memory._living()) and asked in ([0, 1], [0, 1, None])
        assert (None in asked) == memory._MOVES_AT_ANY_TIME
        gc.collect(1)
        assert any(tensor is new for tensor in memory._living()) and None in asked
    finally:
        gc.enable()
