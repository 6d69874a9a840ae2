"""``take`` and ``untake`` on both engines against float64, and the C kernels' forms and threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import IndexRangeError
from neonlike.kernels.c.moves import FEW, PICK_CHUNK, ROW_BLOCK, MoveStage, layout_of
from neonlike.kernels.planning.graph import linearize
from neonlike.optree.functions import F
from tests.support.engines import ON_GPU, backend, sampled, use_threads
from tests.support.float64.reference import LAYOUTS, backwards, plain, strided, transposed

pytestmark = [pytest.mark.optree, pytest.mark.checked]

SHAPES = ((1, 1), (1, 9), (9, 1), (7, 13), (3, 300), (300, 3), (3, 4, 5))
BIG = ((3, 70_000, 1, 70_000), (700, 500, 1, 900), (500, 700, 0, 900), (2, 2 * ROW_BLOCK + 5, 0, 9), (1, 300_000, 1, 9))
"""Rows, columns, axis and count of indices: each form with enough to do for several threads."""

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)


@pytest.fixture(autouse=True)
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the moves that C stages left to NumPy."""
    names: list[str] = []
    run_numpy = MoveStage._run_numpy

    def record(stage: MoveStage, *arrays: Any) -> None:
        names.append(stage.value.spec.name)
        run_numpy(stage, *arrays)

    monkeypatch.setattr(MoveStage, "_run_numpy", record)
    return names


def untaken(d: Any, indices: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Sums in float64, or int64 for integers."""
    out = np.zeros(shape, np.float64 if d.dtype.kind == "f" else np.int64)
    np.add.at(np.moveaxis(out, axis, 0), indices.reshape(-1), np.moveaxis(d, axis, 0))
    return out


def positions(rng: Any, limit: int, count: int, dtype: Any = np.int32) -> Any:
    """Random indices, half of them negative where the dtype allows."""
    return rng.integers(-limit if np.dtype(dtype).kind == "i" else 0, limit, (1, count)).astype(dtype)


def narrow(shape: tuple[int, ...], axis: int, count: int) -> tuple[int, ...]:
    return (*shape[:axis], count, *shape[axis + 1 :])


# Values ---------------------------------------------------------------------------------------------------------------


@each_layout
def test_layouts(be: Backend, rng: Any, layout: Any, fallbacks: list[str]) -> None:
    """Inputs and outputs have every layout, along every axis, with indices of any layout."""
    for shape in SHAPES:
        for axis in range(len(shape)):
            for count in (1, 5, 12):
                indices = positions(rng, shape[axis], count)
                index = layout(be, indices.reshape(-1, 2) if count == 12 else indices)
                table = rng.standard_normal(shape).astype(np.float32)
                wanted = np.take(table, indices.reshape(-1), axis)
                for place in (plain, layout):
                    out = place(be, np.zeros(wanted.shape, np.float32))
                    out[:] = be.take(layout(be, table), index, axis)
                    np.testing.assert_array_equal(out.get(), wanted)
                d = rng.standard_normal(wanted.shape).astype(np.float32)
                for place in (plain, layout):
                    grad = place(be, np.full(shape, 7, np.float32))
                    grad[:] = F.untake(layout(be, d), index, shape, axis)
                    np.testing.assert_allclose(grad.get(), untaken(d, indices, shape, axis), rtol=1e-5, atol=1e-6)
    assert not fallbacks


@pytest.mark.parametrize("read", ["f2", "f4", "f8", "i1", "u1", "i4", "i8", "?"])
def test_dtypes(be: Backend, rng: Any, read: str, fallbacks: list[str]) -> None:
    """Results are converted as any expression's are: rounded to nearest, integers saturated."""
    low, high = (0, 2) if read == "?" else (0, 100) if read == "u1" else (-100, 100)
    table = (rng.uniform(low, high, (6, 40)) * (3.7 if read[0] == "f" else 1)).astype(read)
    indices = positions(rng, 6, 30)
    for write in sampled(be, ("f2", "f4", "f8", "i1", "u1", "i8", "?"), 4, ord(read[0])):
        out, plain_copy = be.empty((30, 40), dtype=write), be.empty((30, 40), dtype=write)
        out[:] = be.take(be.array(table, dtype=read), be.array(indices, dtype=np.int32), 0)
        plain_copy[:] = be.array(table[indices.reshape(-1)], dtype=read)
        np.testing.assert_array_equal(out.get(), plain_copy.get())
        sums = be.empty((6, 40), dtype=write)
        d = table[rng.integers(0, 6, 30)]
        sums[:] = F.untake(be.array(d, dtype=read), be.array(indices, dtype=np.int32), (6, 40), 0)
        exact = untaken(d, indices, (6, 40), 0)
        expected = be.empty((6, 40), dtype=write)
        rounded = exact.astype(np.float64 if read == "f8" else np.float32) if read[0] == "f" else exact
        expected[:] = be.array(rounded, dtype=rounded.dtype)
        if write[0] == "f":
            close = dict(rtol=2e-3 if write == "f2" else 1e-5, atol=1e-3)
            np.testing.assert_allclose(sums.get(), expected.get(), **close)
        elif read[0] != "f":  # a float sum may end on either side of a half
            np.testing.assert_array_equal(sums.get(), expected.get())
    assert not fallbacks


@pytest.mark.parametrize("index", ["i1", "u1", "i2", "u2", "i4", "u4", "i8"])
def test_index_dtypes(be: Backend, rng: Any, index: str, fallbacks: list[str]) -> None:
    """Any integer dtype, negative indices counting from the end."""
    table = rng.standard_normal((100, 5)).astype(np.float32)
    indices = positions(rng, 100, 50, index)
    for axis, host in ((0, table), (1, np.ascontiguousarray(table.T))):
        out = be.empty(narrow(host.shape, axis, 50))
        out[:] = be.take(be.array(host), be.array(indices, dtype=index), axis)
        np.testing.assert_array_equal(out.get(), np.take(host, indices.reshape(-1), axis))
        grad = be.empty(host.shape)
        grad[:] = F.untake(out, be.array(indices, dtype=index), host.shape, axis)
        wanted = untaken(out.get(), indices.astype(np.int64), host.shape, axis)
        np.testing.assert_allclose(grad.get(), wanted, rtol=1e-5, atol=1e-6)
    assert not fallbacks


def test_nothing_to_move(be: Backend) -> None:
    """Size 0 anywhere, where the result is empty or zero."""
    none = be.array(np.zeros((1, 0)), dtype=np.int32)
    assert be.take(be.ones((3, 4)), none, 0).astensor().shape == (0, 4)
    assert be.take(be.ones((3, 0)), be.array([[2, 0]], dtype=np.int32), 0).astensor().shape == (2, 0)
    grad = be.ones((3, 4))
    grad[:] = F.untake(be.empty((0, 4)), none, (3, 4), 0)
    assert not grad.get().any()


def test_special_values_are_copied_and_summed(be: Backend) -> None:
    """nan, infinities and the sign of zero."""
    special = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e-45]], np.float32)
    index = be.array([[4, 3, 2, 1, 0]], dtype=np.int32)
    out = be.empty((1, 5))
    out[:] = be.take(be.array(special), index, 1)
    np.testing.assert_array_equal(out.get().view(np.uint32), special[:, ::-1].view(np.uint32))
    grad = be.empty((1, 6))
    grad[:] = F.untake(be.array(special), be.array([[0, 1, 1, 3, 4]], dtype=np.int32), (1, 6), 1)
    wanted = np.array([[np.nan, np.nan, 0, 0, 1e-45, 0]], np.float32)
    np.testing.assert_array_equal(grad.get(), wanted)
    assert not np.signbit(grad.get()[0, 3])


def test_integer_sums_are_exact(be: Backend) -> None:
    """Sums are exact beyond float64's integers; sums that leave int64 wrap around."""
    big = 2**62 + 1
    d = be.array(np.array([[big, 1, big], [big, -3, 5]]), dtype=np.int64)
    for axis, source in ((1, d), (0, d.T)):
        grad = be.empty((2, 2), dtype=np.int64)
        grad[:] = F.untake(source, be.array([[0, 0, 1]], dtype=np.int32), (2, 2), axis)
        found = grad.get() if axis else grad.get().T
        np.testing.assert_array_equal(found, [[big + 1, big], [big - 3, 5]])


def test_in_place(be: Backend, rng: Any) -> None:
    """A tensor picked from itself, and one that is the index too."""
    host = rng.standard_normal((5, 8)).astype(np.float32)
    order = rng.permutation(8)
    t = be.array(host)
    t[:] = be.take(t, be.array(order.reshape(1, -1), dtype=np.int32), 1)
    np.testing.assert_array_equal(t.get(), host[:, order])
    index = be.array(order.reshape(1, -1), dtype=np.int32)
    index[:] = be.take(index, index, 1)
    np.testing.assert_array_equal(index.get(), order[order].reshape(1, -1))


@pytest.mark.optimized
def test_inside_larger_expressions(be: Backend, rng: Any, fallbacks: list[str]) -> None:
    """Computed tables and indices are read again, transposed, stored twice and in other dtypes."""
    table, indices = rng.standard_normal((6, 10)).astype(np.float32), positions(rng, 10, 7)
    t, i = be.array(table), be.array(indices, dtype=np.int32)
    picked = np.take(table.astype(np.float64), indices.reshape(-1), 1)
    doubled = be.take(t * 2, i, 1)
    out = be.empty((6, 7))
    out[:] = doubled + be.sum(doubled, axis=0)
    np.testing.assert_allclose(out.get(), 2 * picked + (2 * picked).sum(0), rtol=1e-5, atol=1e-5)
    flipped, half = be.empty((7, 6)), be.empty((6, 7), dtype=np.float16)
    be.assign_many([(flipped, be.take(t, i, 1).T), (half, be.take(t, i, 1))])
    np.testing.assert_array_equal(flipped.get(), picked.T.astype(np.float32))
    np.testing.assert_array_equal(half.get(), picked.astype(np.float16))
    best = be.empty((6, 1))
    best[:] = be.max(be.take(t, be.argmax(t[0:1], axis=1), 1), axis=1)
    np.testing.assert_array_equal(best.get(), table[:, [table[0].argmax()]])
    assert not fallbacks


def test_embedding(be: Backend, rng: Any, fallbacks: list[str]) -> None:
    """A lookup table of 10,000 words: vectors of a minibatch, and the gradient of the table."""
    words = rng.integers(0, 300, (1, 128))
    table, errors = rng.standard_normal((10_000, 64)), rng.standard_normal((128, 64))
    w, i = be.array(table), be.array(words, dtype=np.int32)
    for axis, weights, delta in ((0, w, errors), (1, be.array(table.T), errors.T)):
        out = be.empty(delta.shape)
        out[:] = be.take(weights, i, axis)
        np.testing.assert_array_equal(out.get(), np.take(weights.get(), words.reshape(-1), axis))
        grad = be.ones(weights.shape)
        grad[:] = F.untake(be.array(delta), i, weights.shape, axis)
        np.testing.assert_allclose(grad.get(), untaken(delta, words, weights.shape, axis), rtol=1e-5, atol=1e-6)
    assert not fallbacks


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [7, -8, 2**31 - 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_out_of_range(be: Backend, bad: int, axis: int) -> None:
    """The index and the limits are named, and no target has changed."""
    indices = be.array([[0, 6, bad, -7]], dtype=np.int32)
    shape = (7, 7)
    words = rf"^take: index {bad} is out of range for an axis of size 7; use -7 to 6$"
    out, other = be.array(np.full(narrow(shape, axis, 4), 5.0)), be.array(np.full((2, 2), 5.0))
    with pytest.raises(IndexRangeError, match=words):
        be.assign_many([(other, be.ones((2, 2)) * 2), (out, be.take(be.ones(shape), indices, axis))])
        be.synchronize()  # a GPU tells it then
    grad = be.array(np.full(shape, 5.0))
    with pytest.raises(IndexRangeError, match=words):
        grad[:] = F.untake(be.ones(narrow(shape, axis, 4)), indices, shape, axis)
        be.synchronize()
    half = be.array(np.full(shape, 5.0), dtype=np.float16)
    with pytest.raises(IndexRangeError, match=words):
        half[:] = F.untake(be.ones(narrow(shape, axis, 4)), indices, shape, axis)
        be.synchronize()
    for tensor in (out, other, grad, half):
        assert ON_GPU or (tensor.get() == 5).all()


def test_out_of_range_where_nothing_is_read(be: Backend) -> None:
    """Empty slices are no excuse for a wrong index."""
    out = be.empty((2, 0))
    with pytest.raises(IndexRangeError, match="index 3 "):
        out[:] = be.take(be.empty((3, 0)), be.array([[0, 3]], dtype=np.int32), 0)
        be.synchronize()


# What is compiled -----------------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.engines("c")
def test_kernels_are_shown(be: Backend) -> None:
    """Moves run as C, and ``explain`` shows it."""
    i = be.array([[1, 0, -1]], dtype=np.int32)
    for e in (be.take(be.ones((3, 4)), i, 1), F.untake(be.ones((3, 20)), i, (5, 20), 0)):
        out = be.empty(e.shape)
        out[:] = e
        graph = linearize([(out, e)])
        (stage,) = be.plans.find(graph).executable["c"]
        assert isinstance(stage, MoveStage)
        assert all(stage.variants.values())
        assert e.spec.name.replace("untake", "scatter").replace("take", "gather") + "(" in be.explain(e)


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.engines("c")
def test_a_kernel_that_does_not_compile(be: Backend, monkeypatch: pytest.MonkeyPatch, fallbacks: list[str]) -> None:
    """NumPy runs instead, with the same result."""
    monkeypatch.setattr(MoveStage, "_compile", lambda stage, kernel: None)
    out = be.empty((2, 3), dtype=np.int8)
    out[:] = be.take(be.array([[300.0, -2.5, 3.5], [1.0, 2.0, np.nan]]), be.array([[0, 2, -1]], dtype=np.int32), 1)
    np.testing.assert_array_equal(out.get(), [[127, 4, 4], [1, 0, 0]])
    assert fallbacks == ["take"]


@pytest.mark.cpu_only("the compiled kernels of the CPU")
def test_forms() -> None:
    """The form follows the target's layout; neighbouring axes are merged whatever their order."""

    def form(wide: Any, narrow: Any, axis: int, scatter: bool) -> str:
        layout = layout_of(wide, narrow, 1, axis, scatter)
        assert layout is not None
        return layout.key[0]

    a, b = np.zeros((50, 60), np.float32), np.zeros((9, 60), np.float32)
    assert form(a, b, 0, False) == form(a, b, 0, True) == "rows"
    assert form(a.T, b.T, 1, False) == form(a.T, b.T, 1, True) == "rows"
    c = np.zeros((50, 9), np.float32)
    assert form(a, c, 1, False) == form(a, c, 1, True) == "picks"
    assert form(a, np.asfortranarray(c), 1, False) == "rows"
    few = np.zeros((FEW, 60), np.float32)
    assert form(few, few, 1, True) == form(few.T, few.T, 0, True) == "few"
    deep = np.zeros((2, 3, 4, 5), np.float32)
    layout = layout_of(deep, deep, 1, 1, False)
    assert layout is not None and layout.meta[5:8] == [20, 1, 1] and layout.meta[10:] == [1, 2, 60, 60]
    assert layout_of(deep, deep[..., :4], 1, 1, False) is None
    assert layout_of(deep[:0], deep[:0], 1, 1, False) is None


def test_prepared(be: Backend, rng: Any, fallbacks: list[str]) -> None:
    """A bound move sees new values and new indices, and still refuses wrong ones."""
    t, i = be.array(rng.standard_normal((4, 9))), be.array(positions(rng, 9, 5), dtype=np.int32)
    out, scaled, grad = be.empty((4, 5)), be.empty((4, 5)), be.empty((4, 9))
    runs = [
        be.prepare(out, be.take(t, i, 1)),
        be.prepare(scaled, be.take(t * 2, i, 1) * 2),
        be.prepare(grad, F.untake(out, i, (4, 9), 1)),
    ]
    for _ in range(3):
        t[:] = be.array(rng.standard_normal((4, 9)))
        i.set(positions(rng, 9, 5))
        for run in runs:
            run()
        picked = np.take(t.get(), i.get().reshape(-1), 1)
        np.testing.assert_array_equal(out.get(), picked)
        np.testing.assert_array_equal(scaled.get(), 4 * picked)
        np.testing.assert_allclose(grad.get(), untaken(picked, i.get(), (4, 9), 1), rtol=1e-5, atol=1e-6)
    assert not fallbacks
    i.set(np.full((1, 5), 9))
    before = out.get()
    for run in runs:
        with pytest.raises(IndexRangeError):
            run()
            be.synchronize()  # a GPU tells it then
    if not ON_GPU:
        np.testing.assert_array_equal(out.get(), before)


def test_prepared_with_indices_that_are_no_vector(be: Backend, rng: Any) -> None:
    """Indices that have to be copied to be read one after the other are copied at every run."""
    host = positions(rng, 9, 6).reshape(2, 3)
    i = transposed(be, host)
    out, t = be.empty((4, 6)), be.array(rng.standard_normal((4, 9)))
    run = be.prepare(out, be.take(t, i, 1))
    for _ in range(2):
        run()
        np.testing.assert_array_equal(out.get(), np.take(t.get(), host.reshape(-1), 1))
        host = positions(rng, 9, 6).reshape(2, 3)
        i.set(host)


# Many elements --------------------------------------------------------------------------------------------------------


@pytest.mark.backend
def test_threads_change_nothing(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the threshold for threads every form gives the same bits on 1, 2 and 3 threads, and the right ones."""
    results: dict[str, list[Any]] = {}
    for rows, columns, axis, count in BIG:
        shape = rows, columns
        table = rng.standard_normal(shape).astype(np.float32)
        indices = positions(rng, shape[axis], count)
        indices[0, : count // 2] = 0  # one position met far more often than others
        d = rng.standard_normal(narrow(shape, axis, count)).astype(np.float32)
        for threads in ("1", "2", "3"):
            use_threads(monkeypatch, threads)
            for be in backend("c"):
                out, grad, index = be.empty(d.shape), be.empty(shape), be.array(indices, dtype=np.int32)
                out[:] = be.take(be.array(table), index, axis)
                grad[:] = F.untake(be.array(d), index, shape, axis)
                results[threads] = [out.get(), grad.get()]
        for other in ("2", "3"):
            np.testing.assert_array_equal(results["1"][0], results[other][0])
            np.testing.assert_array_equal(results["1"][1].view(np.uint32), results[other][1].view(np.uint32))
        np.testing.assert_array_equal(results["1"][0], np.take(table, indices.reshape(-1), axis))
        np.testing.assert_allclose(results["1"][1], untaken(d, indices, shape, axis), rtol=1e-6, atol=1e-5)


@pytest.mark.engines("c")
@pytest.mark.parametrize("dtype", ["f2", "f4"])
@pytest.mark.parametrize("shape", [(200_000, 1), (1, 200_000), (100_000, 20), (20, 100_000)])
def test_long_sums(be: Backend, rng: Any, dtype: str, shape: tuple[int, int]) -> None:
    """Many slices on one position are summed in float64 and rounded once."""
    axis = 0 if shape[0] > shape[1] else 1
    d = rng.uniform(0.5, 1.5, shape).astype(dtype)
    indices = np.zeros((1, shape[axis]), np.int32)
    grad = be.empty(narrow(shape, axis, 3))
    grad[:] = F.untake(be.array(d, dtype=dtype), be.array(indices, dtype=np.int32), grad.shape, axis)
    np.testing.assert_allclose(grad.get(), untaken(d, indices, grad.shape, axis), rtol=1e-7)


def test_strided_and_wide(be: Backend, rng: Any, fallbacks: list[str]) -> None:
    """More indices and longer slices than one unit holds, where no step is 1."""
    for shape, axis, count in (((2, ROW_BLOCK + 3), 0, 3), ((2, 50), 1, PICK_CHUNK + 3), ((9, 20, 300), 1, 7)):
        table, indices = rng.standard_normal(shape).astype(np.float32), positions(rng, shape[axis], count)
        for place in (strided, backwards):
            out = place(be, np.zeros(narrow(shape, axis, count), np.float32))
            out[:] = be.take(place(be, table), be.array(indices, dtype=np.int32), axis)
            np.testing.assert_array_equal(out.get(), np.take(table, indices.reshape(-1), axis))
            grad = place(be, np.zeros(shape, np.float32))
            grad[:] = F.untake(out, be.array(indices, dtype=np.int32), shape, axis)
            wanted = untaken(out.get(), indices, shape, axis)
            np.testing.assert_allclose(grad.get(), wanted, rtol=1e-4, atol=1e-4)
    assert not fallbacks
