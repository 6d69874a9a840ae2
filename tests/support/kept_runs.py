"""Compilers that tests run themselves, to read what they say of a source: kept between runs, as kernels are.

The key of an entry is the command, the compiler's version, the processor and every file that the command may read. It
lies in the cache of kernels (tests/support/kept_kernels.py).
"""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.kernels.c.toolchain import _processor

SUFFIX = ".run"


def run_kept(
    command: Sequence[str], folder: Path, *results: str, headers: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a compiler in ``folder``, or repeat what an earlier run of the tests found: output and ``results``.

    Parameters
    ----------
    command : sequence of str
        It reads files in ``folder`` and below ``headers``, and what belongs to the compiler.
    folder : Path
    results : names of files that the command writes
    headers : Path, optional

    Notes
    -----
    Only what succeeded is kept.
    """
    paths = [path for path in folder.iterdir() if path.is_file() and path.name not in results]
    paths += headers.rglob("*.h") if headers else ()
    named = sorted((path.relative_to(headers if headers in path.parents else folder), path) for path in paths)
    files = [part for name, path in named for part in (name.as_posix(), path.read_bytes())]
    key = key_of("test-run", json.dumps([list(command), results]), version(command[0]), _processor(), *files)
    kept = default_cache().read(key, SUFFIX)
    if kept is not None:
        found = json.loads(kept)
        for name, content in found["results"].items():
            (folder / name).write_bytes(base64.b64decode(content))
        return subprocess.CompletedProcess(list(command), 0, found["stdout"], found["stderr"])
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        contents = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in results}
        found = {"stdout": done.stdout, "stderr": done.stderr, "results": contents}
        default_cache().put(key, json.dumps(found).encode(), SUFFIX)
    return done


@functools.cache
def version(program: str) -> str:
    """The path and the version of a compiler, in its own words."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return f"{os.path.realpath(program)} {said.stdout}"
