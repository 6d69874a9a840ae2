"""Compilation driver for C and CUDA: finds a kernel, or compiles and stores it once; explains failures.

:class:`Driver` implements the steps. A subclass per language (``c/compile.py``, ``cuda/compile.py``) defines the inputs
of a kernel's key, the call of the compiler, and the compiled kernel: a shared library that is loaded at once, or the
bytes of a module that a device loads later.
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
    """A compiler that works on this machine, with its target."""

    @property
    def identity(self) -> str:
        """Name and version of the compiler."""

    def command_line(self, contracted: bool = False) -> str:
        """Command and flags, for messages and for the comment of a kept source; see ``KernelSource``."""


Compiler = TypeVar("Compiler", bound=UsableCompiler)
Built = TypeVar("Built")


class Driver(ABC, Generic[Compiler, Built]):
    """The kernels of one language: found in this process or in the cache, or else compiled.

    Threads that need the same kernel wait for the first of them; different kernels compile in parallel. A process
    forked while other threads compile starts with free locks.

    Attributes
    ----------
    suffix : str
        Suffix of compiled kernels in the cache.
    source_suffix : str
        Suffix of the sources kept beside them.
    advice : str
        End of the message of a compile error.
    loaded : dict
        Key -> compiled kernel, for kernels kept in this process's memory.
    compiled : set of str
        Keys of the kernels compiled by this process.
    lock : threading.Lock
        Guards the locks of single kernels; held only briefly.
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
        """Replace all locks: a forked child has no thread that would release the old ones."""
        self.lock = threading.Lock()
        self._building: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    # Defined per language

    @abstractmethod
    def key(self, kernel: KernelSource, compiler: Compiler) -> str:
        """The kernel's key in the cache, independent of its name and expression."""

    @abstractmethod
    def compile(self, kernel: KernelSource, text: str, compiler: Compiler) -> bytes:
        """Compile ``text``, the kernel's text with its comment, and return the result's content.

        Parameters
        ----------
        kernel : KernelSource
        text : str
        compiler : Compiler

        Raises
        ------
        CompilerRefused
        OSError
            The temporary directory cannot be written.
        """

    @abstractmethod
    def find(self, kernel: KernelSource, key: str) -> Built | None:
        """Find the kernel in the cache, or return None. An unusable entry is discarded."""

    @abstractmethod
    def store(self, kernel: KernelSource, key: str, data: bytes) -> Built:
        """Store a compiled kernel in the cache, and return it ready for use.

        Parameters
        ----------
        kernel : KernelSource
        key : str
            Key of the cache.
        data : bytes
            What :meth:`compile` returned.

        Raises
        ------
        CompilerRefused
            If it does not load.
        OSError
            If it cannot be written, and is unusable then.
        """

    def adopt(self, key: str, built: Built, compiler: Compiler) -> None:
        """Called for each kernel after it was found or compiled, before its first use; stores it if it is to stay.

        Parameters
        ----------
        key : str
            Key of the cache.
        built : object
            The kernel, ready for use.
        compiler : Compiler
        """

    def confirmed(self, compiler: Compiler) -> Compiler:
        """Return ``compiler`` before it compiles, or its replacement since it was found."""
        return compiler

    def instead(self, compiler: Compiler, error: Exception) -> Compiler | None:
        """Another compiler to try after ``error``, if the fault is the compiler's and not the source's."""
        return None

    # The steps

    def build(self, kernel: KernelSource, compiler: Compiler) -> Built:
        """Return the compiled kernel, from the process, the cache, or the compiler.

        Raises
        ------
        KernelCompileError
            If the compiler refused the source, or its result could not be written or loaded.
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
        """Whether :meth:`build` would not have to compile."""
        key = self.key(kernel, compiler)
        return key in self.loaded or default_cache().get(key, self.suffix) is not None

    def text(self, kernel: KernelSource, compiler: Compiler) -> str:
        """Text that is compiled and kept for people: line numbers in compiler messages refer to the kept file."""
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
