"""Precision in which kernels multiply, and by which instruction: asked of the choices that pick the kernels."""

from __future__ import annotations

from typing import Any

from neonlike.backends.cpu.primitives.attention import AttentionKernels
from neonlike.backends.cpu.primitives.conv.choice import choose_data_plan, choose_update_plan
from neonlike.backends.cpu.primitives.rnn import form_of
from neonlike.backends.geometry.attention import AttentionGeometry
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.products import ProductSizes, UnrollSizes
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.errors import ArgumentError
from neonlike.kernels.c.gemm import with_tiles
from neonlike.kernels.c.pairs import spoken
from neonlike.kernels.c.products import pairs_of_operands
from neonlike.kernels.c.simd import vector_bytes
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.optree.dtypes import compute_dtype


class Factors(AttentionKernels):
    """The answers of ``Backend.factors_of``."""

    def factors_of(self, call: Any, operation: str = "fprop") -> str:
        """See :meth:`Backend.factors_of`; for convolutions, of the plan that a call would have.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.conv_layer(None, N=4, C=3, K=8, H=6, W=6, R=3, S=3)
        >>> be.factors_of(layer, "update")[:7]
        'float32'
        """
        if isinstance(call, ConvGeometry | AttentionGeometry) and operation not in ("fprop", "bprop", "update"):
            raise ArgumentError(f"factors_of: operation must be fprop, bprop or update, got {operation!r}")
        if not isinstance(call, ProductSizes | UnrollSizes | ConvGeometry | AttentionGeometry):
            return ""
        pairs = 0 if self.compiler is None else self._form(call, operation)
        return spoken(pairs, call.dtype, self.compiler)

    def _form(self, call: Any, operation: str) -> int:
        """The form of pairs that a call multiplies, see ``pairs.h``; 0: none."""
        if isinstance(call, AttentionGeometry):
            return self._attention_pairs(AttentionPass(call, (call.N, call.heads), operation != "fprop"))
        if isinstance(call, ConvGeometry):
            vector, pairs = vector_bytes(self.compiler), with_tiles(self._pairs_of(call.dtype), self.compiler)
            itemsize = compute_dtype(call.dtype).itemsize
            if operation == "update":
                plan = choose_update_plan(call, vector, itemsize, pairs)
            else:
                backward = operation == "bprop"
                plan = choose_data_plan(call, backward, vector, itemsize, 1, self.enable_winograd, pairs)
            return int(dict(plan.variant).get("pairs", 0))
        if isinstance(call, ProductSizes):
            return self._form_of_product(*call)
        return form_of(call.units, call.samples, self._pairs_of(call.dtype), self.compiler)

    def _form_of_product(self, m: int, k: int, n: int, dtype: Any) -> int:
        a, b, out = (ArrayLayout(shape, dtype) for shape in ((m, k), (k, n), (m, n)))
        return pairs_of_operands(a, b, out, self.executor.own_engine.pairs, self.compiler)
