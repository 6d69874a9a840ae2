"""The linalg family on the CPU: matrix products, also into strided memory, and products of signs as bits."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from neonlike.backends.cpu.primitives.compiled import CompiledFamily, strided
from neonlike.backends.cpu.primitives.int8 import Int8Kernels
from neonlike.backends.primitives.linalg import (
    Array,
    LinalgFamily,
    Product,
    blas_takes,
    matrices,
    matrix_product,
)
from neonlike.backends.tensors.operands import written
from neonlike.kernels.c import gemm
from neonlike.kernels.c.convert import as_floats, convertible
from neonlike.kernels.c.gemm_blas import BlasLaunch, find_small_launch
from neonlike.kernels.c.routine import INSTRUCTIONS, INT, POINTER, REAL_TYPES, Routine, address, threads_for
from neonlike.kernels.c.stacks import StackLaunch
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import F32, compute_dtype

XNOR = Routine(
    "c/xnor_product.c.j2",
    (*(POINTER, INT, INT) * 2, POINTER, *(INT,) * 4),
    "exact product of signs, 64 at a time",
    INSTRUCTIONS,
    result=ctypes.c_int,
)
PARALLEL_WORK = 1 << 17
"""Words to multiply and numbers to pack below which starting threads does not pay."""
MOST_IN_PROGRAM = 256
"""Most products of a stack that are steps of one program."""


class BinaryKernels(Int8Kernels, CompiledFamily, LinalgFamily):
    """Overrides of LinalgFamily's hooks."""

    def _compound_dot(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> KernelCall | None:
        """Compute the product in a kernel with alpha and beta, unless relu comes between them."""
        if A.dtype != C.dtype:
            return self._compound_dot_int8(request, A, B, C, bsum)
        a, b, c = A.asnumpyarray(), B.asnumpyarray(), C.array
        call = self._product_call(request, a, b, c)
        if call is None:
            self._finish_product(C, bsum, request, lambda out: self._multiply(a, b, out))
            return None
        call.run()
        if request.relu or bsum is not None:
            self._epilogue(C, C, bsum, Product(relu=request.relu))
        return call

    def _product_call(self, request: Product, a: Array, b: Array, c: Array) -> KernelCall | None:
        """Call of a kernel that also applies alpha and beta; None if that is left to NumPy, or relu comes between them.

        Of 16-bit floats it is a kernel of float32, but for pairs of bfloat16, which are read and stored as they are.
        """
        if self.compiler is None or (request.beta != 0.0 and request.relu) or not c.size:
            return None
        numbers, apart = (request.alpha, request.beta), ((0, 1),)
        if not convertible(c.dtype, self.compiler):
            launch = _stack_launch(request, a, b, c, self.compiler, self._pairs_of(c.dtype))
            places = address(a), address(b), address(c)
            return None if launch is None else KernelCall(launch, places, numbers, apart=apart)
        dense = all(as_floats(one) is not None for one in (a, b, c))
        if not dense or any(np.may_share_memory(one, c) for one in (a, b)):
            return None
        pairs = gemm.pairs_of(_first(a), _first(b), _first(c), self._pairs_of(c.dtype), self.compiler)
        one, other, into = (a, b, c) if pairs else [np.empty_like(one, F32) for one in (a, b, c)]
        launch = _stack_launch(request, one, other, into, self.compiler, pairs)
        if launch is None:
            return None
        call = KernelCall(launch, (), numbers, apart=apart)
        return self._converting(call, (a, b, c), {2: request.beta != 0.0}, (0, 1, 2) if pairs else ())

    def _batched_dot(self, request: Product, A: Any, B: Any, C: Any) -> KernelCall | None:
        """Compute the products in kernels with alpha and beta, unless relu comes between them."""
        alpha, beta, relu = request
        a, b, c = *matrices(A.asnumpyarray(), B.asnumpyarray(), C), C.array
        if c.ndim == 3 and len(c) <= MOST_IN_PROGRAM and (call := self._product_call(request, a, b, c)) is not None:
            call.run()
            if relu:
                self._epilogue(C, C, None, Product(relu=True))
            return call
        fits = self.compiler is not None and c.ndim == 3 and (beta == 0.0 or not relu)
        if fits and gemm.multiply(a, b, c, alpha, beta, self.compiler, self._pairs_of(c.dtype)):
            self._epilogue(C, C, None, Product(relu=relu))
        else:
            self._finish_product(C, None, request, lambda out: self._multiply(a, b, out))
        return None

    def _multiply(self, a: Array, b: Array, out: Any) -> None:
        """Compute the tensor ``out`` = a.b, directly in its memory if kernels or BLAS can write there."""
        array = out.array
        if array.dtype == compute_dtype(array.dtype) and (array.flags.c_contiguous or blas_takes(array)):
            self._product(a, b, array)
        else:
            with written(out) as array:
                self._product(a, b, array)

    def _product(self, a: Array, b: Array, out: Array) -> None:
        fits = self.compiler is not None and out.size * a.shape[-1] >= gemm.FEWEST_OF_ALL
        if not fits or not gemm.multiply(a, b, out, compiler=self.compiler, pairs=self._pairs_of(out.dtype)):
            matrix_product(a, b, out)

    def _xnor_dot(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> None:
        """Pack signs into bits if there is a C compiler; integers use the definition."""
        real = REAL_TYPES.get(compute_dtype(C.dtype))
        function = None if real is None else XNOR.variant(self.compiler, real=real)
        if function is None or C.size == 0:
            super()._xnor_dot(request, A, B, C, bsum)
            return
        self._finish_product(C, bsum, request, lambda out: _multiply_signs(function, A, B, out))


def _first(x: Array) -> Array:
    """The matrix ``x``, or the first of a stack."""
    return x if x.ndim == 2 else x[0]


def _stack_launch(
    request: Product, a: Array, b: Array, c: Array, compiler: Compiler, pairs: int
) -> gemm.GemmLaunch | BlasLaunch | StackLaunch | None:
    """The kernel for matrices or stacks of these layouts; None if that is left to NumPy."""
    if c.ndim == 3 and any(np.may_share_memory(one, c) for one in (a, b)):
        return None
    launch = _product_launch(request, _first(a), _first(b), _first(c), compiler, pairs)
    if launch is None or c.ndim == 2:
        return launch
    one, other, into = (x.strides[0] if x.ndim == 3 else 0 for x in (a, b, c))
    return StackLaunch(launch, (one, other, into), len(c))


def _product_launch(
    request: Product, a: Array, b: Array, c: Array, compiler: Compiler, pairs: int
) -> gemm.GemmLaunch | BlasLaunch | None:
    """The kernel for arrays of these layouts; None if that is left to NumPy."""
    found = gemm.product(a, b, c, request.alpha, compiler, pairs)
    if found is not None or c.size * a.shape[1] >= gemm.FEWEST_PRODUCTS:
        return found
    apart = not any(np.may_share_memory(*pair) for pair in ((a, b), (a, c), (b, c)))
    if not apart or c.dtype.type(request.alpha) == 0:  # with alpha 0 BLAS libraries skip nan in the factors
        return None
    return find_small_launch(a, b, c, compiler, vectors=True)


def _multiply_signs(function: Any, A: Any, B: Any, out: Any) -> None:
    (m, k), n = A.shape, B.shape[1]
    a, b = strided(A), strided(B)
    steps = [[step // x.itemsize for step in x.strides] for x in (a, b)]
    threads = threads_for(m * n * (k // 64 + 1) // 16 + m * k + k * n, PARALLEL_WORK)
    with written(out) as array:
        failed = function(address(a), *steps[0], address(b), *steps[1], address(array), m, n, k, threads)
        if failed:
            raise MemoryError(f"xnor_compound_dot: no memory for the signs of {A.shape} and {B.shape}")
