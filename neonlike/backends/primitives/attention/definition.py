"""Definition of attention as matrix products and expressions, one band of queries of all heads at a time.

It runs on any backend, in GPU memory as well. A band has a row of scores per query, and as many queries as fit in
memory of a fixed size, so that memory grows with the lengths and not with their product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.geometry.attention import AttentionGeometry
from neonlike.errors import ShapeError
from neonlike.optree.dtypes import DType, compute_dtype
from neonlike.optree.functions import F as Functions
from neonlike.optree.shapes import Shape

F: Any = Functions
MOST_SCORES = 1 << 22
"""Scores per band, unless a single query of each head has more."""


@dataclass(frozen=True, slots=True)
class AttentionPass:
    """Request for an attention of some heads, or for its gradients.

    Attributes
    ----------
    layer : AttentionGeometry
    leading : tuple of int
        Leading axes of the tensors before those of a matrix, up to two: samples and heads.
    backward : bool
    """

    layer: AttentionGeometry
    leading: tuple[int, ...]
    backward: bool = False

    @property
    def heads(self) -> int:
        """Number of query matrices over all samples."""
        return math.prod(self.leading)


def forward(be: Any, request: AttentionPass, Q: Any, K: Any, V: Any, O: Any, lse: Any) -> None:  # noqa: E741
    """See ``AttentionFamily.fprop_attention``.

    Parameters
    ----------
    be : Backend
    request : AttentionPass
    Q, K, V, O, lse : tensors
        As of ``fprop_attention``; ``lse`` may be None.
    """
    layer, kind = request.layer, compute_dtype(Q.dtype)
    q, k, v = (_stack(t, kind) for t in (Q, K, V))
    sums = be.fresh((request.heads, layer.queries, 1), dtype=kind)
    with _stored(O, kind) as out:
        for first, end, seen in _bands(request):
            scores = _scores(be, request, q[:, first:end], k[:, :seen], first)
            largest = F.maximum(F.max(scores, axis=2), -float(np.finfo(kind).max))  # -inf minus -inf is nan
            top, total = (be.fresh((request.heads, end - first, 1), dtype=kind) for _ in range(2))
            be.assign(top, largest)
            be.assign(total, top + F.log(F.sum(F.exp(scores - top), axis=2)))
            be.assign(scores, F.exp(scores - total))
            be.batched_dot(scores, v[:, :seen], out[:, first:end])
            be.assign(sums[:, first:end], total)
    if lse is not None:
        be.assign(lse, sums.reshape(lse.shape))


def backward(be: Any, request: AttentionPass, inputs: Any, lse: Any, gradients: Any) -> None:
    """See ``AttentionFamily.bprop_attention``; inputs: Q, K, V, O and E; gradients: of Q, K and V.

    Parameters
    ----------
    be : Backend
    request : AttentionPass
    inputs : tuple
        Q, K, V, O and the error E.
    lse : tensor
    gradients : tuple
        Tensors of the gradients of Q, K and V; written.
    """
    layer, kind, heads = request.layer, lse.dtype, request.heads
    q, k, v, out, error = (_stack(t, kind) for t in inputs)
    total = _stack(lse, kind, (heads, layer.queries, 1))
    delta = be.fresh(total.shape, dtype=kind)
    be.assign(delta, F.sum(out * error, axis=2))
    dq, dk, dv = gradients
    with _stored(dq, kind) as dq, _stored(dk, kind) as dk, _stored(dv, kind) as dv:
        be.assign(dk, 0)
        be.assign(dv, 0)
        for first, end, seen in _bands(request):
            e = error[:, first:end]
            weights = _scores(be, request, q[:, first:end], k[:, :seen], first)
            be.assign(weights, F.exp(weights - total[:, first:end]))
            slopes = be.fresh(weights.shape, dtype=kind)
            be.batched_dot(e, v[:, :seen].T, slopes)
            be.assign(slopes, weights * (slopes - delta[:, first:end]))
            be.batched_dot(weights.T, e, dv[:, :seen], beta=1.0)
            be.batched_dot(slopes, k[:, :seen], dq[:, first:end], alpha=layer.scale)
            be.batched_dot(slopes.T, q[:, first:end], dk[:, :seen], alpha=layer.scale, beta=1.0)


def workspace(request: AttentionPass) -> int:
    """Bytes of score bands, a copy of each operand, and rows of numbers."""
    layer = request.layer
    highest = _band(request)
    inputs = (1 + request.backward) * (layer.queries + layer.keys) * (layer.size + layer.value_size)
    bands = 3 * highest * layer.keys + 4 * layer.queries + inputs + layer.keys + highest
    return compute_dtype(layer.dtype).itemsize * request.heads * bands


def _band(request: AttentionPass) -> int:
    """Number of queries per band."""
    layer = request.layer
    return max(1, min(layer.queries, MOST_SCORES // max(1, request.heads * layer.keys)))


def _bands(request: AttentionPass) -> Iterator[tuple[int, int, int]]:
    """First query and end of each band, and the number of leading keys seen by its queries."""
    layer, step = request.layer, _band(request)
    for first in range(0, layer.queries, step):
        end = min(first + step, layer.queries)
        yield first, end, min(end, layer.keys) if layer.causal else layer.keys


def _scores(be: Any, request: AttentionPass, q: Any, k: Any, first: int) -> Any:
    """Scores (heads, rows, keys) of the queries from number ``first`` on; -inf for hidden keys."""
    rows, seen = q.shape[1], k.shape[1]
    scores = be.fresh((request.heads, rows, seen), dtype=q.dtype)
    be.batched_dot(q, k.T, scores, alpha=request.layer.scale)
    if request.layer.causal:
        numbers = be.fresh((1, max(rows, seen), 1), dtype=np.dtype(np.int32))
        be.assign(numbers, 1)
        be.assign(numbers, F.cumsum(numbers, axis=1))
        hidden = F.greater(numbers[:, :seen].T, numbers[:, :rows] + first)
        be.assign(scores, F.where(hidden, -math.inf, scores))
    return scores


def _stack(tensor: Any, dtype: DType, shape: Shape | None = None) -> Any:
    """``tensor`` as a stack of matrices of ``dtype`` for reading, a view if possible."""
    dims = shape or (math.prod(tensor.shape[:-2]), *tensor.shape[-2:])
    if tensor.dtype == dtype:
        try:
            return tensor.viewed(dims)
        except ShapeError:
            pass
    copy = tensor.backend.fresh(tensor.shape, dtype=dtype)
    return tensor.backend.assign(copy, tensor).reshape(dims)


@contextmanager
def _stored(tensor: Any, dtype: DType) -> Iterator[Any]:
    """The stack for writing: a copy is stored to ``tensor`` when the block ends without exception."""
    dims = (math.prod(tensor.shape[:-2]), *tensor.shape[-2:])
    if tensor.dtype == dtype:
        try:
            view = tensor.viewed(dims)
        except ShapeError:
            pass
        else:
            yield view
            return
    stand_in = tensor.backend.fresh(dims, dtype=dtype)
    yield stand_in
    tensor.backend.assign(tensor, stand_in.reshape(tensor.shape))
