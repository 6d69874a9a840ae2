"""Kernels, and what compilers say, kept between runs of the tests."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neonlike.kernels.build.cache import DiskCache, default_cache, key_of
from neonlike.kernels.c.toolchain import Compiler
from tests.support import kept_kernels
from tests.support.compiling import keeping
from tests.support.engines import needs_compiler
from tests.support.kept_kernels import keep_kernels, remove_folder_of_this_run
from tests.support.kept_runs import run_kept

ROOT = Path(__file__).resolve().parent.parent
SMALL = "tests/backends/tensors/test_tensor.py::test_get_copies_and_asnumpyarray_is_live"


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """As before a run of the tests: no variable says where kernels are."""
    for name in ("NEONLIKE_CACHE_DIR", "NEONLIKE_CACHE_MB", kept_kernels.OF_COMPILERS, kept_kernels.VARIABLE):
        monkeypatch.setenv(name, "restored afterwards")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(kept_kernels, "_of_this_run", [])
    return monkeypatch


def test_kernels_are_kept_beside_those_of_programs(begin: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "xdg" / "neonlike-tests" / f"by-{kept_kernels.digest_of_compiling()}"
    assert keep_kernels() == f"kernels: kept in {folder}"
    path = default_cache().put(key_of("kept"), b"kernel", ".so")
    assert path.is_relative_to(folder) and default_cache().limit == kept_kernels.LIMIT_MB * 10**6
    remove_folder_of_this_run()
    assert DiskCache(folder).read(key_of("kept"), ".so") == b"kernel"


def test_a_folder_can_be_named(begin: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begin.setenv(kept_kernels.VARIABLE, str(tmp_path / "named"))
    folder = tmp_path / "named" / f"by-{kept_kernels.digest_of_compiling()}"
    assert keep_kernels() == f"kernels: kept in {folder}" and folder.is_dir()
    begin.setenv("NEONLIKE_CACHE_DIR", "given")
    assert keep_kernels() == "kernels: in given (NEONLIKE_CACHE_DIR)"


def test_checkouts_that_compile_in_another_way_have_folders_apart(
    begin: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begin.setenv(kept_kernels.VARIABLE, str(tmp_path))
    keep_kernels()
    (first,) = tmp_path.iterdir()
    assert all(list((ROOT / "neonlike/kernels").glob(pattern)) for pattern in kept_kernels.COMPILES)
    begin.setattr(kept_kernels, "COMPILES", kept_kernels.COMPILES[1:])
    for age, left in ((0, 2), (kept_kernels.KEEP_DAYS + 1, 1)):
        os.utime(first, (time.time() - 86_400 * age,) * 2)
        begin.delenv("NEONLIKE_CACHE_DIR")
        keep_kernels()
        assert len(list(tmp_path.iterdir())) == left
    assert not first.exists()


def test_a_run_without_kept_kernels_leaves_nothing(begin: pytest.MonkeyPatch) -> None:
    begin.setenv(kept_kernels.VARIABLE, "0")
    assert keep_kernels() == "kernels: not kept (NEONLIKE_TEST_CACHE=0)"
    folder = Path(os.environ["NEONLIKE_CACHE_DIR"])
    assert default_cache().put(key_of("kept"), b"kernel", ".so").is_relative_to(folder)
    remove_folder_of_this_run()
    assert not folder.exists()


@pytest.mark.parametrize("fault", ["a file", "not writable", "for everybody", "no home"])
def test_tests_run_where_nothing_can_be_kept(begin: pytest.MonkeyPatch, tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "named"
    begin.setenv(kept_kernels.VARIABLE, "" if fault == "no home" else str(folder))
    if fault == "a file":
        folder.write_text("")
    elif fault == "not writable":
        begin.setattr(kept_kernels.tempfile, "TemporaryFile", refuse)
    elif fault == "for everybody":
        folder.mkdir()
        folder.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
    else:
        begin.setattr(kept_kernels, "default_directory", refuse)
    assert keep_kernels().startswith("kernels: not kept (")
    kept = Path(os.environ["NEONLIKE_CACHE_DIR"])
    assert default_cache().put(key_of("kept"), b"kernel", ".so").is_relative_to(kept)
    remove_folder_of_this_run()


def refuse(*ignored: object, **also: object) -> None:
    raise PermissionError("Permission denied")


def test_the_second_run_compiles_nothing(begin: pytest.MonkeyPatch, tmp_path: Path) -> None:
    needs_compiler()
    begin.setenv(kept_kernels.VARIABLE, str(tmp_path / "kept"))
    found = []
    for _ in range(2):
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", SMALL]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append({path: path.stat().st_ino for path in (tmp_path / "kept").rglob("*.*")})
    assert found[0] == found[1] and any(path.suffix == ".so" for path in found[0])


COMPILER = """#!/bin/sh
[ "$1" = --version ] && { echo 1; exit; }
echo started >> ../log
grep -q fault source && { echo refused >&2; exit 1; }
tr a-z A-Z < source > result
echo warned >&2; echo said
"""


def test_a_compiler_is_started_once_for_a_source(begin: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begin.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "cache"))
    compiler, log = tmp_path / "compiler", tmp_path / "log"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    log.touch()
    runs = [("x", 0, 1), ("x", 0, 1), ("y", 0, 2), ("x", 0, 2), ("fault", 1, 3), ("fault", 1, 4)]
    for source, status, starts in runs:
        folder = tmp_path / f"{source}{starts}"
        folder.mkdir(exist_ok=True)
        (folder / "result").unlink(missing_ok=True)
        (folder / "source").write_text(source)
        done = run_kept([str(compiler), "source"], folder, "result")
        assert (done.returncode, len(log.read_text().split())) == (status, starts)
        if status == 0:
            assert (done.stdout, done.stderr) == ("said\n", "warned\n")
            assert (folder / "result").read_text() == source.upper()


def test_a_compiler_of_tests_of_caches_repeats_what_it_made(begin: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the folder, the script and the library are called; another flag, text or header is another library."""
    begin.setenv(kept_kernels.OF_COMPILERS, str(tmp_path / "kept"))
    script = '#!/bin/sh\n[ "$1" = --version ] && { echo 1; exit; }\necho started >> ../log\n'
    script += "grep -q fault *.c && exit 3\nwhile [ $# -gt 1 ]; do shift; done\ncat *.c part/*.h > $1\n"
    (tmp_path / "real").write_text(script)
    (tmp_path / "real").chmod(0o755)
    compiler = Compiler("1", (str(tmp_path / "real"),), ())
    runs = [("nl_1", "int x;", "y", "-O1", 1), ("nl_2", "int x;", "y", "-O1", 1), ("nl_1", "int z;", "y", "-O1", 2)]
    runs += [("nl_1", "int x;", "z", "-O1", 3), ("nl_1", "int x;", "y", "-O2", 4), ("nl_2", "int x;", "z", "-O1", 4)]
    runs += [("nl_1", "int nl_1;", "y", "-O1", 5), ("nl_2", "int nl_2;", "y", "-O1", 6)]  # symbols of their libraries
    runs += [("nl_1", "fault", "y", "-O1", 7), ("nl_1", "fault", "y", "-O1", 8)]
    for number, (name, text, header, flag, starts) in enumerate(runs):
        folder, around = tmp_path / f"folder{number}", tmp_path / f"around-{name}{number}"
        (folder / "part").mkdir(parents=True)
        (folder / f"{name}.c").write_text(f"/* {around} */ {text}\n")
        (folder / "part" / "v.h").write_text(header)
        around.write_text(f"#!/bin/sh\n{keeping(compiler)}")
        around.chmod(0o755)
        command = [str(around), flag, f"{name}.c", "-o", f"{name}.so"]
        status = subprocess.run(command, cwd=folder, check=False).returncode
        assert (status, len((tmp_path / "log").read_text().split())) == (3 if text == "fault" else 0, starts)
        if status == 0:
            made = (folder / f"{name}.so").read_text()
            assert made.endswith(f" */ {text}\n{header}")
