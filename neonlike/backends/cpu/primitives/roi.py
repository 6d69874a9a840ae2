"""Compiled kernels for the hooks of ``RoiFamily``."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.cpu.primitives.compiled import CompiledFamily
from neonlike.backends.primitives.roi.definition import (
    RoiPooling,
    Suppression,
    bins_of,
    box_areas,
    images_of,
    ranked,
)
from neonlike.backends.primitives.roi.family import RoiFamily
from neonlike.backends.tensors.operands import host, written
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, VECMATH, Routine, address, threads_for

LANES = 32
"""Channels as lanes of region pooling. Each thread keeps a transposed copy of this many channels of the map."""
PARALLEL_WORK = 1 << 15
"""Elements below which starting threads does not pay."""

_FPROP = Routine("c/roi_fprop.c.j2", [POINTER] * 7 + [INT] * 8, "region pooling")
_BPROP = Routine("c/roi_bprop.c.j2", [POINTER] * 4 + [INT] * 6, "gradient of region pooling")
_NMS = Routine(
    "c/nms.c.j2",
    [POINTER] * 6 + [INT] + [REAL] * 2,
    "non-maximum suppression",
    VECMATH,
)


class RoiKernels(CompiledFamily, RoiFamily):
    """Overrides of RoiFamily's hooks."""

    def _fprop_roi(self, request: RoiPooling, I: Any, rois: Any, O: Any, argmax: Any) -> None:  # noqa: E741
        features = host(I, request.map)
        kernel = _FPROP.variant(self.compiler, real=REAL_TYPES[features.dtype], lanes=LANES)
        if kernel is None:
            super()._fprop_roi(request, I, rois, O, argmax)
            return
        channels, high, wide, count = request.pooled
        groups = -(-channels // LANES)
        threads = min(threads_for(O.size + I.size, PARALLEL_WORK), groups)
        transposed = np.empty((threads, features.size // channels, LANES), features.dtype)
        bins = bins_of(request, rois)
        with written(O, request.pooled) as out, written(argmax, request.pooled, dtype=argmax.dtype) as where:
            arrays = (features, out, where, *bins, transposed)
            kernel(*map(address, arrays), *request.map, count, high, wide, threads)

    def _bprop_roi(self, request: RoiPooling, I: Any, rois: Any, O: Any, argmax: Any) -> None:  # noqa: E741
        error, where = host(I, request.pooled), host(argmax, request.pooled, np.dtype(np.int32))
        kernel = _BPROP.variant(self.compiler, real=REAL_TYPES[error.dtype])
        if kernel is None:
            super()._bprop_roi(request, I, rois, O, argmax)
            return
        channels, high, wide, count = request.pooled
        area, images = request.H * request.W, images_of(rois)
        threads = threads_for(O.size + I.size, PARALLEL_WORK)
        with written(O, (channels, area, request.N)) as delta:
            pointers = map(address, (error, where, images, delta))
            kernel(*pointers, channels, area, request.N, count, high * wide, threads)

    def _nms(self, request: Suppression, detections: Any) -> list[int]:
        kernel = _NMS.variant(self.compiler)
        if kernel is None:
            return super()._nms(request, detections)
        rows, corners = ranked(detections)
        areas = box_areas(corners, request.offset)
        suppressed = np.empty(areas.size, np.int64)
        kernel(*map(address, (*corners, areas, suppressed)), areas.size, request.threshold, request.offset)
        return [int(row) for row in rows[suppressed == 0]]
