"""Scaled dot-product attention against PyTorch's: forward, and forward with backward, causal or not, lengths to 4,096.

``--quick``: five sizes with one sample, under a minute. ``python benchmarks/attention.py --help`` lists the options.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from _layers import Layer
from _libraries import Array, Made, returns, writes
from _precision import PRECISIONS
from _primitives import Primitives, Problem, values

BOTH = "fprop+bprop"
DIRECTIONS: dict[str, float | None] = {"fprop": 1.0, BOTH: 1.0}
ONE_SAMPLE_FROM = 2048
"""Queries from which there is one sample: more take seconds a call."""
BAND = 512
"""Queries whose weights the reference has at a time."""
PLACES = ((0, 0), (-1, -1))
"""Sample and head that are compared: the first and the last."""


@dataclass(frozen=True)
class Heads(Layer):
    """``heads`` of ``size``, with as many queries and keys; the network's name is its heads and their size."""

    heads: int = 8
    size: int = 64
    queries: int = 1
    keys: int = 1
    causal: bool = False

    def minibatch(self, N: int) -> int:
        """One where a call of more would take long."""
        return 1 if max(self.queries, self.keys) >= ONE_SAMPLE_FROM else N

    @property
    def text(self) -> str:
        """``8 heads of 64, 300 x 300, causal``."""
        sizes = f"{self.heads} heads of {self.size}, {self.queries} x {self.keys}"
        return f"{sizes}, causal" if self.causal else sizes

    def flops(self, N: int) -> int:
        """Operations of the two products of a forward pass; causal heads have half of them."""
        return 4 * N * self.heads * self.queries * self.keys * self.size // (2 if self.causal else 1)

    def nbytes(self, N: int) -> int:
        """float32 queries, keys, values, outputs, and as many gradients and errors."""
        return 16 * N * self.heads * self.size * (self.queries + self.keys)


def heads(count: int, size: int, *lengths: int, causal: bool = False) -> list[Heads]:
    """Heads of all these lengths, with as many keys as queries."""
    kind = "causal " if causal else ""
    return [Heads(f"{count}x{size}", f"{kind}{n}", 1, count, size, n, n, causal) for n in lengths]


LAYERS = [
    *heads(8, 64, 256, 512, 1024, 2048, 4096, 300, 1000), *heads(8, 64, 256, 1024, 4096, causal=True),
    *heads(8, 32, 300, 1024), *heads(8, 80, 300, 1024), *heads(8, 128, 300, 1024), *heads(1, 64, 1024),
    Heads("8x64", "100 to 1000", 1, 8, 64, 100, 1000),
]  # fmt: skip
QUICK = "8x64 256", "8x64 1024", "8x64 causal 1024", "8x128 300", "8x32 300"


class Attention(Problem):
    """Q, K, V and errors E.

    Attributes
    ----------
    Q, K, V, E : float32 arrays (N, heads, length, size)
    """

    needs = ("fprop_attention", "bprop_attention")
    rounds_within = True

    def __init__(self, layer: Heads, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        self.backward = direction == BOTH
        self.flops = 7 * layer.flops(N) // 2 if self.backward else layer.flops(N)  # backward computes the scores again
        dims, of_keys = ((N, layer.heads, length, layer.size) for length in (layer.queries, layer.keys))
        self.Q, self.E = values(dims, 1), values(dims, 4)
        self.K, self.V = values(of_keys, 2), values(of_keys, 3)

    def sample(self, *made: Array) -> list[Array]:
        """Two heads of outputs or gradients, as matrices."""
        return [whole[place] for whole in made for place in PLACES]

    def reference(self) -> list[Array]:
        return [result for results in zip(*map(self._head, PLACES)) for result in results]

    def _head(self, place: tuple[int, int]) -> list[Array]:
        """The output of one head; with backward its output and the gradients of queries, keys and values."""
        q, k, v, e = (a[place].astype(np.float64) for a in (self.Q, self.K, self.V, self.E))
        scale = self.layer.size**-0.5
        outputs, dq, dk, dv = np.empty_like(q), np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
        for first in range(0, len(q), BAND):
            rows = slice(first, first + BAND)
            scores = scale * (q[rows] @ k.T)
            if self.layer.causal:
                scores[np.arange(len(k)) > np.arange(len(q))[rows, None]] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            outputs[rows] = weights @ v
            of_weights = e[rows] @ v.T
            slopes = weights * (of_weights - (weights * of_weights).sum(axis=1, keepdims=True))
            dq[rows] = scale * (slopes @ k)
            dk += scale * (slopes.T @ q[rows])
            dv += weights.T @ e[rows]
        return [outputs, dq, dk, dv] if self.backward else [outputs]

    def ours(self, library: Any) -> Made:
        """One call of the primitive, or one each way."""
        be, what = library.be, self.layer
        layer = be.attention_layer(
            self.Q.dtype, self.N, what.heads, what.queries, what.size, keys=what.keys, causal=what.causal
        )
        Q, K, V, E = (library.put(array) for array in (self.Q, self.K, self.V, self.E))
        out, lse = be.zeros(layer.dimO, dtype=E.dtype), be.zeros(layer.dimL, dtype=np.float32)
        if not self.backward:
            return writes(lambda: be.fprop_attention(layer, Q, K, V, out), out, shapes=[layer.dimO])
        gradients = [be.zeros(tensor.shape, dtype=E.dtype) for tensor in (Q, K, V)]

        def both() -> None:
            be.fprop_attention(layer, Q, K, V, out, lse)
            be.bprop_attention(layer, Q, K, V, out, lse, E, *gradients)

        return writes(both, out, *gradients)

    def peer(self, library: Any, who: str) -> Made:
        """Backward by its graph, made anew each time."""
        torch, causal = library.torch, self.layer.causal
        attention = library.autocast(torch.nn.functional.scaled_dot_product_attention)
        with library.gradients(self.backward):
            Q, K, V, E = (library.put(array) for array in (self.Q, self.K, self.V, self.E))
            for tensor in (Q, K, V):
                tensor.requires_grad_(self.backward)
        if not self.backward:
            return returns(lambda: attention(Q, K, V, is_causal=causal))

        def both() -> Any:
            with library.gradients():
                out = attention(Q, K, V, is_causal=causal)
                return out, *torch.autograd.grad(out, (Q, K, V), E)

        return returns(both)


SUITE = Primitives(
    "attention", __doc__, Attention, LAYERS, DIRECTIONS, QUICK, batches=(1, 8), peers=("torch",),
    precisions=PRECISIONS,
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
