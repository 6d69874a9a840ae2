"""Ops of ``neonlike.autograd`` for linear algebra and networks beside NumPy and PyTorch; as ``op_cases.py``."""

# ruff: noqa: E501  (a case, a line or a few: the tables read across)

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike import autograd as ag
from tests.autograd.op_cases import UNIT, Case

EYE = np.eye(4)
PLACES = np.array([[0, 2, 1, 2, 0], [1, 3, 0, 3, 1]])  # one place twice


def _positive(a: Any) -> Any:
    """A symmetric positive definite matrix of any other: a a' + I."""
    return a @ a.T + EYE


def _dense(values: Any) -> Any:
    found = np.zeros((3, 4))
    np.add.at(found, tuple(PLACES), values.ravel())
    return found


def _sparse(values: Any) -> Any:
    return ag.sparse_from_value_and_index(values, PLACES, (3, 4))


def _conv(x: Any, w: Any, steps: int, margin: int, dilation: int, groups: int) -> Any:
    """(C, H, W, N) by (C / groups, R, S, K), by its definition."""
    x = np.pad(x, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    (C, H, W, N), (_, R, S, K) = x.shape, w.shape
    P, Q = ((size - dilation * (taps - 1) - 1) // steps + 1 for size, taps in ((H, R), (W, S)))
    out = np.zeros((K, P, Q, N))
    for r in range(R):
        for s in range(S):
            part = x[:, r * dilation :, s * dilation :][:, : (P - 1) * steps + 1 : steps, : (Q - 1) * steps + 1 : steps]
            for g in range(groups):
                maps, inputs = slice(g * K // groups, (g + 1) * K // groups), slice(g * C // groups, (g + 1) * C // groups)
                out[maps] += np.einsum("ck,cpqn->kpqn", w[:, r, s, maps], part[inputs])
    return out


def _transposed(x: Any, w: Any, steps: int, margin: int, more: int) -> Any:
    (P, Q, N), (C, R, S, _) = x.shape[1:], w.shape
    full = np.zeros((C, (P - 1) * steps + R + more, (Q - 1) * steps + S + more, N))
    for p in range(P):
        for q in range(Q):
            full[:, p * steps : p * steps + R, q * steps : q * steps + S] += np.einsum("crsk,kn->crsn", w, x[:, p, q])
    end = [size - 2 * margin + margin for size in full.shape[1:3]]
    return full[:, margin : end[0], margin : end[1]]


def _holed(w: Any) -> Any:
    """Filters with a hole between any two elements of an image, as dilation by 2 defines them."""
    found = np.zeros((w.shape[0], 2 * w.shape[1] - 1, 2 * w.shape[2] - 1, w.shape[3]))
    found[:, ::2, ::2] = w
    return found


def _in_groups(x: Any, w: Any, groups: int) -> Any:
    """Transposed, with steps of 2: each group of maps by filters of its own."""
    return np.concatenate([_transposed(*both, 2, 0, 0) for both in zip(np.split(x, groups), np.split(w, groups, 3))])


def _deep(x: Any, w: Any) -> Any:
    """Transposed in three dimensions, with steps of 2 in each image and a row more."""
    (M, P, Q, N), (C, T, R, S, _) = x.shape[1:], w.shape
    full = np.zeros((C, M + T - 1, 2 * P + R - 1, 2 * Q + S - 2, N))
    for m, t in np.ndindex(M, T):
        full[:, m + t, :-1] += _transposed(x[:, m], w[:, t], 2, 0, 0)
    return full


def _windows(x: Any, window: int, steps: int, reduce: Any) -> Any:
    rows, columns = (range(0, size - window + 1, steps) for size in x.shape[1:3])
    return np.stack([np.stack([reduce(x[:, p : p + window, q : q + window], (1, 2)) for q in columns], 1) for p in rows], 1)


def _means_inside(x: Any) -> Any:
    """Means over windows of 2 with a margin of 1, counting positions inside the image only."""
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=np.nan)
    return _windows(x, 2, 2, np.nanmean)


def _dilated(x: Any, window: Any, steps: Any, margins: Any, dilation: Any) -> Any:
    """Maxima of dilated windows of an image (C, H, W, N), by their definition."""
    x = np.pad(x, ((0, 0), *((m, m) for m in margins), (0, 0)), constant_values=-np.inf)
    P, Q = ((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[1:3], window, steps, dilation))
    (R, S), (rise, run), (down, along) = window, steps, dilation
    lines = [[x[:, p * rise :: down][:, :R, q * run :: along][:, :, :S].max((1, 2)) for q in range(Q)] for p in range(P)]
    return np.stack([np.stack(line, 1) for line in lines], 1)


def _normalised(x: Any, axes: Any, eps: float) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _batch_major(t: Any, x: Any) -> Any:
    """Images as PyTorch has them."""
    return x.permute(-1, *range(x.ndim - 1))


def _neons(x: Any) -> Any:
    return x.permute(*range(1, x.ndim), 0)


def _torch_filters(w: Any) -> Any:
    return w.permute(-1, *range(w.ndim - 1))


def _attention(q: Any, k: Any, v: Any, causal: bool = False, scale: float | None = None) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:])) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


DECOMPOSITIONS = (
    Case("Cross", ag.cross, lambda a, b: np.cross(a, b, axis=0), lambda t, a, b: t.linalg.cross(a, b, dim=0), ((3, 4), (3, 4))),
    Case("Cross", lambda a, b: ag.cross(a, b, -1), np.cross, None, ((5, 3), (5, 3))),
    Case("Inv", lambda a: ag.inv(a * 0.1 + EYE), lambda a: np.linalg.inv(a * 0.1 + EYE), lambda t, a: t.linalg.inv(a * 0.1 + t.eye(4, dtype=a.dtype)), ((4, 4),)),
    Case("PInv", ag.pinv, np.linalg.pinv, lambda t, a: t.linalg.pinv(a), ((5, 3),)),
    Case("PInv", ag.pinv, np.linalg.pinv, lambda t, a: t.linalg.pinv(a), ((2, 4),)),
    Case("LogDet", lambda a: ag.log_det(a @ a.T + EYE), lambda a: np.log(np.linalg.det(_positive(a))).reshape(1, 1), lambda t, a: t.logdet(a @ a.T + t.eye(4, dtype=a.dtype)).view(1, 1), ((4, 4),)),
    Case("Cholesky", lambda a: ag.cholesky(a @ a.T + EYE), lambda a: np.linalg.cholesky(_positive(a)), lambda t, a: t.linalg.cholesky(a @ a.T + t.eye(4, dtype=a.dtype)), ((4, 4),)),
    Case(
        "CholeskySolve", lambda b, a: ag.cholesky_solve(b, ag.cholesky(a @ a.T + EYE)), lambda b, a: np.linalg.solve(_positive(a), b),
        lambda t, b, a: t.cholesky_solve(b, t.linalg.cholesky(a @ a.T + t.eye(4, dtype=a.dtype))), ((4, 3), (4, 4)),
    ),
    Case(
        "CholeskySolve", lambda b, a: ag.cholesky_solve(b, ag.cholesky(a @ a.T + EYE).T, upper=True), lambda b, a: np.linalg.solve(_positive(a), b),
        lambda t, b, a: t.cholesky_solve(b, t.linalg.cholesky(a @ a.T + t.eye(4, dtype=a.dtype)).T, upper=True), ((4, 2), (4, 4)),
    ),
    Case(
        "WeightNorm", ag.weight_norm, lambda v, g: g * v / np.sqrt((v**2).sum((1, 2), keepdims=True)),
        lambda t, v, g: g * v / v.norm(dim=(1, 2), keepdim=True), ((3, 2, 4), (3, 1, 1)),
    ),
    Case("WeightNorm", lambda v, g: ag.weight_norm(v, g, 1), lambda v, g: g * v / np.sqrt((v**2).sum(0, keepdims=True)), None, ((3, 4), (1, 4))),
)  # fmt: skip

SPARSE = (
    Case("SparseFromValueAndIndex", lambda v, b: _sparse(v) @ b, lambda v, b: _dense(v) @ b, None, ((5, 1), (4, 3))),
    Case("SparseFromValueAndIndex", lambda v, b: _sparse(v).T @ b, lambda v, b: _dense(v).T @ b, None, ((1, 5), (3, 2))),
    Case("MatMul", lambda b, v: ag.matmul(ag.matmul(b, _sparse(v)), _sparse(v).T), lambda b, v: b @ _dense(v) @ _dense(v).T, None, ((2, 3), (5, 1))),
    Case("ToDense", lambda v: ag.to_dense(_sparse(v)), _dense, lambda t, v: t.sparse_coo_tensor(t.tensor(PLACES), v.view(-1), (3, 4)).to_dense(), ((5, 1),)),
)  # fmt: skip

NETWORK = (
    Case(
        "Convolution", lambda x, w, b: ag.convolution(x, w, b, strides=2, padding=1), lambda x, w, b: _conv(x, w, 2, 1, 1, 1) + b[:, :, None, None],
        lambda t, x, w, b: _neons(t.conv2d(_batch_major(t, x), _torch_filters(w), b.view(-1), stride=2, padding=1)), ((3, 6, 5, 2), (3, 3, 2, 4), (4, 1)),
    ),
    Case(
        "Convolution", lambda x, w: ag.convolution(x, w, dilation=2, groups=2), lambda x, w: _conv(x, w, 1, 0, 2, 2),
        lambda t, x, w: _neons(t.conv2d(_batch_major(t, x), _torch_filters(w), dilation=2, groups=2)), ((4, 5, 6, 2), (2, 2, 3, 6)),
    ),
    Case(
        "Convolution", lambda x, w, b: ag.convolution(x, w, b, strides=2, padding=(1,)), lambda x, w, b: _conv(np.pad(x, ((0, 0), (1, 1), (0, 0)))[:, None], w[:, None], 2, 0, 1, 1)[:, 0] + b[:, :, None],
        lambda t, x, w, b: _neons(t.conv1d(_batch_major(t, x), _torch_filters(w), b.view(-1), stride=2, padding=1)), ((3, 7, 2), (3, 3, 2), (2, 1)),
    ),
    Case(
        "Convolution", lambda x, w: ag.convolution(x, w, padding=(1, 0, 0)), lambda x, w: np.stack([_conv(np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0), (0, 0)))[:, d : d + 2].reshape(-1, *x.shape[2:]), w.reshape(-1, *w.shape[2:]), 1, 0, 1, 1) for d in range(4)], 1),
        lambda t, x, w: _neons(t.conv3d(_batch_major(t, x), _torch_filters(w), padding=(1, 0, 0))), ((2, 3, 4, 3, 2), (2, 2, 2, 2, 3)),
    ),
    Case(
        "Convolution", lambda x, w, b: ag.convolution(x, w, b, strides=3, padding=1, transposed=True, output_padding=2), lambda x, w, b: _transposed(x, w, 3, 1, 2) + b[:, :, None, None],
        lambda t, x, w, b: _neons(t.conv_transpose2d(_batch_major(t, x), w.permute(3, 0, 1, 2), b.view(-1), stride=3, padding=1, output_padding=2)), ((4, 3, 2, 2), (3, 3, 2, 4), (3, 1)),
    ),
    Case(
        "Convolution", lambda x, w: ag.convolution(x, w, strides=2, transposed=True, output_padding=(1,)), lambda x, w: np.pad(_transposed(x[:, None], w[:, None], 2, 0, 0)[:, 0], ((0, 0), (0, 1), (0, 0))),
        lambda t, x, w: _neons(t.conv_transpose1d(_batch_major(t, x), w.permute(2, 0, 1), stride=2, output_padding=1)), ((4, 3, 2), (3, 3, 4)),
    ),
    Case(
        "Convolution", lambda x, w: ag.convolution(x, w, strides=2, dilation=2, groups=2, transposed=True), lambda x, w: _in_groups(x, _holed(w), 2),
        lambda t, x, w: _neons(t.conv_transpose2d(_batch_major(t, x), w.permute(3, 0, 1, 2), stride=2, dilation=2, groups=2)), ((4, 3, 2, 2), (3, 2, 3, 4)),
    ),
    Case(
        "Convolution", lambda x, w: ag.convolution(x, w, strides=(1, 2, 2), transposed=True, output_padding=(0, 1, 0)), _deep,
        lambda t, x, w: _neons(t.conv_transpose3d(_batch_major(t, x), w.permute(4, 0, 1, 2, 3), stride=(1, 2, 2), output_padding=(0, 1, 0))), ((3, 2, 2, 3, 2), (2, 2, 2, 3, 3)),
    ),
    Case("AvgPool2D", lambda x: ag.avg_pool2d(x, 2, padding=1), _means_inside, lambda t, x: _neons(t.nn.functional.avg_pool2d(_batch_major(t, x), 2, padding=1, count_include_pad=False)), ((2, 4, 6, 3),)),
    Case("AvgPool2D", lambda x: ag.avg_pool2d(x, 2), lambda x: _windows(x, 2, 2, np.mean), lambda t, x: _neons(t.nn.functional.avg_pool2d(_batch_major(t, x), 2)), ((3, 4, 6, 2),)),
    Case("MaxPool2D", lambda x: ag.max_pool2d(x, 3, 2), lambda x: _windows(x, 3, 2, np.max), lambda t, x: _neons(t.max_pool2d(_batch_major(t, x), 3, 2)), ((3, 5, 7, 2),)),
    Case(
        "MaxPool2D", lambda x: ag.max_pool2d(x, (2, 3), (1, 2), 1, (3, 2)), lambda x: _dilated(x, (2, 3), (1, 2), (1, 1), (3, 2)),
        lambda t, x: _neons(t.max_pool2d(_batch_major(t, x), (2, 3), (1, 2), 1, (3, 2))), ((2, 5, 7, 2),),
    ),
    Case(
        "MaxPool1D", lambda x: ag.max_pool1d(x, 3, 2, 1, 2), lambda x: _dilated(x[:, None], (1, 3), (1, 2), (0, 1), (1, 2))[:, 0],
        lambda t, x: _neons(t.max_pool1d(_batch_major(t, x), 3, 2, 1, 2)), ((3, 9, 2),),
    ),
    Case("MaxPool1D", lambda x: ag.max_pool1d(x, 2), lambda x: x.reshape(3, 4, 2, 2).max(2), lambda t, x: _neons(t.max_pool1d(_batch_major(t, x), 2)), ((3, 8, 2),)),
    Case(
        "BatchNorm", ag.batch_norm, lambda x, g, b: g * _normalised(x, 1, 1e-5) + b,
        lambda t, x, g, b: t.nn.functional.batch_norm(x.T, None, None, g.view(-1), b.view(-1), training=True).T, ((3, 8), (3, 1), (3, 1)),
    ),
    Case(
        "BatchNorm2D", ag.batch_norm2d, lambda x, g, b: g[:, :, None, None] * _normalised(x, (1, 2, 3), 1e-5) + b[:, :, None, None],
        lambda t, x, g, b: _neons(t.nn.functional.batch_norm(_batch_major(t, x), None, None, g.view(-1), b.view(-1), training=True)), ((3, 2, 4, 3), (3, 1), (3, 1)),
    ),
    Case(
        "BatchNorm", lambda x, g, b: ag.batch_norm(x, g, b, x.backend.array([[0.5], [0.1], [0.2]]), x.backend.array([[1.5], [0.5], [2.0]]), training=False),
        lambda x, g, b: g * (x - [[0.5], [0.1], [0.2]]) / np.sqrt(np.array([[1.5], [0.5], [2.0]]) + 1e-5) + b, None, ((3, 8), (3, 1), (3, 1)),
    ),
    Case(
        "LayerNormOp", lambda x, g, b: ag.layer_norm(x, 0, g, b), lambda x, g, b: g * _normalised(x, 0, 1e-5) + b,
        lambda t, x, g, b: t.nn.functional.layer_norm(x.T, (5,), g.view(-1), b.view(-1)).T, ((5, 4), (5, 1), (5, 1)),
    ),
    Case("LayerNormOp", lambda x: ag.layer_norm(x, (0, 1)), lambda x: _normalised(x, (0, 1), 1e-5), None, ((3, 4, 2),)),
    Case("Embedding", lambda table: ag.embedding([[2, 0, 1], [2, 2, 3]], table), lambda table: table[[[2, 0, 1], [2, 2, 3]]], lambda t, table: table[t.tensor([[2, 0, 1], [2, 2, 3]])], ((4, 3),)),
    Case("Embedding", lambda table: ag.embedding(np.array([[3, 1, 3]]), table), lambda table: table[[3, 1, 3]], None, ((4, 2),)),
    Case(
        "ScaledDotProductAttention", ag.scaled_dot_product_attention, _attention,
        lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v), ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 2)),
    ),
    Case(
        "ScaledDotProductAttention", lambda q, k, v: ag.scaled_dot_product_attention(q, k, v, causal=True, scale=0.7),
        lambda q, k, v: _attention(q, k, v, True, 0.7), lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.7),
        ((2, 6, 4), (2, 6, 4), (2, 6, 3)),
    ),
    Case("ScaledDotProductAttention", ag.scaled_dot_product_attention, _attention, None, ((5, 4), (3, 4), (3, 2))),
    Case("OneHot", lambda a: a @ ag.one_hot([[2], [0], [2]], 4), lambda a: a @ EYE[[2, 0, 2]], None, ((2, 3),), (UNIT,)),
)  # fmt: skip

CASES = (*DECOMPOSITIONS, *SPARSE, *NETWORK)
