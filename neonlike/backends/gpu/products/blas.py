"""Matrix products of GPU arrays through cuBLAS; only operands that it cannot read are copied.

cuBLAS is column-major, our arrays are row-major: the row-major product C = A.B is the column-major C' = B'.A'. A
transposed view is a flag, so every matrix with contiguous rows or columns is multiplied without a copy. float16 and
bfloat16 are summed in float32. float32 products are of float32 factors unless ``precision`` says otherwise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

from neonlike import settings
from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.backends.gpu.products.cublas import Handle, open_handle
from neonlike.errors import ArgumentError
from neonlike.kernels.cuda.step import Call, in_turn
from neonlike.kernels.run.arrays import remember
from neonlike.optree.dtypes import F32, F64, DType

LARGEST = 2**31 - 1
"""cuBLAS sizes and strides are 32-bit integers."""

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
"""cudaDataType_t by dtype name."""
SUM_F32, SUM_F64, DEFAULT_ALGORITHM = 68, 70, -1
PRECISIONS = dict(zip(settings.PRECISIONS, (SUM_F32, 77, 75)))
"""cublasComputeType_t of float32 products."""

_UNKNOWN: Any = object()


@cache
def multiplies(factors: DType, result: DType) -> bool:
    """Whether cuBLAS multiplies ``factors`` into ``result``: equal dtypes, and 16-bit floats into float32."""
    return factors.name in TYPES and (result == factors or (factors.itemsize == 2 and result == F32))


@cache
def _type(dtype: DType) -> int:
    return TYPES[dtype.name]


class Matrix(NamedTuple):
    """cuBLAS layout of a matrix, or of a stack of matrices.

    Attributes
    ----------
    transposed : bool
        Whether columns are contiguous, not rows.
    step : int
        Leading dimension: elements between rows, or between columns if transposed.
    between : int
        Elements between matrices of the stack; 0: one matrix is used for all.
    """

    transposed: bool
    step: int
    between: int


def layout(array: DeviceArray) -> Matrix | None:
    """cuBLAS layout of ``array``, which is not empty, in place; None if there is none."""
    rows, columns = array.shape[-2:]
    size = array.itemsize
    down, right = (step // size for step in array.strides[-2:])
    between = array.strides[0] // size if array.ndim == 3 and array.shape[0] > 1 else 0
    if between < 0:
        return None
    if right == 1 or columns == 1:
        step = columns if rows == 1 else down
        if columns <= step <= LARGEST:
            return Matrix(False, step, between)
    if down == 1 or rows == 1:
        if rows <= right <= LARGEST:
            return Matrix(True, right, between)
    return None


class Blas:
    """Matrix products through cuBLAS.

    Parameters
    ----------
    device : GpuDevice

    Attributes
    ----------
    precision : str
        See :meth:`set_precision`.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.precision = ""
        self._products: dict[Any, PlacedProduct | None] = {}
        self.set_precision(settings.PRODUCT_PRECISION.get())

    def set_precision(self, precision: str) -> None:
        """Set the precision to which factors of float32 products may be rounded.

        Parameters
        ----------
        precision : {"float32", "tf32", "bfloat16"}
            Mantissas of 23, 10 or 7 bits. Sums are always float32.

        Raises
        ------
        ArgumentError
            If it is none of these.
        """
        if precision not in PRECISIONS:
            raise ArgumentError(f"product_precision: got {precision!r}; one of {', '.join(PRECISIONS)} is expected")
        self.precision = precision

    @cached_property
    def handle(self) -> Handle | None:
        """cuBLAS on this device, opened on first use; None if it is not available."""
        return open_handle(self.device)

    def takes(self, factors: DType, result: DType) -> bool:
        """Whether cuBLAS is available and supports these dtypes."""
        return multiplies(factors, result) and self.handle is not None

    def ready(self, a: Any, b: Any, out: Any, alpha: float = 1.0, beta: float = 0.0) -> Call | None:
        """Return a callable that queues ``out = alpha * a.b + beta * out``, at least in float32; None if unsupported.

        Parameters
        ----------
        a, b, out : DeviceArray (m, k), (k, n), (m, n), or stacks (x, ...) of these
            A matrix ``a`` or ``b`` with a stack ``out`` is shared by all. ``out`` overlaps neither of them. With beta 0
            the old ``out`` is not read.
        alpha, beta : float
        """
        product = self.placed(a, b, out, alpha, beta)
        if product is None:
            return None
        arguments = product.arguments(a.address, b.address, out.address)
        return _Queue(product.handle, product.function, arguments, (a, b, out, product))

    def placed(self, a: Any, b: Any, out: Any, alpha: float = 1.0, beta: float = 0.0) -> PlacedProduct | None:
        """The product of :meth:`ready` for arrays of these layouts at any addresses; None if unsupported.

        Parameters
        ----------
        a, b, out, alpha, beta
            As of :meth:`ready`.
        """
        key = (
            a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, out.shape, out.strides, out.dtype, alpha, beta,
            self.precision,
        )  # fmt: skip
        found = self._products.get(key, _UNKNOWN)
        return remember(self._products, key, self._place(a, b, out, alpha, beta)) if found is _UNKNOWN else found

    def _place(self, a: Any, b: Any, out: Any, alpha: float, beta: float) -> PlacedProduct | None:
        """Compute :meth:`placed` without cache."""
        if a.dtype != b.dtype or 0 in out.shape or not a.shape[-1] or not self.takes(a.dtype, out.dtype):
            return None
        turned = out.shape[-1] != 1 and out.strides[-1] != out.itemsize  # by columns: the transposed product
        if turned:
            a, b, out = _transposed(b), _transposed(a), _transposed(out)
        layouts = [layout(array) for array in (a, b, out)]
        if None in layouts or max(*out.shape, a.shape[-1]) > LARGEST:
            return None
        left, right, result = (found for found in layouts if found is not None)
        if result.transposed:
            return None
        return self._placed(a, b, out, (left, right, result), (alpha, beta), turned)

    def _placed(
        self,
        a: Any,
        b: Any,
        out: Any,
        layouts: tuple[Matrix, Matrix, Matrix],
        factors: tuple[float, float],
        turned: bool,
    ) -> PlacedProduct:
        left, right, result = layouts
        handle = self.handle
        assert handle is not None
        number: Any = ctypes.c_double if out.dtype == F64 else ctypes.c_float
        scale, keep = map(number, factors)
        stack = out.shape[0] if out.ndim == 3 else 1
        one = stack == 1

        def lies(array: Any, matrix: Matrix) -> tuple[int, ...]:
            there = (_type(array.dtype), matrix.step)
            return there if one else (*there, matrix.between)

        parts = (
            (int(right.transposed), int(left.transposed), out.shape[-1], out.shape[-2], a.shape[-1],
             ctypes.addressof(scale)),
            lies(b, right),
            (*lies(a, left), ctypes.addressof(keep)),
            (*lies(out, result), *(() if one else (stack,)), self._sums(a.dtype), DEFAULT_ALGORITHM),
        )  # fmt: skip
        return PlacedProduct(handle, one, parts, (scale, keep), turned)

    def _sums(self, factors: DType) -> int:
        if factors == F32:
            return PRECISIONS[self.precision]
        return SUM_F64 if factors == F64 else SUM_F32


@dataclass(slots=True, eq=False)
class PlacedProduct:
    """A prepared call of cuBLAS for matrices of one layout: called with their addresses, it queues the product.

    ``kept`` holds the numbers referenced by ``parts``, the arguments between addresses; ``turned``: cuBLAS computes the
    transposed product.
    """

    handle: Handle
    one: bool
    parts: tuple[tuple[int, ...], ...]
    kept: tuple[Any, ...]
    turned: bool

    @property
    def function(self) -> Any:
        """The library's function for one matrix, or for a stack."""
        return self.handle.gemm if self.one else self.handle.gemms

    def __call__(self, a: int, b: int, out: int) -> None:
        """Queue the product.

        Parameters
        ----------
        a, b, out : int
            Addresses.
        """
        self.handle.call(self.function, self.arguments(a, b, out))

    def arguments(self, a: int, b: int, out: int) -> tuple[int, ...]:
        """Arguments of ``function`` for matrices at these addresses.

        Parameters
        ----------
        a, b, out : int
        """
        if self.turned:
            a, b = b, a
        first, second, third, last = self.parts
        return (*first, b, *second, a, *third, out, *last)


@dataclass(slots=True, eq=False)
class _Queue:
    """A prepared, repeatable call of cuBLAS; ``kept`` is its memory."""

    handle: Handle
    function: Any
    arguments: tuple[Any, ...]
    kept: tuple[Any, ...]

    def __call__(self) -> None:
        self.handle.call(self.function, self.arguments)


def _transposed(array: Any) -> Any:
    """The transposed matrix, or stack of transposed matrices."""
    order = (*range(array.ndim - 2), array.ndim - 1, array.ndim - 2)
    return array.transpose(order)


class Kernels(NamedTuple):
    """Kernels of the engine used by :class:`Products` besides cuBLAS.

    Attributes
    ----------
    copy : callable
        ``copy(source, target)`` returns a callable that queues ``target = source``, converted.
    product : callable
        ``product(a, b, out, dtype, alpha, beta, relu)`` returns a callable that queues the product, in ``dtype``, of
        any arrays that do not overlap ``out``.
    """

    copy: Callable[[Any, Any], Call]
    product: Callable[[Any, Any, Any, DType, float, float, bool], Call]


class Products:
    """All products: through cuBLAS, on copies if necessary, and by our own kernels otherwise.

    Parameters
    ----------
    device : GpuDevice

    Attributes
    ----------
    blas : Blas
    kernels : Kernels
        Kernels of the engine; set by the backend after creating it.
    """

    kernels: Kernels

    def __init__(self, device: Any) -> None:
        self.device, self.blas = device, Blas(device)

    def applies_relu(self, dtype: DType) -> bool:
        """Whether products in ``dtype`` run on our own kernels, which apply relu while storing."""
        return not self.blas.takes(dtype, dtype)

    def ready(
        self, a: Any, b: Any, out: Any, dtype: DType, alpha: float = 1.0, beta: float = 0.0, relu: bool = False
    ) -> Call:
        """Return a callable that queues ``out = f(alpha * a.b) + beta * out``; memory is allocated now.

        Parameters
        ----------
        a, b, out : DeviceArray
            Any strides and dtypes; with integers alpha is 1 and beta 0.
        dtype : float32, float64, int64 or uint64
            Dtype of products and sums.
        alpha, beta : float
        relu : bool
            f = max(., 0), else the identity; only if :meth:`applies_relu`.
        """
        assert not relu or self.applies_relu(dtype)
        if 0 in out.shape:
            return partial(in_turn, ())
        call = self.blas.ready(a, b, out, alpha, beta)
        if call is not None:
            return call
        if a.shape[-1] and self.blas.takes(dtype, dtype):
            return self._on_copies(a, b, out, dtype, alpha, beta)
        return self.kernels.product(a, b, out, dtype, alpha, beta, relu)

    def placed(
        self, a: Any, b: Any, out: Any, dtype: DType, alpha: float = 1.0, beta: float = 0.0
    ) -> Callable[[int, int, int], None]:
        """Return a callable that queues the product of :meth:`ready` at the addresses of arrays with these layouts.

        Parameters
        ----------
        a, b, out : DeviceArray (m, k), (k, n), (m, n)
        dtype : dtype
            In which sums are computed.
        alpha, beta : float
        """
        product = self.blas.placed(a, b, out, alpha, beta)
        return product or partial(self._at, (a, b, out), (dtype, alpha, beta))

    def _at(self, arrays: Sequence[Any], how: tuple[DType, float, float], *addresses: int) -> None:
        """Queue the product of ``arrays`` at ``addresses`` through cuBLAS or our own kernels."""
        moved = [DeviceArray(None, at, x.shape, x.strides, x.dtype) for x, at in zip(arrays, addresses)]
        self.ready(moved[0], moved[1], moved[2], *how)()

    def _on_copies(self, a: Any, b: Any, out: Any, dtype: DType, alpha: float, beta: float) -> Call:
        """The product on copies of operands whose strides or dtypes cuBLAS does not support together."""
        factors = a.dtype if a.dtype == b.dtype and multiplies(a.dtype, dtype) else dtype
        calls: list[Call] = []
        a, b = self._readable(a, factors, calls), self._readable(b, factors, calls)
        result = out
        if layout(out) is None or not multiplies(factors, out.dtype):
            result = self.device.empty(out.shape, dtype)
            if beta:
                calls.append(self.kernels.copy(out, result))
        call = self.blas.ready(a, b, result, alpha, beta)
        calls.append(call or self.kernels.product(a, b, result, dtype, alpha, beta, False))  # None: beyond 32-bit sizes
        if result is not out:
            calls.append(self.kernels.copy(result, out))
        return calls[0] if len(calls) == 1 else partial(in_turn, calls)

    def _readable(self, array: Any, dtype: DType, calls: list[Call]) -> Any:
        """``array``, or a copy for cuBLAS, made by a call that is appended to ``calls``."""
        if array.dtype == dtype and layout(array) is not None:
            return array
        copy = self.device.empty(array.shape, dtype)
        calls.append(self.kernels.copy(array, copy))
        return copy
