#!/usr/bin/env python
"""Write a layer of one's own: an expression for the forward pass, differentiated for the backward pass.

The layer is an activation with a learned weight for each unit, x * sigmoid(W x): a rectifier for large W, half of x for
W = 0. Its gradients are compared with finite differences of its outputs; then a network with it learns to read
handwritten digits. Usage:

    python examples/custom_layer.py [--epochs 20]

All options of a neon script work too: see --help.

Source: Ramachandran et al., "Searching for activation functions" (2017).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from neonlike import console
from neonlike.backends import Autodiff, Backend
from neonlike.callbacks import Callbacks
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Constant, Kaiming
from neonlike.layers import Affine, GeneralizedCost
from neonlike.layers.layer import ParameterLayer
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import GradientDescentMomentum
from neonlike.transforms import CrossEntropyMulti, Misclassification, Softmax


class LearnedSwish(ParameterLayer):
    """outputs = x * sigmoid(W x), with a weight for each feature."""

    def __init__(self, init: Any, name: str | None = None) -> None:
        super().__init__(init, name)
        self.owns_delta = True  # the error handed on is in a buffer of this layer

    def configure(self, in_obj: Any) -> LearnedSwish:
        """Set the shapes, without the batch, after the previous layer is configured."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        self.weight_shape = (self.in_shape[0], 1)
        return self

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Compute the outputs in one kernel."""
        self.inputs = inputs
        self.tree = inputs * self.be.sig(self.W * inputs)
        self.outputs[:] = self.tree
        return self.outputs

    def bprop(self, error: Any) -> Any:
        """Compute the gradients, which are expressions too, of the inputs and of the weight."""
        gradients = Autodiff(self.tree, self.be, next_error=error).get_grad_op_tree([self.inputs, self.W])
        self.deltas[:], self.dW[:] = gradients
        return self.deltas


def gradient_error(be: Backend, step: float = 1e-2) -> float:
    """Largest difference between gradients and finite differences of sum(outputs * error)."""
    layer = LearnedSwish(be.rng.normal(size=(3, 1)).astype(np.float32))
    layer.configure((3,))
    layer.allocate()
    x, error, layer.deltas = (be.array(be.rng.normal(size=(3, be.bsz))) for _ in range(3))
    layer.fprop(x)
    layer.bprop(error)
    worst = 0.0
    for tensor, gradient in ((x, layer.deltas), (layer.W, layer.dW)):
        for at in ((0, 0), (2, 0)):
            value = tensor[at].item()
            sums = []
            for moved in (value + step, value - step):
                tensor[at] = moved
                sums.append(be.sum(layer.fprop(x) * error).item())
            tensor[at] = value
            worst = max(worst, abs((sums[0] - sums[1]) / (2 * step) - gradient[at].item()))
    return worst


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Check, train, report; return the largest gradient error and the accuracy on the test images."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 20, "batch_size": 64, "rng_seed": 0})
    args = parser.parse_args(arguments)
    wrong = gradient_error(NervanaObject.be)
    print(f"Gradients differ from quotients of differences by {wrong:.5f} at most")

    digits, swish = Digits(), LearnedSwish(Constant(1))
    model = Model([Affine(100, Kaiming()), swish, Affine(10, Kaiming(), activation=Softmax())])
    optimizer = GradientDescentMomentum(0.1, momentum_coef=0.9)
    callbacks = Callbacks(model, **args.callback_args)
    model.fit(digits.train_iter, GeneralizedCost(CrossEntropyMulti()), optimizer, args.epochs, callbacks)
    accuracy = 1 - float(model.eval(digits.test_iter, metric=Misclassification())[0])
    learned = swish.W.get()
    print(f"Accuracy on the {digits.test_iter.ndata} test images: {accuracy:.1%}")
    print(f"Weights of the activation were 1, and are now from {learned.min():.2f} to {learned.max():.2f}")
    return wrong, accuracy


if __name__ == "__main__":
    sys.exit(console.run(main))
