"""Source to compiled kernel, in C and CUDA alike: find it, or compile it once and store it; explain what failed.

:class:`Driver` has the steps. A subclass for each language (``c/compile.py``, ``cuda/compile.py``) says what a kernel's
key depends on, how the compiler is called, and what a compiled kernel is: a shared library that is loaded at once, or
the bytes of a module that a device loads later.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Generic, Protocol, TypeVar

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import default_cache
from neonlike.kernels.build.process import CompilerRefused
from neonlike.kernels.build.source import KernelSource, commented, compile_error, keep, keeps_sources
from neonlike.kernels.build.waiting import compiling, waiting
from neonlike.logger import logger


class UsableCompiler(Protocol):
    """A compiler that works on this machine, with the target it compiles for."""

    @property
    def identity(self) -> str:
        """Its name and version."""

    def command_line(self, contracted: bool = False) -> str:
        """Command and flags, for messages and for the comment on top of a kept source; see ``KernelSource``."""


Compiler = TypeVar("Compiler", bound=UsableCompiler)
Built = TypeVar("Built")


class Driver(ABC, Generic[Compiler, Built]):
    """The kernels of one language: found in this process or in the cache, else compiled.

    Threads that want the same kernel wait for the first of them; different kernels compile side by side. A process
    forked while others of its threads compile starts with locks that are free.

    Attributes
    ----------
    suffix : str
        Of compiled kernels in the cache.
    source_suffix : str
        Of the sources kept beside them.
    advice : str
        Ends the message of a compile error.
    loaded : dict
        Key -> compiled kernel, of those that stay in the memory of this process.
    compiled : set of str
        Keys of the kernels that this process compiled itself.
    lock : threading.Lock
        Guards the locks of single kernels; nobody holds it for long.
    """

    suffix: str
    source_suffix: str
    advice = ""

    def __init__(self) -> None:
        self.loaded: dict[str, Built] = {}
        self.compiled: set[str] = set()
        self._forget_locks()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_locks)

    def _forget_locks(self) -> None:
        """Make new ones: in a forked child no thread is left that would release the old ones."""
        self.lock = threading.Lock()
        self._building: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    # What a language says

    @abstractmethod
    def key(self, kernel: KernelSource, compiler: Compiler) -> str:
        """The kernel's key in the cache, to which neither its name nor its expression counts."""

    @abstractmethod
    def compile(self, kernel: KernelSource, text: str, compiler: Compiler) -> bytes:
        """The content of the compiled kernel; ``text`` is the kernel's, with its comment.

        Raises
        ------
        CompilerRefused
        OSError
            The temporary directory cannot be written.
        """

    @abstractmethod
    def find(self, kernel: KernelSource, key: str) -> Built | None:
        """The kernel from the cache, or None. An entry that cannot be used is discarded."""

    @abstractmethod
    def store(self, kernel: KernelSource, key: str, data: bytes) -> Built:
        """Put a compiled kernel into the cache, and return it ready for use.

        Raises
        ------
        CompilerRefused
            It does not load.
        OSError
            It cannot be written, and is of no use then.
        """

    def adopt(self, key: str, built: Built, compiler: Compiler) -> None:
        """Called for each kernel that was found or compiled, before its first use; remembers it if it is to stay."""

    def confirmed(self, compiler: Compiler) -> Compiler:
        """``compiler`` before it compiles, or the one that stands in its place since it was looked for."""
        return compiler

    def instead(self, compiler: Compiler, error: Exception) -> Compiler | None:
        """Another compiler to try after ``error``, if the fault is the first one's and not the source's."""
        return None

    # The steps

    def build(self, kernel: KernelSource, compiler: Compiler) -> Built:
        """The compiled kernel, from the process, from the cache, or from the compiler.

        Raises
        ------
        KernelCompileError
            The compiler refused the source, or what it made could not be written or loaded.
        """
        key = self.key(kernel, compiler)
        built = self.loaded.get(key)
        if built is None:
            with self.lock:
                mine = self._building[key]
            with waiting(kernel), mine:  # a second thread waits for the first instead of compiling the same
                built = self.loaded.get(key) or self._find(kernel, key, compiler)
                if built is None:
                    confirmed = self.confirmed(compiler)
                    if confirmed == compiler:
                        built = self._compile(kernel, key, compiler)
                    else:
                        built = self.build(kernel, confirmed)
                self.adopt(key, built, compiler)
        return built

    def is_built(self, kernel: KernelSource, compiler: Compiler) -> bool:
        """Whether :meth:`build` has nothing to compile."""
        key = self.key(kernel, compiler)
        return key in self.loaded or default_cache().get(key, self.suffix) is not None

    def text(self, kernel: KernelSource, compiler: Compiler) -> str:
        """What is compiled, and kept for people: line numbers of the compiler's messages are those of the kept file."""
        return commented(kernel, compiler.command_line(kernel.contracted))

    def _find(self, kernel: KernelSource, key: str, compiler: Compiler) -> Built | None:
        built = self.find(kernel, key)
        if built is not None and keeps_sources():
            self._keep(kernel, key, compiler)
        return built

    def _compile(self, kernel: KernelSource, key: str, compiler: Compiler) -> Built:
        began = time.perf_counter()
        try:
            with compiling(kernel):
                data = self.compile(kernel, self.text(kernel, compiler), compiler)
            built = self.store(kernel, key, data)
        except (CompilerRefused, OSError) as error:
            other = self.instead(compiler, error)
            if other is not None:
                return self.build(kernel, other)
            raise self._error(kernel, key, compiler, str(error)) from None
        self.compiled.add(key)
        logger.info("kernel %s: compiled in %.0f ms", kernel.name, 1e3 * (time.perf_counter() - began))
        if keeps_sources():
            self._keep(kernel, key, compiler)
        return built

    def _keep(self, kernel: KernelSource, key: str, compiler: Compiler) -> str | None:
        return keep(kernel, key, self.text(kernel, compiler), self.source_suffix)

    def _error(self, kernel: KernelSource, key: str, compiler: Compiler, words: str) -> KernelCompileError:
        described = f"{compiler.command_line(kernel.contracted)} ({compiler.identity})"
        return compile_error(kernel, self._keep(kernel, key, compiler), words, described, self.advice)
