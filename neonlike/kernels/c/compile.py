"""C source text -> loaded shared library, from the cache of compiled kernels or with the machine's C compiler.

:func:`build` returns the library of one kernel, whoever compiled it; ``ahead.py`` compiles several side by side.
Which compiler there is and what it can do is in ``toolchain.py``, where and how libraries are kept in ``cache.py``.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.kernels.build.source import (
    Headers,
    KernelSource,
    LazySource,
    commented,
    compile_error,
    file_name,
    keep,
    keeps_sources,
)
from neonlike.kernels.build.waiting import compiling, waiting
from neonlike.kernels.c import pool
from neonlike.kernels.c.toolchain import (
    LIBRARIES,
    SUFFIX,
    Compiler,
    CompilerRefused,
    architecture,
    compile_object,
    confirm,
    find_compiler,
    store_and_load,
)
from neonlike.logger import logger

__all__ = [
    "Compiler",
    "build",
    "build_kernel",
    "find_compiler",
    "kernel_key",
]

ABI_VERSION = "1"
"""To be raised when the same source text is to be called in another way than before."""

_lock = threading.Lock()
_building: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
_libraries: dict[str, ctypes.CDLL] = {}
_compiled: set[str] = set()


def build(
    source: str | LazySource,
    name: str,
    expression: str = "",
    compiler: Compiler | None = None,
    headers: Headers = (),
) -> ctypes.CDLL:
    """The loaded library of a C source text, compiled unless a process did so before.

    Parameters
    ----------
    source : str, or an object with an ``identity`` whose ``str`` is the text
    name : str
        Names the source file in the compiler's messages.
    expression : str
        What the kernel computes, for messages and for the comment on top of a kept source.
    compiler : Compiler, optional
        Default: :func:`find_compiler`.
    headers : mapping of name to text, or sequence of directories
        What ``#include "name"`` finds.

    Returns
    -------
    ctypes.CDLL
        One object for each different source in a process. Calls release the interpreter lock.

    Raises
    ------
    KernelCompileError
        There is no compiler, it refused the source, or the library could not be written or loaded.

    Notes
    -----
    With ``NEONLIKE_KEEP_SOURCE=1`` the source is kept beside the cached library as ``<name>_<key>.c``.
    """
    compiler = compiler or find_compiler()
    if compiler is None:
        raise KernelCompileError(
            f"kernel {name}: there is no working C compiler, or NEONLIKE_CPU_JIT=0 forbids it. Install gcc or clang, "
            "or name a compiler with CC",
            expression=expression,
        )
    kernel = KernelSource(source, name, expression, _header_texts(headers))
    key = kernel_key(kernel, compiler)
    library = _libraries.get(key)
    if library is None:
        with _lock:
            mine = _building[key]
        with waiting(kernel), mine:  # a second thread waits for the first instead of compiling the same
            library = _libraries.get(key) or _from_cache(kernel, key, compiler)
            if library is None:
                confirmed = confirm(compiler)
                if confirmed == compiler:
                    library = _compile(kernel, key, compiler)
                else:
                    library = build_kernel(kernel, confirmed)
            pool.give(library, compiler)
            _libraries[key] = library
    return library


def build_kernel(kernel: KernelSource, compiler: Compiler | None = None) -> ctypes.CDLL:
    """:func:`build` of a kernel held together."""
    return build(kernel.source, kernel.name, kernel.expression, compiler, kernel.headers)


def is_built(kernel: KernelSource) -> bool:
    """Whether the library of ``kernel`` is loaded or in the cache, so that :func:`build` compiles nothing."""
    compiler = find_compiler()
    if compiler is None:
        return False
    key = kernel_key(kernel, compiler)
    return key in _libraries or default_cache().get(key, SUFFIX) is not None


def kernels_here() -> dict[str, bool]:
    """Keys of the kernels this process has loaded, and whether it compiled them (or found them in the cache)."""
    return {key: key in _compiled for key in list(_libraries)}


def kernel_key(kernel: KernelSource, compiler: Compiler) -> str:
    """Where the library of ``kernel`` lies in the cache. Neither its name nor its expression counts."""
    texts = _header_texts(kernel.headers)
    return key_of(
        "c-kernel",
        ABI_VERSION,
        architecture(),
        compiler.identity,
        json.dumps([compiler.command, compiler.flags, LIBRARIES]),
        kernel.source if isinstance(kernel.source, str) else kernel.source.identity,
        *(part for item in sorted(texts.items()) for part in item),
    )


def _header_texts(headers: Headers) -> Mapping[str, str]:
    if isinstance(headers, Mapping):
        return headers
    texts: dict[str, str] = {}
    for directory in map(Path, headers):
        for path in sorted(directory.rglob("*.h")):
            texts.setdefault(path.relative_to(directory).as_posix(), path.read_text(encoding="utf-8"))
    return texts


def _from_cache(kernel: KernelSource, key: str, compiler: Compiler) -> ctypes.CDLL | None:
    cache = default_cache()
    path = cache.get(key, SUFFIX)
    if path is None:
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        logger.info("kernel %s: the cached %s does not load (%s) and is compiled again", kernel.name, path, error)
        cache.discard(key, SUFFIX)
        return None
    if keeps_sources():
        _keep(kernel, key, compiler)
    return library


def _compile(kernel: KernelSource, key: str, compiler: Compiler) -> ctypes.CDLL:
    began = time.perf_counter()
    try:
        with compiling(kernel):
            data = compile_object(
                (*compiler.command, *compiler.flags),
                file_name(kernel.name),
                _commented(kernel, compiler),
                _header_texts(kernel.headers),
            )
        library = store_and_load(key, data)
    except (CompilerRefused, OSError) as error:
        raise _compile_error(kernel, key, compiler, str(error)) from None
    _compiled.add(key)
    logger.info("kernel %s: compiled in %.0f ms", kernel.name, 1e3 * (time.perf_counter() - began))
    if keeps_sources():
        _keep(kernel, key, compiler)
    return library


def _keep(kernel: KernelSource, key: str, compiler: Compiler) -> str | None:
    return keep(kernel, key, _commented(kernel, compiler), ".c")


def _commented(kernel: KernelSource, compiler: Compiler) -> str:
    return commented(kernel, compiler.command_line())


def _compile_error(kernel: KernelSource, key: str, compiler: Compiler, words: str) -> KernelCompileError:
    advice = "\nNEONLIKE_CPU_JIT=0 runs everything on the NumPy engine"
    described = f"{compiler.command_line()} ({compiler.identity})"
    return compile_error(kernel, _keep(kernel, key, compiler), words, described, advice)


def _after_fork() -> None:
    """In the child no thread is left that would release the locks."""
    global _lock
    _lock = threading.Lock()
    _building.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
