"""Loads a compiled library with all of its constants in memory.

A page of a file is mapped when it is first read. A load under a mask of AVX-512 that takes no lane from such a page
reads nothing, so the page stays unmapped; but the processor looks whether it would have failed, which takes it 600 ns,
each time. Compilers take constants that way: a kernel that looks for nan meets none for a long time. So each page is
read once when a library is loaded.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

_HEADER = struct.Struct("=4sB27xQ14xHH")
"""Of ELF: magic number, class, offset, size and number of the program headers."""
_SEGMENT = struct.Struct("=IIQQQQ")
"""Of a program header: kind, flags, offset, address, physical address, size in the file."""
_MAGIC, _64_BITS, _LOADED, _READ, _WRITTEN = b"\x7fELF", 2, 1, 4, 2
_LINK_MAP = 2
"""The request to ``dlinfo`` for where a library lies."""


def load_library(path: Path) -> ctypes.CDLL:
    """Load the shared library at ``path`` and read each page of its code and constants once.

    Raises
    ------
    OSError
        If it does not load.
    """
    library = ctypes.CDLL(str(path))
    base = _base(library) if sys.platform == "linux" else None
    if base is not None:
        for first, end in _segments(path):
            for address in range(first - first % mmap.PAGESIZE, end, mmap.PAGESIZE):
                ctypes.c_char.from_address(base + address).value  # noqa: B018  (reading is what it is for)
    return library


def _base(library: ctypes.CDLL) -> int | None:
    """The address that the addresses in a library count from; None where that is not said."""
    ask = _dlinfo()
    found = ctypes.POINTER(ctypes.c_size_t)()
    if ask is None or ask(ctypes.c_void_p(library._handle), _LINK_MAP, ctypes.byref(found)):
        return None
    base: int = found[0]
    return base


@lru_cache(maxsize=1)
def _dlinfo() -> Any:
    try:
        return ctypes.CDLL(None).dlinfo
    except (AttributeError, OSError):
        return None


def _segments(path: Path) -> Iterator[tuple[int, int]]:
    """First and last address of each part of the file that is read and never written; none if it is no 64-bit ELF."""
    try:
        with open(path, "rb", buffering=0) as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size:
                return
            magic, bits, offset, size, count = _HEADER.unpack(head)
            if (magic, bits) != (_MAGIC, _64_BITS) or size < _SEGMENT.size:
                return
            file.seek(offset)
            table = file.read(size * count)
    except OSError:  # somebody cleared the cache since
        return
    for at in range(0, len(table) - size + 1, size):
        kind, flags, _, address, _, length = _SEGMENT.unpack_from(table, at)
        if kind == _LOADED and flags & (_READ | _WRITTEN) == _READ:
            yield address, address + length
