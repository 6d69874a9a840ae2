"""Reductions as CUDA kernels: rows and columns, held in registers, in loops and split, several passes, positions."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.cuda import fit as fit_cuda
from tests.support.engines import sampled
from tests.support.gpu.cuda_backends import LAYOUTS, assert_near, form, fresh, gpu, tensor

pytestmark = pytest.mark.checked

__all__ = ["form", "gpu"]
SHAPES = ((1, 1), (1, 3), (3, 1), (5, 33), (33, 5), (64, 64), (9, 300), (300, 9), (2, 3, 5), (4, 3, 2, 8))


def test_split_rows_are_one_launch(gpu: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last block of a row merges and stores; with more groups of rows than counters, a launch of its own does."""
    x = rng.standard_normal((48, 3000)).astype(np.float32)
    for name in ("HELD_TARGET", "HELD_MOST", "HELD_THREADS"):
        monkeypatch.setattr(fit_cuda, name, 1)
    monkeypatch.setattr(fit_cuda, "ROW_PART", 1 << 9)
    monkeypatch.setattr(fit_cuda, "COLUMN_PART", 8)
    for tickets, launches in ((4096, (1, 1)), (1, (2, 2))):
        monkeypatch.setattr(fit_cuda, "TICKETS", tickets)
        be = fresh(gpu)
        a = be.array(x)
        for axis, wanted in zip((1, 0), launches):
            out = be.empty((48, 1) if axis else (1, 3000))
            run = be.prepare(out, be.sum(a * a, axis=axis))
            run()
            for _ in range(2):  # counters are left as they were
                out.fill(0)
                with mock.patch.object(be.device, "launch", wraps=be.device.launch) as launch:
                    run()
                assert launch.call_count == wanted
                assert_near(out, np.square(x.astype(np.float64)).sum(axis, keepdims=True), slack=10)


def test_nothing_else_gets_the_working_memory_of_a_prepared_sum(gpu: Backend) -> None:
    be = fresh(gpu)
    a, out = be.ones((600, 500)), be.empty((1, 1))
    run = be.prepare(out, be.sum(a))
    run()
    others = [be.empty((count, 1)).fill(7) for count in range(4, 200, 2)]
    run()
    assert out.get()[0, 0] == 300_000 and all((other.get() == 7).all() for other in others)


def axes_of(shape: tuple[int, ...]) -> list[Any]:
    """One axis, several, all."""
    return [*range(len(shape)), None, (0, len(shape) - 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_over_every_axis(gpu: Backend, rng: Any, form: str, layout: str) -> None:
    be = fresh(gpu)
    for shape in sampled(be, SHAPES, 5, len(form) + len(layout)):
        x = rng.standard_normal(shape).astype(np.float32)
        a = tensor(be, x, layout)
        for axis in axes_of(shape):
            wanted = (x.astype(np.float64) * 3).sum(axis, keepdims=True)
            assert_near((be.sum(a * 3, axis=axis)).asnumpyarray(), wanted, f"{shape} {axis}", slack=10)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64", "int16"))
def test_sums_of_other_dtypes(gpu: Backend, rng: Any, form: str, dtype: str) -> None:
    be = fresh(gpu)
    x = (rng.standard_normal((37, 40)) * 5).astype(dtype)
    a = be.array(x, dtype=x.dtype)
    for axis in (0, 1, None):
        out = be.sum(a, axis=axis).asnumpyarray()
        assert_near(out, x.astype(np.int64 if dtype == "int16" else np.float64).sum(axis, keepdims=True), slack=4)


def test_maxima_and_positions(gpu: Backend, rng: Any, form: str) -> None:
    be = fresh(gpu)
    for shape in sampled(be, ((1, 1), (7, 33), (33, 8), (3, 300), (130, 34)), 3, len(form)):
        x = rng.integers(-3, 4, shape).astype(np.float32)  # many ties
        with_nan = x.copy()
        with_nan[rng.random(shape) < 0.02] = np.nan
        for host in (x, with_nan, np.full(shape, np.inf, np.float32), np.full(shape, -np.inf, np.float32)):
            a = be.array(host)
            for axis in (0, 1):
                for name in ("max", "min", "argmax", "argmin"):
                    wanted = getattr(np, name)(host, axis=axis, keepdims=True)
                    found = getattr(be, name)(a, axis=axis).asnumpyarray()
                    np.testing.assert_array_equal(found, wanted, err_msg=f"{name} {shape} {axis} {host}")


def test_any_all_and_products(gpu: Backend, rng: Any, form: str) -> None:
    be = fresh(gpu)
    x = rng.random((33, 40)) < 0.03
    y = rng.uniform(0.8, 1.25, (33, 40))
    a, b, c = be.array(x, dtype=np.float32), be.array(~x, dtype=np.float32), be.array(y, dtype=np.float32)
    for axis in (0, 1):
        np.testing.assert_array_equal(be.any(a, axis=axis).asnumpyarray(), x.any(axis, keepdims=True))
        np.testing.assert_array_equal(be.all(b, axis=axis).asnumpyarray(), (~x).all(axis, keepdims=True))
        wanted = y.astype(np.float32).astype(np.float64).prod(axis, keepdims=True)
        assert_near(be.prod(c, axis=axis).asnumpyarray(), wanted, slack=20)


@pytest.mark.compiles(18)
@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("shape", ((1, 1), (10, 33), (33, 12), (140, 64), (6, 600)), ids=str)
def test_several_passes(gpu: Backend, rng: Any, form: str, shape: tuple[int, int], axis: int) -> None:
    be = fresh(gpu)
    x = rng.standard_normal(shape).astype(np.float32)
    a, out = be.array(x), be.empty(shape)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis, keepdims=True))
    out[:] = be.exp(a - be.max(a, axis=axis)) / be.sum(be.exp(a - be.max(a, axis=axis)), axis=axis)
    assert_near(out, e / e.sum(axis, keepdims=True), "softmax", slack=2)
    normal = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + 1e-3)
    a[:] = (a - be.mean(a, axis=axis)) / be.sqrt(be.var(a, axis=axis) + 1e-3)  # in place
    assert_near(a, normal, "normalisation", slack=4)


def test_statistics_and_what_follows_from_them(gpu: Backend, rng: Any, form: str) -> None:
    be = fresh(gpu)
    for shape, axis in (((12, 70), 1), ((70, 12), 0), ((40, 64), 1)):
        x = rng.standard_normal(shape).astype(np.float32)
        small = list(shape)
        small[axis] = 1
        running = rng.standard_normal(small).astype(np.float32)
        a, kept, out = be.array(x), be.array(running), be.empty(shape)
        mean = be.mean(a, axis=axis)
        be.assign_many([(out, a - kept), (kept, kept * 0.9 + mean * 0.1)])  # kept is read and written
        assert_near(out, x.astype(np.float64) - running)
        assert_near(kept, running * 0.9 + x.astype(np.float64).mean(axis, keepdims=True) * 0.1)


def test_rand_and_onehot_inside_a_reduction(gpu: Backend, form: str) -> None:
    be = fresh(gpu)
    ones = be.ones((20, 50))
    state = be.rng_get_state()
    drawn = be.empty((20, 50))
    drawn[:] = ones * be.rand()
    be.rng_set_state(state)
    assert_near(be.sum(ones * be.rand(), axis=1).asnumpyarray(), drawn.get().astype(np.float64).sum(1, keepdims=True))
    index = np.arange(50, dtype=np.int32).reshape(1, 50) % 20
    counts = be.sum(ones * be.onehot(be.array(index, dtype=np.int32), 0), axis=1).asnumpyarray()
    np.testing.assert_array_equal(counts[:, 0], np.bincount(index[0], minlength=20))


def test_large_sums_are_accurate_and_always_the_same(gpu: Backend, rng: Any) -> None:
    be = fresh(gpu)
    for shape, axis in (((3, 200_000), 1), ((40_000, 5), 0), ((300, 1000), None), ((1, 1_000_003), None)):
        x = rng.random(shape).astype(np.float32)
        a = be.array(x)
        first = be.sum(a, axis=axis).asnumpyarray()
        assert_near(first, x.astype(np.float64).sum(axis, keepdims=True), f"{shape} {axis}", slack=0.5)
        np.testing.assert_array_equal(be.sum(a, axis=axis).asnumpyarray(), first)
    assert int(be.argmax(be.array(x), axis=1).asnumpyarray()[0, 0]) == int(x.argmax())


def test_nothing_to_reduce_is_as_on_the_cpu(gpu: Backend) -> None:
    out = gpu.empty((1, 4))
    out[:] = gpu.sum(gpu.empty((0, 4)), axis=0)
    np.testing.assert_array_equal(out.get(), np.zeros((1, 4)))
    with pytest.raises(ValueError, match="max of nothing"):
        out[:] = gpu.max(gpu.empty((0, 4)), axis=0)
