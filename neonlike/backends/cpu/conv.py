"""Compiled convolution, for the hooks of ``families/conv.py``; ``conv_plan.py`` cuts it into work.

Forward and data gradient of 3 x 3 filters are Winograd's where that pays and ``enable_winograd`` allows it
(``conv_winograd.py``), those of 1 x 1 a matrix product (``conv_pointwise.py``); all else is direct, with output maps
side by side in vectors where images are few (``conv_maps.py``).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from neonlike.backends.cpu.compiled import STREAMED_RESULT_BYTES, CompiledFamily, in_lines
from neonlike.backends.cpu.conv_depthwise import META as DEPTHWISE_META
from neonlike.backends.cpu.conv_depthwise import depthwise_plan, depthwise_update_plan
from neonlike.backends.cpu.conv_maps import map_lanes, maps_plan
from neonlike.backends.cpu.conv_plan import META, PHASE, ConvPlan, data_plan
from neonlike.backends.cpu.conv_pointwise import META as POINTWISE_META
from neonlike.backends.cpu.conv_pointwise import pointwise, pointwise_plan
from neonlike.backends.cpu.conv_thin import thin, thin_plan, thin_update, thin_update_plan
from neonlike.backends.cpu.conv_update_plan import update_plan
from neonlike.backends.cpu.conv_winograd import META as WINOGRAD_META
from neonlike.backends.cpu.conv_winograd import winograd_edge, winograd_plan
from neonlike.backends.families.conv import ConvFamily, Epilogue
from neonlike.backends.families.operands import host, written
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.errors import ArgumentError
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.c.simd import vector_bytes
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.kernels.run.calls import Launch
from neonlike.optree.dtypes import compute_dtype

FINISH, STRIPS = ("conv_finish.h", "stream.h"), ("conv_strips.h", "conv_rows.h")
STORE, TILE = ("conv_store.h", "conv_runs.h", *STRIPS, *FINISH), ("conv_tile.h", "conv_filters.h")
DEPTHWISE_HEADERS = "conv_depthwise.h", "conv_rows.h"
WINOGRAD_HEADERS = "conv_winograd_many.h", "conv_winograd_few.h", "conv_points.h", "conv_runs.h", "conv_rows.h", *FINISH
PARALLEL_WORK = 1 << 18
"""Products below which starting threads costs more than it saves."""
RELU, BRELU, BETA, STREAMED = 1, 2, 4, 8
"""Bits of the epilogue, as the kernel takes it."""

_TYPES = [POINTER] * 8 + [REAL] * 3 + [INT] * 2
_DATA = Routine("c/conv_direct.c.j2", _TYPES, "direct convolution", ("conv_area.h", *STORE, *TILE))
_WINOGRAD = Routine("c/conv_winograd.c.j2", _TYPES, "Winograd convolution", WINOGRAD_HEADERS)
_POINTWISE = Routine("c/conv_pointwise.c.j2", _TYPES, "pointwise convolution", FINISH + TILE)
_DEPTHWISE = Routine("c/conv_depthwise.c.j2", _TYPES, "depthwise convolution", DEPTHWISE_HEADERS + FINISH)
_MAPS = Routine("c/conv_maps.c.j2", _TYPES, "convolution with maps side by side", ("conv_area.h", *STORE))
_THIN = Routine("c/conv_thin.c.j2", _TYPES, "convolution of few channels a group", ("conv_thin.h", *STORE))
_GRADIENT = [POINTER] * 5 + [REAL] * 2 + [INT]
_THIN_UPDATE = Routine("c/conv_thin_update.c.j2", _GRADIENT, "gradient of depthwise filters", ("conv_thin.h", *STRIPS))
_DEPTHWISE_UPDATE = Routine(
    "c/conv_depthwise_update.c.j2", _GRADIENT, "gradient of depthwise filters", DEPTHWISE_HEADERS
)
_UPDATE = Routine("c/conv_update.c.j2", _GRADIENT, "gradient of filters", STRIPS)


class ConvKernels(CompiledFamily, ConvFamily):
    """Overrides of ConvFamily's hooks."""

    def _conv(
        self, g: ConvGeometry, backward: bool, source: Any, filters: Any, target: Any, epilogue: Epilogue
    ) -> Launch | None:
        read, weights = host(source, g.dimO if backward else g.dimI), host(filters, g.dimF)
        threads = _threads(g)
        vector = vector_bytes(self.compiler)
        plan = _data_plan(g, backward, vector, read.itemsize, threads, self.enable_winograd)
        tile = plan.tile
        shape = {"real": REAL_TYPES[read.dtype], "lanes": tile.lanes, "maps": tile.maps, "vectors": tile.width}
        if plan.winograd:
            kernel = _WINOGRAD.variant(self.compiler, **shape, outputs=plan.winograd, few=plan.few, meta=WINOGRAD_META)
        elif plan.pointwise:
            kernel = _POINTWISE.variant(self.compiler, **shape, meta=POINTWISE_META)
        elif plan.depthwise:
            shape = {"real": shape["real"], "lanes": tile.lanes, "across": plan.depthwise, "meta": DEPTHWISE_META}
            kernel = _DEPTHWISE.variant(self.compiler, **shape)
        elif plan.map_lanes:
            shape = {"real": REAL_TYPES[read.dtype], "lanes": tile.lanes, "maps": tile.maps, "positions": tile.width}
            kernel = _MAPS.variant(self.compiler, **shape, step=plan.map_lanes, meta=META, phase=PHASE)
        elif plan.thin:
            kernel = _THIN.variant(self.compiler, **shape, meta=META, phase=PHASE)
        else:
            kernel = _DATA.variant(self.compiler, **shape, meta=META, phase=PHASE)
        if kernel is None:
            return super()._conv(g, backward, source, filters, target, epilogue)
        dims = g.dimI if backward else g.dimO
        bias = None if epilogue.bias is None else host(epilogue.bias, dtype=read.dtype)
        x = None if epilogue.X is None or not epilogue.reads_x else host(epilogue.X, dtype=read.dtype)
        rounded = epilogue.bsum is not None and target.dtype != read.dtype  # sums are of what is stored
        sums = None if epilogue.bsum is None or rounded else np.zeros((plan.units, dims[0]))
        scalars = epilogue.alpha, epilogue.beta, epilogue.slope
        with written(target, dims, keep=epilogue.reads_old) as out:
            bits = _bits(epilogue, out, out.nbytes + plan.pointwise * read.nbytes)
            addresses = tuple(map(address, (read, weights, out, bias, x, sums)))
            tail = (ctypes.addressof(plan.meta), *scalars, bits, threads)
            launch = Launch(kernel, addresses, tail, _work_bytes(plan, threads, read.itemsize), plan).run()
        del out, x  # of float16 these are copies, and what is stored is copied next
        if epilogue.bsum is not None:
            total = host(target, (dims[0], -1)).sum(axis=1, dtype=np.float64) if sums is None else sums.sum(axis=0)
            epilogue.bsum.set(total.reshape(epilogue.bsum.shape))
        return launch

    def _update_conv(
        self,
        g: ConvGeometry,
        I: Any,  # noqa: E741
        E: Any,
        grad_F: Any,
        alpha: float,
        beta: float,
    ) -> Launch | None:
        images, errors = host(I, g.dimI), host(E, g.dimO)
        threads = _threads(g)
        plan = _update_plan(g, vector_bytes(self.compiler), images.itemsize)
        tile = plan.tile
        shape: dict[str, Any]
        routine, shape = _UPDATE, {"lanes": tile.lanes, "width": tile.maps // tile.lanes, "taps": tile.width}
        if plan.thin:
            routine, shape = _THIN_UPDATE, {"lanes": tile.lanes, "taps": tile.width}
        shape |= {"meta": META, "phase": PHASE}
        if plan.depthwise:
            routine, shape = _DEPTHWISE_UPDATE, {"lanes": tile.lanes, "across": plan.depthwise, "meta": DEPTHWISE_META}
        kernel = routine.variant(self.compiler, real=REAL_TYPES[images.dtype], **shape)
        if kernel is None:
            return super()._update_conv(g, I, E, grad_F, alpha, beta)
        with written(grad_F, g.dimF, beta != 0, images.dtype) as out:
            addresses = tuple(map(address, (images, errors, out)))
            tail = (ctypes.addressof(plan.meta), alpha, beta, threads)
            return Launch(kernel, addresses, tail, _work_bytes(plan, threads, images.itemsize), plan).run()


def _work_bytes(plan: ConvPlan, threads: int, itemsize: int) -> int:
    """Working memory, of which kernels take the address also where they need none."""
    return max(plan.work(threads), 1) * itemsize


def _bits(epilogue: Epilogue, out: np.ndarray[Any, Any], moved: int) -> int:
    """For a kernel that moves so many bytes, of which results are the last."""
    bits = RELU * epilogue.relu | BRELU * epilogue.brelu | BETA * (epilogue.beta != 0)
    # Results that would not stay in any cache, unless they are read before they are stored and so are in it.
    return bits | STREAMED * (moved > STREAMED_RESULT_BYTES and in_lines(out) and not epilogue.reads_old)


def _threads(g: ConvGeometry) -> int:
    return threads_for(g.flops // 2, PARALLEL_WORK)


def _data_plan(g: ConvGeometry, backward: bool, vector: int, itemsize: int, threads: int, winograd: Any) -> ConvPlan:
    """Forward, or data gradient; vector: bytes; winograd: as ``enable_winograd``."""
    if depthwise := depthwise_plan(g, backward, vector, itemsize):
        return depthwise
    if thin(g):
        return thin_plan(g, backward, vector, itemsize)
    edge = winograd_edge(g, backward, vector, itemsize, winograd)
    if edge:
        return winograd_plan(g, backward, vector, itemsize, edge, threads)
    if pointwise(g):
        return pointwise_plan(g, backward, vector, itemsize, threads)
    if map_lanes(g, backward, vector, itemsize):
        return maps_plan(g, backward, vector, itemsize, threads)
    return data_plan(g, backward, vector, itemsize, threads)


def _update_plan(g: ConvGeometry, vector: int, itemsize: int) -> ConvPlan:
    """Weight gradient; vector: bytes."""
    if depthwise := depthwise_update_plan(g, vector, itemsize):
        return depthwise
    return (thin_update_plan if thin_update(g) else update_plan)(g, vector, itemsize)


def workspace_bytes(g: ConvGeometry, operation: str) -> int:
    """See ``ConvGeometry.workspace_bytes``."""
    itemsize = compute_dtype(g.dtype).itemsize
    threads, vector = _threads(g), vector_bytes(find_compiler())
    if operation not in ("fprop", "bprop", "update"):
        raise ArgumentError(f"workspace_bytes: operation must be fprop, bprop or update, got {operation!r}")
    if operation == "update":
        plans = [_update_plan(g, vector, itemsize)]
    else:
        plans = [_data_plan(g, operation == "bprop", vector, itemsize, threads, winograd) for winograd in (0, 2, 4)]
    converted = 0
    if itemsize != g.dtype.itemsize:  # with X, which has the target's size
        x = {"fprop": g.sizeO, "bprop": g.sizeI}.get(operation, 0)
        converted = g.sizeI + g.sizeF + g.sizeO + x
    needed = max(plan.work(threads) * itemsize + plan.units * max(g.C, g.K) * 8 for plan in plans)
    return needed + converted * itemsize
