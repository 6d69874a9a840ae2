"""Scaled dot-product attention against PyTorch's: forward, and forward with backward, causal or not, lengths to 4,096.

``--quick``: five sizes with one sample, under a minute. ``python benchmarks/attention.py --help`` lists the options.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import _primitives
import numpy as np
from _cases import Case, Contender
from _layers import Layer
from _primitives import Peers, Subject, need, own, peer, view
from _references import Array

BOTH = "fprop+bprop"
DIRECTIONS: dict[str, float | None] = {"fprop": 1.0, BOTH: 1.0}
ONE_SAMPLE_FROM = 2048
"""Queries from which there is one sample: more take seconds a call."""
BAND = 512
"""Queries whose weights the reference has at a time."""


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
        """Of the two products of a forward pass; those that are causal have half of them."""
        return 4 * N * self.heads * self.queries * self.keys * self.size // (2 if self.causal else 1)

    def nbytes(self, N: int) -> int:
        """float32 queries, keys, values, outputs, and as many gradients and errors."""
        return 16 * N * self.heads * self.size * (self.queries + self.keys)


def heads(count: int, size: int, *lengths: int, causal: bool = False) -> list[Heads]:
    """Of all these lengths, with as many keys as queries."""
    kind = "causal " if causal else ""
    return [Heads(f"{count}x{size}", f"{kind}{n}", 1, count, size, n, n, causal) for n in lengths]


LAYERS = [
    *heads(8, 64, 256, 512, 1024, 2048, 4096, 300, 1000), *heads(8, 64, 256, 1024, 4096, causal=True),
    *heads(8, 32, 300, 1024), *heads(8, 80, 300, 1024), *heads(8, 128, 300, 1024), *heads(1, 64, 1024),
    Heads("8x64", "100 to 1000", 1, 8, 64, 100, 1000),
]  # fmt: skip
QUICK = "8x64 256", "8x64 1024", "8x64 causal 1024", "8x128 300", "8x32 300"


class Problem:
    """Operands of one size at one minibatch.

    Attributes
    ----------
    Q, K, V, E : float32 arrays (N, heads, length, size)
    """

    def __init__(self, layer: Heads, N: int, direction: str) -> None:
        self.layer, self.N, self.direction = layer, N, direction
        dims = (N, layer.heads, layer.queries, layer.size)
        of_keys = (N, layer.heads, layer.keys, layer.size)
        self.Q, self.E = _primitives.values(dims, 1), _primitives.values(dims, 4)
        self.K, self.V = _primitives.values(of_keys, 2), _primitives.values(of_keys, 3)

    def sample(self, *found: Array) -> list[Array]:
        """The first and the last head of outputs or gradients, as matrices."""
        return [whole[place] for whole in found for place in ((0, 0), (-1, -1))]

    def reference(self) -> list[Array]:
        """These in float64."""
        pairs = [_reference(self, place) for place in ((0, 0), (-1, -1))]
        return [result for results in zip(*pairs) for result in results]


def _reference(problem: Problem, place: tuple[int, int]) -> list[Array]:
    """The output of one head; with backward its output and the gradients of queries, keys and values."""
    q, k, v, e = (a[place].astype(np.float64) for a in (problem.Q, problem.K, problem.V, problem.E))
    scale = problem.layer.size**-0.5
    outputs, dq, dk, dv = np.empty_like(q), np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    for first in range(0, len(q), BAND):
        rows = slice(first, first + BAND)
        scores = scale * (q[rows] @ k.T)
        if problem.layer.causal:
            scores[np.arange(len(k)) > np.arange(len(q))[rows, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        outputs[rows] = weights @ v
        of_weights = e[rows] @ v.T
        slopes = weights * (of_weights - (weights * of_weights).sum(axis=1, keepdims=True))
        dq[rows] = scale * (slopes @ k)
        dk += scale * (slopes.T @ q[rows])
        dv += weights.T @ e[rows]
    return [outputs] if problem.direction == "fprop" else [outputs, dq, dk, dv]


def ours(be: Any, problem: Problem) -> Contender:
    """One call of the primitive, or one each way."""
    need(be, "fprop_attention", "bprop_attention")
    layer = be.attention_layer(
        np.float32, problem.N, problem.layer.heads, problem.layer.queries, problem.layer.size,
        keys=problem.layer.keys, causal=problem.layer.causal,
    )  # fmt: skip
    Q, K, V, E = (be.array(array) for array in (problem.Q, problem.K, problem.V, problem.E))
    out = be.zeros(layer.dimO)
    if problem.direction == "fprop":
        run = lambda: be.fprop_attention(layer, Q, K, V, out)  # noqa: E731
        return own(run, lambda: problem.sample(view(out, *layer.dimO)))
    lse, gradients = be.zeros(layer.dimL), [be.zeros(tensor.shape) for tensor in (Q, K, V)]

    def both() -> None:
        be.fprop_attention(layer, Q, K, V, out, lse)
        be.bprop_attention(layer, Q, K, V, out, lse, E, *gradients)

    return own(both, lambda: problem.sample(*(view(tensor, *tensor.shape) for tensor in (out, *gradients))))


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch's function, which chooses among its kernels; backward by its graph, made anew each time."""
    import torch

    backward = problem.direction == BOTH
    arrays = problem.Q, problem.K, problem.V
    Q, K, V = (torch.from_numpy(array).requires_grad_(backward) for array in arrays)
    E, causal = torch.from_numpy(problem.E), problem.layer.causal
    attention = torch.nn.functional.scaled_dot_product_attention
    if not backward:
        return peer(name, lambda: attention(Q, K, V, is_causal=causal), lambda made: problem.sample(made.numpy()))

    def both() -> Any:
        with torch.enable_grad():
            out = attention(Q, K, V, is_causal=causal)
        return out, *torch.autograd.grad(out, (Q, K, V), E)

    return peer(name, both, lambda made: problem.sample(*(tensor.detach().numpy() for tensor in made)))


PEERS: Peers = {"torch": torch_peer}


def make_case(be: Any, layer: Heads, N: int, direction: str, peers: Peers = PEERS) -> Case:
    """The case of one direction of one size: ours if there is a backend, and ``peers``."""
    problem = Problem(layer, N, direction)
    flops = layer.flops(N) if direction == "fprop" else 7 * layer.flops(N) // 2  # backward computes the scores again
    return _primitives.make(be, layer, N, problem, ours, peers, nbytes=layer.nbytes(N), flops=flops)


SUBJECT = Subject("attention", f"{__doc__}", LAYERS, make_case, PEERS, DIRECTIONS, QUICK, batches=(1, 8))


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
