"""Fixtures of the tests that compile: a cache of their own, a compiler that is watched, a fresh process."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from neonlike.kernels.build import cache as cache_module
from neonlike.kernels.build.cache import key_of
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import toolchain
from neonlike.kernels.c.toolchain import Compiler, _processor, find_compiler
from neonlike.logger import logger
from tests.support.kept_kernels import OF_COMPILERS
from tests.support.kept_runs import version

SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and nothing remembered of earlier tests but the machine's compiler."""
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("NEONLIKE_CPU_JIT", "NEONLIKE_KEEP_SOURCE", "NEONLIKE_CACHE_MB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compile_c.DRIVER, "loaded", {})
    monkeypatch.setattr(toolchain, "_unconfirmed", {})
    return tmp_path / "cache"


@pytest.fixture
def compiler() -> Compiler:
    found = find_compiler()
    if found is None:
        pytest.skip("there is no C compiler on this machine")
    return found


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """The library's warnings, as text."""
    texts: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    yield texts
    logger.removeHandler(handler)


SOON = 'case "$*" in *fastpath.c*) set -- "$@" -O0;; esac'
"""Shell text of a compiler that makes the extension soon; to optimise it takes seconds."""


KEEPING = """
made= last=
for word; do [ "$last" = -o ] && made=$word; last=$word; done
[ -n "$made" ] || exec {command} "$@"
files=$(find . -type f | LC_ALL=C sort)
words() {{ printf '%s\\n' {identity} "$@" "$files" | sed "s|${{made%.*}}|made|g"; }}
key=$({{ words "$@"; cat $files; }} | sed "s|$0|cc|g" | sha256sum)
key=${{key%% *}}
kept={folder}/${{key%${{key#??}}}}/cc_$key.so
cp "$kept" "$made" 2>/dev/null && exec touch "$kept"
{command} "$@" || exit
mkdir -p "${{kept%/*}}" && cp "$made" "$kept.$$" && mv "$kept.$$" "$kept"
"""


def keeping(compiler: Compiler) -> str:
    """Shell text that runs ``compiler``, or repeats what an earlier run of the tests made of the same files.

    Whoever started it sees no difference but the time. What failed is not kept. A kernel's text names the compiler, and
    its file has a digest of that name; it is one kernel whatever this script is called. A text that names its
    function is another one for each name, which the library has.
    """
    if shutil.which("sha256sum") is None:
        return f'exec {shlex.join(compiler.command)} "$@"\n'
    identity = key_of(*map(version, compiler.command[:1]), _processor())
    folder = shlex.quote(os.environ[OF_COMPILERS])
    return KEEPING.format(command=shlex.join(compiler.command), identity=identity, folder=folder)


class Wrapper:
    """A compiler that writes down each of its calls; ``before`` is shell text run first."""

    def __init__(self, folder: Path, compiler: Compiler) -> None:
        self.path = folder / "wrapped-cc"
        self.log = folder / "calls"
        self.compiler = compiler
        self.write()

    def write(self, before: str = "") -> None:
        script = f'#!/bin/sh\necho "$*" >> {shlex.quote(str(self.log))}\n{before}\n'
        script += f"{SOON}\n{keeping(self.compiler)}"
        # Never in place: the kernel refuses to run a script that is open for writing.
        temporary = self.path.with_suffix(".new")
        temporary.write_text(script)
        temporary.chmod(0o755)
        os.replace(temporary, self.path)

    def calls(self) -> list[str]:
        """Calls of the wrapper since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def wrapper(tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Wrapper:
    """CC is a script around the machine's compiler."""
    wrapper = Wrapper(tmp_path, compiler)
    monkeypatch.setenv("CC", str(wrapper.path))
    return wrapper


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a new process began."""
    for owner, name in ((compile_c.DRIVER, "loaded"), (toolchain, "_found"), (toolchain, "_unconfirmed")):
        monkeypatch.setattr(owner, name, {})
    monkeypatch.setattr(cache_module, "_caches", {})


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
