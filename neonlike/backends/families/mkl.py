"""What neon's MKL backend offers beside the others, with the meaning it has where there is one data layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neonlike.backends.families.base import Family
from neonlike.backends.families.operands import Array, host, require_tensors
from neonlike.backends.tensor import Tensor
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.optree.arrange import reshape
from neonlike.optree.moves import transpose
from neonlike.optree.node import expression

VARIANCES = (0.1, 0.1, 0.2, 0.2)
"""Scales of the offsets of boxes, which SSD's networks are trained with."""


class MklFamily(Family):
    """Conversions that have nothing to convert, reorderings, and SSD's detection output."""

    def convert(self, a: Any) -> Any:
        """``a`` itself: neon's MKL backend brings it into NumPy's layout, which all tensors have here."""
        return a

    def convert_mkl(self, a: Any) -> Any:
        """``a`` itself: neon's MKL backend brings it into its engine's layout."""
        return a

    def get_numpy(self, a: Any) -> Any:
        """Host copy of the tensor or expression ``a``."""
        found: Any = expression("get_numpy", a, self)
        return found.get()

    def sum_tensor(self, tensors: Sequence[Any], out: Any = None) -> Any:
        """Sum of ``tensors``, a sequence of tensors of one shape, in one pass: lazy, or into ``out`` if given.

        Raises
        ------
        ArgumentError
            If there are none.
        """
        terms: list[Any] = [expression("sum_tensor", tensor, self) for tensor in tensors]
        if not terms:
            raise ArgumentError("sum_tensor: needs at least one tensor")
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return self._finish(total, out)

    def trans2d(self, a: Any, out: Any = None) -> Any:
        """The matrix ``a`` transposed: lazy, or into ``out`` if given, which may be ``a``."""
        return self._finish(transpose(a), out)

    def change_data_store_order(self, a: Any, a_row: int, a_col: int, a_len: int, axis: int = 1, b: Any = None) -> Any:
        """Store the runs of a matrix of runs column by column, or row by row again.

        Parameters
        ----------
        a : tensor of a_row * a_col * a_len elements
            In C order: for axis 1 a_row rows of a_col runs of a_len elements each; for axis 0 a_col columns of a_row
            runs each.
        axis : 0 or 1
            1: columns come one after another in the result; 0: rows do, which undoes 1.
        b : tensor, optional
            As many elements, receives the result; default: ``a`` does.

        Returns
        -------
        ``b``, or ``a``

        Raises
        ------
        ArgumentError, ShapeError
            On another axis, or if sizes do not fit; nothing was written.
        """
        name, target = "change_data_store_order", a if b is None else b
        require_tensors(self, name, a=a, b=target)
        sizes = (a_row, a_col, a_len)
        if not isinstance(axis, int) or axis not in (0, 1):
            raise ArgumentError(f"{name}: axis must be 0 or 1, got {brief(axis)}")
        if a.size != math.prod(sizes) or target.size != a.size:
            raise ShapeError(f"{name}: {sizes} do not make up a {a.shape} and b {target.shape}")
        runs = reshape(a, sizes if axis == 1 else (a_col, a_row, a_len))
        target[:] = reshape(transpose(runs, (1, 0, 2)), target.shape)
        return target

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
        """Boxes that an SSD network found in each image. W. Liu et al., "SSD", ECCV 2016.

        Of each class but 0, the background: the ``nms_top_k`` best boxes that score above ``score_threshold`` go
        through :meth:`nms`. Of what is left in all classes, the ``image_top_k`` best are given.

        Parameters
        ----------
        conf_view : tensor (L, classes, N)
            Scores of L boxes.
        loc_view : tensor (L, 4, N)
            Offsets of centres, in sizes, and logarithms of ratios of sizes to prior boxes', divided by ``VARIANCES``.
        detection, proposals
            neon's memory to work in; accepted, not touched.
        prior_boxes : tensor or array (L, 4)
            Corners (x1, y1, x2, y2), in units of the image.
        nms_top_k, image_top_k : int
        score_threshold, nms_threshold : float

        Returns
        -------
        list of N arrays (n, 6)
            Rows (x1, y1, x2, y2, score, class), the best first.

        Raises
        ------
        DTypeError, ShapeError
            If the tensors do not fit together.
        """
        require_tensors(self, "detectionOutput_fprop", conf_view=conf_view, loc_view=loc_view)
        scores, offsets = host(conf_view), host(loc_view)
        priors = np.asarray(prior_boxes.get() if isinstance(prior_boxes, Tensor) else prior_boxes, scores.dtype)
        boxes, images = (scores.shape[0], scores.shape[-1])
        if scores.ndim != 3 or offsets.shape != (boxes, 4, images) or priors.shape != (boxes, 4):
            raise ShapeError(
                "detectionOutput_fprop: expected conf_view (L, classes, N), loc_view (L, 4, N) and prior_boxes "
                f"(L, 4), got {scores.shape}, {offsets.shape} and {priors.shape}"
            )
        rules = int(nms_top_k), int(image_top_k), score_threshold, nms_threshold
        return [self._detections_of(_decoded(priors, offsets[..., i]), scores[..., i], *rules) for i in range(images)]

    def _detections_of(
        self, corners: Array, scores: Array, nms_top_k: int, image_top_k: int, least: float, overlap: float
    ) -> Array:
        """Rows (x1, y1, x2, y2, score, class) of one image, whose boxes (L, 4) have scores (L, classes)."""
        rows = [np.empty((0, 6), scores.dtype)]
        for kind in range(1, scores.shape[1]):
            score = scores[:, kind]
            best = np.argsort(-score, kind="stable")[:nms_top_k]
            best = best[score[best] > least]
            candidates = np.column_stack((corners[best], score[best]))
            kept = self.nms(candidates, overlap, normalized=True) if len(best) else []
            rows.append(np.column_stack((candidates[kept], np.full(len(kept), kind, scores.dtype))))
        found: Array = np.concatenate(rows)
        return found[np.argsort(-found[:, 4], kind="stable")[:image_top_k]]


def _decoded(priors: Array, offsets: Array) -> Array:
    """Corners of the boxes that lie at ``offsets`` (L, 4) from ``priors`` (L, 4)."""
    moved = offsets * np.asarray(VARIANCES, offsets.dtype)
    size = priors[:, 2:] - priors[:, :2]
    center = (priors[:, 2:] + priors[:, :2]) / 2 + moved[:, :2] * size
    half = np.exp(moved[:, 2:]) * size / 2
    return np.concatenate((center - half, center + half), axis=1)
