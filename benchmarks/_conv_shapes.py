"""Convolutions of many shapes, beside the layers of published networks: two lists for ``conv_shapes.py``.

``SHAPES`` is what kernels are chosen and tuned with; ``HELD_OUT`` is only measured when that is done, so that it tells
how others' shapes fare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from _layers import Layer, output_size

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Shape(Layer):
    """Convolution of ``n`` images of C maps to K; triples are depth, height and width.

    Transposed, it is from K maps of the output's size to C maps of ``size``.
    """

    n: int = 1
    C: int = 1
    K: int = 1
    size: Triple = (1, 1, 1)
    window: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    pad: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    groups: int = 1
    transposed: bool = False

    def minibatch(self, N: int) -> int:
        """Its own."""
        return self.n

    @property
    def out(self) -> Triple:
        """Size of the output."""
        axes = zip(self.size, self.window, self.stride, self.pad, self.dilation)
        depth, height, width = (output_size(x, (w - 1) * d + 1, s, p) for x, w, s, p, d in axes)
        return depth, height, width

    @property
    def filters(self) -> tuple[int, ...]:
        """Shape of the filters (C / groups, T, R, S, K)."""
        return (self.C // self.groups, *self.window, self.K)

    @property
    def text(self) -> str:
        """``N 1, 64 of 1x56x56 -> 128, 1x3x3`` and what is not usual about it."""
        words = f"N {self.n}, {self.C} of {_by(self.size)} -> {self.K}, {_by(self.window)}"
        words += f"/{_by(self.stride)}" if max(self.stride) > 1 else ""
        words += f" p{_by(self.pad)}" if any(self.pad) else ""
        words += f" dilation {_by(self.dilation)}" if max(self.dilation) > 1 else ""
        return words + (f" groups {self.groups}" if self.groups > 1 else "") + (" transposed" * self.transposed)

    def flops(self, N: int = 0) -> int:
        """Of one direction; a multiplication and an addition are two."""
        return 2 * self.n * self.K * math.prod(self.out) * math.prod(self.filters[:-1])

    def nbytes(self, N: int = 0) -> int:
        """float32 input, filter and output."""
        maps = self.n * (self.C * math.prod(self.size) + self.K * math.prod(self.out))
        return 4 * (maps + math.prod(self.filters))

    def places(self) -> Iterator[tuple[Triple, Any]]:
        """Each place in the window, and the slices of a padded (maps, D, H, W, N) array that all outputs read there."""
        for t in range(self.window[0]):
            for r in range(self.window[1]):
                for s in range(self.window[2]):
                    starts = [i * d for i, d in zip((t, r, s), self.dilation)]
                    axes = zip(starts, self.out, self.stride)
                    yield (t, r, s), (slice(None), *(slice(a, a + (n - 1) * by + 1, by) for a, n, by in axes))


def _by(sizes: Triple) -> str:
    """``3x3``: sizes from the first that is an axis of its own."""
    return "x".join(map(str, sizes[1:] if sizes[0] <= 1 else sizes))


def _flat(
    network: str, n: int, C: int, size: int | tuple[int, int], K: int, window: int, stride: int = 1, pad: int = -1,
    dilation: int = 1, groups: int = 1, transposed: bool = False,
) -> Shape:  # fmt: skip
    """A convolution of pictures; padded to keep their size if not said otherwise."""
    H, W = (size, size) if isinstance(size, int) else size
    pad = (window - 1) * dilation // 2 if pad < 0 else pad
    triple = lambda x, depth: (depth, x, x)  # noqa: E731
    name = f"{n} {C}-{K} {H}x{W} {window}/{stride}" + (f" d{dilation}" * (dilation > 1))
    name += (f" g{groups}" * (groups > 1)) + (" t" * transposed)
    sizes = (1, H, W), triple(window, 1), triple(stride, 1), triple(pad, 0), triple(dilation, 1)
    return Shape(network, name, 1, n, C, K, *sizes, groups, transposed)


def _line(network: str, n: int, C: int, W: int, K: int, window: int, stride: int = 1, dilation: int = 1) -> Shape:
    """A 1-D convolution, padded to keep the length."""
    pad = (window - 1) * dilation // 2
    name = f"{n} {C}-{K} {W} {window}/{stride}" + (f" d{dilation}" * (dilation > 1))
    return Shape(network, name, 1, n, C, K, (1, 1, W), (1, 1, window), (1, 1, stride), (0, 0, pad), (1, 1, dilation))


def _solid(network: str, n: int, C: int, size: Triple, K: int, window: int, stride: int = 1) -> Shape:
    """A 3-D convolution, padded to keep the size."""
    name = f"{n} {C}-{K} {_by(size)} {window}/{stride}"
    return Shape(network, name, 1, n, C, K, size, (window,) * 3, (stride,) * 3, (window // 2,) * 3)


SHAPES = [
    _flat("one", 1, 64, 56, 64, 3),
    _flat("one", 1, 128, 28, 128, 3),
    _flat("one", 1, 256, 14, 256, 3),
    _flat("one", 1, 512, 7, 512, 3),
    _flat("one", 1, 3, 224, 64, 7, 2, 3),
    _flat("one", 1, 128, 56, 128, 3, 2, 1),
    _flat("one", 1, 256, 56, 64, 1),
    _flat("one", 1, 64, 56, 256, 1),
    _flat("one", 1, 1024, 14, 256, 1),
    _flat("one", 1, 96, 56, 96, 3, 2, 1, groups=96),
    _flat("one", 1, 240, 28, 240, 5, groups=240),
    _flat("few", 4, 64, 28, 128, 3, 2, 1),
    _flat("few", 7, 19, (33, 21), 45, 3),
    _flat("few", 7, 64, 13, 96, 3),
    _flat("few", 16, 48, (27, 31), 80, 5),
    _flat("few", 8, 3, 65, 64, 11, 4, 2),
    _flat("few", 4, 1024, 7, 1024, 1),
    _flat("few", 16, 1, 64, 1, 7),
    _flat("many", 32, 192, 14, 192, 3),
    _flat("many", 32, 192, 28, 16, 1),
    _flat("many", 128, 32, 28, 32, 3),
    _flat("many", 128, 3, 32, 32, 5),
    _flat("groups", 32, 64, 56, 64, 3, groups=64),
    _flat("groups", 64, 256, 14, 256, 3, groups=256),
    _flat("groups", 32, 128, 28, 128, 3, groups=32),
    _flat("groups", 16, 96, 27, 256, 5, groups=2),
    _flat("dilated", 1, 256, 28, 256, 3, dilation=2),
    _flat("dilated", 16, 64, 28, 64, 3, dilation=2),
    _line("1d", 16, 64, 1000, 64, 9),
    _line("1d", 1, 128, 4000, 128, 3),
    _line("1d", 32, 1, 8000, 64, 11, 4),
    _solid("3d", 4, 16, (16, 28, 28), 32, 3),
    _solid("3d", 1, 64, (8, 14, 14), 64, 3),
    _solid("3d", 2, 3, (16, 56, 56), 32, 3),
    _flat("transposed", 16, 64, 14, 128, 4, 2, 1, transposed=True),
    _flat("transposed", 1, 32, 56, 64, 4, 2, 1, transposed=True),
    _flat("transposed", 32, 256, 4, 100, 4, 1, 0, transposed=True),
]
HELD_OUT = [
    _flat("one", 1, 32, 112, 64, 3),
    _flat("one", 1, 160, 20, 160, 3),
    _flat("one", 1, 384, 13, 256, 3),
    _flat("one", 1, 3, 299, 32, 3, 2, 0),
    _flat("one", 1, 48, 35, 64, 5),
    _flat("one", 1, 512, 28, 128, 1),
    _flat("one", 1, 144, 28, 144, 3, groups=144),
    _flat("few", 2, 256, 14, 512, 3, 2, 1),
    _flat("few", 5, 31, (45, 17), 70, 3),
    _flat("few", 12, 80, 19, 80, 3),
    _flat("few", 8, 128, 17, 128, 7),
    _flat("few", 3, 512, 9, 1024, 1),
    _flat("many", 48, 96, 17, 96, 3),
    _flat("many", 100, 24, 32, 24, 3),
    _flat("many", 128, 1, 28, 20, 5, 1, 0),
    _flat("groups", 16, 192, 28, 192, 5, groups=192),
    _flat("groups", 64, 32, 48, 32, 3, 2, 1, groups=32),
    _flat("groups", 8, 256, 28, 256, 3, groups=8),
    _flat("dilated", 4, 128, 33, 128, 3, dilation=4),
    _line("1d", 8, 256, 500, 256, 5),
    _line("1d", 64, 16, 2048, 32, 7, 2),
    _line("1d", 4, 64, 3000, 64, 2, 1, 8),
    _solid("3d", 8, 32, (8, 16, 16), 32, 3),
    _solid("3d", 1, 32, (12, 40, 40), 64, 3, 2),
    _flat("transposed", 8, 48, 26, 96, 2, 2, 0, transposed=True),
    _flat("transposed", 64, 128, 8, 256, 4, 2, 1, transposed=True),
]
