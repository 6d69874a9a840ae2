"""Loading of compiled libraries with all pages of code and constants in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from neonlike.kernels.c import pages, toolchain
from neonlike.kernels.c.pages import load_library
from tests.support.engines import needs_compiler

TABLE = "const char table[] = {{ {} }};\nint first(void) {{ return 7; }}\n".format(", ".join("5" * (40 << 10)))
"""A library with ten pages of constants, which nothing reads."""


def _mapped(path: Path) -> list[tuple[str, int, int]]:
    """Permissions, size and bytes in memory of each part of a library, in kB."""
    found, flags, size = [], "", 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            flags = rest[0] if line.endswith(str(path)) else ""
        elif name == "Size:":
            size = int(rest[0])
        elif name == "Rss:" and flags:
            found.append((flags, size, int(rest[0])))
    return found


def _library(tmp_path: Path, *more: str) -> Path:
    needs_compiler()
    compiler = toolchain.find_compiler()
    assert compiler is not None
    data = toolchain.compile_object((*compiler.command, *compiler.flags, *more), "table", TABLE, {})
    path = tmp_path / f"table{toolchain.SUFFIX}"
    path.write_bytes(data)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which pages are in memory")
@pytest.mark.parametrize("more", [(), ("-Wl,-z,noseparate-code",)], ids=["apart", "together"])
def test_all_constants_are_in_memory_once_a_library_is_loaded(tmp_path: Path, more: tuple[str, ...]) -> None:
    path = _library(tmp_path, *more)
    assert load_library(path).first() == 7
    parts = [(size, held) for flags, size, held in _mapped(path) if "w" not in flags and "r" in flags]
    assert sum(size for size, _ in parts) >= 40 and all(held == size for size, held in parts)


def test_a_library_loads_where_nothing_says_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _library(tmp_path)
    monkeypatch.setattr(pages, "_dlinfo", lambda: None)
    assert load_library(path).first() == 7


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01" + bytes(80), b"MZ" + bytes(80)])
def test_what_is_no_library_for_64_bits_has_no_parts(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    assert not [*pages._segments(path)]
    with pytest.raises(OSError):
        load_library(path)


def test_a_library_that_was_removed_has_no_parts(tmp_path: Path) -> None:
    assert not [*pages._segments(tmp_path / "none.so")]
