"""Products, gathers, scatters and windows on the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.errors import IndexRangeError
from neonlike.kernels.cuda import moves as moves_cuda
from neonlike.kernels.cuda.gemm import Gemm
from neonlike.kernels.cuda.moves import Moves
from neonlike.optree.dtypes import F32, F64
from neonlike.optree.functions import F
from tests.support.gpu.cuda_backends import LAYOUTS, assert_near, gpu, tensor
from tests.support.gpu.device_only import traffic

pytestmark = pytest.mark.checked

__all__ = ["gpu"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_any_size_and_strides(gpu: Backend, rng: Any, layout: str) -> None:
    for m, k, n in ((1, 1, 1), (3, 33, 5), (65, 16, 70), (64, 130, 64)):
        x, y = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        out = tensor(gpu, np.zeros((m, n), np.float32), layout)
        out[:] = gpu.dot(tensor(gpu, x, layout), tensor(gpu, y, layout))
        assert_near(out, x.astype(np.float64) @ y, f"{m} {k} {n}", slack=4)
        out[:] = gpu.relu(gpu.dot(tensor(gpu, x, layout), gpu.array(y)) + 1)
        assert_near(out, np.maximum(x.astype(np.float64) @ y + 1, 0), f"{m} {k} {n}", slack=4)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64", "int32"))
def test_products_of_other_dtypes(gpu: Backend, rng: Any, dtype: str) -> None:
    x, y = ((rng.standard_normal(shape) * 3).astype(dtype) for shape in ((20, 35), (35, 18)))
    out = gpu.empty((20, 18), dtype=x.dtype)
    out[:] = gpu.dot(gpu.array(x, dtype=x.dtype), gpu.array(y, dtype=x.dtype))
    wide = np.int64 if dtype == "int32" else np.float64
    assert_near(out, x.astype(wide) @ y.astype(wide))


def test_products_of_nothing(gpu: Backend) -> None:
    out = gpu.ones((3, 4))
    out[:] = gpu.dot(gpu.empty((3, 0)), gpu.empty((0, 4)))
    np.testing.assert_array_equal(out.get(), np.zeros((3, 4)))


def test_stacks_of_products_scaled_and_added(gpu: Backend, rng: Any) -> None:
    x, y, z = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 5, 7), (3, 7, 6), (3, 5, 6)))
    a, b = gpu.array(x).array, gpu.array(y).array
    product = Gemm(gpu.device)
    out = gpu.array(z)
    product.ready(a, b, out.array, F32, 2.0, 0.5)()
    assert_near(out, 2 * (x.astype(np.float64) @ y) + 0.5 * z)
    one = gpu.array(y[0])
    product.ready(a, one.array, out.array, F64)()
    assert_near(out, x.astype(np.float64) @ y[0])


def test_gathers(gpu: Backend, rng: Any) -> None:
    for layout in LAYOUTS:
        x = rng.standard_normal((12, 9)).astype(np.float32)
        a = tensor(gpu, x, layout)
        for axis in (0, 1):
            index = np.array([[3, 0, -1, 3, 8, -9]], np.int32)
            out = gpu.take(a, gpu.array(index, dtype=np.int32), axis=axis).asnumpyarray()
            np.testing.assert_array_equal(out, np.take(x, index[0], axis=axis), err_msg=f"{layout} {axis}")
            apart = gpu.array(np.repeat(index, 3, axis=1), dtype=np.int32)[:, ::3]
            out = gpu.take(a, apart, axis=axis).asnumpyarray()
            np.testing.assert_array_equal(out, np.take(x, index[0], axis=axis), err_msg=f"{layout} {axis}, apart")
    half = gpu.empty((12, 2), dtype=np.float16)
    half[:] = gpu.take(gpu.array(x), gpu.array(np.array([[1], [0]]), dtype=np.int64), axis=1)
    assert_near(half, x[:, [1, 0]])
    wide = rng.standard_normal((3, 4, 5, 6)).astype(np.float32)
    found = gpu.take(gpu.array(wide), gpu.array(np.array([[3, 3, 0]]), dtype=np.int16), axis=2).asnumpyarray()
    np.testing.assert_array_equal(found, wide[:, :, [3, 3, 0]])


def test_scatters_add_in_order(gpu: Backend, rng: Any) -> None:
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        d = (rng.standard_normal((5, 40)) * 4).astype(dtype)
        index = rng.integers(-7, 7, (1, 40)).astype(np.int32)
        wanted = np.zeros((5, 7), np.float64)
        np.add.at(wanted.T, index[0], d.astype(np.float64).T)
        out = gpu.empty((5, 7), dtype=np.dtype(dtype))
        what = F.untake(gpu.array(d, dtype=np.dtype(dtype)), gpu.array(index, dtype=np.int32), (5, 7), 1)
        out[:] = what
        assert_near(out, wanted)
        first = out.get()
        out[:] = what
        np.testing.assert_array_equal(out.get(), first)


def test_slices_are_grouped_in_order(gpu: Backend, rng: Any) -> None:
    moves = Moves(gpu.device, "")
    for limit, count, dtype in ((1, 1, "int32"), (3, 100, "int64"), (2050, 700, "int16"), (5, 33, "uint8")):
        host = rng.integers(-limit if dtype[0] == "i" else 0, limit, (count, 2)).astype(dtype)
        index = gpu.array(host, dtype=host.dtype)[:, 1]
        calls, *arrays = moves.group(index.array.reshape(count), limit, "take")
        for call in calls:
            call()
        start, slices = map(gpu.device.to_host, arrays)
        places = host[:, 1].astype(np.int64) % limit
        np.testing.assert_array_equal(slices, np.argsort(places, kind="stable"))
        np.testing.assert_array_equal(start, np.searchsorted(np.sort(places), np.arange(limit + 1)))


def test_indices_stay_on_the_device(gpu: Backend, rng: Any) -> None:
    host, x = rng.integers(0, 50, (1, 5000)), rng.standard_normal((50, 3)).astype(np.float32)
    index, a = gpu.array(host, dtype=np.int32), gpu.array(x)
    picked, back = gpu.empty((5000, 3)), gpu.empty((50, 3))
    with traffic(gpu) as seen:
        picked[:] = gpu.take(a, index, axis=0)
        back[:] = F.untake(picked, index, (50, 3), 0)
    assert not len(seen), str(seen)
    np.testing.assert_array_equal(picked.get(), x[host[0]])
    assert_near(back, x * np.bincount(host[0], minlength=50)[:, None].astype(np.float64))


@pytest.mark.parametrize("where", (0, 40, 99))
def test_any_index_out_of_range_is_found(gpu: Backend, monkeypatch: pytest.MonkeyPatch, where: int) -> None:
    monkeypatch.setattr(moves_cuda, "FEWEST_INDICES", 10)
    a, out = gpu.ones((3, 4)), gpu.zeros((100, 4))
    for bad in (3, -4):
        host = np.full((100, 1), -3)
        host[where] = bad
        step = gpu.prepare(out, gpu.take(a, gpu.array(host, dtype=np.int64), axis=0))
        for _ in range(2):
            step()
            with pytest.raises(IndexRangeError, match=f"take: index {bad} "):
                out.get()
            out.get()


def test_an_index_out_of_range_is_told_when_the_host_waits(gpu: Backend) -> None:
    """The error may also come with the next indices. Slice 0 is read for a bad index; nothing is added there."""
    a, out = gpu.array(np.arange(12.0).reshape(3, 4)), gpu.zeros((3, 2))
    bad = gpu.array(np.array([[4, 1]]), dtype=np.int32)
    out[:] = gpu.take(a, bad, axis=1)
    with pytest.raises(IndexRangeError, match="index 4 is out of range for an axis of size 4; use -4 to 3"):
        gpu.synchronize()
    np.testing.assert_array_equal(out.get(), a.get()[:, [0, 1]])
    a[:] = F.untake(out, bad, (3, 4), 1)
    with pytest.raises(IndexRangeError, match="index 4"):
        a[:] = F.untake(out, bad, (3, 4), 1)
    gpu.synchronize()
    np.testing.assert_array_equal(a.get(), [[0, 1, 0, 0], [0, 5, 0, 0], [0, 9, 0, 0]])
    with pytest.raises(IndexRangeError, match="size 0"):
        out[:] = gpu.take(gpu.zeros((3, 0)), bad, axis=1)


def test_gradients_through_views(gpu: Backend, rng: Any) -> None:
    x = rng.standard_normal((6, 8)).astype(np.float32)
    a = gpu.array(x)
    cost = a[1:5, ::2] * a[:4, 1::2]
    grad = gpu.empty(x.shape)
    Autodiff(cost, gpu).back_prop_grad([a], [grad])
    wanted = np.zeros(x.shape)
    wanted[1:5, ::2] += x[:4, 1::2]
    wanted[:4, 1::2] += x[1:5, ::2]
    assert_near(grad, wanted)


def test_a_stage_with_too_many_arguments_runs_on_the_host(rng: Any, gpu: Backend) -> None:
    parts = [rng.standard_normal((3, 5)).astype(np.float32) for _ in range(12)]
    tensors = [gpu.array(part.T.copy()).T for part in parts]
    total, out = tensors[0], gpu.empty((3, 5))
    for one in tensors[1:]:
        total = total * one + one
    wanted = parts[0].astype(np.float64)
    for part in parts[1:]:
        wanted = wanted * part + part
    device = gpu.device
    try:
        kept, device.capabilities = device.capabilities, replace(device.capabilities, argument_bytes=100)
        gpu.executor.clear()
        for _ in range(2):
            out[:] = total - gpu.sum(total, axis=1)
            assert_near(out, wanted - wanted.sum(1, keepdims=True), slack=20)
    finally:
        device.capabilities = kept
        gpu.executor.clear()
