#!/usr/bin/env python
"""Train a convolutional network, written with the backend's primitives alone, to read handwritten digits.

The network is twice convolution, batch normalisation with relu and max pooling, then a matrix product. Forward and
backward passes are written by hand, as a layer library does it. The data are scikit-learn's 1,797 images of 8 x 8
pixels. Usage:

    python examples/digits_conv.py [--epochs 8] [--batch 64] [--datatype bfloat16] [--bench [FILE]]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from neonlike import console
from neonlike.backends import Backend, gen_backend

CLASSES = 10
EPSILON, RHO = 1e-5, 0.9
"""Batch normalisation: the number added to variances, and the decay of the running statistics."""


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels in [-1, 1], an image a column, and labels, shuffled to mix the writers."""
    try:
        from sklearn import datasets
    except ImportError as error:
        raise SystemExit("This example needs scikit-learn: pip install 'neonlike[demo]'") from error
    pixels, labels = datasets.load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(pixels))
    return (pixels[order] / 8.0 - 1.0).T.astype(np.float32), labels[order]


class Parameters:
    """Weights, their gradients, and the plan of one step of gradient descent with momentum on all of them."""

    def __init__(self, be: Backend) -> None:
        self.be = be
        self.weights: list[Any] = []
        self.gradients: list[Any] = []

    def make(self, shape: tuple[int, int], scale: float, offset: float = 0.0, dtype: Any = None) -> tuple[Any, Any]:
        """Make a weight of normal random numbers, and its gradient."""
        values = self.be.rng.normal(offset, scale, shape) if scale else np.full(shape, offset)
        weight = self.be.array(values, dtype=dtype)
        self.weights.append(weight)
        self.gradients.append(self.be.zeros(shape, dtype=dtype))
        return weight, self.gradients[-1]

    def prepare(self, rate: float, momentum: float, images: int) -> Any:
        """Prepare the step once: all assignments of a shape are one kernel."""
        assignments = []
        for weight, gradient in zip(self.weights, self.gradients):
            velocity = self.be.zeros(weight.shape, dtype=np.float32)
            change = velocity * momentum - gradient * (rate / images)
            # small changes would be lost in a weight of 16 bits: it is the rounded value of an exact one
            exact = weight if weight.dtype == np.float32 else self.be.array(weight, dtype=np.float32)
            assignments += [(velocity, change), (exact, exact + change)]
            if exact is not weight:
                assignments.append((weight, exact + change))
        return self.be.prepare(assignments)


class ConvBlock:
    """3 x 3 convolution, batch normalisation with relu, 2 x 2 max pooling."""

    def __init__(self, be: Backend, parameters: Parameters, channels: int, maps: int, size: int, batch: int) -> None:
        self.be = be
        self.conv = be.conv_layer(None, batch, channels, maps, H=size, W=size, R=3, S=3, pad_h=1, pad_w=1)
        self.pool = be.pool_layer(None, "max", batch, maps, H=size, W=size, R=2, S=2)
        self.filters, self.d_filters = parameters.make(self.conv.dimF2, np.sqrt(2 / (9 * channels)))
        self.gamma, self.d_gamma = parameters.make((maps, 1), 0, 1.0, np.float32)
        self.beta, self.d_beta = parameters.make((maps, 1), 0, 0.0, np.float32)
        self.mean, self.variance = (be.zeros((maps, 1), dtype=np.float32) for _ in range(2))  # running
        self.sums, self.variances = (be.empty((maps, 1), dtype=np.float32) for _ in range(2))  # of a minibatch

    def _rows(self, tensor: Any) -> Any:
        """View of a tensor with a feature map a row, as batch normalisation takes it."""
        return tensor.reshape((self.conv.K, tensor.size // self.conv.K))

    def forward(self, x: Any, training: bool) -> Any:
        """(C H W, N) -> (K H/2 W/2, N); N may be any number."""
        be, images = self.be, x.shape[1]
        self.x = x
        self.a, self.y = (be.empty((self.conv.nOut, images)) for _ in range(2))
        self.out = be.empty((self.pool.nOut, images))
        self.argmax = be.empty(self.out.shape, dtype=np.uint8)
        be.fprop_conv(self.conv, x, self.filters, self.a, bsum=self.sums)  # the sums are what the mean needs
        be.compound_fprop_bn(
            self._rows(self.a), self.sums, self.variances, self.mean, self.variance, self.gamma, self.beta,
            self._rows(self.y), EPSILON, RHO, compute_batch_sum=False, relu=True, inference=not training,
        )  # fmt: skip
        be.fprop_pool(self.pool, self.y, self.out, self.argmax)
        return self.out

    def backward(self, error: Any, wanted: bool = True) -> Any:
        """Fill the gradients; return the error of the input if it is ``wanted``, else None."""
        be = self.be
        delta = be.empty(self.a.shape)
        be.bprop_pool(self.pool, error, delta, self.argmax)
        rows = self._rows(delta)
        be.compound_bprop_bn(
            rows, self.d_gamma, self.d_beta, rows, self._rows(self.a), self.sums, self.variances, self.gamma,
            EPSILON, y=self._rows(self.y),
        )  # fmt: skip
        be.update_conv(self.conv, self.x, delta, self.d_filters)
        if not wanted:
            return None
        result = be.empty(self.x.shape)
        be.bprop_conv(self.conv, self.filters, delta, result)
        return result


class Network:
    """Two blocks and a softmax over the classes."""

    def __init__(self, be: Backend, batch: int) -> None:
        self.be = be
        self.parameters = Parameters(be)
        sizes = ((1, 16, 8), (16, 32, 4))  # channels, maps, pixels along an axis
        self.blocks = [ConvBlock(be, self.parameters, *size, batch) for size in sizes]
        features = self.blocks[-1].pool.nOut
        self.weights, self.d_weights = self.parameters.make((CLASSES, features), np.sqrt(1 / features))
        self.step = self.parameters.prepare(rate=0.1, momentum=0.9, images=batch)

    def forward(self, x: Any, training: bool = False) -> Any:
        """Probabilities (CLASSES, N)."""
        for block in self.blocks:
            x = block.forward(x, training)
        self.features = x
        scores = self.be.compound_dot(self.weights, x, self.be.empty((CLASSES, x.shape[1])))
        return self.be.fprop_softmax(scores).astensor()

    def train(self, x: Any, labels: Any) -> float:
        """Take one training step; return the mean cross-entropy of the minibatch."""
        be = self.be
        probabilities = self.forward(x, training=True)
        target = be.onehot(labels, axis=0)
        cost = be.mean(-be.sum(be.safelog(probabilities) * target, axis=0)).astensor()
        error = be.empty(probabilities.shape)
        error[:] = probabilities - target  # of the softmax and the cross-entropy together
        be.compound_dot(error, self.features.T, self.d_weights)
        error = be.dot(self.weights.T, error).astensor()
        for index, block in reversed(list(enumerate(self.blocks))):
            error = block.backward(error, wanted=index > 0)
        self.step()
        return float(cost.get()[0, 0])


def main(arguments: list[str] | None = None) -> float:
    """Train, report, and return the accuracy on test images."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--datatype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument(
        "--bench", nargs="?", const=True, metavar="FILE",
        help="time every kernel and show the table at the end, or write it to a .txt, .json or .csv file",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    pixels, labels = load_digits()
    split = len(labels) * 4 // 5
    if not 1 <= options.batch <= split:
        parser.error(f"--batch {options.batch}: a minibatch has 1 to {split} images, all there are to train on")
    if options.epochs < 1:
        parser.error(f"--epochs {options.epochs}: train at least once")
    be = gen_backend("cpu", rng_seed=0, batch_size=options.batch, datatype=options.datatype, bench=options.bench)
    network = Network(be, options.batch)
    print(network.blocks[0].conv)
    accuracy = 0.0
    for epoch in range(options.epochs):
        order = be.rng.permutation(split)
        costs = []
        for start in range(0, split - options.batch + 1, options.batch):
            chosen = order[start : start + options.batch]
            batch_labels = be.array(labels[None, chosen], dtype=np.int32)
            costs.append(network.train(be.array(pixels[:, chosen]), batch_labels))
        found = network.forward(be.array(pixels[:, split:])).get().argmax(axis=0)
        accuracy = float((found == labels[split:]).mean())
        print(f"epoch {epoch + 1}: cost {np.mean(costs):.4f}, {accuracy:.1%} of {len(found)} test images right")
    return accuracy


if __name__ == "__main__":
    sys.exit(console.run(main))
