"""Shared helpers for tests of the disk cache: a small cache, an entry, and ways to inspect and refuse files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from neonlike.kernels.build.cache import DiskCache, key_of

KEY = key_of("an entry")
DATA = bytes(range(256)) * 64

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", limit_mb=1)


def files(directory: Path) -> list[Path]:
    """All files under a directory but the note of when it was trimmed."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "last-trim")


def refuse(code: int) -> Callable[..., None]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))
