"""Compiled kernels of the pool family, for the hooks of ``families/pool.py``.

Forward, a window is a list of the places of its values; backward, an element of the input is a list of the windows that
it lies in. A kernel works a list down for a vector of images at a time, and uses it for all columns that it fits.
"""

# ruff: noqa: E741  (I and O are the names that neon gives input and output)

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.cpu.compiled import STREAMED_RESULT_BYTES, CompiledFamily, in_lines
from neonlike.backends.families.operands import Array
from neonlike.backends.families.pool import PoolFamily, backward_arrays, forward_arrays
from neonlike.backends.families.pool_definition import share_of_norm
from neonlike.backends.geometry.pool import LINE_BYTES, META, PoolGeometry
from neonlike.kernels.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.toolchain import Compiler
from neonlike.optree.dtypes import DType, compute_dtype

FORWARD = Routine(
    "c/pool_forward.c.j2", [POINTER] * 4 + [INT] + [POINTER] * 3 + [REAL, REAL, INT, INT], "pooling, forward"
)
BACKWARD = Routine(
    "c/pool_backward.c.j2",
    [POINTER] * 5 + [INT] + [POINTER] * 4 + [REAL, REAL, INT, INT, INT],
    "pooling, backward",
    headers=("stream.h",),
)
WIDEST_VECTOR = 64
"""Bytes; kernels cut their vectors to the processor's."""

FEW_IMAGES = {FORWARD: 3, BACKWARD: 7}
"""Up to so many, those of neighbours in a row fill a vector together; collecting more costs more than short vectors."""

SERIAL = 1 << 15
"""Values read in windows, below which one thread is sooner done."""

FETCHED_BYTES = 2 << 20
"""Images larger than this are fetched from far ahead, since they may not be in the caches."""


class PoolKernels(CompiledFamily, PoolFamily):
    """Overrides of PoolFamily's hooks."""

    def _fprop_pool(self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, alpha: float, beta: float) -> None:
        run = _variant(FORWARD, self.compiler, layer, compute_dtype(I.dtype), argmax)
        if run is None or not layer.sizeO:
            super()._fprop_pool(layer, I, O, argmax, alpha, beta)
            return
        with forward_arrays(layer, I, O, argmax, beta) as (values, out, numbers):
            _forward(run, layer, values, out, numbers, alpha, beta)

    def _bprop_pool(
        self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, inputs: Any, alpha: float, beta: float
    ) -> None:
        dtype = compute_dtype(I.dtype)
        run = _variant(BACKWARD, self.compiler, layer, dtype, argmax)
        if run is None or not layer.sizeO:
            super()._bprop_pool(layer, I, O, argmax, inputs, alpha, beta)
            return
        with backward_arrays(layer, I, O, argmax, inputs, beta) as (error, delta, numbers, values):
            if values is not None:
                norm = np.empty(layer.dimO, dtype)
                forward = _variant(FORWARD, self.compiler, layer, dtype, None)
                _forward(forward, layer, values, norm, None, 1.0, 0.0)
                error = share_of_norm(error, norm)
            streamed = int(beta == 0 and delta.nbytes > STREAMED_RESULT_BYTES and in_lines(delta))
            threads, lines = _lines(layer, backward=True)
            arrays = map(address, (error, delta, numbers, values, lines))
            tables: tuple[Array, ...] = (layer.meta, layer.ranges[1], layer.places, layer.weights)
            ahead = int(delta.nbytes > FETCHED_BYTES)
            run(*arrays, layer.lines[1], *map(address, tables), alpha, beta, streamed, ahead, threads)


def _forward(
    run: Any, layer: PoolGeometry, values: Array, out: Array, numbers: Array | None, alpha: float, beta: float
) -> None:
    threads, lines = _lines(layer, backward=False)
    arrays = map(address, (values, out, numbers, lines))
    tables: tuple[Array, ...] = (layer.meta, layer.ranges[0], layer.places)
    run(*arrays, layer.lines[0], *map(address, tables), alpha, beta, int(values.nbytes > FETCHED_BYTES), threads)


def _variant(routine: Routine, compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any) -> Any:
    """The kernel for arrays of ``dtype``, narrow where there are few images; None without a compiler."""
    most, bits = WIDEST_VECTOR // dtype.itemsize, 8
    narrow = layer.N <= FEW_IMAGES[routine] and layer.Q * layer.N >= most
    lanes = most if narrow else min(most, 1 << max(layer.N, 1).bit_length() - 1)
    if argmax is not None:
        fits = layer.window - 1 <= np.iinfo(argmax.dtype).max
        bits = 8 * (argmax.dtype if fits else layer.argmax_dtype).itemsize
    return routine.variant(
        compiler,
        op=layer.op,
        real=REAL_TYPES[dtype],
        integer=f"int{8 * dtype.itemsize}_t",
        number=f"uint{bits}_t",
        signed=f"int{bits}_t",
        bytes=dtype.itemsize,
        lanes=lanes,
        narrow=narrow,
        meta=META,
    )


def _lines(layer: PoolGeometry, backward: bool) -> tuple[int, Array]:
    """Threads, and room for the lines that each works down."""
    threads = threads_for(layer.sizeO * layer.window, SERIAL)
    return threads, np.empty(threads * layer.lines[backward] * LINE_BYTES, np.uint8)
