"""Compiled kernels for the hooks of ``LrnFamily``."""

from __future__ import annotations

from typing import Any

from neonlike.backends.cpu.primitives.compiled import CompiledFamily
from neonlike.backends.primitives.lrn import POWERS, LrnFamily, LrnPass
from neonlike.backends.tensors.operands import Array, host, written
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, VECMATH, Routine, address, threads_for
from neonlike.kernels.c.stage import STREAMED_BYTES
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.calls import KernelCall

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
        x = host(I, request.dims)
        kernel = _variant(_FPROP, self.compiler, x, request)
        if kernel is None:
            return super()._fprop_lrn(request, I, O, denom)
        with written(denom, x.shape) as d, written(O, x.shape, request.beta != 0) as y:
            tail = (*x.shape, request.scale, *request.rest, *_partition(x, 3))
            return KernelCall(kernel, tuple(map(address, (x, y, d))), tail).run()

    def _bprop_lrn(
        self,
        request: LrnPass,
        I: Any,  # noqa: E741
        O: Any,  # noqa: E741
        E: Any,
        delta: Any,
        denom: Any,
    ) -> KernelCall | None:
        x = host(I, request.dims)
        kernel = _variant(_BPROP, self.compiler, x, request)
        if kernel is None:
            return super()._bprop_lrn(request, I, O, E, delta, denom)
        y, e, d = (host(tensor, x.shape) for tensor in (O, E, denom))
        with written(delta, x.shape, request.beta != 0) as result:
            tail = (*x.shape, request.slope, *request.rest, *_partition(x, 5))
            return KernelCall(kernel, tuple(map(address, (x, y, e, d, result))), tail).run()


def _variant(routine: Routine, compiler: Compiler | None, x: Array, request: LrnPass) -> Any:
    """The kernel for the window; None if there is none."""
    if request.window > LONGEST_WINDOW:
        return None
    real = REAL_TYPES[x.dtype]
    return routine.variant(
        compiler,
        real=real,
        suffix="f32" if real == "float" else "f64",
        window=request.window,
        power=POWERS.get(request.bpower, "any"),
        lanes=BLOCK_BYTES // x.itemsize,
    )


def _partition(x: Array, arrays: int) -> tuple[int, int, int]:
    """Elements of a channel per step, whether to use streaming stores, and number of threads."""
    threads = threads_for(x.size, PARALLEL_WORK)
    line, lanes = 64 // x.itemsize, x.shape[1]
    share = -(-lanes // (threads * line)) * line
    return min(BLOCK_BYTES // x.itemsize, max(share, line)), arrays * x.nbytes > STREAMED_BYTES, threads
