"""How many threads there are, and the worker threads of NumPy blocks: NumPy releases the interpreter lock in its loops.

The number is the process's: the one chosen by code (``be.num_threads = 4``), else ``NEONLIKE_NUM_THREADS``, else
``OMP_NUM_THREADS``, else the number of cores, of which ranks on one machine have equal shares. The environment is read
when a backend is made; kernels ask many thousand times a second. How work is cut into groups does not depend on it, so
neither do results.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from neonlike import settings, system

when_changed: list[Callable[[], None]] = []
"""Called when the number has changed: launches that were kept hold the old one."""

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_count = 0
"""The number in force; 0 until it is first asked for."""
_chosen: int | None = None
"""The one that code chose."""
_share: int | None = None
"""Cores of this process, where several share a machine; None: all."""


def thread_count() -> int:
    """Threads to use."""
    return _count or refresh()


def choose(count: int | None) -> None:
    """Use ``count`` threads (1 to ``settings.MOST_THREADS``) from now on; None: as the environment says."""
    global _chosen
    _chosen = count
    refresh()


def share_cores(count: int | None) -> None:
    """Take ``count`` for the number of cores, as other processes have the rest; None: all are this process's."""
    global _share
    _share = count
    refresh()


def refresh() -> int:
    """The number of threads, after a new look at the environment.

    Raises
    ------
    ArgumentError
        If ``NEONLIKE_NUM_THREADS`` is no number of threads.
    """
    global _count
    before = _count
    wanted = _chosen or settings.NUM_THREADS.get() or settings.OMP_NUM_THREADS.get() or _share
    _count = wanted or len(system.own_processors())
    if before not in (0, _count):
        for forget in when_changed:
            forget()
    return _count


def parallel(function: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call ``function`` on every item, on all threads; the first exception is raised, when none is running any more.

    The caller takes items too, and others help: where no thread can be started, it does all the work.
    """
    threads = min(thread_count(), len(items))
    if threads <= 1:
        for item in items:
            function(item)
        return
    left = deque(items)
    helpers: list[Future[None]] = []
    try:
        try:
            for _ in range(threads - 1):
                helpers.append(_pool(threads).submit(_take, function, left))
        except RuntimeError:  # the program ends, or the system has no more threads
            _pools.clear()  # what waits there for a thread would be kept
        _take(function, left)
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    except BaseException:  # or an interrupt: the others write to memory that whoever called may use otherwise
        left.clear()
        for helper in helpers:
            helper.cancel()
        wait(helpers)
        raise


def _pool(threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), threads)  # a forked child has no threads of its parent's pool
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="neonlike")
    return pool


def _take(function: Callable[[Any], None], left: deque[Any]) -> None:
    """Call ``function`` on items until none is left; a helper that comes late finds none."""
    while True:
        try:
            item = left.popleft()
        except IndexError:
            return
        try:
            function(item)
        except BaseException:
            left.clear()
            raise
