"""Times of messages between two ranks under mpiexec, for ``scaling.py``; rank 0 prints them as JSON.

``_rank_messages.py REPEATS``. For each number of bytes: *exchange*, both ranks send each other a message at the same
time, as the ranks of a ring do; *allreduce*, a sum as small gradients take it; *rows*, the two exchanges of rows by
which ranks share the update of a large parameter. *add*: seconds a byte of adding float32 numbers.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import _machine  # noqa: F401  (finds the package in a checkout)
import numpy as np

SIZES = tuple(1 << power for power in (6, 10, 14, 16, 18, 20, 22, 24))
"""Bytes of messages."""


def median(call: Callable[[], object], wait: Callable[[], None], repeats: int) -> float:
    """Seconds of a call that both ranks begin together."""
    took = []
    for _ in range(repeats + 1):
        wait()
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return statistics.median(took[1:])


def calls(ranks: Any, nbytes: int) -> dict[str, Callable[[], object]]:
    """Calls that are measured, by name, with messages of ``nbytes``."""
    from mpi4py import MPI

    sent = np.zeros((2, nbytes // 8), np.float32)
    received, half, bounds = np.empty_like(sent), np.empty((1, nbytes // 8), np.float32), [0, 1, 2]
    other = 1 - ranks.rank

    def rows() -> None:
        ranks.exchange_rows(sent, half, bounds)
        ranks.gather_rows(sent, bounds)

    return {
        "exchange": lambda: MPI.COMM_WORLD.Sendrecv(sent, other, recvbuf=received, source=other),
        "allreduce": lambda: ranks.reduce(sent),
        "rows": rows,
    }


def main(repeats: int) -> None:
    """Measure and print."""
    from neonlike.backends import gen_backend

    be = gen_backend("cpu", batch_size=2)
    found: dict[str, Any] = {}
    for nbytes in SIZES:
        for name, call in calls(be.ranks, nbytes).items():
            found.setdefault(name, []).append([nbytes, median(call, be.barrier, repeats)])
    total, part = (np.zeros(SIZES[-1] // 4, np.float32) for _ in range(2))
    found["add"] = median(lambda: np.add(total, part, out=total), be.barrier, repeats) / total.nbytes
    if be.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
