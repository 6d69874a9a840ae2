"""Calls of compound primitives that may be repeated, for the tests of Python's cache and of the extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.backends import Backend
from neonlike.optree.dtypes import compute_dtype

RNG = np.random.default_rng(0)


def some(be: Backend, *shape: int, dtype: Any = np.float32) -> Any:
    """A tensor of random values."""
    return be.array(RNG.standard_normal(shape), dtype=dtype)


def pooling(be: Backend, op: str, N: int = 3) -> tuple[Any, list[Any], Callable[..., None]]:
    """A layer, its tensors, and a call of them."""
    layer = be.pool_layer(np.float32, op, N, 4, 1, 6, 6, R=2, S=2)
    tensors = [some(be, 4 * 36, N), be.zeros((4 * 9, N)), be.zeros((4 * 9, N), dtype=np.uint8)]
    return layer, tensors, lambda *t, **more: be.fprop_pool(layer, *t, **more)


def primitives(be: Backend, dtype: Any = np.float32) -> dict[str, tuple[Callable[..., Any], list[Any], int]]:
    """By name: a call of tensors, the tensors, and how many at the end are written.

    Those of batch normalization are float32, others of ``dtype``.
    """
    N, pool, avg = 3, *(be.pool_layer(dtype, op, 3, 4, 1, 6, 6, R=2, S=2) for op in ("max", "avg"))
    conv = be.conv_layer(dtype, N, 4, 5, 1, 6, 6, 1, 3, 3)
    lrn = be.lrn_layer(dtype, N, 4, 1, 6, 6, 3)
    attention = be.attention_layer(dtype, 1, 2, 5, 4, keys=6, value_size=3)
    image, maps, pooled = (4 * 36, N), (5 * 16, N), (4 * 9, N)
    new, rows = (lambda *shape: some(be, *shape, dtype=dtype)), [abs(some(be, 4, 1)) for _ in range(6)]
    rows, sums = [be.array(row.get()) for row in rows], lambda: some(be, 2, 5, dtype=compute_dtype(np.dtype(dtype)))
    places = be.zeros(pooled, dtype=np.uint8)
    be.fprop_pool(pool, new(*image), new(*pooled), places)
    wide = be.array(RNG.random((4, 36 * N)))
    return {
        "fprop_pool": (
            lambda i, o, a: be.fprop_pool(pool, i, o, a),
            [new(*image), new(*pooled), be.zeros(pooled, dtype=np.uint8)], 2,
        ),
        "bprop_pool": (lambda a, e, d: be.bprop_pool(pool, e, d, a), [places, new(*pooled), new(*image)], 1),
        "fprop_pool avg": (lambda i, o: be.fprop_pool(avg, i, o, None, 2.0, 0.5), [new(*image), new(*pooled)], 1),
        "bprop_pool avg": (lambda e, d: be.bprop_pool(avg, e, d), [new(*pooled), new(*image)], 1),
        "fprop_conv": (
            lambda i, f, b, o: be.fprop_conv(conv, i, f, o, bias=b, relu=True),
            [new(*image), new(36, 5), new(5, 1), new(*maps)], 1,
        ),
        "bprop_conv": (
            lambda e, f, x, d: be.bprop_conv(conv, f, e, d, X=x, beta=0.5, brelu=True, slope=0.1),
            [new(*maps), new(36, 5), new(*image), new(*image)], 1,
        ),
        "update_conv": (
            lambda i, e, g: be.update_conv(conv, i, e, g, 0.5, 1.0), [new(*image), new(*maps), new(36, 5)], 1,
        ),
        "fprop_lrn": (
            lambda i, o, d: be.fprop_lrn(lrn, i, o, d, ascale=0.5, bpower=0.75),
            [new(*image), new(*image), new(*image)], 2,
        ),
        "bprop_lrn": (
            lambda i, o, n, e, d: be.bprop_lrn(lrn, i, o, e, d, n, ascale=0.5, bpower=0.75),
            [new(*image), new(*image), be.array(RNG.random(image) + 1, dtype=dtype), new(*image), new(*image)], 1,
        ),
        "fprop_attention": (
            lambda q, k, v, o, s: be.fprop_attention(attention, q, k, v, o, s),
            [new(2, 5, 4), new(2, 6, 4), new(2, 6, 3), new(2, 5, 3), sums()], 2,
        ),
        "bprop_attention": (
            lambda q, k, v, o, s, e, *g: be.bprop_attention(attention, q, k, v, o, s, e, *g),
            [
                *(new(2, *dims) for dims in ((5, 4), (6, 4), (6, 3), (5, 3))), sums(),
                *(new(2, *dims) for dims in ((5, 3), (5, 4), (6, 4), (6, 3))),
            ], 3,
        ),
        "compound_fprop_bn": (
            lambda x, g, b, s, v, m, w, y: be.compound_fprop_bn(x, s, v, m, w, g, b, y, 1e-3, 0.9, True),
            [wide, *rows, be.zeros((4, 36 * N))], 5,
        ),
        "compound_bprop_bn": (
            lambda e, x, s, v, g, gg, gb, d: be.compound_bprop_bn(d, gg, gb, e, x, s, v, g, 1e-3),
            [some(be, 4, 36 * N), wide, *rows[:5], be.zeros((4, 36 * N))], 3,
        ),
        "product": (lambda a, b, c: be.compound_dot(a, b, c, 0.5, 2.0), [new(9, 7), new(7, 5), new(9, 5)], 1),
        "batched product": (
            lambda a, b, c: be.batched_dot(a, b, c, 0.5, 2.0), [new(3, 9, 7), new(3, 7, 5), new(3, 9, 5)], 1,
        ),
        "batched, one matrix product": (
            lambda a, b, c: be.batched_dot(a, b, c), [new(9, 7), new(3, 7, 5), new(3, 9, 5)], 1,
        ),
        "product with a vector": (lambda a, b, c: be.compound_dot(a, b, c), [new(9, 7), new(7, 1), new(9, 1)], 1),
        "longer vector": (lambda a, b, c: be.compound_dot(a, b, c), [new(90, 170), new(170, 1), new(90, 1)], 1),
        "outer product": (lambda a, b, c: be.compound_dot(a, b, c), [new(9, 1), new(1, 7), new(9, 7)], 1),
        **(int8_products(be, conv) if be.multiplies_int8 else {}),
    }  # fmt: skip


def int8_products(be: Backend, conv: Any) -> dict[str, tuple[Callable[..., Any], list[Any], int]]:
    """Products of quantized weights, as of :func:`primitives`."""
    rows, filters = be.int8_weights(some(be, 9, 7), 0.02), be.int8_weights(some(be, *conv.dimF2), 0.02, conv)
    image, maps = (4 * 36, conv.N), (5 * 16, conv.N)
    return {
        "int8 product": (
            lambda x, b, out: be.int8_product(rows, x, out, bias=b, relu=True, slope=0.5),
            [some(be, 7, 5), some(be, 9, 1), some(be, 9, 5)], 1,
        ),
        "int8 convolution": (
            lambda x, out: be.int8_product(filters, x, out), [some(be, *image), some(be, *maps)], 1,
        ),
    }  # fmt: skip


NAMES = [
    "fprop_pool", "bprop_pool", "fprop_pool avg", "bprop_pool avg", "fprop_conv", "bprop_conv", "update_conv",
    "fprop_lrn", "bprop_lrn", "fprop_attention", "bprop_attention", "compound_fprop_bn", "compound_bprop_bn",
    "product", "batched product", "batched, one matrix product", "product with a vector", "longer vector",
    "outer product",
]  # fmt: skip
CONVERTED = [name for name in NAMES if name.endswith(("_conv", "_lrn", "_attention", "product", "vector"))]
"""Those whose kernels work on float32, and convert tensors of 16 bits."""
INT8 = ["int8 product", "int8 convolution"]
"""Those of the CPU alone."""
