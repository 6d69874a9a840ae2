"""Non-maximum suppression against plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.primitives.roi.definition import Suppression
from neonlike.backends.primitives.roi.family import RoiFamily
from neonlike.errors import ArgumentError, DTypeError, ShapeError

pytestmark = pytest.mark.engines("numpy", "c")

Array = np.ndarray[Any, Any]


def suppressed(detections: Array, threshold: float, offset: float) -> list[int]:
    """Kept rows of (boxes, 5), best first."""
    scored = [row for row in range(len(detections)) if detections[row, 4] != 0]
    order = sorted(scored, key=lambda row: -detections[row, 4])
    kept: list[int] = []
    for row in order:
        x1, y1, x2, y2 = map(float, detections[row, :4])
        for other in kept:
            a1, b1, a2, b2 = map(float, detections[other, :4])
            shared = max(min(x2, a2) - max(x1, a1) + offset, 0) * max(min(y2, b2) - max(y1, b1) + offset, 0)
            union = (a2 - a1 + offset) * (b2 - b1 + offset) + (x2 - x1 + offset) * (y2 - y1 + offset) - shared
            if union != 0 and shared / union > threshold:
                break
        else:
            kept.append(row)
    return kept


def boxes(count: int, seed: int = 0, size: float = 60) -> Array:
    """Detections with descending scores."""
    rng = np.random.default_rng(seed)
    corner, side = rng.uniform(0, 100, (count, 2)), rng.uniform(1, size, (count, 2))
    scores = np.sort(rng.random(count) + 0.1)[::-1]
    return np.column_stack([corner, corner + side, scores]).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_boxes_of_halves(be: Backend, dtype: str) -> None:
    given = be.array([[0, 0, 10, 10, 0.9], [1, 1, 11, 11, 0.8], [20, 20, 30, 30, 0.7]], dtype=dtype)
    assert be.nms(given, 0.5) == be.nms(given.get(), 0.5) == [0, 2]


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("threshold", [-0.01, 0, 0.3, 0.7, 1])
def test_suppression(be: Backend, threshold: float, normalized: bool) -> None:
    for count in (1, 2, 3, 17, 120):
        detections = boxes(count, count)
        kept = be.nms(be.array(detections), threshold, normalized)
        assert kept == suppressed(detections, threshold, 0.0 if normalized else 1.0)
        assert isinstance(kept, list)
        assert {type(row) for row in kept} == {int}
        assert kept[0] == 0
        assert be.nms(detections=detections, threshold=threshold, normalized=normalized) == kept


def test_sides_of_pixels_and_the_threshold_itself(be: Backend) -> None:
    """10x10 and 10x5 pixels overlap by a half; as coordinates, 9x9 and 9x4 by four ninths."""
    detections = np.array([[0, 0, 9, 9, 0.9], [0, 0, 9, 4, 0.8]], np.float32)
    for threshold, normalized, wanted in (
        (0.5, False, [0, 1]), (0.49999, False, [0]), (0.4999, True, [0, 1]), (0.44, True, [0]),
    ):  # fmt: skip
        assert be.nms(be.array(detections), threshold, normalized) == wanted


def test_only_kept_boxes_drop_others(be: Backend) -> None:
    """The third overlaps only the second, which the first drops."""
    detections = np.array([[0, 0, 10, 10, 3], [4, 0, 14, 10, 2], [9, 0, 19, 10, 1]], np.float64)
    assert be.nms(detections, 0.3, True) == [0, 2]
    assert be.nms(detections[1:], 0.3, True) == [0]


def test_zero_scores_are_left_out_where_they_are(be: Backend) -> None:
    detections = boxes(30, 4)
    detections[20:, 4] = 0
    assert be.nms(be.array(detections), 0.5) == suppressed(detections[:20], 0.5, 1.0)
    detections[20:, 4] = [0, -0.0, -1, 0, -2, -2, -3, 0, -4, -5]
    kept = be.nms(be.array(detections), 1)
    assert kept == [*range(20), 22, 24, 25, 26, 28, 29]
    detections[:, 4] = 0
    assert be.nms(be.array(detections), 0.5) == []
    assert be.nms(be.empty((0, 5)), 0.5) == be.nms(np.empty((0, 5)), 0.5) == []


def test_unsorted_boxes_are_taken_by_score(be: Backend) -> None:
    detections = boxes(60, 7)
    detections[10:20, 4] = detections[10, 4]  # equal scores stay in order
    shuffled = np.random.default_rng(0).permutation(60)
    kept = be.nms(be.array(detections[shuffled]), 0.4)
    assert kept == suppressed(detections[shuffled], 0.4, 1.0)
    distinct = boxes(60, 7)
    assert [*shuffled[be.nms(distinct[shuffled], 0.4)]] == be.nms(distinct, 0.4)


def test_boxes_without_area_or_place(be: Backend) -> None:
    """No quotient is above a threshold: they stay, and drop nothing."""
    detections = np.array(
        [[5, 5, 5, 5, 0.9], [5, 5, 5, 5, 0.8], [np.nan, 0, 9, 9, 0.7], [0, 0, 9, 9, 0.6], [0, 0, 9, 9, 0.5]], np.float32
    )
    assert be.nms(be.array(detections), 0.5, True) == [0, 1, 2, 3]
    assert be.nms(be.array(detections), 0.5, False) == [0, 2, 3]


def test_kernel_agrees_with_the_definition(compiled: Backend) -> None:
    """To the last bit: quotients next to the threshold would show it."""
    for seed in range(5):
        detections = boxes(400, seed).astype(np.float64)
        detections[:50, :4] = np.round(detections[:50, :4])
        overlap = detections[0, 2] - detections[0, 0]
        given = compiled.array(detections, dtype=np.float64)
        for threshold in (0.2, 1 / 3, 0.5, overlap / 100):
            for normalized in (True, False):
                request = Suppression(threshold, normalized)
                assert compiled._nms(request, given) == RoiFamily._nms(compiled, request, given)


@pytest.mark.parametrize(
    ("detections", "threshold", "error", "words"),
    [
        (np.ones((3, 4)), 0.5, ShapeError, r"\(boxes, 5\)"),
        (np.ones(5), 0.5, ShapeError, r"\(boxes, 5\)"),
        ([[1, 2, 3, 4, 5]], 0.5, DTypeError, "must be a tensor or an array"),
        (np.ones((3, 5), bool), 0.5, DTypeError, "of numbers"),
        (np.ones((3, 5)), None, DTypeError, "threshold must be a number"),
        (np.ones((3, 5)), math.nan, ArgumentError, "threshold is nan"),
        (np.where(np.arange(15).reshape(3, 5) == 9, np.nan, 1), 0.5, ArgumentError, "score in row 1 is nan"),
    ],
)
def test_wrong_detections(be: Backend, detections: Any, threshold: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"nms: .*{words}"):
        be.nms(detections, threshold)
