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
from neonlike.kernels.layout import LINE, aligned_empty
from neonlike.kernels.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.toolchain import Compiler
from neonlike.optree.dtypes import DType, compute_dtype

FORWARD = Routine(
    "c/pool_forward.c.j2",
    [POINTER] * 4 + [INT] + [POINTER] * 3 + [REAL, REAL, INT, POINTER, INT, INT, INT],
    "pooling, forward",
)
BACKWARD = Routine(
    "c/pool_backward.c.j2",
    [POINTER] * 5 + [INT] + [POINTER] * 4 + [REAL, REAL, INT, INT, POINTER, INT, INT, INT],
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

    def _fprop_pool(self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, alpha: float, beta: float) -> None:
        run = _variant(FORWARD, self.compiler, layer, compute_dtype(I.dtype), argmax, beta)
        if run is None or not layer.sizeO:
            super()._fprop_pool(layer, I, O, argmax, alpha, beta)
            return
        with forward_arrays(layer, I, O, argmax, beta) as (values, out, numbers):
            _forward(run, layer, values, out, numbers, alpha, beta)

    def _bprop_pool(
        self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, inputs: Any, alpha: float, beta: float
    ) -> None:
        dtype = compute_dtype(I.dtype)
        run = _variant(BACKWARD, self.compiler, layer, dtype, argmax, beta)
        if run is None or not layer.sizeO:
            super()._bprop_pool(layer, I, O, argmax, inputs, alpha, beta)
            return
        with backward_arrays(layer, I, O, argmax, inputs, beta) as (error, delta, numbers, values):
            if values is not None:
                norm = np.empty(layer.dimO, dtype)
                forward = _variant(FORWARD, self.compiler, layer, dtype, None, 0.0)
                _forward(forward, layer, values, norm, None, 1.0, 0.0)
                error = share_of_norm(error, norm)
            streamed = int(beta == 0 and delta.nbytes > STREAMED_RESULT_BYTES and in_lines(delta))
            threads, lines = _lines(layer, backward=True)
            arrays = map(address, (error, delta, numbers, values, lines))
            tables: tuple[Array, ...] = (layer.meta, layer.ranges[1], layer.places, layer.weights)
            ahead = int(delta.nbytes > FETCHED_BYTES)
            room, each, band = _room(layer, BACKWARD, delta.dtype, beta, threads)
            sizes = (streamed, ahead, address(room), each, band, threads)
            run(*arrays, layer.lines[1], *map(address, tables), alpha, beta, *sizes)


def _forward(
    run: Any, layer: PoolGeometry, values: Array, out: Array, numbers: Array | None, alpha: float, beta: float
) -> None:
    threads, lines = _lines(layer, backward=False)
    arrays = map(address, (values, out, numbers, lines))
    tables: tuple[Array, ...] = (layer.meta, layer.ranges[0], layer.places)
    room, each, band = _room(layer, FORWARD, values.dtype, beta, threads)
    sizes = (int(values.nbytes > FETCHED_BYTES), address(room), each, band, threads)
    run(*arrays, layer.lines[0], *map(address, tables), alpha, beta, *sizes)


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


def _room(
    layer: PoolGeometry, routine: Routine, dtype: DType, beta: float, threads: int
) -> tuple[Array | None, int, int]:
    """Memory that packed blocks lie in, bytes of each thread, and rows of a band; none where nothing is packed."""
    if not _packs(layer, beta):
        return None, 0, 1
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
    each = -(-bytes_ // LINE) * LINE + 2 * LINE  # the last vectors may reach behind
    return aligned_empty((threads * each,), np.dtype(np.uint8)), each, band


def _lines(layer: PoolGeometry, backward: bool) -> tuple[int, Array]:
    """Threads, and room for the lines that each works down."""
    threads = threads_for(layer.sizeO * layer.window, SERIAL)
    return threads, np.empty(threads * layer.lines[backward] * LINE_BYTES, np.uint8)
