"""The benchmarks report in the formats they promise, and judge themselves by their targets."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.modules import FOLDER, bench  # noqa: F401

# Reports --------------------------------------------------------------------------------------------------------


def test_sizes_and_times_as_text(bench: Any) -> None:
    for text, size in {"64": 64, "4k": 4096, "16M": 1 << 24, "1000": 1000}.items():
        assert bench._cases.parse_size(text) == size
        assert bench._cases.size_text(size) == text
    shown = [bench._cases.time_text(seconds) for seconds in (5e-9, 1.234e-6, 56.78e-6, 0.123456, 2.0)]
    assert shown == ["5 ns", "1.23 us", "56.8 us", "123 ms", "2.00 s"]


def fake_session(bench: Any, tmp_path: Path, assign: float, prepared: float, ratio: float) -> Any:
    """A session with the three results that the targets are about."""
    session = bench.harness.Session.__new__(bench.harness.Session)
    make = bench.harness.Result
    session.subject, session.command = "expressions", "python benchmarks/expressions.py"
    session.options = argparse.Namespace(json=tmp_path / "made" / "run.json", picture=None, results=False)
    session.machine, session.copy, session.verdicts = {"processor": "a|b"}, {"copy on 1 thread": 10.0}, []
    session.skipped, session.tables, session.more, session.beside = [], {}, {}, []
    session.effort, session.others = bench.shortest, SimpleNamespace(share=lambda: 0.5)
    session.form = bench._report.Form()
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


def test_the_targets_at_64_elements(bench: Any, tmp_path: Path) -> None:
    ours = {"neonlike assign": 6.9e-6, "neonlike prepared": 2.1e-6, "numpy": 2.5e-6}
    assert bench.expressions.verdicts(run_of(bench, tmp_path, ("sigmoid", 64, ours, 0.0))) == [
        "64 elements, sigmoid, assign: 6.90 us, 2.76 of NumPy's time (target < 2.8): met",
        "64 elements, sigmoid, prepared: 2.10 us, 0.84 of NumPy's time (target < 0.8): MISSED",
    ]


def test_the_targets_of_large_cases(bench: Any, tmp_path: Path) -> None:
    session = run_of(
        bench, tmp_path,
        ("axpy", 1 << 20, seconds(1.0, numpy=4.0, torch_compile=2.0, jax=0.8), 0.95),
        ("mask", 1 << 20, seconds(1.0, numpy=9.0, torch_compile=0.95), 0.85),
        ("axpy", 1 << 24, seconds(1.0, numpy=4.0, torch_compile=3.0), 0.95),
    )  # fmt: skip
    assert bench.expressions.verdicts(session) == [
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


def test_the_end_of_a_run(bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_section_of_the_results_is_replaced_and_the_rest_stays(
    bench: Any, tmp_path: Path
) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n\nHow.\n\n## conv\n\nkept\n\n## expressions\n\nold\n\n## pool\n\nkept too\n")
    session = fake_session(bench, tmp_path, 11.2e-6, 2.6e-6, 0.31)
    session.verdicts = ["a verdict"]
    for _ in range(2):
        bench._report.update_results(session, session.form, path)
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("# Results\n\nHow.\n\n## conv\n\nkept\n\n## expressions\n")
    assert text.endswith("\n## pool\n\nkept too\n")
    assert text.count("* a verdict\n") == text.count("## expressions\n") == 1
    assert "* not installed: torch\n" in text
    header, rule, row = re.findall(r"^\|.*", text.partition("### 64 elements")[2], re.MULTILINE)[:3]
    assert header == "| expression | neonlike assign | neonlike prepared | numpy |"
    assert rule == "|---|---|---|---|"
    assert row == "| `sig(a*b + c)` | 11.2 us; 2.00x | 2.60 us; 1.00x | 5.60 us |"
    assert "| 10.0 ms; 26.8 GB/s, 90%; 0.31x |" in text


def test_a_picture_without_matplotlib_says_what_to_install(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="pip install matplotlib"):
        bench._pictures.draw_bandwidth(fake_session(bench, tmp_path, 1e-5, 1e-6, 0.3), tmp_path / "run.png")


def test_the_machine_is_described(bench: Any) -> None:
    facts = bench._machine.describe()
    assert set(facts) >= {"date", "processor", "cores", "memory", "python", "neonlike", *bench._machine.PEERS}
    assert facts["numpy"] == np.__version__
    assert int(facts["cores"]) == bench._machine.cores() >= 1
    share = bench._machine.Others().share()
    assert share is None or 0 <= share


def test_the_harness_by_itself_shows_the_roofline(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["harness.py", "--quick"])
    assert bench.harness.main() == 0
    assert "copy on 1 thread" in capsys.readouterr().out


def test_every_subject_has_a_section_of_results() -> None:
    without = {"harness", "versus", "front_page", "gpu"}  # gpu has a file of its own, the others measure no subject
    subjects = {path.stem for path in FOLDER.glob("[a-z]*.py")} - without
    sections = re.findall(r"^## (\w+).*$", (FOLDER / "RESULTS.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert "expressions" in subjects
    assert subjects == set(sections) - without


def test_no_script_hides_a_package() -> None:
    """A script's folder comes first on the path: libraries would import the script, as PyTorch did one named optree."""
    scripts = {path.stem for path in FOLDER.glob("*.py")}
    assert "harness" in scripts
    assert not scripts & ({"optree", "torch", "jax", "keras"} | set(packages_distributions()))


# First calls ----------------------------------------------------------------------------------------------------


def test_first_calls_are_measured_in_processes_of_their_own(
    bench: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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


def test_verdicts_of_first_calls(bench: Any) -> None:
    rows = [
        {"expression": "axpy", "compile": 0.2, "load": 0.004},
        {"expression": "adam", "compile": 0.4, "load": 0.006},
        {"expression": "fprop_bn", "compile": 0.4, "load": 1.0},
        {"expression": "fprop_conv", "compile": 2.6, "load": 1.0},
    ]
    words = [
        "first call of a new expression: at most 400 ms (adam), median 300 ms (target < 500 ms): met",
        "first call of a cached one in a new process: at most 6.00 ms (adam), median 5.00 ms (target < 5.00 ms): "
        "MISSED by 1 of 2",
        "first call of a primitive: at most 2.60 s (fprop_conv), median 1.50 s (target < 2.50 s): MISSED by 1 of 2",
    ]
    assert bench.coldstart.verdicts(rows) == words
    assert bench.coldstart.verdicts(rows[:2]) == words[:2] and bench.coldstart.verdicts(rows[2:]) == words[2:]


def test_a_first_call_of_a_primitive_is_measured(bench: Any, tmp_path: Path) -> None:
    found = bench.coldstart.child(str(tmp_path), "neonlike", "fprop_pool max")
    assert found["first"] > found["second"] > 0
    assert "fprop_pool max" in bench.coldstart.parse([]).chosen


def test_a_failing_first_call_says_why(bench: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        bench.coldstart.child(str(tmp_path), "neonlike", "nonsense")
