"""Measurement of this machine's peak rates: memory copy bandwidth on all threads, and matrix product throughput.

They are measured on first use, in 0.1 to 0.2 s each, and kept for the process. Reports of timed kernels are compared
with these rates, and the benchmark scripts take their roofline copy rate from here.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np

from neonlike.kernels.run.threads import thread_count
from neonlike.optree.npfuncs import Array

Measure: TypeAlias = Callable[[Callable[[], Any]], float]
"""Runs a function and returns the seconds it took."""

COPY_BYTES = 256 << 20
"""Bytes read and written by the measured copy, half each; half as many still came from a large shared cache at
times."""
BUDGET = 0.1
"""Seconds for the repetitions of one measurement."""
GEMM_SIZES = {256: math.inf, 512: 4 * BUDGET, 1024: 4 * BUDGET, 2048: BUDGET / 4}
"""Sizes of square matrices -> maximum expected seconds per run; slower sizes are skipped.

The limits are generous up to 1024: on a busy machine small products take as long as large ones and are not informative.
"""


@dataclass(frozen=True)
class MachineRates:
    """Measured rates.

    Attributes
    ----------
    threads : int
        Threads of the copy.
    copy : float
        GB/s of a memory copy, counting bytes read and bytes written.
    gemm : dict
        GFLOP/s of a matrix product, by dtype name; a multiplication and an addition count as two.
    device : str
        Name of the measured GPU (``threads`` is 0 then); "" for the host.
    rounded : str
        Dtype to which the host rounds factors of float32 products; "": they are not rounded.
    """

    threads: int
    copy: float
    gemm: dict[str, float] = field(default_factory=dict)
    device: str = ""
    rounded: str = ""

    def product(self, dtype: str) -> float | None:
        """GFLOP/s that products with results of ``dtype`` can reach; None if it was not measured."""
        return self.gemm.get(self.rounded if dtype == "float32" and self.rounded else dtype, self.gemm.get("float32"))


def machine_rates(dtypes: tuple[str, ...] = ()) -> MachineRates:
    """Rates of the copy, and of products of the float ``dtypes`` ("float32", "float64")."""
    threads = thread_count() if _threads_start() else 1
    return MachineRates(threads, copy_rate(threads), {name: gemm_rate(name) for name in dtypes})


@lru_cache(maxsize=8)
def copy_rate(threads: int, nbytes: int = COPY_BYTES) -> float:
    """GB/s of a memory copy that reads half of ``nbytes`` and writes the other half."""
    source = np.ones(max(nbytes // 8, 1), np.float32)
    run = copier(source, np.zeros_like(source), threads)
    return nbytes / best_seconds(run) / 1e9


@lru_cache(maxsize=8)
def gemm_rate(dtype: str) -> float:
    """GFLOP/s of square matrix products: the best of the sizes that fit the time budget."""

    def product(size: int) -> Callable[[], Any]:
        a, b, out = (np.ones((size, size), dtype) for _ in range(3))
        return partial(np.matmul, a, b, out)

    return best_square_rate(product, GEMM_SIZES)


def best_square_rate(
    product: Callable[[int], Callable[[], Any]], sizes: dict[int, float], measure: Measure | None = None
) -> float:
    """GFLOP/s of ``product(size)()`` at the best of ``sizes``; stops at a size slower than its limit.

    Parameters
    ----------
    product : callable
        ``product(size)`` makes a call that multiplies square matrices.
    sizes : dict
        Longest time of one product, in seconds, by sizes.
    measure : callable, optional
        Seconds of a call; None: by the host's clock.
    """
    rate = seconds = 0.0
    for size, longest in sizes.items():
        if 8 * seconds > longest:
            break
        seconds = best_seconds(product(size), BUDGET / 5, measure)
        rate = max(rate, 2 * size**3 / seconds / 1e9)
    return rate


def best_seconds(run: Callable[[], Any], budget: float = BUDGET, measure: Measure | None = None) -> float:
    """Shortest of at least three runs, and as many as fit ``budget``, after a first; that one alone if it is long.

    Parameters
    ----------
    run : callable
    budget : float
        Seconds for all runs.
    measure : callable, optional
        Seconds of a call; None: by the host's clock.
    """
    measure = measure or _seconds
    samples = [measure(run)]
    if samples[0] < BUDGET:
        samples = []
        while len(samples) < 3 or sum(samples) < budget:
            samples.append(measure(run))
    return min(samples)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return max(time.perf_counter() - start, 1e-9)


def _threads_start() -> bool:
    """Whether threads can be started; Python 3.12.0 and 3.12.1 refuse while exiting."""
    try:
        threading.Thread(target=int, daemon=True).start()
    except RuntimeError:
        return False
    return True


# The copy ---------------------------------------------------------------------------------------------------------


def copier(source: Array, target: Array, threads: int) -> Callable[[], None]:
    """Return a function that copies ``source`` to ``target`` (1-D, equal lengths) on ``threads`` threads.

    The threads wait between calls and end with the function. They are plain threads, because executors refuse work
    while the interpreter exits, which is when reports are written.

    Parameters
    ----------
    source, target : arrays
    threads : int
    """
    cuts = [len(source) * i // threads for i in range(threads + 1)]
    parts = [(target[i:j], source[i:j]) for i, j in itertools.pairwise(cuts)]
    done: SimpleQueue[BaseException | None] = SimpleQueue()
    starts: list[SimpleQueue[bool]] = [SimpleQueue() for _ in parts[1:]]
    for start, part in zip(starts, parts[1:]):
        threading.Thread(target=_copy_when_told, args=(start, done, part), daemon=True).start()

    def run() -> None:
        for start in starts:
            start.put(True)
        np.copyto(*parts[0])
        for _ in starts:
            if (error := done.get()) is not None:
                raise error

    weakref.finalize(run, _stop, starts)
    return run


def _copy_when_told(start: SimpleQueue[bool], done: SimpleQueue[BaseException | None], part: tuple[Any, Any]) -> None:
    while start.get():
        try:
            np.copyto(*part)
            done.put(None)
        except BaseException as error:  # the caller waits for an answer
            done.put(error)


def _stop(starts: list[SimpleQueue[bool]]) -> None:
    for start in starts:
        start.put(False)
