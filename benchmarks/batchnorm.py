"""Batch normalisation with relu, forward and backward, against PyTorch, on the layers of ResNet-50.

``--quick``: six layers at N = 32, under a minute on two cores. ``python benchmarks/batchnorm.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from typing import Any

import _primitives
import _references
import numpy as np
from _cases import Case, Contender
from _layers import BATCHNORMS, Maps
from _primitives import Peers, Subject, layouts, need, own, peer, view
from _references import Array, some

DIRECTIONS: dict[str, float | None] = {"fprop": 1.5, "bprop": 1.5}
EPS, RHO = 1e-5, 0.9
EDGE = 1e-4
QUICK = (
    "resnet50 conv1 bn", "resnet50 res2a narrow bn", "resnet50 res2a widen bn", "resnet50 res3a 3x3 bn",
    "resnet50 res4a widen bn", "resnet50 res5a 3x3 bn",
)  # fmt: skip


class Problem:
    """Operands of one layer at one minibatch.

    Attributes
    ----------
    I, E : float32 arrays (C, H, W, N)
    gamma, beta : float32 arrays (C, 1)
    """

    def __init__(self, layer: Maps, N: int, direction: str) -> None:
        self.layer, self.N, self.direction = layer, N, direction
        self.I = _primitives.values((layer.C, layer.H, layer.W, N), 1) + np.float32(0.5)
        self.E = _primitives.values((layer.C, layer.H, layer.W, N), 2)
        self.gamma = 1 + _primitives.values((layer.C, 1), 3, 0.1)
        self.beta = _primitives.values((layer.C, 1), 4, 0.1)
        if direction == "bprop":
            self._clear_edges()

    def _clear_edges(self) -> None:
        """No errors, in what is looked at, where relu's argument is so near to 0 that rounding decides its sign."""
        channels = some(self.layer.C)
        x = self.I[channels].reshape(len(channels), -1)
        before = _references.before_relu(x, self.gamma[channels], self.beta[channels], EPS)
        self.E[channels] *= (np.abs(before) > EDGE).reshape(self.E[channels].shape)

    def sample(self, maps: Array, *gradients: Array) -> list[Array]:
        """Some channels of maps (C, H, W, N) as rows, and of gradients (C,)."""
        channels = some(self.layer.C)
        return [maps[channels].reshape(len(channels), -1), *(g.reshape(-1, 1)[channels] for g in gradients)]

    def reference(self) -> list[Array]:
        """Results of the channels that are compared, in float64."""
        channels = some(self.layer.C)
        x, errors = (array[channels].reshape(len(channels), -1) for array in (self.I, self.E))
        given = errors if self.direction == "bprop" else None
        return _references.batchnorm(x, self.gamma[channels], self.beta[channels], EPS, given)


def ours(be: Any, problem: Problem) -> Contender:
    """One call of the primitive; backward is relu's, one expression, and one call."""
    need(be, "compound_fprop_bn", "compound_bprop_bn")
    C, dims = problem.layer.C, (problem.layer.C, problem.I.size // problem.layer.C)
    x, y = be.array(problem.I.reshape(dims)), be.zeros(dims)
    gamma, beta = be.array(problem.gamma), be.array(problem.beta)
    xsum, xvar, gmean, gvar, grad_gamma, grad_beta = (be.zeros((C, 1)) for _ in range(6))

    def forward() -> None:
        be.compound_fprop_bn(
            x, xsum, xvar, gmean, gvar, gamma, beta, y, eps=EPS, rho=RHO, compute_batch_sum=True, relu=True
        )

    if problem.direction == "fprop":
        return own(forward, lambda: problem.sample(view(y, *problem.I.shape)))
    forward()
    E, delta = be.array(problem.E.reshape(dims)), be.zeros(dims)

    def backward() -> None:
        delta[:] = be.greater(y, 0) * E
        be.compound_bprop_bn(delta, grad_gamma, grad_beta, delta, x, xsum, xvar, gamma, eps=EPS)

    made = lambda: problem.sample(view(delta, *problem.I.shape), view(grad_gamma, C), view(grad_beta, C))  # noqa: E731
    return own(backward, made)


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch in the layout ``name``; backward through its graph, which is kept."""
    import torch

    form, backward = layouts(torch)[name], problem.direction == "bprop"
    x = _primitives.to_torch(torch, problem.I, form).requires_grad_(backward)
    gamma, beta = (torch.from_numpy(a.ravel().copy()).requires_grad_(backward) for a in (problem.gamma, problem.beta))
    gmean, gvar = torch.zeros(problem.layer.C), torch.zeros(problem.layer.C)

    def forward() -> Any:
        normalised = torch.nn.functional.batch_norm(x, gmean, gvar, gamma, beta, True, 1 - RHO, EPS)
        return torch.relu_(normalised)

    if not backward:
        return peer(name, forward, lambda y: problem.sample(_primitives.from_torch(y)))
    g = _primitives.to_torch(torch, problem.E, form)
    with torch.enable_grad():
        y = forward()
    return peer(
        name,
        lambda: torch.autograd.grad(y, (x, gamma, beta), g, retain_graph=True),
        lambda made: problem.sample(_primitives.from_torch(made[0]), made[1].numpy(), made[2].numpy()),
    )


PEERS: Peers = {"torch NCHW": torch_peer, "torch NHWC": torch_peer}


def make_case(be: Any, layer: Maps, N: int, direction: str, peers: Peers = PEERS) -> Case:
    """The case of one direction of one layer: ours if there is a backend, and ``peers``."""
    problem = Problem(layer, N, direction)
    # Forward: maps in and out; backward: those, errors and gradients.
    arrays = 2 if direction == "fprop" else 4
    return _primitives.make(
        be,
        layer,
        N,
        problem,
        ours,
        peers,
        nbytes=arrays * problem.I.nbytes,
    )


SUBJECT = Subject("batchnorm", f"{__doc__}", BATCHNORMS, make_case, PEERS, DIRECTIONS, QUICK, compute=False)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
