"""Compiled kernels for the hooks of ``BatchNormFamily``."""

from __future__ import annotations

from typing import Any

from neonlike.backends.cpu.primitives.compiled import CompiledFamily, in_lines, in_place
from neonlike.backends.primitives.batchnorm.family import (
    BatchNormBackward,
    BatchNormFamily,
    BatchNormForward,
    backward_arrays,
    forward_arrays,
)
from neonlike.backends.tensors.operands import Array
from neonlike.kernels.c.forms import HEADERS
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.c.stage import STREAMED_BYTES
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import compute_dtype

PARALLEL_SIZE = 1 << 16
"""Elements below which a single thread is faster."""

FPROP_FLAGS = ("GIVEN_SUM", "INFERENCE", "RELU", "BINARY", "STREAMED")
BPROP_FLAGS = ("RELU", "BINARY", "OWN_SUM", "STREAMED")
"""Names of the bits of ``flags`` in the templates."""

_HEADERS = (*HEADERS, "batchnorm_rows.h")
FPROP = Routine(
    "c/batchnorm_fprop.c.j2",
    [POINTER] * 8 + [INT] * 2 + [REAL] * 4 + [INT] * 2,
    "batch normalisation",
    _HEADERS,
    INT,
)
BPROP = Routine(
    "c/batchnorm_bprop.c.j2",
    [POINTER] * 9 + [INT] * 2 + [REAL] * 5 + [INT] * 2,
    "gradients of batch normalisation",
    _HEADERS,
    INT,
)
_REFUSED = "no memory for the sums of its rows"
_FPROP_ROWS = ("xsum", "xvar", "gmean", "gvar", "gamma", "beta")


class BatchNormKernels(CompiledFamily, BatchNormFamily):
    """Overrides of BatchNormFamily's hooks."""

    def _fprop_bn(self, request: BatchNormForward, x: Any, *tensors: Any) -> KernelCall | None:
        half, stored = in_place(x.dtype)
        function = FPROP.variant(self.compiler, real=REAL_TYPES[compute_dtype(x.dtype)], half=half, flags=FPROP_FLAGS)
        if function is None:
            return super()._fprop_bn(request, x, *tensors)
        with forward_arrays(request, x, *tensors, stored=stored) as (values, rows, y):
            streamed = not half and request.accumbeta == 0 and _streamed(y, [values])
            addresses = address(values), *(address(rows.get(name)) for name in _FPROP_ROWS), address(y)
            tail = (
                *request.dims,
                request.eps,
                request.rho,
                request.alpha,
                request.accumbeta,
                _bits(request.given_sum, request.inference, request.relu, request.binary, streamed),
                threads_for(values.size, PARALLEL_SIZE),
            )
            return KernelCall(function, addresses, tail, refused=f"compound_fprop_bn: {_REFUSED}").run()

    def _bprop_bn(self, request: BatchNormBackward, *tensors: Any) -> KernelCall | None:
        out_dtype = compute_dtype(tensors[0].dtype)
        half, stored = in_place(tensors[0].dtype)
        function = BPROP.variant(self.compiler, real=REAL_TYPES[out_dtype], half=half, flags=BPROP_FLAGS)
        if function is None:
            return super()._bprop_bn(request, *tensors)
        with backward_arrays(request, *tensors, stored=stored) as (delta, x, y, rows, out):
            streamed = not half and request.beta_data == 0 and _streamed(out, [delta, x, y])
            gradients, read = ("grad_gamma", "grad_beta"), ("xsum", "xvar", "gamma")
            addresses = (
                address(out),
                *(address(rows[name]) for name in gradients),
                address(delta),
                address(x),
                *(address(rows[name]) for name in read),
                address(y),
            )
            tail = (
                *request.dims,
                request.eps,
                request.alpha_data,
                request.beta_data,
                request.alpha_param,
                request.beta_param,
                _bits(y is not None, request.binary, request.own_sum, streamed),
                threads_for(x.size, PARALLEL_SIZE),
            )
            return KernelCall(function, addresses, tail, refused=f"compound_bprop_bn: {_REFUSED}").run()


def _bits(*flags: bool) -> int:
    return sum(bool(flag) << position for position, flag in enumerate(flags))


def _streamed(out: Array, inputs: list[Array | None]) -> bool:
    """Whether to use streaming stores: large results, rows of whole cache lines, and ``out`` not an input."""
    starts = [address(array) for array in inputs if array is not None]
    if out.nbytes * (1 + len(starts)) <= STREAMED_BYTES or address(out) in starts:
        return False
    return in_lines(out)
