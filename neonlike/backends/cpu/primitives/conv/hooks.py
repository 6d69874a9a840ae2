"""Compiled kernels implement the hooks of ``ConvFamily`` on the CPU; ``conv/choice.py`` chooses the kernel.

Forward pass and data gradient take the first of these that pays; each file here plans its kernel:

1. products of bfloat16: Intel's tiles (``tiles.py``), Winograd's algorithm or other kernels on pairs (``pairs.py``);
2. depthwise convolution (``depthwise.py``), and few channels a group (``thin.py``);
3. Winograd's algorithm for 3 x 3 filters, if ``enable_winograd`` allows it (``winograd.py``);
4. a matrix product for 1 x 1 filters (``pointwise.py``);
5. a special kernel for forward passes with few output positions (``few.py``);
6. direct convolution, vectorized over maps for few images (``maps.py``), else over positions and images (``plan.py``).

The weight gradient is one of tiles, of pairs, depthwise, thin or direct (``update.py``).
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import numpy as np

from neonlike.backends.cpu.primitives.compiled import STREAMED_RESULT_BYTES, CompiledFamily, in_lines
from neonlike.backends.cpu.primitives.conv.choice import choose_data_plan, choose_update_plan
from neonlike.backends.cpu.primitives.conv.depthwise import META as DEPTHWISE_META
from neonlike.backends.cpu.primitives.conv.few import META as FEW_META
from neonlike.backends.cpu.primitives.conv.kind import ConvPlan, Kind
from neonlike.backends.cpu.primitives.conv.plan import META, PHASE
from neonlike.backends.cpu.primitives.conv.pointwise import META as POINTWISE_META
from neonlike.backends.cpu.primitives.conv.winograd import META as WINOGRAD_META
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import round_up
from neonlike.backends.primitives.conv.family import ConvFamily
from neonlike.backends.primitives.conv.request import ConvPass, ConvUpdate, Epilogue
from neonlike.backends.tensors.operands import host
from neonlike.kernels.c.gemm import with_tiles
from neonlike.kernels.c.pairs import form_of
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, VECMATH, Routine, threads_for
from neonlike.kernels.c.simd import vector_bytes
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.memory import LINE
from neonlike.kernels.run.workspace import release_workspace
from neonlike.optree.dtypes import BFLOAT16, F32, DType, compute_dtype, half_of


def _headers(names: str) -> tuple[str, ...]:
    """Paths of the family's headers with these names."""
    return tuple(f"conv/conv_{name}.h" for name in names.split())


FINISH = (*_headers("finish results"), "stream.h", "halves.h", *VECMATH)
STRIPS = _headers("strips rows")
WHOLE, WHOLE_AREA = _headers("whole"), _headers("area whole")
STORE, TILE = (*_headers("store runs"), *STRIPS, *FINISH), _headers("tile filters")
PAIR_HEADERS, TILE_HEADERS = ("pairs.h",), ("tiles.h",)
DIRECT_HEADERS = (*_headers("area"), *STORE, *TILE, *PAIR_HEADERS, *TILE_HEADERS)
DEPTHWISE_HEADERS = _headers("depthwise rows")
WINOGRAD_HEADERS = (*_headers("winograd_filters winograd_many winograd_few points runs rows"), *FINISH, *PAIR_HEADERS)
PARALLEL_WORK = 1 << 18
"""Multiplications below which starting threads does not pay."""
RELU, BRELU, BETA, STREAMED = 1, 2, 4, 8
"""Bits of the kernels' epilogue argument."""
OPERANDS, RESULTS = (0, 1), (2, 4)
"""The kernels' arrays that are multiplied, and those that have the results' form: they and x."""

_TYPES = [POINTER] * 8 + [REAL] * 3 + [INT] * 2
_GRADIENT = [POINTER] * 5 + [REAL] * 2 + [INT]
_FIELDS = {"meta": META, "phase": PHASE}


class Kernels(NamedTuple):
    """The kernels for a kind of plan: their routine, the template's context from the tile, the meta array's fields."""

    routine: Routine
    tile: tuple[str, ...]
    fields: dict[str, tuple[str, ...]]

    def variant(self, compiler: Compiler | None, plan: ConvPlan, dtype: DType, **more: str) -> Any:
        """The kernel for ``plan``, computing in ``dtype``; None if there is none.

        Parameters
        ----------
        compiler : Compiler or None
        plan : ConvPlan
        dtype : dtype
        **more : str
            What templates of :data:`DATA` are told besides: ``half``, how results of 16 bits lie in memory; or empty.
        """
        tile = plan.tile
        sizes = {"lanes": tile.lanes, "maps": tile.maps, "width": tile.maps // tile.lanes}
        sizes |= dict.fromkeys(("vectors", "positions", "taps"), tile.width)
        asked = {name: sizes[name] for name in self.tile} | dict(plan.variant) | self.fields
        return self.routine.variant(compiler, real=REAL_TYPES[dtype], **asked, **more)


DATA = {
    Kind.DIRECT: Kernels(
        Routine("c/conv/direct.c.j2", _TYPES, "direct convolution", DIRECT_HEADERS),
        ("lanes", "maps", "vectors"),
        _FIELDS,
    ),
    Kind.WINOGRAD: Kernels(
        Routine("c/conv/winograd.c.j2", _TYPES, "Winograd convolution", WINOGRAD_HEADERS),
        ("lanes", "maps", "vectors"),
        {"meta": WINOGRAD_META},
    ),
    Kind.POINTWISE: Kernels(
        Routine("c/conv/pointwise.c.j2", _TYPES, "pointwise convolution", FINISH + TILE + PAIR_HEADERS + TILE_HEADERS),
        ("lanes", "maps", "vectors"),
        {"meta": POINTWISE_META},
    ),
    Kind.DEPTHWISE: Kernels(
        Routine("c/conv/depthwise.c.j2", _TYPES, "depthwise convolution", DEPTHWISE_HEADERS + FINISH),
        ("lanes",),
        {"meta": DEPTHWISE_META},
    ),
    Kind.MAPS: Kernels(
        Routine("c/conv/maps.c.j2", _TYPES, "convolution with maps side by side", WHOLE_AREA + STORE + PAIR_HEADERS),
        ("lanes", "maps", "positions"),
        _FIELDS,
    ),
    Kind.THIN: Kernels(
        Routine("c/conv/thin.c.j2", _TYPES, "convolution of few channels a group", (*_headers("thin"), *STORE)),
        ("lanes", "maps", "vectors"),
        _FIELDS,
    ),
    Kind.FEW: Kernels(
        Routine("c/conv/few.c.j2", _TYPES, "convolution of few positions", FINISH + PAIR_HEADERS),
        ("lanes", "maps", "positions"),
        {"meta": FEW_META},
    ),
}
"""Forward pass and data gradient."""
UPDATE = {
    Kind.DIRECT: Kernels(
        Routine("c/conv/update.c.j2", _GRADIENT, "gradient of filters", STRIPS + WHOLE + PAIR_HEADERS + TILE_HEADERS),
        ("lanes", "width", "taps"),
        _FIELDS,
    ),
    Kind.DEPTHWISE: Kernels(
        Routine("c/conv/depthwise_update.c.j2", _GRADIENT, "gradient of depthwise filters", DEPTHWISE_HEADERS),
        ("lanes",),
        {"meta": DEPTHWISE_META},
    ),
    Kind.THIN: Kernels(
        Routine("c/conv/thin_update.c.j2", _GRADIENT, "gradient of depthwise filters", (*_headers("thin"), *STRIPS)),
        ("lanes", "taps"),
        _FIELDS,
    ),
}
"""Weight gradient."""


class ConvKernels(CompiledFamily, ConvFamily):
    """Overrides of ConvFamily's hooks."""

    def _conv(
        self,
        request: ConvPass,
        source: Any,
        filters: Any,
        target: Any,
        bias: Any = None,
        X: Any = None,
        bsum: Any = None,
    ) -> KernelCall | None:
        g, epilogue = request.geometry, request.epilogue
        threads, computed = _threads(g), compute_dtype(source.dtype)
        vector, stored = vector_bytes(self.compiler), source.dtype.name == BFLOAT16
        pairs, allowed = with_tiles(self._pairs_of(source.dtype), self.compiler), self.enable_winograd
        plan = choose_data_plan(g, request.backward, vector, computed.itemsize, threads, allowed, pairs, stored)
        keeps = self._keeps(target, X if epilogue.reads_x else None, computed)
        kernel = DATA[plan.kind].variant(self.compiler, plan, computed, half=half_of(target.dtype) if keeps else "")
        if kernel is None:
            return super()._conv(request, source, filters, target, bias, X, bsum)
        dims = request.target_dims
        read, weights = self._stored(source, request.source_dims), self._stored(filters, g.dimF)
        added = None if bias is None else self._stored(bias, kind=computed)
        x = None if X is None or not epilogue.reads_x else self._stored(X, kind=computed)
        rounded = bsum is not None and target.dtype != computed  # sums are of the stored values
        sums = None if bsum is None or rounded else np.zeros((plan.units, dims[0]))
        reads_old = X is None and epilogue.reads_x
        with self._stored_written(target, dims, reads_old) as out:
            moved = out.nbytes + (read.nbytes if plan.kind is Kind.POINTWISE else 0)
            bits = _bits(epilogue, out, moved, reads_old or (half_of(out.dtype) != "" and not keeps))
            tail = (ctypes.addressof(plan.meta), epilogue.alpha, epilogue.beta, epilogue.slope, bits, threads)
            work = _work_bytes(plan, threads, computed.itemsize)
            call = KernelCall(kernel, (), tail, work, plan, in_lines=bits & STREAMED != 0)
            known = (*(OPERANDS if plan.stored else ()), *(RESULTS if keeps else ()))
            launch = self._converting(call, (read, weights, out, added, x, sums), {2: reads_old}, known).run()
        if bsum is not None:
            if sums is None:
                release_workspace()  # in which operands are in float32; the results are converted next
            total = host(target, (dims[0], -1)).sum(axis=1, dtype=np.float64) if sums is None else sums.sum(axis=0)
            bsum.set(total.reshape(bsum.shape))
        return launch if bsum is None else None

    def _keeps(self, target: Any, X: Any, computed: DType) -> bool:
        """Whether results, and X if it is read, are bfloat16 that a kernel of ``computed`` may be given as they are."""
        return computed == F32 and all(
            tensor is None or self._stored_dtype(tensor, computed).name == BFLOAT16 for tensor in (target, X)
        )

    def _update_conv(self, request: ConvUpdate, I: Any, E: Any, grad_F: Any) -> KernelCall | None:  # noqa: E741
        g, alpha, beta = request.geometry, request.alpha, request.beta
        threads, computed = _threads(g), compute_dtype(I.dtype)
        vector, pairs = vector_bytes(self.compiler), with_tiles(self._pairs_of(I.dtype), self.compiler)
        plan = choose_update_plan(g, vector, computed.itemsize, pairs, I.dtype.name == BFLOAT16)
        kernel = UPDATE[plan.kind].variant(self.compiler, plan, computed)
        if kernel is None:
            return super()._update_conv(request, I, E, grad_F)
        images, errors = self._stored(I, g.dimI), self._stored(E, g.dimO)
        with self._stored_written(grad_F, g.dimF, beta != 0, computed) as out:
            tail = (ctypes.addressof(plan.meta), alpha, beta, threads)
            call = KernelCall(kernel, (), tail, _work_bytes(plan, threads, computed.itemsize), plan)
            known = OPERANDS if plan.stored else ()
            return self._converting(call, (images, errors, out), {2: beta != 0}, known).run()

    def _conv_workspace(self, request: ConvPass | ConvUpdate) -> int:
        """Workspace for any ``enable_winograd`` and ``product_precision``, at the current number of threads."""
        if self.compiler is None:
            return super()._conv_workspace(request)
        g, itemsize = request.geometry, compute_dtype(request.geometry.dtype).itemsize
        threads, vector, stored = _threads(g), vector_bytes(self.compiler), g.dtype.name == BFLOAT16
        least = form_of({g.dtype.name}, 0, self.compiler)
        forms = [form for form in dict.fromkeys((0, 1, with_tiles(1, self.compiler))) if form >= least]
        if isinstance(request, ConvUpdate):
            plans = [choose_update_plan(g, vector, itemsize, pairs, stored) for pairs in forms]
        else:
            choices = [(edge, pairs) for pairs in forms for edge in ((0, 2) if pairs else (0, 2, 4))]
            plans = [
                choose_data_plan(g, request.backward, vector, itemsize, threads, *choice, stored) for choice in choices
            ]
        return max(
            (plan.work(threads) + _converted(request, plan)) * itemsize + plan.units * max(g.C, g.K) * 8
            for plan in plans
        )


def _converted(request: ConvPass | ConvUpdate, plan: ConvPlan) -> int:
    """Numbers of the arrays that the kernel of ``plan`` gets as float32 copies, each in whole cache lines."""
    g = request.geometry
    if not half_of(g.dtype):
        return 0
    if isinstance(request, ConvUpdate):
        arrays = [g.sizeF, *([] if plan.stored else [g.sizeI, g.sizeO])]
    else:
        results = [] if g.dtype.name == BFLOAT16 else [math.prod(request.target_dims)] * 2  # and X
        read = [] if plan.stored else [math.prod(request.source_dims), g.sizeF]
        arrays = [request.target_dims[0], *read, *results]  # the first is the bias
    return sum(round_up(size, LINE // F32.itemsize) for size in arrays)


def _work_bytes(plan: ConvPlan, threads: int, itemsize: int) -> int:
    """Bytes of workspace; not 0, because kernels always take its address."""
    return max(plan.work(threads), 1) * itemsize


def _bits(epilogue: Epilogue, out: np.ndarray[Any, Any], moved: int, cached: bool) -> int:
    """Epilogue bits for a kernel that reads and writes ``moved`` bytes.

    Streaming stores if no cache would hold the results, unless they are ``cached``: old values are read first, or the
    results are converted next.
    """
    bits = RELU * epilogue.relu | BRELU * epilogue.brelu | BETA * (epilogue.beta != 0)
    streams = moved > STREAMED_RESULT_BYTES and in_lines(out) and not cached
    return bits | STREAMED * streams


def _threads(g: ConvGeometry) -> int:
    return threads_for(g.flops // 2, PARALLEL_WORK)
