"""Assignments of several stages started by the extension: products, reductions, stages around them, temporaries."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import IndexRangeError
from neonlike.kernels.c import fastpath
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.run import workspace
from neonlike.kernels.run.placing import Placing
from neonlike.kernels.run.program import Program, Source, Step
from neonlike.optree.functions import F
from neonlike.optree.tape import Rule, ruled
from tests.support.replaying import extension, fast, tensors  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]

Build = Callable[..., Any]


def by_numpy(build: Build, *hosts: Any) -> Any:
    return build(NumpyF, *(host.astype(np.float64) for host in hosts))


class NumpyF:
    """The functions of the cases below in NumPy."""

    dot, exp, log, maximum, transpose = np.matmul, np.exp, np.log, np.maximum, np.transpose

    @staticmethod
    def sum(a: Any, axis: int | None = None) -> Any:
        return np.sum(a, axis=axis, keepdims=True)

    @staticmethod
    def max(a: Any, axis: int | None = None) -> Any:
        return np.max(a, axis=axis, keepdims=True)


def _log_softmax(F: Any, a: Any) -> Any:
    a = a - F.max(a, axis=1)
    return a - F.log(F.sum(F.exp(a), axis=1))


CASES: dict[str, tuple[Build, tuple[tuple[int, int], ...]]] = {
    "a product": (lambda F, a, b: F.dot(a, b), ((5, 6), (6, 7))),
    "a large product": (lambda F, a, b: F.dot(a, b), ((80, 90), (90, 100))),
    "of transposes": (lambda F, a, b: F.dot(F.transpose(a), F.transpose(b)), ((6, 5), (7, 6))),
    "row by matrix": (lambda F, a, b: F.dot(a, b), ((1, 300), (300, 40))),
    "matrix by column": (lambda F, a, b: F.dot(a, b), ((8, 6), (6, 1))),
    "column by row": (lambda F, a, b: F.dot(a, b), ((8, 1), (1, 6))),
    "row by column": (lambda F, a, b: F.dot(a, b), ((1, 6), (6, 1))),
    "an element": (lambda F, a, b: F.dot(a, b), ((1, 1), (1, 1))),
    "layer": (lambda F, a, b, c: F.maximum(F.dot(a, b) + c, 0.5), ((9, 6), (6, 7), (1, 7))),
    "two layers": (
        lambda F, a, b, c: F.dot(F.maximum(F.dot(a, b), 0.25) * 2, F.exp(c)), ((9, 6), (6, 7), (7, 3)),
    ),
    "loss": (lambda F, a, b, t: F.sum(t * _log_softmax(F, F.dot(a, b))) * -0.25, ((9, 6), (6, 7), (9, 7))),
    "both axes": (lambda F, a: F.sum(F.exp(a - F.max(a, axis=0)), axis=1), ((40, 50),)),
    "turned": (lambda F, a: F.transpose(F.exp(a)) + a, ((6, 6),)),
    "product by itself": (lambda F, a: F.dot(a, F.transpose(a)), ((6, 9),)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_several_stages_are_replayed(fast: Backend, name: str, dtype: Any) -> None:
    build, shapes = CASES[name]
    launches, out = fast.executor.replay.table, None
    for seed in range(4):
        rng = np.random.default_rng(seed)
        hosts = [rng.standard_normal(shape).astype(dtype) / 4 for shape in shapes]
        given = [fast.array(host, dtype=dtype) for host in hosts]
        value = build(F, *given)
        out = fast.empty(value.shape, dtype=dtype) if out is None or seed == 2 else out
        out.fill(np.nan)
        before = launches.hits
        out[:] = value
        if seed:
            assert launches.hits == before + 1
        wanted = by_numpy(build, *hosts)
        np.testing.assert_allclose(out.get(), wanted, 1e-4 if dtype is np.float32 else 1e-12, 1e-5)


def test_python_and_the_extension_round_alike(fast: Backend) -> None:
    replay = fast.executor.replay
    for build, shapes in CASES.values():
        rng = np.random.default_rng(3)
        given = [fast.array(rng.standard_normal(shape)) for shape in shapes]
        outs = [fast.empty(build(F, *given).shape) for _ in range(3)]
        for out in outs[:2]:
            out[:] = build(F, *given)
        table, replay.table = replay.table, None
        outs[2][:] = build(F, *given)
        replay.table = table
        assert len({out.get().tobytes() for out in outs}) == 1


def test_targets_that_are_read(fast: Backend) -> None:
    """All right sides are computed from the old values, whichever stage writes first."""
    w, x, b = tensors(fast, 6, 6)
    values = [lambda: F.dot(w, x), lambda: F.dot(x, w), lambda: w - F.dot(x, b), lambda: F.sum(w) + F.dot(w, w)]
    for value in values:
        for _ in range(3):
            host = w.get()
            out = fast.empty((6, 6))
            out[:] = value()
            w[:] = value()
            assert w.get().tobytes() == out.get().tobytes()
            w.set(host)
    for _ in range(3):
        host, other = w.get(), b.get()
        fast.assign_many([(w, w + F.sum(F.dot(w, b))), (b, b * F.sum(w))])
        np.testing.assert_allclose(w.get(), host + (host @ other).sum(), 1e-5)
        np.testing.assert_allclose(b.get(), other * host.sum(), 1e-5)
        w.set(host)
        b.set(other)


def test_overlapping_windows_are_told_from_separate_ones(fast: Backend) -> None:
    (whole,) = tensors(fast, 12, 4, count=1)
    (x,) = tensors(fast, 4, 4, count=1, seed=2)
    for first, second in ((0, 8), (0, 4), (0, 2), (2, 0), (8, 0), (4, 4)):
        for _ in range(2):
            host = whole.get()
            whole[first : first + 4] = F.dot(whole[second : second + 4], x) + 1
            wanted = host.copy()
            wanted[first : first + 4] = host[second : second + 4] @ x.get() + 1
            np.testing.assert_allclose(whole.get(), wanted, 1e-5)
            whole.set(host)


def test_views_of_other_shapes_are_told_apart(fast: Backend) -> None:
    a, _, _ = tensors(fast, 4, 4)
    out = {shape: fast.empty(shape) for shape in ((4, 4), (8, 4))}
    for _ in range(3):
        for shape, target in out.items():
            target[:] = F.broadcast_to(F.sum(a, axis=0), shape) * 2
            np.testing.assert_array_equal(target.get(), np.broadcast_to(a.get().sum(0) * 2, shape))
        out[4, 4][:] = F.transpose(F.exp(a)) * 1
        np.testing.assert_allclose(out[4, 4].get(), np.exp(a.get()).T, 1e-6)
        out[4, 4][:] = ruled(F.exp(a), Rule("mine", (a,), lambda F, d, z, x: (d,)))
        np.testing.assert_allclose(out[4, 4].get(), np.exp(a.get()), 1e-6)
        for axis in (0, 1):
            places = fast.array([[1, 3, 0, 2]] if axis == 0 else [[1], [3], [0], [2]], dtype=np.int32)
            out[4, 4][:] = F.onehot(places, axis) * a
            eye = np.eye(4)[[1, 3, 0, 2]]
            np.testing.assert_array_equal(out[4, 4].get(), (eye.T if axis == 0 else eye) * a.get())
    assert fast.executor.replay.table.hits >= 2 * 6


def test_temporaries_share_one_piece_of_memory(fast: Backend) -> None:
    made: list[Any] = []
    learn = fast.executor.replay.learn

    def noted(be: Backend, pairs: Any, recipe: Any, fresh: bool) -> None:
        made.append(recipe)
        learn(be, pairs, recipe, fresh)

    fast.executor.replay.learn = noted  # type: ignore[method-assign]
    a, b, out = tensors(fast, 300, 300)
    workspace.release_workspace()
    for _ in range(3):
        out[:] = F.dot(F.exp(a), F.exp(b)) + a
    (recipe,) = made
    places = sorted({value for step in recipe.steps for source, value in step.words if source is Source.MEMORY})
    assert len(places) >= 3 and all(place % 4096 == 0 for place in places[:3])
    assert places[-1] < recipe.memory <= workspace.kept_bytes()
    assert min(np.diff(places[:3])) >= 300 * 300 * 4


def test_a_placing_says_where_each_array_is(fast: Backend) -> None:
    a, b, out = tensors(fast, 2, 2)
    run = Placing(linearize([(out, a + b)]))
    first, second = run.empty((3, 5), np.dtype(np.float32)), run.empty((3, 5), np.dtype(np.float64))
    assert run.written(first) == (Source.MEMORY, 0) and run.written(second) == (Source.MEMORY, 64)
    assert run.written(out.array) == (Source.OPERAND, 2) and run.arena.nbytes == 64 + 120
    assert run.room(1 << 16) == (Source.MEMORY, 4096)


def test_no_memory_for_temporaries_is_left_to_python(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, out = tensors(fast, 40, 40)
    for _ in range(2):
        out[:] = F.dot(F.exp(a), b)
    wanted, hits = out.get(), fast.executor.replay.table.hits

    def refuse(needed: int) -> Any:
        raise MemoryError

    fastpath.loaded().take_workspace(workspace.kept, refuse)
    try:
        workspace.release_workspace()
        out[:] = F.dot(F.exp(a), b)
    finally:
        fastpath.loaded().take_workspace(workspace.kept, workspace.held_workspace)
    np.testing.assert_array_equal(out.get(), wanted)
    assert fast.executor.replay.table.hits == hits


@pytest.mark.parametrize("reads_target", [False, True])
def test_a_kernel_that_finds_no_memory(fast: Backend, reads_target: bool) -> None:
    """Python recomputes the previous kernels, unless they have overwritten their own inputs."""
    a, b, out = tensors(fast)
    pairs = [(a, a + b)] if reads_target else [(out, a + b)]
    ran: list[str] = []
    kernels = [ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function) for function in (
        lambda words: ran.append("first") or 0, lambda words: ran.append("second") or 1,
    )]  # fmt: skip
    target = ((Source.OPERAND, 2),)
    steps = tuple(Step(ctypes.cast(kernel, ctypes.c_void_p).value or 0, target) for kernel in kernels)
    fast.executor.replay.learn(fast, pairs, Program(steps, 3, 0, release=False, forks=True, keep=kernels))
    if reads_target:
        with pytest.raises(MemoryError, match="working space"):
            a[:] = a + b
    else:
        out[:] = a + b
        np.testing.assert_array_equal(out.get(), a.get() + b.get())
    assert ran == ["first", "second"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_computes_the_same(fast: Backend) -> None:
    a, b, out = tensors(fast, 300, 300)
    for _ in range(2):
        out[:] = F.dot(F.exp(a), b)
    wanted = out.get().tobytes()
    child = os.fork()
    if child == 0:
        try:
            out[:] = F.dot(F.exp(a), b)
            same = np.allclose(out.get(), np.frombuffer(wanted, np.float32).reshape(300, 300), 1e-5)
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_shapes_that_are_broadcast_to_are_told_apart(fast: Backend) -> None:
    a, out = fast.array([[1.0], [2.0], [4.0]]), fast.empty((1, 1))
    for count in (2, 2, 2, 3, 3, 3, 2):
        out[:] = F.sum(F.broadcast_to(a, (3, count)) * 2.0)
        assert out.item() == 14 * count


def test_concatenations_into_parts_of_a_target_are_repeated(fast: Backend) -> None:
    """Also nested, along any axis, and of many tensors in turn; numbers and shapes are those of each run."""
    rng, table = np.random.default_rng(3), fast.executor.replay.table
    cases: tuple[Build, ...] = (
        lambda np_, a, b, c: np_.concatenate([a * 2, b], axis=0),
        lambda np_, a, b, c: np_.concatenate([np_.concatenate([a, b * c], axis=1), c + b, a], axis=1),
        lambda np_, a, b, c: np_.concatenate([b[1:], c, b[:1] - a[:1]], axis=0),
    )
    for build in cases:
        before = table.hits
        for turn in range(6):
            hosts = [rng.standard_normal((4, 6)).astype(np.float32) for _ in range(3)]
            wanted, given = build(np, *hosts), [fast.array(host) for host in hosts]
            out = fast.empty(wanted.shape)
            out[:] = build(fast, *given)
            assert np.array_equal(out.get(), wanted), turn
            wide = fast.zeros((wanted.shape[0] + 2, wanted.shape[1] + 3))
            wide[1:-1, :-3] = build(fast, *given)
            assert np.array_equal(wide.get()[1:-1, :-3], wanted), turn
            assert not wide.get()[:, -3:].any() and not wide.get()[[0, -1]].any()
        assert table.hits >= before + 8


def test_concatenations_that_read_their_target_are_told_apart(fast: Backend) -> None:
    """By which of its parts they read, which the extension's key does not have."""
    rng = np.random.default_rng(4)
    for first in (0, 4, 2, 4, 0):
        host = rng.standard_normal((8, 3)).astype(np.float32)
        a, b = fast.array(host), fast.ones((4, 3))
        for _ in range(3):
            a[:] = fast.concatenate([a[first : first + 4] * 2, b])
            host = np.concatenate([host[first : first + 4] * 2, np.ones((4, 3), np.float32)])
            assert np.array_equal(a.get(), host), first


MOVED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cumsum of rows": lambda F, a, i: F.cumsum(a, 1),
    "cumsum from the end": lambda F, a, i: F.cumsum(a * 2, 0, True) + 1,
    "cumprod": lambda F, a, i: F.cumprod(a.T, 1).T,
    "argsort": lambda F, a, i: F.argsort(a, 1),
    "argsort of columns, downwards": lambda F, a, i: F.argsort(a, 0, True),
    "take rows": lambda F, a, i: F.take(a, i, 0),
    "take columns": lambda F, a, i: F.take(a + 1, i, 1),
    "take along": lambda F, a, i: F.take_along(a, F.argsort(a, 1), 1),
    "add to rows": lambda F, a, i: F.untake(F.take(a, i, 0), i, a.shape, 0),
    "add along": lambda F, a, i: F.untake_along(a, F.argsort(a, 1), (5, 9), 1),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
@pytest.mark.parametrize("name", MOVED)
def test_moves_and_scans_are_repeated(fast: Backend, name: str, dtype: Any) -> None:
    """As Python makes them, of other tensors and indices each time, also into targets of another dtype."""
    rng, table, build = np.random.default_rng(5), fast.executor.replay.table, MOVED[name]
    hits = table.hits
    for turn in range(5):
        a = fast.array(rng.integers(-4, 5, (5, 7)), dtype=dtype)
        wide = fast.array(rng.integers(-4, 5, (5, 14)), dtype=dtype)[:, ::2]
        i = fast.array(rng.integers(-5, 5, (1, 8)), dtype=np.int64)[:, :: 1 + turn % 2]
        for given in (a, wide):
            shape = build(F, given, i).shape
            for out_dtype in (np.float32, np.int64):
                found, wanted = fast.empty(shape, dtype=out_dtype), fast.empty(shape, dtype=out_dtype)
                found[:] = build(F, given, i)
                with fast.executor.replay.paused():
                    wanted[:] = build(F, given, i)
                assert np.array_equal(found.get(), wanted.get()), (turn, out_dtype)
    assert table.hits >= hits + 8
    for forward in (True, False, True):
        found = fast.empty((5, 7))
        found[:] = F.cumsum(a, 1, forward)
        turned = a.get()[:, ::-1] if forward else a.get()
        sums = np.cumsum(turned.astype(np.float64), axis=1)
        assert np.array_equal(found.get(), sums[:, ::-1] if forward else sums)
        order = fast.empty((5, 7), dtype=np.int64)
        order[:] = F.argsort(a, 1, forward)
        ranked = np.take_along_axis(a.get().astype(np.float64), order.get(), 1)
        assert (np.diff(ranked, axis=1) <= 0).all() if forward else (np.diff(ranked, axis=1) >= 0).all()
        for count in (7, 1, 7, 1):
            order[:] = F.argsort(a, 1, forward, count)
            assert np.array_equal(order.get()[:, :1], order.get()[:, -1:]) == (count == 1)


def test_indices_out_of_range_are_refused_each_time(fast: Backend) -> None:
    """Before anything is written, in Python's words; also behind a stage that has been computed, of the target."""
    a, out = fast.ones((4, 3)), fast.zeros((2, 3))
    cases: tuple[Callable[[Any], Any], ...] = (
        lambda i: F.take(a, i, 0), lambda i: F.take(F.cumsum(F.exp(a), 0), i, 0),
        lambda i: F.take(F.cumsum(F.exp(a), 0), i, 0) - out, lambda i: F.take(F.cumsum(a + F.sum(out), 0), i, 0),
    )  # fmt: skip
    for build in cases:
        for place in (0, 3, 1, 4, 2, -5, -4, 3):
            i = fast.array([[1, place]], dtype=np.int64)
            before = out.get()
            if -4 <= place < 4:
                out[:] = build(i)
                continue
            with pytest.raises(IndexRangeError, match=f"^take: index {place} is out of range for an axis of size 4"):
                out[:] = build(i)
            assert np.array_equal(out.get(), before)
