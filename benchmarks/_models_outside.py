"""What share of a training step of ours is outside of kernels: steps, and the kernels of a step alone, in turns.

A step is what ``Model.fit`` does for a minibatch that it was given: both passes, the cost, which is read, and the
optimizer. The kernels alone are started by the extension of CPython one after the other, without a look at anything.
Both are timed by the clock, and by the time that the thread had a processor: other programs disturb that less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

LEAST = 5
"""Fewest steps."""


def kernels_of(made: Any) -> Callable[[], object] | None:
    """What starts the kernels of a step of ``made``, a ``Training``; None where not all of them can be written down."""
    from neonlike.kernels.c import fastpath
    from neonlike.kernels.run.recorded import recording
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
    with recording(be) as written:
        made.model._play(made.x, made.t)
        update()
    if not written.is_whole:
        return None
    alone: Callable[[], object] = be.executor.replay.record(tuple(written.kernels), (), written.held).run
    return alone


def shares(step: Callable[[], object], alone: Callable[[], object], seconds: float) -> list[float]:
    """The part of a step's time in which no kernel runs: by the clock, and by the thread's."""
    clocks = time.perf_counter, time.thread_time
    taken: dict[Any, list[tuple[float, ...]]] = {step: [], alone: []}
    end = time.perf_counter() + seconds
    while len(taken[step]) < LEAST or time.perf_counter() < end:
        for call, found in taken.items():
            begin = [clock() for clock in clocks]
            call()
            found.append(tuple(clock() - first for clock, first in zip(clocks, begin)))
    medians = [[statistics.median(times) for times in zip(*found)] for found in taken.values()]
    return [1 - kernels / whole if whole else 0.0 for whole, kernels in zip(*medians)]
