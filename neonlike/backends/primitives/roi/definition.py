"""Requests for regions of interest, positions of bins, and the order of boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from neonlike.backends.tensors.operands import Array
from neonlike.errors import ArgumentError, OutOfMemory

FARTHEST = 2.0**52
"""Bound that corners are clipped to, so that sides of regions and ends of bins are finite."""


@dataclass(frozen=True, slots=True)
class RoiPooling:
    """Request of a pooling over regions of interest, or of its gradient.

    Attributes
    ----------
    C, H, W, N : int
        Sizes of the feature map.
    high, wide, count : int
        Pooled rows and columns, and number of regions.
    scale : float
        Size of the feature map divided by the size of the image.
    """

    C: int
    H: int
    W: int
    N: int
    high: int
    wide: int
    count: int
    scale: float

    @property
    def map(self) -> tuple[int, int, int, int]:
        """Shape of the feature map."""
        return self.C, self.H, self.W, self.N

    @property
    def pooled(self) -> tuple[int, int, int, int]:
        """Shape of the pooled tensor: channels, pooled rows and columns, regions."""
        return self.C, self.high, self.wide, self.count


class Bins(NamedTuple):
    """Positions of the bins, on the host.

    Attributes
    ----------
    images : integer array (regions,)
        The image of each region.
    rows, columns : integer arrays (regions, high, 2), (regions, wide, 2)
        First and past-the-last row (column) of each bin, within the map.
    """

    images: Array
    rows: Array
    columns: Array


@dataclass(frozen=True, slots=True)
class Suppression:
    """Request of ``nms``: boxes that overlap a better one by more than ``threshold`` are dropped."""

    threshold: float
    normalized: bool

    @property
    def offset(self) -> float:
        """Amount added to a coordinate difference to get a size."""
        return 0.0 if self.normalized else 1.0


def ranked(detections: Any) -> tuple[Array, Array]:
    """Rows (boxes,) of detections with a score, by descending score, and their corners (4, boxes) in float64.

    Raises
    ------
    ArgumentError
        If a score is nan.
    """
    values = np.asarray(detections.asnumpyarray(), np.float64)
    scores = values[:, 4]
    if np.isnan(scores).any():
        raise no_rank(int(np.isnan(scores).argmax()))
    rows = np.flatnonzero(scores)
    if (np.diff(scores[rows]) > 0).any():
        rows = rows[np.argsort(-scores[rows], kind="stable")]
    return rows, np.ascontiguousarray(values[rows, :4].T)


def no_rank(row: int) -> ArgumentError:
    """Exception for a detection with score nan."""
    return ArgumentError(f"nms: the score in row {row} is nan, so it has no rank")


def images_of(rois: Any) -> Array:
    """The image of each region."""
    images: Array = rois.asnumpyarray()[:, 0].astype(np.int64)
    return images


def bins_of(request: RoiPooling, rois: Any) -> Bins:
    """Positions of the bins of the regions ``rois``."""
    with np.errstate(over="ignore"):
        scaled = np.asarray(rois.asnumpyarray(), np.float64)[:, 1:] * request.scale
    corners = np.clip(np.rint(scaled), -FARTHEST, FARTHEST)
    rows = _bins(corners[:, 1], corners[:, 3], request.high, request.H)
    columns = _bins(corners[:, 0], corners[:, 2], request.wide, request.W)
    return Bins(images_of(rois), rows, columns)


def box_areas(corners: Array, offset: float) -> Array:
    """Areas (boxes,) of boxes (4, boxes)."""
    x1, y1, x2, y2 = corners
    with np.errstate(all="ignore"):
        areas: Array = (x2 - x1 + offset) * (y2 - y1 + offset)
    return areas


def _bins(low: Array, high: Array, count: int, length: int) -> Array:
    """First and past-the-last positions (regions, count, 2) of each region's ``count`` bins, clipped to the map."""
    step = (np.maximum(high - low + 1, 1) / count)[:, None]
    try:
        edges = np.stack((np.floor(np.arange(count) * step), np.ceil(np.arange(1, count + 1) * step)), axis=2)
    except MemoryError:
        raise OutOfMemory(f"roipooling_fprop: no memory for {count} bins a side; pool to fewer") from None
    bins: Array = np.clip(edges + low[:, None, None], 0, length).astype(np.int64)
    return bins
