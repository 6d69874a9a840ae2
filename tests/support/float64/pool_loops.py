"""Pooling by loops in float64, written from the formulas: a window's values are those that lie in the input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CLOSE = {np.float16: 2e-3, np.float32: 2e-6, np.float64: 1e-13}
"""dtype -> tolerance, relative to the largest value."""


class Sizes:
    """A pooling in numbers, without the library."""

    def __init__(self, N: int, **given: int) -> None:
        self.image = [given.get(name, 1) for name in "CDHW"]
        self.window = [given.get(name, 1) for name in "JTRS"]
        self.padding = [given.get(f"pad_{axis}", 0) for axis in "cdhw"]
        self.strides = [given.get(f"str_{axis}", size) for axis, size in zip("cdhw", self.window)]
        self.out = [
            (length + 2 * pad - size) // stride + 1
            for length, size, pad, stride in zip(self.image, self.window, self.padding, self.strides)
        ]
        self.N = N
        self.dimI, self.dimO = (*self.image, N), (*self.out, N)

    def windows(self) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """Each window's place in the output, and the positions of its values in C order."""
        for place in itertools.product(*map(range, self.out)):
            ranges = [
                [at for at in range(o * stride - pad, o * stride - pad + size) if 0 <= at < length]
                for o, stride, pad, size, length in zip(place, self.strides, self.padding, self.window, self.image)
            ]
            yield place, list(itertools.product(*ranges))


def forward(op: str, sizes: Sizes, x: Array) -> Array:
    """Pooled ``x``, in float64."""
    out = np.zeros(sizes.dimO)
    for place, positions in sizes.windows():
        values = [x[at].astype(np.float64) for at in positions]
        if values and op == "max":
            out[place] = np.max(values, axis=0)
        elif values and op == "avg":
            out[place] = sum(values) / len(values)
        elif values:
            out[place] = np.sqrt(sum(v * v for v in values))
    return out


def backward(op: str, sizes: Sizes, x: Array, error: Array) -> Array:
    """Gradient of ``sum(error * pooled x)``, in float64; of equal maxima the first one's."""
    delta = np.zeros(sizes.dimI)
    for place, positions in sizes.windows():
        if not positions:
            continue
        values = np.array([x[at] for at in positions], np.float64)
        first = np.argmax(values, axis=0)  # the first nan, where there is one
        norm = np.sqrt((values**2).sum(axis=0))
        for index, at in enumerate(positions):
            if op == "max":
                delta[at] += np.where(first == index, error[place], 0)
            elif op == "avg":
                delta[at] += error[place] / len(positions)
            else:
                share = np.divide(values[index], norm, out=np.zeros_like(norm), where=norm != 0)
                delta[at] += share * error[place]
    return delta


def layer_of(be: Any, op: str, N: int, dtype: Any = np.float32, **given: int) -> Any:
    return be.pool_layer(dtype, op, N, **given)


def steps(rng: np.random.Generator, shape: Any, dtype: Any = np.float32) -> Array:
    """Values with many ties, exact in float16."""
    return (rng.integers(-8, 8, shape) / 4).astype(dtype)


def close(found: Any, wanted: Array, dtype: Any) -> None:
    values = found.get().astype(np.float64).reshape(wanted.shape)
    np.testing.assert_allclose(values, wanted, rtol=0, atol=CLOSE[dtype] * max(1.0, np.abs(wanted).max(initial=0)))
