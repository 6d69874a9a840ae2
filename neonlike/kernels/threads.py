"""Worker threads for large blocks: NumPy releases the interpreter lock inside its loops.

The number of threads is ``NEONLIKE_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the number of cores. How work is
cut into groups does not depend on it, so neither do results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from neonlike.kernels.blas import half_vectors

SHORT_SPIN, LONG_SPIN = "3000", "30000"
"""Turns that a thread waits before it sleeps, some thirty and three hundred microseconds: see limit_spinning."""

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def thread_count() -> int:
    """Threads to use."""
    for name in ("NEONLIKE_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def limit_spinning() -> None:
    """Have the threads of GCC's OpenMP library sleep soon after a loop; to be called before that library is loaded.

    They wait for the next loop for milliseconds otherwise, on the cores that the threads of NumPy's products need
    meanwhile: a product of 1 ms took 6 to 23 ms after a kernel. But to wake one that sleeps takes 0.05 to 0.4 ms, ten
    times as long as a small kernel. So they wait longer where all but small products are ours (see ``gemm.pays``).
    ``OMP_WAIT_POLICY`` and ``GOMP_SPINCOUNT`` stay as they are set.
    """
    if "OMP_WAIT_POLICY" not in os.environ and "GOMP_SPINCOUNT" not in os.environ:
        os.environ["GOMP_SPINCOUNT"] = LONG_SPIN if half_vectors() else SHORT_SPIN


def parallel(function: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Call ``function`` on every item, on all threads; the first exception is raised."""
    threads = min(thread_count(), len(items))
    if threads <= 1:
        for item in items:
            function(item)
        return
    key = (os.getpid(), threads)  # a forked child has no threads of its parent's pool
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = ThreadPoolExecutor(threads, thread_name_prefix="neonlike")
    list(pool.map(function, items))
