"""Matrix products: lazy ``dot``, and neon's immediate forms with alpha, beta and relu."""

from __future__ import annotations

import itertools
from typing import Any

from neonlike.backends.families.base import Family
from neonlike.backends.tensor import Tensor
from neonlike.errors import AliasError, DTypeError, ShapeError
from neonlike.optree import functions
from neonlike.optree.builders import dot
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.functions import F
from neonlike.optree.node import apply, expression
from neonlike.optree.ops import OPS


class LinalgFamily(Family):
    """``dot`` inside expressions; ``compound_dot``, ``batched_dot`` and transposes at once."""

    def dot(self, a: Any, b: Any, out: Any = None) -> Any:
        """Matrix product (m, k) x (k, n) -> (m, n); lazy without ``out``."""
        return self._finish(dot(a, b, self), out)

    def transpose(self, a: Any, axes: Any = None, out: Any = None) -> Any:
        """``a`` with axes permuted (None: the last two swapped); a view or a lazy node."""
        return self._finish(functions.transpose(expression("transpose", a, self), axes), out)

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
        """C = f(alpha * A.B) + beta * C with f = max(., 0) if ``relu``; returns C.

        Parameters
        ----------
        A, B, C : tensors (m, k), (k, n), (m, n) of one dtype; may be transposed or strided views
        bsum : tensor (m, 1), optional
            Receives the row sums of the final C.
        repeat, size
            neon's tuning arguments, accepted.

        Raises
        ------
        DTypeError, ShapeError
            If dtypes differ or shapes do not fit; C is untouched.
        """
        self._check_product("compound_dot", A, B, C)
        product = self._product("compound_dot", A, B, C)
        self._check_row_sums("compound_dot", bsum, C)
        self.assign(C, _scaled(product, C, alpha, beta, relu))
        return C if bsum is None else self._row_sums(bsum, C)

    def cublas_dot(self, A: Any, B: Any, C: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """C = alpha * A.B + beta * C; returns C."""
        return self.compound_dot(A, B, C, alpha, beta)

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
        """Products over a leading batch axis; returns C.

        With C (X, m, n): ``C[i] = f(alpha * A[i].B[i]) + beta * C[i]``, a 2-D A or B being shared by all i.
        With C (m, n): the products are summed over i before alpha, f and beta. f = max(., 0) if ``relu``.
        ``repeat`` and ``size`` are neon's tuning arguments, accepted.

        Raises
        ------
        DTypeError, ShapeError
            If dtypes differ or shapes do not fit; C is untouched.
        """
        self._check_product("batched_dot", A, B, C)
        count = self._batch_size(A, B, C)
        pairs = [tuple(t[i] if t.ndim == 3 else t for t in (A, B)) for i in range(count)]
        for a, b in itertools.islice(pairs, 1):
            if dot(a, b).shape != C.shape[-2:]:
                raise ShapeError(f"batched_dot: {a.shape} x {b.shape} does not give C's {C.shape[-2:]}")
        products = self.zeros(C.shape, dtype=compute_dtype(C.dtype))  # so that float16 is rounded once
        for i, (a, b) in enumerate(pairs):
            if C.ndim == 3:
                self.assign(products[i], dot(a, b))
            else:
                self.assign(products, products + dot(a, b))
        return self.assign(C, _scaled(products, C, alpha, beta, relu))

    def xnor_compound_dot(self, A: Any, B: Any, C: Any, beta: float = 0.0, bsum: Any = None) -> Any:
        """C = sign(A).sign(B) + beta * C with sign(0) = +1; returns C.

        Parameters
        ----------
        A, B, C : tensors (m, k), (k, n), (m, n)
        bsum : tensor (m, 1), optional
            Receives the row sums of the final C.

        Raises
        ------
        DTypeError, ShapeError
            As :meth:`compound_dot`.
        """
        self._check_product("xnor_compound_dot", A, B, C)
        signs = [apply(OPS["binarize"], (t,), self) for t in (A, B)]
        product = self._product("xnor_compound_dot", signs[0], signs[1], C)
        self._check_row_sums("xnor_compound_dot", bsum, C)
        self.assign(C, _scaled(product, C, 1.0, beta, False))
        return C if bsum is None else self._row_sums(bsum, C)

    def _check_product(self, name: str, *tensors: Any) -> None:
        self.check_open(name)
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise DTypeError(f"{name}: expected tensors, got {type(tensor).__name__}; compute it with astensor()")
            if tensor.backend is not self:
                raise DTypeError(f"{name}: {tensor} belongs to another backend; copy it: be.array(tensor.get())")
        if len({t.dtype for t in tensors}) > 1:
            listed = ", ".join(t.dtype.name for t in tensors)
            raise DTypeError(f"{name}: A, B and C must have one dtype, got {listed}")

    def _product(self, name: str, a: Any, b: Any, c: Any) -> Any:
        product = dot(a, b)
        if product.shape != c.shape:
            raise ShapeError(f"{name}: {a.shape} x {b.shape} gives {product.shape}, but C is {c.shape}")
        return product

    def _check_row_sums(self, name: str, bsum: Any, c: Any) -> None:
        if bsum is None:
            return
        self._check_target(bsum)
        if bsum.shape != (c.shape[0], 1):
            raise ShapeError(f"{name}: bsum must be {(c.shape[0], 1)}, got {bsum.shape}")
        if bsum.alias_of(c):
            raise AliasError(f"{name}: bsum shares memory with C, which it would overwrite; use a tensor of its own")

    def _row_sums(self, bsum: Any, c: Any) -> Any:
        self.assign(bsum, F.sum(c, axis=1))  # type: ignore[attr-defined]
        return c

    def _batch_size(self, a: Any, b: Any, c: Any) -> int:
        counts = {t.shape[0] for t in (a, b) if t.ndim == 3}
        if c.ndim == 3:
            counts.add(c.shape[0])
        if len(counts) != 1 or 3 not in (a.ndim, b.ndim) or max(a.ndim, b.ndim, c.ndim) > 3:
            raise ShapeError(
                f"batched_dot: A {a.shape}, B {b.shape}, C {c.shape}: A or B must be 3-D, the others 2-D or 3-D, "
                "and leading sizes equal"
            )
        return counts.pop()

    def copy_transpose(self, a: Any, out: Any, axes: Any = None, repeat: int = 1) -> None:
        """out = a with axes permuted (None: reversed), for any rank.

        Raises
        ------
        ShapeError
            If ``out`` has another shape.
        """
        source = expression("copy_transpose", a, self)
        self._check_target(out)
        order = tuple(range(len(source.shape)))[::-1] if axes is None else axes
        moved = functions.transpose(source, order)
        if moved.shape != out.shape:
            raise ShapeError(f"copy_transpose: {a.shape} with axes {order} gives {moved.shape}, but out is {out.shape}")
        self.assign(out, moved)


def _scaled(product: Any, c: Any, alpha: float, beta: float, relu: bool) -> Any:
    """f(alpha * product) + beta * c, leaving out what changes nothing; beta 0 ignores c even if it holds nan."""
    result = product if alpha == 1.0 else product * float(alpha)
    if relu:
        result = F.relu(result)  # type: ignore[attr-defined]
    return result if beta == 0.0 else result + c * float(beta)
