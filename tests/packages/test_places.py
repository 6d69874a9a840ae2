"""Places where the library runs: homes that cannot be written or do not exist, odd paths, no compiler, clang."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from neonlike.kernels.c.toolchain import SUFFIX
from tests.packages.scripts import USE, run_script
from tests.support.engines import needs_compiler

pytestmark = pytest.mark.cpu_only("starts processes on the CPU")

HOMELESS = """
import pwd
def unknown(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = unknown
"""
"""The user is in no list, as in a container that runs under any number."""
NOT_KEPT = "kernels are compiled into a temporary directory and not kept"


def closed_folder(tmp_path: Path) -> str:
    """A folder in which nothing can be made; root may write everywhere but where the kernel itself makes the files."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        if not os.path.isdir("/proc/self"):
            pytest.skip("root may write to every folder here")
        return "/proc"
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    return str(folder)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of a process are compiled, quickly, and the extension is not."""
    needs_compiler()
    for name, value in (("NEONLIKE_CPU_JIT", "1"), ("NEONLIKE_OPTIMIZE", "1"), ("NEONLIKE_FASTPATH", "0")):
        monkeypatch.setenv(name, value)


@pytest.fixture
def numpy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_CPU_JIT", "0")


ONE_KERNEL = """
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu")
out = be.empty((2, 2))
out[:] = be.ones((2, 2)) * 2 + 1
assert (out.get() == 3).all()
from neonlike.__main__ import main
print("engine", be.engine.name, "cache", main(["cache"]), "doctor", main(["doctor"]))
"""


@pytest.mark.parametrize("home", ["unknown", "gone", "closed"])
def test_a_home_that_cannot_be_used(home: str, compiled: None, tmp_path: Path) -> None:
    """Kernels are compiled into a temporary folder, with one line that says so; commands work or say why not."""
    value = {"unknown": None, "gone": "/dev/null/home", "closed": closed_folder(tmp_path)}[home]
    text = HOMELESS * (home == "unknown") + ONE_KERNEL
    done = run_script(text, HOME=value, XDG_CACHE_HOME=None, NEONLIKE_CACHE_DIR=None)
    assert done.returncode == 0, done.stderr
    assert "engine c cache" in done.stdout
    assert done.stderr.lower().count(NOT_KEPT) == 1, done.stderr


def test_a_home_that_does_not_exist_is_made_where_it_may_be(compiled: None, tmp_path: Path) -> None:
    done = run_script(ONE_KERNEL, HOME=str(tmp_path / "new"), XDG_CACHE_HOME=None, NEONLIKE_CACHE_DIR=None)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "new").rglob("*/neonlike*"))
    assert NOT_KEPT not in done.stderr.lower()


def test_a_closed_folder_of_kernels(compiled: None, tmp_path: Path) -> None:
    closed = closed_folder(tmp_path)
    done = run_script(ONE_KERNEL, NEONLIKE_CACHE_DIR=os.path.join(closed, "cache"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.lower().count(NOT_KEPT) == 1 and closed in done.stderr


@pytest.mark.parametrize("engine", ["numpy", "c"])
def test_paths_with_spaces_and_umlauts(engine: str, compiled: None, tmp_path: Path) -> None:
    """Home, temporary files, kernels and model have such paths."""
    place = tmp_path / "Größe 5 – Ünïcode (ä) 'x'"
    (place / "tmp").mkdir(parents=True)
    done = run_script(
        USE, place / "my model.prm", HOME=str(place), TMPDIR=str(place / "tmp"), XDG_CACHE_HOME=None,
        NEONLIKE_CACHE_DIR=None, NEONLIKE_CPU_JIT="01"[engine == "c"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"engine {engine} files my model.prm my model_")
    assert bool(list(place.glob(".cache/neonlike/*/*")) or list(place.glob("Library/*/*/*"))) == (engine == "c")
    assert NOT_KEPT not in done.stderr.lower()


@pytest.mark.parametrize(("compiler", "path"), [("/nonexistent/cc", None), (None, "empty")])
def test_no_compiler(compiler: str | None, path: str | None, tmp_path: Path) -> None:
    """A compiler that does not exist, and none on PATH: NumPy computes, and one line says how to get a compiler."""
    (tmp_path / "empty").mkdir()
    where = str(tmp_path / "empty") if path else os.environ["PATH"]
    done = run_script(USE, tmp_path / "model.prm", CC=compiler, PATH=where, NEONLIKE_CPU_JIT=None)
    assert done.returncode == 0, done.stderr
    assert "engine numpy" in done.stdout
    assert done.stderr.count("kernels run on the NumPy engine") == 1
    assert ("CC=/nonexistent/cc" if compiler else "gcc or clang") in done.stderr


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_compilers_by_name(name: str, compiled: None, tmp_path: Path) -> None:
    if not shutil.which(name):
        pytest.skip(f"there is no {name} here")
    done = run_script(ONE_KERNEL, NEONLIKE_CACHE_DIR=str(tmp_path / "kernels"), CC=name)
    assert done.returncode == 0, done.stderr
    assert "engine c" in done.stdout and "warning" not in done.stderr.lower()
    assert list((tmp_path / "kernels").rglob(f"*{SUFFIX}")), "kernels were compiled"
