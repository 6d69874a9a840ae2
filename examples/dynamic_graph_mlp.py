#!/usr/bin/env python
"""Train a perceptron on handwritten digits with commands on variables of a dynamic graph.

The graph is defined by running it: each step runs the network's commands on a minibatch and lets an optimizer reduce
the loss; nothing is declared before. Usage:

    python examples/dynamic_graph_mlp.py [--epochs 10] [--dot graph.dot]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from neonlike import console
from neonlike.autograd.dynamic import DynamicGraph, TensorVariable, commands
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum

RELU, GEMM = commands.ewise("relu"), commands.gemm()


class Perceptron:
    """Two layers of weights, as variables of a graph."""

    def __init__(self, graph: DynamicGraph, inputs: int, hidden: int, classes: int) -> None:
        rng = graph.backend.rng
        self.graph = graph
        self.parameters = [
            graph.variable(value=rng.normal(size=(hidden, inputs)) * np.sqrt(2 / inputs), name="weights1"),
            graph.variable(value=np.zeros((hidden, 1)), name="bias1"),
            graph.variable(value=rng.normal(size=(classes, hidden)) * np.sqrt(2 / hidden), name="weights2"),
            graph.variable(value=np.zeros((classes, 1)), name="bias2"),
        ]

    def __call__(self, images: TensorVariable) -> TensorVariable:
        """Logits (classes, N) of images (inputs, N)."""
        weights1, bias1, weights2, bias2 = self.parameters
        hidden = self.graph.exec(RELU, [self.graph.exec(GEMM, [weights1, images, bias1])])
        logits: TensorVariable = self.graph.exec(GEMM, [weights2, hidden, bias2])
        return logits


def loss_command(be: Any) -> commands.Command:
    """Mean cross-entropy of logits (classes, N) and one-hot labels."""

    def loss(logits: Any, labels: Any) -> Any:
        shifted = logits - be.max(logits, axis=0)
        log_sums = be.log(be.sum(be.exp(shifted), axis=0))
        return be.mean(log_sums - be.sum(labels * shifted, axis=0))

    return commands.function(loss, "cross_entropy", 2)


def accuracy(graph: DynamicGraph, network: Perceptron, data: Any) -> float:
    """Fraction of an iterator's images classified correctly."""
    right: list[bool] = []
    for images, labels in data:
        logits = network(graph.constant().set(images)).get()
        right += list(logits.argmax(0) == labels.get().argmax(0))
    return float(np.mean(right[: data.ndata]))  # the last batch is filled up with images seen before


def main(arguments: list[str] | None = None) -> float:
    """Train, report; return the accuracy on the test images."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 10, "batch_size": 50, "rng_seed": 0})
    parser.add_argument("--dot", help="write the last step's graph to this file, for Graphviz")
    args = parser.parse_args(arguments)
    be = NervanaObject.be
    digits, optimizer, loss_of = Digits(), GradientDescentMomentum(0.1, momentum_coef=0.9), loss_command(be)
    with be.dynamic_graph() as graph:
        network = Perceptron(graph, 64, 100, 10)
        for epoch in range(args.epochs):
            costs = []
            for images, labels in digits.train_iter:
                logits = network(graph.constant().set(images))
                loss = graph.exec(loss_of, [logits, graph.constant().set(labels)])
                costs.append(loss.tensor)
                graph.minimize(optimizer, loss, network.parameters, epoch=epoch)
            print(f"Epoch {epoch}: cost {np.mean([cost.get() for cost in costs]):.3f}")
        if args.dot:
            graph.to_dot(long=True, file=args.dot)
        right = accuracy(graph, network, digits.test_iter)
    print(f"Accuracy on the {digits.test_iter.ndata} test images: {right:.1%}")
    return right


if __name__ == "__main__":
    sys.exit(console.run(main))
