"""Local response normalisation forward and backward against PyTorch, on the layers of AlexNet and GoogLeNet.

``--quick``: all four layers at N = 32, under a minute on two cores. ``python benchmarks/lrn.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from typing import Any

import _primitives
import _references
import numpy as np
from _cases import Case, Contender
from _layers import LRNS, Maps
from _primitives import Peers, Subject, layouts, need, own, peer, view
from _references import Array, some

DIRECTIONS: dict[str, float | None] = {"fprop": 4.0, "bprop": 4.0}
ASCALE, BPOWER = 0.5, 0.75
"""alpha is larger than the networks' 1e-4, with which the output would be the input and nothing would be checked."""


class Problem:
    """Operands of one layer at one minibatch.

    Attributes
    ----------
    I, E : float32 arrays (C, H, W, N)
    """

    def __init__(self, layer: Maps, N: int, direction: str) -> None:
        self.layer, self.N, self.direction = layer, N, direction
        self.I = _primitives.values((layer.C, layer.H, layer.W, N), 1)
        self.E = _primitives.values((layer.C, layer.H, layer.W, N), 2)

    def sample(self, maps: Array) -> list[Array]:
        """The images of maps (.., N) that are compared."""
        return [maps[..., some(self.N)]]

    def reference(self) -> list[Array]:
        """Results of the images that are compared, in float64."""
        images = some(self.N)
        errors = self.E[..., images] if self.direction == "bprop" else None
        return [_references.lrn(self.I[..., images], self.layer.window, ASCALE, BPOWER, errors)]


def ours(be: Any, problem: Problem) -> Contender:
    """One call of the primitive; backward follows a forward call that is not timed."""
    need(be, "lrn_layer", "fprop_lrn", "bprop_lrn")
    layer, N = problem.layer, problem.N
    geometry = be.lrn_layer(np.float32, N, layer.C, 1, layer.H, layer.W, layer.window)
    dims = (layer.C * layer.H * layer.W, N)
    I, O, denom = be.array(problem.I.reshape(dims)), be.zeros(dims), be.zeros(dims)  # noqa: E741
    forward = lambda: be.fprop_lrn(geometry, I, O, denom, ascale=ASCALE, bpower=BPOWER)  # noqa: E731
    if problem.direction == "fprop":
        return own(forward, lambda: problem.sample(view(O, *problem.I.shape)))
    forward()
    E, delta = be.array(problem.E.reshape(dims)), be.zeros(dims)
    return own(
        lambda: be.bprop_lrn(geometry, I, O, E, delta, denom, ascale=ASCALE, bpower=BPOWER),
        lambda: problem.sample(view(delta, *problem.I.shape)),
    )


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch in the layout ``name``; backward through its graph, which is kept."""
    import torch

    form, backward = layouts(torch)[name], problem.direction == "bprop"
    x = _primitives.to_torch(torch, problem.I, form).requires_grad_(backward)
    sample = lambda y: problem.sample(_primitives.from_torch(y))  # noqa: E731

    def forward() -> Any:
        return torch.nn.functional.local_response_norm(x, problem.layer.window, ASCALE, BPOWER, 1.0)

    if not backward:
        return peer(name, forward, sample)
    g = _primitives.to_torch(torch, problem.E, form)
    with torch.enable_grad():
        y = forward()
    return peer(name, lambda: torch.autograd.grad(y, x, g, retain_graph=True)[0], sample)


PEERS: Peers = {"torch NCHW": torch_peer, "torch NHWC": torch_peer}


def make_case(be: Any, layer: Maps, N: int, direction: str, peers: Peers = PEERS) -> Case:
    """The case of one direction of one layer: ours if there is a backend, and ``peers``."""
    problem = Problem(layer, N, direction)
    # Forward: maps in, out and denominators; backward: those, errors and gradients.
    arrays = 3 if direction == "fprop" else 5
    return _primitives.make(
        be,
        layer,
        N,
        problem,
        ours,
        peers,
        nbytes=arrays * problem.I.nbytes,
    )


QUICK = [layer.title for layer in LRNS]
SUBJECT = Subject("lrn", f"{__doc__}", LRNS, make_case, PEERS, DIRECTIONS, QUICK, compute=False)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
