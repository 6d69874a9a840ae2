"""The linalg family on a GPU: products with alpha and beta through cuBLAS, the rest as expressions on the engine.

Our own kernel, used where cuBLAS is not, applies relu, too. Row sums are a separate kernel, because they sum the
stored, rounded values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.backends.gpu.products.blas import Products
from neonlike.backends.primitives.linalg import LinalgFamily, Product
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import F16, F32, DType, compute_dtype, is_float
from neonlike.optree.functions import F as Functions

F: Any = Functions


class ProductKernels(LinalgFamily):
    """Overrides of LinalgFamily's hooks.

    Attributes
    ----------
    products : Products
    """

    products: Products

    @property
    def product_precision(self) -> str:
        """Precision of factors in float32 products: "float32", the default, "tf32" or "bfloat16".

        Sums are always float32. Settable; backends start from the variable ``NEONLIKE_PRODUCT_PRECISION``. A prepared
        assignment keeps the setting of its preparation.
        """
        return self.products.blas.precision

    @product_precision.setter
    def product_precision(self, precision: str) -> None:
        self.products.blas.set_precision(precision)
        self.executor.replay.clear()  # calls multiply as was set when they were made

    @property
    def cublas_handle(self) -> int | None:  # type: ignore[override]
        """The handle of cuBLAS, for user calls; None if cuBLAS is not available."""
        handle = self.products.blas.handle
        return None if handle is None else handle.value

    def _compound_dot(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> KernelCall | None:
        if self._is_one_product(request, A, B, C, bsum):
            product = self.products.blas.placed(A.array, B.array, C.array, request.alpha, request.beta)
            if product is not None:
                return KernelCall(product, (A.address, B.address, C.address), ()).run()
        sums = self._ready_sums(C, bsum)
        if not self._queue_scaled(request, A, B, C):
            self._epilogue(self.dot(A, B), C, None, request)
        sums()
        return None

    def _ready_sums(self, C: Any, bsum: Any) -> Callable[[], None]:
        """Return a callable that queues the row sums of C; allocating now avoids errors after the write of C."""
        if bsum is None:
            return _nothing
        return self.executor.ready(((bsum, F.sum(C, axis=1)),))

    def _is_one_product(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> bool:
        """Whether cuBLAS computes everything on gapless matrices, whose bytes identify a repeated call's memory."""
        if bsum is not None or request.relu or not all(_fills_memory(tensor.array) for tensor in (A, B, C)):
            return False
        return _scaled_in_the_product(C, (A, B), request.alpha, request.beta, False)

    def _batched_dot(self, request: Product, A: Any, B: Any, C: Any) -> None:
        if C.ndim == 2:
            self._compound_dot(request, *self._matrices(A, B), C, None)
        elif not self._queue_scaled(request, A, B, C):
            product = self.fresh(C.shape, dtype=compute_dtype(C.dtype))
            self._queue_product(A, B, product)
            self._epilogue(product, C, None, request)

    def _queue_scaled(self, request: Product, A: Any, B: Any, C: Any) -> bool:
        """Queue the whole request with alpha and beta in the product; False if that is not possible."""
        after = request.relu and not self.products.applies_relu(compute_dtype(C.dtype))
        if not _scaled_in_the_product(C, (A, B), request.alpha, request.beta, after):
            return False
        self._queue_product(A, B, C, request.alpha, request.beta, request.relu and not after)
        self._epilogue(C, C, None, Product(relu=after))
        return True

    def _queue_product(
        self, a: Any, b: Any, out: Any, alpha: float = 1.0, beta: float = 0.0, relu: bool = False
    ) -> None:
        """Queue out = f(alpha * a.b) + beta * out; f is relu only if ``products.applies_relu``."""
        self.products.ready(a.array, b.array, out.array, compute_dtype(out.dtype), alpha, beta, relu)()

    def _matrices(self, A: Any, B: Any) -> tuple[Any, Any]:
        """Two matrices with product sum over i of A[i].B[i], where A or B is a stack."""
        if A.ndim == 2:
            return A, self._summed(B)
        if B.ndim == 2:
            return self._summed(A), B
        count, rows, inner = A.shape
        side_by_side = self.fresh((rows, count, inner), dtype=A.dtype)
        self.assign(side_by_side, A.permuted((1, 0, 2)))
        below = B if B.is_contiguous else self.fresh(B.shape, dtype=B.dtype)
        if below is not B:
            self.assign(below, B)
        return side_by_side.reshape((rows, count * inner)), below.reshape((count * inner, B.shape[2]))

    def _summed(self, stack: Any) -> Any:
        total = self.fresh((1, *stack.shape[1:]), dtype=compute_dtype(stack.dtype))
        self.assign(total, F.sum(stack, axis=0))
        return total.reshape(stack.shape[1:])

    def _xnor_dot(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> None:
        """Signs are exact in float16, and sums of their products are exact in float32."""
        kind = compute_dtype(C.dtype)
        a, b = (self._signs(x, F16 if kind == F32 else kind) for x in (A, B))
        sums = self._ready_sums(C, bsum)
        self._finish_product(C, None, request, lambda out: self._queue_product(a, b, out))
        sums()

    def _signs(self, tensor: Any, dtype: DType) -> Any:
        signs = self.fresh(tensor.shape, dtype=dtype)
        self.assign(signs, (tensor >= 0) * 2 - 1)
        return signs


def _nothing() -> None:
    """Do nothing: there are no row sums."""


def _fills_memory(array: Any) -> bool:
    """Whether the elements of ``array`` fill the memory between the first and the last."""
    low, high = array.bounds
    return bool(high - low == array.nbytes)


def _scaled_in_the_product(C: Any, factors: tuple[Any, Any], alpha: float, beta: float, relu: bool) -> bool:
    """Whether the product can apply alpha and beta while storing to C, with relu applied afterwards.

    Not for integers, which are scaled as floats, nor for alpha 0, where BLAS returns 0 even for factors of nan.
    """
    exact = is_float(C.dtype) or (alpha == 1.0 and beta == 0.0)
    together = (beta == 0.0 or not relu) and alpha != 0.0 and not C.rounding
    return exact and together and not any(C.alias_of(factor) for factor in factors)
