"""Pooling on a GPU, for the hooks of ``PoolFamily``: a thread a place of what is written, for several images.

The gradient is gathered: a place of the input adds up over the windows that it lies in, in their order. So nothing is
added atomically, and results depend on nothing but sizes.
"""

# ruff: noqa: E741  (I and O are the names that neon gives input and output)

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neonlike.backends.geometry.pool import PoolGeometry
from neonlike.backends.gpu.primitives.calls import Draft, Launched, device_call
from neonlike.backends.gpu.primitives.elements import BLOCK, blocks_for, element_types, is_wide, vector_length
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.primitives.pooling.family import PoolFamily, PoolPass, fits, kept_under
from neonlike.kernels.codegen.emit import STORAGE
from neonlike.kernels.cuda.fit import ALIGNMENT, divisors
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import DType, compute_dtype

NAMES = tuple("CDHWKMPQ") + tuple("JTRS") + tuple(f"{kind}_{axis}" for kind in ("pad", "str") for axis in "cdhw")
"""Sizes as the templates call them."""
ARGUMENTS = f"3Q2dq{1 + len(NAMES) + 3 * 8}i0q"
FORWARD = CudaRoutine("cuda/pool/forward.cu.j2", ARGUMENTS, "pooling")
BACKWARD = CudaRoutine("cuda/pool/backward.cu.j2", ARGUMENTS, "gradient of pooling")
UNROLLED = 16
"""Most positions of a window for which a kernel is compiled that has its sizes; loads of all of them are in flight."""
UNROLLED_WINDOWS = 9
"""The same of windows that a place lies in."""


class PoolCuda(PoolFamily):
    """Overrides of PoolFamily's hooks."""

    device: Any

    def _fprop_pool(self, request: PoolPass, I: Any, O: Any, argmax: Any) -> KernelCall | None:
        if not request.geometry.sizeO:
            return None
        with stored(O, request.beta != 0) as out, _numbers_to_write(request.geometry, argmax) as where:
            make = _Maker(self.device, request, I.dtype, None if where is None else where.dtype)
            return device_call(make.forward, (plain(I), out, where))

    def _bprop_pool(self, request: PoolPass, I: Any, O: Any, argmax: Any, inputs: Any) -> KernelCall | None:
        if not request.geometry.sizeO:
            return None
        where = None if argmax is None else plain(_numbers(request.geometry, argmax))
        values = None if inputs is None else plain(inputs)
        with stored(O, request.beta != 0) as delta:
            make = _Maker(self.device, request, I.dtype, None if where is None else where.dtype)
            return device_call(make.backward, (plain(I), delta, where, values))

    def _pool_workspace(self, request: PoolPass) -> int:
        """Bytes of l2's gradient, for the error over the norm of each window; 0 for others."""
        return _shares_bytes(request.geometry) if request.backward and request.geometry.op == "l2" else 0


class _Maker:
    """Makes the programs of a pass over tensors of one dtype; ``number`` is the dtype of positions, for max pooling."""

    def __init__(self, device: Any, request: PoolPass, dtype: DType, number: DType | None) -> None:
        self.device, self.request, self.dtype, self.number = device, request, dtype, number
        self.layer = request.geometry

    def forward(self, aligned: bool) -> Draft:
        """The forward pass on tensors (input, output, positions)."""
        program = Draft(self.device)
        where = None if self.number is None else Place(2)
        program.steps = [self._step(FORWARD, self.layer.op, (Place(0), Place(1), where), aligned)]
        return program

    def backward(self, aligned: bool) -> Draft:
        """The backward pass on tensors (error, gradient, positions, input)."""
        program = Draft(self.device)
        error, delta, where, values = (Place(slot) for slot in range(4))
        if self.layer.op == "l2":
            shares = program.room(_shares_bytes(self.layer))
            program.steps.append(self._step(FORWARD, "share", (values, shares, error), aligned))
            error = shares
        more = {"max": where, "l2": values}.get(self.layer.op)
        program.steps.append(self._step(BACKWARD, self.layer.op, (error, delta, more), aligned))
        return program

    def _step(self, routine: CudaRoutine, op: str, places: tuple[Place | None, ...], aligned: bool) -> Launched:
        layer, forward = self.layer, routine is FORWARD
        vector = vector_length(self.dtype, layer.N, aligned)
        written = layer.dimO if forward else layer.dimI
        chunks = math.prod(written) // vector
        sizes = *layer.CDHW, *layer.KMPQ, *layer.JTRS, *layer.padding, *layer.strides
        divided = [layer.N // vector, *reversed(written[1:4]), *layer.strides]
        numbers = [self.request.alpha, self.request.beta, chunks, layer.N, *sizes, *divisors(divided, False)]
        context = element_types(self.dtype, vector, (layer.sizeI, layer.sizeO)) | self._context(op, vector, forward)
        return Launched(self.device, routine, (blocks_for(chunks), BLOCK), places, numbers, context)

    def _context(self, op: str, vector: int, forward: bool) -> dict[str, Any]:
        """Context of the templates of pooling besides the types of elements."""
        layer, number = self.layer, self.number
        context = {"op": op, "names": NAMES, "wide": is_wide((layer.sizeI, layer.sizeO))}
        if number is not None:
            context["number"] = STORAGE[number.name]
            context["number_align"] = min(vector * number.itemsize, ALIGNMENT)
            context["compared"] = "int64_t" if number.itemsize == 8 else "int32_t"
        if forward:
            unrolled = layer.window <= UNROLLED
            context["unrolled"] = unrolled
            context["window"] = layer.JTRS if unrolled else ()
        else:
            most = tuple(-(-window // stride) for window, stride in zip(layer.JTRS, layer.strides))
            context["most"] = most if math.prod(most) <= UNROLLED_WINDOWS else ()
            context["clipped"] = bool((layer.counts != layer.window).any())
            context["positions"] = layer.window
        return context


def _shares_bytes(layer: PoolGeometry) -> int:
    return layer.sizeO * compute_dtype(layer.dtype).itemsize


def _numbers(layer: PoolGeometry, argmax: Any) -> Any:
    """The tensor of positions: ``argmax``, or what is kept beside it where that is too narrow."""
    return argmax if fits(layer, argmax) else argmax._original_base.wide_argmax[kept_under(argmax)]


@contextmanager
def _numbers_to_write(layer: PoolGeometry, argmax: Any) -> Iterator[Any]:
    """The contiguous tensor that positions are written into; None where none are."""
    if argmax is None:
        yield None
    elif fits(layer, argmax):
        with stored(argmax) as numbers:
            yield numbers
    else:
        numbers = argmax.backend.fresh(layer.dimO, dtype=layer.argmax_dtype)
        yield numbers
        base = argmax._original_base
        if not hasattr(base, "wide_argmax"):
            base.wide_argmax = {}
        base.wide_argmax[kept_under(argmax)] = numbers
