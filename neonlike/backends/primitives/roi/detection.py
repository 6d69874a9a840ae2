"""Detection output of SSD networks: decoding of boxes, suppression per class, and the best boxes per image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.geometry.sizes import whole
from neonlike.backends.hostdata import host_array
from neonlike.backends.primitives.roi.definition import Suppression
from neonlike.backends.primitives.roi.family import RoiFamily
from neonlike.backends.tensor import Tensor
from neonlike.backends.tensors.operands import Array, as_numbers, check_floats, check_tensors, host, require_tensors
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree.dtypes import DType, compute_dtype

VARIANCES = (0.1, 0.1, 0.2, 0.2)
"""Scale factors of box offsets in the training of SSD networks."""


@dataclass(frozen=True, slots=True)
class Detection:
    """Request of ``detectionOutput_fprop``.

    Attributes
    ----------
    boxes, classes, images : int
        Sizes of the scores.
    each, most : int
        Boxes per class and image at the start of suppression, and boxes per image in the result.
    least, overlap : float
        Minimum score, exclusive, as a number of ``dtype``; maximum overlap of two boxes of a class.
    dtype : dtype
        Dtype of computation and result.
    """

    boxes: int
    classes: int
    images: int
    each: int
    most: int
    least: float
    overlap: float
    dtype: DType


class DetectionFamily(RoiFamily):
    """SSD's detection output.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> callable(be.detectionOutput_fprop)
    True
    """

    def detectionOutput_fprop(  # noqa: N802  (neon's name)
        self,
        conf_view: Any,
        loc_view: Any,
        detection: Any,
        prior_boxes: Any,
        proposals: Any,
        nms_top_k: int,
        image_top_k: int,
        score_threshold: float,
        nms_threshold: float,
    ) -> list[Array]:
        """Detect boxes in each image by an SSD network's outputs. W. Liu et al., "SSD", ECCV 2016.

        For each class but 0, the background, the ``nms_top_k`` best boxes with scores above ``score_threshold`` pass
        through :meth:`nms`. Of the remaining boxes of all classes, the ``image_top_k`` best are returned. Equal scores
        stay in the order of classes and boxes.

        Parameters
        ----------
        conf_view : tensor (L, classes, N) of floats
            Scores of L boxes.
        loc_view : tensor (L, 4, N) of that dtype
            Offsets of centres, in sizes, and logarithms of ratios of sizes to prior boxes', divided by ``VARIANCES``.
        detection, proposals
            neon's working memory; ignored.
        prior_boxes : tensor or array (L, 4)
            Corners (x1, y1, x2, y2), in units of the image.
        nms_top_k, image_top_k : int
            Most boxes of a class before non-maximum suppression, and of an image after it.
        score_threshold, nms_threshold : float
            Score that a box has to exceed, and the maximum overlap of two boxes of a class.

        Returns
        -------
        list of N arrays (n, 6)
            Rows (x1, y1, x2, y2, score, class), the best first; float32 for scores of 16 bits, else of their dtype.

        Raises
        ------
        DTypeError, ShapeError
            If the tensors do not fit together, or are not of one float dtype.
        ArgumentError
            If a number of boxes is negative, or ``nms_threshold`` is nan.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> scores = be.array([0.1, 0.9]).reshape(1, 2, 1)
        >>> found = be.detectionOutput_fprop(
        ...     scores, be.zeros((1, 4, 1)), None, be.array([[0., 0., 0.5, 0.5]]), None, 10, 10, 0.5, 0.5
        ... )
        >>> found[0].round(2)[0, 5].item()    # the class
        1.0
        """
        name = "detectionOutput_fprop"
        require_tensors(self, name, conf_view=conf_view, loc_view=loc_view)
        dtype = compute_dtype(check_floats(name, conf_view=conf_view, loc_view=loc_view))
        whole(name, 0, nms_top_k=nms_top_k, image_top_k=image_top_k)
        least, overlap = as_numbers(name, score_threshold=score_threshold, nms_threshold=nms_threshold)
        if overlap != overlap:
            raise ArgumentError(f"{name}: nms_threshold is nan; give the overlap from which on boxes are dropped")
        priors = self._priors(name, prior_boxes, dtype)
        boxes, images = conf_view.shape[0], conf_view.shape[-1]
        if conf_view.ndim != 3 or loc_view.shape != (boxes, 4, images) or priors.shape != (boxes, 4):
            raise ShapeError(
                f"{name}: expected conf_view (L, classes, N), loc_view (L, 4, N) and prior_boxes (L, 4), "
                f"got {conf_view.shape}, {loc_view.shape} and {priors.shape}"
            )
        sizes = boxes, conf_view.shape[1], images, min(int(nms_top_k), boxes), int(image_top_k)
        request = Detection(*sizes, float(dtype.type(least)), overlap, dtype)
        found: list[Array] = []
        shapes, moved = (conf_view.shape, loc_view.shape), conf_view.nbytes + loc_view.nbytes
        self._run_primitive(
            name, lambda: found.extend(self._detect(request, conf_view, loc_view, priors)), (), shapes, moved
        )
        return found

    def _priors(self, name: str, priors: Any, dtype: DType) -> Any:
        """Convert ``priors`` to a tensor."""
        if isinstance(priors, Tensor):
            check_tensors(self, name, prior_boxes=priors)
            return priors
        return self.wrap(host_array(name, priors).astype(dtype))

    def _detect(self, request: Detection, scores: Any, offsets: Any, priors: Any) -> list[Array]:
        """Hook: see :meth:`detectionOutput_fprop`; ``priors`` is a tensor."""
        rated, moved, corners = host(scores), host(offsets), host(priors, dtype=request.dtype)
        images = range(request.images)
        return [_detections_of(self, request, _decoded(corners, moved[..., i]), rated[..., i]) for i in images]


def _decoded(priors: Array, offsets: Array) -> Array:
    """Corners of the boxes at ``offsets`` (L, 4) from ``priors`` (L, 4)."""
    moved = offsets * np.asarray(VARIANCES, offsets.dtype)
    size = priors[:, 2:] - priors[:, :2]
    center = (priors[:, 2:] + priors[:, :2]) / 2 + moved[:, :2] * size
    with np.errstate(over="ignore", invalid="ignore"):
        half = np.exp(moved[:, 2:]) * size / 2
        return np.concatenate((center - half, center + half), axis=1)


def _detections_of(be: Any, request: Detection, corners: Array, scores: Array) -> Array:
    """Rows (x1, y1, x2, y2, score, class) of one image, with boxes (L, 4) and scores (L, classes)."""
    rows = [np.empty((0, 6), scores.dtype)]
    for kind in range(1, request.classes):
        score = scores[:, kind]
        best = np.argsort(-score, kind="stable")[: request.each]
        best = best[score[best] > request.least]
        candidates = np.column_stack((corners[best], score[best]))
        kept = be._nms(Suppression(request.overlap, True), be.wrap(candidates)) if len(best) else []
        rows.append(np.column_stack((candidates[kept], np.full(len(kept), kind, scores.dtype))))
    found: Array = np.concatenate(rows)
    return found[np.argsort(-found[:, 4], kind="stable")[: request.most]]
