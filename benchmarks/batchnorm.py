"""Batch normalisation with relu, forward and backward, against PyTorch, on the layers of ResNet-50.

``--quick``: six layers at N = 32, under a minute on two cores. ``python benchmarks/batchnorm.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _layers import BATCHNORMS, Maps
from _libraries import Array, Made, from_images, returns, writes
from _primitives import Primitives, Problem, some, values

DIRECTIONS: dict[str, float | None] = {"fprop": 1.5, "bprop": 1.5}
EPS, RHO = 1e-5, 0.9
EDGE = 1e-4
QUICK = (
    "resnet50 conv1 bn", "resnet50 res2a narrow bn", "resnet50 res2a widen bn", "resnet50 res3a 3x3 bn",
    "resnet50 res4a widen bn", "resnet50 res5a 3x3 bn",
)  # fmt: skip


class BatchNorm(Problem):
    """In training, followed by relu.

    Attributes
    ----------
    I, E : float32 arrays (C, H, W, N)
    gamma, beta : float32 arrays (C, 1)
    """

    needs = ("compound_fprop_bn", "compound_bprop_bn")
    relu = True
    """Whether relu's gradient is part of the way back."""

    def __init__(self, layer: Maps, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        dims = (layer.C, layer.H, layer.W, N)
        self.I, self.E = values(dims, 1) + np.float32(0.5), values(dims, 2)
        self.gamma, self.beta = 1 + values((layer.C, 1), 3, 0.1), values((layer.C, 1), 4, 0.1)
        # Forward: maps in and out; backward: those, errors and gradients.
        self.nbytes = (2 if direction == "fprop" else 3 + self.relu) * self.I.nbytes
        if direction == "bprop" and self.relu:
            # No errors, in what is looked at, where relu's argument is so near to 0 that rounding decides its sign.
            _, _, before = self._normalised()
            self.E[self.channels] *= (np.abs(before) > EDGE).reshape(self.E[self.channels].shape)

    @property
    def channels(self) -> list[int]:
        """Channels that are compared."""
        return some(self.layer.C)

    def _normalised(self) -> tuple[Array, Array, Array]:
        """1 / deviation, normalised values and relu's argument, of some channels as rows, in float64."""
        x = self.I[self.channels].reshape(len(self.channels), -1).astype(float)
        scale = 1 / np.sqrt(x.var(axis=1, keepdims=True) + EPS)
        unit = (x - x.mean(axis=1, keepdims=True)) * scale
        return scale, unit, self.gamma[self.channels] * unit + self.beta[self.channels]

    def sample(self, *made: Array) -> list[Array]:
        """Some channels of maps (C, H, W, N), and of gradients (C, 1), as rows."""
        return [array[self.channels].reshape(len(self.channels), -1) for array in made]

    def reference(self) -> list[Array]:
        """Outputs, or gradients of x, gamma and beta."""
        scale, unit, before = self._normalised()
        if self.direction == "fprop":
            return [np.maximum(before, 0)]
        error = self.E[self.channels].reshape(len(self.channels), -1).astype(float)
        delta = np.where(before > 0, error, 0.0) if self.relu else error
        grad_gamma, grad_beta = (unit * delta).sum(axis=1, keepdims=True), delta.sum(axis=1, keepdims=True)
        dx = self.gamma[self.channels] * scale * (delta - (unit * grad_gamma + grad_beta) / unit.shape[1])
        return [dx, grad_gamma, grad_beta]

    def ours(self, library: Any) -> Made:
        """One call of the primitive; backward is relu's, one expression, and one call."""
        be, C = library.be, self.layer.C
        x, E = (library.put(maps.reshape(C, -1)) for maps in (self.I, self.E))
        gamma, beta, y, delta = library.put(self.gamma), library.put(self.beta), be.empty_like(x), be.empty_like(x)
        xsum, xvar, gmean, gvar, grad_gamma, grad_beta = (be.zeros((C, 1)) for _ in range(6))

        def forward() -> None:
            be.compound_fprop_bn(
                x, xsum, xvar, gmean, gvar, gamma, beta, y, eps=EPS, rho=RHO, compute_batch_sum=True, relu=True
            )

        def backward() -> None:
            delta[:] = be.greater(y, 0) * E
            be.compound_bprop_bn(delta, grad_gamma, grad_beta, delta, x, xsum, xvar, gamma, eps=EPS)

        def backward_alone() -> None:
            be.compound_bprop_bn(delta, grad_gamma, grad_beta, E, x, xsum, xvar, gamma, eps=EPS)

        if self.direction == "fprop":
            return writes(forward, y, shapes=[self.I.shape])
        forward()
        made = (self.I.shape, (C, 1), (C, 1))
        return writes(backward if self.relu else backward_alone, delta, grad_gamma, grad_beta, shapes=made)

    def peer(self, library: Any, who: str) -> Made:
        """Backward through its graph, which is kept."""
        torch, form, back = library.torch, library.layout(who), self.direction == "bprop"
        with library.gradients(back):
            x = library.images(self.I, form).requires_grad_(back)
            gamma, beta = (library.put(a.ravel()).requires_grad_(back) for a in (self.gamma, self.beta))
            gmean, gvar = (library.put(np.zeros(self.layer.C, np.float32)) for _ in range(2))

            def forward() -> Any:
                made = torch.nn.functional.batch_norm(x, gmean, gvar, gamma, beta, True, 1 - RHO, EPS)
                return torch.relu_(made)

            if not back:
                return returns(forward, from_images)
            y, g = forward(), library.images(self.E, form)
        return returns(lambda: torch.autograd.grad(y, (x, gamma, beta), g, retain_graph=True), gradients)


def gradients(maps: Array, *others: Array) -> list[Array]:
    """Gradients of PyTorch's maps and parameters, in our layout."""
    return [*from_images(maps), *(other.reshape(-1, 1) for other in others)]


SUITE = Primitives("batchnorm", __doc__, BatchNorm, BATCHNORMS, DIRECTIONS, QUICK, compute=False)

if __name__ == "__main__":
    sys.exit(SUITE.main())
