"""Tests that compare with other libraries run by `make test-peers`, and are skipped where a library is missing."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.peers import REQUIRE_VARIABLE, find_peers

ROOT = Path(__file__).resolve().parent.parent
NEEDS_A_GPU = {"backends/gpu/tensors/test_peers.py"}
"""Files of tests that share memory with other libraries on a real GPU: `make gpu-check` runs them."""


def marked(*names: str) -> Any:
    """A test with a mark ``peers`` for each of the libraries."""
    return SimpleNamespace(iter_markers=lambda name: [pytest.mark.peers(each).mark for each in names])


def test_a_test_runs_where_its_libraries_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find_peers(marked("numpy", "json"))
    monkeypatch.delenv(REQUIRE_VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="compares with no_such_library, which make test-peers has"):
        find_peers(marked("numpy", "no_such_library"))
    monkeypatch.setenv(REQUIRE_VARIABLE, "1")
    with pytest.raises(pytest.fail.Exception, match="no_such_library"):
        find_peers(marked("no_such_library"))


def test_tests_that_import_other_libraries_are_marked() -> None:
    imports = re.compile(r"^ *import (?:torch|jax|keras)$|importorskip\(\"(?:torch|jax|keras)\"", re.MULTILINE)
    paths = {path.relative_to(ROOT / "tests").as_posix(): path for path in (ROOT / "tests").rglob("test_*.py")}
    found = {name for name, path in paths.items() if imports.search(path.read_text(encoding="utf-8"))}
    assert len(found) > 5 and NEEDS_A_GPU < found
    unmarked = {name for name in found if 'mark.peers("' not in paths[name].read_text(encoding="utf-8")}
    assert unmarked - {Path(__file__).name} == NEEDS_A_GPU


def test_make_runs_them_in_an_environment_of_its_own() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "test-peers", "PYTEST_ARGS="], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (command,) = [line for line in said.stdout.splitlines() if "-m pytest" in line]
    words = shlex.split(command)
    assert words[:2] == [f"{REQUIRE_VARIABLE}=1", ".venv-peers/bin/python"] and words[-2:] == ["-m", "peers"]
