"""The benchmarks check before they measure, and report in the formats they promise. Nothing here looks at a time."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = (
    "_machine", "_report", "_cases", "_picture", "harness", "_expressions", "_contenders", "_verdicts", "optree",
    "coldstart",
)  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The modules of the benchmarks folder, with the shortest of measurements and a small copy."""
    monkeypatch.syspath_prepend(str(FOLDER))
    found = SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    shortest = found.harness.Effort(sample=0.0, pause=0.0, min_rounds=2, max_rounds=2, budget=0.0)
    monkeypatch.setattr(found.harness, "QUICK", shortest)
    monkeypatch.setattr(found.harness, "Effort", lambda: shortest)
    monkeypatch.setattr(found.harness, "MEMORY_BYTES", 1 << 16)
    yield found
    for name in MODULES:
        sys.modules.pop(name)


@pytest.fixture
def few_peers(bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy and a stand-in for a library that is not there, whatever this machine has."""

    def absent(problem: Any) -> Any:
        raise bench._contenders.Refused(bench._report.NOT_INSTALLED)

    monkeypatch.setattr(bench._contenders, "PEERS", {"numpy": bench._contenders.plain_numpy, "torch": absent})


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


def run_optree(bench: Any, *argv: str) -> tuple[int, Any]:
    """Exit status and session of the script with these options."""
    sessions: list[Any] = []

    class Kept(bench.harness.Session):  # type: ignore[misc, name-defined]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            sessions.append(self)

    bench.optree.Session = Kept
    return bench.optree.main(list(argv)), sessions[0]


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
    if bench._machine.peer_versions()[name] == bench._report.NOT_INSTALLED:
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


# Options and reports --------------------------------------------------------------------------------------------


def test_the_schedule(bench: SimpleNamespace) -> None:
    def planned(*argv: str) -> list[tuple[str, int]]:
        return [(e.name, size) for e, size in bench.optree.schedule(bench.optree.parse(list(argv)))]

    everything = [e.name for e in bench._expressions.EXPRESSIONS]
    assert planned("--only", "adam,axpy", "--sizes", "2,4k") == [
        ("adam", 2), ("axpy", 2), ("adam", 4096), ("axpy", 4096),
    ]  # fmt: skip
    assert {size for _, size in planned()} == {64, 4096, 1 << 16, 1 << 20, 1 << 24, 1 << 26}
    assert planned("--quick")[: len(everything)] == [(name, 64) for name in everything]
    assert planned("--quick")[-1] == ("sigmoid", 1 << 24), "the targets are measured in a quick run too"


@pytest.mark.parametrize(
    "argv", [["--only", "nonsense"], ["--sizes", "0"], ["--sizes", "4x"], ["--sizes", ""]]
)
def test_bad_options_are_refused(
    bench: SimpleNamespace, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_info:
        bench.optree.parse(argv)
    assert exit_info.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_sizes_and_times_as_text(bench: SimpleNamespace) -> None:
    for text, size in {"64": 64, "4k": 4096, "16M": 1 << 24, "1000": 1000}.items():
        assert bench._report.parse_size(text) == size
        assert bench._report.size_text(size) == text
    shown = [bench._report.time_text(seconds) for seconds in (5e-9, 1.234e-6, 56.78e-6, 0.123456, 2.0)]
    assert shown == ["5 ns", "1.23 us", "56.8 us", "123 ms", "2.00 s"]


def fake_session(bench: Any, tmp_path: Path, assign: float, prepared: float, ratio: float) -> Any:
    """A session with the three results that the targets are about."""
    session = bench.harness.Session.__new__(bench.harness.Session)
    make = bench.harness.Result
    session.subject, session.command = "optree", "python benchmarks/optree.py"
    session.options = argparse.Namespace(json=tmp_path / "made" / "run.json", picture=None, results=False)
    session.machine, session.copy, session.verdicts = {"processor": "a|b"}, {"copy on 1 thread": 10.0}, []
    session.skipped, session.tables, session.more = [], {}, {}
    session.effort, session.others = bench.harness.QUICK, SimpleNamespace(share=lambda: 0.5)
    spread = {"low": assign, "high": assign, "rounds": 5, "loops": 9}
    memory = {"gb_per_s": 26.8, "of_memory_copy": 0.9}
    session.results = [
        make("sigmoid", "sig(a*b + c)", 64, "neonlike assign", assign, ratio=2.0, **spread),
        make("sigmoid", "sig(a*b + c)", 64, "neonlike prepared", prepared, ratio=1.0, **spread),
        make("sigmoid", "sig(a*b + c)", 64, "numpy", assign / 2, ratio=1.0, **spread),
        make("sigmoid", "sig(a*b + c)", 64, "torch", note="not installed"),
        make("sigmoid", "sig(a*b + c)", 64, "numba", note="left out by --quick, compiling takes seconds"),
        make("sigmoid", "sig(a*b + c)", 1 << 24, "neonlike assign", 0.01, 0.01, 0.01, 5, 1, ratio, **memory),
    ]
    return session


def run_of(bench: Any, tmp_path: Path, *cases: tuple[str, int, dict[str, float], float]) -> Any:
    """A session with cases (name, size, seconds of each contender, share of a memory copy's bandwidth)."""
    session = fake_session(bench, tmp_path, 1e-5, 1e-6, 0.3)
    session.results = [
        bench._cases.Result(
            name, name, size, who, median=seconds, samples=[seconds] * 3, ratio=seconds / by_name["numpy"],
            of_memory_copy=share, of_copy=share / 2,
        )
        for name, size, by_name, share in cases
        for who, seconds in by_name.items()
    ]  # fmt: skip
    return session


def seconds(assign: float, **peers: float) -> dict[str, float]:
    """Times of both of ours and of the peers."""
    named = {name.replace("_", "."): value for name, value in peers.items()}
    return {"neonlike assign": assign, "neonlike prepared": assign / 2, **named}


def test_the_targets_at_64_elements(bench: SimpleNamespace, tmp_path: Path) -> None:
    ours = {"neonlike assign": 6.9e-6, "neonlike prepared": 2.1e-6, "numpy": 2.5e-6}
    assert bench._verdicts.verdicts(run_of(bench, tmp_path, ("sigmoid", 64, ours, 0.0))) == [
        "64 elements, sigmoid, assign: 6.90 us, 2.76 of NumPy's time (target < 2.8): met",
        "64 elements, sigmoid, prepared: 2.10 us, 0.84 of NumPy's time (target < 0.8): MISSED",
    ]


def test_the_targets_of_large_cases(bench: SimpleNamespace, tmp_path: Path) -> None:
    session = run_of(
        bench, tmp_path,
        ("axpy", 1 << 20, seconds(1.0, numpy=4.0, torch_compile=2.0, jax=0.8), 0.95),
        ("mask", 1 << 20, seconds(1.0, numpy=9.0, torch_compile=0.95), 0.85),
        ("axpy", 1 << 24, seconds(1.0, numpy=4.0, torch_compile=3.0), 0.95),
    )  # fmt: skip
    assert bench._verdicts.verdicts(session) == [
        "1M, geometric mean over 2: numpy takes 6.00 times as long (12.00 prepared; target 5): met",
        "1M, geometric mean over 2: torch.compile takes 1.38 times as long (2.76 prepared; target 1.7): MISSED",
        "1M, geometric mean over 1: jax takes 0.80 times as long (1.60 prepared)",
        "1M, slowest against the best peer's time: axpy 1.25 of jax (target <= 1.1): MISSED",
        "16M, geometric mean over 1: numpy takes 4.00 times as long (8.00 prepared; target 5): MISSED",
        "16M, geometric mean over 1: torch.compile takes 3.00 times as long (6.00 prepared; target 1.7): met",
        "16M, slowest against the best peer's time: axpy 0.33 of torch.compile (target <= 1.1): met",
        "1M, share of a memory copy's bandwidth: mask 85% (target >= 90%; of a copy of the same bytes, 0 of 2 reach "
        "it): MISSED",
        "16M, share of a memory copy's bandwidth: lowest axpy 95% (target >= 90%; of a copy of the same bytes, 0 of 1 "
        "reach it): met",
    ]  # fmt: skip


def test_cases_that_do_not_fit_are_left_out_and_told(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench._machine, "free_memory", lambda: 100)
    status, session = run_optree(bench, "--only", "axpy", "--sizes", "64")
    assert (status, session.results) == (0, [])
    assert "axpy at 64: left out, as it needs about 0 GiB of memory and 0 GiB are free" in capsys.readouterr().out
    monkeypatch.setattr(bench._machine, "free_memory", lambda: None)
    assert bench.optree.fits(bench._expressions.EXPRESSIONS[0], 1 << 40, 8) == ""


def test_the_end_of_a_run(bench: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = fake_session(bench, tmp_path, 1e-5, 1e-6, 0.3)
    assert session.finish(["a verdict"]) == 0
    out = capsys.readouterr().out
    assert "a verdict\n" in out
    assert "not installed: torch\n" in out
    assert "left out by --quick, compiling takes seconds: numba\n" in out
    assert "Other programs took 50% of the processors" in out
    written = json.loads((tmp_path / "made" / "run.json").read_text())
    assert set(written) >= {
        "format",
        "subject",
        "command",
        "machine",
        "copy_gb_per_s",
        "effort",
        "verdicts",
        "results",
    }
    assert [r["contender"] for r in written["results"]][:3] == [
        "neonlike assign",
        "neonlike prepared",
        "numpy",
    ]
    assert written["results"][0]["median"] == 1e-5


@pytest.mark.usefixtures("few_peers")
def test_what_a_run_shows_and_writes(
    bench: SimpleNamespace,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench._report, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(bench._report.update_results, "__defaults__", (tmp_path / "RESULTS.md",))
    files = ["--json", str(tmp_path / "run.json"), "--picture", str(tmp_path / "run.png"), "--results"]
    status, _ = run_optree(bench, "--only", "sigmoid,variance", "--sizes", "64", *files)
    assert status == 0
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


def test_a_section_of_the_results_is_replaced_and_the_rest_stays(
    bench: SimpleNamespace, tmp_path: Path
) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n\nHow.\n\n## conv\n\nkept\n\n## optree\n\nold\n\n## pool\n\nkept too\n")
    session = fake_session(bench, tmp_path, 11.2e-6, 2.6e-6, 0.31)
    session.verdicts = ["a verdict"]
    for _ in range(2):
        bench._report.update_results(session, path)
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("# Results\n\nHow.\n\n## conv\n\nkept\n\n## optree\n")
    assert text.endswith("\n## pool\n\nkept too\n")
    assert text.count("* a verdict\n") == text.count("## optree\n") == 1
    assert "* not installed: torch\n" in text
    header, rule, row = re.findall(r"^\|.*", text.partition("### 64 elements")[2], re.MULTILINE)[:3]
    assert header == "| expression | neonlike assign | neonlike prepared | numpy |"
    assert rule == "|---|---|---|---|"
    assert row == "| `sig(a*b + c)` | 11.2 us; 2.00x | 2.60 us; 1.00x | 5.60 us |"
    assert "| 10.0 ms; 26.8 GB/s, 90%; 0.31x |" in text


def test_a_picture_without_matplotlib_says_what_to_install(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="pip install matplotlib"):
        bench._picture.draw(fake_session(bench, tmp_path, 1e-5, 1e-6, 0.3), tmp_path / "run.png")


def test_the_machine_is_described(bench: SimpleNamespace) -> None:
    facts = bench._machine.describe()
    assert set(facts) >= {"date", "processor", "cores", "memory", "python", "neonlike", *bench._machine.PEERS}
    assert facts["numpy"] == np.__version__
    assert int(facts["cores"]) == bench._machine.cores() >= 1
    share = bench._machine.Others().share()
    assert share is None or 0 <= share


def test_the_harness_by_itself_shows_the_roofline(
    bench: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["harness.py", "--quick"])
    assert bench.harness.main() == 0
    assert "copy on 1 thread" in capsys.readouterr().out


def test_every_subject_has_a_section_of_results() -> None:
    subjects = {path.stem for path in FOLDER.glob("[a-z]*.py")} - {"harness"}
    sections = re.findall(r"^## (\w+)$", (FOLDER / "RESULTS.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert "optree" in subjects
    assert subjects == set(sections)


# First calls ----------------------------------------------------------------------------------------------------


def test_first_calls_are_measured_in_processes_of_their_own(
    bench: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.coldstart, "QUICK_REPEATS", 1)
    path = tmp_path / "cold.json"
    assert bench.coldstart.main(["--quick", "--only", "axpy", "--json", str(path)]) == 0
    (row,) = json.loads(path.read_text())["first_calls"]
    assert row["expression"] == "axpy"
    assert {"compile", "load", "second call", "import", "backend"} <= set(row)
    assert sum(row["parts"].values()) > 0
    out = capsys.readouterr().out
    assert re.search(r"^first call of a new expression: .* \(axpy\).*: (met|MISSED)", out, re.MULTILINE)
    assert re.search(r"^first call of a cached one in a new process: ", out, re.MULTILINE)


def test_every_part_of_a_first_call_is_found() -> None:
    """The functions that are timed are named by text: this fails when one of them is renamed."""
    program = "import json, _first_calls; print(json.dumps(_first_calls.Parts().missing))"
    said = subprocess.run([sys.executable, "-c", program], cwd=FOLDER, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == []


def test_verdicts_of_first_calls(bench: SimpleNamespace) -> None:
    rows = [
        {"expression": "axpy", "compile": 0.2, "load": 0.004},
        {"expression": "adam", "compile": 0.4, "load": 0.006},
    ]
    assert bench.coldstart.verdicts(rows) == [
        "first call of a new expression: at most 400 ms (adam), median 300 ms (target < 500 ms): met",
        "first call of a cached one in a new process: at most 6.00 ms (adam), median 5.00 ms (target < 5.00 ms): "
        "MISSED by 1 of 2",
    ]


def test_a_failing_first_call_says_why(bench: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        bench.coldstart.child(str(tmp_path), "neonlike", "nonsense")
