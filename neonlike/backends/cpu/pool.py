"""Compiled kernels of the pool family, for the hooks of ``families/pool.py``.

Forward, a window is a list of the places of its values; backward, an element of the input is a list of the windows that
it lies in. A kernel works a list down for a vector of images at a time, and uses it for all columns that it fits.
"""

# ruff: noqa: E741  (I and O are the names that neon gives input and output)

from __future__ import annotations

import ctypes
import math
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
from neonlike.kernels.routine import POINTER, REAL_TYPES, Routine, address, threads_for, words
from neonlike.kernels.toolchain import Compiler
from neonlike.optree.dtypes import DType, compute_dtype

FORWARD = Routine("c/pool_forward.c.j2", [POINTER] * 5, "pooling, forward")
BACKWARD = Routine("c/pool_backward.c.j2", [POINTER] * 6, "pooling, backward", headers=("stream.h",))
ROWS = Routine("c/pool_rows.c.j2", [POINTER] * 5, "pooling of one image, forward")
WHOLE_FORWARD = Routine("c/pool_whole.c.j2", [POINTER] * 5, "pooling of whole channels, forward")
WHOLE_BACKWARD = Routine("c/pool_whole.c.j2", [POINTER] * 6, "pooling of whole channels, backward")
SCATTER = Routine("c/pool_scatter.c.j2", [POINTER] * 6, "max pooling of few images, backward")
SIZES = (
    ("first", "int64_t"),
    ("most", "int64_t"),
    ("meta", "const int64_t *"),
    ("ranges", "const int64_t *"),
    ("places", "const int32_t *"),
    ("windows", "const int64_t *"),
    ("window_places", "const struct place *"),
    ("weights", "const double *"),
    ("alpha", "double"),
    ("beta", "double"),
    ("streamed", "int64_t"),
    ("ahead", "int64_t"),
    ("each", "int64_t"),
    ("band", "int64_t"),
    ("threads", "int64_t"),
)
"""What kernels take in one struct, and its C types."""
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

ROW_WINDOWS, ROW_SIDE = 6, 8
"""Windows of a row of one image from which on they fill vectors; the longest sides that loops are written out for."""
WHOLE_IMAGES = 16
"""Most images of channels that are one window each; of more, vectors of images are as fast."""
SCATTERED_IMAGES, SCATTERED_CHANNELS, SCATTERED_WINDOW = 31, 8, 16
"""Most images whose errors go to their maxima one by one; the fewest channels, which threads share; and the smallest
window at every place: an error takes some 8 cycles, a vector of elements half a cycle for each window."""

SERIAL = 1 << 15
"""Values read in windows, below which one thread is sooner done."""

FETCHED_BYTES = 2 << 20
"""Images larger than this are fetched from far ahead, since they may not be in the caches."""


class PoolKernels(CompiledFamily, PoolFamily):
    """Overrides of PoolFamily's hooks."""

    def _fprop_pool(self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, alpha: float, beta: float) -> Launch | None:
        run = _forward_variant(self.compiler, layer, compute_dtype(I.dtype), argmax, beta)
        if run is None or not layer.sizeO:
            return super()._fprop_pool(layer, I, O, argmax, alpha, beta)
        with forward_arrays(layer, I, O, argmax, beta) as (values, out, numbers):
            return _forward(run, layer, values, out, numbers, alpha, beta)

    def _bprop_pool(
        self, layer: PoolGeometry, I: Any, O: Any, argmax: Any, inputs: Any, alpha: float, beta: float
    ) -> Launch | None:
        dtype = compute_dtype(I.dtype)
        run = _backward_variant(self.compiler, layer, dtype, argmax, alpha, beta)
        if run is None or not layer.sizeO:
            return super()._bprop_pool(layer, I, O, argmax, inputs, alpha, beta)
        with backward_arrays(layer, I, O, argmax, inputs, beta) as (error, delta, numbers, values):
            if values is not None:
                norm = np.empty(layer.dimO, dtype)
                forward = _forward_variant(self.compiler, layer, dtype, None, 0.0)
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
    if not backward and _in_rows(layer):
        each = _row_room(layer, read.itemsize)
    first = -(-threads * lines * LINE_BYTES // LINE) * LINE  # where the room of packed blocks begins
    largest = result if backward else read
    values: dict[str, Any] = {
        "first": first,
        "most": lines,
        "meta": address(layer.meta),
        "ranges": address(layer.ranges[backward]),
        "places": address(layer.places),
        "windows": address(layer.ranges[0]),
        "window_places": address(layer.window_places),
        "weights": address(layer.weights),
        "alpha": alpha,
        "beta": beta,
        "streamed": int(backward and beta == 0 and result.nbytes > STREAMED_RESULT_BYTES and in_lines(result)),
        "ahead": int(largest.nbytes > FETCHED_BYTES),
        "each": each,
        "band": band,
        "threads": threads,
    }
    block = words([values[name] for name, _ in SIZES])
    addresses = tuple(map(address, arrays))
    return Launch(run, addresses, (ctypes.addressof(block),), first + threads * each, (layer, block))


def _forward_variant(compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any, beta: float) -> Any:
    """The kernel for arrays of ``dtype``; None without a compiler."""
    if layer.whole and layer.op != "l2" and layer.N <= WHOLE_IMAGES:
        return _whole(WHOLE_FORWARD, compiler, layer, dtype, argmax)
    if _in_rows(layer):
        return ROWS.variant(
            compiler,
            op=layer.op,
            real=REAL_TYPES[dtype],
            integer=f"int{8 * dtype.itemsize}_t",
            number=f"uint{_bits(layer, argmax)}_t",
            columns=layer.JTRS[3],
            stride=layer.strides[3],
            lines=layer.JTRS[1] * layer.JTRS[2],
            lanes=WIDEST_VECTOR // dtype.itemsize,
            meta=META,
            sizes=SIZES,
        )
    return _variant(FORWARD, compiler, layer, dtype, argmax, beta)


def _in_rows(layer: PoolGeometry) -> bool:
    """Whether windows of one image fill vectors along a row."""
    small = max(layer.JTRS[3], layer.strides[3], layer.JTRS[1] * layer.JTRS[2]) <= ROW_SIDE
    filled = layer.alone and not layer.caffe  # every window has some input
    return layer.N == 1 and filled and layer.op != "l2" and layer.Q >= ROW_WINDOWS and small


def _row_room(layer: PoolGeometry, itemsize: int) -> int:
    """Bytes of a thread for a row of results, and for their numbers or for the sums of columns."""
    lanes = WIDEST_VECTOR // itemsize
    results = layer.Q + lanes
    sums = max(results * layer.strides[3] + layer.JTRS[3], layer.W + lanes + layer.padding[3])
    return -(-(results + max(2 * results, results + sums + lanes)) * itemsize // LINE) * LINE + LINE


def _backward_variant(
    compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any, alpha: float, beta: float
) -> Any:
    """The same for gradients."""
    if layer.whole and layer.op == "avg" and layer.N <= WHOLE_IMAGES and beta == 0:
        return _whole(WHOLE_BACKWARD, compiler, layer, dtype, None)
    if layer.op == "max" and alpha == 1 and beta == 0 and _scatters(layer):
        apart = all(step >= size for step, size in zip(layer.strides, layer.JTRS))
        number = f"uint{_bits(layer, argmax)}_t"
        common = {"real": REAL_TYPES[dtype], "number": number, "meta": META, "sizes": SIZES}
        return SCATTER.variant(compiler, apart=apart, **common)
    return _variant(BACKWARD, compiler, layer, dtype, argmax, beta)


def _scatters(layer: PoolGeometry) -> bool:
    """Whether sending errors to their maxima takes less time than asking all windows of an element for its own."""
    few = layer.N <= SCATTERED_IMAGES and layer.C >= SCATTERED_CHANNELS and layer.sizeI < 1 << 31
    return layer.alone and few and (layer.window >= SCATTERED_WINDOW or math.prod(layer.strides) > 1)


def _whole(routine: Routine, compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any) -> Any:
    """The kernel for channels that are one window each."""
    lanes = WIDEST_VECTOR // dtype.itemsize
    return routine.variant(
        compiler,
        op=layer.op,
        backward=routine is WHOLE_BACKWARD,
        real=REAL_TYPES[dtype],
        integer=f"int{8 * dtype.itemsize}_t",
        number=f"uint{_bits(layer, argmax)}_t",
        images=layer.N,
        lanes=lanes,
        vectors=math.lcm(layer.N, lanes) // lanes,
        meta=META,
        sizes=SIZES,
    )


def _bits(layer: PoolGeometry, argmax: Any) -> int:
    """Of a number of a position in a window: those of ``argmax``, or of what is kept beside it."""
    if argmax is None:
        return 8
    fits = layer.window - 1 <= np.iinfo(argmax.dtype).max
    return 8 * int((argmax.dtype if fits else layer.argmax_dtype).itemsize)


def _variant(
    routine: Routine, compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any, beta: float
) -> Any:
    """The kernel for windows of any kind, narrow where there are few images."""
    most, bits = WIDEST_VECTOR // dtype.itemsize, _bits(layer, argmax)
    packed = _packs(layer, beta)
    narrow = not packed and layer.N <= FEW_IMAGES[routine] and layer.Q * layer.N >= most
    lanes = most if narrow or packed else min(most, 1 << max(layer.N, 1).bit_length() - 1)
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
        sizes=SIZES,
    )


def _packs(layer: PoolGeometry, beta: float) -> bool:
    """Whether channels are packed side by side: each for itself, few images, and nothing added to what is there."""
    fills = layer.C * layer.N >= WIDEST_VECTOR // 4
    return bool(layer.alone and fills and layer.op != "l2" and layer.N <= PACKED_IMAGES and beta == 0)


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
