"""The rates of this machine that reports of bench mode are told beside: memory copies and products."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from neonlike.kernels.bench import machine_rates


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_copy_copies_everything(threads: int) -> None:
    source, target = np.arange(1000.0), np.zeros(1000)
    run = machine_rates.copier(source, target, threads)
    for _ in range(2):
        target[:] = 0
        run()
        assert np.array_equal(source, target)


def test_the_threads_of_a_copy_end_with_it() -> None:
    before = set(threading.enumerate())
    run = machine_rates.copier(np.ones(10), np.zeros(10), 3)
    mine = [thread for thread in threading.enumerate() if thread not in before]
    assert len(mine) == 2
    run()
    del run
    for thread in mine:
        thread.join(10)
    assert [thread for thread in mine if thread.is_alive()] == []


def test_the_copy_is_measured_on_one_thread_where_no_other_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert machine_rates.machine_rates().threads == 1


def test_an_error_of_a_copy_is_raised() -> None:
    target = np.zeros(10)
    target.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        machine_rates.copier(np.ones(10), target, 2)()


def test_rates_are_measured_once() -> None:
    machine_rates.copy_rate.cache_clear()
    first = machine_rates.machine_rates(("float32",))
    assert machine_rates.machine_rates(("float32",)) == first
    assert first.copy > 0
    assert first.gemm["float32"] > 0
    assert machine_rates.copy_rate.cache_info().misses == 1
