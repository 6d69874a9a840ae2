"""Networks that ``models.py`` trains, written once as trees of layers, and the weights from which each way starts.

``_nets_ours.py`` builds them of our layers, ``_nets_torch.py`` of PyTorch's. A convolution is followed by batch
normalisation or a bias, and by relu; weights are drawn in the order in which the tree names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from _layers import INCEPTION, RESNET50
from _libraries import Array

MOMENTUM = 0.9
EPS, RHO = 1e-5, 0.9


@dataclass(frozen=True)
class Conv:
    """Convolution of ``window`` x ``window`` to ``maps`` maps, padded so that a stride of 1 keeps the size."""

    maps: int
    window: int = 3
    stride: int = 1
    norm: bool = False
    relu: bool = True
    padding: int | None = None
    """Another padding than that."""

    @property
    def pad(self) -> int:
        """Rows and columns of zeros on each side."""
        return self.window // 2 if self.padding is None else self.padding


@dataclass(frozen=True)
class Pool:
    """Pooling, ``max`` or ``avg``."""

    op: str
    window: int
    stride: int
    pad: int = 0


@dataclass(frozen=True)
class Dense:
    """Fully connected layer; relu but for the last one, which softmax and cross-entropy follow."""

    outputs: int
    relu: bool = False
    bias: bool = True


@dataclass(frozen=True)
class Residual:
    """relu(body(x) + shortcut(x)); an empty shortcut hands x on."""

    body: tuple[Any, ...]
    shortcut: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Inception:
    """The maps of all branches, one after the other."""

    branches: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Lstm:
    """A recurrent layer over all steps, whose outputs a fully connected layer reads step by step."""

    units: int


Node: TypeAlias = Conv | Pool | Dense | Residual | Inception | Lstm


@dataclass(frozen=True)
class Net:
    """A network, its input and its minibatch."""

    text: str
    """What a reader is told."""
    shape: tuple[int, ...]
    """Of an image (C, H, W); a vector (features,); or a sequence (features, steps)."""
    N: int
    layers: tuple[Node, ...] = field(repr=False)
    rate: float = 0.01
    """Of learning: steps of two ways are compared, which a network that diverges makes differ."""

    @property
    def classes(self) -> int:
        """Outputs of the last layer."""
        last = self.layers[-1]
        assert isinstance(last, Dense)
        return last.outputs

    @property
    def steps(self) -> int:
        """Steps of a sequence; 1 for anything else."""
        return self.shape[1] if len(self.shape) == 2 else 1


def _basic(maps: int, stride: int = 1) -> Residual:
    """Two 3 x 3 convolutions around which the input goes; by a 1 x 1 convolution where the size changes."""
    body = (Conv(maps, stride=stride, norm=True), Conv(maps, norm=True, relu=False))
    shortcut = (Conv(maps, 1, stride, norm=True, relu=False),) if stride > 1 else ()
    return Residual(body, shortcut)


def _inception(name: str) -> Inception:
    """Four branches: 1 x 1; 1 x 1 and 3 x 3; 1 x 1 and 5 x 5; pooling and 1 x 1."""
    _, _, one, reduce3, three, reduce5, five, pooled = INCEPTION[name]
    branches = (
        (Conv(one, 1),),
        (Conv(reduce3, 1), Conv(three, 3)),
        (Conv(reduce5, 1), Conv(five, 5)),
        (Pool("max", 3, 1, 1), Conv(pooled, 1)),
    )
    return Inception(branches)


def _vgg() -> tuple[Node, ...]:
    found: list[Node] = []
    for maps, count in ((64, 2), (128, 2), (256, 3), (512, 3)):
        found += [Conv(maps, norm=True)] * count + [Pool("max", 2, 2)]
    return (*found, Dense(512, relu=True), Dense(10))


def _resnet() -> tuple[Node, ...]:
    blocks = [_basic(maps, 2 if maps > 64 and not i else 1) for maps in (64, 128, 256, 512) for i in range(2)]
    return (Conv(64, norm=True), *blocks, Pool("avg", 4, 4), Dense(10))


def _bottleneck(maps: int, stride: int = 1, first: bool = False) -> Residual:
    """1 x 1, 3 x 3 and 1 x 1 to four times as many maps, around which the input goes."""
    body = (Conv(maps, 1, norm=True), Conv(maps, 3, stride, norm=True), Conv(4 * maps, 1, norm=True, relu=False))
    return Residual(body, (Conv(4 * maps, 1, stride, norm=True, relu=False),) if first else ())


def _resnet50() -> tuple[Node, ...]:
    blocks, size = list[Node](), 56
    for maps, count, out in RESNET50.values():
        blocks += [_bottleneck(maps, 1 if i else size // out, first=not i) for i in range(count)]
        size = out
    return (Conv(64, 7, 2, norm=True), Pool("max", 3, 2, 1), *blocks, Pool("avg", 7, 1), Dense(1000))


def _googlenet() -> tuple[Node, ...]:
    down = Pool("max", 3, 2, 1)
    third, fourth, fifth = ([_inception(name) for name in INCEPTION if name[0] == stage] for stage in "345")
    start = Conv(64, 7, 2), down, Conv(64, 1), Conv(192, 3), down
    return (*start, *third, down, *fourth, down, *fifth, Pool("avg", 7, 1), Dense(1000))


NETS = {
    "mlp": Net("784-1024-1024-10", (784,), 128, (Dense(1024, relu=True), Dense(1024, relu=True), Dense(10))),
    "digits": Net(
        "two convolutions of 3 x 3 with batch normalisation and pooling, on 8 x 8 pixels", (1, 8, 8), 64,
        (Conv(16, norm=True), Pool("max", 2, 2), Conv(32, norm=True), Pool("max", 2, 2), Dense(10)),
    ),
    "vgg": Net("ten convolutions of 3 x 3 with batch normalisation, on 32 x 32 pixels", (3, 32, 32), 64, _vgg()),
    "resnet18": Net("eight residual blocks, on 32 x 32 pixels", (3, 32, 32), 64, _resnet()),
    "googlenet": Net("nine inception modules, on 224 x 224 pixels", (3, 224, 224), 32, _googlenet(), 0.001),
    "resnet50": Net("ResNet-50: sixteen residual blocks, on 224 x 224 pixels", (3, 224, 224), 64, _resnet50(), 0.001),
    "char-lstm 256": Net("LSTM of 256 units over 64 steps of 64 characters", (64, 64), 64, (Lstm(256), Dense(64))),
    "char-lstm 512": Net("LSTM of 512 units over 64 steps of 64 characters", (64, 64), 64, (Lstm(512), Dense(64))),
}  # fmt: skip


ON_GPU_ALONE = ("resnet50",)
"""Networks that a CPU takes minutes for: measured on one only if they are named."""

TINY = {
    "mlp": Net("12-9-5", (12,), 4, (Dense(9, relu=True), Dense(5)), 0.05),
    "digits": Net(
        "a convolution with batch normalisation and pooling, a residual block", (1, 8, 8), 4,
        (Conv(4, norm=True), Pool("max", 2, 2), _bottleneck(2, 2, first=True), Dense(5)), 0.05,
    ),
    "char-lstm 256": Net("LSTM of 6 units over 4 steps of 5 characters", (5, 4), 4, (Lstm(6), Dense(5)), 0.05),
}  # fmt: skip
"""For an emulated GPU, which takes a thousand times as long."""


# Weights and data -----------------------------------------------------------------------------------------------


class Drawn:
    """Weights of a network, drawn one after the other from one generator of random numbers."""

    def __init__(self, seed: int = 7) -> None:
        self.rng = np.random.default_rng(seed)

    def matrix(self, rows: int, columns: int, fan_in: int) -> Array:
        """(rows, columns), normal, for layers with relu."""
        return (self.rng.standard_normal((rows, columns)) * (2 / fan_in) ** 0.5).astype(np.float32)

    def filters(self, channels: int, conv: Conv) -> Array:
        """(channels * window * window, maps), as neon keeps them."""
        rows = channels * conv.window**2
        return self.matrix(rows, conv.maps, rows)


class Builder:
    """A network layer by layer: its weights are drawn on the way, sizes followed. A library makes the layers.

    Parameters
    ----------
    shape : tuple
        Of the input.

    Attributes
    ----------
    channels, size : int
        Of what the next layer gets: maps and their height, or features.
    flat : bool
        It gets features.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.drawn, self.channels, self.size = Drawn(), shape[0], shape[-1]
        self.flat = len(shape) != 3

    def build(self, layers: Sequence[Node]) -> list[Any]:
        """The library's layers in order."""
        return [made for node in layers for made in getattr(self, type(node).__name__.lower())(node)]

    def branch(self, layers: Sequence[Node], at: tuple[int, int]) -> tuple[list[Any], tuple[int, int]]:
        """Layers of a branch whose input has so many channels and that size; and those of its output."""
        self.channels, self.size = at
        made = self.build(layers)
        return made, (self.channels, self.size)

    def conv(self, node: Conv) -> list[Any]:
        """Convolution, batch normalisation or bias, relu."""
        made = self.make_conv(node, self.drawn.filters(self.channels, node))
        self.channels, self.size = node.maps, _output(self.size, node)
        return made

    def pool(self, node: Pool) -> list[Any]:
        """Pooling."""
        self.size = _output(self.size, node)
        return self.make_pool(node)

    def dense(self, node: Dense) -> list[Any]:
        """Fully connected layer."""
        inputs = self.channels if self.flat else self.channels * self.size**2
        made = self.make_dense(node, self.drawn.matrix(node.outputs, inputs, inputs))
        self.channels, self.flat = node.outputs, True
        return made

    def residual(self, node: Residual) -> list[Any]:
        """Both ways around, and relu of their sum."""
        before = self.channels, self.size
        body, after = self.branch(node.body, before)
        shortcut, _ = self.branch(node.shortcut, before)
        self.channels, self.size = after
        return self.make_residual(body, shortcut)

    def inception(self, node: Inception) -> list[Any]:
        """All branches on the same input."""
        before = self.channels, self.size
        made, ends = zip(*(self.branch(layers, before) for layers in node.branches))
        self.channels = sum(channels for channels, _ in ends)
        return self.make_inception(made)

    def lstm(self, node: Lstm) -> list[Any]:
        """Gates in the order input, forget, output, cell; rows are inputs, units and the bias, which is zero."""
        inputs, units = self.channels, node.units
        values = self.drawn.matrix(inputs + units + 1, 4 * units, units)
        values[-1] = 0
        self.channels = units
        return self.make_lstm(node, values, inputs)

    make_conv: Callable[..., list[Any]]
    make_pool: Callable[..., list[Any]]
    make_dense: Callable[..., list[Any]]
    make_residual: Callable[..., list[Any]]
    make_inception: Callable[..., list[Any]]
    make_lstm: Callable[..., list[Any]]


def _output(size: int, node: Conv | Pool) -> int:
    return (size + 2 * node.pad - node.window) // node.stride + 1


def torch_gates(values: Array, inputs: int) -> list[Array]:
    """An LSTM's weights of inputs and of units, with gates in PyTorch's order: input, forget, cell, output."""
    units = values.shape[1] // 4
    order = np.concatenate([np.arange(units) + gate * units for gate in (0, 1, 3, 2)])
    by_input = values[:inputs].reshape(4 * units, inputs)[order]
    return [by_input, values[inputs:-1].reshape(4 * units, units)[order]]


def data(net: Net) -> tuple[Array, Array]:
    """A minibatch: inputs (features, N), or (features, steps * N) of one 1 a column; class numbers of the columns."""
    rng = np.random.default_rng(3)
    columns = net.steps * net.N
    labels = rng.integers(net.classes, size=columns)
    if net.steps > 1:
        return np.eye(net.shape[0], dtype=np.float32)[rng.integers(net.shape[0], size=columns)].T.copy(), labels
    return rng.standard_normal((int(np.prod(net.shape)), columns)).astype(np.float32), labels


def walk(layers: Sequence[Node]) -> Iterator[Node]:
    """All layers of a tree."""
    for node in layers:
        yield node
        if isinstance(node, Residual):
            yield from walk((*node.body, *node.shortcut))
        elif isinstance(node, Inception):
            for branch in node.branches:
                yield from walk(branch)


Call: TypeAlias = Callable[[], object]
