"""Compiled kernels for the hooks of ``LrnFamily``."""

from __future__ import annotations

from typing import Any

from neonlike.backends.cpu.primitives.compiled import CompiledFamily
from neonlike.backends.primitives.lrn import POWERS, LrnFamily, LrnPass
from neonlike.backends.tensors.operands import Array
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, VECMATH, Routine, threads_for
from neonlike.kernels.c.stage import STREAMED_BYTES
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import compute_dtype

HEADERS = (*VECMATH, "vecmath/vecmath_power.h", "lrn_power.h", "stream.h")

BLOCK_BYTES = 4096
"""Bytes of a channel processed at a time by a kernel: a page, the limit of hardware prefetching."""
LONGEST_WINDOW = 31
"""Maximum window of the kernels, which are unrolled over it and keep a row per channel; larger ones run in NumPy."""
PARALLEL_WORK = 1 << 15
"""Elements below which starting threads does not pay."""

_TAIL = [INT] * 2 + [REAL] * 4 + [INT] * 3
_FPROP = Routine("c/lrn_fprop.c.j2", [POINTER] * 3 + _TAIL, "local response normalisation", HEADERS)
_BPROP = Routine("c/lrn_bprop.c.j2", [POINTER] * 5 + _TAIL, "gradient of local response normalisation", HEADERS)


class LrnKernels(CompiledFamily, LrnFamily):
    """Overrides of LrnFamily's hooks."""

    def _fprop_lrn(self, request: LrnPass, I: Any, O: Any, denom: Any) -> KernelCall | None:  # noqa: E741
        kernel = _variant(_FPROP, self.compiler, I, request)
        if kernel is None:
            return super()._fprop_lrn(request, I, O, denom)
        x, keep = self._stored(I, request.dims), request.beta != 0
        with self._stored_written(denom, x.shape, False) as d, self._stored_written(O, x.shape, keep) as y:
            tail = (*x.shape, request.scale, *request.rest, *_partition(x, 3))
            return self._converting(KernelCall(kernel, (), tail), (x, y, d), {1: keep, 2: False}).run()

    def _bprop_lrn(
        self,
        request: LrnPass,
        I: Any,  # noqa: E741
        O: Any,  # noqa: E741
        E: Any,
        delta: Any,
        denom: Any,
    ) -> KernelCall | None:
        kernel = _variant(_BPROP, self.compiler, I, request)
        if kernel is None:
            return super()._bprop_lrn(request, I, O, E, delta, denom)
        x, y, e, d = (self._stored(tensor, request.dims) for tensor in (I, O, E, denom))
        keep = request.beta != 0
        with self._stored_written(delta, x.shape, keep) as result:
            tail = (*x.shape, request.slope, *request.rest, *_partition(x, 5))
            return self._converting(KernelCall(kernel, (), tail), (x, y, e, d, result), {4: keep}).run()


def _variant(routine: Routine, compiler: Compiler | None, x: Any, request: LrnPass) -> Any:
    """The kernel for the window, and tensors like ``x``; None if there is none."""
    if request.window > LONGEST_WINDOW:
        return None
    kind = compute_dtype(x.dtype)
    real = REAL_TYPES[kind]
    return routine.variant(
        compiler,
        real=real,
        suffix="f32" if real == "float" else "f64",
        window=request.window,
        power=POWERS.get(request.bpower, "any"),
        lanes=BLOCK_BYTES // kind.itemsize,
    )


def _partition(x: Array, arrays: int) -> tuple[int, int, int]:
    """Elements of a channel per step, whether to use streaming stores, and number of threads."""
    threads, itemsize = threads_for(x.size, PARALLEL_WORK), compute_dtype(x.dtype).itemsize
    line, lanes = 64 // itemsize, x.shape[1]
    share = -(-lanes // (threads * line)) * line
    streamed = x.itemsize == itemsize and arrays * x.nbytes > STREAMED_BYTES  # others are converted next
    return min(BLOCK_BYTES // itemsize, max(share, line)), streamed, threads
