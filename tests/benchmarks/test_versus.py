"""The comparison of two versions: nothing looks at how long anything takes but at made-up times."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks.modules import FOLDER, bench  # noqa: F401


@pytest.fixture
def versus(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with the shortest of measurements."""
    monkeypatch.setattr(bench.versus, "QUICK", bench.shortest)
    return bench.versus


class TimesOf:
    """Stands for the processes of both versions: each check of a case takes the next of the times before."""

    def __init__(self, bench: Any, before: list[float | None]) -> None:
        self.bench, self.before, self.checked = bench, before, 0

    def case(self, *key: Any) -> Any:
        """Now takes a second a call."""
        cases, seconds = self.bench._cases, self.before[self.checked]
        self.checked += 1
        able = [cases.Contender("now", int, list, elapsed=lambda loops: 1.0 * loops)]
        found = [cases.Result(key[0], "", 1, "now"), cases.Result(key[0], "", 1, "before")]
        if seconds is None:
            found[1].note = "failed: it has no such operation"
        else:
            able.append(cases.Contender("before", int, list, elapsed=lambda loops: seconds * loops))
        return cases.Case(key[0], "", 1, able, list, 8, checked=found)


@pytest.mark.parametrize(
    ("before", "ratio", "checks"),
    [([1.5], 1.5, 1), ([0.98], 0.98, 1), ([0.5, 1.2, 1.1], 1.1, 3), ([0.5, 0.9, 1.1], 0.9, 3), ([None], None, 1)],
)
def test_what_seems_slower_is_measured_again(
    bench: Any, versus: Any, before: list[float | None], ratio: float | None, checks: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    session = SimpleNamespace(effort=bench.shortest, beside=[], say=print)
    times = TimesOf(bench, before)
    planned = versus.Planned("conv", "neonlike", ("alexnet conv1", 32, "fprop"))
    found = versus.compare(session, times, planned)
    assert times.checked == checks
    assert found == (None if ratio is None else pytest.approx(ratio))
    said = capsys.readouterr().out
    assert said.startswith("conv: alexnet conv1, 32, fprop  ")
    assert said.rstrip().endswith("  slower") == (ratio is not None and ratio < versus.LEAST)
    assert ("before: failed: it has no such operation" in said) == (ratio is None)


def test_the_verdict_names_what_became_slower(versus: Any) -> None:
    ratios = {
        versus.Planned("conv", "neonlike", ("a", 32, "fprop")): 2.0,
        versus.Planned("conv", "neonlike", ("b", 32, "fprop")): 0.5,
        versus.Planned("expressions", "neonlike prepared", ("adam", 64, False)): 0.97,
    }
    first, second, *slower = versus.verdicts(ratios)
    assert first == "conv: 1.000 times as fast as before on the geometric mean of 2 cases; 1 more than 3% slower"
    assert second.startswith("expressions: 0.970 times as fast as before")
    assert second.endswith("; 0 more than 3% slower")
    assert slower == ["    conv: b, 32, fprop: 0.50"]


def test_every_subject_has_its_cases(versus: Any) -> None:
    planned = list(versus.schedule(versus.parse([str(FOLDER.parent), "--quick"])))
    assert {case.subject for case in planned} == set(versus.SUBJECTS)
    assert len({case.title for case in planned}) == len(planned)
    chosen = list(versus.schedule(versus.parse([str(FOLDER.parent), "gemm", "expressions", "--only", "fc,adam"])))
    assert {case.subject for case in chosen} == {"gemm", "expressions"}
    assert all("fc" in case.title or "adam" in case.title for case in chosen)


def test_this_version_against_itself(versus: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In processes of their own, one of which finds the package by the folder it was given."""
    (tmp_path / "neonlike").symlink_to(FOLDER.parent / "neonlike")
    given = [str(tmp_path), "gemm", "expressions", "--quick", "--only", "googlenet fc,add"]
    assert versus.main([*given, "--before", "NEONLIKE_CONTRACT=1"]) == 0
    out = capsys.readouterr().out
    assert f"before     {tmp_path.name} NEONLIKE_CONTRACT=1" in out
    line = next(line for line in out.splitlines() if line.startswith("gemm: googlenet fc, 32, fprop"))
    assert float(line.removesuffix("  slower").split()[-1]) > 0
    assert "gemm: " in out and "times as fast as before on the geometric mean of 3 cases" in out


def test_a_version_that_does_not_start_is_named(
    versus: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "neonlike"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('this version is broken')\n")
    assert versus.main([str(tmp_path), "gemm", "--quick", "--only", "googlenet fc"]) == 2
    assert "nothing to compare: the process of before ended with status 1 at facts" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        versus.main([str(tmp_path / "none")])
    assert "is no checkout: it has no folder neonlike" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        versus.main([str(tmp_path), "gemm", "--only", "fc;conv"])
    assert "no case of gemm has fc;conv in its title" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        versus.main([str(tmp_path), "gemm", "--before", "CONTRACT"])
    assert "'CONTRACT' is no NAME=VALUE" in capsys.readouterr().err
