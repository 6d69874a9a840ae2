"""Region pooling on the GPU: views, sizes of grids, sums in the order of the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import elements, roi
from neonlike.backends.primitives.roi.definition import RoiPooling
from neonlike.backends.primitives.roi.family import RoiFamily
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.cuda_backends import tensor as laid_out
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]
pytestmark = pytest.mark.checked


def both_ways(be: Any, request: RoiPooling, dtype: Any = np.float32, layout: str = "plain") -> None:
    """Forward and backward, compared with the definition bit for bit; many maxima are in one place."""
    rng = np.random.default_rng(request.count)
    x, error = rng.normal(size=request.map), rng.normal(size=request.pooled)
    corners = rng.uniform(-5, 9, (request.count, 2))
    boxes = np.hstack([rng.integers(0, request.N, (request.count, 1)), corners, corners + rng.uniform(0, 9, (1, 2))])
    given = [laid_out(be, host.astype(dtype), layout) for host in (x, error)]
    rois = laid_out(be, boxes.astype(np.float32), layout)
    made = [laid_out(be, np.zeros(request.pooled, kind), layout) for kind in (dtype, np.int32)]
    wanted = [be.zeros(request.pooled, dtype=kind) for kind in (dtype, np.int32)]
    sizes = (request.count, *request.map[:3], request.high, request.wide, request.scale)
    RoiFamily._fprop_roi(be, request, given[0], rois, *wanted)
    be.roipooling_fprop(given[0], rois, *made, *sizes)
    for found, expected in zip(made, wanted):
        np.testing.assert_array_equal(found.get(), expected.get())
    delta, expected = laid_out(be, np.ones(request.map, dtype), layout), be.zeros(request.map, dtype=dtype)
    RoiFamily._bprop_roi(be, request, given[1], rois, expected, made[1])
    with traffic(be) as seen:
        be.roipooling_bprop(given[1], rois, delta, made[1], *sizes)
    assert (len(seen), len(seen.down)) == (1, 1), str(seen)
    np.testing.assert_array_equal(delta.get(), expected.get())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sums_are_in_the_order_of_the_definition(gpu: Any, dtype: Any) -> None:
    both_ways(gpu, RoiPooling(5, 4, 3, 2, 3, 2, 45, 0.8), dtype)


@pytest.mark.parametrize("layout", ["transposed", "shifted"])
def test_views_are_copied_on_the_device(gpu: Any, layout: str) -> None:
    both_ways(gpu, RoiPooling(2, 5, 4, 2, 2, 2, 7, 1.0), np.float32, layout)


def test_parts_of_channels_and_places_of_64_bits(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roi, "ENOUGH_THREADS", 50)
    monkeypatch.setattr(elements, "NARROW", 1)
    both_ways(gpu, RoiPooling(5, 5, 4, 1, 2, 2, 7, 1.0))


def test_checks_by_several_blocks(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roi, "CHECKED", 200)
    count = 600
    request = RoiPooling(1, 3, 3, 1, 1, 1, count, 1.0)
    for bad in ((), (8,), (300, 599)):
        rois = np.zeros((count, 5), np.float32)
        rois[list(bad), 0] = 1
        where = gpu.zeros((1, count), dtype=np.int32)
        assert gpu._misplaced(request, gpu.array(rois), where) == (min(bad, default=None), False)
        where[0, count - 1] = 9
        assert gpu._misplaced(request, gpu.array(rois), where) == (min(bad, default=None), True)
