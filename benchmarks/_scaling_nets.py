"""Published networks whose scaling is predicted; bytes of the gradients of a network, and when they are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from _libraries import Array
from _nets import NETS, Builder, Conv, Dense, Drawn, Lstm, Net, Node, Pool
from _scaling_model import FLOAT, Gradient, Step

DOWN = Pool("max", 3, 2)
HEAD = Dense(4096, relu=True), Dense(4096, relu=True), Dense(1000)
HALF_SIZE = Pool("max", 2, 2)


def _vgg_a() -> tuple[Node, ...]:
    found: list[Node] = []
    for maps, count in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        found += [Conv(maps)] * count + [HALF_SIZE]
    return (*found, *HEAD)


def _alexnet() -> tuple[Node, ...]:
    convolutions = Conv(64, 11, 4, padding=2), DOWN, Conv(192, 5), DOWN, Conv(384), Conv(256), Conv(256), DOWN
    return (*convolutions, *HEAD)


LARGE = {
    "alexnet": Net("AlexNet with one tower, on 224 x 224 pixels", (3, 224, 224), 128, _alexnet(), 0.001),
    "vgg_a": Net("VGG-A, on 224 x 224 pixels", (3, 224, 224), 32, _vgg_a(), 0.001),
    "resnet50": replace(NETS["resnet50"], N=32),
    "lstm": Net("LSTM of 1024 units over 64 steps of 128 characters", (128, 64), 64, (Lstm(1024), Dense(128))),
}
"""Published as ``_layers.py`` says. N is the minibatch of a rank."""


# Gradients of a network -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A layer with parameters.

    Attributes
    ----------
    sizes : tuple of int
        Elements of each parameter.
    forward, backward : int
        Operations for a sample; a multiplication and an addition are two.
    """

    sizes: tuple[int, ...]
    forward: int
    backward: int


class _Unset(Drawn):
    """Weights of a network, of which only the shapes are wanted."""

    def matrix(self, rows: int, columns: int, fan_in: int) -> Array:
        return np.empty((rows, columns), np.float32)


class Counter(Builder):
    """Counts the parameters and operations of a network; builds nothing.

    Attributes
    ----------
    parts : list of Part
        In forward order.
    """

    def __init__(self, net: Net) -> None:
        super().__init__(net.shape)
        self.drawn, self.steps, self.parts = _Unset(), net.steps, list[Part]()
        self.build(net.layers)

    def _add(self, sizes: Sequence[int], times: int, weights: int = 0) -> list[Any]:
        """A layer that uses each of its ``weights`` (default: its first parameter) ``times`` times.

        The first layer has no gradient of its input.
        """
        operations = 2 * (weights or sizes[0]) * times
        self.parts.append(Part(tuple(sizes), operations, operations * (2 if self.parts else 1)))
        return []

    def make_conv(self, node: Conv, values: Array) -> list[Any]:
        out = (self.size + 2 * node.pad - node.window) // node.stride + 1
        return self._add([values.size, *[node.maps] * (2 if node.norm else 1)], out**2)

    def make_pool(self, node: Pool) -> list[Any]:
        return []

    def make_dense(self, node: Dense, values: Array) -> list[Any]:
        return self._add([values.size, *[node.outputs] * node.bias], self.steps)

    def make_residual(self, body: list[Any], shortcut: list[Any]) -> list[Any]:
        return []

    def make_inception(self, branches: Sequence[list[Any]]) -> list[Any]:
        return []

    def make_lstm(self, node: Lstm, values: Array, inputs: int) -> list[Any]:
        """Its last row is the bias."""
        return self._add([values.size], self.steps, values[:-1].size)


def parameters(net: Net) -> int:
    """Number of parameters of a network."""
    return sum(sum(part.sizes) for part in Counter(net).parts)


def step_of(net: Net, seconds: float) -> Step:
    """A step of a network that takes ``seconds``, these divided among its passes and layers by their operations."""
    parts = Counter(net).parts
    whole = sum(part.forward + part.backward for part in parts)
    done = sum(part.forward for part in parts)
    gradients = []
    for part in reversed(parts):
        done += part.backward
        gradients += [Gradient(FLOAT * size, done / whole) for size in part.sizes]
    return Step(seconds, tuple(gradients))
