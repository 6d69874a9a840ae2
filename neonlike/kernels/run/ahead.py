"""Kernels compiled before a plan runs, side by side and in the background: what the C and the CUDA engine share.

An engine says which kernels a plan needs on given tensors; threads compile them into the cache of kernels. The run
that needs one waits for it if it is being compiled, and compiles it itself if nobody began. Loading a kernel, which a
device has to do in the caller's context, is left to that run, and so are errors.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.build.waiting import THREADS, waiting
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.plan import Plan
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.stage import ExecutableStage
from neonlike.kernels.run.threads import thread_count

Built = TypeVar("Built")


class CompilesAhead(Engine):
    """An engine that compiles: the kernels of a plan side by side, those of a prepared one in the background."""

    def compile_ahead(self, plan: Plan, graph: Graph) -> None:
        """Start compiling what ``plan`` needs in the background; who runs it first waits for what is not ready."""
        self._begin(self.sources(plan, graph))

    def start(self, plan: Plan, graph: Graph) -> list[ExecutableStage]:
        """The stages of a plan that runs for the first time; if it has several kernels they compile side by side."""
        made = self.compile(plan, graph)
        if len(made) > 1 and len(kernels := self.sources(plan, graph)) > 1:
            self._begin(kernels)
        return made

    def _begin(self, kernels: Iterable[KernelSource]) -> None:
        for kernel in kernels:
            if not self.is_built(kernel):
                try:
                    _compilers(os.getpid()).submit(_try, self.build, kernel)
                except RuntimeError:  # the program ends, or the system has no more threads: the run compiles it
                    return


def build_many(kernels: Sequence[KernelSource], build: Callable[[KernelSource], Built]) -> list[Built]:
    """Several kernels that ``build`` compiles side by side, in the order given.

    Raises
    ------
    KernelCompileError
        Of the first kernel that failed, after all were tried: the others are in the cache then.
    """
    workers = max(1, min(len(kernels), thread_count(), os.cpu_count() or 1))
    futures: list[Future[Built]] = []
    with waiting(*kernels), ThreadPoolExecutor(workers, thread_name_prefix=THREADS) as pool:
        with contextlib.suppress(RuntimeError):  # no thread can be started: what is left out is built below
            for kernel in kernels:
                futures.append(pool.submit(build, kernel))
    return [future.result() for future in futures] + [build(kernel) for kernel in kernels[len(futures) :]]


@lru_cache(maxsize=1)
def _compilers(process: int) -> ThreadPoolExecutor:
    """Threads that wait for compilers; a fork has to make its own."""
    pool = ThreadPoolExecutor(thread_count(), thread_name_prefix=f"{THREADS}-{process}")
    # Python waits for threads before atexit; a version without this hook compiles what was begun to the end.
    if register := getattr(threading, "_register_atexit", None):
        register(_leave_out, pool)
    return pool


def _leave_out(pool: ThreadPoolExecutor) -> None:
    """The process ends: if by Ctrl-C, what has not begun to compile is left out, for which Python would wait."""
    if issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt):
        pool.shutdown(wait=False, cancel_futures=True)


def _try(build: Callable[[KernelSource], object], kernel: KernelSource) -> None:
    """Compile ``kernel``; an error is reported by the run that needs it."""
    with contextlib.suppress(KernelCompileError):
        build(kernel)
