"""Region pooling on a GPU, for the hooks of ``RoiFamily``.

Its calls wait for the device once: for the answer whether regions and positions are good, before anything is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.gpu.primitives.elements import BLOCK, blocks_for, element_types
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.primitives.roi.definition import RoiPooling
from neonlike.backends.primitives.roi.family import RoiFamily
from neonlike.kernels.codegen.emit import STORAGE, load_element
from neonlike.kernels.cuda.device import Size3
from neonlike.kernels.cuda.fit import THREADS
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.optree.dtypes import DType, compute_dtype

CHECK = CudaRoutine("cuda/roi/check.cu.j2", "3Q4q", "check of regions")
FORWARD = CudaRoutine("cuda/roi/forward.cu.j2", "4Qd8q", "region pooling")
BACKWARD = CudaRoutine("cuda/roi/backward.cu.j2", "5Q5q", "gradient of region pooling")
CHECKED, MOST_CHECKS = 1 << 14, 64
"""Values for each block that checks them, and the most such blocks."""
ENOUGH_THREADS, MOST_SPANS = 1 << 18, 65535
"""With fewer, a thread goes over fewer channels for the bin that it has; most parts of the channels."""


class RoiCuda(RoiFamily):
    """Overrides of RoiFamily's hooks for region pooling."""

    device: Any

    def _misplaced(self, request: RoiPooling, rois: Any, argmax: Any) -> tuple[int | None, bool]:
        size = 0 if argmax is None else argmax.size
        blocks = max(1, min(-(-max(request.count, size) // CHECKED), MOST_CHECKS))
        found = self.fresh((blocks, 2), dtype=np.int32)
        where = None if argmax is None else plain(argmax)
        numbers = request.count, size, request.N, request.H * request.W
        context = {"threads": THREADS, **box_types(rois.dtype)}
        self._queue(CHECK, (blocks, 1, 1), (plain(rois), where, found), numbers, context)
        answers = found.get()
        row = int(answers[:, 0].min())
        return row if row < request.count else None, bool(answers[:, 1].any())

    def _fprop_roi(self, request: RoiPooling, I: Any, rois: Any, O: Any, argmax: Any) -> None:  # noqa: E741
        channels, high, wide, count = request.pooled
        places = high * wide * count
        if not places:
            return
        span = max(-(-channels * places // ENOUGH_THREADS), -(-channels // MOST_SPANS))
        grid = blocks_for(places)[0], -(-channels // span), 1
        numbers = request.scale, *request.map, count, high, wide, span
        context = element_types(I.dtype, 1, (I.size, O.size)) | box_types(rois.dtype)
        with stored(O) as out, stored(argmax) as where:
            self._queue(FORWARD, grid, (plain(I), plain(rois), out, where), numbers, context)

    def _bprop_roi(self, request: RoiPooling, I: Any, rois: Any, O: Any, argmax: Any) -> None:  # noqa: E741
        channels, high, wide, count = request.pooled
        if not O.size:
            return
        grid = blocks_for(channels * self.device.capabilities.warp)
        numbers = channels, request.H * request.W, request.N, max(count, 1), high * wide if count else 0
        context = element_types(I.dtype, 1, (I.size, O.size)) | box_types(rois.dtype)
        exact = I.dtype == compute_dtype(I.dtype)
        with stored(O) as delta:
            total = delta if exact else self.fresh(O.shape, dtype=compute_dtype(I.dtype))
            self._queue(BACKWARD, grid, (plain(I), plain(rois), plain(argmax), total, delta), numbers, context)

    def _queue(
        self,
        routine: CudaRoutine,
        grid: Size3,
        tensors: tuple[Any, ...],
        numbers: tuple[int | float, ...],
        context: dict[str, Any],
    ) -> None:
        """Queue one kernel."""
        addresses = [0 if tensor is None else tensor.address for tensor in tensors]
        routine.bind(self.device, grid, BLOCK, (*addresses, *numbers), **context)()


def box_types(dtype: DType) -> dict[str, str]:
    """The context of templates for tensors of boxes, which may be of any dtype."""
    return {"box": STORAGE[dtype.name], "box_load": load_element("x", dtype)}
