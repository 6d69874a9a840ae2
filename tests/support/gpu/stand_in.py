"""The emulated GPU's nvcc, run in this process: starting a Python for each kernel is a fifth of a kernel's time.

Thousands of kernels are compiled in a run of the tests. g++ stays a process of its own; programs that tests start, and
sources that have to be preprocessed, take the usual way.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import NoReturn

from neonlike.kernels.build import process
from neonlike.kernels.cuda import compile as compile_cuda
from tests.cudaemu import Emulator, nvcc
from tests.cudaemu.cuda_source import SourceError, needs_preprocessor
from tests.cudaemu.toolkit import cuda_include


class Becomes(Exception):
    """Next program of the stand-in: a command, the text that it reads and the file that it makes."""

    def __init__(self, command: list[str], text: str, output: str) -> None:
        super().__init__(command)
        self.command, self.text, self.output = command, text, output


def become(command: list[str], text: str, output: str) -> NoReturn:
    """In place of ``nvcc.become``."""
    raise Becomes(command, text, output)


def use_here(emulator: Emulator) -> None:
    """Have this process compile CUDA kernels so from now on."""
    nvcc.become = become
    run = functools.partial(run_here, str(emulator.folder), str(cuda_include()))
    compile_cuda.compile_files = functools.partial(process.compile_files, run=run)


def run_here(root: str, include: str, command: tuple[str, ...], directory: Path) -> tuple[int, str]:
    """As ``process.run_command`` of ``command``, which is started only if it is not the stand-in on a simple source."""
    sources = [word for word in command if word.endswith(".cu")]
    if command[0] != f"{root}/bin/nvcc" or len(sources) != 1 or os.environ.get("CUEMU_REAL_NVCC"):
        return process.run_command(command, directory)
    path = directory / sources[0]
    if needs_preprocessor(path.read_text(encoding="utf-8"), [str(directory)]):
        return process.run_command(command, directory)
    words = [str(path) if word == sources[0] else word for word in command[1:]]
    try:
        return nvcc.compile_cubin(nvcc.Request(words), root, include), ""
    except Becomes as found:  # with the source's name as the usual way has it, in messages and modules
        command = [word if word != str(directory) else "." for word in found.command]
        return made_by(command, found.text.replace(str(path), sources[0], 1), found.output, directory)
    except (OSError, SourceError) as error:
        return 1, f"nvcc: {sources[0]}: {error}"


def made_by(command: list[str], text: str, output: str, directory: Path) -> tuple[int, str]:
    """Exit status and words of ``command``, which makes ``output``, unless an earlier run of the tests kept it."""
    made, kept = str(directory / output), nvcc.kept_file(command, text)
    if kept and nvcc.copied(kept, made):
        return 0, ""
    status, words = read_by([*command, "-o", output], text, directory)
    if kept and not status:
        nvcc.copied(made, kept)
    return status, words


def read_by(command: list[str], text: str, directory: Path) -> tuple[int, str]:
    """Exit status and words of ``command``, which reads ``text``, as of ``process.run_command``."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=process.TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout
