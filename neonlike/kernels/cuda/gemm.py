"""Matrix products without a library: any strides, dtypes and sizes, from one template.

cuBLAS is several times as fast. This is used if cuBLAS is missing or does not support the arrays, and to test it.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.emit import STORAGE, convert_store, load_element
from neonlike.kernels.codegen.render import TemplateSource
from neonlike.kernels.cuda.compile import headers, load_kernels
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.step import Call, KernelLaunch, in_turn
from neonlike.optree.dtypes import I64, DType

TILE, THREADS = 64, 256
MAX_MATRICES = 65535
"""Maximum number of blocks of a grid along z."""
_ARGUMENTS = struct.Struct("=3Q2d12q")


class Gemm:
    """Products of matrices, and of stacks of them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.variants: dict[Any, Any] = {}

    def ready(
        self, a: Any, b: Any, out: Any, dtype: DType, alpha: float = 1.0, beta: float = 0.0, relu: bool = False
    ) -> Call:
        """Return a callable that queues ``out[...] = f(alpha * a @ b) + beta * out``, with f = max(., 0) if ``relu``.

        It may be called any number of times, and keeps the memory of the arrays alive.

        Parameters
        ----------
        a, b, out : DeviceArray (m, k), (k, n), (m, n), or stacks (batch, ...) of these
            Arrays of any strides; ``out`` overlaps neither ``a`` nor ``b``.
        dtype : float32, float64 or int64
            Dtype of products and sums.
        alpha, beta : float
        relu : bool
        """
        if 0 in out.shape:
            return partial(in_turn, ())
        *stack, m, n = out.shape
        steps = [_steps(array, len(stack)) for array in (a, b, out)]
        calls: list[Call] = []
        function = self._variant(a, b, out, dtype, alpha != 1 or beta != 0, relu)
        for first in range(0, stack[0] if stack else 1, MAX_MATRICES):
            count = min(MAX_MATRICES, stack[0] - first) if stack else 1
            addresses = [array.address + first * step[2] * array.itemsize for array, step in zip((a, b, out), steps)]
            numbers = (m, n, a.shape[-1], *(number for step in steps for number in step))
            arguments = _ARGUMENTS.pack(*addresses, alpha, beta, *numbers)
            grid = (-(-n // TILE) * -(-m // TILE), 1, count)
            calls.append(KernelLaunch(self.device, function, grid, (THREADS, 1, 1), 0, arguments, (a, b, out)))
        return calls[0] if len(calls) == 1 else partial(in_turn, calls)

    def source(self, a: Any, b: Any, out: Any, dtype: DType, scaled: bool = False, relu: bool = False) -> KernelSource:
        """Kernel source for such arrays.

        Parameters
        ----------
        a, b, out : DeviceArray (m, k), (k, n), (m, n)
        dtype : dtype
            In which sums are computed.
        scaled : bool
            Whether there are other factors than alpha 1 and beta 0.
        relu : bool
        """
        compute = STORAGE[dtype.name]
        context = {
            "a_type": STORAGE[a.dtype.name],
            "b_type": STORAGE[b.dtype.name],
            "c_type": STORAGE[out.dtype.name],
            "compute": compute,
            "a_along": abs(a.strides[-1]) <= abs(a.strides[-2]),
            "b_along": abs(b.strides[-2]) < abs(b.strides[-1]),
            "load_a": load_element("from[0]", a.dtype),
            "load_b": load_element("from[0]", b.dtype),
            "load_c": f"({compute}){load_element('to[0]', out.dtype)}",
            "multiply_add": "total[i][j] + rows[i] * columns[j]",
            "scaled": scaled,
            "relu": relu,
            "result": convert_store("x0", dtype, out.dtype),
        }
        if dtype == I64:  # wraps, as in NumPy; uint64 wraps by definition
            context["multiply_add"] = "nl_wrap_add_i64(total[i][j], nl_wrap_mul_i64(rows[i], columns[j]))"
        source = TemplateSource("cuda/gemm.cu.j2", context)
        return KernelSource(source, source.name, "matrix product", headers(), contracts=True)

    def _variant(self, a: Any, b: Any, out: Any, dtype: DType, scaled: bool, relu: bool) -> Any:
        key = (
            a.dtype, b.dtype, out.dtype, dtype, scaled, relu,
            abs(a.strides[-1]) <= abs(a.strides[-2]), abs(b.strides[-2]) < abs(b.strides[-1]),
        )  # fmt: skip
        function = self.variants.get(key)
        if function is None:
            kernel = self.source(a, b, out, dtype, scaled, relu)
            (function,) = load_kernels(self.device, kernel, [kernel.name])
            self.variants[key] = function
        return function


def _steps(array: Any, stacked: int) -> tuple[int, int, int]:
    """Steps between rows, columns and matrices, in elements; the last is 0 if one matrix is broadcast."""
    size = array.itemsize
    between = array.strides[0] // size if stacked and array.ndim == 3 and array.shape[0] > 1 else 0
    return array.strides[-2] // size, array.strides[-1] // size, between
