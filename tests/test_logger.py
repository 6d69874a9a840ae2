"""The logger: messages without a configured logging, and its silence with one."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neonlike.logger import FallbackHandler, log_errors_of, log_to, logger
from tests.support.engines import needs_compiler
from tests.support.logs import nobody_configured_logging


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    handlers, level, filters = logger.handlers[:], logger.level, logger.filters[:]
    yield
    logger.filters[:] = filters
    logger.handlers[:] = handlers
    logger.setLevel(level)


def say_all() -> None:
    for level in ("info", "warning", "display", "error"):
        getattr(logger, level)("one %s", level)


def test_warnings_and_displays_are_shown_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_configured_logging():
        say_all()
    assert capsys.readouterr().err == "WARNING: one warning\none display\nERROR: one error\n"


def test_a_level_chosen_later_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    logger.setLevel("INFO")
    with nobody_configured_logging():
        logger.info("hello")
    assert capsys.readouterr().err == "INFO: hello\n"


@pytest.mark.parametrize("place", ["root", "neon"])
def test_handlers_of_the_application_get_each_line_once(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    with nobody_configured_logging():
        owner = logging.getLogger(None if place == "root" else place)
        owner.addHandler(handler)
        try:
            say_all()
        finally:
            owner.removeHandler(handler)
    assert lines == ["one warning", "one display", "one error"]
    assert capsys.readouterr().err == ""


def test_ranks_but_the_first_log_their_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with nobody_configured_logging():
        log_errors_of(2)
        log_errors_of(3)
        say_all()
        logger.error("%d%%", 100)
        logger.critical("the end")
        shown = capsys.readouterr().err
        log_errors_of(0)
        say_all()
    assert shown == "ERROR: rank 3: one error\nERROR: rank 3: 100%\nCRITICAL: rank 3: the end\n"
    assert capsys.readouterr().err == "WARNING: one warning\none display\nERROR: one error\n"


def test_loggers_below_and_caplog_get_it(caplog: pytest.LogCaptureFixture) -> None:
    logger.warning("from the top")
    logging.getLogger("neon.below").warning("from below")
    assert [record.getMessage() for record in caplog.records] == ["from the top", "from below"]


def test_a_log_file_is_not_somebody_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (logging.FileHandler(tmp_path / name) for name in ("first", "second"))
    with nobody_configured_logging():
        log_to(first)
        logger.warning("to both")
        log_to(second, logging.ERROR)
        logger.warning("to the file")
        log_to(None)
    assert capsys.readouterr().err == "WARNING: to both\n"
    assert (tmp_path / "first").read_text() == "to both\n" and (tmp_path / "second").read_text() == "to the file\n"
    assert [type(handler) for handler in logger.handlers] == [FallbackHandler]


COMPUTE = """
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu")
out = be.empty((2, 3))
for _ in range(3):
    out[:] = be.ones((2, 3)) * 2
gen_backend("cpu")
print(int(out.get().sum()))
"""


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CC": "/nonexistent"}, "CC=/nonexistent does not work as a C compiler (there is no such command)"),
        ({"CC": "/bin/false"}, "CC=/bin/false does not work as a C compiler"),
        ({"CC": "gcc '"}, "CC=gcc ' does not work as a C compiler (No closing quotation)"),
        ({"NEONLIKE_CACHE_DIR": "/dev/null/kernels"}, "kernel cache: /dev/null/kernels is not used: it cannot be made"),
    ],
)
def test_what_makes_a_program_slow_is_said_once(
    variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "CC" not in variables:
        needs_compiler()
    monkeypatch.setenv("NEONLIKE_FASTPATH", "0")
    monkeypatch.setenv("NEONLIKE_CPU_JIT", "1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", COMPUTE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"WARNING: {words}")


def test_what_was_set_before_the_import_stays() -> None:
    code = """
import logging, sys
neon = logging.getLogger("neon")
neon.setLevel(logging.DEBUG)
neon.addHandler(handler := logging.StreamHandler(sys.stdout))
import neonlike
neonlike.logger.debug("debugged")
neonlike.logger.removeHandler(handler)
neonlike.logger.debug("by ours")
logging.basicConfig(stream=sys.stdout, format="root %(message)s")
neonlike.display("shown")
assert neonlike.logger.level == logging.DEBUG and neonlike.logger.propagate
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "debugged\nroot shown\n", "DEBUG: by ours\n")
