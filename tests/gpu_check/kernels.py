"""Every kind of kernel once, on small odd shapes, compared with the CPU: what memory checkers are run on.

Run by ``python tests/gpu_check`` under compute-sanitizer; under the emulated GPU's checker it works as well.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from neonlike.backends import gen_backend
from neonlike.optree.functions import F
from neonlike.transforms import Logistic, Tanh

sys.path.append(str(Path(__file__).resolve().parent.parent))
from primitive_calls import CALLS

ROOMY_BYTES = 16 << 30
"""Memory of a GPU on which the cases of 3.2 GB run; the emulated one has less."""
Array = npt.NDArray[Any]
TOLERANCES = {"bfloat16": 1.6e-2, "float16": 4e-3, "float32": 2e-5, "float64": 1e-12}
"""Largest difference, in parts of the largest value."""


def results(be: Any) -> Iterator[tuple[str, Any]]:
    """Name and result of each case on ``be``."""
    rng = np.random.default_rng(11)
    a, b = (be.array(rng.standard_normal((67, 129))) for _ in range(2))
    row, column = be.array(rng.standard_normal((1, 129))), be.array(rng.standard_normal((67, 1)))
    square, long = be.array(rng.standard_normal((129, 129))), be.array(rng.standard_normal((3, 20011)))

    def of(shape: tuple[int, ...], expression: Any, dtype: Any = np.float32) -> Any:
        out = be.empty(shape, dtype=dtype)
        out[:] = expression
        return out

    yield "elementwise", of((67, 129), be.sig(a * b + 0.5))
    yield "broadcasting", of((67, 129), a * row + column)
    yield "a transposed view", of((129, 67), a.T * 2 + b.T)
    yield "a slice", of((31, 43), a[2:64:2, ::3] * 2)
    yield "softmax of rows", of((67, 129), be.fprop_softmax(a, 1))
    yield "softmax of columns", of((67, 129), be.fprop_softmax(a, 0))
    for axis, shape in ((None, (1, 1)), (0, (1, 129)), (1, (67, 1))):
        yield f"sum, axis {axis}", of(shape, be.sum(a * b, axis=axis))
        yield f"variance, axis {axis}", of(shape, be.var(a, axis=axis))
    yield "argmax", of((67, 1), be.argmax(a, axis=1))
    yield "long rows", of((3, 1), be.max(long, axis=1))
    yield "long columns", of((1, 3), be.sum(long.T, axis=0))
    yield "a product", of((67, 129), be.dot(a, square))
    yield "a product of transposed factors", of((129, 129), be.dot(a.T, b) + square.T)
    yield "gathered rows", of((5, 129), be.take(a, be.array([[3], [0], [66], [3], [1]], dtype=np.int32), axis=0))
    yield "random numbers", of((67, 129), be.rand() + a)
    index, gathered = be.array([[3], [0], [66], [3], [1]], dtype=np.int32), be.array(rng.standard_normal((5, 129)))
    yield "rows added where indices are equal", of((67, 129), F.untake(gathered, index, (67, 129), 0))
    yield "stochastic rounding", be.array(np.full((1, 1), float(rounds_at_random(be))))
    for dtype in ("float16", "bfloat16", "float64", "int32"):
        wide, narrow = be.array(rng.integers(-9, 9, (33, 65)), dtype=dtype), be.empty((33, 65), dtype=dtype)
        narrow[:] = wide * 3 + 1
        yield dtype, narrow
        yield f"sums of {dtype}", of((33, 1), be.sum(wide, axis=1), dtype)
    square[:] = square.T + 1
    yield "a target that is read", square
    a[3:50, ::2] = b[3:50, ::2] - 1
    yield "a part of a target", a
    step = be.prepare([(a, a * 0.9 + b), (b, be.sqrt(b * b + a * a))])
    step()
    step()
    yield "several results", a
    yield "the other of them", b
    tall, half = be.array(rng.standard_normal((4099, 36))), be.array(rng.standard_normal((72, 104)), dtype=np.float16)
    yield "softmax of long columns", of((4099, 36), F.softmax(tall, 0))
    yield "log of a sum of powers, long columns", of((1, 36), F.logsumexp(tall, 0))
    yield "a transposed view, by vectors", of((36, 4096), tall[:4096].T * 2)
    yield "a transposed view of float16, by vectors", of((104, 72), half.T, np.float16)


def primitives(be: Any) -> Iterator[tuple[str, Any]]:
    """Name and each result of a call of every compound primitive."""
    run = be._run_primitive
    for name, make in CALLS.items():
        written: list[Any] = []

        def noted(*args: Any, written: list[Any] = written, **options: Any) -> Any:
            written += [tensor for tensor in args[2] if tensor is not None]
            return run(*args, **options)

        with mock.patch.object(be, "_run_primitive", noted):
            make(be)()
        yield from ((f"{name}, {place}", tensor) for place, tensor in enumerate(written))


def narrow(be: Any) -> Iterator[tuple[str, Any]]:
    """Primitives on float16 and bfloat16; convolutions by the implicit kernel, of whole units of images or not."""
    rng = np.random.default_rng(12)
    for dtype in ("float16", "bfloat16", "float32"):
        for images, sizes in ((16, {"str_h": 2, "str_w": 2}), (5, {"pad_h": 1, "pad_w": 1})):
            layer = be.conv_layer(np.dtype(dtype), images, 11, 70, H=7, W=6, R=3, S=3, **sizes)
            x, f, e = (be.array(rng.standard_normal(d), dtype=dtype) for d in (layer.dimI, layer.dimF, layer.dimO))
            y, dx, df = (be.empty(d, dtype=dtype) for d in (layer.dimO, layer.dimI, layer.dimF))
            bias, sums = be.array(rng.standard_normal((layer.K, 1)), dtype=dtype), be.empty((layer.K, 1))
            with convolving(be, "implicit"):
                be.fprop_conv(layer, x, f, y, bias=bias, bsum=sums, relu=True, slope=0.1)
                be.bprop_conv(layer, f, e, dx)
                be.update_conv(layer, x, e, df)
            results = {"forward": y, "sums": sums, "data gradient": dx, "weight gradient": df}
            yield from ((f"implicit, {dtype}, {images} images: {what}", t) for what, t in results.items())
        total, lost, step = (be.array(np.full((67, 33), v), dtype=dtype) for v in (1.0, 0.0, 2e-4))
        for _ in range(9):
            be.compensated_sum(total, lost, step)
        yield f"compensated sum, {dtype}", total
        yield f"what a compensated sum lost, {dtype}", lost
    for dtype in ("float16", "bfloat16"):
        pool, lrn = (
            be.pool_layer(np.dtype(dtype), "max", 16, 6, H=7, W=6, R=2, S=2),
            be.lrn_layer(np.dtype(dtype), 16, 6, H=7, W=6, J=3),
        )
        x, o = be.array(rng.standard_normal(pool.dimI), dtype=dtype), be.empty(pool.dimO, dtype=dtype)
        normal, denom = (be.empty(lrn.dimI, dtype=dtype) for _ in range(2))
        be.fprop_pool(pool, x, o, be.empty(pool.dimO, dtype=np.int32))
        be.fprop_lrn(lrn, x, normal, denom, 1.0, 0.0, ascale=0.3)
        yield f"pooling, {dtype}", o
        yield f"response normalisation, {dtype}", normal
        left, right = (be.array(rng.standard_normal((40, 24)), dtype=dtype) for _ in range(2))
        product = be.empty((40, 40), dtype=dtype)
        be.compound_dot(left, right.T, product, relu=True)
        yield f"a product, {dtype}", product


def tiles(be: Any) -> Iterator[tuple[str, Any]]:
    """Convolutions by Winograd's tiles of both sizes, of whole units of images or not."""
    rng = np.random.default_rng(13)
    for edge, images in itertools.product((2, 4), (8, 5, 2)):
        layer = be.conv_layer(np.float32, images, 11, 14, H=7, W=9, R=3, S=3, pad_h=1, pad_w=2)
        x, f, e = (be.array(rng.standard_normal(dims)) for dims in (layer.dimI, layer.dimF, layer.dimO))
        y, dx, df = (be.array(rng.standard_normal(dims)) for dims in (layer.dimO, layer.dimI, layer.dimF))
        bias, sums = be.array(rng.standard_normal((layer.K, 1))), be.empty((layer.K, 1))
        with convolving(be, "winograd", edge):
            be.fprop_conv(layer, x, f, y, bias=bias, bsum=sums, relu=True, slope=0.1, beta=0.5)
            be.bprop_conv(layer, f, e, dx, brelu=True)
            be.update_conv(layer, x, e, df, alpha=2.0, beta=0.5)
        results = {"forward": y, "sums": sums, "data gradient": dx, "weight gradient": df}
        yield from ((f"tiles of {edge} x {edge}, {images} images: {what}", t) for what, t in results.items())


def unrolls(be: Any) -> Iterator[tuple[str, Any]]:
    """All steps of recurrent layers in one launch: many blocks, several groups of samples; each call made twice."""
    rng, tanh, gate = np.random.default_rng(14), Tanh(), Logistic()
    rows = {"h": 1, "c": 1, "act": 1, "reset": 1, "rnn": 1, "lstm": 4, "gru": 3}
    for dtype, size in itertools.product(("float32", "float64"), ((150, 1, 9), (37, 5, 4), (13, 35, 3))):
        units, samples, steps = size

        def normal(count: int, columns: int, scale: float, dtype: str = dtype, units: int = units) -> Any:
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
        name = f"one launch, {dtype}, {size}"
        yield f"{name}: launches", be.array(np.full((1, 1), len(launched) if be.backend_name == "gpu" else 6))
        yield from ((f"{name}: {what}", tensor) for what, tensor in whole.items())


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


def convolving(be: Any, method: str, winograd: bool | int = True) -> contextlib.AbstractContextManager[None]:
    """Convolutions are computed in this way, on a GPU."""
    return choosing(be, conv_method=method, enable_winograd=winograd)


@contextlib.contextmanager
def choosing(be: Any, **ways: Any) -> Iterator[None]:
    """Attributes of a GPU backend that say how it computes."""
    if be.backend_name != "gpu":
        yield
        return
    before = {name: getattr(be, name) for name in ways}
    for name, value in ways.items():
        setattr(be, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(be, name, value)


def rounds_at_random(be: Any) -> bool:
    """Whether values between two that 2 bits can hold become either, and on the average what they were."""
    out = be.empty((40, 250))
    out.rounding = 2
    out[:] = be.array(np.full((40, 250), 9.375)) * 1
    found = out.get()
    kept = be.backend_name != "gpu" or set(np.unique(found)) == {8.0, 10.0}
    return kept and abs(float(found.mean()) - 9.375) < 0.1


def beyond_32_bits(be: Any) -> Iterator[tuple[str, Any]]:
    """Cases whose offsets need 64 bits: 3.2 GB of bytes, and a tensor of the same size to gather from."""
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


def compare(name: str, got: Array, wanted: Array) -> str:
    """What is wrong; nothing if it is right."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{name}: {got.shape} of {got.dtype}, expected {wanted.shape} of {wanted.dtype}"
    allowed = TOLERANCES.get(got.dtype.name, 0.0) * max(float(np.abs(wanted).max()), 1.0)
    error = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max()
    return "" if error <= allowed else f"{name}: differs by {error:.2e}, allowed is {allowed:.2e}"


def main() -> int:
    """Compare all cases; the exit status is 1 if one is wrong."""
    found: dict[str, dict[str, Array]] = {}
    device, roomy = "", False
    for kind in ("gpu", "cpu"):
        with gen_backend(kind, rng_seed=0) as be:
            if kind == "gpu":
                device, roomy = be.device.name, be.gpu_memory_size >= ROOMY_BYTES
            large = beyond_32_bits(be) if roomy else ()
            cases = itertools.chain(results(be), primitives(be), narrow(be), tiles(be), unrolls(be), large)
            found[kind] = {name: tensor.get().copy() for name, tensor in cases}
    wrong = [line for name, ours in found["gpu"].items() if (line := compare(name, ours, found["cpu"][name]))]
    print("\n".join(wrong))
    print(f"{device}: {len(found['gpu'])} kinds of kernels, {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
