"""Ranks that wait: when they are taken to wait for ever, and when not."""

from __future__ import annotations

import pytest

from neonlike.distributed import waiting
from neonlike.distributed.waiting import AGAIN, Call, Left, Standstill, Told, place_of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which tests set."""
    now = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    return now


def hear(standstill: Standstill, times: int = AGAIN, **whats: tuple[int, str]) -> None:
    """Let ranks tell that they wait: ``r0=(7, "barrier")``."""
    for rank, (number, what) in whats.items():
        for _ in range(times):
            standstill.hear(int(rank[1:]), Told(number, what, ""))


def test_different_calls_are_found(clock: list[float]) -> None:
    standstill = Standstill(3)
    hear(standstill, r0=(7, "barrier"), r1=(7, "tell"))
    assert standstill.found({}) == "", "rank 2 may come"
    hear(standstill, r2=(7, "tell"))
    assert standstill.found({}).splitlines() == [
        "rank 0 waits in call 7, barrier", "rank 1 waits in call 7, tell", "rank 2 waits in call 7, tell",
    ]  # fmt: skip


@pytest.mark.parametrize("other", [(8, "tell"), (7, "tell facts")])
def test_equal_calls_are_no_standstill(clock: list[float], other: tuple[int, str]) -> None:
    standstill = Standstill(2)
    hear(standstill, r0=(7, "tell"), r1=(7, "tell"))
    assert standstill.found({}) == "", "a long message"
    standstill.forget()
    hear(standstill, r0=(7, "tell"), r1=other)
    assert standstill.found({})


def test_a_rank_that_has_gone_on_is_waited_for(clock: list[float]) -> None:
    standstill = Standstill(2)
    hear(standstill, r1=(7, "reduce"))
    hear(standstill, r0=(8, "reduce"))
    clock[0] += waiting.LONG_S
    hear(standstill, times=1, r0=(8, "reduce"))
    assert standstill.found({}) == "", "rank 1 has not told for some seconds: it computes"
    hear(standstill, times=AGAIN - 1, r1=(9, "reduce"))
    assert standstill.found({}) == "", "it may be about to go on"
    hear(standstill, times=1, r1=(9, "reduce"))
    assert "rank 1 waits in call 9" in standstill.found({})


def test_ranks_that_have_left_do_not_come(clock: list[float]) -> None:
    standstill = Standstill(2)
    hear(standstill, r0=(7, "tell"))
    assert standstill.found({}) == ""
    assert standstill.found({1: Left(9, "was interrupted")}).endswith("rank 1 was interrupted after call 9")


def test_calls_are_told_after_some_seconds(clock: list[float]) -> None:
    call = Call(3, "barrier", began=clock[0])
    assert not call.is_long()
    clock[0] += waiting.LONG_S + 0.1
    assert call.is_long()
    told = call.told()
    assert told[:2] == (3, "barrier") and f"{__file__}:" in told.place and "after" not in told.place
    try:
        raise ValueError("the disk is full")
    except ValueError:
        assert place_of().endswith(", after ValueError: the disk is full")
    assert "after" not in place_of()
