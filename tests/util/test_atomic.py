"""Names that refer to the newest of several files: by a link, or by a copy where there are no links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from neonlike.util.atomic import refer


def no_links(*args: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Paths of two files with different contents."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)
    return [str(tmp_path / name) for name in ("one", "two")]


@pytest.mark.parametrize("links", [True, False])
def test_a_name_refers_to_the_newest_file(
    links: bool, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr(os, "symlink", no_links)
    path = tmp_path / "newest"
    for file in (*files, files[0]):
        refer(str(path), file)
        assert path.is_symlink() == links
        assert path.read_text() == Path(file).name
        assert not links or os.readlink(path) == Path(file).name, "it leads there from wherever the folder lies"
    assert sorted(os.listdir(tmp_path)) == ["newest", "one", "two"]


def test_a_failure_leaves_the_name_as_it_was(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "newest"
    refer(str(path), files[0])
    monkeypatch.setattr(os, "replace", no_links)
    with pytest.raises(PermissionError):
        refer(str(path), files[1])
    assert path.read_text() == "one"
    assert sorted(os.listdir(tmp_path)) == ["newest", "one", "two"]


def test_what_a_killed_process_left_is_in_nobodys_way(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "newest.new").symlink_to("gone")
    refer(str(tmp_path / "newest"), files[1])
    assert (tmp_path / "newest").read_text() == "two"
    assert sorted(os.listdir(tmp_path)) == ["newest", "one", "two"]
