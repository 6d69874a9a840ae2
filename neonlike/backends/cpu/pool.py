"""Compiled kernels of the pool family, for the hooks of ``families/pool.py``.

Forward, a window is a list of the places of its values; backward, an element of the input is a list of the windows that
it lies in. A kernel works a list down for a vector of images at a time, and uses it for all columns that it fits.
"""

# ruff: noqa: E741  (I and O are the names that neon gives input and output)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neonlike.backends.cpu.compiled import STREAMED_RESULT_BYTES, CompiledFamily, in_lines
from neonlike.backends.families.operands import Array
from neonlike.backends.families.pool import PoolFamily, backward_arrays, forward_arrays
from neonlike.backends.families.pool_definition import share_of_norm
from neonlike.backends.geometry.pool import LINE_BYTES, META, PoolGeometry
from neonlike.kernels.calls import Launch
from neonlike.kernels.layout import LINE
from neonlike.kernels.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.toolchain import Compiler
from neonlike.optree.dtypes import DType, compute_dtype

FORWARD = Routine(
    "c/pool_forward.c.j2",
    [POINTER] * 4 + [INT, INT] + [POINTER] * 3 + [REAL, REAL] + [INT] * 4,
    "pooling, forward",
)
BACKWARD = Routine(
    "c/pool_backward.c.j2",
    [POINTER] * 5 + [INT, INT] + [POINTER] * 4 + [REAL, REAL] + [INT] * 5,
    "pooling, backward",
    headers=("stream.h",),
)
WIDEST_VECTOR = 64
"""Bytes; kernels cut their vectors to the processor's."""

FEW_IMAGES = {FORWARD: 3, BACKWARD: 7}
"""Up to so many, those of neighbours in a row fill a vector together; collecting more costs more than short vectors."""

PACKED_IMAGES, PACKED_LANES = 15, 32
"""Most images whose channels are packed side by side, and the lanes that these fill; of more images, 16 channels do.

N = 1, 64 maps of 112x112, 3x3: 0.1 of the time that collecting neighbours took.
"""
PACKED_BYTES = 1 << 18
"""Packed band of rows, input and output, that stays in a core's own cache."""

SERIAL = 1 << 15
"""Values read in windows, below which one thread is sooner done."""

FETCHED_BYTES = 2 << 20
"""Images larger than this are fetched from far ahead, since they may not be in the caches."""


class PoolKernels(CompiledFamily, PoolFamily):
    """Overrides of PoolFamily's hooks."""

    def _fprop_pool(
        self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, alpha: float, beta: float
    ) -> Launch | None:
        run = _variant(FORWARD, self.compiler, layer, compute_dtype(I.dtype), argmax, beta)
        if run is None or not layer.sizeO:
            return super()._fprop_pool(layer, I, O, argmax, alpha, beta)
        with forward_arrays(layer, I, O, argmax, beta) as (values, out, numbers):
            return _forward(run, layer, values, out, numbers, alpha, beta)

    def _bprop_pool(
        self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, inputs: Any, alpha: float, beta: float
    ) -> Launch | None:
        dtype = compute_dtype(I.dtype)
        run = _variant(BACKWARD, self.compiler, layer, dtype, argmax, beta)
        if run is None or not layer.sizeO:
            return super()._bprop_pool(layer, I, O, argmax, inputs, alpha, beta)
        with backward_arrays(layer, I, O, argmax, inputs, beta) as (error, delta, numbers, values):
            if values is not None:
                norm = np.empty(layer.dimO, dtype)
                forward = _variant(FORWARD, self.compiler, layer, dtype, None, 0.0)
                _forward(forward, layer, values, norm, None, 1.0, 0.0)
                error = share_of_norm(error, norm)
            launch = _launch(run, BACKWARD, layer, (error, delta, numbers, values), alpha, beta)
            launch.run()
            return launch


def _forward(
    run: Any, layer: PoolGeometry, values: Array, out: Array, numbers: Array | None, alpha: float, beta: float
) -> Launch:
    return _launch(run, FORWARD, layer, (values, out, numbers), alpha, beta).run()


def _launch(
    run: Any, routine: Routine, layer: PoolGeometry, arrays: Sequence[Array | None], alpha: float, beta: float
) -> Launch:
    """A call of the kernel ``run`` on what is read, what is written, and the rest."""
    read, result, *_ = arrays
    assert read is not None and result is not None
    backward = routine is BACKWARD
    threads, lines = threads_for(layer.sizeO * layer.window, SERIAL), layer.lines[backward]
    each, band = _room(layer, routine, read.dtype, beta)
    first = -(-threads * lines * LINE_BYTES // LINE) * LINE  # where the room of packed blocks begins
    tables: tuple[Array, ...] = (layer.meta, layer.ranges[backward], layer.places)
    largest = result if backward else read
    sizes = [int(largest.nbytes > FETCHED_BYTES), each, band, threads]
    if backward:
        tables = (*tables, layer.weights)
        sizes.insert(0, int(beta == 0 and result.nbytes > STREAMED_RESULT_BYTES and in_lines(result)))
    tail = (first, lines, *map(address, tables), alpha, beta, *sizes)
    return Launch(run, tuple(map(address, arrays)), tail, first + threads * each, (layer, tables))


def _variant(
    routine: Routine, compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any, beta: float
) -> Any:
    """The kernel for arrays of ``dtype``, narrow where there are few images; None without a compiler."""
    most, bits = WIDEST_VECTOR // dtype.itemsize, 8
    packed = _packs(layer, beta)
    narrow = not packed and layer.N <= FEW_IMAGES[routine] and layer.Q * layer.N >= most
    lanes = most if narrow or packed else min(most, 1 << max(layer.N, 1).bit_length() - 1)
    if argmax is not None:
        fits = layer.window - 1 <= np.iinfo(argmax.dtype).max
        bits = 8 * (argmax.dtype if fits else layer.argmax_dtype).itemsize
    return routine.variant(
        compiler,
        op=layer.op,
        real=REAL_TYPES[dtype],
        integer=f"int{8 * dtype.itemsize}_t",
        number=f"int{8 * dtype.itemsize}_t" if packed else f"uint{bits}_t",
        signed=f"int{8 * dtype.itemsize if packed else bits}_t",
        memory_number=f"uint{bits}_t" if packed else "",
        packed=packed,
        images=layer.N if packed else 0,
        channels=_channels(layer) if packed else 0,
        bytes=dtype.itemsize,
        lanes=lanes,
        narrow=narrow,
        meta=META,
    )


def _packs(layer: PoolGeometry, beta: float) -> bool:
    """Whether channels are packed side by side: each for itself, few images, and nothing added to what is there."""
    alone = layer.JTRS[0] == layer.strides[0] == 1 and layer.padding[0] == 0
    fills = layer.C * layer.N >= WIDEST_VECTOR // 4
    return bool(alone and fills and layer.op != "l2" and layer.N <= PACKED_IMAGES and beta == 0)


def _channels(layer: PoolGeometry) -> int:
    """Channels packed side by side."""
    return max(PACKED_LANES // layer.N // 16, 1) * 16


def _room(layer: PoolGeometry, routine: Routine, dtype: DType, beta: float) -> tuple[int, int]:
    """Bytes of a thread that packed blocks lie in, and rows of a band; none where nothing is packed."""
    if not _packs(layer, beta):
        return 0, 1
    width, (_, _, R, _), step = _channels(layer) * layer.N * dtype.itemsize, layer.JTRS, layer.strides[2]
    near, far = layer.W * width, 2 * layer.Q * width  # bytes of a row of the input, and of the output with numbers
    rows = layer.P if routine is FORWARD else layer.H
    if layer.D * layer.M > 1:
        band, bytes_ = rows, layer.D * layer.H * near + layer.M * layer.P * far
    elif routine is FORWARD:
        band = max(1, min(rows, (PACKED_BYTES - R * near) // (step * near + far)))
        bytes_ = min(layer.H, (band - 1) * step + R) * near + band * far
    else:
        band = max(1, min(rows, (PACKED_BYTES - (R // step + 2) * far) // (near + far // step)))
        bytes_ = band * near + min(layer.P, (band + R) // step + 2) * far
    return -(-bytes_ // LINE) * LINE + 2 * LINE, band  # the last vectors may reach behind
