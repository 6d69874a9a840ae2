"""The five networks of ``_layers.py`` in their order, with their branches: what ``networks.py`` runs, layer by layer.

As published (see there), without dropout, without biases, and without the softmax behind the last layer; AlexNet
without LRN, as its second publication has it. A rectifier is a layer of its own unless it follows batch normalization,
which has it built in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from _layers import (
    ALL_CONVOLUTIONS,
    ALL_POOLS,
    FULLY_CONNECTED,
    INCEPTION,
    LRNS,
    Conv,
    Layer,
    Maps,
    Product,
    Shape,
    inception,
    merge,
    resnet50_convolutions,
)

BATCH = {"alexnet": 128, "overfeat": 64, "vgg_a": 64, "googlenet": 64, "resnet50": 64}
"""Images in a minibatch, unless others are asked for."""


@dataclass(frozen=True)
class Relu(Maps):
    """A rectifier, in place."""


@dataclass(frozen=True)
class BatchNorm(Maps):
    """Batch normalization, with a rectifier or without."""

    relu: bool = False

    @property
    def text(self) -> str:
        """``64x56x56, relu``."""
        return super().text + ", relu" * self.relu


@dataclass(frozen=True)
class Residual(Maps):
    """The sum of a block and its shortcut, rectified."""


@dataclass(frozen=True)
class Split(Maps):
    """Maps that ``branches`` read: nothing on the way forward, on the way back the sum of their errors."""

    branches: int = 2

    @property
    def text(self) -> str:
        """``256x28x28, to 4``."""
        return f"{super().text}, to {self.branches}"


@dataclass(frozen=True)
class Branches:
    """Paths from the same maps; the last layers of all write side by side, or what follows adds them."""

    paths: tuple[tuple[Layer, ...], ...]
    side_by_side: bool


Network = list[Any]
"""Layers and :class:`Branches`, each reading what the one before it made."""


def layers_of(network: Sequence[Any]) -> Iterator[Any]:
    """Every layer, those of branches path by path."""
    for part in network:
        if isinstance(part, Branches):
            for path in part.paths:
                yield from path
        else:
            yield part


def distinct(name: str) -> list[Any]:
    """The layers of a network, those that differ in nothing but names made one with their counts added."""
    return merge(layers_of(NETWORKS[name]))


def _known(network: str, names: str) -> list[Any]:
    """Layers of the tables, by their names."""
    table = {layer.title: layer for layer in (*ALL_CONVOLUTIONS, *ALL_POOLS, *FULLY_CONNECTED, *LRNS)}
    return [table[f"{network} {name.replace('_', ' ')}"] for name in names.split()]


def _relu(layer: Any) -> Relu:
    return Relu(layer.network, f"{layer.name} relu", 1, *layer.maps_out)


def _norm(conv: Conv, relu: bool) -> BatchNorm:
    return BatchNorm(conv.network, f"{conv.name} bn", 1, *conv.maps_out, relu=relu)


def _split(network: str, name: str, maps: Shape, branches: int) -> Split:
    return Split(network, f"{name} split", 1, *maps, branches=branches)


def _rectified(layers: Sequence[Any]) -> Network:
    """A rectifier behind each convolution and product."""
    found: Network = []
    for layer in layers:
        found += [layer, _relu(layer)] if isinstance(layer, (Conv, Product)) else [layer]
    return found


def _plain(network: str, names: str) -> Network:
    """A chain, whose last layer has no rectifier."""
    return _rectified(_known(network, names))[:-1]


def _googlenet() -> Network:
    found = _rectified(_known("googlenet", "conv1 pool1 norm1 conv2_reduce conv2 norm2 pool2"))
    for module in INCEPTION:
        one, reduce3, three, reduce5, five, projection = inception(module)
        pool = _known("googlenet", f"{module}_pool")
        paths = [one], [reduce3, three], [reduce5, five], [*pool, projection]
        found.append(_split("googlenet", module, one.maps_in, len(paths)))
        found.append(Branches(tuple(tuple(_rectified(path)) for path in paths), side_by_side=True))
        if module in ("3b", "4e"):
            found += _known("googlenet", "pool3" if module == "3b" else "pool4")
    return found + _known("googlenet", "pool5 fc")


def _resnet50() -> Network:
    first, *convolutions = resnet50_convolutions()
    found = [first, _norm(first, relu=True), *_known("resnet50", "pool1")]
    blocks: dict[str, list[Conv]] = {}
    for conv in convolutions:
        blocks.setdefault(conv.name.split()[0], []).append(conv)
    for name, (narrow, middle, widen, *shortcut) in blocks.items():
        path = [narrow, _norm(narrow, relu=True), middle, _norm(middle, relu=True), widen, _norm(widen, relu=False)]
        beside = [made for conv in shortcut for made in (conv, _norm(conv, relu=False))]
        found.append(_split("resnet50", name, narrow.maps_in, 2))
        found.append(Branches((tuple(path), tuple(beside)), side_by_side=False))
        found.append(Residual("resnet50", f"{name} sum", 1, *widen.maps_out))
    return found + _known("resnet50", "pool5 fc")


NETWORKS: dict[str, Network] = {
    "alexnet": _plain("alexnet", "conv1 pool1 conv2 pool2 conv3 conv4 conv5 pool5 fc6 fc7 fc8"),
    "vgg_a": _plain(
        "vgg_a", "conv1 pool1 conv2 pool2 conv3 conv4 pool3 conv5 conv6 pool4 conv7 conv8 pool5 fc6 fc7 fc8"
    ),
    "overfeat": _plain("overfeat", "conv1 pool1 conv2 pool2 conv3 conv4 conv5 pool5 fc6 fc7 fc8"),
    "googlenet": _googlenet(),
    "resnet50": _resnet50(),
}
