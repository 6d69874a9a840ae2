"""The benchmarks check before they measure, and measure fairly. Nothing here looks at a time."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.modules import bench, run  # noqa: F401


class FakeClock:
    """A clock that contenders move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def contender(
    bench: Any, name: str, values: Any = 1.0, run: Callable[[], Any] = list, ours: bool = False
) -> Any:
    return bench.harness.Contender(name, run, lambda: [np.asarray(values)], ours=ours)


def case(bench: Any, *contenders: Any, **more: Any) -> Any:
    given: dict[str, Any] = {"nbytes": 8, "reference": lambda: [np.asarray(1.0)]} | more
    return bench.harness.Case("ones", "1", 64, list(contenders), **given)


# Checking -------------------------------------------------------------------------------------------------------


def test_a_wrong_result_is_not_timed(bench: Any) -> None:
    right, wrong = contender(bench, "right"), contender(bench, "wrong", 1.1)
    results = {r.contender: r for r in bench.harness.run_case(case(bench, right, wrong), bench.shortest)}
    assert results["right"].median is not None
    assert results["wrong"].median is None
    assert "wrong: error 1.0e-01" in results["wrong"].note
    assert not results["wrong"].wrong, "a peer's mistake is not our failure"


@pytest.mark.parametrize("values", [1.1, math.nan, math.inf, [1.0, 1.0]], ids=str)
def test_a_wrong_result_of_ours_is_a_failure(bench: Any, values: Any) -> None:
    (result,) = bench.harness.run_case(
        case(bench, contender(bench, "we", values, ours=True)), bench.shortest
    )
    assert result.wrong
    assert result.median is None


def test_peers_may_be_less_exact(bench: Any) -> None:
    close = 1.0 + 5e-4
    peer, ours = contender(bench, "peer", close), contender(bench, "we", close, ours=True)
    able, _ = bench.harness.check(case(bench, peer, ours))
    assert [c.name for c in able] == ["peer"]


def test_one_that_raises_is_reported_and_the_rest_goes_on(bench: Any) -> None:
    def fail() -> None:
        raise ValueError("no such thing\nand more")

    results = bench.harness.run_case(
        case(bench, contender(bench, "a", run=fail), contender(bench, "b"), refused={"c": "not installed"}),
        bench.shortest,
    )
    notes = {r.contender: (r.note, r.median is not None) for r in results}
    assert notes == {
        "a": ("failed: ValueError: no such thing", False),
        "b": ("", True),
        "c": ("not installed", False),
    }


def test_state_is_restored_before_the_check(bench: Any) -> None:
    state = np.full(1, 5.0)

    def increase() -> None:
        state[:] += 1

    made = bench.harness.Contender("step", increase, lambda: [state], lambda: state.fill(0.0))
    able, _ = bench.harness.check(case(bench, made, reference=lambda: [np.ones(1)]))
    assert able == [made]


# Measuring ------------------------------------------------------------------------------------------------------


def test_contenders_take_turns_and_ratios_are_within_a_round(bench: Any) -> None:
    clock, calls = FakeClock(), []

    def runner(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            calls.append(name)
            clock.now += seconds * (1 + len(calls) // 4)  # the machine gets slower and slower

        return run

    fast = contender(bench, "neonlike", run=runner("neonlike", 1.0))
    slow = contender(bench, "numpy", run=runner("numpy", 4.0))
    effort = dataclasses.replace(bench.shortest, min_rounds=8, max_rounds=8)
    results = {r.contender: r for r in bench.harness.run_case(case(bench, fast, slow), effort, clock)}
    rounds = [tuple(calls[-32:][i : i + 4]) for i in range(0, 32, 4)]
    orders = {("neonlike", "neonlike", "numpy", "numpy"), ("numpy", "numpy", "neonlike", "neonlike")}
    assert set(rounds) == orders  # a call that is not counted before the one that is; nobody is always first
    assert results["numpy"].ratio == 1.0
    assert results["neonlike"].ratio == pytest.approx(0.25, rel=0.2)
    assert results["neonlike"].rounds == 8
    assert results["neonlike"].low <= results["neonlike"].median <= results["neonlike"].high


def test_short_calls_are_repeated_and_divided(bench: Any) -> None:
    clock = FakeClock()

    def run() -> None:
        clock.now += 1e-6

    effort = dataclasses.replace(bench.shortest, sample=1e-3)
    measured = bench.harness.measure([contender(bench, "quick", run=run)], effort, clock)
    loops, samples = measured["quick"]
    assert loops >= 1000
    assert samples == [pytest.approx(1e-6)] * 2


@pytest.mark.parametrize(("long", "calls"), [(0.5, 5), (float("inf"), 9)])
def test_a_long_call_is_not_made_more_often_than_needed(bench: Any, long: float, calls: int) -> None:
    """Once to see how long it takes, once before the first sample, then once a sample; else twice as often."""
    clock, made = FakeClock(), []

    def run() -> None:
        made.append(1)
        clock.now += 1.0

    effort = bench._cases.Effort(sample=0.1, pause=0.0, min_rounds=3, max_rounds=3, budget=0.0, long=long)
    assert bench.harness.measure([contender(bench, "slow", run=run)], effort, clock) == {"slow": (1, [1.0] * 3)}
    assert len(made) == calls


def test_a_contender_may_sample_itself(bench: Any) -> None:
    made = dataclasses.replace(contender(bench, "we"), sample=iter([3.0, 1.0, 2.0]).__next__)
    effort = bench._cases.Effort(pause=0.0, min_rounds=3, max_rounds=3, extremes=True)
    (result,) = bench.harness.run_case(case(bench, made), effort)
    assert (result.samples, result.median, result.low, result.high) == ([3.0, 1.0, 2.0], 2.0, 1.0, 3.0)


def test_the_budget_ends_the_rounds(bench: Any) -> None:
    clock = FakeClock()

    def run() -> None:
        clock.now += 1.0

    effort = dataclasses.replace(bench.shortest, min_rounds=3, max_rounds=100, budget=11.0)
    _, samples = bench.harness.measure([contender(bench, "slow", run=run)], effort, clock)["slow"]
    assert len(samples) == 6


def test_the_copy_runs_beside_large_cases_only(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.harness, "ROOFLINE_BYTES", 1000)
    small = bench.harness.run_case(case(bench, contender(bench, "numpy"), nbytes=992), bench.shortest)
    large = bench.harness.run_case(case(bench, contender(bench, "numpy"), nbytes=1000), bench.shortest)
    assert [r.contender for r in small] == ["numpy"]
    assert [r.contender for r in large] == ["numpy", "copy", "memory copy"]
    assert small[0].of_copy is None
    assert large[0].of_copy is not None
    assert large[0].of_memory_copy is not None
    assert large[1].of_copy == 1.0
    assert large[2].of_memory_copy == 1.0


def test_shares_of_the_copies_count_bytes(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()

    def takes(seconds: float) -> Callable[[], None]:
        def run() -> None:
            clock.now += seconds

        return run

    copies = {1000: contender(bench, "copy", run=takes(1.0)), 8000: contender(bench, "memory copy", run=takes(16.0))}
    monkeypatch.setattr(bench.harness, "ROOFLINE_BYTES", 1000)
    monkeypatch.setattr(bench.harness, "MEMORY_BYTES", 8000)
    monkeypatch.setattr(bench.harness, "copy_contender", copies.__getitem__)
    monkeypatch.setattr(bench.harness, "memory_copy", lambda: copies[8000])
    ours = contender(bench, "we", run=takes(4.0))
    result = bench.harness.run_case(case(bench, ours, nbytes=1000), bench.shortest, clock)[0]
    assert result.of_copy == pytest.approx(0.25)
    assert result.of_memory_copy == pytest.approx(0.5), "1000 bytes in 4 s, where memory moves 8000 in 16"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_copy_copies_everything(bench: Any, threads: int) -> None:
    made = bench.harness.copy_contender(1000 * 8, threads)
    (target,) = made.result()
    assert (len(target), target.sum()) == (1000, 0)
    made.run()
    assert target.sum() == 1000


# The expressions ------------------------------------------------------------------------------------------------


@pytest.fixture
def expressions(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The suite with NumPy and a stand-in for a library that is not there, whatever this machine has."""

    def library(name: str) -> Any:
        if name != "numpy":
            raise bench._cases.Refused(bench._cases.NOT_INSTALLED)
        return bench._libraries.Library()

    monkeypatch.setattr(bench._contenders, "library_on_cpu", library)
    suite = bench.expressions.SUITE
    suite.contenders = (*bench._contenders.OURS, "numpy", "torch")
    return suite


def test_every_expression_is_computed_right(
    bench: Any, expressions: Any, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    status, session = run(expressions, "--sizes", "6,64")
    assert status == 0, capsys.readouterr().err
    names = [e.name for e in bench._expressions.EXPRESSIONS]
    assert len(names) == len(set(names)) >= 13
    for name in names:
        for size in (6, 64):
            ours = [session.find(name, size, f"neonlike {how}") for how in ("assign", "prepared")]
            assert all(result is not None and result.error < 1e-5 for result in ours), (name, size)
            if name != "gelu" or session.machine["scipy"] != "not installed":
                assert session.find(name, size, "numpy").ratio == 1.0


def test_a_mistake_of_ours_fails_the_run(
    bench: Any, expressions: Any, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    axpy = next(e for e in bench._expressions.EXPRESSIONS if e.name == "axpy")
    bench.expressions.EXPRESSIONS = (dataclasses.replace(axpy, neonlike=lambda be: lambda x, y: x + y),)
    status, session = run(expressions, "--sizes", "64")
    assert status == 1
    assert session.find("axpy", 64, "neonlike assign") is None
    assert "axpy at 64, neonlike assign: not timed, because it is wrong" in capsys.readouterr().err


def test_a_run_shows_and_writes_its_results(
    bench: Any, expressions: Any, run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(bench._report, "RESULTS", tmp_path / "RESULTS.md")
    files = ["--json", str(tmp_path / "run.json"), "--picture", str(tmp_path / "run.png"), "--results"]
    assert run(expressions, "--only", "sigmoid,variance", "--sizes", "64", *files)[0] == 0
    out = capsys.readouterr().out
    for expected in (r"^processor +\S", r"^numpy +\d", r"^engine +\w", r"^copy on 1 thread: [\d.]+ GB/s",
                     r"^64 float32 elements \(64\)", r"^sigmoid: sig\(a\*b \+ c\)$", r"^  neonlike assign +\d",
                     r"^  neonlike prepared +\d", r"^  numpy +\d.* 1\.00x", r"^not installed: torch"):  # fmt: skip
        assert re.search(expected, out, re.MULTILINE), expected
    written = json.loads((tmp_path / "run.json").read_text())
    assert {r["case"] for r in written["results"]} == {"sigmoid", "variance"}
    assert written["machine"]["engine"]
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "### 64 elements" in (tmp_path / "RESULTS.md").read_text()


def test_cases_that_do_not_fit_are_left_out_and_told(
    bench: Any, expressions: Any, run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench._machine, "free_memory", lambda: 100)
    status, session = run(expressions, "--only", "axpy", "--sizes", "64")
    assert (status, session.results) == (0, [])
    assert "axpy at 64: left out, as it needs about 0 GiB of memory and 0 GiB are free" in capsys.readouterr().out
    monkeypatch.setattr(bench._machine, "free_memory", lambda: None)
    assert expressions.fits("axpy", 1 << 40) == ""


def test_options_choose_expressions_and_sizes(bench: Any, expressions: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def planned(*argv: str) -> list[tuple[str, int]]:
        return [key[:2] for key in expressions.plan(expressions.parse(argv))]

    everything = [e.name for e in bench._expressions.EXPRESSIONS]
    assert planned("--only", "adam,axpy", "--sizes", "2,4k") == [
        ("adam", 2), ("axpy", 2), ("adam", 4096), ("axpy", 4096),
    ]  # fmt: skip
    assert {size for _, size in planned()} == {64, 4096, 1 << 16, 1 << 20, 1 << 24, 1 << 26}
    assert planned("--quick")[: len(everything)] == [(name, 64) for name in everything]
    assert planned("--quick")[-1] == ("sigmoid", 1 << 24), "the targets are measured in a quick run too"
    for option, wrong in (("--only", "nonsense"), ("--sizes", "0"), ("--sizes", "4x"), ("--sizes", "")):
        with pytest.raises(SystemExit):
            expressions.parse([option, wrong])
        assert option in capsys.readouterr().err


@pytest.mark.parametrize("name", ["numexpr", "torch", "numba", "jax"])
def test_installed_peers_are_right(bench: Any, name: str) -> None:
    """Each peer that is here computes the same; one that is not says so."""
    contenders = bench._contenders
    if bench._machine.peer_versions()[name] == bench._cases.NOT_INSTALLED:
        with pytest.raises(bench._cases.Refused, match="not installed"):
            contenders.library_on_cpu(name)
        return
    able: list[str] = []
    count = 3 if name == "numba" else None  # it compiles slowly
    for expression in bench._expressions.EXPRESSIONS[:count]:
        case = contenders.make_case(None, expression, 64, True, name)
        case.tolerance = 1e-7
        able += [expression.name for _ in bench.harness.check(case)[0]]
    assert {"sigmoid", "axpy", "chain"} <= set(able)


@pytest.mark.parametrize(
    ("size", "expected"), [(1, (1, 1)), (64, (8, 8)), (6, (2, 3)), (7, (1, 7)), (4096, (64, 64))]
)
def test_spaces_are_as_square_as_they_get(
    bench: Any, size: int, expected: tuple[int, int]
) -> None:
    assert bench._expressions.space(size) == expected


def test_bytes_are_counted_once(bench: Any) -> None:
    counted = {e.name: bench._expressions.nbytes(e, 64) for e in bench._expressions.EXPRESSIONS}
    assert counted["sigmoid"] == 4 * 64 * 4
    assert counted["adam"] == 4 * 64 * 7
    assert counted["variance"] == 4 * 65
    assert counted["outer"] == 4 * (64 + 8 + 8)
