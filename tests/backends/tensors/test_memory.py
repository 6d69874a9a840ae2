"""``be.synchronize`` and ``be.memory_stats`` on every backend."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend

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
