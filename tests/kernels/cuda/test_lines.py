"""Scans, sorts, and picking along an axis on the GPU: each form of their kernels beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.optree.functions import F
from tests.support.gpu.cuda_backends import assert_near, gpu, tensor

pytestmark = pytest.mark.checked
__all__ = ["gpu"]


@pytest.mark.parametrize("shape", [(3, 700), (700, 3), (2, 3, 65)], ids=str)
def test_running_totals_by_threads_and_by_blocks(gpu: Backend, rng: Any, shape: tuple[int, ...]) -> None:
    x = rng.uniform(0.5, 1.5, shape).astype(np.float32)
    for layout in ("plain", "transposed", "reversed"):
        a = tensor(gpu, x, layout)
        for axis in range(len(shape)):
            assert_near(gpu.cumsum(a, axis).asnumpyarray(), np.cumsum(x.astype(np.float64), axis))
            backwards = np.flip(np.cumsum(np.flip(x.astype(np.float64), axis), axis), axis)
            assert_near(gpu.cumsum(a, axis, True).asnumpyarray(), backwards)
    part = gpu.array(x[..., :40])
    assert_near(gpu.cumprod(part, -1).asnumpyarray(), np.cumprod(x[..., :40].astype(np.float64), -1), slack=20)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_sorts_keep_the_order_of_equal_values(gpu: Backend, rng: Any, dtype: str) -> None:
    x = rng.integers(-5, 6, (4, 77)).astype(dtype)
    for axis in (0, 1):
        found = gpu.argsort(gpu.array(x, dtype=x.dtype), axis).asnumpyarray()
        np.testing.assert_array_equal(found, np.argsort(x, axis, kind="stable"))
        down = gpu.argsort(gpu.array(x, dtype=x.dtype), axis, descending=True).asnumpyarray()
        np.testing.assert_array_equal(down, np.argsort(-x, axis, kind="stable"))
    if dtype == "float32":
        x[1, ::9], x[2, ::7] = np.nan, -0.0
        np.testing.assert_array_equal(gpu.sort(gpu.array(x), 1).asnumpyarray(), np.sort(x, 1))


def test_picking_and_placing_along_an_axis(gpu: Backend, rng: Any) -> None:
    """Each element has an index; elements placed at the same position are added."""
    x = rng.standard_normal((5, 6)).astype(np.float32)
    for axis, limit in ((0, 5), (1, 6)):
        for layout in ("plain", "transposed"):
            index = rng.integers(-limit, limit, (5, 6)).astype(np.int32)
            a, at = tensor(gpu, x, layout), gpu.array(index, dtype=np.int32)
            found = gpu.take_along_axis(a, at, axis).asnumpyarray()
            np.testing.assert_array_equal(found, np.take_along_axis(x, index, axis))
            places: list[Any] = list(np.indices(index.shape))
            places[axis] = index
            wanted = np.zeros(x.shape)
            np.add.at(wanted, tuple(places), x.astype(np.float64))
            assert_near(F.untake_along(a, at, x.shape, axis).asnumpyarray(), wanted)
            order = gpu.argsort(a, axis)
            np.testing.assert_array_equal(gpu.take_along_axis(a, order, axis).asnumpyarray(), np.sort(x, axis))
            placed = F.untake_along(a, order, x.shape, axis).asnumpyarray()
            back = np.zeros_like(x)
            np.put_along_axis(back, np.argsort(x, axis), x, axis)
            np.testing.assert_array_equal(placed, back)
