"""SSD's detection output on a GPU, for the hook of ``primitives/roi/detection.py``.

The scores of each class of an image are sorted; a kernel decodes the best boxes, which go through the kernels of
suppression, all classes and images in one launch; what is kept of an image is sorted again. The rows of all images come
to the host in one copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.gpu.primitives.calls import Draft, Launched
from neonlike.backends.gpu.primitives.elements import BLOCK, blocks_for
from neonlike.backends.gpu.primitives.nms import Lists, suppress
from neonlike.backends.gpu.primitives.operands import plain
from neonlike.backends.primitives.roi.definition import Suppression
from neonlike.backends.primitives.roi.detection import VARIANCES, Detection, DetectionFamily
from neonlike.backends.tensors.operands import Array
from neonlike.kernels.codegen.emit import STORAGE, load_element
from neonlike.kernels.cuda.fit import THREADS
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place

CANDIDATES = CudaRoutine("cuda/nms/candidates.cu.j2", "7Q3qd", "boxes of each class in their order")
RANKS = CudaRoutine("cuda/nms/ranks.cu.j2", "3Q3q", "scores of boxes that are kept")
ROWS = CudaRoutine("cuda/nms/rows.cu.j2", "5Q4q", "best boxes of each image")


class DetectionCuda(DetectionFamily):
    """Overrides DetectionFamily's hook."""

    device: Any

    def _detect(self, request: Detection, scores: Any, offsets: Any, priors: Any) -> list[Array]:
        lists, count = (request.classes - 1) * request.images, request.each
        most = min(request.most, (request.classes - 1) * count)
        if lists < 1 or most < 1:
            return [np.empty((0, 6), request.dtype) for _ in range(request.images)]
        order = self.fresh((request.boxes, request.classes - 1, request.images), dtype=np.int64)
        self.assign(order, self.argsort(scores[:, 1:], axis=0, descending=True))
        boxes = self.fresh((lists, 5 * count), dtype=np.float64)
        found = self.fresh((lists, count + 2), dtype=np.int64)
        keys = self.fresh((request.images, lists // request.images * count), dtype=request.dtype)
        tensors = plain(scores), plain(offsets), plain(priors), order, boxes, found, keys
        _suppressed(self.device, request, tensors).ready(len(tensors))([tensor.address for tensor in tensors])
        best = self.fresh(keys.shape, dtype=np.int64)
        self.assign(best, self.argsort(keys, axis=1, descending=True))
        rows = self.fresh((request.images, most, 6), dtype=request.dtype)
        addresses = [tensor.address for tensor in (best, keys, boxes, found, rows)]
        values, context = (*addresses, lists, count, request.images, most), _plain_types(request)
        ROWS.bind(self.device, blocks_for(request.images * most), BLOCK, values, **context)()
        return [image[~np.isnan(image[:, 4])] for image in rows.get()]


def _suppressed(device: Any, request: Detection, tensors: Any) -> Draft:
    """The program of tensors (scores, offsets, priors, order, boxes, found, keys)."""
    lists, count, program = (request.classes - 1) * request.images, request.each, Draft(device)
    scores, offsets, priors, order, boxes, found, keys = (Place(slot) for slot in range(7))
    grid = blocks_for(count)[0] * lists, 1, 1
    rated, gone = program.room(8 * lists * count), program.room(grid[0] * THREADS // 8)
    places = scores, offsets, priors, order, boxes, rated, gone
    numbers = count, request.classes, request.images, request.least
    context = _types(request, tensors[0].dtype, tensors[2].dtype)
    program.steps.append(Launched(device, CANDIDATES, (grid, BLOCK), places, numbers, context))
    suppress(program, Lists(lists, count, boxes, gone, None, None, found), Suppression(request.overlap, True))
    sizes, spans = (blocks_for(lists * count), BLOCK), (lists, count, request.images)
    program.steps.append(Launched(device, RANKS, sizes, (rated, found, keys), spans, _plain_types(request)))
    return program


def _plain_types(request: Detection) -> dict[str, Any]:
    """The context of ``ranks.cu.j2`` and ``rows.cu.j2``."""
    return {"threads": THREADS, "real": STORAGE[request.dtype.name]}


def _types(request: Detection, dtype: Any, box: Any) -> dict[str, Any]:
    """The context of ``candidates.cu.j2`` for scores of ``dtype`` and prior boxes of the dtype ``box``."""
    double = request.dtype == np.float64
    return _plain_types(request) | {
        "element": STORAGE[dtype.name],
        "load": load_element("x", dtype),
        "box": STORAGE[box.name],
        "box_load": f"({STORAGE[request.dtype.name]})({load_element('x', box)})",
        "multiply": "__dmul_rn" if double else "__fmul_rn",
        "exp": "exp" if double else "expf",
        "variances": VARIANCES,
    }
