"""Compilers as processes: how one is run, and files compiled in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

TIMEOUT_S = 300.0
"""A compiler that takes longer is stopped and counts as one that failed."""


class CompilerRefused(Exception):
    """The compiler or the loader refused; the text is its words. Users see a KernelCompileError instead."""


class Runs(Protocol):
    """Starts a compiler; :func:`run_command`, or the like of it with an environment of its own."""

    def __call__(self, command: tuple[str, ...], directory: Path) -> tuple[int, str]: ...


def run_command(
    command: tuple[str, ...], directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit status and output of a command; 127 if it cannot be started or does not end in time."""
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C is for this process; a compiler that dies of it looks like a broken one
        )
    except OSError as error:
        return 127, str(error)
    with process:
        try:
            words, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            _end(process)
            return 127, str(error)
        except BaseException:
            _end(process)
            raise
    return process.returncode, words


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process and what it started, as compilers do: that would go on, and hold what it writes to open."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def compile_files(command: tuple[str, ...], files: Mapping[str, str], result: str, run: Runs = run_command) -> bytes:
    """The content of the file ``result`` that ``command`` makes of ``files`` in a directory of its own.

    Parameters
    ----------
    command : tuple of str
        Names the files relative to the directory it runs in.
    files : mapping of name to text
        Names may have folders.
    result : str
    run : callable, optional

    Raises
    ------
    CompilerRefused
        With what the compiler printed.
    OSError
        The temporary directory cannot be written.
    """
    directory = Path(tempfile.mkdtemp(prefix="neonlike-cc-"))  # TemporaryDirectory's end a forked child would run too
    try:
        for name, text in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8")
        failed, words = run(command, directory)
        if failed or not (directory / result).is_file():
            raise CompilerRefused(words.strip() or f"exit status {failed} without a word")
        return (directory / result).read_bytes()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
