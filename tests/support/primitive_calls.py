"""A call of every compound primitive, on small prepared tensors, for tests of all of them.

A name is the primitive's, and what is special about the call after a blank.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from neonlike.transforms import Logistic, Rectlin, Softmax, Tanh

Ready = Callable[[], Any]
Maker = Callable[[Any], dict[str, Ready]]
CALLS: dict[str, Callable[[Any], Ready]] = {}
"""By name: what makes the tensors on a backend, and returns the call."""
N = 8


def calls(*names: str) -> Callable[[Maker], Maker]:
    """Enter the calls that a function makes on the same tensors: those of these names."""

    def enter(maker: Maker) -> Maker:
        CALLS.update({name: partial(_call_of, maker, name) for name in names})
        return maker

    return enter


def _call_of(maker: Maker, name: str, be: Any) -> Ready:
    return maker(be)[name]


def values(be: Any, *shape: int, dtype: Any = np.float32) -> Any:
    """A tensor of random numbers that are not 0."""
    return be.array(np.random.default_rng(len(shape)).uniform(0.1, 1, shape), dtype=dtype)


def integers(be: Any, end: int, *shape: int, dtype: Any = np.int32) -> Any:
    """A tensor of numbers below ``end``."""
    return be.array(np.random.default_rng(0).integers(0, end, shape), dtype=dtype)


@calls("fprop_conv", "fprop_conv epilogue", "bprop_conv", "update_conv")
def _convolutions(be: Any) -> dict[str, Ready]:
    layer = be.conv_layer(np.float32, N, 4, 6, H=5, W=5, R=3, S=3, pad_h=1, pad_w=1)
    x, f, y = values(be, *layer.dimI2), values(be, *layer.dimF2), values(be, *layer.dimO2)
    bias, sums = values(be, 6, 1), be.empty((6, 1))
    return {
        "fprop_conv": lambda: be.fprop_conv(layer, x, f, y),
        "fprop_conv epilogue": lambda: be.fprop_conv(layer, x, f, y, bias=bias, bsum=sums, relu=True, alpha=2.0),
        "bprop_conv": lambda: be.bprop_conv(layer, f, y, x),
        "update_conv": lambda: be.update_conv(layer, x, y, f),
    }


@calls("fprop_conv depthwise", "bprop_conv strided", "update_conv 3d")
def _groups(be: Any) -> dict[str, Ready]:
    depthwise = be.conv_layer(np.float32, N, 4, 4, H=5, W=5, R=3, S=3, groups=4)
    strided = be.conv_layer(np.float32, N, 4, 6, H=5, W=5, R=3, S=3, str_h=2, str_w=2)
    deep = be.conv_layer(np.float32, N, 2, 3, D=3, H=4, W=4, T=2, R=3, S=3)
    given = [[values(be, *sides) for sides in (g.dimI2, g.dimF2, g.dimO2)] for g in (depthwise, strided, deep)]
    return {
        "fprop_conv depthwise": lambda: be.fprop_conv(depthwise, *given[0]),
        "bprop_conv strided": lambda: be.bprop_conv(strided, given[1][1], given[1][2], given[1][0]),
        "update_conv 3d": lambda: be.update_conv(deep, given[2][0], given[2][2], given[2][1]),
    }


@calls(
    "fprop_pool max", "bprop_pool max", "fprop_pool avg", "bprop_pool avg", "fprop_pool l2", "bprop_pool l2",
)  # fmt: skip
def _poolings(be: Any) -> dict[str, Ready]:
    found: dict[str, Ready] = {}
    for op in ("max", "avg", "l2"):
        layer = be.pool_layer(np.float32, op, N, 4, 1, 5, 5, 1, 1, 3, 3, str_h=2, str_w=2)
        x, y, where = values(be, *layer.dimI2), values(be, *layer.dimO2), be.zeros(layer.dimO2, dtype=np.uint8)
        more = {"inputs": values(be, *layer.dimI2)} if op == "l2" else {}
        found[f"fprop_pool {op}"] = partial(be.fprop_pool, layer, x, y, where)
        found[f"bprop_pool {op}"] = partial(be.bprop_pool, layer, y, x, where, **more)
    return found


@calls("compound_fprop_bn", "compound_fprop_bn inference", "compound_bprop_bn", "fprop_lrn", "bprop_lrn")
def _normalisations(be: Any) -> dict[str, Ready]:
    x, y = values(be, 4, 6 * N), values(be, 4, 6 * N)
    rows = [values(be, 4, 1) for _ in range(8)]
    statistics, moving = tuple(rows[:6]), (None, None, *rows[2:6])
    layer = be.lrn_layer(np.float32, N, 4, 1, 3, 2, J=3)
    denom, error, delta = (values(be, 4, 6 * N) for _ in range(3))
    return {
        "compound_fprop_bn": lambda: be.compound_fprop_bn(x, *statistics, y, 1e-3, 0.9, True, relu=True),
        "compound_fprop_bn inference": lambda: be.compound_fprop_bn(x, *moving, y, 1e-3, 0.9, True, inference=True),
        "compound_bprop_bn": lambda: be.compound_bprop_bn(delta, *rows[6:8], error, x, *rows[:2], rows[4], 1e-3),
        "fprop_lrn": lambda: be.fprop_lrn(layer, x, y, denom, ascale=1e-2, bpower=0.75),
        "bprop_lrn": lambda: be.bprop_lrn(layer, x, y, error, delta, denom, ascale=1e-2, bpower=0.75),
    }


@calls("fprop_attention", "bprop_attention")
def _attention(be: Any) -> dict[str, Ready]:
    layer = be.attention_layer(np.float32, 2, 3, 6, 4, keys=5, value_size=2, causal=True)
    inputs, gradients = ([values(be, *dims) for dims in (layer.dimQ, layer.dimK, layer.dimV)] for _ in range(2))
    out, lse, error = values(be, *layer.dimO), values(be, *layer.dimL), values(be, *layer.dimO)
    return {
        "fprop_attention": lambda: be.fprop_attention(layer, *inputs, out, lse),
        "bprop_attention": lambda: be.bprop_attention(layer, *inputs, out, lse, error, *gradients),
    }


def _steps(be: Any, rows: int, count: int = 3) -> list[Any]:
    buffer = values(be, rows, count * N)
    return [buffer[:, t * N : (t + 1) * N] for t in range(count)]


@calls(
    "compound_rnn_unroll_fprop", "compound_rnn_unroll_bprop", "compound_rnn_unroll_fprop_bibnrnn",
    "compound_rnn_unroll_bprop_bibnrnn", "compound_rnn_unroll_fprop softmax", "compound_rnn_unroll_bprop softmax",
)  # fmt: skip
def _simple_unrolls(be: Any) -> dict[str, Ready]:
    n, weights, bias, tanh = 5, [values(be, 5, 5) for _ in range(2)], values(be, 5, 1), Tanh()
    h, ff, before = (_steps(be, n) for _ in range(3))
    h2, ff2, after = (_steps(be, n) for _ in range(3))
    one, other, sizes = (before, ff, h), (after, ff2, h2), (n, 3, 3, tanh)
    others = (n, 3, 3, Softmax())  # by its definition, step by step
    return {
        "compound_rnn_unroll_fprop": lambda: be.compound_rnn_unroll_fprop(weights[0], *one, bias, *sizes),
        "compound_rnn_unroll_bprop": lambda: be.compound_rnn_unroll_bprop(weights[0].T, *one, *sizes),
        "compound_rnn_unroll_fprop softmax": lambda: be.compound_rnn_unroll_fprop(weights[0], *one, bias, *others),
        "compound_rnn_unroll_bprop softmax": lambda: be.compound_rnn_unroll_bprop(weights[0].T, *one, *others),
        "compound_rnn_unroll_fprop_bibnrnn": lambda: be.compound_rnn_unroll_fprop_bibnrnn(
            None, None, None, weights[0], *one, bias, weights[1], *other, bias, *sizes
        ),
        "compound_rnn_unroll_bprop_bibnrnn": lambda: be.compound_rnn_unroll_bprop_bibnrnn(
            None, None, ff, before, ff2, after, *weights, h, h2, *sizes, None
        ),
    }


@calls(
    "compound_lstm_unroll_fprop", "compound_lstm_unroll_bprop", "compound_gru_unroll_fprop",
    "compound_gru_unroll_bprop",
)  # fmt: skip
def _gated_unrolls(be: Any) -> dict[str, Ready]:
    n, end = 5, (5, 3, 3, Tanh(), Logistic())
    h = [_steps(be, n) for _ in range(6)]
    four, three = [_steps(be, 4 * n) for _ in range(2)], [_steps(be, 3 * n) for _ in range(2)]
    w4, w3, b4, b3 = values(be, 4 * n, n), values(be, 3 * n, n), values(be, 4 * n, 1), values(be, 3 * n, 1)
    return {
        "compound_lstm_unroll_fprop": lambda: be.compound_lstm_unroll_fprop(w4, *h[:2], *four, *h[2:5], b4, *end),
        "compound_lstm_unroll_bprop": lambda: be.compound_lstm_unroll_bprop(w4.T, *h[:4], *four, *h[4:6], *end),
        "compound_gru_unroll_fprop": lambda: be.compound_gru_unroll_fprop(w3, h[0], *three, *h[1:3], b3, *end),
        "compound_gru_unroll_bprop": lambda: be.compound_gru_unroll_bprop(w3.T, *h[:2], *three, h[2], *end),
    }


@calls(
    "compound_dot", "compound_dot long", "cublas_dot", "batched_dot", "xnor_compound_dot", "copy_transpose", "trans2d",
    "change_data_store_order", "sum_tensor",
)  # fmt: skip
def _products(be: Any) -> dict[str, Ready]:
    a, b, c, sums = values(be, 4, 6), values(be, 6, 5), values(be, 4, 5), values(be, 4, 1)
    stacks = [values(be, 3, *shape) for shape in ((4, 6), (6, 5), (4, 5))]
    turned, wide = values(be, 6, 4), values(be, 4, 6)
    long = values(be, 6, 1 << 16), values(be, 4, 1 << 16)  # whose rows are summed in parts
    return {
        "compound_dot": lambda: be.compound_dot(a, b, c, alpha=2.0, beta=0.5, relu=True, bsum=sums),
        "compound_dot long": lambda: be.compound_dot(a, long[0], long[1], beta=0.5, bsum=sums),
        "cublas_dot": lambda: be.cublas_dot(a, b, c, alpha=2.0, beta=0.5),
        "batched_dot": lambda: be.batched_dot(*stacks),
        "xnor_compound_dot": lambda: be.xnor_compound_dot(a, b, c, bsum=sums),
        "copy_transpose": lambda: be.copy_transpose(a, turned),
        "trans2d": lambda: be.trans2d(a, turned),
        "change_data_store_order": lambda: be.change_data_store_order(a, 2, 3, 4, b=wide),
        "sum_tensor": lambda: be.sum_tensor([a, wide], out=wide),
    }


@calls("take", "onehot", "compound_bprop_lut", "compound_bprop_lut scaled")
def _lookups(be: Any) -> dict[str, Ready]:
    words, error, table = integers(be, 7, 1, 3 * N), values(be, 5, 3 * N), values(be, 7, 5)
    rows, hot = values(be, 3 * N, 5), values(be, 7, 3 * N)
    return {
        "take": lambda: be.take(table, words, 0, out=rows),
        "onehot": lambda: be.onehot(words, 0, out=hot),
        "compound_bprop_lut scaled": lambda: be.compound_bprop_lut(3, words, error, None, table, beta=0.5),
        "compound_bprop_lut": lambda: be.compound_bprop_lut(3, words, error, None, table, pad_idx=0),
    }


@calls("roipooling_fprop", "roipooling_bprop", "nms", "detectionOutput_fprop")
def _regions(be: Any) -> dict[str, Ready]:
    features, pooled = values(be, 2 * 5 * 6, 2), values(be, 2 * 2 * 2, 3)
    rois = be.array(np.array([[0, 0, 0, 40, 30], [1, 16, 8, 80, 70], [1, 0, 32, 20, 60]]), dtype=np.float32)
    where, sizes = be.zeros((2 * 2 * 2, 3), dtype=np.int32), (3, 2, 5, 6, 2, 2, 1 / 16)
    corners = np.random.default_rng(0).uniform(0, 9, (6, 2))
    boxes = be.array(np.hstack([corners, corners + 6, np.linspace(0.9, 0.1, 6)[:, None]]), dtype=np.float32)
    scores, offsets, priors = values(be, 6, 3, 2), values(be, 6, 4, 2), be.array(boxes.get()[:, :4])
    return {
        "roipooling_fprop": lambda: be.roipooling_fprop(features, rois, pooled, where, *sizes),
        "roipooling_bprop": lambda: be.roipooling_bprop(pooled, rois, features, where, *sizes),
        "nms": lambda: be.nms(boxes, 0.5),
        "detectionOutput_fprop": lambda: be.detectionOutput_fprop(
            scores, offsets, None, priors, None, 4, 3, 0.01, 0.45
        ),
    }


@calls(
    "fprop_softmax", "fprop_relu", "bprop_relu", "fprop_transform", "bprop_transform", "fprop_skipnode",
    "bprop_skipnode", "add_fc_bias", "update_fc_bias",
)  # fmt: skip
def _activations(be: Any) -> dict[str, Ready]:
    x, y, error, bias = values(be, 4, N), values(be, 4, N), values(be, 4, N), values(be, 4, 1)

    def softmax() -> None:
        y[:] = be.fprop_softmax(x)

    def forward() -> None:
        y[:] = be.fprop_relu(None, x, 0.1)

    return {
        "fprop_softmax": softmax,
        "fprop_relu": forward,
        "bprop_relu": lambda: be.bprop_relu(None, x, error, y, 0.1),
        "fprop_transform": lambda: be.fprop_transform(None, Rectlin(), x, y, relu=True),
        "bprop_transform": lambda: be.bprop_transform(None, Softmax(), y, error, error, False),
        "fprop_skipnode": lambda: be.fprop_skipnode(x, y, 0.5),
        "bprop_skipnode": lambda: be.bprop_skipnode(error, y, 1.0, 0.5),
        "add_fc_bias": lambda: be.add_fc_bias(x, bias),
        "update_fc_bias": lambda: be.update_fc_bias(error, bias),
    }


@calls("shift", "binarize", "binarize sign", "compensated_sum", "record_histogram")
def _statistics(be: Any) -> dict[str, Ready]:
    x, y, rest = values(be, 4, N), values(be, 4, N), be.zeros((4, N))
    return {
        "shift": lambda: be.shift(x, y, out=y),
        "binarize": lambda: be.binarize(x, y),
        "binarize sign": lambda: be.binarize(x, y, stochastic=False),
        "compensated_sum": lambda: be.compensated_sum(x, rest, y),
        "record_histogram": lambda: x.hist("x"),
    }
