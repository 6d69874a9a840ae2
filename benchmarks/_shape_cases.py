"""The cases of ``optree_shapes.py``: expressions on arrays that lie in memory otherwise than one after the other.

Operands are made at their full size, and a case takes its views of them: transposed, strided, flipped, broadcast. The
same function of views serves NumPy, PyTorch and us wherever indexing says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

M = 1 << 20
Shapes = tuple[tuple[int, ...], ...]
INTEGERS = ("int32", "int8")
FLOATS = ("float32", "float64", "float16", "bfloat16")


@dataclass(frozen=True)
class ShapeCase:
    """One expression on operands of one layout."""

    name: str
    inputs: Shapes
    """Of the operands in memory, float32 unless ``dtype`` says otherwise."""
    ours: Callable[[Any], Callable[..., Any]]
    """``ours(be)`` gives the function of tensors that builds the expression."""
    numpy: Callable[..., Any]
    """The same function of NumPy arrays, with ``keepdims``: in float64 it is the reference."""
    torch: Callable[[Any], Callable[..., Any]]
    """``torch(t)`` gives the function of the target and the tensors; what it returns is the result."""
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Elements of the largest operand."""
        return max(map(math.prod, self.inputs))


def _powers(x: Any, axis: int) -> Any:
    return np.exp(x - np.max(x, axis=axis, keepdims=True))


REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "sum": (
        lambda be, x, axis: be.sum(x, axis=axis), lambda x, axis: np.sum(x, axis=axis, keepdims=True),
        lambda t, out, x, axis: t.sum(x, dim=axis, keepdim=True, out=out),
    ),
    "max": (
        lambda be, x, axis: be.max(x, axis=axis), lambda x, axis: np.max(x, axis=axis, keepdims=True),
        lambda t, out, x, axis: t.amax(x, dim=axis, keepdim=True, out=out),
    ),
    "argmax": (
        lambda be, x, axis: be.argmax(x, axis=axis), lambda x, axis: np.argmax(x, axis=axis, keepdims=True),
        lambda t, out, x, axis: t.argmax(x, dim=axis, keepdim=True, out=out),
    ),
    "softmax": (
        lambda be, x, axis: be.fprop_softmax(x, axis),
        lambda x, axis: _powers(x, axis) / np.sum(_powers(x, axis), axis=axis, keepdims=True),
        lambda t, out, x, axis: t.softmax(x, axis, out=out),
    ),
    "norm": (
        lambda be, x, axis: be.norm2(x, axis), lambda x, axis: np.sqrt(np.sum(x * x, axis=axis, keepdims=True)),
        lambda t, out, x, axis: t.linalg.vector_norm(x, dim=axis, keepdim=True, out=out),
    ),
    "std": (
        lambda be, x, axis: be.std(x, axis), lambda x, axis: np.std(x, axis=axis, keepdims=True),
        lambda t, out, x, axis: t.std(x, dim=axis, correction=0, keepdim=True, out=out),
    ),
}  # fmt: skip
"""Name -> our function, NumPy's and PyTorch's. Sums of integers are int64; ``std`` is not corrected by n / (n - 1)."""


def _reduces(name: str, shape: tuple[int, ...], axes: Any, dtype: str = "float32") -> ShapeCase:
    """A reduction over ``axes``; None stands for all."""
    ours, numpy, torch = REDUCTIONS[name]
    return ShapeCase(
        f"{name} of {_by(shape)} over {'all' if axes is None else axes}", (shape,),
        lambda be: lambda x: ours(be, x, axes), lambda x: numpy(x, axes),
        lambda t: lambda out, x: torch(t, out, x, axes), dtype,
    )  # fmt: skip


_sum, _extreme, _argmax, _softmax, _norm, _deviation = (partial(_reduces, name) for name in REDUCTIONS)


def _fma(
    name: str, shapes: Shapes, views: Callable[..., Any], dtype: str = "float32"
) -> ShapeCase:
    """a*b + a of the views of a and b, in one pass."""

    def run(a: Any, b: Any) -> Any:
        x, y = views(a, b)
        return x * y + x

    def torch(t: Any) -> Callable[..., Any]:
        def fma(out: Any, a: Any, b: Any) -> Any:
            x, y = views(a, b)
            return t.addcmul(x, x, y, out=out)

        return fma

    return ShapeCase(f"a*b + a, {name}", shapes, lambda be: run, run, torch, dtype)


def _add(
    name: str, shapes: Shapes, views: Callable[..., Any], dtype: str = "float32"
) -> ShapeCase:
    """a + b of the views of a and b."""

    def run(a: Any, b: Any) -> Any:
        x, y = views(a, b)
        return x + y

    return ShapeCase(
        f"a + b, {name}", shapes, lambda be: run, run, lambda t: lambda out, a, b: t.add(*views(a, b), out=out), dtype
    )


def _flipped(axes: tuple[int, ...], shape: tuple[int, ...]) -> ShapeCase:
    """PyTorch has no negative strides: its flip is a copy, which here is the whole result."""
    at = tuple(slice(None, None, -1) if axis in axes else slice(None) for axis in range(len(shape)))
    return ShapeCase(
        f"x flipped over {axes}, {_by(shape)}", (shape,), lambda be: lambda x: x[at] + 0, lambda x: x[at],
        lambda t: lambda out, x: t.flip(x, axes),
    )  # fmt: skip


def _copy(name: str, shape: tuple[int, ...], view: Callable[[Any], Any], dtype: str = "float32") -> ShapeCase:
    """A view written to memory of its own."""
    return ShapeCase(
        f"copy, {name}", (shape,), lambda be: view, view, lambda t: lambda out, x: out.copy_(view(x)), dtype
    )


def _permuted(shape: tuple[int, ...], order: tuple[int, ...], dtype: str = "float32") -> ShapeCase:
    return ShapeCase(
        f"copy, {_by(shape)} permuted to {order}", (shape,), lambda be: lambda x: be.transpose(x, order),
        lambda x: np.transpose(x, order), lambda t: lambda out, x: out.copy_(x.permute(order)), dtype,
    )  # fmt: skip


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(f"{n // M}M" if n % M == 0 else str(n) for n in shape)


def _same(*views: Any) -> tuple[Any, ...]:
    return views


def _small(
    name: str,
    ours: Callable[[Any], Callable[..., Any]],
    numpy: Callable[..., Any],
    torch: Callable[[Any], Callable[..., Any]],
    operands: int = 1,
    dtype: str = "float32",
) -> ShapeCase:
    """An op on 64 elements, whose time is what surrounds the kernel."""
    return ShapeCase(f"{name} of 8x8", ((8, 8),) * operands, ours, numpy, torch, dtype)


def _take(be: Any) -> Callable[..., Any]:
    index = be.array(PICKED.reshape(1, -1), dtype="int64")
    return lambda x: be.take(x, index, 0)


def _selected(t: Any) -> Callable[..., Any]:
    index = t.from_numpy(PICKED)
    return lambda out, x: t.index_select(x, 0, index, out=out)


PICKED = np.array([1, 0, 6, 3], np.int64)
TWO = ((1024, 1024), (1024, 1024))
FOUR_D = (32, 64, 28, 28)

CASES: tuple[ShapeCase, ...] = (
    # Sums over axes and tuples of them, tall and wide
    _sum(FOUR_D, (0, 3)),
    _sum(FOUR_D, (0, 2)),
    _sum(FOUR_D, (1, 3)),
    _sum(FOUR_D, (0, 2, 3)),
    _sum((32, 28, 28, 64), (0, 1, 2)),
    _sum(FOUR_D, 1),
    _sum((8, 16, 8, 16, 64), (0, 2, 4)),
    _sum((M, 4), 0),
    _sum((4, M), 0),
    _sum((M, 4), 1),
    _sum((4, M), 1),
    _sum((M // 8, 7), 1),
    _sum((7, M // 8), 0),
    _sum((M // 64, 100), 1),
    _sum((333, 777), 1),
    _sum((333, 777), 0),
    _sum((M, 1), 0),
    _sum((100000, 17), 0),
    _sum((17, 100000), 1),
    _sum((500000, 3), 0),
    _sum((65536, 24), 0),
    _sum((65536, 60), 1),
    _sum((16, 300000), 0),
    _sum((24, 200000), 0),
    _sum((48, 100000), 0),
    _sum((200, 65536), 0),
    _sum((256, 64, 7, 7), (2, 3)),
    _sum((256, 64, 7, 7), (0, 2, 3)),
    _sum((100000, 17), 0, "float16"),
    *(_sum((1024, 1024), axis, dtype) for dtype in FLOATS[1:] + INTEGERS for axis in (0, 1)),
    *(_sum(FOUR_D, (0, 3), dtype) for dtype in (*FLOATS[1:], "int32")),
    _extreme((M, 4), 0),
    _extreme((4, M), 0),
    _extreme((M // 8, 7), 1),
    _extreme((1024, 1024), 0, "int8"),
    _extreme((1024, 1024), 1, "int8"),
    _extreme((1024, 1024), 1, "float16"),
    _extreme((1024, 1024), 1, "int32"),
    # Norms and deviations, which are finite also where squares are not
    *(_norm(shape, axis) for shape in ((64, 1000), (1024, 1024)) for axis in (1, 0)),
    *(_deviation(shape, axis) for shape in ((64, 1000), (1024, 1024)) for axis in (1, 0)),
    *(of((4096, 33), 1) for of in (_norm, _deviation)),
    *(of((M, 4), 0) for of in (_norm, _deviation)),
    *(of(FOUR_D, (0, 3)) for of in (_norm, _deviation)),
    *(of((1, 4 * M), None) for of in (_norm, _deviation)),
    _norm((1024, 1024), 1, "bfloat16"),
    # Positions
    _argmax((1024, 1024), 1),
    _argmax((1024, 1024), 0),
    _argmax((M // 8, 10), 1),
    _argmax((128, 1000), 1),
    _argmax((128, 1000), 0),
    _argmax((1, M), 1),
    _argmax((M, 4), 0),
    _argmax((400000, 10), 0),
    _argmax((400000, 3), 0),
    _argmax((1024, 1024), 1, "float64"),
    _argmax((1024, 1024), 1, "int32"),
    # Softmax of odd sizes
    _softmax((333, 777), 1),
    _softmax((333, 777), 0),
    _softmax((M // 8, 10), 1),
    _softmax((10, M // 8), 0),
    _softmax((4096, 33), 1),
    _softmax((128, 1000), 1),
    _softmax((64, 50257), 1),
    _softmax((333, 777), 1, "float64"),
    _softmax((333, 777), 1, "float16"),
    _softmax((333, 777), 1, "bfloat16"),
    # Data types
    *(_fma(f"{dtype} 1024x1024", TWO, _same, dtype) for dtype in FLOATS + INTEGERS),
    *(_fma(f"{dtype} 4096x4096", ((4096, 4096),) * 2, _same, dtype) for dtype in ("float16", "bfloat16")),
    # Transposed, strided, flipped, broadcast
    _add("b transposed", TWO, lambda a, b: (a, b.T)),
    _add("both transposed", TWO, lambda a, b: (a.T, b.T)),
    _add("b transposed, 333x777", ((333, 777), (777, 333)), lambda a, b: (a, b.T)),
    _add("b transposed, float64", TWO, lambda a, b: (a, b.T), "float64"),
    _add("b transposed, float16", TWO, lambda a, b: (a, b.T), "float16"),
    _add("b transposed, int8", TWO, lambda a, b: (a, b.T), "int8"),
    _add("every second column", ((1024, 2048),) * 2, lambda a, b: (a[:, ::2], b[:, ::2])),
    _add("every third column of b", ((1024, 1024), (1024, 3072)), lambda a, b: (a, b[:, ::3])),
    _add("every second row", ((2048, 1024),) * 2, lambda a, b: (a[::2], b[::2])),
    _add("columns 1 to 1023", TWO, lambda a, b: (a[:, 1:1023], b[:, 1:1023])),
    _add("a row of b", ((1024, 1024), (1, 1024)), _same),
    _add("a column of b", ((1024, 1024), (1024, 1)), _same),
    _add("a column and a row", ((1024, 1), (1, 1024)), _same),
    _add("of a number to each map", (FOUR_D, (1, 64, 1, 1)), _same),
    _add("row of b, M x 4", ((M, 4), (1, 4)), _same),
    _add("column of b, M x 4", ((M, 4), (M, 1)), _same),
    _add("column of b, 4 x M", ((4, M), (4, 1)), _same),
    _add("row of b, 100000 x 10", ((100000, 10), (1, 10)), _same),
    _add("row of b, 100000 x 10, float16", ((100000, 10), (1, 10)), _same, "float16"),
    _fma("row of b, images of 3 channels", ((16, 224, 224, 3), (1, 1, 1, 3)), _same),
    _fma("column of b, 30000 x 33", ((30000, 33), (30000, 1)), _same),
    _flipped((1,), (1024, 1024)),
    _flipped((0,), (1024, 1024)),
    _flipped((0, 1), (1024, 1024)),
    _flipped((2, 3), FOUR_D),
    _copy("transposed 1024x1024", (1024, 1024), lambda x: x.T),
    _copy("transposed 4096x4096", (4096, 4096), lambda x: x.T),
    _copy("transposed Mx4", (M, 4), lambda x: x.T),
    _copy("transposed 4xM", (4, M), lambda x: x.T),
    _copy("transposed int8", (1024, 1024), lambda x: x.T, "int8"),
    _copy("every second column", (1024, 2048), lambda x: x[:, ::2]),
    _permuted(FOUR_D, (0, 2, 3, 1)),
    _permuted((32, 28, 28, 64), (0, 3, 1, 2)),
    _permuted(FOUR_D, (1, 0, 2, 3)),
    _permuted((64, 64, 16, 16), (1, 0, 3, 2)),
    _permuted((128, 8, 128, 8), (0, 2, 1, 3)),
    # Small ones
    *(_add(f"8x8 of {dtype}", ((8, 8),) * 2, _same, dtype) for dtype in ("float32", "float16", *INTEGERS)),
    *(_fma(f"8x8 of {dtype}", ((8, 8),) * 2, _same, dtype) for dtype in ("float32", "int32")),
    _small(
        "maximum", lambda be: be.maximum, np.maximum, lambda t: lambda out, a, b: t.maximum(a, b, out=out), 2, "int32"
    ),
    _small(
        "log_softmax", lambda be: lambda x: be.log_softmax(x, 1),
        lambda x: x - np.log(np.sum(np.exp(x), 1, keepdims=True)),
        lambda t: lambda out, x: t.log_softmax(x, 1, out=out),
    ),
    _small(
        "concatenate", lambda be: lambda a, b: be.concatenate([a, b]), lambda a, b: np.concatenate([a, b]),
        lambda t: lambda out, a, b: t.cat([a, b], out=out), 2,
    ),
    _small(
        "stack", lambda be: lambda a, b: be.stack([a, b]), lambda a, b: np.stack([a, b]),
        lambda t: lambda out, a, b: t.stack([a, b], out=out), 2,
    ),
    _small("take four rows", _take, lambda x: x[PICKED], _selected),
    _small(
        "cumsum", lambda be: lambda x: be.cumsum(x, axis=1), lambda x: np.cumsum(x, axis=1),
        lambda t: lambda out, x: t.cumsum(x, 1, out=out),
    ),
    _small(
        "argsort", lambda be: lambda x: be.argsort(x, axis=1), lambda x: np.argsort(x, axis=1),
        lambda t: lambda out, x: out.copy_(t.argsort(x, 1)),
    ),
)  # fmt: skip


def operands(case: ShapeCase) -> list[Any]:
    """float32 or integer arrays, the same for every call; the 16-bit floats are made of them."""
    rng = np.random.default_rng(case.size)
    if case.dtype in INTEGERS:
        return [rng.integers(-9, 10, shape, dtype=case.dtype) for shape in case.inputs]
    return [rng.standard_normal(shape, dtype=np.float32) for shape in case.inputs]
