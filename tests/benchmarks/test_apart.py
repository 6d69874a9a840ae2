"""The benchmarks run contenders in processes of their own, which stand still in between. Nothing looks at a time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks.modules import FOLDER, Here, bench  # noqa: F401

SCRIPT = f"""
import os, sys
sys.path.insert(0, {str(FOLDER)!r})
import _apart, numpy as np
from _cases import Case, Contender

*before, option, name = sys.argv[1:]

def make(size, factor):
    print("what a library prints")
    if factor == 0:
        raise ValueError("no factor")
    if factor < 0:
        os._exit(3)
    runs = []
    value = np.full(2, factor)
    made = Contender(name, lambda: runs.append(1), lambda: [value], ours=name == "we")
    return Case("ones", f"1 x {{size}}", size, [made], lambda: [np.ones(2)], 8)

sys.exit(_apart.serve(_apart.Desk(make, {{name: f"{{before}} {{option}}"}})))
"""


@pytest.fixture
def child(bench: Any, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Starts the processes of contenders."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    started: list[Any] = []

    def start(name: str) -> Any:
        started.append(bench._apart.Child(name, script, ["--quick"]))
        return started[-1]

    yield start
    for process in started:
        process.close()


def state(process: Any) -> str:
    """State of a process from /proc; T is stopped."""
    text = Path(f"/proc/{process.process.pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0]


def test_processes_are_checked_and_measured(bench: Any, child: Any) -> None:
    with bench._apart.Apart(["we", "they", "wrong"], child) as apart:
        assert apart.facts == {name: "['--quick'] --child" for name in ("we", "they", "wrong")}
        case = apart.case(64, 1.0)
        assert (case.name, case.text, case.size, case.nbytes) == ("ones", "1 x 64", 64, 8)
        assert all(contender.elapsed(3) >= 0 for contender in case.contenders)
        found = {r.contender: r for r in bench.harness.run_case(case, bench.shortest, baseline="they")}
        assert list(found) == ["we", "they", "wrong"]
        assert all(len(r.samples) == 2 and r.ratio > 0 for r in found.values())
        wrong = bench.harness.run_case(apart.case(64, 1.1), bench.shortest)
        assert all("wrong: error 1.0e-01" in r.note and r.median is None for r in wrong)
        assert [r.wrong for r in wrong] == [True, False, False]


def test_what_failed_in_a_process_is_told(bench: Any, child: Any) -> None:
    with bench._apart.Apart(["we"], child) as apart:
        with pytest.raises(RuntimeError, match=r"(?s)we could not check \(64, 0\).*ValueError: no factor"):
            apart.case(64, 0)
        assert [c.name for c in apart.case(64, 1).contenders] == ["we"], "it goes on"
        with pytest.raises(RuntimeError, match=r"the process of we ended with status 3 at check \(64, -1\)"):
            apart.case(64, -1)


def test_all_end_where_one_does_not_start(bench: Any, child: Any) -> None:
    started: list[Any] = []

    def start(name: str) -> Any:
        if name == "they":
            raise OSError("no process")
        started.append(child(name))
        return started[-1]

    with pytest.raises(OSError, match="no process"):
        bench._apart.Apart(["we", "they"], start)
    assert started[0].process.returncode == 0


def becomes(process: Any, wanted: str) -> bool:
    """Whether a process comes into a state within some seconds."""
    for _ in range(1000):
        if state(process) == wanted:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_who_is_not_asked_stands_still(child: Any) -> None:
    process = child("we")
    assert process.ask("facts")
    assert becomes(process, "T")
    assert process.ask("facts"), "it goes on when asked"


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_the_busy_process_runs_only_when_it_is_let_go_on(bench: Any) -> None:
    busy = bench._apart.Busy()
    try:
        assert becomes(busy, "T")
        busy.go_on()
        assert becomes(busy, "R")
        busy.rest()
        assert becomes(busy, "T")
    finally:
        busy.close()
    assert busy.process.returncode is not None


@pytest.mark.skipif(sys.platform != "linux", reason="others do not tell who has lost its parent")
def test_processes_end_with_a_script_that_is_killed(child: Any, tmp_path: Path) -> None:
    """Also those that stand still, which do not see that their pipe was closed."""
    program = tmp_path / "killed.py"
    program.write_text(f"""
import os, sys
sys.path.insert(0, {str(FOLDER)!r})
import _apart
child, busy = _apart.Child("we", {str(tmp_path / "script.py")!r}, []), _apart.Busy()
child.ask("facts")
print(child.process.pid, busy.process.pid, flush=True)
os.kill(os.getpid(), 9)
""")
    said = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    pids = said.stdout.split()
    assert len(pids) == 2, said.stderr
    for _ in range(1000):
        if not any(alive(pid) for pid in pids):
            break
        time.sleep(0.01)
    assert [pid for pid in pids if alive(pid)] == []


def alive(pid: str) -> bool:
    """Whether a process runs or stands still; one that has ended and was not waited for does neither."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_process_gets_the_environment_of_the_user(
    bench: Any, child: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is not the one that a library set in the measuring process."""
    monkeypatch.setitem(bench._apart.ENVIRONMENT, "GIVEN_BY_THE_USER", "1")
    monkeypatch.setenv("SET_BY_A_LIBRARY", "1")
    process = child("we")
    assert process.ask("facts"), "it runs"
    environ = dict(
        line.split("=", 1)
        for line in Path(f"/proc/{process.process.pid}/environ").read_text().split("\0")
        if "=" in line
    )
    assert environ["GIVEN_BY_THE_USER"] == "1"
    assert "SET_BY_A_LIBRARY" not in environ


def test_a_case_is_given_up_before_the_next_one(bench: Any) -> None:
    """Else everyone's operands of two cases are in memory."""
    order: list[str] = []
    desks = {}

    def start(name: str) -> Here:
        def make() -> Any:
            order.append(f"{name} makes, {sum(desk._able is not None for desk in desks.values())} kept")
            value = np.ones(1)
            made = bench._cases.Contender(name, lambda: None, lambda: [value])
            return bench._cases.Case("one", "1", 1, [made], lambda: [value], 4)

        desks[name] = bench._apart.Desk(make)
        return Here(nullcontext(desks[name]))

    with bench._apart.Apart(["a", "b"], start) as apart:
        apart.case()
        apart.case()
    assert order == ["a makes, 0 kept", "b makes, 1 kept"] * 2
