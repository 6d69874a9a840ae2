"""The program of `make test-pythons`: it tries the Pythons that the package names, and tells what it did not run."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.packages import pythons
from tests.packages.pythons import RUNS, Run, find_python, obstacle, oldest_versions, steps

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_supported_python_has_a_run() -> None:
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    assert list(pythons.PYTHONS) == named
    assert f'requires-python = ">={named[0]}"' in PROJECT
    assert {run.python for run in RUNS} == set(named)


def test_the_oldest_versions_are_the_bounds() -> None:
    found = oldest_versions(PROJECT)
    assert [requirement.partition("==")[0] for requirement in found] == ["numpy", "jinja2", "ConfigArgParse"]
    assert all(requirement.replace("==", ">=") in PROJECT for requirement in found)


def test_a_python_is_found_that_runs_and_has_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = "{}.{}".format(*sys.version_info)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_python(here) is None
    shim = tmp_path / f"python{here}"
    shim.write_text("#!/bin/sh\necho no such version >&2\nexit 127\n")
    shim.chmod(0o755)
    assert find_python(here) is None, "a shim that runs nothing"
    for minor in (9, 11):
        home = tmp_path / ".pyenv" / "versions" / f"{here}.{minor}" / "bin"
        home.mkdir(parents=True)
        (home / "python").symlink_to(sys.executable)
    assert find_python(here) == str(tmp_path / ".pyenv" / "versions" / f"{here}.11" / "bin" / "python")
    assert find_python("3.2") is None


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert obstacle(Run("x", "3.10"), {"3.10": None}) == "there is no Python 3.10 here"
    clang = Run("clang", "3.13", variables=(("CC", "no-such-clang"),))
    assert obstacle(clang, {"3.13": sys.executable}) == "there is no no-such-clang here"
    absent = Run("x", "3.13", variables=(("CC", "/nonexistent/cc"),))
    assert obstacle(absent, {"3.13": sys.executable}) == "", "a compiler that does not exist is what is tried"
    monkeypatch.setattr(pythons, "find_python", lambda version: None if version == "3.11" else sys.executable)
    assert pythons.main(["--list"]) == 0
    assert re.search(r"^3\.11 +left out: there is no Python 3\.11 here$", capsys.readouterr().out, re.MULTILINE)
    assert pythons.main(["--list", "--only", "3.11"]) == 1, "what was asked for by name is missing"


def test_a_run_that_fails_is_told_and_is_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = Path(sys.executable)
    monkeypatch.setattr(pythons, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(pythons, "RUNS", (Run("one", "3.12"), Run("other", "3.12", variables=(("CC", "/no"),))))
    monkeypatch.setattr(pythons, "find_python", lambda version: sys.executable)
    monkeypatch.setattr(pythons, "prepare", lambda run, found: python)
    code = "import os, sys; print('3 passed'); sys.exit(os.environ.get('CC') == '/no')"
    monkeypatch.setattr(pythons, "steps", lambda *given: iter([("tests", [sys.executable, "-c", code])]))
    monkeypatch.delenv("CC", raising=False)
    assert pythons.main([]) == 1
    first, second = capsys.readouterr().out.strip().splitlines()[-2:]
    assert re.match(r"one +Python 3\.\d+\.\S+, NumPy \S+: 3 passed; \d+ s", first)
    assert "FAILED in tests: 3 passed" in second
    assert pythons.main(["--only", "one"]) == 0


def test_deprecations_are_errors_and_the_tests_exist() -> None:
    syntax, imports, tests = (command for _, command in steps(Path("python"), RUNS[0], "2", ()))
    for command in (syntax, imports):
        assert {"error::DeprecationWarning", "error::SyntaxWarning"} <= set(command)
    assert all((ROOT / name).exists() for name in tests if name.startswith("tests/"))
    assert os.path.basename(pythons.__file__) in (ROOT / "Makefile").read_text(encoding="utf-8")
