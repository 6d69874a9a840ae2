"""The command `neonlike` and the other programs: versions, help, and readers that go away."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from neonlike import console
from neonlike.__main__ import main
from neonlike.version import __version__
from tests import ROOT


def run_cut_off(*command: str) -> tuple[int, str]:
    """Status and error stream of a Python program whose output nobody reads."""
    read, write = os.pipe()
    program = subprocess.Popen(
        [sys.executable, *command], stdout=write, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "NEONLIKE_CPU_JIT": "0"},  # on machines without a compiler a line would say so
    )  # fmt: skip
    os.close(write)
    os.close(read)
    _, said = program.communicate(timeout=120)
    return program.returncode, said


@pytest.mark.parametrize(
    "command",
    [("-m", "neonlike", "doctor"), ("-m", "neonlike.compat", "--list"), ("examples/optree_tour.py",)],
    ids=["doctor", "compat", "tour"],
)
def test_a_reader_that_goes_away_is_no_error_worth_words(command: tuple[str, ...]) -> None:
    assert run_cut_off(*command) == (1, "")


def test_a_broken_pipe_of_the_program_itself_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def write_to_nobody() -> None:
        ours, theirs = socket.socketpair()
        theirs.close()
        with ours:
            ours.sendall(b"hello")

    with capsys.disabled(), pytest.raises(BrokenPipeError):
        console.run(write_to_nobody)


@pytest.mark.parametrize(("result", "status"), [(3, 3), (0, 0), (None, 0), (0.97, 0), (True, 0)])
def test_the_status_is_an_int_that_the_program_returns(result: object, status: int) -> None:
    assert console.run(lambda: result) == status


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"neonlike {__version__}\n")


@pytest.mark.parametrize(
    ("started_as", "name"), [("/usr/bin/neonlike", "neonlike"), ("/x/neonlike/__main__.py", "python -m neonlike")]
)
def test_help_names_the_command_as_it_was_typed(
    started_as: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [started_as])
    with pytest.raises(SystemExit):
        main(["--help"])
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


def test_a_setting_that_makes_no_sense_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEONLIKE_CACHE_MB", "lots")
    assert main(["cache"]) == 1
    assert "neonlike cache: NEONLIKE_CACHE_MB=lots: expected a number" in capsys.readouterr().err
