"""Filling the cache of compiled kernels ahead of time; behind ``python -m neonlike warm``.

A :class:`CollectingEngine` runs plans with NumPy and passes each to a :class:`WarmUp`, which asks the C engine for its
kernels and compiles them in background threads. Compound primitives compile theirs as they run, as always.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from neonlike import settings
from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import default_cache, default_directory, key_of
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.build.waiting import THREADS
from neonlike.kernels.c import fastpath
from neonlike.kernels.c.compile import build_kernel, kernel_key, kernels_here
from neonlike.kernels.c.engine import CEngine
from neonlike.kernels.c.toolchain import SUFFIX, find_compiler
from neonlike.kernels.numpy_engine.engine import NumpyEngine
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan
from neonlike.kernels.run.threads import thread_count

_MET = "warm"
"""Key in ``plan.executable`` of the layouts whose kernels were asked for."""


class ScriptStopped(SystemExit):
    """Ends a program from which no more kernels are expected, for ``reason``; exit status 0."""

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason


class Fate(Enum):
    """The outcome of compiling a kernel."""

    COMPILED = "compiled"
    FOUND = "in the cache already"
    FAILED = "not compiled"
    LOST = "compiled but not kept"


@dataclass(frozen=True)
class Report:
    """The counts of a warm-up.

    Attributes
    ----------
    fates : counter
        Kernels by what became of them.
    seconds : float
        Wall-clock time from the start to the last kernel.
    failures : list of str
        The compiler's output, one text per kernel that failed.
    """

    fates: Counter[Fate]
    seconds: float
    failures: list[str]

    @property
    def complete(self) -> bool:
        """Whether every kernel met is in the cache now."""
        return not self.fates[Fate.FAILED] and not self.fates[Fate.LOST]


class WarmUp:
    """The kernels of the plans it is shown, compiled in background threads.

    Parameters
    ----------
    idle : float
        Raise :class:`ScriptStopped` from :meth:`meet` if there was no new kernel for this many seconds and for as many
        runs of plans as there were before the last one. 0: never.
    limit : float
        Raise it after this many seconds in any case. 0: never.
    clock : callable
        Seconds; for tests.
    """

    def __init__(self, idle: float = 0.0, limit: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.idle, self.limit, self.clock = idle, limit, clock
        self.began = self._last_new = clock()
        self._runs = self._runs_at_last_new = 0
        self._engine = CEngine()  # lists kernels, never runs them
        self._pool = ThreadPoolExecutor(thread_count(), thread_name_prefix=THREADS)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self._before = frozenset(kernels_here())
        self._futures: list[Future[Fate]] = []
        self._failures: list[str] = []
        self._open = True

    def meet(self, plan: Plan, graph: Graph) -> None:
        """Queue the new kernels of ``plan`` on the tensors of ``graph`` for compiling.

        Raises
        ------
        ScriptStopped
            See ``idle`` and ``limit``.
        """
        if not self._open:
            return
        met: Any = plan.executable.setdefault(_MET, set())
        if (layout := graph.layout()) not in met:
            met.add(layout)
            for kernel in self._engine.sources(plan, graph):
                self._add(kernel)
        self.step()

    def step(self) -> None:
        """Count one run of a plan; raises as :meth:`meet` does."""
        if not self._open or os.getpid() != self._process:
            return
        self._runs += 1
        if (self.idle or self.limit) and (reason := self._why_stop()):
            raise ScriptStopped(reason)

    def finish(self, cancel: bool = False) -> Report:
        """Wait for queued kernels (``cancel``: only for those being compiled); later plans are ignored."""
        self._open = False
        self._pool.shutdown(wait=True, cancel_futures=cancel)
        fates = Counter(future.result() for future in self._futures if not future.cancelled())
        for key, compiled in kernels_here().items():  # those of compound primitives were built as the program ran
            if key not in self._keys and key not in self._before:
                fates[Fate.COMPILED if compiled else Fate.FOUND] += 1
        return Report(fates, self.clock() - self.began, self._failures)

    def _add(self, kernel: KernelSource) -> None:
        compiler = find_compiler()
        if compiler is None:
            return  # the script has forbidden compiling since
        key = kernel_key(kernel, compiler)
        with self._lock:
            if key in self._keys:
                return
            self._keys.add(key)
        self._last_new, self._runs_at_last_new = self.clock(), self._runs
        if os.getpid() != self._process:
            self._compile(kernel)  # a forked child has none of the pool's threads
        else:
            self._futures.append(self._pool.submit(self._compile, kernel))
            if len(self._keys) == 1:
                self._pool.submit(fastpath.build)  # an extension, not counted as a kernel: see fastpath.py

    def _why_stop(self) -> str:
        """Why the program need not go on; the empty string if it has to.

        The number of runs counts besides the time because one minibatch of a large network may take longer than
        ``idle``: kernels of the backward pass come after many runs of the same forward kernels.
        """
        now = self.clock()
        if self.limit and now - self.began >= self.limit:
            return f"{self.limit:g} s are over"
        quiet = self._runs - self._runs_at_last_new >= self._runs_at_last_new
        if self.idle and self._keys and quiet and now - self._last_new >= self.idle:
            return f"no new kernel for {self.idle:g} s"
        return ""

    def _compile(self, kernel: KernelSource) -> Fate:
        found = _entry(kernel) is not None
        try:
            build_kernel(kernel)
        except KernelCompileError as error:
            self._failures.append(str(error))
            return Fate.FAILED
        if found:
            return Fate.FOUND
        entry = _entry(kernel)
        return Fate.COMPILED if entry is not None and _is_kept(entry) else Fate.LOST


class CollectingEngine(NumpyEngine):
    """Passes plans to a :class:`WarmUp` and runs them with NumPy."""

    def __init__(self, warm_up: WarmUp) -> None:
        self.warm_up = warm_up

    def execute(self, plan: Plan, graph: Graph) -> None:
        """Compute every assignment of ``graph``."""
        self.warm_up.meet(plan, graph)
        super().execute(plan, graph)

    def prepare(self, plan: Plan, graph: Graph) -> Callable[[], None]:
        """A function that runs ``plan`` on these very tensors again and again."""
        self.warm_up.meet(plan, graph)
        run = super().prepare(plan, graph)

        def step() -> None:
            self.warm_up.step()
            run()

        return step


def obstacle() -> str:
    """Why kernels cannot be compiled and kept here (warnings logged before say more); empty if they can."""
    if not settings.CPU_JIT.get():
        return "NEONLIKE_CPU_JIT=0 forbids the C compiler; unset it"
    if find_compiler() is None:
        return "there is no C compiler that works, so there are no kernels to compile"
    key = key_of("warm")
    try:
        kept = _is_kept(default_cache().put(key, b"", ".probe"))
    except OSError:
        kept = False
    default_cache().discard(key, ".probe")
    return "" if kept else "compiled kernels cannot be kept; name a directory of your own with NEONLIKE_CACHE_DIR"


def _entry(kernel: KernelSource) -> Path | None:
    """The library of ``kernel`` in the cache."""
    compiler = find_compiler()
    return None if compiler is None else default_cache().get(kernel_key(kernel, compiler), SUFFIX)


def _is_kept(entry: Path) -> bool:
    """Whether an entry outlives this process: not so in the private directory that replaces an unwritable cache."""
    try:
        return default_directory() in entry.parents
    except RuntimeError:  # no home directory
        return False
