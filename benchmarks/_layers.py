"""Layers of five published networks, sizes of recurrent cells and of matrix products: the tables of the benchmarks.

Plain facts, from the papers and from the implementations that made them common: AlexNet with one tower (Krizhevsky
2014, its LRN layers from 2012), VGG-A (Simonyan and Zisserman 2014), OverFeat fast (Sermanet et al. 2013), GoogLeNet v1
(Szegedy et al. 2014, without its auxiliary classifiers), ResNet-50 (He et al. 2015, the stride of a block in its 3x3,
as in PyTorch). A layer that occurs more than once in a network is listed once, with its ``count``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

BATCHES = (32, 64)
"""Images in a minibatch."""

Shape = tuple[int, int, int]
"""Maps, their height, their width."""


def output_size(size: int, window: int, stride: int, pad: int) -> int:
    """Positions of a window along an axis."""
    return (size + 2 * pad - window) // stride + 1


@dataclass(frozen=True)
class Layer:
    """A layer of a network: its name within the network, and the number of its occurrences there."""

    network: str
    name: str
    count: int = 1

    @property
    def title(self) -> str:
        """Network and name, which identify a layer within its table."""
        return f"{self.network} {self.name}"

    def minibatch(self, N: int) -> int:
        """The minibatch it is measured with in a run over minibatches of N; 0 if it has none."""
        return N


Triple = tuple[int, int, int]
"""Depth, height, width."""


def _by(sizes: Triple) -> str:
    """``3x3``: sizes from the first that is an axis of its own."""
    return "x".join(map(str, sizes[1:] if sizes[0] <= 1 else sizes))


@dataclass(frozen=True)
class Conv(Layer):
    """Convolution of C maps to K, of one to three dimensions; ``n`` is its own minibatch, 0 stands for the run's.

    Transposed, it is from K maps of the output's size to C maps of ``size``.
    """

    C: int = 1
    K: int = 1
    size: Triple = (1, 1, 1)
    window: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    pad: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    groups: int = 1
    transposed: bool = False
    n: int = 0

    def minibatch(self, N: int) -> int:
        """Its own if it has one."""
        return self.n or N

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
    def maps_in(self) -> Shape:
        """Shape of the input of one image."""
        return self.C, *self.size[1:]

    @property
    def maps_out(self) -> Shape:
        """Shape of the output of one image."""
        return self.K, *self.out[1:]

    @property
    def text(self) -> str:
        """``64x56x56 -> 128, 3x3/2 p1``, with its minibatch and all that is unusual about it."""
        words = f"N {self.n}, " * bool(self.n) + f"{self.C}x{_by(self.size)} -> {self.K}, {_by(self.window)}"
        words += f"/{self.stride[-1]} p{self.pad[-1]}" + f" dilation {_by(self.dilation)}" * (max(self.dilation) > 1)
        return words + f" groups {self.groups}" * (self.groups > 1) + " transposed" * self.transposed

    def flops(self, N: int) -> int:
        """Operations of one direction; a multiplication and an addition are two."""
        return 2 * N * self.K * math.prod(self.out) * math.prod(self.filters[:-1])

    def nbytes(self, N: int) -> int:
        """float32 input, filter and output."""
        maps = N * (self.C * math.prod(self.size) + self.K * math.prod(self.out))
        return 4 * (maps + math.prod(self.filters))


def conv2d(
    network: str, name: str, C: int, size: int | tuple[int, int], K: int, window: int | tuple[int, int],
    stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1, transposed: bool = False, n: int = 0,
    count: int = 1,
) -> Conv:  # fmt: skip
    """A convolution of pictures; one number stands for both axes."""
    H, W = (size, size) if isinstance(size, int) else size
    R, S = (window, window) if isinstance(window, int) else window
    sizes = (1, H, W), (1, R, S), (1, stride, stride), (0, pad, pad), (1, dilation, dilation)
    return Conv(network, name, count, C, K, *sizes, groups, transposed, n)


@dataclass(frozen=True)
class Pool(Layer):
    """Pooling of C maps of H x W over square windows; ``op`` is "max" or "avg"."""

    op: str = "max"
    C: int = 1
    H: int = 1
    W: int = 1
    window: int = 2
    stride: int = 2
    pad: int = 0

    @property
    def P(self) -> int:  # noqa: N802
        """Height of the output."""
        return output_size(self.H, self.window, self.stride, self.pad)

    @property
    def Q(self) -> int:  # noqa: N802
        """Width of the output."""
        return output_size(self.W, self.window, self.stride, self.pad)

    @property
    def maps_in(self) -> Shape:
        """Shape of the input of one image."""
        return self.C, self.H, self.W

    @property
    def maps_out(self) -> Shape:
        """Shape of the output of one image."""
        return self.C, self.P, self.Q

    @property
    def text(self) -> str:
        """``max 64x55x55, 3x3/2 p0``."""
        return f"{self.op} {self.C}x{self.H}x{self.W}, {self.window}x{self.window}/{self.stride} p{self.pad}"

    def nbytes(self, N: int) -> int:
        """float32 input and output."""
        return 4 * N * self.C * (self.H * self.W + self.P * self.Q)


@dataclass(frozen=True)
class Maps(Layer):
    """C maps of H x W, of a layer that keeps sizes; ``window`` counts the channels that LRN sums over."""

    C: int = 1
    H: int = 1
    W: int = 1
    window: int = 0

    @property
    def maps_in(self) -> Shape:
        """Shape of the input of one image."""
        return self.C, self.H, self.W

    maps_out = maps_in

    @property
    def text(self) -> str:
        """``64x56x56``, and ``over 5`` channels."""
        return f"{self.C}x{self.H}x{self.W}" + (f", over {self.window}" if self.window else "")

    def nbytes(self, N: int) -> int:
        """float32 input and output."""
        return 8 * N * self.C * self.H * self.W


@dataclass(frozen=True)
class Cell(Layer):
    """A recurrent layer of ``kind`` "rnn", "lstm" or "gru", over ``steps`` of ``features`` inputs."""

    kind: str = "rnn"
    hidden: int = 1
    features: int = 1
    steps: int = 20

    GATES = {"rnn": 1, "lstm": 4, "gru": 3}  # noqa: RUF012 (no field: it has no annotation)

    @property
    def text(self) -> str:
        """``lstm 512 -> 512, 20 steps``."""
        return f"{self.kind} {self.features} -> {self.hidden}, {self.steps} steps"

    def flops(self, N: int) -> int:
        """Operations of the matrix products of a forward pass."""
        return 2 * N * self.steps * self.GATES[self.kind] * self.hidden * (self.hidden + self.features)

    def nbytes(self, N: int) -> int:
        """float32 inputs, weights, and gates of all steps."""
        gates = self.GATES[self.kind] * self.hidden
        return 4 * (gates * (self.hidden + self.features) + N * self.steps * (gates + self.hidden + self.features))


@dataclass(frozen=True)
class Product(Layer):
    """A product (m, k) x (k, n); ``n`` 0 stands for the minibatch, as in a fully connected layer of k inputs."""

    m: int = 1
    k: int = 1
    n: int = 0

    def minibatch(self, N: int) -> int:
        """None where the number of columns is given."""
        return 0 if self.n else N

    @property
    def maps_out(self) -> Shape:
        """Shape of the output of one image, of a fully connected layer."""
        return self.m, 1, 1

    @property
    def text(self) -> str:
        """``(m, k) x (k, n)``."""
        n = self.n or "N"
        return f"({self.m}, {self.k}) x ({self.k}, {n})"

    def flops(self, N: int) -> int:
        """A multiplication and an addition are two."""
        return 2 * self.m * self.k * (self.n or N)

    def nbytes(self, N: int) -> int:
        """float32 factors and product."""
        n = self.n or N
        return 4 * (self.m * self.k + self.k * n + self.m * n)


def merge(layers: Iterable[Any]) -> list[Any]:
    """Layers that differ in nothing but names made one, with their counts added."""
    found: dict[Any, Any] = {}
    for layer in layers:
        key = replace(layer, name="", count=1)
        known = found.get(key)
        found[key] = replace(known, count=known.count + layer.count) if known else layer
    return list(found.values())


# Convolution ----------------------------------------------------------------------------------------------------


INCEPTION = {
    "3a": (192, 28, 64, 96, 128, 16, 32, 32),
    "3b": (256, 28, 128, 128, 192, 32, 96, 64),
    "4a": (480, 14, 192, 96, 208, 16, 48, 64),
    "4b": (512, 14, 160, 112, 224, 24, 64, 64),
    "4c": (512, 14, 128, 128, 256, 24, 64, 64),
    "4d": (512, 14, 112, 144, 288, 32, 64, 64),
    "4e": (528, 14, 256, 160, 320, 32, 128, 128),
    "5a": (832, 7, 256, 160, 320, 32, 128, 128),
    "5b": (832, 7, 384, 192, 384, 48, 128, 128),
}
"""Inception modules: maps in, their size, maps of 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, and of the pool projection."""

RESNET50 = {"res2": (64, 3, 56), "res3": (128, 4, 28), "res4": (256, 6, 14), "res5": (512, 3, 7)}
"""Stages: maps of the narrow layers (four times as many leave a block), blocks, size of the output."""


def inception(module: str) -> list[Conv]:
    """The convolutions of a module, branch by branch."""
    C, size, one, reduce3, three, reduce5, five, pool = INCEPTION[module]
    branches = [
        ("1x1", C, one, 1),
        ("3x3 reduce", C, reduce3, 1),
        ("3x3", reduce3, three, 3),
        ("5x5 reduce", C, reduce5, 1),
        ("5x5", reduce5, five, 5),
        ("pool proj", C, pool, 1),
    ]
    return [conv2d("googlenet", f"{module} {n}", c, size, k, w, 1, w // 2) for n, c, k, w in branches]


def resnet50_convolutions() -> list[Conv]:
    """All 53 in the order of the network, the projections of shortcuts last in their blocks."""
    found, C, size = [conv2d("resnet50", "conv1", 3, 224, 64, 7, 2, 3)], 64, 56
    for stage, (width, blocks, out) in RESNET50.items():
        for block in range(blocks):
            name = f"{stage}{'abcdef'[block]}"
            stride = size // out
            found.append(conv2d("resnet50", f"{name} narrow", C, size, width, 1))
            found.append(conv2d("resnet50", f"{name} 3x3", width, size, width, 3, stride, 1))
            found.append(conv2d("resnet50", f"{name} widen", width, out, 4 * width, 1))
            if block == 0:
                found.append(conv2d("resnet50", f"{name} shortcut", C, size, 4 * width, 1, stride))
            C, size = 4 * width, out
    return found


ALL_CONVOLUTIONS: list[Conv] = [
    conv2d("alexnet", "conv1", 3, 224, 64, 11, 4, 2),
    conv2d("alexnet", "conv2", 64, 27, 192, 5, 1, 2),
    conv2d("alexnet", "conv3", 192, 13, 384, 3, 1, 1),
    conv2d("alexnet", "conv4", 384, 13, 256, 3, 1, 1),
    conv2d("alexnet", "conv5", 256, 13, 256, 3, 1, 1),
    conv2d("overfeat", "conv1", 3, 231, 96, 11, 4),
    conv2d("overfeat", "conv2", 96, 28, 256, 5),
    conv2d("overfeat", "conv3", 256, 12, 512, 3, 1, 1),
    conv2d("overfeat", "conv4", 512, 12, 1024, 3, 1, 1),
    conv2d("overfeat", "conv5", 1024, 12, 1024, 3, 1, 1),
    conv2d("vgg_a", "conv1", 3, 224, 64, 3, 1, 1),
    conv2d("vgg_a", "conv2", 64, 112, 128, 3, 1, 1),
    conv2d("vgg_a", "conv3", 128, 56, 256, 3, 1, 1),
    conv2d("vgg_a", "conv4", 256, 56, 256, 3, 1, 1),
    conv2d("vgg_a", "conv5", 256, 28, 512, 3, 1, 1),
    conv2d("vgg_a", "conv6", 512, 28, 512, 3, 1, 1),
    conv2d("vgg_a", "conv7", 512, 14, 512, 3, 1, 1),
    conv2d("vgg_a", "conv8", 512, 14, 512, 3, 1, 1),
    conv2d("googlenet", "conv1", 3, 224, 64, 7, 2, 3),
    conv2d("googlenet", "conv2 reduce", 64, 56, 64, 1),
    conv2d("googlenet", "conv2", 64, 56, 192, 3, 1, 1),
    *(conv for module in INCEPTION for conv in inception(module)),
    *resnet50_convolutions(),
]
CONVOLUTIONS: list[Conv] = merge(ALL_CONVOLUTIONS)
"""Every distinct convolution of the five networks."""

# Pooling, LRN, batch normalisation ------------------------------------------------------------------------------


def _pool(network: str, name: str, C: int, size: int, window: int, stride: int, pad: int = 0, op: str = "max") -> Pool:
    return Pool(network, name, 1, op, C, size, size, window, stride, pad)


ALL_POOLS: list[Pool] = [
    _pool("alexnet", "pool1", 64, 55, 3, 2),
    _pool("alexnet", "pool2", 192, 27, 3, 2),
    _pool("alexnet", "pool5", 256, 13, 3, 2),
    _pool("overfeat", "pool1", 96, 56, 2, 2),
    _pool("overfeat", "pool2", 256, 24, 2, 2),
    _pool("overfeat", "pool5", 1024, 12, 2, 2),
    _pool("vgg_a", "pool1", 64, 224, 2, 2),
    _pool("vgg_a", "pool2", 128, 112, 2, 2),
    _pool("vgg_a", "pool3", 256, 56, 2, 2),
    _pool("vgg_a", "pool4", 512, 28, 2, 2),
    _pool("vgg_a", "pool5", 512, 14, 2, 2),
    # A padding of 1 gives the published sizes, which round up, where sizes round down.
    _pool("googlenet", "pool1", 64, 112, 3, 2, 1),
    _pool("googlenet", "pool2", 192, 56, 3, 2, 1),
    _pool("googlenet", "pool3", 480, 28, 3, 2, 1),
    _pool("googlenet", "pool4", 832, 14, 3, 2, 1),
    *(_pool("googlenet", f"{name} pool", sizes[0], sizes[1], 3, 1, 1) for name, sizes in INCEPTION.items()),
    _pool("googlenet", "pool5", 1024, 7, 7, 1, 0, "avg"),
    _pool("resnet50", "pool1", 64, 112, 3, 2, 1),
    _pool("resnet50", "pool5", 2048, 7, 7, 1, 0, "avg"),
]
POOLS: list[Pool] = merge(ALL_POOLS)
"""Every distinct pooling layer of the five networks."""

OTHER_POOLS: list[Pool] = [
    _pool("halves", "large", 64, 112, 2, 2),
    _pool("halves", "small", 192, 27, 2, 2),
    _pool("halves", "avg", 64, 56, 2, 2, 0, "avg"),
    _pool("thirds", "overlapping", 64, 112, 3, 2, 1),
    _pool("thirds", "all places", 192, 28, 3, 1, 1),
    _pool("thirds", "apart", 96, 31, 3, 3),
    _pool("thirds", "avg", 64, 56, 3, 1, 1, "avg"),
    _pool("wide", "max 5x5", 128, 28, 5, 2, 2),
    _pool("wide", "avg 5x5 apart", 32, 56, 5, 5, 0, "avg"),
    _pool("wide", "avg 5x5 all places", 32, 56, 5, 1, 2, "avg"),
    _pool("wide", "avg 7x7 apart", 32, 56, 7, 7, 0, "avg"),
    _pool("global", "avg 7x7", 512, 7, 7, 1, 0, "avg"),
    _pool("global", "avg 8x8", 100, 8, 8, 1, 0, "avg"),
    _pool("global", "max 13x13", 33, 13, 13, 1),
]
"""Shapes that none of the networks has, in groups."""

LRNS: list[Maps] = [
    Maps("alexnet", "norm1", 1, 96, 55, 55, 5),
    Maps("alexnet", "norm2", 1, 256, 27, 27, 5),
    Maps("googlenet", "norm1", 1, 64, 56, 56, 5),
    Maps("googlenet", "norm2", 1, 192, 56, 56, 5),
]
"""AlexNet's are those of its first publication, whose maps were more."""

BATCHNORMS: list[Maps] = merge(
    Maps("resnet50", f"{conv.name} bn", 1, *conv.maps_out) for conv in resnet50_convolutions()
)
"""One follows each convolution of ResNet-50."""

# Recurrent layers, matrix products ------------------------------------------------------------------------------

CELL_BATCHES = (32, 64, 128)
CELLS: list[Cell] = [
    Cell(kind, str(hidden), 1, kind, hidden, hidden) for kind in ("rnn", "lstm", "gru") for hidden in (256, 512, 1024)
]
"""As many inputs as hidden units, as in all but the first of stacked layers."""

FULLY_CONNECTED: list[Product] = [
    Product("alexnet", "fc6", 1, 4096, 256 * 6 * 6),
    Product("alexnet", "fc7", 1, 4096, 4096),
    Product("alexnet", "fc8", 1, 1000, 4096),
    Product("overfeat", "fc6", 1, 3072, 1024 * 6 * 6),
    Product("overfeat", "fc7", 1, 4096, 3072),
    Product("overfeat", "fc8", 1, 1000, 4096),
    Product("vgg_a", "fc6", 1, 4096, 512 * 7 * 7),
    Product("vgg_a", "fc7", 1, 4096, 4096),
    Product("vgg_a", "fc8", 1, 1000, 4096),
    Product("googlenet", "fc", 1, 1000, 1024),
    Product("resnet50", "fc", 1, 1000, 2048),
]
SQUARES: list[Product] = [Product("square", str(size), 1, size, size, size) for size in (512, 1024, 2048)]
