"""Services that some systems lack: processors of a process, and locks of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neonlike import system

pytestmark = pytest.mark.cpu_only("about the operating system")


def test_own_processors_are_those_that_the_system_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert system.own_processors() == {3, 5}


@pytest.mark.parametrize(("counted", "expected"), [(4, {0, 1, 2, 3}), (None, {0})])
def test_own_processors_are_all_where_the_system_names_none(
    counted: int | None, expected: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert system.own_processors() == expected


@pytest.mark.skipif(not system.has_locks(), reason="files have no locks here")
def test_a_lock_keeps_other_processes_out_until_the_file_is_closed(tmp_path: Path) -> None:
    code = "import sys\nfrom neonlike import system\nsystem.lock(open(sys.argv[1], 'ab'), wait=False)"

    def other() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], capture_output=True, text=True)

    with open(tmp_path / "lock", "ab") as held:
        system.lock(held)
        refused = other()
    assert refused.returncode != 0 and "BlockingIOError" in refused.stderr
    assert other().returncode == 0


def test_without_locks_nothing_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert not system.has_locks()
    with open(tmp_path / "lock", "ab") as one, open(tmp_path / "lock", "ab") as other:
        system.lock(one)
        system.lock(other, wait=False)
