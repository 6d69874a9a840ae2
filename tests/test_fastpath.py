"""Assignments started by the extension: the same results and errors as by Python, nothing leaked, nothing awaited."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from engines import backend, needs_compiler

from neonlike.backends import Backend, gen_backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.errors import AliasError, BackendUnavailable, DTypeError, ShapeError
from neonlike.kernels import fastpath
from neonlike.kernels.graph import linearize
from neonlike.kernels.plan_cache import PlanCache
from neonlike.optree.functions import F
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS, Kind

pytestmark = pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle())


class Asker:
    """Waits for the extension."""

    def adopt(self, module: Any) -> None:
        self.module = module


@pytest.fixture(scope="module")
def extension() -> Any:
    """The extension; compiled now if it is not in the cache."""
    needs_compiler()
    asker = Asker()
    fastpath.request(asker.adopt)
    if fastpath._state.thread is not None:
        fastpath._state.thread.join()
    return asker.module


@pytest.fixture
def fast(extension: Any) -> Iterator[Backend]:
    """A backend that has the extension."""
    for be in backend("c"):
        be.plans._adopt(extension)
        yield be


def tensors(be: Backend, *shape: int, count: int = 3, dtype: Any = np.float32, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [be.array(rng.integers(-9, 9, shape or (4, 6)) / 4, dtype=dtype) for _ in range(count)]


def by_python(be: Backend, pairs: list[tuple[Any, Any]]) -> list[bytes]:
    """The bytes that Python leaves in targets of ``pairs``; their content is as before afterwards."""
    before = [target.get() for target, _ in pairs]
    plans, be.plans = be.plans, PlanCache()
    be.assign_many(pairs)
    be.plans = plans
    found = [target.get().tobytes() for target, _ in pairs]
    for (target, _), host in zip(pairs, before):
        target.set(host)
    return found


# Results ---------------------------------------------------------------------------------------------------------

EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "flat": lambda be, a, b, c, k: be.sig(a * b + c),
    "shared": lambda be, a, b, c, k: (a + b) * (a + b) - (a + b),
    "one twice": lambda be, a, b, c, k: a * a + b,
    "real numbers": lambda be, a, b, c, k: a * (k + 0.25) + b / (k + 0.5) - k * 0.125,
    "integers": lambda be, a, b, c, k: a * k + (2 - b) * (k + 1),
    "compare": lambda be, a, b, c, k: (a > b) * c,
    "where": lambda be, a, b, c, k: F.where(a > 0, b, c),
    "row and column": lambda be, a, b, c, k: a[:1] * b[:, :1] + c,
    "strided": lambda be, a, b, c, k: a[:, ::2] + b[:, 1::2] * k,
    "backwards": lambda be, a, b, c, k: a[::-1, ::-1] - b,
    "turned": lambda be, a, b, c, k: a.T + b.T * c.T,
    "by rows": lambda be, a, b, c, k: be.sum(a * b, axis=1),
    "by columns": lambda be, a, b, c, k: be.max(a - c, axis=0) * k,
    "over all": lambda be, a, b, c, k: be.mean(a + b),
    "softmax": lambda be, a, b, c, k: be.exp(a - be.max(a, axis=1)) / be.sum(be.exp(a - be.max(a, axis=1)), axis=1),
    "position": lambda be, a, b, c, k: be.argmax(a, axis=1),
    "a tensor": lambda be, a, b, c, k: b,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_replayed_assignment_gives_the_same(fast: Backend, name: str) -> None:
    made = [EXPRESSIONS[name](fast, *tensors(fast, seed=seed), 2 + seed) for seed in range(3)]
    out = fast.empty(made[0].shape, dtype=made[0].dtype)
    for seed, expression in enumerate(made):
        wanted = by_python(fast, [(out, expression)])
        out[:] = expression
        assert [out.get().tobytes()] == wanted
        assert fast.plans.launches.hits == seed, "the first is learned, the others are replayed"
    assert fast.plans.launches.used == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, np.bool_])
def test_every_dtype_is_replayed(fast: Backend, dtype: Any) -> None:
    for seed in range(3):
        a, b, _ = tensors(fast, dtype=dtype, seed=seed)
        out = fast.empty(a.shape, dtype=dtype)
        wanted = by_python(fast, [(out, a * b - 2 * a)])
        out[:] = a * b - 2 * a
        assert [out.get().tobytes()] == wanted
    assert fast.plans.launches.hits == 2


def test_numbers_fill_and_keep_their_kind(fast: Backend) -> None:
    out, whole = fast.empty((2, 3)), fast.empty((2, 3), dtype=np.int64)
    for value in (1, 2, 2.5, -3.5, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, True, np.float32(4.5), np.int8(-3), 7):
        out[:] = value
        assert out.get().tolist() == [[np.float32(float(value))] * 3] * 2
        if isinstance(value, int) and value < 2**63:
            whole[:] = value
            assert whole.get().tolist() == [[int(value)] * 3] * 2
    assert fast.plans.launches.hits > 6


def test_several_targets_are_replayed_at_once(fast: Backend) -> None:
    p, g, m, v = tensors(fast, count=4)
    v[:] = v * v
    for step in range(1, 4):
        new_m, new_v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        pairs = [(m, new_m), (v, new_v), (p, p - (0.1 / step) * new_m / (fast.sqrt(new_v) + 1e-3))]
        wanted = by_python(fast, pairs)
        assert fast.assign_many(pairs) == [m, v, p]
        assert [t.get().tobytes() for t in (m, v, p)] == wanted
    assert fast.plans.launches.hits == 2
    assert fast.assign_many([]) == []


def test_large_tensors_run_on_all_threads(fast: Backend) -> None:
    a, b, out = tensors(fast, 512, 1024)
    for _ in range(3):
        out[:] = a * b + 1
    assert fast.plans.launches.hits == 2
    np.testing.assert_array_equal(out.get(), a.get() * b.get() + 1)


def test_what_looks_alike_is_told_apart(fast: Backend) -> None:
    """Learned one after the other, then run in turns: each is still itself."""
    a, b, c = tensors(fast, 4, 4)
    (shared,) = tensors(fast, 12, 12, count=1, seed=1)
    outs = [fast.empty((4, 4)), a, shared[:4, :4], shared[4:8, 4:8], fast.empty((4, 4), dtype=np.float64)]
    outs.append(shared[::-1, ::-1][3:7, 3:7])  # elements 8 to 5
    values = [
        lambda: a - b, lambda: b - a, lambda: a - a, lambda: a * 2, lambda: a * 2.0, lambda: a / 2, lambda: 2 / a,
        lambda: fast.sum(a, axis=0), lambda: fast.sum(a, axis=1), lambda: fast.sum(a), lambda: fast.max(a, axis=1),
        lambda: a.T - b, lambda: shared[:4, :4] - b, lambda: shared[4:8, 4:8] - b, lambda: shared[6:10, 6:10] - b,
        lambda: shared[1:5, :4] + 1,
        lambda: a + b * c, lambda: (a + b) * c, lambda: a[:1] + b, lambda: a[:, :1] + b, lambda: 0 * a + 3,
    ]  # fmt: skip
    for _ in range(3):
        for out in outs:
            for value in values:
                wanted = by_python(fast, [(out, value())])
                kept = [t.get() for t in (a, b, c, shared)]
                out[:] = value()
                assert [out.get().tobytes()] == wanted
                for tensor, host in zip((a, b, c, shared), kept):
                    tensor.set(host)
    assert fast.plans.launches.hits > 2 * 80


# Keys ------------------------------------------------------------------------------------------------------------


def random_pair(be: Backend, rng: np.random.Generator, pool: list[Any]) -> tuple[Any, Any]:
    """A target and a small random expression over few tensors, so that many come again."""
    terms: list[Any] = [pool[i] for i in rng.integers(0, len(pool), 2)] + [float(rng.random()), int(rng.integers(9))]
    for _ in range(rng.integers(1, 4)):
        left, right = (terms[i] for i in rng.integers(0, len(terms), 2))
        if not hasattr(left, "shape"):
            left = terms[0]
        choice = rng.integers(0, 8)
        if choice < 5:
            term = F.add(left, right) if choice < 3 else F.mul(right, left)
        elif choice < 7:
            term = F.sum(left, axis=(None, 0, 1)[rng.integers(0, 3)])
        else:
            term = F.neg(left)
        terms.append(term)
    return pool[rng.integers(0, len(pool))], terms[-1]


def test_keys_agree_with_those_of_plans(fast: Backend) -> None:
    """What Python tells apart by key or layout is told apart, and nothing else."""
    rng = np.random.default_rng(7)
    whole = fast.zeros((6, 6))
    pool = [*tensors(fast, 3, 3), whole[:3, :3], whole[3:, 3:], whole.T[:3, :3], fast.zeros((3, 3), dtype=np.int32)]
    pool += [fast.wrap(np.zeros((3, 3), np.float32)), fast.wrap(whole.asnumpyarray()[:3, 3:]), whole[:3, 3:]]
    pool += [whole[::-1, ::-1][:3, :3], whole[:3, :3][:, ::-1]]
    launches, seen, again = fast.plans.launches, set(), 0
    for _ in range(4000):
        target, value = random_pair(fast, rng, pool)
        graph = linearize(((target, value),))
        key = (graph.key, graph.layout())
        answer = launches.run(fast, target, value)
        assert answer is (False if key in seen else None)
        launches.learn(fast, [(target, value)], None)
        again += key in seen
        seen.add(key)
        assert launches.used <= 1024
        if launches.used < len(seen):
            seen.clear()
            launches.clear()
    assert again > 500


@pytest.mark.parametrize(
    "unusual",
    [
        lambda be, a, b: be.dot(a, b), lambda be, a, b: a * be.rand(), lambda be, a, b: F.transpose(a * 2) + b,
        lambda be, a, b: be.take(a, [0, 2], 0) + a[:2], lambda be, a, b: a + F.exp(F.add(1, 2)),
        lambda be, a, b: sum([a * k for k in range(100)], b), lambda be, a, b: be.onehot([[1, 2]], axis=0) + a[:, :2],
    ],
)  # fmt: skip
def test_what_is_unusual_is_left_to_python(fast: Backend, unusual: Callable[..., Any]) -> None:
    a, b, _ = tensors(fast, 5, 5)
    out = fast.empty(unusual(fast, a, b).shape)
    for _ in range(3):
        assert fast.plans.launches.run(fast, out, unusual(fast, a, b)) is False
        out[:] = unusual(fast, a, b)
    assert fast.plans.launches.hits == 0


def test_chains_of_any_length_are_right(fast: Backend) -> None:
    a, out = fast.ones((2, 3)), fast.empty((2, 3))
    for length in (200, 300, 10_000):
        for _ in range(2):
            expression = a
            for _ in range(length):
                expression = expression + a
            out[:] = expression
            assert (out.get() == length + 1).all()


def test_more_tensors_than_it_has_room_for(fast: Backend) -> None:
    many, out = tensors(fast, 2, 2, count=80), fast.empty((2, 2))
    for _ in range(2):
        out[:] = sum(many[1:], many[0])
        np.testing.assert_allclose(out.get(), sum(t.get() for t in many), 1e-5)


def test_broken_nodes_are_refused(fast: Backend) -> None:
    a, out = fast.ones((2, 3)), fast.empty((2, 3))
    run = fast.plans.launches.run
    for slot in ("spec", "operands", "attrs", "backend"):
        node = a + 1
        delattr(node, slot)
        assert run(fast, out, node) is False
    for operands in ([a, a], (a, object()), (a,) * 9, (a, 1j), (a, None)):
        assert run(fast, out, OpTreeNode(OPS["add"], operands, None, a.shape, a.dtype, fast)) is False  # type: ignore[arg-type]
    for attrs in (7, {}, {"axis": "x"}, {"axis": (0, 1.5)}, {"axis": 1 << 70}, {"axis": [0]}):
        assert run(fast, out, OpTreeNode(OPS["sum"], (a,), attrs, a.shape, a.dtype, fast)) is False  # type: ignore[arg-type]
    for value in (None, "x", out, [1], 1 << 80, np.ones((2, 3))):
        assert run(fast, out, value) is False
    for target in (None, 3, a + 1, object()):
        assert run(fast, target, a + 1) is False
    for pairs in (None, (), 3, [(out,)], [3], [(out, a, a)], ((out, a + 1), (out, a + 2))):
        assert fast.plans.launches.run_many(fast, pairs) is False
    with pytest.raises(TypeError):
        run(fast, out)
    used = fast.plans.launches.used
    for recipe in (7, (), (0,) * 11, (0, 5, 0, (), (), (), 0, 0, 1, 0, None), (0, 1, 1, (9,), (), (), 0, 0, 1, 0, 1)):
        fast.plans.launches.learn(fast, [(out, a + 1)], recipe)
        assert fast.plans.launches.used == used


# Errors ----------------------------------------------------------------------------------------------------------


def test_errors_are_those_of_python(fast: Backend) -> None:
    a, b, out = tensors(fast, 2, 3)
    foreign = NervanaCPU(rng_seed=0).ones((2, 3))
    for _ in range(3):
        out[:] = a + b
        before = out.get()
        for error, value in (
            (ShapeError, fast.ones((4, 5)) + 1),
            (DTypeError, foreign + 1),
            (DTypeError, OpTreeNode(OPS["add"], (a, 1 << 70), None, a.shape, a.dtype, fast)),
            (DTypeError, "text"),
        ):
            with pytest.raises(error):
                out[:] = value
        with pytest.raises(DTypeError):
            fast.assign(foreign, a + b)
        with pytest.raises(AliasError):
            fast.assign_many([(out, a + b), (out[:1], a[:1] - 1)])
        with pytest.raises(AliasError):
            fast.assign_many([(out, a + b), (out, a - b)])
        np.testing.assert_array_equal(out.get(), before)
    fast.cleanup_backend()
    with pytest.raises(BackendUnavailable):
        out[:] = a + b
    with pytest.raises(BackendUnavailable):
        fast.assign_many([(out, a + b)])
    assert fast.plans.launches.used == 0


def test_shapes_that_do_not_fit_are_refused_after_their_like_was_learned(fast: Backend) -> None:
    a, b, out = tensors(fast, 2, 3)
    row = fast.ones((1, 3))
    for _ in range(2):
        out[:] = row + 1
        out[:] = a + b
        for target in (row, fast.ones((3, 2)), fast.ones((2, 2)), fast.ones((1, 1))):
            with pytest.raises(ShapeError):
                target[:] = a + b


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
            fast.plans.launches.learn(fast, [(out, a)], None)
            if k % 50 == 0:
                fast.plans.clear()

    once(200)
    tracemalloc.start()
    try:
        once(100)
        before, _ = tracemalloc.get_traced_memory()
        once(600)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 10_000


def test_tensors_backends_and_roots_are_released(fast: Backend) -> None:
    be = NervanaCPU(rng_seed=0)
    be.plans._adopt(fastpath._state.module)
    a, b, out = tensors(be)
    for _ in range(3):
        out[:] = a + b
    assert be.plans.launches.hits == 2
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
    launches = fast.plans.launches
    big, out = fast.ones((60, 60)), fast.empty((60, 60))
    for m in range(1, 60):
        for n in range(1, 60, 2):
            out[:m, :n] = big[:m, :n]
            assert launches.used <= 1024
    assert (out.get()[:59, :59] == 1).all()
    before = launches.used
    assert before > 0
    fast.plans.clear()
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
                fast.plans.clear()

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


def test_only_long_kernels_let_other_threads_run(fast: Backend) -> None:
    recipes = []
    learn = fast.plans.learn
    fast.plans.learn = lambda be, pairs, recipe: recipes.append(recipe) or learn(be, pairs, recipe)  # type: ignore[method-assign, func-returns-value]
    for size in (8, 1000):
        a, out = fast.ones((size, size)), fast.empty((size, size))
        out[:] = fast.exp(a)
        out[:] = fast.exp(a)
    assert [recipe.release for recipe in recipes] == [False] * 2 + [True] * 2, "ones and exp, small and large"
    assert not any(recipe.threads > 1 and not recipe.release for recipe in recipes)


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
        hits.append(fast.plans.launches.hits)

    before = fast.plans.launches.hits
    node = OpTreeNode(Meddling(act), (a, b), None, a.shape, a.dtype, fast)  # type: ignore[arg-type]
    assert fast.plans.launches.run(fast, out, node) is None
    assert hits == [before], "Python did it"
    np.testing.assert_array_equal(inner.get(), a.get() - b.get())
    inner[:] = a - b
    assert fast.plans.launches.hits == before + 1


def test_a_row_that_cannot_be_read_is_left_to_python(fast: Backend) -> None:
    a, out = fast.ones((2, 3)), fast.empty((2, 3))

    def fail() -> None:
        raise KeyError("no kind")

    node = OpTreeNode(Meddling(fail), (a, a), None, a.shape, a.dtype, fast)  # type: ignore[arg-type]
    assert fast.plans.launches.run(fast, out, node) is False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_runs_on_one_thread(fast: Backend) -> None:
    """GCC's OpenMP hangs in the first parallel loop of a child."""
    a, b, out = tensors(fast, 512, 1024)
    for _ in range(2):
        out[:] = a * b + 1
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)
        try:
            hits = fast.plans.launches.hits
            out[:] = a * b + 3
            right = np.array_equal(out.get(), a.get() * b.get() + 3) and fast.plans.launches.hits == hits + 1
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
            assert be.plans.launches is None
