"""Compiled kernels of the roi family, for the hooks of ``families/roi.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.cpu.compiled import CompiledFamily
from neonlike.backends.families.operands import Array, host, written
from neonlike.backends.families.roi import Regions, RoiFamily, box_areas
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for

LANES = 32
"""Channels that region pooling takes side by side. Each thread keeps a turned copy of so many channels of the map."""
PARALLEL_WORK = 1 << 15
"""Elements below which starting threads costs more than it saves."""

_FPROP = Routine("c/roi_fprop.c.j2", [POINTER] * 7 + [INT] * 8, "region pooling")
_BPROP = Routine("c/roi_bprop.c.j2", [POINTER] * 4 + [INT] * 6, "gradient of region pooling")
_NMS = Routine(
    "c/nms.c.j2",
    [POINTER] * 6 + [INT] + [REAL] * 2,
    "non-maximum suppression",
    ("vecmath.h", "vecmath_f32.h", "vecmath_f64.h", "vecmath_small.h"),
)


class RoiKernels(CompiledFamily, RoiFamily):
    """Overrides of RoiFamily's hooks."""

    def _fprop_roi(self, I: Any, O: Any, argmax: Any, regions: Regions) -> None:  # noqa: E741
        features = host(I, regions.map)
        kernel = _FPROP.variant(self.compiler, real=REAL_TYPES[features.dtype], lanes=LANES)
        if kernel is None:
            super()._fprop_roi(I, O, argmax, regions)
            return
        channels, high, wide, count = regions.pooled
        groups = -(-channels // LANES)
        threads = min(threads_for(O.size + I.size, PARALLEL_WORK), groups)
        turned = np.empty((threads, features.size // channels, LANES), features.dtype)
        with written(O, regions.pooled) as out, written(argmax, regions.pooled, dtype=argmax.dtype) as where:
            arrays = (features, out, where, regions.images, regions.rows, regions.columns, turned)
            kernel(*map(address, arrays), *regions.map, count, high, wide, threads)

    def _bprop_roi(self, I: Any, O: Any, argmax: Any, regions: Regions) -> None:  # noqa: E741
        error, where = host(I, regions.pooled), host(argmax, regions.pooled, np.dtype(np.int32))
        kernel = _BPROP.variant(self.compiler, real=REAL_TYPES[error.dtype])
        if kernel is None:
            super()._bprop_roi(I, O, argmax, regions)
            return
        channels, high, wide, count = regions.pooled
        area = regions.H * regions.W
        threads = threads_for(O.size + I.size, PARALLEL_WORK)
        with written(O, (channels, area, regions.N)) as delta:
            pointers = map(address, (error, where, regions.images, delta))
            kernel(*pointers, channels, area, regions.N, count, high * wide, threads)

    def _nms(self, corners: Array, threshold: float, offset: float) -> Array:
        kernel = _NMS.variant(self.compiler)
        if kernel is None:
            return super()._nms(corners, threshold, offset)
        areas = box_areas(corners, offset)
        gone = np.empty(areas.size, np.int64)
        kernel(*map(address, (*corners, areas, gone)), areas.size, threshold, offset)
        return np.flatnonzero(gone == 0)
