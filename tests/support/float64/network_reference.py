"""Reference networks in float64 NumPy: each value and error is an array of its own, nothing in place or shared.

``run(layer, x)`` returns a layer's outputs and a function from their error to that of ``x``, which puts the
gradients of parameters into ``gradients``. Weights and masks are read from the layers, which have to be allocated and,
where they draw masks, run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.layers import (
    Activation,
    Bias,
    BranchNode,
    Dropout,
    Linear,
    MergeBroadcast,
    MergeMultistream,
    MergeSum,
    Recurrent,
    Reshape,
    Sequential,
    SkipNode,
    Tree,
)
from neonlike.transforms import Logistic, Rectlin, Tanh
from tests.support.float64.recurrent_loops import KINDS, Loop

Backward = Callable[[Any], Any]
ACTIVATIONS = {
    Tanh: (np.tanh, lambda y: 1 - y**2),
    Logistic: (lambda x: 1 / (1 + np.exp(-x)), lambda y: y * (1 - y)),
    Rectlin: (lambda x: np.maximum(x, 0), lambda y: y > 0),
}


class Network:
    """A network to compute in NumPy.

    Parameters
    ----------
    samples : int
        Samples in a batch.
    inference : bool
        Whether masks are replaced by their mean.

    Attributes
    ----------
    gradients : dict
        Layer -> gradient of its weight, after a backward pass.
    """

    def __init__(self, samples: int, inference: bool = False) -> None:
        self.samples = samples
        self.inference = inference
        self.alpha = 1.0
        self.gradients: dict[Any, np.ndarray] = {}
        self.at: dict[Any, np.ndarray] = {}
        self.errors: dict[Any, Any] = {}

    def run(self, layer: Any, x: Any) -> tuple[Any, Backward]:
        """Outputs of ``layer``, and its backward pass: by the method named as its class, or as a base of that."""
        for cls in type(layer).__mro__:
            name = re.sub("(?<!^)([A-Z])", r"_\1", cls.__name__).lower()
            if hasattr(self, name):
                return getattr(self, name)(layer, x)
        raise NotImplementedError(type(layer).__name__)

    def linear(self, layer: Linear, x: Any) -> tuple[Any, Backward]:
        W, columns = layer.W.get().astype(np.float64), x.shape
        x = x.reshape(W.shape[1], -1)

        def backward(e: Any) -> Any:
            self.gradients[layer] = e @ x.T
            return (W.T @ e).reshape(columns)

        return W @ x, backward

    def bias(self, layer: Bias, x: Any) -> tuple[Any, Backward]:
        b = layer.W.get().astype(np.float64)

        def backward(e: Any) -> Any:
            self.gradients[layer] = e.reshape(len(b), -1).sum(axis=1, keepdims=True)
            return e

        return (x.reshape(len(b), -1) + b).reshape(x.shape), backward

    def activation(self, layer: Activation, x: Any) -> tuple[Any, Backward]:
        function, derivative = ACTIVATIONS[type(layer.transform)]
        y = function(x)
        return y, lambda e: e * derivative(y)

    def recurrent(self, layer: Recurrent, x: Any) -> tuple[Any, Backward]:
        kind = next(kind for kind, cls in KINDS.items() if type(layer) is cls)
        loop = Loop(kind, layer.W.get(), x, layer.nsteps, np.zeros((layer.nout, self.samples)))

        def backward(e: Any) -> Any:
            found = loop.backward(e)
            self.gradients[layer] = found["dW"]
            return found["deltas"]

        return loop.outputs, backward

    def dropout(self, layer: Dropout, x: Any) -> tuple[Any, Backward]:
        mask = layer.keep if self.inference else layer.keep_mask.get().astype(np.float64)
        return x * mask, lambda e: e * mask

    def reshape(self, layer: Reshape, x: Any) -> tuple[Any, Backward]:
        shape, N = layer.out_shape, self.samples
        new = (shape[0], shape[1] * N) if len(shape) == 2 else (int(np.prod(shape)), N)
        return x.reshape(new), lambda e: e.reshape(x.shape)

    def skip_node(self, layer: SkipNode, x: Any) -> tuple[Any, Backward]:
        return x, lambda e: e

    def branch_node(self, layer: BranchNode, x: Any) -> tuple[Any, Backward]:
        if x is None:  # at the head of a branch: what the trunk left here
            x = self.at[layer]

            def leave(e: Any) -> None:
                self.errors[layer] = self.errors.get(layer, 0) + self.alpha * e

            return x, leave
        self.at[layer] = x
        return x, lambda e: self.alpha * e + self.errors.pop(layer, 0)

    def sequential(self, layer: Sequential, x: Any) -> tuple[Any, Backward]:
        backwards = []
        for inner in layer.layers:
            x, back = self.run(inner, x)
            backwards.append(back)

        def backward(e: Any) -> Any:
            for back in reversed(backwards):
                e = back(e)
            return e

        return x, backward

    def merge_sum(self, layer: MergeSum, x: Any) -> tuple[Any, Backward]:
        found = [self.run(branch, x) for branch in layer.layers]
        return sum(y for y, _ in found), lambda e: sum(back(e) for _, back in found)

    def merge_broadcast(self, layer: MergeBroadcast, x: Any) -> tuple[Any, Backward]:
        inputs = x if isinstance(layer, MergeMultistream) else [x] * len(layer.layers)
        found = [self.run(branch, part) for branch, part in zip(layer.layers, inputs, strict=True)]
        shapes = [y.shape for y, _ in found]
        axis = 1 if layer.merge == "recurrent" else 0
        parts = [y.reshape(-1, self.samples) if layer.merge == "stack" else y for y, _ in found]
        ends = np.cumsum([part.shape[axis] for part in parts])[:-1]

        def backward(e: Any) -> Any:
            errors = [part.reshape(shape) for part, shape in zip(np.split(e, ends, axis), shapes, strict=True)]
            back = [b(error) for (_, b), error in zip(found, errors, strict=True)]
            if isinstance(layer, MergeMultistream):
                return None
            return sum(a * b for a, b in zip(layer.alphas, back, strict=True))

        return np.concatenate(parts, axis), backward

    def tree(self, layer: Tree, x: Any) -> tuple[Any, Backward]:
        found = [self.run(branch, None if i else x) for i, branch in enumerate(layer.layers)]

        def backward(errors: Any) -> Any:
            for (_, back), error, alpha in reversed(list(zip(found, errors, layer.alphas, strict=True))):
                self.alpha = alpha
                result = back(error)
            return result

        return [y for y, _ in found], backward
