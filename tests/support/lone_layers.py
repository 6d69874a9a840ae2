"""Layers one at a time, behind another one: an input, the error for the layer before, the gradients found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.backends import Backend
from neonlike.initializers import Gaussian
from neonlike.layers import (
    GRU,
    LRN,
    LSTM,
    Activation,
    BatchNorm,
    Bias,
    BiBNRNN,
    BiLSTM,
    BinaryLinear,
    BiRNN,
    Convolution,
    Deconvolution,
    Dropout,
    GroupNorm,
    LayerNorm,
    Linear,
    MergeBroadcast,
    MergeSum,
    Pad,
    Pooling,
    Recurrent,
    RecurrentLast,
    RecurrentMean,
    RecurrentSum,
    Reshape,
    ShiftBatchNorm,
    SkipNode,
)
from neonlike.layers.container import DeltasTree
from neonlike.layers.layer import BatchNormAutodiff
from neonlike.layers.recurrent import BiSum
from neonlike.transforms import Logistic, Rectlin, Softmax, Tanh

Array = np.ndarray[Any, Any]
STEPS = (6, 5)
IMAGE = (6, 4, 4)


def init() -> Gaussian:
    return Gaussian(scale=0.4)


def recurrent(layer: Any, gates: bool = False, **more: Any) -> Any:
    gated = {"gate_activation": Logistic()} if gates else {}
    return lambda: layer(6, init(), activation=Tanh(), **gated, **more)


MAKERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "Recurrent": (recurrent(Recurrent), STEPS),
    "Recurrent rectlin": (lambda: Recurrent(6, init(), activation=Rectlin()), STEPS),
    "LSTM": (recurrent(LSTM, True), STEPS),
    "GRU": (recurrent(GRU, True), STEPS),
    "BiRNN": (recurrent(BiRNN), STEPS),
    "BiLSTM": (recurrent(BiLSTM, True), STEPS),
    "BiBNRNN": (recurrent(BiBNRNN), STEPS),
    "BiSum": (BiSum, STEPS),
    "RecurrentSum": (RecurrentSum, STEPS),
    "RecurrentMean": (RecurrentMean, STEPS),
    "RecurrentLast": (RecurrentLast, STEPS),
    "Linear": (lambda: Linear(6, init()), 6),
    "BinaryLinear": (lambda: BinaryLinear(6, init()), 6),
    "Bias": (lambda: Bias(init()), 6),
    "Activation tanh": (lambda: Activation(Tanh()), 6),
    "Activation rectlin": (lambda: Activation(Rectlin()), 6),
    "Activation softmax": (lambda: Activation(Softmax()), 6),
    "Dropout": (lambda: Dropout(0.5), 6),
    "BatchNorm": (BatchNorm, 6),
    "BatchNorm of maps": (BatchNorm, IMAGE),
    "BatchNormAutodiff": (BatchNormAutodiff, 6),
    "ShiftBatchNorm": (ShiftBatchNorm, 6),
    "LayerNorm": (LayerNorm, 6),
    "GroupNorm": (lambda: GroupNorm(3), IMAGE),
    "Pad": (lambda: Pad((1, -1), (-1, 1)), IMAGE),
    "Convolution": (lambda: Convolution((3, 3, 6), init=init(), padding=1), IMAGE),
    "Deconvolution": (lambda: Deconvolution((3, 3, 6), init=init(), padding=1), IMAGE),
    "Pooling": (lambda: Pooling(3, strides=1, padding=1), IMAGE),
    "Pooling avg": (lambda: Pooling(3, strides=1, padding=1, op="avg"), IMAGE),
    "LRN": (lambda: LRN(3), IMAGE),
    "Reshape": (lambda: Reshape((6, 16)), IMAGE),
    "MergeSum": (lambda: MergeSum([[SkipNode()], [Linear(6, init())]]), 6),
    "MergeBroadcast": (lambda: MergeBroadcast([[Linear(3, init())], [Linear(3, init())]], merge="stack"), 6),
}


OTHER_SHAPES = ("BiRNN", "BiLSTM", "BiBNRNN", "BiSum", "RecurrentSum", "RecurrentMean", "RecurrentLast", "Reshape")
"""Layers whose outputs have another shape than their inputs."""


class Alone:
    """A layer that is not the first, with an input and the error buffer for the layer before."""

    def __init__(self, be: Backend, name: str) -> None:
        make, shape = MAKERS[name]
        be.bsz = 4
        be.rng_reset()
        self.be, self.layer = be, make()
        self.layer.configure(shape)
        self.layer.prev_layer = True
        self.layer.allocate()
        tree = DeltasTree()
        self.layer.allocate_deltas(tree)
        tree.allocate_buffers()
        self.layer.set_deltas(tree)
        rows = 6 if shape is STEPS else int(np.prod(shape))
        columns = 4 * (STEPS[1] if shape is STEPS else 1)
        self.x = be.array(np.random.default_rng(3).standard_normal((rows, columns)))
        self.owned = bool(getattr(self.layer, "owns_output", True))

    def forward(self) -> Any:
        """The outputs of a copy of the input where the layer works in place."""
        self.be.rng_reset()
        return self.layer.fprop(self.x if self.owned else self.be.array(self.x.get()))

    def found(self, error: Any, **scaled: float) -> list[Array]:
        """The error for the layer before and all gradients of parameters, after a backward pass."""
        deltas = self.layer.bprop(error, **scaled)
        return [deltas.get(), *(gradient.get() for _, gradient in _pairs(self.layer))]


def _pairs(layer: Any) -> list[tuple[Any, Any]]:
    found = layer.get_params() if hasattr(layer, "get_params") else []
    found = found if isinstance(found, list) else [found]
    return [(one[0][0], one[0][1]) for one in found if one]
