"""NVRTC, NVIDIA's compiler library, through ctypes: compiles CUDA to cubins without a driver or process."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from neonlike.kernels.build.process import CompilerRefused
from neonlike.kernels.cuda.toolkits import library_folders

_PATTERNS = ("libnvrtc.so*", "nvrtc64_*.dll")


class NvrtcRefused(CompilerRefused):
    """NVRTC failed; the text is its log."""


def find_libraries() -> Iterator[str]:
    """Paths (or names) of libraries: from ``library_folders``, newest first per folder, then from the system."""
    seen: set[str] = set()
    for folder in library_folders():
        for pattern in _PATTERNS:
            for found in reversed(sorted(folder.glob(pattern))):
                if (real := os.path.realpath(found)) not in seen:
                    seen.add(real)
                    yield str(found)
    if name := ctypes.util.find_library("nvrtc"):
        yield name


def find_library() -> str | None:
    """First result of ``find_libraries``."""
    return next(find_libraries(), None)


def version(library: str) -> str | None:
    """Version of a library as text; None if it does not load."""
    try:
        nvrtc = _load(library)
    except (OSError, AttributeError):
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    if nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)):
        return None
    return f"{major.value}.{minor.value}"


@lru_cache(maxsize=4)
def architectures(library: str) -> tuple[int, ...]:
    """Supported compute capabilities, times ten; empty if the library does not list them (before CUDA 11.2)."""
    try:
        nvrtc = _load(library)
        count = ctypes.c_int()
        _check(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        found = (ctypes.c_int * count.value)()
        _check(nvrtc, nvrtc.nvrtcGetSupportedArchs(found))
    except (OSError, AttributeError, NvrtcRefused):
        return ()
    return tuple(found)


def compile_module(
    library: str, text: str, name: str, headers: Mapping[str, str], flags: Sequence[str], ptx: bool = False
) -> bytes:
    """Compile ``text``, which may include ``headers``, to a cubin or PTX.

    Parameters
    ----------
    library : str
        Path of NVRTC.
    text : str
    name : str
        Shown in messages of the compiler.
    headers : mapping
        Texts by names.
    flags : sequence of str
    ptx : bool
        Whether PTX is wanted.

    Raises
    ------
    NvrtcRefused
        With the compiler's log.
    """
    nvrtc = _load(library)
    program = ctypes.c_void_p()
    texts = (ctypes.c_char_p * len(headers))(*[content.encode() for content in headers.values()])
    names = (ctypes.c_char_p * len(headers))(*[header.encode() for header in headers])
    _check(
        nvrtc,
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), len(headers), texts, names),
    )
    try:
        options = (ctypes.c_char_p * len(flags))(*[flag.encode() for flag in flags])
        if nvrtc.nvrtcCompileProgram(program, len(flags), options):
            log = _read(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise NvrtcRefused(log.strip() or "NVRTC failed without a word")
        return _read(nvrtc, program, "PTX" if ptx else "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(nvrtc: Any, program: Any, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(nvrtc: Any, status: int) -> None:
    if status:
        raise NvrtcRefused(f"NVRTC: {nvrtc.nvrtcGetErrorString(status).decode()}")


@lru_cache(maxsize=4)
def _load(library: str) -> Any:
    # NVRTC loads libnvrtc-builtins by name at its first compilation, and CUDA 13.0's does not search its own folder.
    for half in sorted(Path(library).parent.glob("libnvrtc-builtins.so*")) if os.path.isabs(library) else ():
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(half))
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return nvrtc
