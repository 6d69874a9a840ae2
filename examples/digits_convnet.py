#!/usr/bin/env python
"""Train a convolutional network of layers to read handwritten digits.

The network is twice convolution with batch normalization and max pooling, dropout, then an affine layer. The script
prints which layers are computed in one call and, after training, the most frequent mistake. examples/digits_conv.py is
a similar network without layers, forward and backward by hand. Usage:

    python examples/digits_convnet.py [--epochs 30]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys

import numpy as np

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Kaiming
from neonlike.layers import Affine, Conv, Dropout, GeneralizedCost, Pooling
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, Schedule
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax


def build_model() -> Model:
    """(1, 8, 8) pixels -> (16, 4, 4) -> (32, 2, 2) -> 10 probabilities."""

    def convolution(maps: int) -> Conv:
        return Conv((3, 3, maps), init=Kaiming(), padding=1, batch_norm=True, activation=Rectlin())

    return Model(
        [
            convolution(16),
            Pooling(2),
            convolution(32),
            Pooling(2),
            Dropout(keep=0.5),
            Affine(nout=10, init=Kaiming(), activation=Softmax()),
        ]
    )


def worst_mistake(probabilities: np.ndarray, labels: np.ndarray) -> str:
    """The most frequent mistake, in words."""
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (labels, probabilities.argmax(axis=1)), 1)
    np.fill_diagonal(confusion, 0)
    actual, read = np.unravel_index(confusion.argmax(), confusion.shape)
    return f"{confusion[actual, read]} of {confusion.sum()} mistakes: {actual} read as {read}"


def main(arguments: list[str] | None = None) -> float:
    """Train, report, and return the accuracy on the test images."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 30, "batch_size": 64, "rng_seed": 0, "eval_freq": 1})
    args = parser.parse_args(arguments)
    digits = Digits()
    model = build_model()
    model.initialize(digits.train_iter)
    print(model.explain())

    optimizer = GradientDescentMomentum(
        0.1, momentum_coef=0.9, wdecay=1e-4, schedule=Schedule(step_config=[args.epochs * 2 // 3], change=0.1)
    )
    callbacks = Callbacks(model, eval_set=digits.valid_iter, metric=Misclassification(), **args.callback_args)
    cost = GeneralizedCost(CrossEntropyMulti())
    model.fit(digits.train_iter, cost, optimizer, num_epochs=args.epochs, callbacks=callbacks)

    accuracy = 1 - float(model.eval(digits.test_iter, metric=Misclassification())[0])
    _, (_, labels), _ = digits.load_data()
    print(f"Accuracy on the {len(labels)} test images: {accuracy:.1%}")
    print(worst_mistake(model.get_outputs(digits.test_iter), labels))
    return accuracy


if __name__ == "__main__":
    sys.exit(console.run(main))
