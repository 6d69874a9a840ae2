"""Convolution by loops over the taps of the filter in float64, written from the formulas on a padded image.

Test values are quarters, and factors powers of two: sums of their products are exact in float32 in whatever order they
are added up, so that results are compared for equality.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Triple = tuple[int, int, int]
AXES = range(3)


@dataclass(frozen=True)
class Sizes:
    """A convolution in numbers, without the library; tuples are depth, height, width."""

    N: int
    C: int
    K: int
    image: Triple = (1, 1, 1)
    window: Triple = (1, 1, 1)
    pad: Triple = (0, 0, 0)
    step: Triple = (1, 1, 1)
    dil: Triple = (1, 1, 1)
    groups: int = 1

    @property
    def out(self) -> Triple:
        found = [
            (self.image[a] + 2 * self.pad[a] - (self.dil[a] * (self.window[a] - 1) + 1)) // self.step[a] + 1
            for a in AXES
        ]
        return found[0], found[1], found[2]

    @property
    def shape_i(self) -> tuple[int, ...]:
        return (self.C, *self.image, self.N)

    @property
    def shape_f(self) -> tuple[int, ...]:
        return (self.C // self.groups, *self.window, self.K)

    @property
    def shape_o(self) -> tuple[int, ...]:
        return (self.K, *self.out, self.N)

    def layer(self, be: Any, dtype: Any = np.float32) -> Any:
        """The same as the library's layer."""
        triples = self.image, self.window, self.pad, self.step, self.dil
        return be.conv_layer(dtype, self.N, self.C, self.K, *itertools.chain(*triples), groups=self.groups)

    def padded(self, image: Array) -> Array:
        """``image`` in zeros, as far as any window reaches."""
        return np.pad(image, [(0, 0), *((p, p) for p in self.pad), (0, 0)])

    def reads(self, tap: tuple[int, ...]) -> tuple[slice, ...]:
        """Positions of the padded image that the tap reads, for all outputs."""
        starts = [tap[a] * self.dil[a] for a in AXES]
        return tuple(slice(s, s + (o - 1) * step + 1, step) for s, o, step in zip(starts, self.out, self.step))

    def parts(self) -> Iterator[tuple[tuple[int, ...], slice, slice, tuple[slice, ...]]]:
        """Each tap and group: the tap, the channels, the maps, and the input window of the tap."""
        channels, maps = self.C // self.groups, self.K // self.groups
        for tap in itertools.product(*map(range, self.window)):
            for g in range(self.groups):
                yield (
                    tap,
                    slice(g * channels, (g + 1) * channels),
                    slice(g * maps, (g + 1) * maps),
                    self.reads(tap),
                )


def forward(s: Sizes, image: Array, filters: Array) -> Array:
    """O of the forward pass."""
    out, padded = np.zeros(s.shape_o), s.padded(image.astype(np.float64))
    for tap, channels, maps, at in s.parts():
        out[maps] += np.einsum("ck,cdhwn->kdhwn", filters[(slice(None), *tap, maps)], padded[(channels, *at)])
    return out


def backward(s: Sizes, error: Array, filters: Array) -> Array:
    """The data gradient."""
    padded = s.padded(np.zeros(s.shape_i))
    for tap, channels, maps, at in s.parts():
        padded[(channels, *at)] += np.einsum(
            "ck,kdhwn->cdhwn", filters[(slice(None), *tap, maps)], error[maps].astype(np.float64)
        )
    return padded[(slice(None), *(slice(p, p + size) for p, size in zip(s.pad, s.image)))]


def update(s: Sizes, image: Array, error: Array) -> Array:
    """The weight gradient."""
    found, padded = np.zeros(s.shape_f), s.padded(image.astype(np.float64))
    for tap, channels, maps, at in s.parts():
        found[(slice(None), *tap, maps)] = np.einsum(
            "cdhwn,kdhwn->ck", padded[(channels, *at)], error[maps].astype(np.float64)
        )
    return found


def finish(
    result: Array,
    alpha: float = 1.0,
    bias: Array | None = None,
    brelu: bool = False,
    relu: bool = False,
    slope: float = 0.0,
    beta: float = 0.0,
    x: Array | None = None,
) -> Array:
    """Operations on the result before it is stored, in the order of the contract."""
    a = alpha * result
    if bias is not None:
        a = a + bias.reshape(-1, 1, 1, 1, 1)
    if brelu:
        assert x is not None
        a = a * ((x > 0) + slope * (x < 0))
    if relu:
        a = np.maximum(a, 0) + slope * np.minimum(a, 0)
    if beta:
        assert x is not None
        a = a + beta * x
    return a


def row_sums(stored: Array) -> Array:
    """bsum of the stored values."""
    return stored.reshape(len(stored), -1).astype(np.float64).sum(axis=1, keepdims=True)


def quarters(rng: np.random.Generator, shape: Any, dtype: Any = np.float32) -> Array:
    """Small values that are exact in float16, zeros among them."""
    return (rng.integers(-4, 5, shape) / 4).astype(dtype)


def tensor(be: Any, values: Array, dtype: Any = None) -> Any:
    """``values`` as a tensor of their dtype, a matrix (features, N)."""
    return be.array(values.reshape(-1, values.shape[-1]), dtype=dtype or values.dtype)


def same(found: Any, wanted: Array) -> None:
    """The tensor holds exactly ``wanted``, rounded once to its dtype."""
    values = found.get()
    np.testing.assert_array_equal(values.reshape(wanted.shape), wanted.astype(values.dtype))


def random_sizes(rng: np.random.Generator, images: tuple[int, ...] = (1, 2, 3, 16, 33, 64, 130)) -> Sizes:
    """A geometry at random, 1-D to 3-D, with or without groups."""

    def pick(*choices: int) -> int:
        return int(rng.choice(choices))

    groups = pick(1, 1, 1, 2, 3)
    axes = pick(1, 2, 2, 3)
    window, image, pad, step, dil = [1] * 3, [1] * 3, [0] * 3, [1] * 3, [1] * 3
    for a in range(3 - axes, 3):
        window[a], step[a], dil[a] = pick(1, 1, 2, 3, 4, 5 if axes < 3 else 2), pick(1, 1, 2, 3, 4), pick(1, 1, 2, 3)
        extent = dil[a] * (window[a] - 1) + 1
        pad[a] = pick(0, 0, 1, 2, extent)
        image[a] = max(1, extent - 2 * pad[a]) + pick(0, 1, 2, 3, 5, 8 if axes < 3 else 1)
    channels, maps = (1, 1) if rng.random() < 0.1 else (pick(1, 2, 3, 5, 16), pick(1, 3, 5, 8, 16, 33))
    triples = [(t[0], t[1], t[2]) for t in (image, window, pad, step, dil)]
    if rng.random() < 0.05 and math.prod(image) <= 60:  # many products to a sum
        return Sizes(64, 1500 // math.prod(window) + 7, maps, *triples)
    while math.prod(triples[0]) * channels > 1500:
        channels = channels // 2
    return Sizes(pick(*images), channels * groups, maps * groups, *triples, groups=groups)
