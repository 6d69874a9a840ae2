#!/usr/bin/env python
"""Fine-tune a network trained on the digits 0 to 7 to read all ten, from three images each.

The first network is trained on all images of 0 to 7 and saved. The second has a new last layer and takes the other
layers, the trunk, from the file; one of its two optimizers moves the trunk slowly. A third network, started from random
weights, is the comparison. Usage:

    python examples/fine_tune.py [--epochs 15] [--images 3]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator, Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Kaiming
from neonlike.layers import Affine, Conv, GeneralizedCost, Pooling
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, MultiOptimizer, Optimizer
from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax
from neonlike.util.modeldesc import ModelDescription

HEAD = "head"
"""Name of the layer with the weights of one set of classes."""


def build_model(classes: int) -> Model:
    """A trunk of convolutions and the head."""
    trunk = [
        Conv((3, 3, 16), Kaiming(), padding=1, batch_norm=True, activation=Rectlin(), name="conv1"),
        Pooling(2),
        Conv((3, 3, 32), Kaiming(), padding=1, batch_norm=True, activation=Rectlin(), name="conv2"),
        Pooling(2),
    ]
    return Model([*trunk, Affine(classes, Kaiming(), activation=Softmax(), name=HEAD)])


def load_trunk(model: Model, file: Path) -> None:
    """Load all weights but the head's from a saved model; layers are matched by name."""
    saved = ModelDescription(file)
    for layer in model.layers_to_optimize:
        if layer.name != HEAD:
            layer.load_weights(saved.getlayer(layer.name), load_states=False)


def only(images: np.ndarray, labels: np.ndarray, classes: int, each: int | None = None) -> ArrayIterator:
    """Images of the digits below ``classes``: the first ``each`` of every digit, or all."""
    chosen = np.concatenate([np.flatnonzero(labels == digit)[:each] for digit in range(classes)])
    chosen = np.random.RandomState(0).permutation(chosen)
    return ArrayIterator(images[chosen], labels[chosen], nclass=classes, lshape=(1, 8, 8))


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Train, report, and return the accuracies of the fine-tuned network and of the network trained from scratch."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 15, "batch_size": 15, "rng_seed": 0})
    parser.add_argument("--images", type=int, default=3, help="images of each digit for the second task")
    args = parser.parse_args(arguments)
    (images, labels), (test_images, test_labels), _ = Digits().load_data()
    many, few = only(images, labels, 8), only(images, labels, 10, each=args.images)
    test = ArrayIterator(test_images, test_labels, nclass=10, lshape=(1, 8, 8))
    fast, slow = (GradientDescentMomentum(rate, momentum_coef=0.9) for rate in (0.05, 0.005))

    def train(model: Model, data: ArrayIterator, optimizer: Optimizer) -> None:
        callbacks = Callbacks(model, **args.callback_args)
        cost = GeneralizedCost(CrossEntropyMulti())
        model.fit(data, cost, optimizer, num_epochs=args.epochs, callbacks=callbacks)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "zero_to_seven.prm"
        first, second, third = build_model(8), build_model(10), build_model(10)
        train(first, many, fast)
        first.save_params(file)
        load_trunk(second, file)
    train(second, few, MultiOptimizer({"default": slow, HEAD: fast}))
    train(third, few, fast)
    tuned, scratch = (1 - float(model.eval(test, metric=Misclassification())[0]) for model in (second, third))
    print(f"Accuracy on {test.ndata} test images after training with {few.ndata}:")
    print(f"fine-tuned {tuned:.1%}, from scratch {scratch:.1%}")
    return tuned, scratch


if __name__ == "__main__":
    sys.exit(console.run(main))
