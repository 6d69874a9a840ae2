"""Pooling on the GPU: forms of the kernels by dtype, alignment and size, and calls that are repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import elements
from neonlike.backends.primitives.pooling.family import PoolFamily, PoolPass
from tests.support.engines import have_programs
from tests.support.gpu.cuda_backends import gpu  # noqa: F401  (a fixture)
from tests.support.gpu.cuda_backends import tensor as laid_out
from tests.support.gpu.device_only import traffic

OPS = ("max", "avg", "l2")
STRIDED = {"C": 3, "H": 7, "W": 6, "R": 3, "S": 2, "pad_h": 1, "str_h": 2, "str_w": 1}
DEEP = {"C": 4, "D": 3, "H": 5, "W": 4, "J": 2, "T": 2, "R": 3, "S": 3, "str_c": 1, "str_d": 1, "str_h": 2, "str_w": 2}
LARGE = {"C": 2, "H": 6, "W": 7, "R": 5, "S": 4, "pad_h": 2, "pad_w": 1, "str_h": 3, "str_w": 1}


def both_ways(
    be: Any, op: str, dtype: Any, N: int, sizes: dict[str, int], layout: str = "plain", old: float = 0
) -> None:
    """Forward and backward of steps of 1/16, compared with the definition; ``old`` is beta, and alpha is 1 - beta."""
    layer, rng = be.pool_layer(dtype, op, N, **sizes), np.random.default_rng(3)
    given = [rng.integers(1, 33, dims) / 16 for dims in (layer.dimI, layer.dimO, layer.dimI)]
    x, y, delta = (laid_out(be, host.astype(dtype), layout) for host in given)
    argmax = laid_out(be, np.zeros(layer.dimO, np.int16), layout)
    where = argmax if op == "max" else None
    expected = be.array(y.get(), dtype=dtype)
    numbers = be.zeros(layer.dimO, dtype=np.int16) if where is not None else None
    PoolFamily._fprop_pool(be, PoolPass(layer, False, 1 - old, old), x, expected, numbers)
    be.fprop_pool(layer, x, y, argmax, alpha=1 - old, beta=old)
    rtol = 1e-3 if dtype == np.float16 else 1e-6
    np.testing.assert_allclose(y.get(), expected.get(), rtol, 1e-6)
    if numbers is not None and where is not None:
        np.testing.assert_array_equal(where.get(), numbers.get())
    error, back = laid_out(be, given[1].astype(dtype), layout), be.array(delta.get(), dtype=dtype)
    inputs = x if op == "l2" else None
    PoolFamily._bprop_pool(be, PoolPass(layer, True, 1 - old, old), error, back, where, inputs)
    be.bprop_pool(layer, error, delta, argmax, alpha=1 - old, beta=old, inputs=inputs)
    np.testing.assert_allclose(delta.get(), back.get(), rtol, 1e-6)


@pytest.mark.parametrize(("dtype", "N"), [(np.float32, 8), (np.float32, 6), (np.float16, 24), (np.float64, 3)])
@pytest.mark.parametrize("op", OPS)
def test_vectors_of_images(gpu: Any, op: str, dtype: Any, N: int) -> None:  # noqa: F811
    both_ways(gpu, op, dtype, N, STRIDED, old=0.5)


@pytest.mark.parametrize("sizes", [DEEP, LARGE])
@pytest.mark.parametrize("op", OPS)
def test_windows_over_channels_and_large_ones(gpu: Any, op: str, sizes: dict[str, int]) -> None:  # noqa: F811
    both_ways(gpu, op, np.float32, 4, sizes)


@pytest.mark.parametrize("op", OPS)
def test_places_of_64_bits(gpu: Any, op: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(elements, "NARROW", 1)
    both_ways(gpu, op, np.float32, 4, STRIDED)


def test_infinite_values_in_no_window_have_no_gradient_of_l2(gpu: Any) -> None:  # noqa: F811
    layer = gpu.pool_layer(np.float32, "l2", 4, C=2, H=3, W=5, str_w=2)
    host = np.ones(layer.dimI, np.float32)
    host[:, :, :, 1::2] = np.inf
    x, y, delta = gpu.array(host), gpu.empty(layer.dimO), gpu.ones(layer.dimI)
    gpu.fprop_pool(layer, x, y)
    gpu.bprop_pool(layer, gpu.ones(layer.dimO), delta, inputs=x)
    found = delta.get().reshape(layer.dimI)
    assert not found[:, :, :, 1::2].any() and (found[:, :, :, ::2] == 1).all()


@pytest.mark.parametrize("layout", ["transposed", "shifted"])
@pytest.mark.parametrize("op", OPS)
def test_views_are_copied_on_the_device(gpu: Any, op: str, layout: str) -> None:  # noqa: F811
    both_ways(gpu, op, np.float32, 4, STRIDED, layout, old=0.25)
    layer = gpu.pool_layer(np.float32, op, 4, **STRIDED)
    kinds = (layer.dimI, "f4"), (layer.dimO, "f4"), (layer.dimO, "u1"), (layer.dimI, "f4")
    x, y, where, delta = (laid_out(gpu, np.ones(dims, kind), layout) for dims, kind in kinds)
    with traffic(gpu) as seen:
        gpu.fprop_pool(layer, x, y, where, beta=1.0)
        gpu.bprop_pool(layer, y, delta, where)
    assert not len(seen), str(seen)


def test_a_call_like_one_before_is_repeated(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    have_programs(gpu)
    layer = gpu.pool_layer(np.float32, "max", 4, **STRIDED)
    where, rng = gpu.empty(layer.dimO2, dtype=np.uint8), np.random.default_rng(0)
    memory = gpu.empty((layer.sizeI + layer.sizeO + 2, 1))

    def run(start: int) -> tuple[Any, Any]:
        """Images and results may begin at any element: not all are aligned."""
        x = memory[start : start + layer.sizeI].reshape(layer.dimI2)
        y = memory[start + layer.sizeI : start + layer.sizeI + layer.sizeO].reshape(layer.dimO2)
        x.set(rng.normal(size=x.shape))
        gpu.fprop_pool(layer, x, y, where)
        expected, numbers = gpu.empty(y.shape), gpu.empty(where.shape, dtype=np.uint8)
        PoolFamily._fprop_pool(gpu, PoolPass(layer, False), x, expected, numbers)
        return y.get(), expected.get()

    np.testing.assert_array_equal(*run(0))
    with monkeypatch.context() as patched:
        patched.setattr(gpu, "_run_primitive", None)
        for start in (0, 1, 2):
            np.testing.assert_array_equal(*run(start))
