"""Elementwise CUDA kernels: vectors and single elements, any strides, broadcasts, overlaps, dtypes, rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_dtypes import finfo

from neonlike.backends import Backend
from neonlike.backends.cpu import NervanaCPU
from neonlike.kernels.cuda import fit as fit_cuda
from neonlike.optree.dtypes import SUPPORTED
from tests.support.engines import sampled
from tests.support.gpu.cuda_backends import LAYOUTS, assert_near, gpu, tensor

pytestmark = pytest.mark.checked

__all__ = ["gpu"]
SHAPES = ((1, 1), (1, 3), (3, 1), (1, 33), (5, 64), (33, 33), (70, 36), (2, 3, 5), (3, 8, 4, 16))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides(gpu: Backend, rng: Any, layout: str) -> None:
    for shape in SHAPES:
        x, y = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
        wanted = sigmoid(x.astype(np.float64) * y + 2)
        a, b = tensor(gpu, x, layout), tensor(gpu, y)
        for target in ("plain", layout):
            out = tensor(gpu, np.zeros_like(x), target)
            out[:] = gpu.sig(a * b + 2)
            assert_near(out, wanted, f"{shape} {layout} to {target}")


def test_broadcasts(gpu: Backend, rng: Any) -> None:
    for rows, columns in ((3, 8), (33, 5), (40, 64)):
        x = rng.standard_normal((rows, columns)).astype(np.float32)
        c, r, s = x[:, :1].copy(), x[:1].copy(), x[:1, :1].copy()
        out = gpu.empty(x.shape)
        out[:] = gpu.array(x) * gpu.array(c) + gpu.array(r) - gpu.array(s)
        assert_near(out, x.astype(np.float64) * c + r - s)
        out[:] = gpu.array(c) - gpu.array(r)
        assert_near(out, c.astype(np.float64) - r)
        out[:] = 2.5
        assert_near(out, np.full(x.shape, 2.5))


def test_what_lies_behind_a_result_is_left_alone(gpu: Backend, rng: Any) -> None:
    """Results of no whole vectors, in a row of a larger tensor."""
    for dtype in ("float32", "float16", "int8"):
        for n in (1, 3, 6, 33, 127):
            x = rng.integers(0, 50, (1, n)).astype(dtype)
            whole = gpu.zeros((1, n + 24), dtype=x.dtype)
            whole[:, :n][:] = gpu.array(x, dtype=x.dtype) + 1
            np.testing.assert_array_equal(whole.get(), np.pad(x + 1, ((0, 0), (0, 24))).astype(dtype))


def test_nothing_to_compute(gpu: Backend) -> None:
    for shape in ((0, 3), (3, 0)):
        out = gpu.empty(shape)
        out[:] = gpu.empty(shape) + 1
        assert out.get().shape == shape


def test_targets_that_are_read(gpu: Backend, rng: Any) -> None:
    host = rng.standard_normal((37, 37)).astype(np.float32)
    cases = {
        "in place": (lambda a: a, lambda a: a * 2 + 1),
        "transposed": (lambda a: a, lambda a: a.T + a),
        "shifted": (lambda a: a[1:], lambda a: a[:-1] * 2),
        "reversed": (lambda a: a, lambda a: a[::-1, ::-1] + 1),
        "its row": (lambda a: a, lambda a: a * a[1:2]),
    }
    for name, (where, what) in cases.items():
        expected = host.astype(np.float64)
        where(expected)[...] = what(host.astype(np.float64))
        a = gpu.array(host)
        where(a)[:] = what(a)
        assert_near(a, expected, name)
        a = gpu.array(host)
        gpu.prepare(where(a), what(a))()
        assert_near(a, expected, f"{name}, prepared")


def test_several_targets(gpu: Backend, rng: Any) -> None:
    x, y = (rng.standard_normal((19, 33)).astype(np.float32) for _ in range(2))
    a, b, c = gpu.array(x), gpu.array(y), gpu.empty((19, 33), dtype=np.int32)
    gpu.assign_many([(a, b * 2), (b, a + b), (c, a * 10)])
    assert_near(a, y * 2.0)
    assert_near(b, x.astype(np.float64) + y)
    np.testing.assert_array_equal(c.get(), np.rint(x * np.float32(10)).astype(np.int32))


def test_inputs_that_lie_across_are_turned(gpu: Backend, rng: Any) -> None:
    for shape in ((8, 8), (33, 65), (100, 40)):
        x, y = (rng.standard_normal(shape[::-1]).astype(np.float32) for _ in range(2))
        out = gpu.empty(shape)
        out[:] = gpu.array(x).T * 2 + gpu.array(y).T
        assert_near(out, x.T * 2.0 + y.T)
    x = rng.standard_normal((3, 20, 17)).astype(np.float32)
    out = gpu.empty((3, 17, 20))
    out[:] = gpu.array(x).permuted((0, 2, 1)) + 1
    assert_near(out, x.transpose(0, 2, 1) + 1.0)


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16", "int16", "float64", "int8"))
def test_tiles_are_turned_by_vectors(gpu: Backend, rng: Any, dtype: str) -> None:
    """Odd numbers of tiles, of parts of tiles and planes; views that start, end and step at multiples of a vector."""
    be = gpu
    for shape in ((8, 8), (40, 24), (64, 32), (88, 136)):
        x, y = ((rng.standard_normal(shape[::-1]) * 50).astype(dtype) for _ in range(2))
        a, b, row, column = be.array(x, dtype=x.dtype), be.array(y, dtype=x.dtype), x[:1].T, x[:, :1].T
        out, wide = be.empty(shape, dtype=x.dtype), be.empty(shape)
        be.assign_many([(out, a.T), (wide, a.T * 2 + b.T)])
        np.testing.assert_array_equal(out.get(), x.T)
        assert_near(wide, x.T.astype(np.float64) * 2 + y.T)
        wide[:] = a.T + be.array(row.copy(), dtype=x.dtype) + be.array(column.copy(), dtype=x.dtype) + wide
        exact = x.T.astype(np.float64) * 3 + y.T + row + column
        assert_near(wide, exact, slack=2)
    big, out = (rng.standard_normal((3, 48, 56)) * 50).astype(dtype), be.zeros((3, 40, 48), dtype=dtype)
    a = be.array(big, dtype=big.dtype)
    for start, end in ((0, 40), (8, 48), (16, 56), (1, 41), (8, 47)):
        for lines in (slice(0, 48), slice(0, 40), slice(0, 48, 2), slice(8, 41)):
            view = big.transpose(0, 2, 1)[:, start:end, lines]
            part = out[:, : view.shape[1], : view.shape[2]]
            part[:] = a.permuted((0, 2, 1))[:, start:end, lines] * 1
            np.testing.assert_array_equal(part.get(), view)


VALUES = (0, 1, -1, 0.5, 1.5, 2.5, -2.5, 100.25, 127, 128, 255.5, 256, -129, 3e4, -3e4, 6e4, 1e10, -1e10, 3e18)


def converted(host: Any, written: Any) -> Any:
    """``host`` as tensors of dtype ``written`` hold it: rounded to nearest, saturated, nan as 0 in whole numbers."""
    if written.kind == "f":
        return host.astype(written)
    if written.kind == "b":
        return host != 0
    info = np.iinfo(written)
    whole = [int(v) if host.dtype.kind != "f" else int(np.nan_to_num(np.rint(v))) for v in host.reshape(-1).tolist()]
    return np.array([min(max(v, info.min), info.max) for v in whole], dtype=written).reshape(host.shape)


@pytest.mark.parametrize("read", SUPPORTED, ids=str)
def test_every_pair_of_dtypes(gpu: Backend, read: Any) -> None:
    values = np.array(VALUES)
    if read.kind == "f":
        with np.errstate(over="ignore"):
            host = np.append(values, [np.nan, np.inf, -np.inf]).astype(read)
    else:
        host = values.astype(np.int64).astype(read)
    host = np.resize(host, (5, 21))
    source = gpu.array(host, dtype=read)
    for written in sampled(gpu, SUPPORTED, 5, SUPPORTED.index(read)):
        out = gpu.empty(host.shape, dtype=written)
        out[:] = source
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out.get(), converted(host, written), err_msg=f"{read} to {written}")


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "float64"))
def test_special_values(gpu: Backend, dtype: str) -> None:
    tiny = finfo(dtype).smallest_subnormal
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, 1.0, -3.0, finfo(dtype).max], dtype)
    x, y = (part.reshape(10, 10).copy() for part in np.meshgrid(values, values))
    a, b = gpu.array(x, dtype=dtype), gpu.array(y, dtype=dtype)
    wide = np.float64 if dtype == "float64" else np.float32
    u, v = x.astype(wide), y.astype(wide)
    outs = [gpu.empty(x.shape, dtype=dtype) for _ in range(6)]
    values_of = [a + b, gpu.maximum(a, b), gpu.minimum(a, b), a < b, gpu.sgn(a), gpu.isnan(a) + 2 * gpu.finite(b)]
    gpu.assign_many(list(zip(outs, values_of)))
    with np.errstate(all="ignore"):
        wanted = [u + v, np.maximum(u, v), np.minimum(u, v), u < v, np.sign(u), np.isnan(u) + 2.0 * np.isfinite(v)]
        for position, (out, value) in enumerate(zip(outs, wanted)):
            found, stored = (host.astype(np.float64) for host in (out.get(), value.astype(dtype)))
            np.testing.assert_array_equal(found, stored, err_msg=f"value {position}")


def test_whole_numbers_wrap_and_saturate(gpu: Backend) -> None:
    x = np.array([[2**62, -(2**62), 5, -7, 2**31, -1]], dtype=np.int64)
    a, wide = gpu.array(x, dtype=np.int64), gpu.empty(x.shape, dtype=np.int64)
    narrow = gpu.empty(x.shape, dtype=np.int8)
    gpu.assign_many([(wide, a * 4 + gpu.absolute(a)), (narrow, a * 3)])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(wide.get(), x * 4 + np.abs(x))
        np.testing.assert_array_equal(narrow.get(), np.clip(x * 3, -128, 127))


def test_random_numbers_are_those_of_the_cpu(gpu: Backend) -> None:
    cpu = NervanaCPU(rng_seed=0)
    gpu.rng_reset()
    for shape, dtype in (((5, 7), np.float32), ((3, 1000), np.float32), ((4, 33), np.float64), ((6, 10), np.float16)):
        found, wanted = gpu.empty(shape, dtype=dtype), cpu.empty(shape, dtype=dtype)
        found[:], wanted[:] = gpu.rand(), cpu.rand()
        np.testing.assert_array_equal(found.get(), wanted.get())
        columns = gpu.empty(shape[::-1], dtype=dtype), cpu.empty(shape[::-1], dtype=dtype)
        columns[0][:], columns[1][:] = gpu.dropout(0.3).T * 2, cpu.dropout(0.3).T * 2
        np.testing.assert_array_equal(columns[0].get(), columns[1].get())


def test_onehot(gpu: Backend) -> None:
    index = np.array([[2, 0, 3, 3, 1]], dtype=np.int32)
    for axis, shape in ((0, (4, 5)), (1, (5, 4))):
        out = gpu.empty(shape)
        out[:] = gpu.onehot(gpu.array(index.reshape((1, 5) if axis == 0 else (5, 1)), dtype=np.int32), axis) * 3
        wanted = np.eye(4)[index[0]] * 3
        assert_near(out, wanted.T if axis == 0 else wanted)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float32", "float64"))
def test_stochastic_rounding_keeps_the_expectation(gpu: Backend, dtype: str) -> None:
    host = np.full((40, 250), 1.25, dtype)
    host[1::2] *= -1
    out = gpu.empty(host.shape, dtype=dtype)
    out.rounding = 1
    out[:] = gpu.array(host, dtype=dtype) * 1
    found = out.get().astype(np.float64)
    assert set(np.unique(found)) == {1.0, 1.5, -1.0, -1.5}
    assert abs(np.abs(found).mean() - 1.25) < 0.015  # 6 standard deviations
    again = gpu.empty(host.shape, dtype=dtype)
    again.rounding = 1
    again[:] = gpu.array(host, dtype=dtype) * 1
    assert (again.get() != out.get()).any()  # numbers of its own
    sums = gpu.empty((40, 1), dtype=dtype)
    sums.rounding = 2
    sums[:] = gpu.sum(gpu.array(np.full((40, 250), 0.0375), dtype=dtype), axis=1)  # 9.375 lies between 8 and 10
    assert set(np.unique(sums.get())) == {8.0, 10.0}


@pytest.mark.parametrize(("option", "digits"), ((2, 2), (True, 10)))
def test_stochastic_rounding_of_a_backend(gpu: Backend, option: Any, digits: int) -> None:
    """Tensors that a user makes round stochastically, their views too; temporaries and other tensors do not."""
    be: Any = type(gpu)(rng_seed=0, stochastic_round=option)
    be.bsz = 40
    thin = 1.0 + 2.0 ** -(digits + 2)  # a quarter of the way from 1 to the next value
    values = be.array(np.full((30, 40), thin))
    like = be.empty_like(values), be.zeros_like(values)
    made = be.empty((30, 40)), be.zeros((30, 40)), be.ones((30, 40)), be.array(values.get()), be.iobuf(30), *like
    for out in (*made, be.empty((40, 30)).T, be.empty((60, 40))[::2], be.empty((2, 30, 40))[1]):
        out[:] = values * 1
        assert set(np.unique(out.get())) == {1.0, 1.0 + 2.0**-digits}
    exact = be.empty((30, 40))
    exact.rounding = False
    exact[:] = values * 1
    assert (exact.get() == thin).all() and ((values * 1).asnumpyarray() == thin).all()


def test_what_stochastic_rounding_leaves_alone(gpu: Backend) -> None:
    out = gpu.empty((3, 5))
    out.rounding = True
    out[:] = 1 / 3
    assert_near(out, np.full((3, 5), np.float32(1 / 3)))  # a fill
    special = np.array([[np.nan, np.inf, -np.inf, 0.0, -2.0]] * 3, np.float32)
    out[:] = gpu.array(special) * 1
    np.testing.assert_array_equal(out.get(), special)
    whole = gpu.empty((30, 50), dtype=np.int8)
    whole.rounding = True
    whole[:] = gpu.array(np.full((30, 50), -2.5)) * 1
    assert set(np.unique(whole.get())) == {-2, -3}
    assert abs(whole.get().mean() + 2.5) < 0.1


def test_offsets_of_64_bits(gpu: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_cuda, "NARROW", 100)
    x = rng.standard_normal((21, 35)).astype(np.float32)
    out, sums = gpu.empty((21, 35)), gpu.empty((1, 35))
    gpu.assign_many([(out, gpu.array(x.T.copy()).T - gpu.array(x[:, ::-1].copy())[:, ::-1] / 3)])
    assert_near(out, x - x / 3.0)
    sums[:] = gpu.sum(gpu.array(x) * 3.25, axis=0)
    assert_near(sums, (x * 3.25).astype(np.float64).sum(0, keepdims=True))


def test_prepared_steps(gpu: Backend, rng: Any) -> None:
    x = rng.standard_normal((9, 65)).astype(np.float32)
    a, mean, out = gpu.array(x), gpu.empty((9, 1)), gpu.empty((9, 9))
    step = gpu.prepare([(a, a * 0.5), (mean, gpu.mean(a, axis=1)), (out, gpu.dot(a, a.T))])
    for _ in range(3):
        step()
        assert_near(mean, x.astype(np.float64).mean(1, keepdims=True))
        assert_near(out, x.astype(np.float64) @ x.T, slack=4)
        x = x * np.float32(0.5)
        assert_near(a, x)
