"""Compilers as processes: execution, and compilation of files in a temporary directory."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import subprocess

TIMEOUT_S = 300.0
"""Seconds after which a compiler is stopped and counts as failed."""


class CompilerRefused(Exception):
    """The compiler or the loader failed; the text is its output. Users see a KernelCompileError instead."""


class Runs(Protocol):
    """Runs a compiler; :func:`run_command`, or an equivalent with another environment."""

    def __call__(self, command: tuple[str, ...], directory: Path) -> tuple[int, str]: ...


def run_command(
    command: tuple[str, ...], directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command and return exit status and output; 127 if it cannot be started or exceeds the time limit.

    Parameters
    ----------
    command : tuple of str
    directory : Path, optional
        Where it runs.
    environment : mapping, optional
        None: this process's.
    """
    import subprocess

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
            start_new_session=True,  # Ctrl-C is for this process; a compiler killed by it would look broken
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
    """Kill a process and its children: they would continue, and hold their outputs open."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def compile_files(command: tuple[str, ...], files: Mapping[str, str], result: str, run: Runs = run_command) -> bytes:
    """Run ``command`` on ``files`` in a temporary directory and return the content of the file ``result``.

    Parameters
    ----------
    command : tuple of str
        Names the files relative to its working directory.
    files : mapping of name to text
        Names may include folders.
    result : str
    run : callable, optional

    Raises
    ------
    CompilerRefused
        With the compiler's output.
    OSError
        The temporary directory cannot be written.
    """
    directory = Path(tempfile.mkdtemp(prefix="neonlike-cc-"))  # a fork would run TemporaryDirectory's cleanup
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
