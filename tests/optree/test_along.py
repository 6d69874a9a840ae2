"""Running sums, sorting and picking along an axis against NumPy, on every engine."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.errors import DTypeError, IndexRangeError, ShapeError
from neonlike.kernels.c import moves as moves_c
from neonlike.kernels.c.lines import LineStage
from neonlike.optree.dtypes import SUPPORTED
from neonlike.optree.functions import F
from tests.support.engines import ON_GPU, backend
from tests.support.float64.reference import LAYOUTS, plain, strided, transposed

pytestmark = [pytest.mark.optree, pytest.mark.checked]

SHAPES = ((1, 1), (1, 9), (9, 1), (7, 13), (3, 300), (300, 3), (70, 70), (3, 4, 5), (2, 1, 65))
EMPTY = ((0, 3), (3, 0), (2, 0, 3))

each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
each_dtype = pytest.mark.parametrize("dtype", SUPPORTED, ids=lambda dtype: dtype.name)


@pytest.fixture(autouse=True)
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the ops that C stages left to NumPy."""
    names: list[str] = []
    on_numpy = LineStage._on_numpy

    def record(stage: LineStage, *arrays: Any) -> None:
        names.append(stage.value.spec.name)
        on_numpy(stage, *arrays)

    monkeypatch.setattr(LineStage, "_on_numpy", record)
    return names


def some(rng: Any, shape: Any, dtype: Any = np.float32) -> Any:
    """Values with many equal ones, zeros of both signs and, for floats, nan and infinities."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    values = rng.integers(0 if kind.kind == "u" else -6, 7, shape)
    if kind.kind in "iu":
        ends = np.array([np.iinfo(kind).min, np.iinfo(kind).max], kind)
        return np.where(rng.random(shape) < 0.1, rng.choice(ends, shape), values.astype(kind))
    odd = rng.choice((np.nan, np.inf, -np.inf, -0.0, 0.0), shape)
    return np.where(rng.random(shape) < 0.2, odd, values * 0.5).astype(kind)


def order(host: Any, axis: int, descending: bool = False) -> Any:
    """Positions in order, equal values as they come and nan last, by Python's sort."""

    def of_line(line: Any) -> list[int]:
        values = [float(v) if host.dtype.kind in "fV" else int(v) for v in line]
        rest = [j for j, v in enumerate(values) if v != v]
        known = [j for j, v in enumerate(values) if v == v]
        return sorted(known, key=lambda j: -values[j] if descending else values[j]) + rest

    lines = np.moveaxis(host, axis, -1)
    found = np.empty(lines.shape, np.int64)
    for place in np.ndindex(lines.shape[:-1]):
        found[place] = of_line(lines[place])
    return np.moveaxis(found, -1, axis)


# Running sums ---------------------------------------------------------------------------------------------------------


@each_layout
def test_running_sums_and_products(be: Backend, rng: Any, layout: Any, fallbacks: list[str]) -> None:
    for shape in (*SHAPES, *EMPTY):
        host = rng.uniform(-1.5, 1.5, shape).astype(np.float32)
        a = layout(be, host)
        for axis, reverse, (name, function) in itertools.product(
            range(-len(shape), len(shape)), (False, True), (("cumsum", np.cumsum), ("cumprod", np.cumprod))
        ):
            wide = np.flip(host, axis) if reverse else host
            wanted = function(wide, axis=axis, dtype=np.float64)
            wanted = np.flip(wanted, axis) if reverse else wanted
            out = layout(be, np.zeros(shape, np.float32))
            assert getattr(be, name)(a, axis, reverse, out=out) is out
            if not ON_GPU:  # whose blocks add up in another order
                np.testing.assert_array_equal(out.get(), wanted.astype(np.float32))
            np.testing.assert_allclose(out.get(), wanted, 2e-7, 1e-12)
            inside = (getattr(be, name)(a * 1, axis, reverse) * 2).asnumpyarray()
            np.testing.assert_allclose(inside, wanted * 2, 2e-7, 1e-12)
        assert not (host.size and fallbacks)


@each_dtype
def test_running_sums_of_each_dtype(be: Backend, rng: Any, dtype: Any) -> None:
    host = (rng.integers(0, 2, (5, 40)) if dtype.kind == "b" else rng.integers(0, 60, (5, 40))).astype(dtype)
    wide = np.float64 if dtype.kind in "fV" else np.int64
    for axis, write in enumerate(("f2", "f8", "u1", "i4", "?")):
        axis %= 2
        wanted = np.cumsum(host.astype(wide), axis)
        out, same = be.empty((5, 40), dtype=write), be.empty((5, 40), dtype=write)
        out[:] = be.cumsum(be.array(host, dtype=dtype), axis)
        same[:] = be.array(wanted, dtype=np.float64 if wide is np.float64 else np.int64)
        np.testing.assert_array_equal(out.get(), same.get())
    stays = dtype.kind in "fV" or dtype == np.uint64
    assert be.cumsum(be.array(host, dtype=dtype), 0).dtype == (dtype if stays else np.int64)


def test_long_sums_are_as_exact_as_their_dtype(be: Backend) -> None:
    """One after another in float32, a sum of 300,000 times 0.1 would be off by hundreds."""
    n = 300_000
    tenth = float(np.float32(0.1))
    row = be.empty((1, n)).fill(0.1)
    found = be.cumsum(row, 1).asnumpyarray()[0].astype(np.float64)
    np.testing.assert_allclose(found, np.arange(1, n + 1) * tenth, 1.2e-7)
    assert be.cumsum(row.T, 0).asnumpyarray()[-1, 0] == found[-1]


def test_nan_and_infinity_in_running_sums(be: Backend) -> None:
    host = np.array([[1, np.inf, 2, -np.inf, 3], [np.nan, 1, 2, 3, 4]], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(be.cumsum(be.array(host), 1).asnumpyarray(), np.cumsum(host, 1))


# Orders ---------------------------------------------------------------------------------------------------------------


@each_layout
def test_orders(be: Backend, rng: Any, layout: Any, fallbacks: list[str]) -> None:
    for shape in SHAPES:
        host = some(rng, shape)
        a = layout(be, host)
        for axis, descending in itertools.product(range(len(shape)), (False, True)):
            wanted = order(host, axis, descending)
            assert be.argsort(a, axis, descending).dtype == np.int64
            np.testing.assert_array_equal(be.argsort(a, axis, descending).asnumpyarray(), wanted)
            out = layout(be, np.zeros(shape, np.int32))
            be.argsort(a * 1, axis, descending, out=out)
            np.testing.assert_array_equal(out.get(), wanted)
            in_order = np.take_along_axis(host, wanted, axis)
            np.testing.assert_array_equal(be.sort(a, axis, descending).asnumpyarray(), in_order)
            np.testing.assert_array_equal(be.sort(a * 2, axis, descending).asnumpyarray(), in_order * 2)
    assert not fallbacks
    for shape in EMPTY:
        for axis in range(len(shape)):
            assert be.sort(be.empty(shape), axis).asnumpyarray().shape == shape


@each_dtype
def test_orders_of_each_dtype(be: Backend, rng: Any, dtype: Any, fallbacks: list[str]) -> None:
    for shape in ((6, 90), (90, 6)):
        host = some(rng, shape, dtype)
        for axis, descending in itertools.product((0, 1), (False, True)):
            found = be.argsort(be.array(host, dtype=dtype), axis, descending).asnumpyarray()
            np.testing.assert_array_equal(found, order(host, axis, descending))
    assert not fallbacks


def test_long_orders(be: Backend, rng: Any) -> None:
    for host in (rng.standard_normal((1, 70_001)), rng.integers(0, 9, (2, 9000)), np.zeros((1, 500))):
        a = be.array(host, dtype=np.float64)
        np.testing.assert_array_equal(be.argsort(a).asnumpyarray(), np.argsort(host, 1, kind="stable"))
        np.testing.assert_array_equal(be.sort(a.T, 0).asnumpyarray(), np.sort(host, 1).T)


def test_topk(be: Backend, rng: Any) -> None:
    for shape, layout in itertools.product(((7, 13), (13, 7), (3, 4, 5), (200, 6)), (plain, strided, transposed)):
        host = some(rng, shape)
        for axis, largest in itertools.product(range(-len(shape), len(shape)), (True, False)):
            for k in (0, 1, 3, shape[axis]):
                values, places = be.topk(layout(be, host), k, axis, largest)
                wanted = np.take(order(host, axis % len(shape), largest), range(k), axis)
                v, p = be.empty(wanted.shape), be.empty(wanted.shape, dtype=np.int64)
                be.assign_many([(v, values), (p, places)])
                np.testing.assert_array_equal(p.get(), wanted)
                np.testing.assert_array_equal(v.get(), np.take_along_axis(host, wanted, axis))


def test_sorting_in_place_and_prepared(be: Backend, rng: Any) -> None:
    host = rng.standard_normal((6, 50)).astype(np.float32)
    a = be.array(host)
    a[:] = be.sort(a, 1)
    np.testing.assert_array_equal(a.get(), np.sort(host, 1))
    a[:, ::-1] = be.sort(a, 0)
    np.testing.assert_array_equal(a.get()[:, ::-1], np.sort(np.sort(host, 1), 0))
    total = be.array(host)
    step = be.prepare(total, be.cumsum(total, 1))
    for times in (1, 2, 3):
        step()
        wanted = host.astype(np.float64)
        for _ in range(times):
            wanted = np.cumsum(wanted, 1)
        np.testing.assert_allclose(total.get(), wanted, 1e-4, 1e-4)


# Picking --------------------------------------------------------------------------------------------------------------


@each_layout
def test_picking_by_indices_of_each_line(be: Backend, rng: Any, layout: Any, fallbacks: list[str]) -> None:
    for shape in SHAPES:
        host = rng.standard_normal(shape).astype(np.float32)
        for axis, count in itertools.product(range(len(shape)), (1, 4)):
            wide = (*shape[:axis], count, *shape[axis + 1 :])
            index = rng.integers(-shape[axis], shape[axis], wide)
            wanted = np.take_along_axis(host, index, axis)
            computed = be.array(index, dtype=np.int64) + 0
            for places in (index, index.tolist(), layout(be, index.astype(np.int32)), computed):
                found = be.take_along_axis(layout(be, host), places, axis)
                np.testing.assert_array_equal(found.asnumpyarray(), wanted)
            d = rng.standard_normal(wide).astype(np.float32)
            sums = np.zeros(shape)
            grid = list(np.ogrid[tuple(map(slice, wide))])
            grid[axis] = index % shape[axis]
            np.add.at(sums, tuple(grid), d)
            out = layout(be, np.full(shape, 7, np.float32))
            out[:] = F.untake_along(layout(be, d), be.array(index, dtype=np.int32), shape, axis)
            np.testing.assert_allclose(out.get(), sums, 1e-6, 1e-6)
    assert not fallbacks


@each_dtype
def test_picking_of_each_dtype(be: Backend, rng: Any, dtype: Any) -> None:
    host = some(rng, (6, 8), dtype)
    host = np.where(host == host, host, np.ones_like(host)) if dtype.kind in "fV" else host
    index = rng.integers(0, 6, (4, 8))
    for write in ("f2", "f4", "i1", "i8", "?"):
        out, same = be.empty((4, 8), dtype=write), be.empty((4, 8), dtype=write)
        out[:] = be.take_along_axis(be.array(host, dtype=dtype), be.array(index, dtype=np.uint8), 0)
        same[:] = be.array(np.take_along_axis(host, index, 0), dtype=dtype)
        np.testing.assert_array_equal(out.get(), same.get())


def test_indices_out_of_range_leave_the_target_alone(be: Backend) -> None:
    x, out = be.ones((3, 2)), be.zeros((3, 2))
    for bad in (3, -4):
        index = be.array([[0, 0], [0, bad], [0, 0]], dtype=np.int32)
        for value in (be.take_along_axis(x, index, 0), F.untake_along(x, index, (3, 2), 0)):
            with pytest.raises(IndexRangeError, match=f"{bad}.*size 3"):
                out[:] = value
                be.synchronize()  # a GPU tells it then
        with pytest.raises(IndexRangeError, match=f"{bad}.*size 3"):
            be.take_along_axis(x, index.get(), 0)
    order_of_more = be.argsort(be.array([[3.0, 1.0, 2.0, 0.0]] * 3), 1)
    with pytest.raises(IndexRangeError):
        be.assign_many([(out, x), (be.empty((3, 4)), be.take_along_axis(x, order_of_more, 1))])
        be.synchronize()
    assert ON_GPU or not out.get().any()


@pytest.mark.cpu_only("threads of the C engine")
def test_results_do_not_depend_on_threads(rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves_c, "PARALLEL_WORK", 1)
    hosts = [some(rng, shape) for shape in ((130, 70), (70, 130), (3, 90, 4))]
    found: list[list[Any]] = []
    for threads in ("1", "3"):
        monkeypatch.setenv("NEONLIKE_NUM_THREADS", threads)
        for be in backend("c"):
            made = [
                f(be.array(host), axis).asnumpyarray()
                for host in hosts
                for axis in range(host.ndim)
                for f in (be.cumsum, be.argsort, be.sort)
            ]
            found.append(made)
    for first, second in zip(*found):
        np.testing.assert_array_equal(first, second)


# Gradients and errors -------------------------------------------------------------------------------------------------


def test_gradients(be: Backend, rng: Any) -> None:
    host = rng.permutation(20).reshape(4, 5).astype(np.float32) / 4
    x, d = be.array(host), rng.standard_normal((4, 5)).astype(np.float32)
    (found,) = Autodiff(be.sort(x * 2, 1), be, be.array(d)).get_grad_asnumpyarray([x])
    wanted = np.zeros((4, 5))
    np.put_along_axis(wanted, np.argsort(host, 1), 2 * d, 1)
    np.testing.assert_allclose(found, wanted, 1e-6)
    (found,) = Autodiff(be.topk(x, 2, 0)[0], be, be.array(d[:2])).get_grad_asnumpyarray([x])
    wanted = np.zeros((4, 5))
    np.put_along_axis(wanted, np.argsort(-host, 0)[:2], d[:2], 0)
    np.testing.assert_allclose(found, wanted, 1e-6)
    (found,) = Autodiff(be.cumsum(x, 1), be, be.array(d)).get_grad_asnumpyarray([x])
    np.testing.assert_allclose(found, np.flip(np.cumsum(np.flip(d, 1), 1), 1), 1e-5, 1e-6)


def test_gradient_of_products_with_zeros(be: Backend, rng: Any) -> None:
    host = rng.uniform(0.5, 2, (5, 6))
    host[1, 2] = host[2, 0] = host[3, 1] = host[3, 4] = host[4, 5] = 0
    x, d = be.array(host), rng.standard_normal((5, 6)).astype(np.float32)
    for axis, reverse in itertools.product((0, 1), (False, True)):
        (found,) = Autodiff(be.cumprod(x, axis, reverse), be, be.array(d)).get_grad_asnumpyarray([x])
        wanted = np.empty((5, 6))
        for place in np.ndindex(5, 6):
            high, low = (np.where(np.arange(30).reshape(5, 6) == 6 * place[0] + place[1], v, host) for v in (1, 0))
            parts = [np.flip(h, axis) if reverse else h for h in (high, low)]
            totals = [np.cumprod(h, axis) for h in parts]
            slope = totals[0] - totals[1]  # products are linear in each factor
            wanted[place] = (d * (np.flip(slope, axis) if reverse else slope)).sum()
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("shape", "places"),
    [((2, 3), (1, 2)), ((2, 3), (2, 1)), ((1, 3), (4, 2)), ((2, 1, 3), (1, 5, 2)), ((2, 3), (1, 1)), ((0, 3), (1, 2))],
)
def test_indices_and_values_are_broadcast(
    be: Backend, rng: Any, shape: tuple[int, ...], places: tuple[int, ...]
) -> None:
    axis, host = len(shape) - 1, rng.standard_normal(shape).astype(np.float32)
    index = rng.integers(-shape[axis], shape[axis], places)
    wanted = np.take_along_axis(host, index, axis)
    for given in (index, be.array(index, dtype=np.int32), be.array(index, dtype=np.int64) + 0):
        for a in (be.array(host), be.array(host) * 1):
            np.testing.assert_array_equal(be.take_along_axis(a, given, axis).asnumpyarray(), wanted)
    x = be.array(host)
    gradient = be.grad(lambda v: be.sum(be.take_along_axis(v, index, axis)))(x)
    sums, wide = np.zeros(wanted.shape[:axis] + shape[axis:]), np.broadcast_to(index, wanted.shape) % shape[axis]
    grid = list(np.ogrid[tuple(map(slice, wanted.shape))])
    grid[axis] = wide
    np.add.at(sums, tuple(grid), 1)
    for i, (n, m) in enumerate(zip(sums.shape, shape)):
        sums = sums if n == m else sums.sum(axis=i, keepdims=True)
    np.testing.assert_array_equal(gradient.asnumpyarray(), sums)


def test_errors(be: Backend) -> None:
    a = be.ones((2, 3))
    wrong: list[tuple[Any, Any, str]] = [
        (lambda: be.cumsum(a, 2), ShapeError, "axis 2"),
        (lambda: be.cumsum(a, (0, 1)), ShapeError, "one axis"),
        (lambda: be.cumsum(a, "x"), ShapeError, "axis"),
        (lambda: be.cumsum("x", 0), DTypeError, "operand"),
        (lambda: be.cumprod(3, 0), ShapeError, "shape"),
        (lambda: be.sort(a, (0, 1)), ShapeError, "one axis"),
        (lambda: be.topk(a, 4), ShapeError, "has 3 values, got k=4"),
        (lambda: be.topk(a, -1), ShapeError, "k=-1"),
        (lambda: be.topk(a, 1.5), DTypeError, "integer"),
        (lambda: be.take_along_axis(a, [[0, 1]], 0), ShapeError, r"\(1, 2\).*\(2, 3\)"),
        (lambda: be.take_along_axis(a, [[[0]]], 0), ShapeError, r"\(1, 1, 1\).*\(2, 3\)"),
        (lambda: be.take_along_axis(a, a, 0), DTypeError, "integers"),
        (lambda: be.take_along_axis(a, [[0.5] * 3], 0), DTypeError, "integers"),
        (lambda: be.take_along_axis(a, [[2] * 3], 0), IndexRangeError, "size 2"),
    ]
    for call, kind, match in wrong:
        with pytest.raises(kind, match=match):
            call()
