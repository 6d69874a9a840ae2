"""The benchmarks check before they measure, and measure fairly. Nothing here looks at a time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.modules import bench, few_peers, run_optree  # noqa: F401


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


def test_a_wrong_result_is_not_timed(bench: SimpleNamespace) -> None:
    right, wrong = contender(bench, "right"), contender(bench, "wrong", 1.1)
    results = {r.contender: r for r in bench.harness.run_case(case(bench, right, wrong), bench.harness.QUICK)}
    assert results["right"].median is not None
    assert results["wrong"].median is None
    assert "wrong: error 1.0e-01" in results["wrong"].note
    assert not results["wrong"].wrong, "a peer's mistake is not our failure"


@pytest.mark.parametrize("values", [1.1, math.nan, math.inf, [1.0, 1.0]], ids=str)
def test_a_wrong_result_of_ours_is_a_failure(bench: SimpleNamespace, values: Any) -> None:
    (result,) = bench.harness.run_case(
        case(bench, contender(bench, "we", values, ours=True)), bench.harness.QUICK
    )
    assert result.wrong
    assert result.median is None


def test_peers_may_be_less_exact(bench: SimpleNamespace) -> None:
    close = 1.0 + 5e-4
    peer, ours = contender(bench, "peer", close), contender(bench, "we", close, ours=True)
    able, _ = bench.harness.check(case(bench, peer, ours))
    assert [c.name for c in able] == ["peer"]


def test_one_that_raises_is_reported_and_the_rest_goes_on(bench: SimpleNamespace) -> None:
    def fail() -> None:
        raise ValueError("no such thing\nand more")

    results = bench.harness.run_case(
        case(bench, contender(bench, "a", run=fail), contender(bench, "b"), refused={"c": "not installed"}),
        bench.harness.QUICK,
    )
    notes = {r.contender: (r.note, r.median is not None) for r in results}
    assert notes == {
        "a": ("failed: ValueError: no such thing", False),
        "b": ("", True),
        "c": ("not installed", False),
    }


def test_state_is_restored_before_the_check(bench: SimpleNamespace) -> None:
    state = np.full(1, 5.0)

    def increase() -> None:
        state[:] += 1

    made = bench.harness.Contender("step", increase, lambda: [state], lambda: state.fill(0.0))
    able, _ = bench.harness.check(case(bench, made, reference=lambda: [np.ones(1)]))
    assert able == [made]


# Measuring ------------------------------------------------------------------------------------------------------


def test_contenders_take_turns_and_ratios_are_within_a_round(bench: SimpleNamespace) -> None:
    clock, calls = FakeClock(), []

    def runner(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            calls.append(name)
            clock.now += seconds * (1 + len(calls) // 4)  # the machine gets slower and slower

        return run

    fast = contender(bench, "neonlike", run=runner("neonlike", 1.0))
    slow = contender(bench, "numpy", run=runner("numpy", 4.0))
    effort = dataclasses.replace(bench.harness.QUICK, min_rounds=8, max_rounds=8)
    results = {r.contender: r for r in bench.harness.run_case(case(bench, fast, slow), effort, clock)}
    rounds = [tuple(calls[-32:][i : i + 4]) for i in range(0, 32, 4)]
    orders = {("neonlike", "neonlike", "numpy", "numpy"), ("numpy", "numpy", "neonlike", "neonlike")}
    assert set(rounds) == orders  # a call that is not counted before the one that is; nobody is always first
    assert results["numpy"].ratio == 1.0
    assert results["neonlike"].ratio == pytest.approx(0.25, rel=0.2)
    assert results["neonlike"].rounds == 8
    assert results["neonlike"].low <= results["neonlike"].median <= results["neonlike"].high


def test_short_calls_are_repeated_and_divided(bench: SimpleNamespace) -> None:
    clock = FakeClock()

    def run() -> None:
        clock.now += 1e-6

    effort = dataclasses.replace(bench.harness.QUICK, sample=1e-3)
    measured = bench.harness.measure([contender(bench, "quick", run=run)], effort, clock)
    loops, samples = measured["quick"]
    assert loops >= 1000
    assert samples == [pytest.approx(1e-6)] * 2


def test_the_budget_ends_the_rounds(bench: SimpleNamespace) -> None:
    clock = FakeClock()

    def run() -> None:
        clock.now += 1.0

    effort = dataclasses.replace(bench.harness.QUICK, min_rounds=3, max_rounds=100, budget=11.0)
    _, samples = bench.harness.measure([contender(bench, "slow", run=run)], effort, clock)["slow"]
    assert len(samples) == 6


def test_the_copy_runs_beside_large_cases_only(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.harness, "ROOFLINE_BYTES", 1000)
    small = bench.harness.run_case(case(bench, contender(bench, "numpy"), nbytes=992), bench.harness.QUICK)
    large = bench.harness.run_case(case(bench, contender(bench, "numpy"), nbytes=1000), bench.harness.QUICK)
    assert [r.contender for r in small] == ["numpy"]
    assert [r.contender for r in large] == ["numpy", "copy", "memory copy"]
    assert small[0].of_copy is None
    assert large[0].of_copy is not None
    assert large[0].of_memory_copy is not None
    assert large[1].of_copy == 1.0
    assert large[2].of_memory_copy == 1.0


def test_shares_of_the_copies_count_bytes(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
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
    result = bench.harness.run_case(case(bench, ours, nbytes=1000), bench.harness.QUICK, clock)[0]
    assert result.of_copy == pytest.approx(0.25)
    assert result.of_memory_copy == pytest.approx(0.5), "1000 bytes in 4 s, where memory moves 8000 in 16"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_copy_copies_everything(bench: SimpleNamespace, threads: int) -> None:
    made = bench.harness.copy_contender(1000 * 8, threads)
    (target,) = made.result()
    assert (len(target), target.sum()) == (1000, 0)
    made.run()
    assert target.sum() == 1000


# The expressions ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_peers")
def test_every_expression_is_computed_right(
    bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    status, session = run_optree(bench, "--sizes", "6,64")
    assert status == 0, capsys.readouterr().err
    names = [e.name for e in bench._expressions.EXPRESSIONS]
    assert len(names) == len(set(names)) >= 13
    for name in names:
        for size in (6, 64):
            ours = [session.find(name, size, f"neonlike {how}") for how in ("assign", "prepared")]
            assert all(result is not None and result.error < 1e-5 for result in ours), (name, size)
            if name != "gelu" or session.machine["scipy"] != "not installed":
                assert session.find(name, size, "numpy").ratio == 1.0


@pytest.mark.usefixtures("few_peers")
def test_a_mistake_of_ours_fails_the_run(bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    axpy = next(e for e in bench._expressions.EXPRESSIONS if e.name == "axpy")
    broken = dataclasses.replace(axpy, neonlike=lambda be: lambda x, y: x + y)
    bench.optree.EXPRESSIONS = (broken,)
    status, session = run_optree(bench, "--sizes", "64")
    assert status == 1
    assert session.find("axpy", 64, "neonlike assign") is None
    assert "axpy at 64, neonlike assign: not timed, because it is wrong" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["numexpr", "torch", "numba", "jax"])
def test_installed_peers_are_right(bench: SimpleNamespace, name: str) -> None:
    """Each peer that is here computes the same; one that is not says so."""
    if bench._machine.peer_versions()[name] == bench._terms.NOT_INSTALLED:
        with pytest.raises(bench._contenders.Refused, match="not installed"):
            bench._contenders.PEERS[name](bench._contenders.Problem(bench._expressions.EXPRESSIONS[0], 64))
        return
    able: list[str] = []
    count = 3 if name == "numba" else None  # it compiles slowly
    for expression in bench._expressions.EXPRESSIONS[:count]:
        problem = bench._contenders.Problem(expression, 64)
        try:
            made = bench._contenders.PEERS[name](problem)
        except bench._contenders.Refused:
            continue
        checked, _ = bench.harness.check(
            bench.harness.Case(expression.name, "", 64, [made], problem.reference, 0, tolerance=1e-7)
        )
        able += [expression.name for _ in checked]
    assert {"sigmoid", "axpy", "chain"} <= set(able)


@pytest.mark.parametrize(
    ("size", "expected"), [(1, (1, 1)), (64, (8, 8)), (6, (2, 3)), (7, (1, 7)), (4096, (64, 64))]
)
def test_spaces_are_as_square_as_they_get(
    bench: SimpleNamespace, size: int, expected: tuple[int, int]
) -> None:
    assert bench._expressions.space(size) == expected


def test_bytes_are_counted_once(bench: SimpleNamespace) -> None:
    counted = {e.name: bench._expressions.nbytes(e, 64) for e in bench._expressions.EXPRESSIONS}
    assert counted["sigmoid"] == 4 * 64 * 4
    assert counted["adam"] == 4 * 64 * 7
    assert counted["variance"] == 4 * 65
    assert counted["outer"] == 4 * (64 + 8 + 8)
