"""The cases of compound primitives: see ``cases.py``, whose table they are entered in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.optree.dtypes import as_dtype
from neonlike.transforms import Logistic, Tanh
from tests.gpu_check.cases import CASES, Results, case, choosing
from tests.support.primitive_calls import CALLS

ROOMY_BYTES = 16 << 30
"""Memory of a GPU on which the cases of 3.2 GB run; the emulated one has less."""
TIMES = 4
"""Calls of a primitive: the second is planned to be repeated, the third is recorded where it becomes a graph."""
POISON = 7
"""What is in a target before: elements that only one backend writes differ then."""


def primitive(be: Any, name: str) -> Results:
    """All tensor arguments and results of a primitive's call: anew, repeated, as a graph."""
    made: list[Any] = []

    def noted(make: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            made.append(make(*args, **options))
            if make.__name__ == "empty":
                made[-1].fill(POISON)
            return made[-1]

        return call

    with contextlib.ExitStack() as patches:
        for maker in ("array", "empty", "zeros", "ones"):
            patches.enter_context(mock.patch.object(be, maker, noted(getattr(be, maker))))
        ready = CALLS[name](be)
    for _ in range(TIMES):
        returned = ready()
    made += returned if isinstance(returned, tuple) else [returned]
    yield from ((f"tensor {place}", each) for place, each in enumerate(made) if isinstance(each, Tensor))


for _name in CALLS:
    CASES[_name] = partial(primitive, name=_name)


def convolving(be: Any, method: str, winograd: bool | int = True) -> contextlib.AbstractContextManager[None]:
    """Convolutions are computed in this way, on a GPU."""
    return choosing(be, conv_method=method, enable_winograd=winograd)


def implicit(be: Any, dtype: str) -> Results:
    """Convolutions by the implicit kernel, of whole units of images or not."""
    rng = np.random.default_rng(12)
    for images, sizes in ((16, {"str_h": 2, "str_w": 2}), (5, {"pad_h": 1, "pad_w": 1})):
        layer = be.conv_layer(as_dtype(dtype), images, 11, 70, H=7, W=6, R=3, S=3, **sizes)
        x, f, e = (be.array(rng.standard_normal(d), dtype=dtype) for d in (layer.dimI, layer.dimF, layer.dimO))
        y, dx, df = (be.empty(d, dtype=dtype) for d in (layer.dimO, layer.dimI, layer.dimF))
        bias, sums = be.array(rng.standard_normal((layer.K, 1)), dtype=dtype), be.empty((layer.K, 1))
        with convolving(be, "implicit"):
            be.fprop_conv(layer, x, f, y, bias=bias, bsum=sums, relu=True, slope=0.1)
            be.bprop_conv(layer, f, e, dx)
            be.update_conv(layer, x, e, df)
        results = {"forward": y, "sums": sums, "data gradient": dx, "weight gradient": df}
        yield from ((f"{images} images: {what}", t) for what, t in results.items())


@case("convolution of thin groups")
def thin_groups(be: Any) -> Results:
    """All passes of a depthwise convolution, whose gradient of filters has a kernel of its own."""
    rng = np.random.default_rng(15)
    layer = be.conv_layer(np.float32, 5, 6, 6, H=7, W=6, R=3, S=3, pad_h=1, pad_w=1, groups=6)
    x, f, e = (be.array(rng.standard_normal(dims)) for dims in (layer.dimI, layer.dimF, layer.dimO))
    y, dx, df = (be.empty(dims) for dims in (layer.dimO, layer.dimI, layer.dimF))
    be.fprop_conv(layer, x, f, y)
    be.bprop_conv(layer, f, e, dx)
    be.update_conv(layer, x, e, df)
    yield from (("forward", y), ("data gradient", dx), ("weight gradient", df))


def compensated(be: Any, dtype: str) -> Results:
    """Sums with compensation for rounding."""
    total, lost, step = (be.array(np.full((67, 33), v), dtype=dtype) for v in (1.0, 0.0, 2e-4))
    for _ in range(9):
        be.compensated_sum(total, lost, step)
    yield "sum", total
    yield "what it lost", lost


def narrow(be: Any, dtype: str) -> Results:
    """Pooling, response normalisation and a product of 16 bits."""
    rng = np.random.default_rng(12)
    pool, lrn = (
        be.pool_layer(as_dtype(dtype), "max", 16, 6, H=7, W=6, R=2, S=2),
        be.lrn_layer(as_dtype(dtype), 16, 6, H=7, W=6, J=3),
    )
    x, o = be.array(rng.standard_normal(pool.dimI), dtype=dtype), be.empty(pool.dimO, dtype=dtype)
    normal, denom = (be.empty(lrn.dimI, dtype=dtype) for _ in range(2))
    be.fprop_pool(pool, x, o, be.empty(pool.dimO, dtype=np.int32))
    be.fprop_lrn(lrn, x, normal, denom, 1.0, 0.0, ascale=0.3)
    yield "pooling", o
    yield "response normalisation", normal
    left, right = (be.array(rng.standard_normal((40, 24)), dtype=dtype) for _ in range(2))
    product = be.empty((40, 40), dtype=dtype)
    be.compound_dot(left, right.T, product, relu=True)
    yield "a product", product


for _name in ("float16", "bfloat16", "float32"):
    CASES[f"implicit convolution {_name}"] = partial(implicit, dtype=_name)
    CASES[f"compensated sum {_name}"] = partial(compensated, dtype=_name)
for _name in ("float16", "bfloat16"):
    CASES[f"pooling and normalisation {_name}"] = partial(narrow, dtype=_name)


def tiles(be: Any, edge: int) -> Results:
    """Convolutions by Winograd's tiles, of whole units of images or not."""
    rng = np.random.default_rng(13)
    for images in (8, 5, 2):
        layer = be.conv_layer(np.float32, images, 11, 14, H=7, W=9, R=3, S=3, pad_h=1, pad_w=2)
        x, f, e = (be.array(rng.standard_normal(dims)) for dims in (layer.dimI, layer.dimF, layer.dimO))
        y, dx, df = (be.array(rng.standard_normal(dims)) for dims in (layer.dimO, layer.dimI, layer.dimF))
        bias, sums = be.array(rng.standard_normal((layer.K, 1))), be.empty((layer.K, 1))
        with convolving(be, "winograd", edge):
            be.fprop_conv(layer, x, f, y, bias=bias, bsum=sums, relu=True, slope=0.1, beta=0.5)
            be.bprop_conv(layer, f, e, dx, brelu=True)
            be.update_conv(layer, x, e, df, alpha=2.0, beta=0.5)
        results = {"forward": y, "sums": sums, "data gradient": dx, "weight gradient": df}
        yield from ((f"{images} images: {what}", t) for what, t in results.items())


for _edge in (2, 4):
    CASES[f"convolution by tiles of {_edge} x {_edge}"] = partial(tiles, edge=_edge)


def unrolls(be: Any, dtype: str) -> Results:
    """All steps of recurrent layers in one launch: many blocks, several groups of samples; each call made twice."""
    rng, tanh, gate = np.random.default_rng(14), Tanh(), Logistic()
    rows = {"h": 1, "c": 1, "act": 1, "reset": 1, "rnn": 1, "lstm": 4, "gru": 3}
    for size in ((150, 1, 9), (37, 5, 4), (13, 35, 3)):
        units, samples, steps = size

        def normal(count: int, columns: int, scale: float, units: int = units) -> Any:
            return be.array(rng.standard_normal((count * units, columns)) * scale, dtype=dtype)

        whole = {name: normal(count, (steps + 1) * samples, 0.5) for name, count in rows.items()}
        cut = {name: [t[:, k * samples : (k + 1) * samples] for k in range(steps + 1)] for name, t in whole.items()}
        w, b = ({cell: normal(rows[cell], n, 0.25) for cell in ("rnn", "lstm", "gru")} for n in (units, 1))
        h, c, end = cut["h"], cut["c"], (units, steps, steps, tanh)
        ff, act, reset = {cell: cut[cell][1:] for cell in w}, cut["act"][1:], cut["reset"][1:]
        with choosing(be, recurrent_method="persistent"), cooperative(be) as launched:
            for _ in range(2):
                be.compound_rnn_unroll_fprop(w["rnn"], h[:-1], ff["rnn"], h[1:], b["rnn"], *end)
                both, last = (ff["lstm"], ff["lstm"]), (h[1:], b["lstm"], *end, gate)
                be.compound_lstm_unroll_fprop(w["lstm"], h[:-1], c[:-1], *both, c[1:], act, *last)
                be.compound_gru_unroll_fprop(w["gru"], h[:-1], *[ff["gru"]] * 2, reset, h[1:], b["gru"], *end, gate)
        yield f"{size}: launches", be.array(np.full((1, 1), len(launched) if be.backend_name == "gpu" else 6))
        yield from ((f"{size}: {what}", tensor) for what, tensor in whole.items())


for _name in ("float32", "float64"):
    CASES[f"recurrent layers in one launch {_name}"] = partial(unrolls, dtype=_name)


@contextlib.contextmanager
def cooperative(be: Any) -> Iterator[list[str]]:
    """An item for each cooperative launch that a GPU takes meanwhile."""
    taken: list[str] = []
    if be.backend_name != "gpu":
        yield taken
        return
    together = be.device.starts.together

    def noted(*arguments: Any) -> Any:
        queue = together(*arguments)

        def call() -> None:
            queue()
            taken.append("launch")

        return call

    with mock.patch.object(be.device.starts, "together", noted):
        yield taken


@case("64-bit offsets")
def beyond_32_bits(be: Any) -> Results:
    """Rows of 3.2 GB in all, where there is room for them."""
    if be.backend_name == "gpu" and be.gpu_memory_size < ROOMY_BYTES:
        return
    rows, columns = 3, (1 << 30) + 5
    large = be.empty((rows, columns), dtype=np.uint8)
    large[:] = 1
    large[rows - 1, columns - 4 :] = 7
    for name, value in (("rows", be.sum(large, axis=1)), ("all", be.sum(large))):
        out = be.empty((rows, 1) if name == "rows" else (1, 1))
        out[:] = value
        yield f"sums of {name} beyond 32 bits", out
    ends = be.empty((rows, 9), dtype=np.uint8)
    ends[:] = large[:, columns - 9 :] * 2
    yield "the ends of rows beyond 32 bits", ends
    steps = be.empty((rows, 5), dtype=np.uint8)
    steps[:] = large[:, :: 1 << 28][:, :5] + large[::-1, 1 :: 1 << 28][:, :5]
    yield "steps beyond 32 bits", steps
