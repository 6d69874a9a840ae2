"""Non-maximum suppression on a GPU, for the hook of ``families/roi.py``.

Boxes are sorted by their scores; a kernel compares each with all that follow, which gives a row of bits; one block
sweeps over the rows in order. Only the numbers of the boxes that are kept come to the host. Bits are made for as many
rows at a time as ``BITS_BYTES`` hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.families.roi import RoiFamily
from neonlike.backends.families.roi_definition import Suppression, no_rank
from neonlike.backends.gpu.primitives.calls import Launched, Place, Program
from neonlike.backends.gpu.primitives.elements import BLOCK, blocks_for
from neonlike.backends.gpu.primitives.operands import plain
from neonlike.backends.gpu.primitives.roi import box_types
from neonlike.kernels.cuda.fit import THREADS
from neonlike.kernels.cuda.routine import CudaRoutine

BOXES = CudaRoutine("cuda/nms/boxes.cu.j2", "5Qqd", "boxes in their order")
OVERLAPS = CudaRoutine("cuda/nms/overlaps.cu.j2", "2Q3q2d", "overlaps of boxes")
SWEEP = CudaRoutine("cuda/nms/sweep.cu.j2", "5Q4q", "non-maximum suppression")
GROUP, GROUPS, SWEEPERS = 32, 8, 512
"""Boxes of a group, groups that a block compares with one, threads of the block that sweeps."""
BITS_BYTES, MOST_GROUPS = 64 << 20, 65535
"""Most bytes of bits, and most groups of rows of one kernel."""


class NmsCuda(RoiFamily):
    """Overrides RoiFamily's hook for suppression."""

    device: Any

    def _nms(self, request: Suppression, detections: Any) -> list[int]:
        count = detections.shape[0]
        if not count:
            return []
        order, found = self.fresh((1, count), dtype=np.int64), self.fresh((1, count + 2), dtype=np.int64)
        self.assign(order, self.argsort(detections[:, 4:5].T, axis=1, descending=True))
        program = self._suppression(request, detections.dtype, count)
        boxes = plain(detections)
        program.ready().run((boxes.address, order.address, found.address))
        kept, worst, *rows = (int(number) for number in found.get()[0])
        if worst >= 0:
            raise no_rank(worst)
        return rows[:kept]

    def _suppression(self, request: Suppression, dtype: Any, count: int) -> Program:
        """The program of tensors (detections, order, found)."""
        program = Program(self.device)
        detections, order, found = (Place(slot) for slot in range(3))
        grid = blocks_for(count)
        words, room = -(-count // GROUP), grid[0] * THREADS // 8  # bytes for a bit of each thread
        groups = max(1, min(BITS_BYTES // (4 * words * GROUP), MOST_GROUPS, words))
        sorted_, gone, nameless = program.room(5 * 8 * count), program.room(room), program.room(room)
        bits = program.room(4 * words * GROUP * groups)

        def queue(routine: CudaRoutine, sizes: Any, places: tuple[Place, ...], *numbers: Any, **context: Any) -> None:
            program.steps.append(Launched(self.device, routine, sizes, places, numbers, context))

        places = detections, order, sorted_, gone, nameless
        queue(BOXES, (grid, BLOCK), places, count, request.offset, threads=THREADS, **box_types(dtype))
        across = -(-words // GROUPS)
        for top in range(0, count, groups * GROUP):
            bottom = min(top + groups * GROUP, count)
            sizes = (across, -(-(bottom - top) // GROUP), 1), (GROUP * GROUPS, 1, 1)
            numbers = count, words, top, request.threshold, request.offset
            queue(OVERLAPS, sizes, (sorted_, bits), *numbers, groups=GROUPS)
            places = bits, gone, nameless, order, found
            queue(SWEEP, ((1, 1, 1), (SWEEPERS, 1, 1)), places, count, words, top, bottom, threads=SWEEPERS)
        return program
