"""Compiled kernels for the hooks of ``BatchNormFamily``."""

from __future__ import annotations

from collections.abc import Callable
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
from neonlike.optree.dtypes import DType, compute_dtype

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
_CHANGED_ROWS = (1, 2, 3, 4)
"""Arrays of a forward pass in training that have a number for each row and are changed: all but gamma and beta."""


class BatchNormKernels(CompiledFamily, BatchNormFamily):
    """Overrides of BatchNormFamily's hooks."""

    def _fprop_bn(self, request: BatchNormForward, x: Any, *tensors: Any) -> KernelCall | None:
        half, stored = in_place(x.dtype)
        function = FPROP.variant(self.compiler, real=REAL_TYPES[compute_dtype(x.dtype)], half=half, flags=FPROP_FLAGS)
        if function is None:
            return super()._fprop_bn(request, x, *tensors)
        arrays = forward_arrays(request, x, *tensors, stored=stored, dtype_of=self._dtype_of_rows(x))
        with arrays as (values, rows, y):
            streamed = not half and request.accumbeta == 0 and _streamed(y, [values])
            tail = (
                *request.dims,
                request.eps,
                request.rho,
                request.alpha,
                request.accumbeta,
                _bits(request.given_sum, request.inference, request.relu, request.binary, streamed),
                threads_for(values.size, PARALLEL_SIZE),
            )
            call = KernelCall(function, (), tail, refused=f"compound_fprop_bn: {_REFUSED}")
            given, known = [values, *map(rows.get, _FPROP_ROWS), y], (0, len(_FPROP_ROWS) + 1)
            changed = {} if request.inference else dict.fromkeys(_CHANGED_ROWS, True)
            return self._converting(call, given, changed, known).run()

    def _bprop_bn(self, request: BatchNormBackward, *tensors: Any) -> KernelCall | None:
        out_dtype = compute_dtype(tensors[0].dtype)
        half, stored = in_place(tensors[0].dtype)
        function = BPROP.variant(self.compiler, real=REAL_TYPES[out_dtype], half=half, flags=BPROP_FLAGS)
        if function is None:
            return super()._bprop_bn(request, *tensors)
        arrays = backward_arrays(request, *tensors, stored=stored, dtype_of=self._dtype_of_rows(tensors[0]))
        with arrays as (delta, x, y, rows, out):
            streamed = not half and request.beta_data == 0 and _streamed(out, [delta, x, y])
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
            call = KernelCall(function, (), tail, refused=f"compound_bprop_bn: {_REFUSED}")
            gradients, read = [rows["grad_gamma"], rows["grad_beta"]], [rows["xsum"], rows["xvar"], rows["gamma"]]
            given, keep = [out, *gradients, delta, x, *read, y], request.beta_param != 0
            return self._converting(call, given, {1: keep, 2: keep}, (0, 3, 4, 8)).run()

    def _dtype_of_rows(self, x: Any) -> Callable[[Any], DType]:
        """The dtype of arrays with a number for each row, of tensors beside ``x``."""
        kind = compute_dtype(x.dtype)
        return lambda tensor: self._stored_dtype(tensor, kind)


def _bits(*flags: bool) -> int:
    return sum(bool(flag) << position for position, flag in enumerate(flags))


def _streamed(out: Array, inputs: list[Array | None]) -> bool:
    """Whether to use streaming stores: large results, rows of whole cache lines, and ``out`` not an input."""
    starts = [address(array) for array in inputs if array is not None]
    if out.nbytes * (1 + len(starts)) <= STREAMED_BYTES or address(out) in starts:
        return False
    return in_lines(out)
