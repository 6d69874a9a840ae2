"""C source text -> loaded shared library, from the cache of compiled kernels or with the machine's C compiler.

:func:`build` returns the library of one kernel, whoever compiled it; ``ahead.py`` compiles several side by side.
Its steps are those of ``build/driver.py``; which compiler there is and what it can do is in ``toolchain.py``.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping
from pathlib import Path

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import key_of
from neonlike.kernels.build.driver import Driver
from neonlike.kernels.build.source import Headers, KernelSource, LazySource, file_name
from neonlike.kernels.c import workers
from neonlike.kernels.c.toolchain import (
    LIBRARIES,
    SUFFIX,
    Compiler,
    architecture,
    compile_object,
    confirm,
    find_compiler,
    load_cached,
    store_and_load,
)

__all__ = [
    "Compiler",
    "build",
    "build_kernel",
    "find_compiler",
    "kernel_key",
]

ABI_VERSION = "1"
"""To be raised when the same source text is to be called in another way than before."""


class CDriver(Driver[Compiler, ctypes.CDLL]):
    """C kernels: shared libraries that stay loaded, and are handed the worker threads before their first use."""

    suffix, source_suffix = SUFFIX, ".c"
    advice = "\nNEONLIKE_CPU_JIT=0 runs everything on the NumPy engine"

    def key(self, kernel: KernelSource, compiler: Compiler) -> str:
        """Where the library lies in the cache."""
        texts = _header_texts(kernel.headers)
        return key_of(
            "c-kernel",
            ABI_VERSION,
            architecture(),
            compiler.identity,
            json.dumps([compiler.command_for(kernel.contracted), LIBRARIES]),
            kernel.source if isinstance(kernel.source, str) else kernel.source.identity,
            *(part for item in sorted(texts.items()) for part in item),
        )

    def confirmed(self, compiler: Compiler) -> Compiler:
        """The compiler as it is now: an earlier process may have probed it before it was updated."""
        return confirm(compiler)

    def compile(self, kernel: KernelSource, text: str, compiler: Compiler) -> bytes:
        """The content of the library.

        Parameters
        ----------
        kernel, text, compiler
            As of ``Driver.compile``.
        """
        command = compiler.command_for(kernel.contracted)
        return compile_object(command, file_name(kernel.name), text, _header_texts(kernel.headers))

    def find(self, kernel: KernelSource, key: str) -> ctypes.CDLL | None:
        """The library from the cache."""
        return load_cached(key, f"kernel {kernel.name}")

    def store(self, kernel: KernelSource, key: str, data: bytes) -> ctypes.CDLL:
        """Put the library into the cache and load it.

        Parameters
        ----------
        kernel, key, data
            As of ``Driver.store``.
        """
        return store_and_load(key, data)

    def adopt(self, key: str, built: ctypes.CDLL, compiler: Compiler) -> None:
        """Give the library the worker threads, and keep it loaded.

        Parameters
        ----------
        key, built, compiler
            As of ``Driver.adopt``.
        """
        workers.give(built, compiler)
        self.loaded[key] = built


DRIVER = CDriver()


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
    return build_kernel(KernelSource(source, name, expression, headers), compiler)


def build_kernel(kernel: KernelSource, compiler: Compiler | None = None) -> ctypes.CDLL:
    """:func:`build` of a kernel held together."""
    compiler = compiler or find_compiler()
    if compiler is None:
        raise KernelCompileError(
            f"kernel {kernel.name}: there is no working C compiler, or NEONLIKE_CPU_JIT=0 forbids it. Install gcc or "
            "clang, or name a compiler with CC",
            expression=kernel.expression,
        )
    return DRIVER.build(kernel._replace(headers=_header_texts(kernel.headers)), compiler)


def is_built(kernel: KernelSource) -> bool:
    """Whether the library of ``kernel`` is loaded or in the cache, so that :func:`build` compiles nothing."""
    compiler = find_compiler()
    return compiler is not None and DRIVER.is_built(kernel, compiler)


def kernels_here() -> dict[str, bool]:
    """Keys of the kernels this process has loaded, and whether it compiled them (or found them in the cache)."""
    return {key: key in DRIVER.compiled for key in list(DRIVER.loaded)}


def kernel_key(kernel: KernelSource, compiler: Compiler) -> str:
    """Where the library of ``kernel`` lies in the cache. Neither its name nor its expression counts."""
    return DRIVER.key(kernel, compiler)


def _header_texts(headers: Headers) -> Mapping[str, str]:
    if isinstance(headers, Mapping):
        return headers
    texts: dict[str, str] = {}
    for directory in map(Path, headers):
        for path in sorted(directory.rglob("*.h")):
            texts.setdefault(path.relative_to(directory).as_posix(), path.read_text(encoding="utf-8"))
    return texts
