"""The disk cache of compiled kernels: directories that cannot be written, or that somebody else can write to."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from neonlike.kernels.build.cache import DiskCache, distrust, key_of
from tests.kernels.build.cache_entries import (
    DATA,
    KEY,
    age,
    cache,  # noqa: F401
    files,
    needs_owners,
    refuse,
)
from tests.support.compiling import messages  # noqa: F401

# --- directories that fail


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize("function", ["replace", "fdopen"])
def test_a_directory_that_cannot_be_written_is_replaced_by_a_private_one(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, messages: list[str], function: str, code: int
) -> None:
    real = getattr(os, function)
    shared = str(cache.path())

    def fail_there(*args: object, **kwargs: object) -> object:
        if function == "replace" and not str(args[1]).startswith(shared):
            return real(*args, **kwargs)
        if function == "fdopen" and not os.readlink(f"/proc/self/fd/{args[0]}").startswith(shared):
            return real(*args, **kwargs)
        raise OSError(code, os.strerror(code))

    if function == "fdopen" and not os.path.isdir("/proc/self/fd"):
        pytest.skip("an open file does not tell its name here")
    monkeypatch.setattr(os, function, fail_there)
    paths = [cache.put(key_of(str(number)), DATA, ".so") for number in range(3)]
    assert all(cache.private() in path.parents for path in paths)
    assert [cache.read(key_of(str(number)), ".so") for number in range(3)] == [DATA] * 3
    assert files(cache.path()) == []  # no half-written file stays
    assert len(messages) == 1
    assert os.strerror(code) in messages[0]
    assert str(cache.path()) in messages[0]
    assert "NEONLIKE_CACHE_DIR" in messages[0]


def test_a_read_only_directory_is_still_read(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    path = cache.put(KEY, DATA, ".so")
    age(path, 1e6)
    monkeypatch.setattr(os, "utime", refuse(errno.EROFS))
    assert cache.get(KEY, ".so") == path
    assert messages == []


def test_an_entry_that_another_process_put_first_serves_when_writing_fails(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """As on systems where a loaded library cannot be replaced."""
    path = cache.put(KEY, DATA, ".so")
    monkeypatch.setattr(os, "replace", refuse(errno.EACCES))
    assert cache.put(KEY, DATA, ".so") == path
    assert messages == []


def test_an_error_is_raised_when_nothing_can_be_written(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        cache.put(KEY, DATA, ".so")
    assert files(cache.path()) == []


def test_a_directory_that_cannot_be_made_is_replaced(tmp_path: Path, messages: list[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = DiskCache(tmp_path / "file" / "cache")
    assert cache.put(KEY, DATA, ".so").read_bytes() == DATA
    assert cache.path() == cache.private()
    assert len(messages) == 1


def test_a_user_without_a_home_gets_a_private_directory(monkeypatch: pytest.MonkeyPatch, messages: list[str]) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NEONLIKE_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    cache = DiskCache()
    assert cache.put(KEY, DATA, ".so").read_bytes() == DATA
    assert cache.read(KEY, ".so") == DATA
    assert len(messages) == 1


def test_the_private_directory_goes_with_the_process_and_not_with_its_fork(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    code = """
import os, sys
from neonlike.kernels.build.cache import DiskCache
cache = DiskCache(sys.argv[1])
directory = cache.private()
if os.fork() == 0:
    print(cache.private(), flush=True)
    sys.exit()
os.wait()
assert directory.is_dir()
print(directory)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    child, parent = map(Path, done.stdout.split())
    assert child != parent
    assert not child.exists()
    assert not parent.exists()


def test_a_directory_that_somebody_removes_is_made_again(cache: DiskCache, messages: list[str]) -> None:
    cache.put(KEY, DATA, ".so")
    shutil.rmtree(cache.path())
    assert cache.get(KEY, ".so") is None
    assert cache.path() in cache.put(KEY, DATA, ".so").parents
    assert messages == []


# --- trust


@needs_owners
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_nothing_is_executed_from_a_directory_that_everybody_can_write_to(
    tmp_path: Path, messages: list[str], mode: int
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    planted = DiskCache(shared).put(KEY, b"planted", ".so")
    shared.chmod(mode)
    cache = DiskCache(shared)
    assert cache.get(KEY, ".so") is None
    path = cache.put(KEY, DATA, ".so")
    assert shared not in path.parents
    assert stat.S_IMODE(cache.path().stat().st_mode) == 0o700
    assert planted.read_bytes() == b"planted"
    assert len(messages) == 1
    assert "everybody can write" in messages[0]


@needs_owners
def test_nothing_is_executed_from_below_a_directory_that_everybody_can_rename_in(tmp_path: Path) -> None:
    (tmp_path / "open" / "cache").mkdir(parents=True)
    (tmp_path / "open").chmod(0o777)
    assert str(tmp_path / "open") in distrust(tmp_path / "open" / "cache")
    (tmp_path / "open").chmod(0o1777)  # as /tmp: only owners rename
    assert distrust(tmp_path / "open" / "cache") == ""


@needs_owners
def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert "everybody" in distrust(tmp_path / "link")


@needs_owners
def test_nothing_is_executed_from_a_directory_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    mine = os.geteuid()
    owned = tmp_path / "owned"
    DiskCache(owned).put(KEY, b"planted", ".so")
    if mine == 0:
        os.chown(owned, 1234, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    cache = DiskCache(owned)
    assert cache.get(KEY, ".so") is None
    assert owned not in cache.put(KEY, DATA, ".so").parents
    assert "another user" in messages[0]
    assert len(messages) == 1


@needs_owners
def test_what_root_owns_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an image can bring a filled cache for whoever runs in it."""
    root = Path(os.sep)
    assert root.stat().st_uid == 0, "the root directory belongs to somebody else here"
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert distrust(root) == ""
