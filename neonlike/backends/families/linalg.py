"""Matrix products: lazy ``dot``, and neon's immediate forms with alpha, beta and relu."""

from __future__ import annotations

import itertools
from typing import Any

from neonlike.backends.families.base import Family
from neonlike.backends.tensor import Tensor
from neonlike.errors import DTypeError, ShapeError
from neonlike.optree import functions
from neonlike.optree.functions import F
from neonlike.optree.node import dot, expression


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
        product = dot(A, B)
        if product.shape != C.shape:
            raise ShapeError(f"compound_dot: {A.shape} x {B.shape} gives {product.shape}, but C is {C.shape}")
        if bsum is not None and bsum.shape != (C.shape[0], 1):
            raise ShapeError(f"compound_dot: bsum must be {(C.shape[0], 1)}, got {bsum.shape}")
        self.assign(C, _scaled(product, C, alpha, beta, relu))
        if bsum is not None:
            self.assign(bsum, F.sum(C, axis=1))  # type: ignore[attr-defined]
        return C

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
        if C.ndim == 3:
            products = self.empty(C.shape, dtype=C.dtype)
            for i, (a, b) in enumerate(pairs):
                self.assign(products[i], dot(a, b))
        else:
            products = self.zeros(C.shape, dtype=C.dtype)
            for a, b in pairs:
                self.assign(products, products + dot(a, b))
        return self.assign(C, _scaled(products, C, alpha, beta, relu))

    def _check_product(self, name: str, *tensors: Any) -> None:
        self.check_open(name)
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise DTypeError(f"{name}: expected tensors, got {type(tensor).__name__}; compute it with astensor()")
        if len({t.dtype for t in tensors}) > 1:
            listed = ", ".join(t.dtype.name for t in tensors)
            raise DTypeError(f"{name}: A, B and C must have one dtype, got {listed}")

    def _batch_size(self, a: Any, b: Any, c: Any) -> int:
        counts = {t.shape[0] for t in (a, b) if t.ndim == 3}
        if c.ndim == 3:
            counts.add(c.shape[0])
        if len(counts) != 1 or (a.ndim != 3 and b.ndim != 3):
            raise ShapeError(
                f"batched_dot: A {a.shape}, B {b.shape}, C {c.shape}: A or B must be 3-D and leading sizes equal"
            )
        return counts.pop()

    def copy_transpose(self, a: Any, out: Any, axes: Any = None, repeat: int = 1) -> None:
        """out = a with axes permuted (None: reversed), for any rank.

        Raises
        ------
        ShapeError
            If ``out`` has another shape.
        """
        order = tuple(range(a.ndim))[::-1] if axes is None else axes
        moved = functions.transpose(a, order)
        if moved.shape != out.shape:
            raise ShapeError(f"copy_transpose: {a.shape} with axes {order} gives {moved.shape}, but out is {out.shape}")
        self.assign(out, moved)


def _scaled(product: Any, c: Any, alpha: float, beta: float, relu: bool) -> Any:
    """f(alpha * product) + beta * c, leaving out what changes nothing; beta 0 ignores c even if it holds nan."""
    result = product if alpha == 1.0 else product * float(alpha)
    if relu:
        result = F.relu(result)  # type: ignore[attr-defined]
    return result if beta == 0.0 else result + c * float(beta)
