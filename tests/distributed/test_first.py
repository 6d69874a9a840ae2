"""Work of rank 0 alone, seen from one rank whose calls are answered by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neonlike.backends import gen_backend
from neonlike.callbacks.progress import ProgressBarCallback
from neonlike.distributed.first import by_first, present_ranks
from neonlike.distributed.ranks import ALONE
from neonlike.errors import ArgumentError, MissingAttribute, RankError
from neonlike.kernels.bench.recorder import Bench
from neonlike.nervanaobject import NervanaObject
from tests.support.ranks import OneOf


class Answered(OneOf):
    """A rank that is told ``told`` by rank 0, and notes what it tells itself."""

    def __init__(self, rank: int, told: Any = None) -> None:
        super().__init__(rank, 2)
        self.told, self.said = told, []

    def tell(self, thing: Any, what: str = "") -> list[Any]:
        self.said.append(thing)
        return [self.told if self.rank else thing, None]


def refuse() -> None:
    raise OSError(28, "No space left on device")


def test_a_process_alone_does_the_work() -> None:
    assert by_first(lambda: 7, ALONE) == 7
    with pytest.raises(OSError, match="No space"):
        by_first(refuse, ALONE)


def test_rank_0_tells_its_error_and_raises_it() -> None:
    first = Answered(0)
    assert by_first(lambda: 7, first) == 7 and first.said == [None]
    with pytest.raises(OSError, match="No space") as raised:
        by_first(refuse, first)
    assert first.said[1] is raised.value


def test_the_others_do_nothing_but_raise_that_error() -> None:
    assert by_first(refuse, Answered(1)) is None
    with pytest.raises(ArgumentError, match="history=0"):
        by_first(lambda: 7, Answered(1, ArgumentError("history=0")))


class Odd(ArgumentError):
    """An error that only its own arguments rebuild."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} is not {two}")


WITH_A_FUNCTION = MissingAttribute("1 is not 2", "x", lambda: "")


@pytest.mark.parametrize("error", [Odd(1, 2), ValueError("1 is not 2"), WITH_A_FUNCTION])
def test_an_error_that_does_not_travel_is_quoted(error: Exception) -> None:
    first = Answered(0)

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        by_first(fail, first)
    assert raised.value is error
    (told,) = first.said
    assert type(told) is RankError and str(told) == f"rank 0 failed: {type(error).__name__}: 1 is not 2"


def test_ranks_are_those_of_the_current_backend(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(be, "ranks", OneOf(1, 3))
    assert present_ranks().rank == 1
    monkeypatch.setattr(NervanaObject, "be", None)
    assert present_ranks() is ALONE


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_reports_bench_mode(rank: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    be = gen_backend("cpu", rng_seed=0, bench=tmp_path / "end.csv")
    be.ranks = OneOf(rank, 2)
    tensor = be.ones((2, 3))
    tensor[:] = tensor + 1
    assert "(t0 + c0)" in be.bench_report(path=tmp_path / "now.json")
    assert be.bench_report(path=tmp_path / "now.json").startswith("{"), "the format is that of the file in any case"
    with pytest.raises(ArgumentError, match="says no format"):
        be.bench_report(path=tmp_path / "now")
    be.cleanup_backend()
    assert sorted(path.name for path in tmp_path.iterdir()) == ([] if rank else ["end.csv", "now.json"])
    assert isinstance(be.executor.recorder, Bench)


def test_samples_per_second_are_those_of_all_ranks(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    be.bsz = 8
    assert ProgressBarCallback()._pace(2, 6, 4.0) == " 4 samples/s, 12s left"
    monkeypatch.setattr(be, "ranks", OneOf(0, 3))
    assert ProgressBarCallback()._pace(2, 6, 4.0) == " 12 samples/s, 12s left"
