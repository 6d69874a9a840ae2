"""Local response normalisation on a GPU, for the hooks of ``primitives/lrn.py``.

A thread goes over channels with a few elements of each, whose window stays in its registers. Where channels have few
elements, they are cut into spans, each with threads of its own.
"""

from __future__ import annotations

from typing import Any

from neonlike.backends.gpu.primitives.calls import Draft, Launched, device_call
from neonlike.backends.gpu.primitives.elements import BLOCK, blocks_for, element_types, vector_length
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.primitives.lrn import POWERS, LrnFamily, LrnPass
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import DType, compute_dtype

FORWARD = CudaRoutine("cuda/lrn/forward.cu.j2", "3Q4d4q", "local response normalisation")
BACKWARD = CudaRoutine("cuda/lrn/backward.cu.j2", "5Q4d4q", "gradient of local response normalisation")
WINDOW_BYTES, HELD_BYTES = 64, 160
"""Most bytes of a window that a thread keeps in registers, for one element and for all that it has at a time."""
ENOUGH_THREADS, MOST_SPANS = 1 << 18, 65535
"""With fewer, channels are cut into spans. Each channel adds up its own window: results do not depend on it."""


class LrnCuda(LrnFamily):
    """Overrides of LrnFamily's hooks."""

    device: Any

    def _fprop_lrn(self, request: LrnPass, I: Any, O: Any, denom: Any) -> KernelCall | None:  # noqa: E741
        if not I.size:
            return None
        with stored(denom) as below, stored(O, request.beta != 0) as out:
            numbers = request.scale, *request.rest
            return self._lrn(FORWARD, request, numbers, I.dtype, (plain(I), out, below))

    def _bprop_lrn(
        self,
        request: LrnPass,
        I: Any,  # noqa: E741
        O: Any,  # noqa: E741
        E: Any,
        delta: Any,
        denom: Any,
    ) -> KernelCall | None:
        if not I.size:
            return None
        with stored(delta, request.beta != 0) as out:
            numbers = request.slope, *request.rest
            return self._lrn(BACKWARD, request, numbers, I.dtype, (*map(plain, (I, O, E, denom)), out))

    def _lrn(
        self, routine: CudaRoutine, request: LrnPass, numbers: tuple[float, ...], dtype: DType, tensors: tuple[Any, ...]
    ) -> KernelCall:
        channels, lanes = request.dims

        def choose(aligned: bool) -> Draft:
            vector, window = vector_length(dtype, lanes, aligned), request.window * compute_dtype(dtype).itemsize
            kept = window <= WINDOW_BYTES
            while kept and vector * window > HELD_BYTES and vector > 1:
                vector //= 2
            chunks = lanes // vector
            span = _span(request, chunks)
            grid = blocks_for(chunks)[0], -(-channels // span), 1
            context = element_types(dtype, vector, (channels * lanes,))
            context |= {"window": request.window, "power": POWERS.get(request.bpower, "any"), "kept": kept}
            program = Draft(self.device)
            places = [Place(slot) for slot in range(len(tensors))]
            everything = *numbers, chunks, lanes, channels, span
            program.steps = [Launched(self.device, routine, (grid, BLOCK), places, everything, context)]
            return program

        return device_call(choose, tensors)


def _span(request: LrnPass, chunks: int) -> int:
    """Channels of a thread, of ``chunks`` that go over a channel: no fewer than a window, whose ends are read twice."""
    channels = request.dims[0]
    return max(-(-channels * chunks // ENOUGH_THREADS), min(request.window, channels), -(-channels // MOST_SPANS))
