"""The disk cache of compiled kernels: lookups, damaged entries, its bound, its settings.

Directories that fail or cannot be trusted are in test_disk_cache_directories.py, what several processes do at once in
tests/kernels/c/test_compile.py.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from neonlike.errors import ArgumentError
from neonlike.kernels.build import cache as cache_module
from neonlike.kernels.build.cache import DiskCache, default_cache, default_directory, key_of
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

# --- finding and storing


def test_what_is_put_is_found(cache: DiskCache) -> None:
    assert cache.get(KEY, ".so") is None
    path = cache.put(KEY, DATA, ".so")
    assert path.read_bytes() == DATA
    assert path.suffix == ".so"
    assert cache.get(KEY, ".so") == path
    assert cache.read(KEY, ".so") == DATA
    assert files(cache.path()) == [path]
    stats = cache.stats()
    assert (stats.directory, stats.entries, stats.bytes) == (cache.path(), 1, len(DATA))
    assert (stats.hits, stats.misses, stats.corrupt) == (2, 1, 0)


def test_a_file_can_be_put_by_its_path(cache: DiskCache, tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(DATA)
    assert cache.put(KEY, tmp_path / "object", ".cubin").read_bytes() == DATA


def test_another_cache_on_the_same_directory_finds_it(cache: DiskCache) -> None:
    path = cache.put(KEY, DATA, ".so")
    assert DiskCache(cache.path()).get(KEY, ".so") == path


def test_suffixes_and_keys_do_not_mix(cache: DiskCache) -> None:
    cache.put(KEY, b"object", ".so")
    cache.put(KEY, b"cubin", ".cubin")
    cache.put(key_of("another"), b"other", ".so")
    assert (cache.read(KEY, ".so"), cache.read(KEY, ".cubin")) == (b"object", b"cubin")
    assert cache.read(KEY, ".o") is None
    assert cache.read(key_of("a third"), ".so") is None


def test_an_empty_entry_is_an_entry(cache: DiskCache) -> None:
    cache.put(KEY, b"", ".so")
    assert cache.read(KEY, ".so") == b""


def test_keys_separate_their_parts() -> None:
    lists = [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("2:ab", "c"), ()]
    keys = {key_of(*parts) for parts in lists}
    assert len(keys) == len(lists)
    assert all(len(key) == 64 for key in keys)
    assert key_of("é") == key_of("é".encode())


def test_two_contents_of_one_key_are_both_good(cache: DiskCache) -> None:
    """Two processes may leave different bytes for one key if their compiler is not reproducible."""
    contents = {b"one", b"two"}
    paths = {cache.put(KEY, content, ".so") for content in contents}
    assert len(paths) == 2
    assert cache.read(KEY, ".so") in contents
    cache.discard(KEY, ".so")
    assert cache.get(KEY, ".so") is None


def test_new_directories_are_for_their_owner_alone(cache: DiskCache) -> None:
    path = cache.put(KEY, DATA, ".so")
    for directory in (cache.path(), path.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def test_new_directories_above_are_for_their_owner_alone_too(tmp_path: Path) -> None:
    """A new folder above the cache, such as ~/.cache, is not writable by all: the next process would refuse."""
    before = os.umask(0)
    try:
        wanted = tmp_path / ".cache" / "neonlike"
        for cache in (DiskCache(wanted), DiskCache(wanted)):
            path = cache.put(KEY, DATA, ".so")
            assert path.parent.parent == wanted
    finally:
        os.umask(before)
    assert stat.S_IMODE(wanted.parent.stat().st_mode) == 0o700


# --- damage


def truncate(path: Path) -> None:
    os.truncate(path, len(DATA) // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"\0")


@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit, append])
def test_a_damaged_entry_is_not_used_and_can_be_replaced(cache: DiskCache, damage: Callable[[Path], None]) -> None:
    path = cache.put(KEY, DATA, ".so")
    damage(path)
    assert cache.get(KEY, ".so") is None
    assert not path.exists()
    assert cache.corrupt == 1
    assert cache.put(KEY, DATA, ".so") == path
    assert cache.read(KEY, ".so") == DATA


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_an_unreadable_entry_is_not_used_and_stays(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A process with too many open files must not take kernels away from others."""
    path = cache.put(KEY, DATA, ".so")
    monkeypatch.setattr(cache_module, "open", refuse(code), raising=False)
    assert cache.get(KEY, ".so") is None
    assert (cache.misses, cache.corrupt) == (1, 0)
    monkeypatch.undo()
    assert cache.get(KEY, ".so") == path
    cache.put(KEY, DATA, ".so")
    assert cache.read(KEY, ".so") == DATA


def test_a_damaged_entry_that_cannot_be_removed_is_still_not_used(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip_a_bit(cache.put(KEY, DATA, ".so"))
    monkeypatch.setattr(Path, "unlink", refuse(errno.EROFS))
    assert cache.get(KEY, ".so") is None


def test_a_directory_in_the_place_of_an_entry_is_survived(cache: DiskCache, messages: list[str]) -> None:
    path = cache.put(KEY, DATA, ".so")
    path.unlink()
    path.mkdir()
    assert cache.get(KEY, ".so") is None
    assert cache.put(KEY, DATA, ".so").read_bytes() == DATA
    assert cache.read(KEY, ".so") == DATA


@needs_owners
def test_an_entry_of_somebody_else_or_open_to_all_is_not_used(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.put(KEY, DATA, ".so")
    path.chmod(0o666)
    assert cache.get(KEY, ".so") is None
    path = cache.put(KEY, DATA, ".so")
    assert cache.get(KEY, ".so") == path
    mine = os.fstat

    def somebody_elses(descriptor: int) -> os.stat_result:
        fields = list(mine(descriptor))
        fields[4] = os.geteuid() + 1000
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", somebody_elses)
    assert cache.get(KEY, ".so") is None


# --- size


def fill(cache: DiskCache, count: int, old: int) -> list[Path]:
    """``count`` entries of 100 kB, the first ``old`` of them used hours ago, in order."""
    paths = [cache.put(key_of(str(number)), bytes(100_000), ".so") for number in range(count)]
    for number, path in enumerate(paths[:old]):
        age(path, 7200 - number)
    return paths


def test_the_entries_not_used_for_longest_go_first(cache: DiskCache) -> None:
    paths = fill(cache, 15, old=15)
    cache.get(key_of("0"), ".so")  # the oldest, used again
    assert cache.trim() == 7
    assert [path.exists() for path in paths] == [True] + [False] * 7 + [True] * 7
    assert cache.stats().bytes <= 0.8e6
    assert cache.trim() == 0


def test_what_was_just_made_stays_even_above_the_limit(cache: DiskCache) -> None:
    paths = fill(cache, 15, old=2)
    assert cache.trim() == 2
    assert [path.exists() for path in paths] == [False] * 2 + [True] * 13


def test_a_cache_in_use_trims_itself(cache: DiskCache) -> None:
    fill(cache, 11, old=11)
    assert cache.stats().bytes > 1e6
    cache.put(key_of("one more"), bytes(100_000), ".so")
    assert cache.stats().bytes <= 0.8e6
    assert cache.get(key_of("one more"), ".so")


def test_many_processes_with_little_to_add_trim_too(cache: DiskCache) -> None:
    fill(cache, 11, old=11)
    DiskCache(cache.path(), limit_mb=1).put(key_of("soon after"), b"little", ".so")
    assert cache.stats().entries == 12
    age(cache.path() / "last-trim", 2 * cache_module.TRIM_INTERVAL_S)
    DiskCache(cache.path(), limit_mb=1).put(key_of("hours later"), b"little", ".so")
    assert cache.stats().bytes <= 0.8e6


def test_files_of_others_are_never_removed(cache: DiskCache) -> None:
    fill(cache, 15, old=15)
    shard = next(path for path in cache.path().iterdir() if path.is_dir())
    foreign = [cache.path() / "thesis.tex", cache.path() / "ab.so", shard / "notes.txt", cache.path() / "data" / KEY]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(2_000_000))
        age(path, 1e6)
    assert cache.trim() == 7
    assert cache.clear() == 8
    assert files(cache.path()) == sorted(foreign)


def test_clear_removes_entries_and_kept_texts(cache: DiskCache) -> None:
    fill(cache, 3, old=0)
    cache.keep(KEY, "kernel", "text")
    assert cache.clear() == 4
    assert files(cache.path()) == []
    assert cache.get(key_of("0"), ".so") is None


# --- kept texts


def test_a_text_is_kept_beside_its_entry(cache: DiskCache) -> None:
    path = cache.put(KEY, DATA, ".so")
    kept = cache.keep(KEY, "axpy", "int x;\n")
    assert kept == path.parent / f"axpy_{KEY}.c"
    assert kept.read_text() == "int x;\n"
    assert cache.read(KEY, ".so") == DATA


def test_a_kept_text_outlives_the_process_even_where_the_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code = """
import sys
from neonlike.kernels.build.cache import DiskCache, key_of
print(DiskCache(sys.argv[1]).keep(key_of("x"), "axpy", "int x;"))
"""
    arguments = [sys.executable, "-c", code, str(tmp_path / "file")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert Path(done.stdout.strip()).read_text() == "int x;"


# --- the environment


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG directories are Linux's")
def test_where_the_default_directory_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NEONLIKE_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_directory() == tmp_path / "home" / ".cache" / "neonlike"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_directory() == tmp_path / "home" / ".cache" / "neonlike"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_directory() == tmp_path / "xdg" / "neonlike"
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", "~/kernels")
    assert default_directory() == tmp_path / "home" / "kernels"


def test_the_default_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEONLIKE_CACHE_MB", "7.5")
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "a"))
    first = default_cache()
    assert first is default_cache()
    assert first.path() == tmp_path / "a"
    assert first.limit == 7_500_000
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "b"))
    assert default_cache().path() == tmp_path / "b"


@pytest.mark.parametrize("text", ["many", "-1", "nan"])
def test_a_limit_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("NEONLIKE_CACHE_MB", text)
    with pytest.raises(ArgumentError, match=f"NEONLIKE_CACHE_MB={text}: expected a number of megabytes"):
        DiskCache(tmp_path)


# --- at once


def test_threads_that_put_and_find_the_same_entries(cache: DiskCache) -> None:
    """Each content read is whole, whatever the others write, damage and clear meanwhile."""
    contents = {key_of(str(number)): os.urandom(50_000) for number in range(4)}
    wrong: list[object] = []

    def work(task: int) -> None:
        try:
            for step in range(40):
                key, content = list(contents.items())[(task + step) % 4]
                found = cache.read(key, ".so")
                if found not in (None, content):
                    wrong.append(found)
                path = cache.put(key, content, ".so")
                if task == 0 and step % 5 == 0:
                    path.write_bytes(content[:100])
                if task == 1 and step % 10 == 0:
                    cache.clear()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(task,)) for task in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for key, content in contents.items():
        cache.read(key, ".so")  # removes what task 0 damaged last
        cache.put(key, content, ".so")
        assert cache.read(key, ".so") == content
