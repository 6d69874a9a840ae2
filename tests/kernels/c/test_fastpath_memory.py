"""Assignments started by the extension: nothing leaked, nothing awaited, and other code that runs meanwhile."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, gen_backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.errors import ShapeError
from neonlike.kernels.c import fastpath
from neonlike.kernels.run.program import Replayed, Source
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS, Kind
from tests.support.compiling import python
from tests.support.replaying import extension, fast, tensors  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]


# Memory ----------------------------------------------------------------------------------------------------------


def test_no_reference_is_kept_or_lost(fast: Backend) -> None:
    a, b, out = tensors(fast)
    number, expression, unusual = 2.375, a * b + 2.375, fast.dot(a, b.T)
    square = fast.empty((4, 4))
    things = [a, b, out, number, expression, unusual, a.shape, a.root, a.array, fast, OPS["add"], None, True, False]

    def once() -> None:
        out[:] = expression
        out[:] = a * b + number
        out[:] = a
        out[:] = 3
        square[:] = unusual
        out[:, 1:3] = a[:, 1:3] * 2
        fast.assign_many([(out, a + b), (square, square + 1)])
        with pytest.raises(ShapeError):
            out[:] = square + 1

    for _ in range(5):
        once()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(200):
        once()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in things]
    assert max(abs(now - then) for now, then in zip(after, before)) < 20, list(zip(before, after))


def test_memory_does_not_grow(fast: Backend) -> None:
    a, b, out = tensors(fast)

    def once(count: int) -> None:
        for k in range(count):
            out[:] = a * b + k
            out[1:3] = a[1:3] - b[1:3]
            fast.executor.replay.table.learn(fast, [(out, a)], None)
            if k % 50 == 0:
                fast.executor.clear()

    once(200)
    tracemalloc.start()
    try:
        held = []
        for _ in range(4):
            once(600)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    grown = [after - before for before, after in pairwise(held)]
    assert min(grown) < 10_000, grown  # tables of the interpreter grow at times, what leaks does each time


def test_tensors_backends_and_roots_are_released(fast: Backend) -> None:
    be = NervanaCPU(rng_seed=0)
    be.executor.replay.adopt(fastpath._state.module)
    a, b, out = tensors(be)
    for _ in range(3):
        out[:] = a + b
    assert be.executor.replay.table.hits == 2
    watched = [weakref.ref(thing) for thing in (a, out, a.array, be.plans)]
    be.cleanup_backend()
    del a, b, out, be
    gc.collect()
    assert [reference() for reference in watched] == [None] * 4


def test_copies_of_a_tensor_have_no_part_in_its_place(fast: Backend) -> None:
    a, b, out = tensors(fast)
    for _ in range(2):
        out[:] = a + b
    place = vars(a)["_place"]
    assert copy.copy(place) is None and copy.deepcopy(place) is None and pickle.loads(pickle.dumps(place)) is None
    with pytest.raises(TypeError):
        type(place)()
    twin = fast.ones(a.shape)
    twin.__dict__["_place"] = place
    out[:] = twin + b
    np.testing.assert_array_equal(out.get(), 1 + b.get())
    assert vars(twin)["_place"] is not place
    twin.__dict__["_place"] = None
    out[:] = twin - b
    np.testing.assert_array_equal(out.get(), 1 - b.get())


def test_the_table_is_bounded_and_forgets_with_the_plans(fast: Backend) -> None:
    launches = fast.executor.replay.table
    big, out = fast.ones((60, 60)), fast.empty((60, 60))
    for m in range(1, 60):
        for n in range(1, 60, 2):
            out[:m, :n] = big[:m, :n]
            assert launches.used <= 1024
    assert (out.get()[:59, :59] == 1).all()
    before = launches.used
    assert before > 0
    fast.executor.clear()
    assert launches.used == 0 and len(fast.plans) == 0
    hits = launches.hits
    out[:] = big + 1
    assert launches.hits == hits and launches.used == 1 and (out.get() == 2).all()


# Other code in between -------------------------------------------------------------------------------------------


def test_threads_do_not_disturb_each_other(fast: Backend) -> None:
    failures: list[Any] = []

    def work(seed: int) -> None:
        a, b, out = tensors(fast, 3 + seed, 40_000 if seed % 2 else 50, seed=seed)
        wanted = a.get() * b.get() + seed
        for _ in range(60):
            out[:] = a * b + seed
            if not np.array_equal(out.get(), wanted):
                failures.append(seed)
            if seed == 0:
                fast.executor.clear()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []


def test_a_deep_expression_needs_no_deep_stack() -> None:
    """Some C libraries give threads 128 KiB: a chain of 1900 nodes is walked in them, for a key and for a tape."""
    code = """
import threading
from neonlike import autograd
from neonlike.backends import gen_backend
from neonlike.kernels.c import fastpath
assert fastpath.build()
be = gen_backend("cpu")
be.executor.replay.adopt(fastpath.asked_for())
x, out = be.ones((2, 3)), be.empty((2, 3))
w = autograd.param(x)

def work():
    chain = x
    for _ in range(1900):
        chain = chain + x
    before = be.executor.replay.table.used
    out[:] = chain
    done.append(be.executor.replay.table.used - before)
    total = w
    for _ in range(900):
        total = total * x
    done.append(be.executor.replay.table.tape(be, autograd.sum(total)._expr, {}) is not None)

done = []
threading.stack_size(192 << 10)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert done == [1, True] and out.get().tolist() == [[1901.0] * 3] * 2
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_only_long_kernels_let_other_threads_run(fast: Backend) -> None:
    recipes = []
    learn = fast.executor.replay.learn

    def noted(be: Backend, pairs: Any, recipe: Any, fresh: bool) -> None:
        recipes.append(recipe)
        learn(be, pairs, recipe, fresh)

    fast.executor.replay.learn = noted  # type: ignore[method-assign]
    for size in (8, 1000):
        a, out = fast.ones((size, size)), fast.empty((size, size))
        out[:] = fast.exp(a)
        out[:] = fast.exp(a)
    assert [recipe.release for recipe in recipes] == [False] * 2 + [True] * 2, "ones and exp, small and large"
    threads = [[value for source, value in recipe.steps[0].words if source is Source.THREADS] for recipe in recipes]
    assert not any(max(counts) > 1 and not recipe.release for counts, recipe in zip(threads, recipes))


class Meddling:
    """A made-up row of the table of ops that assigns when it is looked at."""

    keyed = ()

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    @property
    def kind(self) -> Kind:
        self.act()
        return Kind.ELEMENTWISE


def test_an_assignment_within_the_walk_of_another_is_left_to_python(fast: Backend) -> None:
    a, b, out = tensors(fast)
    inner, hits = fast.empty(a.shape), []
    for _ in range(2):
        inner[:] = a - b

    def act() -> None:
        inner[:] = 0
        inner[:] = a - b
        hits.append(fast.executor.replay.table.hits)

    before = fast.executor.replay.table.hits
    node = OpTreeNode(Meddling(act), (a, b), None, a.shape, a.dtype, fast)  # type: ignore[arg-type]
    assert fast.executor.replay.table.run(fast, out, node) is Replayed.NEW
    assert hits == [before], "Python did it"
    np.testing.assert_array_equal(inner.get(), a.get() - b.get())
    inner[:] = a - b
    assert fast.executor.replay.table.hits == before + 1


def test_a_row_that_cannot_be_read_is_left_to_python(fast: Backend) -> None:
    a, out = fast.ones((2, 3)), fast.empty((2, 3))

    def fail() -> None:
        raise KeyError("no kind")

    node = OpTreeNode(Meddling(fail), (a, a), None, a.shape, a.dtype, fast)  # type: ignore[arg-type]
    assert fast.executor.replay.table.run(fast, out, node) is Replayed.LEFT


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_runs_on_one_thread(fast: Backend) -> None:
    """Programs fork to use cores by processes. None of the parent's threads is there, and nothing waits for one."""
    a, b, out = tensors(fast, 512, 1024)
    for _ in range(2):
        out[:] = a * b + 1
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)
        try:
            hits = fast.executor.replay.table.hits
            out[:] = a * b + 3
            right = fast.executor.replay.table.hits == hits + 1
            right = right and np.array_equal(out.get(), a.get() * b.get() + 3)
        finally:
            os._exit(7 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_bench_mode_and_the_numpy_engine_do_without(extension: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, jit in (({"bench": True}, "1"), ({}, "0")):
        monkeypatch.setenv("NEONLIKE_CPU_JIT", jit)
        with gen_backend("cpu", rng_seed=0, **options) as be:
            a, out = be.ones((2, 3)), be.empty((2, 3))
            for _ in range(4):
                out[:] = a + 1
            assert be.executor.replay.table is None
