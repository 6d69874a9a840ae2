#!/usr/bin/env python
"""Train a network with branches and shortcuts to read handwritten digits.

Residual blocks add their output to their input (MergeSum with a SkipNode). An inception block concatenates the maps of
branches with windows of different sizes (MergeBroadcast). A second, shallow output (a tree with a BranchNode) is
trained along with the first and left out in inference. Usage:

    python examples/skip_network.py [--epochs 15]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
from typing import Any

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Kaiming
from neonlike.layers import (
    Activation,
    Affine,
    BranchNode,
    Conv,
    GeneralizedCost,
    MergeBroadcast,
    MergeSum,
    Multicost,
    Pooling,
    SingleOutputTree,
    SkipNode,
)
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax


def conv(size: int, maps: int, stride: int = 1, activation: Any = None) -> Conv:
    """Convolution that keeps the image's size, or halves it, with batch normalization."""
    return Conv(
        (size, size, maps), Kaiming(), strides=stride, padding=size // 2, batch_norm=True, activation=activation
    )


def residual(maps: int, stride: int = 1) -> list[Any]:
    """Two convolutions beside a shortcut; the shortcut is a convolution of one pixel where the shape changes.

    (``neonlike.layers.Residual`` makes such a block.)
    """
    shortcut = SkipNode() if stride == 1 else conv(1, maps, stride)
    return [MergeSum([[conv(3, maps, stride, Rectlin()), conv(3, maps)], shortcut]), Activation(Rectlin())]


def inception(maps: int) -> MergeBroadcast:
    """Windows of 1 and 3 pixels and a pooling, with their maps concatenated."""
    branches = [
        conv(1, maps, activation=Rectlin()),
        [conv(1, maps, activation=Rectlin()), conv(3, maps, activation=Rectlin())],
        [Pooling(3, strides=1, padding=1), conv(1, maps, activation=Rectlin())],
    ]
    return MergeBroadcast(branches, merge="depth")


def build_model() -> Model:
    """Build the trunk to the first output, and the branch from its middle to the second."""
    middle = BranchNode("middle")
    trunk = [
        conv(3, 16, activation=Rectlin()),
        residual(16),
        residual(32, stride=2),
        middle,
        inception(16),
        Pooling("all", op="avg"),
        Affine(10, Kaiming(), activation=Softmax()),
    ]
    branch = [middle, Pooling(2), Affine(10, Kaiming(), activation=Softmax())]
    return Model(SingleOutputTree([trunk, branch]))


def main(arguments: list[str] | None = None) -> float:
    """Train, report, and return the accuracy on the test images."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 15, "batch_size": 64, "rng_seed": 0, "eval_freq": 1})
    args = parser.parse_args(arguments)
    digits = Digits()
    model = build_model()
    # Both outputs have the labels as their target; the second counts less.
    cost = Multicost([GeneralizedCost(CrossEntropyMulti()) for _ in range(2)], weights=[1, 0.3])
    callbacks = Callbacks(model, eval_set=digits.valid_iter, metric=Misclassification(), **args.callback_args)
    optimizer = GradientDescentMomentum(0.05, momentum_coef=0.9, wdecay=1e-4)
    model.fit(digits.train_iter, cost, optimizer, num_epochs=args.epochs, callbacks=callbacks)
    print(model)

    accuracy = 1 - float(model.eval(digits.test_iter, metric=Misclassification())[0])
    print(f"Accuracy on the {digits.test_iter.ndata} test images: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    sys.exit(console.run(main))
