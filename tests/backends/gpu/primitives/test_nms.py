"""Non-maximum suppression on the GPU: one and several bands of rows, dtypes, views, scores that are nan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import nms
from neonlike.backends.primitives.roi.definition import Suppression
from neonlike.backends.primitives.roi.family import RoiFamily
from neonlike.errors import ArgumentError
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.cuda_backends import tensor as laid_out
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]
pytestmark = pytest.mark.checked


def boxes(count: int, scale: float = 60) -> Any:
    """Detections in no order; some have a score of 0, and some equal scores."""
    rng = np.random.default_rng(count)
    corners = rng.integers(0, int(scale), (count, 2))
    scores = rng.integers(0, max(count // 2, 2), (count, 1)) / 64
    return np.hstack([corners, corners + rng.integers(1, 12, (count, 2)), scores])


@pytest.mark.parametrize(("count", "band"), [(31, 1 << 20), (33, 1 << 20), (300, 1 << 20), (300, 2048), (70, 1)])
def test_agrees_with_the_definition(gpu: Any, count: int, band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nms, "BITS_BYTES", band)
    detections = gpu.array(boxes(count), dtype=np.float32)
    for normalized, threshold in ((False, 0.3), (True, 0.6)):
        kept = gpu.nms(detections, threshold, normalized)
        assert kept == RoiFamily._nms(gpu, Suppression(threshold, normalized), detections)
        assert 3 < len(kept) < count


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_dtypes_and_views(gpu: Any, dtype: Any) -> None:
    host = boxes(40)
    host[:, 4] *= 64
    detections = laid_out(gpu, host.astype(dtype), "strided")
    with traffic(gpu) as seen:
        kept = gpu.nms(detections, 0.4)
    assert (len(seen), len(seen.down)) == (1, 1), str(seen)
    assert kept == RoiFamily._nms(gpu, Suppression(0.4, False), detections)


def test_the_first_score_that_is_nan_is_named(gpu: Any) -> None:
    host = boxes(90)
    host[[80, 7, 33], 4] = np.nan
    with pytest.raises(ArgumentError, match="row 7 is nan"):
        gpu.nms(gpu.array(host), 0.5)
