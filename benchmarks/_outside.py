"""Share of a training step of ours outside of kernels: steps, and the kernels of a step alone, in turns.

A step is what ``Model.fit`` does for a minibatch that it was given: both passes, the cost, which is read, and the
optimizer. The kernels alone are started by the extension of CPython one after the other, without a look at anything.
Both are timed by the clock, and by the time that the thread had a processor: other programs disturb that less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

LEAST = 15
"""Fewest pairs of a step and its kernels: two of half a second each differ by a tenth on a busy machine."""


def kernels_of(made: Any) -> Callable[[], object] | None:
    """A call that starts the kernels of a step of ``made``, a ``Training``; None where some cannot be written down."""
    from neonlike.kernels.c import fastpath
    from neonlike.kernels.run.program import join
    from neonlike.kernels.run.trace import tracing
    from neonlike.optimizers.optimizer import get_param_list

    be, optimizer, numbers = made.be, made.optimizer, made.be.array([[made.net.rate]])

    def update() -> None:
        for (param, grad), states in get_param_list(made.layers):
            be.assign_many(optimizer._updates(param, grad, states, numbers))

    if not fastpath.build():
        return None
    fastpath.request(be.executor.replay.adopt)
    made.step()  # which makes the optimizer's states
    for _ in range(3):  # what is to be written down was made before
        made.model._play(made.x, made.t)
        update()
    with tracing(be) as written:
        made.model._play(made.x, made.t)
        update()
    if not written.is_whole:
        return None
    alone: Callable[[], object] = be.executor.replay.program(join(written.runs, written.held))
    return alone


def shares(step: Callable[[], object], alone: Callable[[], object], seconds: float) -> list[float]:
    """The part of a step's time in which no kernel runs: by the clock, and by the thread's.

    The median of pairs of a step and its kernels, which follow each other: what slows the machine for a while slows
    both of a pair. Every other pair begins with the kernels.
    """
    clocks = time.perf_counter, time.thread_time
    pairs: list[list[float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < LEAST or time.perf_counter() < end:
        taken: dict[Any, list[float]] = {}
        for call in (alone, step) if len(pairs) % 2 else (step, alone):
            begin = [clock() for clock in clocks]
            call()
            taken[call] = [clock() - first for clock, first in zip(clocks, begin)]
        pairs.append([1 - kernels / whole if whole else 0.0 for whole, kernels in zip(taken[step], taken[alone])])
    return [statistics.median(shares) for shares in zip(*pairs)]
