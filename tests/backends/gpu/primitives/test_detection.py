"""SSD's detection output on the GPU against its definition: lists in one launch and in several, dtypes, few boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu.primitives import nms
from neonlike.backends.primitives.roi.detection import Detection, DetectionFamily
from tests.support.gpu.cuda_backends import TOLERANCE, gpu
from tests.support.gpu.cuda_backends import tensor as laid_out
from tests.support.gpu.device_only import traffic

__all__ = ["gpu"]
pytestmark = pytest.mark.checked


def network_output(boxes: int, classes: int, images: int) -> list[Any]:
    """Scores, some of them equal, 0 or nan, offsets, and prior boxes, on a grid so that many overlap."""
    rng = np.random.default_rng(boxes)
    scores = rng.integers(0, 2 * boxes, (boxes, classes, images)) / (2 * boxes)
    scores[boxes // 2, 1:, 0] = np.nan
    corners = rng.integers(0, 8, (boxes, 2)) / 8
    priors = np.hstack([corners, corners + rng.integers(1, 4, (boxes, 2)) / 8])
    return [scores, rng.normal(0, 0.5, (boxes, 4, images)), priors]


def compare(gpu: Any, tensors: Any, each: int, most: int, least: float = 0.2, overlap: float = 0.41) -> list[Any]:
    """The rows of each image, which are the definition's."""
    found = gpu.detectionOutput_fprop(*tensors[:2], None, tensors[2], None, each, most, least, overlap)
    scores, dtype = tensors[0], found[0].dtype
    sizes = *scores.shape, min(each, scores.shape[0]), most
    request = Detection(*sizes, float(dtype.type(least)), overlap, dtype)
    wanted = DetectionFamily._detect(gpu, request, *tensors)
    assert [rows.shape for rows in found] == [rows.shape for rows in wanted]
    for ours, theirs in zip(found, wanted):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours[:, 4:], theirs[:, 4:])  # scores and classes
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE[dtype.name])
    return found


@pytest.mark.parametrize(
    ("boxes", "classes", "images", "each", "most", "room"),
    [
        (40, 4, 3, 20, 11, 1 << 20), (300, 3, 2, 290, 500, 1 << 20), (300, 3, 2, 290, 40, 2048), (70, 4, 3, 33, 9, 700),
        (5, 2, 1, 1, 1, 1 << 20),
    ],
)  # fmt: skip
def test_agrees_with_the_definition(
    gpu: Any, boxes: int, classes: int, images: int, each: int, most: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``room`` for bits: of all lists, of some lists, and of some rows of a list."""
    monkeypatch.setattr(nms, "BITS_BYTES", room)
    tensors = [gpu.array(host, dtype=np.float32) for host in network_output(boxes, classes, images)]
    with traffic(gpu) as seen:
        found = gpu.detectionOutput_fprop(*tensors[:2], None, tensors[2], None, each, most, 0.2, 0.41)
    assert (len(seen), len(seen.down)) == (1, 1), str(seen)
    again = compare(gpu, tensors, each, most)
    assert [rows.tolist() for rows in found] == [rows.tolist() for rows in again]
    kept = [len(rows) for rows in found]
    assert sum(kept) > 0 and max(kept) < (classes - 1) * min(each, boxes) + (each == 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_dtypes_and_views(gpu: Any, dtype: Any) -> None:
    scores, offsets, priors = network_output(40, 3, 2)
    given = [laid_out(gpu, host.astype(dtype), "strided") for host in (scores, offsets)]
    found = compare(gpu, [*given, laid_out(gpu, priors.astype(np.float32), "transposed")], 25, 12)
    assert found[0].dtype == (np.float64 if dtype == np.float64 else np.float32)


def test_scores_of_zero_and_of_the_threshold_take_no_part(gpu: Any) -> None:
    scores, offsets, priors = network_output(40, 3, 2)
    scores[:] = np.nan_to_num(scores) - 0.5
    scores[::5], scores[1::5] = 0, -0.3
    tensors = [gpu.array(host, dtype=np.float32) for host in (scores, offsets, priors)]
    assert any((rows[:, 4] < 0).any() for rows in compare(gpu, tensors, 40, 80, least=-0.3))


def test_nothing_to_find(gpu: Any) -> None:
    scores, offsets, priors = network_output(6, 3, 2)
    for each, most, least, classes in ((0, 3, 0.1, 3), (3, 0, 0.1, 3), (3, 3, 2.0, 3), (3, 3, 0.1, 1)):
        tensors = [gpu.array(host, dtype=np.float32) for host in (scores[:, :classes], offsets, priors)]
        found = compare(gpu, tensors, each, most, least)
        assert [rows.shape for rows in found] == [(0, 6), (0, 6)]
