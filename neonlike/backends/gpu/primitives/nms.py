"""Non-maximum suppression on a GPU, for the hook of ``primitives/roi/family.py``.

Boxes are sorted by their scores; a kernel compares each with all that follow, which gives a row of bits; one block
sweeps over the rows in order. Only the numbers of the boxes that are kept come to the host. Bits are made for as many
rows at a time as ``BITS_BYTES`` hold.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from neonlike.backends.gpu.primitives.calls import Draft, Launched
from neonlike.backends.gpu.primitives.elements import BLOCK, blocks_for
from neonlike.backends.gpu.primitives.operands import plain
from neonlike.backends.gpu.primitives.roi import box_types
from neonlike.backends.primitives.roi.definition import Suppression, no_rank
from neonlike.backends.primitives.roi.family import RoiFamily
from neonlike.kernels.cuda.fit import THREADS
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place

BOXES = CudaRoutine("cuda/nms/boxes.cu.j2", "5Qqd", "boxes in their order")
OVERLAPS = CudaRoutine("cuda/nms/overlaps.cu.j2", "2Q4q2d", "overlaps of boxes")
SWEEP = CudaRoutine("cuda/nms/sweep.cu.j2", "5Q6q", "non-maximum suppression")
GROUP, GROUPS, SWEEPERS = 32, 8, 512
"""Boxes of a group, groups that a block compares with one, threads of the block that sweeps."""
BITS_BYTES, MOST_BLOCKS = 64 << 20, 65535
"""Most bytes of bits, and most groups of rows and most lists of one kernel."""


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
        program.ready(3)((boxes.address, order.address, found.address))
        kept, worst, *rows = (int(number) for number in found.get()[0])
        if worst >= 0:
            raise no_rank(worst)
        return rows[:kept]

    def _suppression(self, request: Suppression, dtype: Any, count: int) -> Draft:
        """The program of tensors (detections, order, found)."""
        program = Draft(self.device)
        detections, order, found = (Place(slot) for slot in range(3))
        grid = blocks_for(count)
        room = grid[0] * THREADS // 8  # bytes for a bit of each thread
        sorted_, gone, nameless = program.room(5 * 8 * count), program.room(room), program.room(room)
        places, context = (detections, order, sorted_, gone, nameless), {"threads": THREADS, **box_types(dtype)}
        sizes, numbers = (grid, BLOCK), (count, request.offset)
        program.steps.append(Launched(self.device, BOXES, sizes, places, numbers, context))
        suppress(program, Lists(1, count, sorted_, gone, nameless, order, found), request)
        return program


class Lists(NamedTuple):
    """Lists of as many boxes each, the best first, and where they lie; ``overlaps.cu.j2`` and ``sweep.cu.j2`` say how.

    With ``nameless`` and ``order``, there is one list.
    """

    lists: int
    each: int
    sorted: Place
    gone: Place
    nameless: Place | None
    order: Place | None
    found: Place


def suppress(program: Draft, boxes: Lists, request: Suppression) -> None:
    """Add to ``program`` which of the boxes of each list are kept.

    Parameters
    ----------
    program : Draft
    boxes : Lists
    request : Suppression
    """
    count, words = boxes.each, -(-boxes.each // GROUP)
    group_bytes = 4 * words * GROUP  # bits of a group of rows
    groups = max(1, min(BITS_BYTES // group_bytes, MOST_BLOCKS, words))
    stack = 1 if groups < words else max(1, min(BITS_BYTES // (group_bytes * groups), MOST_BLOCKS, boxes.lists))
    rows, room = groups * GROUP, blocks_for(count)[0] * THREADS // 32
    bits, across = program.room(group_bytes * groups * stack), -(-words // GROUPS)
    device = program.device
    for first in range(0, boxes.lists, stack):
        lists = min(stack, boxes.lists - first)
        sorted_, gone = boxes.sorted + 40 * count * first, boxes.gone + 4 * room * first
        found = boxes.found + 8 * (count + 2) * first
        for top in range(0, count, rows):
            bottom = min(top + rows, count)
            sizes = (across, -(-(bottom - top) // GROUP), lists), (GROUP * GROUPS, 1, 1)
            numbers = count, words, top, rows, request.threshold, request.offset
            program.steps.append(Launched(device, OVERLAPS, sizes, (sorted_, bits), numbers, {"groups": GROUPS}))
            places, sizes = (bits, gone, boxes.nameless, boxes.order, found), ((lists, 1, 1), (SWEEPERS, 1, 1))
            spans = count, words, top, bottom, rows, room
            program.steps.append(Launched(device, SWEEP, sizes, places, spans, {"threads": SWEEPERS}))
