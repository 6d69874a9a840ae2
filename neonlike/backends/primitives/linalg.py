"""Matrix products: lazy ``dot``, and neon's immediate forms with alpha, beta, relu and row sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from neonlike.backends.family import Family
from neonlike.backends.tensors.operands import require_tensors, written
from neonlike.errors import AliasError, DTypeError, ShapeError
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.threads import parallel, thread_count
from neonlike.kernels.run.trace import Operands, current
from neonlike.optree import moves
from neonlike.optree.builders import dot
from neonlike.optree.dtypes import DType, compute_dtype, wide_dtype
from neonlike.optree.forms import owner, recalled
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import expression
from neonlike.optree.shapes import Shape, is_gapless

F: Any = Functions
Array = npt.NDArray[Any]

SMALL_PRODUCT = 1 << 18
"""Multiplications up to which BLAS libraries use one thread: stacks of such products are distributed over threads."""


class Product(NamedTuple):
    """Request of a product stored in C: ``C = f(alpha * product) + beta * C``, f = max(., 0) if ``relu``.

    It is a tuple, created in a third of the time of a frozen dataclass, since small products are created one by one.
    """

    alpha: float = 1.0
    beta: float = 0.0
    relu: bool = False


@owner
class LinalgFamily(Family):
    """``dot`` in expressions; ``compound_dot``, ``batched_dot`` and transposes immediately.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.compound_dot(be.ones((1, 2)), be.ones((2, 1)), be.empty((1, 1))).item()
    2.0
    """

    multiplies_int8: ClassVar[bool] = False
    """Whether ``compound_dot`` multiplies int8 into int32 or float32, and layers may be quantized."""

    @recalled
    def dot(self, a: Any, b: Any, out: Any = None) -> Any:
        """Matrix product (m, k) x (k, n) -> (m, n); lazy without ``out``.

        Parameters
        ----------
        a : tensor, expression or array (m, k)
        b : tensor, expression or array (k, n)
        out : tensor (m, n), optional
            Receives the product at once.

        Raises
        ------
        ShapeError
            If an operand is not 2-D, or the inner sizes differ.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.dot(be.array([[1., 2.]]), be.array([[3.], [4.]])).tolist()
        [[11.0]]
        """
        return self._finish(dot(a, b, self), out)

    def transpose(self, a: Any, axes: Any = None, out: Any = None) -> Any:
        """``a`` with axes permuted (None: the last two swapped); a view or a lazy node.

        Parameters
        ----------
        a : tensor, expression or array
        axes : sequence of int, optional
            Axis of ``a`` for each axis of the result.
        out : tensor, optional
            Receives the result at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.transpose(be.ones((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
        """
        return self._finish(moves.transpose(expression("transpose", a, self), axes), out)

    @repeatable()
    def compound_dot(
        self,
        A: Any,
        B: Any,
        C: Any,
        alpha: float = 1.0,
        beta: float = 0.0,
        relu: bool = False,
        bsum: Any = None,
        repeat: int = 1,
        size: Any = None,
    ) -> Any:
        """C = f(alpha * A.B) + beta * C with f = max(., 0) if ``relu``.

        Parameters
        ----------
        A, B, C : tensors (m, k), (k, n), (m, n)
            One dtype; transposed and strided views, too. C may share memory with A and B. With beta 0 the old C is not
            read. On the CPU A and B may also be int8 with C of int32 or float32: sums are exact, and end in C modulo
            2^32 (below k = 131,072 they always fit in int32) or rounded once.
        alpha, beta : float
            Factors of the product and of the old C.
        relu : bool
            Clamp the scaled product at 0.
        bsum : tensor (m, 1), optional
            Receives the row sums of the final C.
        repeat : int
            Number of timed runs if above 1.
        size
            neon's tuning argument; ignored.

        Returns
        -------
        C, or (milliseconds, GFLOP/s) if ``repeat`` is above 1

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If dtypes differ, shapes do not fit, or bsum shares memory with C; nothing is written then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> A, B, C = be.array([[1., -2.]]), be.array([[3.], [4.]]), be.ones((1, 1))
        >>> be.compound_dot(A, B, C, alpha=2, beta=1).tolist()
        [[-9.0]]
        """
        request = Product(float(alpha), float(beta), bool(relu))
        operands = Operands((A, B, C), alone=bsum is None and not relu)
        self._check_product("compound_dot", A, B, C, bsum, self.multiplies_int8)
        run = partial(self._compound_dot, request, A, B, C, bsum)
        rate = self._run_product("compound_dot", run, (A, B, C), request, 1, bsum, repeat, operands)
        return C if repeat <= 1 else rate

    def cublas_dot(self, A: Any, B: Any, C: Any, alpha: float = 1.0, beta: float = 0.0, repeat: int = 1) -> Any:
        """C = alpha * A.B + beta * C: :meth:`compound_dot` under neon's name for cuBLAS's product.

        Parameters
        ----------
        A, B, C, alpha, beta, repeat
            As in :meth:`compound_dot`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.cublas_dot(be.ones((1, 2)), be.ones((2, 1)), be.empty((1, 1))).tolist()
        [[2.0]]
        """
        return self.compound_dot(A, B, C, alpha, beta, repeat=repeat)

    @repeatable()
    def batched_dot(
        self,
        A: Any,
        B: Any,
        C: Any,
        alpha: float = 1.0,
        beta: float = 0.0,
        relu: bool = False,
        repeat: int = 1,
        size: Any = None,
    ) -> Any:
        """Products over a leading batch axis X.

        With C (X, m, n): ``C[i] = f(alpha * A[i].B[i]) + beta * C[i]``, where a 2-D A or B is shared by all i.
        With C (m, n): the products are summed over i before alpha, f and beta. f = max(., 0) if ``relu``.

        Parameters
        ----------
        A, B, C : tensors ([X,] m, k), ([X,] k, n), ([X,] m, n)
            One dtype, with A or B 3-D. C may share memory with A and B.
        alpha, beta : float
            Factors of the product and of the old C.
        relu : bool
            Clamp the scaled product at 0.
        repeat : int
            Number of timed runs if above 1.
        size
            neon's tuning argument; ignored.

        Returns
        -------
        C, or GFLOP/s if ``repeat`` is above 1

        Raises
        ------
        DTypeError, ShapeError
            If dtypes differ or shapes do not fit; C is unchanged.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> A, B = be.ones((5, 2, 3)), be.ones((5, 3, 4))
        >>> be.batched_dot(A, B, be.empty((5, 2, 4))).shape
        (5, 2, 4)
        >>> be.batched_dot(A, B, be.empty((2, 4)))[0, 0].item()    # summed over the batch
        15.0
        """
        self._check_operands("batched_dot", A, B, C)
        count = _batch_size(A, B, C)
        request = Product(float(alpha), float(beta), bool(relu))
        run = partial(self._batched_dot, request, A, B, C)
        operands = Operands((A, B, C), alone=not relu)
        rate = self._run_product("batched_dot", run, (A, B, C), request, count, None, repeat, operands)
        return C if repeat <= 1 else rate[1]

    def xnor_compound_dot(self, A: Any, B: Any, C: Any, beta: float = 0.0, bsum: Any = None) -> Any:
        """C = s(A).s(B) + beta * C, where s is +1 for 0 and above, else -1 (for nan too); returns C.

        The product of signs is exact: k - 2 * (number of positions where they differ). M. Rastegari et al.,
        "XNOR-Net", ECCV 2016.

        Parameters
        ----------
        A, B, C : tensors (m, k), (k, n), (m, n)
            One dtype; views, too. C may share memory with A and B. With beta 0 the old C is not read.
        beta : float
            Factor of the old C.
        bsum : tensor (m, 1), optional
            Receives the row sums of the final C.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            As :meth:`compound_dot`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> A, B = be.array([[5., -2.]]), be.array([[3.], [0.]])
        >>> be.xnor_compound_dot(A, B, be.empty((1, 1))).tolist()
        [[0.0]]
        """
        self._check_product("xnor_compound_dot", A, B, C, bsum)
        request = Product(1.0, float(beta))
        run = partial(self._xnor_dot, request, A, B, C, bsum)
        self._run_product("xnor_compound_dot", run, (A, B, C), request, 1, bsum, 1)
        return C

    def copy_transpose(self, a: Any, out: Any, axes: Any = None, repeat: int = 1) -> None:
        """out = a with axes permuted, for any rank.

        Parameters
        ----------
        a, out : tensors
            They may share memory. ``a`` may be an expression.
        axes : sequence of int, optional
            Axis of ``a`` for each axis of ``out``; default: reversed.
        repeat : int
            Number of timed runs if above 1; the logger shows the mean.

        Raises
        ------
        ShapeError
            If ``out`` has another shape.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> out = be.empty((3, 2))
        >>> be.copy_transpose(be.array([[1., 2., 3.], [4., 5., 6.]]), out)
        >>> out.tolist()
        [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
        """
        source = expression("copy_transpose", a, self)
        self._check_target(out)
        order = tuple(range(len(source.shape)))[::-1] if axes is None else axes
        moved = moves.transpose(source, order)
        if moved.shape != out.shape:
            raise ShapeError(f"copy_transpose: {a.shape} with axes {order} gives {moved.shape}, but out is {out.shape}")
        if repeat <= 1 and self.executor.bench is None:
            self.assign(out, moved)
            return
        nbytes = out.size * (source.dtype.itemsize + out.dtype.itemsize)
        shapes = (source.shape, out.shape)
        self._run_primitive("copy_transpose", lambda: self.assign(out, moved), (out,), shapes, nbytes, repeat=repeat)

    # Hooks, with the definitions

    def _compound_dot(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> KernelCall | None:
        """Hook: see :meth:`compound_dot`; operands are checked.

        Returns the kernel launch, if that was all, or all but assignments; see ``kernels/run/calls.py``.
        """
        a, b = A.asnumpyarray(), B.asnumpyarray()
        self._finish_product(C, bsum, request, lambda out: multiply(a, b, out))
        return None

    def _batched_dot(self, request: Product, A: Any, B: Any, C: Any) -> KernelCall | None:
        """Hook: see :meth:`batched_dot`; operands are checked. Returns what :meth:`_compound_dot` does."""
        a, b = matrices(A.asnumpyarray(), B.asnumpyarray(), C)
        self._finish_product(C, None, request, lambda out: multiply(a, b, out))
        return None

    def _xnor_dot(self, request: Product, A: Any, B: Any, C: Any, bsum: Any) -> None:
        """Hook: see :meth:`xnor_compound_dot`; operands are checked."""
        a, b = (np.where(t.asnumpyarray() >= 0, 1, -1).astype(compute_dtype(C.dtype)) for t in (A, B))
        self._finish_product(C, bsum, request, lambda out: multiply(a, b, out))

    def _finish_product(self, C: Any, bsum: Any, request: Product, write: Callable[[Any], object]) -> None:
        """Store the bare product by ``write`` in a tensor, C itself if that avoids double rounding; then post-process.

        The tensor may be one that ``write`` reads.
        """
        alpha, beta, relu = request
        bare = alpha == 1.0 and not relu
        direct = beta == 0.0 and (bare or C.dtype == compute_dtype(C.dtype))
        product = C if direct else self.fresh(C.shape, dtype=compute_dtype(C.dtype))
        write(product)
        if not direct or not bare or bsum is not None:
            self._epilogue(product, C, bsum, request)

    def _epilogue(self, product: Any, C: Any, bsum: Any, request: Product) -> None:
        """C = f(alpha * product) + beta * C, one kernel; then the row sums of the stored C."""
        value = _scaled(product, C, *request)
        if value is not C:
            self.assign(C, value)
        if bsum is not None:
            self.assign(bsum, F.sum(C, axis=1))

    # Checks

    def _check_operands(self, name: str, A: Any, B: Any, C: Any, with_int8: bool = False) -> None:
        require_tensors(self, name, A=A, B=B, C=C)
        if not A.dtype == B.dtype == C.dtype and not (with_int8 and sums_int8(A, B, C)):
            listed = f"A {A.dtype.name}, B {B.dtype.name}, C {C.dtype.name}"
            other = ", or A and B int8 and C int32 or float32" if with_int8 else ""
            text = f"{name}: A, B and C must have one dtype{other}; got {listed}; convert with x.astype(dtype)"
            raise DTypeError(text)
        if not C.writeable:
            C.check_writeable(name)

    def _check_product(self, name: str, A: Any, B: Any, C: Any, bsum: Any, with_int8: bool = False) -> None:
        self._check_operands(name, A, B, C, with_int8)
        matrices = A.ndim == B.ndim == C.ndim == 2
        if not matrices or A.shape[1] != B.shape[0] or C.shape != (A.shape[0], B.shape[1]):
            raise ShapeError(f"{name}: {A.shape} x {B.shape} does not give C's {C.shape}; expected (m, k) x (k, n)")
        if bsum is None:
            return
        self._check_target(bsum)
        if bsum.shape != (C.shape[0], 1):
            raise ShapeError(f"{name}: bsum must be {(C.shape[0], 1)}, got {bsum.shape}")
        if bsum.alias_of(C):
            raise AliasError(f"{name}: bsum shares memory with C, which it would overwrite; use a tensor of its own")

    def _run_product(
        self,
        name: str,
        run: Any,
        tensors: tuple[Any, Any, Any],
        request: Product,
        count: int,
        bsum: Any,
        repeat: int,
        operands: Operands | None = None,
    ) -> Any:
        """Run a product of ``count`` matrices that passed its checks; it may be repeated if ``operands.alone``."""
        if repeat <= 1 and self.executor.bench is None:  # small products take less time than counting bytes for no one
            launch = run()  # and as at the end of _run_primitive, but looks at the tensors only for a trace
            if (trace := current()) is not None:
                dense = operands is not None and operands.alone and all(map(is_dense, tensors))
                trace.primitive(launch, Operands(tensors, alone=dense), tensors[2:])
            if (replay := self.executor.replay).to_ask:
                replay.note_call()
            return None
        A, _, C = tensors
        nbytes = sum(t.nbytes for t in tensors) + (C.nbytes if request.beta else 0)
        shapes: list[Shape] = [t.shape for t in tensors]
        flops = 2 * count * math.prod(C.shape[-2:]) * A.shape[-1]
        return self._run_primitive(name, run, (C, bsum), shapes, nbytes, flops, "product", repeat)


def sums_int8(A: Any, B: Any, C: Any) -> bool:
    """Whether a product is one of int8 whose sums are kept.

    Parameters
    ----------
    A, B, C : tensors
        Factors and target.
    """
    return bool(A.dtype == B.dtype == np.int8 and C.dtype in (np.int32, np.float32))


def is_dense(tensor: Any) -> bool:
    """Whether the elements are adjacent, from the address on: otherwise ``nbytes`` does not determine their end."""
    return is_gapless(tensor.shape, tensor.strides)


def multiply(a: Array, b: Array, out: Any) -> None:
    """Compute the tensor ``out`` = a.b, for matrices or stacks of them, which may share memory with it.

    Parameters
    ----------
    a, b : arrays
        Matrices, or stacks of them.
    out : tensor
    """
    with written(out) as array:
        matrix_product(a, b, array)


def matrices(a: Array, b: Array, c: Any) -> tuple[Array, Array]:
    """Factors whose product has as many axes as the tensor ``c``: stacks, or their matrices concatenated.

    Parameters
    ----------
    a, b : arrays
        At least one of them a stack.
    c : tensor
        The target; 2-D: products are summed.
    """
    return _side_by_side(a, b) if c.ndim == 2 else (a, b)


def matrix_product(a: Array, b: Array, out: Array) -> None:
    """Compute out = a.b for matrices or stacks, in ``out``'s dtype; they may share memory.

    Parameters
    ----------
    a, b : arrays
        Of any dtype and strides.
    out : array
    """
    a, b = _for_blas(a, out.dtype), _for_blas(b, out.dtype)
    with np.errstate(all="ignore"):
        if out.ndim == 3 and _dealt_out(a, b, out):
            return
        np.matmul(a, b, out=out)


def _dealt_out(a: Array, b: Array, out: Array) -> bool:
    """Distribute a stack of small products, which BLAS would run on one thread, over all; False if it is not one."""
    products, parts = math.prod(out.shape[1:]) * a.shape[-1], thread_count()
    if not products <= SMALL_PRODUCT <= products * len(out) or parts == 1:
        return False
    if np.may_share_memory(out, a) or np.may_share_memory(out, b):
        return False

    def multiply(part: slice) -> None:
        with np.errstate(all="ignore"):  # a per-thread setting
            np.matmul(a[part] if a.ndim == 3 else a, b[part] if b.ndim == 3 else b, out=out[part])

    cuts = [len(out) * part // parts for part in range(parts + 1)]
    parallel(multiply, [slice(*ends) for ends in pairwise(cuts)])
    return True


def blas_takes(array: Array) -> bool:
    """True if a BLAS library can use the matrices of ``array`` in place: rows or columns without gaps."""
    steps = [step // array.itemsize for step in array.strides[-2:]]
    rows, columns = array.shape[-2:]
    return (steps[1] == 1 and steps[0] >= columns) or (steps[0] == 1 and steps[1] >= rows)


def _for_blas(array: Array, dtype: DType) -> Array:
    """Convert ``array`` to ``dtype``, copied if NumPy would otherwise multiply it without BLAS."""
    if array.dtype != dtype:
        return array.astype(dtype)
    if array.flags.c_contiguous or dtype.kind != "f" or blas_takes(array):
        return array
    return np.ascontiguousarray(array)


def _side_by_side(a: Array, b: Array) -> tuple[Array, Array]:
    """Two matrices with product sum over i of a[i].b[i], where a or b is a stack."""
    if a.ndim == 2:
        return a, _summed(b)
    if b.ndim == 2:
        return _summed(a), b
    return a.transpose(1, 0, 2).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2])


def _summed(stack: Array) -> Array:
    return np.asarray(np.add.reduce(stack, 0, dtype=wide_dtype(stack.dtype)))


def _batch_size(a: Any, b: Any, c: Any) -> int:
    counts = {t.shape[0] for t in (a, b) if t.ndim == 3}
    if c.ndim == 3:
        counts.add(c.shape[0])
    if len(counts) != 1 or 3 not in (a.ndim, b.ndim) or max(a.ndim, b.ndim, c.ndim) > 3:
        raise ShapeError(
            f"batched_dot: A {a.shape}, B {b.shape}, C {c.shape}: A or B must be 3-D, the others 2-D or 3-D, "
            "and leading sizes equal"
        )
    if (*a.shape[-2:], *b.shape[-2:]) != (c.shape[-2], b.shape[-2], a.shape[-1], c.shape[-1]):
        raise ShapeError(f"batched_dot: {a.shape} x {b.shape} does not give C's {c.shape}")
    return int(counts.pop())


def _scaled(product: Any, c: Any, alpha: float, beta: float, relu: bool) -> Any:
    """f(alpha * product) + beta * c without neutral steps; beta 0 ignores c even if it holds nan."""
    result = product if alpha == 1.0 else product * alpha
    if relu:
        result = F.relu(result)
    return result if beta == 0.0 else result + c * beta
