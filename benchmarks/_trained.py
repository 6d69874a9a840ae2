"""Networks that ``autograd.py`` trains: one function of a library's operations each, so that all compute the same.

A library (``_trainers.py``) has the operations that these functions call: the best of its own under these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from _libraries import Array
from _primitives import values

Data = dict[str, Array]

RATE, MOMENTUM = 0.01, 0.9
PIXELS = 0.5
"""Scale of the inputs."""


class Trained(Protocol):
    """A network: its sizes, and its loss by a library's operations.

    Attributes
    ----------
    learns : bool
        Whether a step ends in the optimizer's; else gradients are all.
    operations : int
        How many there are forward, where their number is what a case is about; else 0.
    """

    learns: ClassVar[bool]

    @property
    def operations(self) -> int:
        """See above."""

    @property
    def text(self) -> str:
        """Its sizes."""

    def weights(self) -> Data:
        """First values of the parameters."""

    def inputs(self, N: int) -> Data:
        """A minibatch of N samples."""

    def loss(self, o: Any, w: Mapping[str, Any], x: Mapping[str, Any]) -> Any:
        """The loss by the operations of ``o``, of weights and inputs as the library holds them."""


def _labels(classes: int, N: int) -> Array:
    return np.random.default_rng(9).integers(classes, size=N)


def _matrix(seed: int, rows: int, columns: int) -> Array:
    return values((rows, columns), seed, rows**-0.5)


def _zeros(columns: int) -> Array:
    return np.zeros((1, columns), np.float32)


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers of these sizes with biases, rectified but for the last; images are rows.

    ``keep``: the probability to keep a hidden value in steps that are timed, by dropout; None: there is none.
    """

    sizes: tuple[int, ...]
    keep: float | None = None
    learns: ClassVar[bool] = True
    operations: ClassVar[int] = 0

    @property
    def text(self) -> str:
        """``784-1024-1024-10``."""
        return "-".join(map(str, self.sizes)) + (f", dropout of {1 - self.keep:.0%}" if self.keep else "")

    def weights(self) -> Data:
        """``W1``, ``b1`` and so on."""
        pairs = list(enumerate(pairwise(self.sizes), 1))
        return {f"W{i}": _matrix(i, *pair) for i, pair in pairs} | {f"b{i}": _zeros(n) for i, (_, n) in pairs}

    def inputs(self, N: int) -> Data:
        """``images`` (N, pixels) and ``labels`` (N,)."""
        images = values((N, self.sizes[0]), 99, PIXELS)
        return {"images": images, "labels": _labels(self.sizes[-1], N)}

    def loss(self, o: Any, w: Mapping[str, Any], x: Mapping[str, Any]) -> Any:
        """Mean cross-entropy."""
        h = o.linear(x["images"], w["W1"], w["b1"])
        for i in range(2, len(self.sizes)):
            h = o.relu(h)
            h = o.linear(o.dropout(h, self.keep) if self.keep and o.drops else h, w[f"W{i}"], w[f"b{i}"])
        return o.cross_entropy(h, x["labels"])


@dataclass(frozen=True)
class Encoder:
    """A transformer encoder: ``blocks`` of attention and two layers with a gelu, each after a layer normalization.

    Tokens are rows of all samples, one sample after the other; their mean in each is classified.
    """

    width: int
    heads: int = 4
    length: int = 64
    blocks: int = 2
    features: int = 32
    classes: int = 10
    learns: ClassVar[bool] = True
    operations: ClassVar[int] = 0

    @property
    def text(self) -> str:
        """``2 blocks of width 64, 4 heads, 64 tokens``."""
        return f"{self.blocks} blocks of width {self.width}, {self.heads} heads, {self.length} tokens"

    def weights(self) -> Data:
        """Weights of the input, the positions, each block, and the output."""
        d = self.width
        made = {"W": _matrix(1, self.features, d), "b": _zeros(d)}
        made |= {"positions": values((self.length, d), 2, 0.1)}
        for i in range(self.blocks):
            sizes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
            for seed, (name, size) in enumerate(sizes.items(), 10 * (i + 1)):
                made |= {f"{name}{i}": _matrix(seed, *size), f"{name}{i} bias": _zeros(size[1])}
            made |= {f"norm{i}{half}": np.ones((1, d), np.float32) for half in "ab"}
            made |= {f"norm{i}{half} bias": _zeros(d) for half in "ab"}
        made |= {"norm": np.ones((1, d), np.float32), "norm bias": _zeros(d)}
        return made | {"last": _matrix(3, d, self.classes), "last bias": _zeros(self.classes)}

    def inputs(self, N: int) -> Data:
        """``tokens`` (N * length, features) and ``labels`` (N,)."""
        return {"tokens": values((N * self.length, self.features), 99), "labels": _labels(self.classes, N)}

    def loss(self, o: Any, w: Mapping[str, Any], x: Mapping[str, Any]) -> Any:
        """Mean cross-entropy."""
        h = o.add_to_samples(o.linear(x["tokens"], w["W"], w["b"]), w["positions"])
        for i in range(self.blocks):
            normed = o.layer_norm(h, w[f"norm{i}a"], w[f"norm{i}a bias"])
            seen = o.attention(o.linear(normed, w[f"qkv{i}"], w[f"qkv{i} bias"]), self.length, self.heads)
            h = h + o.linear(seen, w[f"out{i}"], w[f"out{i} bias"])
            normed = o.layer_norm(h, w[f"norm{i}b"], w[f"norm{i}b bias"])
            wide = o.gelu(o.linear(normed, w[f"up{i}"], w[f"up{i} bias"]))
            h = h + o.linear(wide, w[f"down{i}"], w[f"down{i} bias"])
        mean = o.mean_of_samples(o.layer_norm(h, w["norm"], w["norm bias"]), self.length)
        return o.cross_entropy(o.linear(mean, w["last"], w["last bias"]), x["labels"])


@dataclass(frozen=True)
class Chain:
    """Operations on 4 x 4 elements, each of the result of the one before: what a library needs for an operation itself.

    ``products``: matrix products and sums, in turns; else products, sums and tangents of elements.
    """

    operations: int
    products: bool = False
    learns: ClassVar[bool] = False

    @property
    def text(self) -> str:
        """``60 operations on 4x4, elements``."""
        kinds = "matrix products and sums" if self.products else "products, sums and tangents of elements"
        return f"{self.operations} {kinds}, 4x4"

    def weights(self) -> Data:
        """``scale``, so small that products of many do not grow, and ``shift``."""
        return {"scale": 0.5 * _matrix(1, 4, 4), "shift": _matrix(2, 4, 4)}

    def inputs(self, N: int) -> Data:
        """``start``."""
        return {"start": _matrix(3, 4, 4)}

    def loss(self, o: Any, w: Mapping[str, Any], x: Mapping[str, Any]) -> Any:
        """The sum of what comes out."""
        h = x["start"]
        for _ in range(self.operations // (2 if self.products else 3)):
            h = h @ w["scale"] + w["shift"] if self.products else o.tanh(h * w["scale"] + w["shift"])
        return o.sum(h)


BATCHES = (1, 64, 128, 256)
TRAINED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (Mlp((784, 1024, 1024, 10)), BATCHES),
    "small mlp": (Mlp((64, 128, 10)), BATCHES),
    "dropout": (Mlp((64, 64, 64, 64, 10), keep=0.75), BATCHES),
    "encoder 64": (Encoder(64), (1, 8, 64)),
    "encoder 128": (Encoder(128), (1, 8, 64)),
    "chain": (Chain(60), (1,)),
    "chain of products": (Chain(60, products=True), (1,)),
}
"""Name -> a :class:`Trained` and its minibatches."""
