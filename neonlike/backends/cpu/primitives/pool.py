"""Compiled kernels for the hooks of ``PoolFamily``.

Forward, a window is a list of the offsets of its values; backward, an element of the input is a list of its windows.
A kernel processes a list for a vector of images at a time, and reuses it for all columns that have it.
"""

# ruff: noqa: E741  (I and O are the names that neon gives input and output)

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from neonlike.backends.cpu.primitives.compiled import STREAMED_RESULT_BYTES, CompiledFamily, in_lines, in_place
from neonlike.backends.cpu.primitives.pool_few import (
    SIZES,
    Kernel,
    few_backward,
    few_forward,
    lanes_of,
    number_bits,
    types,
)
from neonlike.backends.geometry.pool import LINE_BYTES, PoolGeometry
from neonlike.backends.primitives.pooling.definition import share_of_norm
from neonlike.backends.primitives.pooling.family import PoolFamily, PoolPass, backward_arrays, forward_arrays
from neonlike.backends.tensors.operands import Array
from neonlike.kernels.c.routine import INSTRUCTIONS, POINTER, VECMATH, Routine, address, threads_for, words
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.calls import KernelCall
from neonlike.kernels.run.memory import LINE
from neonlike.optree.dtypes import DType, compute_dtype, half_of

HEADERS = (*INSTRUCTIONS, "stream.h", "halves.h", *VECMATH)
FORWARD = Routine("c/pooling/forward.c.j2", [POINTER] * 5, "pooling, forward", HEADERS)
BACKWARD = Routine("c/pooling/backward.c.j2", [POINTER] * 6, "pooling, backward", HEADERS)
FEW_IMAGES = 7
"""Most images for which lanes are errors of neighbouring positions of a row; with more, short vectors are faster."""

PACKED_IMAGES, PACKED_LEAST, PACKED_LANES = 15, 16, 32
"""Gradients with channels packed innermost: most images; fewest channels times images; how many are packed together, of
16 channels or more."""
PACKED_BYTES = 1 << 18
"""Most bytes of a packed band of rows, input and output: it stays in a core's own cache."""

SERIAL = 1 << 15
"""Values read in windows, below which one thread is faster than several."""

FETCHED_BYTES = 2 << 20
"""Images larger than this are prefetched far ahead, since they may not be in the caches."""


class PoolKernels(CompiledFamily, PoolFamily):
    """Overrides of PoolFamily's hooks."""

    def _fprop_pool(self, request: PoolPass, I: Any, O: Any, argmax: Any) -> KernelCall | None:
        layer, dtype = request.geometry, _common(I, O)
        kernel = _kernel(self.compiler, request, dtype, argmax)
        if kernel.run is None or not layer.sizeO:
            return super()._fprop_pool(request, I, O, argmax)
        with forward_arrays(layer, I, O, argmax, request.beta, self._pool_dtype(kernel, I, O)) as arrays:
            return self._pool_call(kernel, request, arrays).run()

    def _bprop_pool(self, request: PoolPass, I: Any, O: Any, argmax: Any, inputs: Any) -> KernelCall | None:
        layer, dtype = request.geometry, _common(I, O)
        kernel = _kernel(self.compiler, request, dtype, argmax)
        if kernel.run is None or not layer.sizeO:
            return super()._bprop_pool(request, I, O, argmax, inputs)
        stored = kernel.stored if layer.op == "l2" else self._pool_dtype(kernel, I, O)
        arrays = backward_arrays(layer, I, O, argmax, inputs, request.beta, stored)
        with arrays as (error, delta, numbers, values):
            if values is not None:
                norm, forward = np.empty(layer.dimO, values.dtype), PoolPass(layer, False)
                _launch(_kernel(self.compiler, forward, values.dtype, None), forward, (values, norm, None)).run()
                error = share_of_norm(error, norm)
            return self._pool_call(kernel, request, (error, delta, numbers, values)).run()

    def _pool_dtype(self, kernel: Kernel, I: Any, O: Any) -> DType | None:
        """The dtype of a call's arrays, if it is not the compute dtype: that of both tensors, if of 16-bit floats."""
        return kernel.stored or (self._stored_dtype(I, compute_dtype(I.dtype)) if I.dtype == O.dtype else None)

    def _pool_call(self, kernel: Kernel, request: PoolPass, arrays: Sequence[Array | None]) -> KernelCall:
        """A call of ``kernel``, with conversions of arrays that it does not read and write in 16 bits itself."""
        known = (0, 1) if kernel.stored else ()
        return self._converting(_launch(kernel, request, arrays), arrays, {1: request.beta != 0}, known)

    def _pool_workspace(self, request: PoolPass) -> int:
        """Bytes of the kernel, which is compiled for it, and for l2's gradient of the norms of a forward pass."""
        layer, dtype = request.geometry, compute_dtype(request.geometry.dtype)
        argmax = np.empty(0, layer.argmax_dtype) if layer.op == "max" else None
        kernel = _kernel(self.compiler, request, layer.dtype, argmax)
        if kernel.run is None or not layer.sizeO:
            return super()._pool_workspace(request)
        needed = _work(kernel, request)[1]
        if request.backward and layer.op == "l2":
            forward = PoolPass(layer, False)
            needed = max(needed, self._pool_workspace(forward)) + layer.sizeO * dtype.itemsize
        converted = 0 if kernel.stored or dtype == layer.dtype else (layer.sizeI + layer.sizeO) * dtype.itemsize
        return needed + converted


def _work(kernel: Kernel, request: PoolPass) -> tuple[int, int]:
    """Bytes of workspace before the packed blocks, and in total."""
    layer = request.geometry
    threads, lines = _threads(layer), layer.lines[request.backward]
    first = -(-threads * lines * LINE_BYTES // LINE) * LINE
    return first, first + threads * kernel.each


def _threads(layer: PoolGeometry) -> int:
    return threads_for(layer.sizeO * layer.window, SERIAL)


def _launch(kernel: Kernel, request: PoolPass, arrays: Sequence[Array | None]) -> KernelCall:
    """A call of ``kernel``; ``arrays`` are what it reads, what it writes, and further ones."""
    layer, backward, beta = request.geometry, request.backward, request.beta
    read, result, *_ = arrays
    assert read is not None and result is not None
    first, work = _work(kernel, request)
    largest = result if backward else read
    streamed = backward and beta == 0 and result.nbytes > STREAMED_RESULT_BYTES and in_lines(result)
    values: dict[str, Any] = {
        "first": first,
        "most": kernel.most or layer.lines[backward],
        "meta": address(layer.meta),
        "ranges": address(layer.ranges[backward]),
        "places": address(layer.places),
        "windows": address(layer.ranges[0]),
        "window_places": address(layer.window_places),
        "weights": address(layer.weights),
        "alpha": request.alpha,
        "beta": beta,
        "streamed": int(streamed and not half_of(result.dtype)),
        "ahead": int(largest.nbytes > FETCHED_BYTES),
        "each": kernel.each,
        "band": kernel.band,
        "pitch": kernel.pitch,
        "threads": _threads(layer),
    }
    block = words([values[name] for name, _ in SIZES])
    addresses = tuple(map(address, arrays))
    return KernelCall(kernel.run, addresses, (ctypes.addressof(block),), work, (layer, block))


def _common(I: Any, O: Any) -> DType:
    """The dtype of both tensors, or in which values of both are computed."""
    dtype: DType = I.dtype
    return dtype if dtype == O.dtype else compute_dtype(dtype)


def _kernel(compiler: Compiler | None, request: PoolPass, stored: DType, argmax: Any) -> Kernel:
    """The kernel for tensors of dtype ``stored``; without a compiler, it has no function."""
    layer, beta, dtype = request.geometry, request.beta, compute_dtype(stored)
    if request.backward:
        few = few_backward(compiler, layer, dtype, argmax, request.alpha, beta)
        return few or _backward(compiler, layer, stored, argmax, beta)
    few = few_forward(compiler, layer, dtype, argmax)
    if few is not None:
        return few
    number, lanes = f"uint{number_bits(layer, argmax)}_t", _lanes_of_images(compiler, layer, dtype)
    half, kept = in_place(stored if lanes == lanes_of(compiler, dtype) else dtype)
    return Kernel(FORWARD.variant(compiler, lanes=lanes, half=half, **types(layer, dtype, number)), stored=kept)


def _lanes_of_images(compiler: Compiler | None, layer: PoolGeometry, dtype: DType) -> int:
    """Lanes of vectors that images fill."""
    return min(lanes_of(compiler, dtype), 1 << max(layer.N, 1).bit_length() - 1)


def _backward(compiler: Compiler | None, layer: PoolGeometry, stored: DType, argmax: Any, beta: float) -> Kernel:
    """The kernel of gradients for windows of any kind; ``narrow``: lanes are few images of neighbouring positions."""
    dtype = compute_dtype(stored)
    most, bits = lanes_of(compiler, dtype), number_bits(layer, argmax)
    packed = _packs(layer, beta)
    narrow = not packed and layer.N <= FEW_IMAGES and layer.Q * layer.N >= most
    half, kept = in_place(stored if layer.N >= most and not packed and layer.op != "l2" else dtype)
    run = BACKWARD.variant(
        compiler,
        signed=f"int{8 * dtype.itemsize if packed else bits}_t",
        memory_number=f"uint{bits}_t" if packed else "",
        packed=packed,
        images=layer.N if packed else 0,
        channels=_channels(layer) if packed else 0,
        lanes=most if narrow or packed else _lanes_of_images(compiler, layer, dtype),
        narrow=narrow,
        half=half,
        **types(layer, dtype, f"int{8 * dtype.itemsize}_t" if packed else f"uint{bits}_t"),
    )
    if packed:
        return Kernel(run, *_room(layer, dtype))
    return Kernel(run, stored=kept)


def _packs(layer: PoolGeometry, beta: float) -> bool:
    """Whether the gradient packs channels innermost: pooled each for itself, with few images and beta 0."""
    fills = layer.C * layer.N >= PACKED_LEAST
    return bool(layer.alone and fills and layer.op != "l2" and layer.N <= PACKED_IMAGES and beta == 0)


def _channels(layer: PoolGeometry) -> int:
    """Channels that are packed together."""
    return max(PACKED_LANES // layer.N // 16, 1) * 16


def _room(layer: PoolGeometry, dtype: DType) -> tuple[int, int]:
    """Bytes of a thread's workspace for packed blocks, and rows of a band."""
    width, (_, _, R, _), step = _channels(layer) * layer.N * dtype.itemsize, layer.JTRS, layer.strides[2]
    row_in, row_out = layer.W * width, 2 * layer.Q * width  # bytes of a row of input, and of output with its argmax
    if layer.D * layer.M > 1:
        band, bytes_ = layer.H, layer.D * layer.H * row_in + layer.M * layer.P * row_out
    else:
        band = max(1, min(layer.H, (PACKED_BYTES - (R // step + 2) * row_out) // (row_in + row_out // step)))
        bytes_ = band * row_in + min(layer.P, (band + R) // step + 2) * row_out
    return -(-bytes_ // LINE) * LINE + 2 * LINE, band  # the last vectors may extend past the end
