"""Compiled kernels of the batchnorm family, for the hooks of ``families/batchnorm.py``."""

from __future__ import annotations

from neonlike.backends.cpu.compiled import CompiledFamily, in_lines
from neonlike.backends.families.batchnorm import BatchNormBackward, BatchNormFamily, BatchNormForward
from neonlike.backends.families.operands import Array
from neonlike.kernels.c.routine import INT, POINTER, REAL, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.c.stage import HEADERS, STREAMED_BYTES
from neonlike.kernels.run.calls import Launch

PARALLEL_SIZE = 1 << 16
"""Elements below which one thread is done sooner."""

FPROP_FLAGS = ("GIVEN_SUM", "INFERENCE", "RELU", "BINARY", "STREAMED")
BPROP_FLAGS = ("RELU", "BINARY", "STREAMED")
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

    def _fprop_bn(self, x: Array, rows: dict[str, Array], y: Array, how: BatchNormForward) -> Launch | None:
        function = FPROP.variant(self.compiler, real=REAL_TYPES[x.dtype], flags=FPROP_FLAGS)
        if function is None:
            return super()._fprop_bn(x, rows, y, how)
        streamed = how.accumbeta == 0 and _streamed(y, [x])
        addresses = address(x), *(address(rows.get(name)) for name in _FPROP_ROWS), address(y)
        tail = (
            *x.shape,
            how.eps,
            how.rho,
            how.alpha,
            how.accumbeta,
            _bits(how.given_sum, how.inference, how.relu, how.binary, streamed),
            threads_for(x.size, PARALLEL_SIZE),
        )
        return Launch(function, addresses, tail, refused=f"compound_fprop_bn: {_REFUSED}").run()

    def _bprop_bn(
        self, delta: Array, x: Array, y: Array | None, rows: dict[str, Array], out: Array, how: BatchNormBackward
    ) -> Launch | None:
        function = BPROP.variant(self.compiler, real=REAL_TYPES[x.dtype], flags=BPROP_FLAGS)
        if function is None:
            return super()._bprop_bn(delta, x, y, rows, out, how)
        streamed = how.beta_data == 0 and _streamed(out, [delta, x, y])
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
            *x.shape,
            how.eps,
            how.alpha_data,
            how.beta_data,
            how.alpha_param,
            how.beta_param,
            _bits(y is not None, how.binary, streamed),
            threads_for(x.size, PARALLEL_SIZE),
        )
        return Launch(function, addresses, tail, refused=f"compound_bprop_bn: {_REFUSED}").run()


def _bits(*flags: bool) -> int:
    return sum(bool(flag) << position for position, flag in enumerate(flags))


def _streamed(out: Array, inputs: list[Array | None]) -> bool:
    """True if results would not stay in any cache, start at lines by rows, and are no input, which is in the cache."""
    starts = [address(array) for array in inputs if array is not None]
    if out.nbytes * (1 + len(starts)) <= STREAMED_BYTES or address(out) in starts:
        return False
    return in_lines(out)
