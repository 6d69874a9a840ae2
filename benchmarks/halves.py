"""Tensors of float16 and bfloat16 against tensors of float32, in this library: the time of each kind of operation.

All three run in one process and in turns. An operation is right if its results in 16 bits are those of float32, on the
same values, rounded once or twice. ``--quick``: small arrays alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from _cases import OURS, Case, Contender, Result, geometric_mean, size_text, times
from _report import Form
from harness import Session, arguments

from neonlike.backends import gen_backend
from neonlike.optree.dtypes import bfloat16

SINGLE = f"{OURS} float32"
HALVES = {f"{OURS} bfloat16": bfloat16(), f"{OURS} float16": np.dtype(np.float16)}
TARGET = 1.0
"""Time of an operation in 16 bits divided by its time in float32, per element."""
ERROR = {"bfloat16": 2.0**-7, "float16": 2.0**-9}
"""Largest error relative to the largest value: of results that are rounded twice."""
IMAGES = 64
SIZES = (1 << 14, 1 << 18, 1 << 22)


class Operation(NamedTuple):
    """Something to do with tensors of one dtype."""

    name: str
    text: str
    build: Callable[[Any, int, Any], tuple[Callable[[], object], Any]]
    """Of a backend, a number of elements and a dtype: what to run, and the tensor it writes."""


def drawn(be: Any, shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """A tensor of random numbers that bfloat16 and float16 have, so that all dtypes begin with the same."""
    values = np.random.default_rng(seed).integers(-64, 65, shape).astype(np.float32) / 32
    return be.array(values, dtype=dtype)


def square(size: int) -> tuple[int, int]:
    """Rows and columns of an array of ``size`` elements."""
    columns = 1 << (size.bit_length() - 1) // 2
    return size // columns, columns


def assigned(expression: Callable[..., Any], operands: int, rows: bool = False) -> Any:
    """The operation of assigning an expression of so many operands, or one number a row."""

    def build(be: Any, size: int, dtype: Any) -> tuple[Callable[[], object], Any]:
        shape = square(size)
        given = [drawn(be, shape, dtype, seed) for seed in range(operands)]
        out = be.empty((shape[0], 1) if rows else shape, dtype=dtype)

        def run() -> None:
            out[:] = expression(be, *given)

        return run, out

    return build


def pooled(op: str, backward: bool) -> Any:
    """The operation of pooling windows of 3 x 3 with stride 2 over images of 16 x 16, or its gradient."""

    def build(be: Any, size: int, dtype: Any) -> tuple[Callable[[], object], Any]:
        side = 16
        layer = be.pool_layer(
            dtype, op, IMAGES, max(1, size // (IMAGES * side * side)), 1, side, side, 1, 1, 3, 3, 0, 0, 1, 1, 1, 1, 2, 2
        )
        image, error = drawn(be, layer.dimI2, dtype), drawn(be, layer.dimO2, dtype, 1)
        out, delta = be.empty(layer.dimO2, dtype=dtype), be.empty(layer.dimI2, dtype=dtype)
        argmax = be.empty(layer.dimO2, dtype=np.uint8) if op == "max" else None
        be.fprop_pool(layer, image, out, argmax)
        if backward:
            return partial(be.bprop_pool, layer, error, delta, argmax), delta
        return partial(be.fprop_pool, layer, image, out, argmax), out

    return build


def normalized(be: Any, size: int, dtype: Any) -> tuple[Callable[[], object], Any]:
    """The operation of batch normalization of features, forward."""
    x = drawn(be, (size // IMAGES, IMAGES), dtype)
    features = x.shape[0]
    xsum, xvar, gmean, gvar, beta = (be.zeros((features, 1)) for _ in range(5))
    gamma, y = be.ones((features, 1)), be.empty(x.shape, dtype=dtype)

    def run() -> None:
        xsum[:] = be.sum(x, axis=1)
        be.compound_fprop_bn(x, xsum, xvar, gmean, gvar, gamma, beta, y, 1e-3, 0.9, 0.0, 0.0, False)

    return run, y


def multiplied(be: Any, size: int, dtype: Any) -> tuple[Callable[[], object], Any]:
    """The operation of multiplying a square matrix by 64 columns."""
    side, _ = square(size)
    a, b, out = drawn(be, (side, side), dtype), drawn(be, (side, 64), dtype, 1), be.empty((side, 64), dtype=dtype)
    return partial(be.compound_dot, a, b, out), out


def convolved(pass_: str) -> Any:
    """The operation of convolving 16 maps of images by 3 x 3, or of a gradient of it."""

    def build(be: Any, size: int, dtype: Any) -> tuple[Callable[[], object], Any]:
        maps = 16
        side, _ = square(size // (IMAGES * maps))
        layer = be.conv_layer(dtype, IMAGES, maps, maps, 1, side, side, 1, 3, 3, 0, 1, 1)
        image, filters, error = (
            drawn(be, dims, dtype, seed) for seed, dims in enumerate((layer.dimI2, layer.dimF2, layer.dimO2))
        )
        if pass_ == "update":
            out = be.empty(layer.dimF2, dtype=dtype)
            return partial(be.update_conv, layer, image, error, out), out
        out = be.empty(layer.dimO2, dtype=dtype)
        if pass_ == "fprop":
            return partial(be.fprop_conv, layer, image, filters, out), out
        return partial(be.bprop_conv, layer, filters, error, out), out

    return build


OPERATIONS = (
    Operation("copy", "a", assigned(lambda be, a: a, 1)),
    Operation("relu", "maximum(a, 0)", assigned(lambda be, a: be.maximum(a, 0), 1)),
    Operation("sum of two", "a + b", assigned(lambda be, a, b: a + b, 2)),
    Operation("sigmoid", "sig(a*b + c)", assigned(lambda be, a, b, c: be.sig(a * b + c), 3)),
    Operation("means of rows", "mean(a, axis=1)", assigned(lambda be, a: be.mean(a, axis=1), 1, True)),
    Operation("softmax", "softmax of columns", assigned(lambda be, a: be.softmax(a), 1)),
    Operation("batch norm", "sum(x, axis=1), compound_fprop_bn", normalized),
    Operation("max pooling", "max pooling 3x3, stride 2", pooled("max", False)),
    Operation("max pooling, back", "max pooling 3x3, stride 2, back", pooled("max", True)),
    Operation("mean pooling", "mean pooling 3x3, stride 2", pooled("avg", False)),
    Operation("mean pooling, back", "mean pooling 3x3, stride 2, back", pooled("avg", True)),
    Operation("product", "A . B, B of 64 columns", multiplied),
    Operation("convolution", "convolution 3x3 of 16 maps", convolved("fprop")),
    Operation("convolution, back", "convolution 3x3 of 16 maps, back", convolved("bprop")),
    Operation("filters", "gradient of the filters of 3x3", convolved("update")),
)


class Rates(Form):
    """Times of 16 bits divided by those of float32."""

    baseline = SINGLE
    copies = False

    def heading(self, size: int) -> str:
        """Heading of the cases of one size."""
        return f"{size_text(size)} elements\n{'':20}{'time':>10}{'spread':>8}{'vs float32':>12}"


def case(be: Any, operation: Operation, size: int) -> Case:
    """An operation in the three dtypes; the reference is its result in float32, which is checked elsewhere."""

    def contender(name: str, dtype: Any) -> Contender:
        run, out = operation.build(be, size, dtype)
        tolerance = ERROR.get(str(dtype))
        return Contender(name, run, lambda: [out.get().astype(np.float32)], ours=True, tolerance=tolerance)

    single = contender(SINGLE, np.dtype(np.float32))

    def reference() -> Sequence[Any]:
        single.run()
        return single.result()

    others = [contender(name, dtype) for name, dtype in HALVES.items()]
    return Case(operation.name, operation.text, size, [single, *others], reference)


def verdicts(results: Sequence[Result]) -> list[str]:
    """A remark for each dtype and size, with the slowest operation."""
    lines = []
    for size in dict.fromkeys(result.size for result in results):
        here = [result for result in results if result.size == size]
        singles = {result.case: result for result in here if result.contender == SINGLE}
        for name in HALVES:
            halves = {result.case: result for result in here if result.contender == name}
            ratios = {each: times(singles[each], halves.get(each)) for each in singles}
            found = geometric_mean(ratios.values())
            if found:
                slowest, ratio = max(((k, v) for k, v in ratios.items() if v), key=lambda pair: pair[1])
                met = "met" if ratio <= TARGET else "MISSED"
                lines.append(
                    f"{size_text(size)}, {name.removeprefix(OURS).strip()}: {found[0]:.2f} of float32's time on the "
                    f"geometric mean over {found[1]}; highest {ratio:.2f}, {slowest} (target {TARGET:g}): {met}"
                )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all operations; returns the exit status."""
    options = arguments((__doc__ or "").partition("\n")[0], bench=True).parse_args(argv)
    be = gen_backend("cpu", bench=options.bench)
    session = Session("halves", options, {"engine": be.engine.name}, Rates())
    for size in SIZES[:1] if options.quick else SIZES:
        for operation in OPERATIONS:
            session.run(case(be, operation, size))
    return session.finish(verdicts(session.results))


if __name__ == "__main__":
    sys.exit(main())
