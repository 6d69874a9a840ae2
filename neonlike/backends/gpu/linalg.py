"""Matrix products of the compound primitives as expressions, so that the engine's products and epilogues run them."""

from __future__ import annotations

from typing import Any

from neonlike.backends.families.linalg import LinalgFamily


class ProductKernels(LinalgFamily):
    """Overrides the hook of ``compound_dot``."""

    def _compound_dot(self, A: Any, B: Any, C: Any, alpha: float, beta: float, relu: bool, bsum: Any) -> None:
        """C = f(alpha * A.B) + beta * C in one plan, a product and its epilogue; then the row sums of C."""
        self._epilogue(self.dot(A, B), C, alpha, beta, relu, bsum)
