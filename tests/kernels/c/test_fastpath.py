"""Assignments started by the extension: the same results and errors as by Python."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.expressions.random import make_state
from neonlike.errors import AliasError, DTypeError, ShapeError
from neonlike.kernels.c import fastpath
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.run.program import Program, Replayed, Source, Step
from neonlike.optree.functions import F
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS
from tests.support.replaying import extension, fast, tensors  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]


def by_python(be: Backend, pairs: list[tuple[Any, Any]]) -> list[bytes]:
    """The bytes that Python leaves in targets of ``pairs``; their content is as before afterwards."""
    before = [target.get() for target, _ in pairs]
    replay = be.executor.replay
    with replay.paused():
        be.assign_many(pairs)
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
        assert fast.executor.replay.table.hits == seed, "the first is learned, the others are replayed"
    assert fast.executor.replay.table.used == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8, np.uint64, np.bool_])
def test_every_dtype_is_replayed(fast: Backend, dtype: Any) -> None:
    for seed in range(3):
        a, b, _ = tensors(fast, dtype=dtype, seed=seed)
        out = fast.empty(a.shape, dtype=dtype)
        wanted = by_python(fast, [(out, a * b - 2 * a)])
        out[:] = a * b - 2 * a
        assert [out.get().tobytes()] == wanted
    assert fast.executor.replay.table.hits == 2


def test_numbers_fill_and_keep_their_kind(fast: Backend) -> None:
    out, whole = fast.empty((2, 3)), fast.empty((2, 3), dtype=np.int64)
    for value in (1, 2, 2.5, -3.5, 2**53 + 1, -(2**63), 2**63 - 1, 2**63, True, np.float32(4.5), np.int8(-3), 7):
        out[:] = value
        assert out.get().tolist() == [[np.float32(float(value))] * 3] * 2
        if isinstance(value, int) and value < 2**63:
            whole[:] = value
            assert whole.get().tolist() == [[int(value)] * 3] * 2
    assert fast.executor.replay.table.hits > 6


def test_several_targets_are_replayed_at_once(fast: Backend) -> None:
    p, g, m, v = tensors(fast, count=4)
    v[:] = v * v
    for step in range(1, 4):
        new_m, new_v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        pairs = [(m, new_m), (v, new_v), (p, p - (0.1 / step) * new_m / (fast.sqrt(new_v) + 1e-3))]
        wanted = by_python(fast, pairs)
        assert fast.assign_many(pairs) == [m, v, p]
        assert [t.get().tobytes() for t in (m, v, p)] == wanted
    assert fast.executor.replay.table.hits == 2
    assert fast.assign_many([]) == []


def test_large_tensors_run_on_all_threads(fast: Backend) -> None:
    a, b, out = tensors(fast, 512, 1024)
    hits = fast.executor.replay.table.hits
    for _ in range(3):
        out[:] = a * b + 1
    assert fast.executor.replay.table.hits == hits + 2
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
    assert fast.executor.replay.table.hits > 2 * 80


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
    """Keys distinguish exactly the cases that Python distinguishes by key or layout."""
    rng = np.random.default_rng(7)
    whole = fast.zeros((6, 6))
    pool = [*tensors(fast, 3, 3), whole[:3, :3], whole[3:, 3:], whole.T[:3, :3], fast.zeros((3, 3), dtype=np.int32)]
    pool += [fast.wrap(np.zeros((3, 3), np.float32)), fast.wrap(whole.asnumpyarray()[:3, 3:]), whole[:3, 3:]]
    pool += [whole[::-1, ::-1][:3, :3], whole[:3, :3][:, ::-1]]
    launches, seen, again = fast.executor.replay.table, set(), 0
    for _ in range(4000):
        target, value = random_pair(fast, rng, pool)
        graph = linearize(((target, value),))
        key = (graph.key, graph.layout())
        answer = launches.run(fast, target, value)
        assert answer is (Replayed.LEFT if key in seen else Replayed.NEW)
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
        lambda be, a, b: a + F.exp(F.add(1, 2)), lambda be, a, b: sum([a * k for k in range(600)], b),
    ],
)  # fmt: skip
def test_what_is_unusual_is_left_to_python(fast: Backend, unusual: Callable[..., Any]) -> None:
    a, b, _ = tensors(fast, 5, 5)
    out = fast.empty(unusual(fast, a, b).shape)
    for _ in range(3):
        assert fast.executor.replay.table.run(fast, out, unusual(fast, a, b)) is Replayed.LEFT
        out[:] = unusual(fast, a, b)
    assert fast.executor.replay.table.hits == 0


RANDOM: dict[str, Callable[..., Any]] = {
    "alone": lambda be, a, k: be.rand(),
    "a column": lambda be, a, k: a * (a[:, :1] * be.rand()) + k * be.rand(),
    "normal": lambda be, a, k: a + be.randn() * k,
    "gathered": lambda be, a, k: be.take(a, [0, 2, 1, 0], 0) * be.dropout(0.5) + a,
    "shared": lambda be, a, k: (noise := be.rand()) * a + noise / 2,
    "summed": lambda be, a, k: be.sum(a * be.uniform(-k, k), axis=1),
}


@pytest.mark.parametrize("seed", [3, (1 << 64) - 5])
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_that_python_draws(fast: Backend, name: str, seed: int) -> None:
    (a, out, *_), kept = tensors(fast, 4, 6), fast.rand()
    out = fast.empty((4, 1)) if name == "summed" else out
    for is_last in (False, True):
        fast.rng_set_state(make_state(fast.rng.get_state(), (seed, 0)))
        found = []
        for k in range(1, 9):
            with fast.executor.replay.paused() if is_last else nullcontext():
                out[:] = RANDOM[name](fast, a, k)
                found.append(out.get().tobytes())
                out[:] = kept * 2
                found.append(out.get().tobytes())
        if not is_last:
            assert len(set(found[::2])) == 8 and len(set(found[1::2])) == 1 and fast.executor.replay.table.hits > 8
            wanted = found
    assert found == wanted


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
    many, out = tensors(fast, 2, 2, count=270), fast.empty((2, 2))
    for _ in range(2):
        out[:] = sum(many[1:], many[0])
        np.testing.assert_allclose(out.get(), sum(t.get() for t in many), 1e-5)


def test_broken_nodes_are_refused(fast: Backend) -> None:
    a, out = fast.ones((2, 3)), fast.empty((2, 3))
    run = fast.executor.replay.table.run
    for slot in ("spec", "operands", "attrs", "backend"):
        node = a + 1
        delattr(node, slot)
        assert run(fast, out, node) is Replayed.LEFT
    for operands in ([a, a], (a, object()), (a,) * 9, (a, 1j), (a, None)):
        assert run(fast, out, OpTreeNode(OPS["add"], operands, None, a.shape, a.dtype, fast)) is Replayed.LEFT  # type: ignore[arg-type]
    for attrs in (7, {}, {"axis": "x"}, {"axis": (0, 1.5)}, {"axis": 1 << 70}, {"axis": [0]}):
        assert run(fast, out, OpTreeNode(OPS["sum"], (a,), attrs, a.shape, a.dtype, fast)) is Replayed.LEFT  # type: ignore[arg-type]
    for value in (None, "x", out, [1], 1 << 80, np.ones((2, 3))):
        assert run(fast, out, value) is Replayed.LEFT
    for target in (None, 3, a + 1, object()):
        assert run(fast, target, a + 1) is Replayed.LEFT
    for pairs in (None, (), 3, [(out,)], [3], [(out, a, a)], ((out, a + 1), (out, a + 2))):
        assert fast.executor.replay.table.run_many(fast, pairs, False) is Replayed.LEFT
    with pytest.raises(TypeError):
        run(fast, out)
    used = fast.executor.replay.table.used
    for program in (7, (), object()):
        with pytest.raises(TypeError):
            fast.executor.replay.table.learn(fast, [(out, a + 1)], program)
    of_others = [Program((), 1, 1), Program((), 3, 1), Program((), 2, 0)]
    of_others.append(Program((Step(1, ((Source.WHOLE, 0),)),), 2, 1))  # of a real number
    for one, value in zip(of_others, (a + 1, a + 1, a + 1, a + 1.5)):
        fast.executor.replay.learn(fast, [(out, value)], one)
    assert fast.executor.replay.table.used == used


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
            (DTypeError, OpTreeNode(OPS["add"], (a, 10**400), None, a.shape, a.dtype, fast)),
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
    assert fast.executor.replay.table.used == 0
    for _ in range(3):
        out[:] = a * b
        np.testing.assert_array_equal(out.get(), a.get() * b.get())


def test_shapes_that_do_not_fit_are_refused_after_their_like_was_learned(fast: Backend) -> None:
    a, b, out = tensors(fast, 2, 3)
    row = fast.ones((1, 3))
    for _ in range(2):
        out[:] = row + 1
        out[:] = a + b
        for target in (row, fast.ones((3, 2)), fast.ones((2, 2)), fast.ones((1, 1))):
            with pytest.raises(ShapeError):
                target[:] = a + b
