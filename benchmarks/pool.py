"""Pooling forward and backward against PyTorch, on the layers of five networks.

``--quick``: eight layers at N = 32, under a minute on two cores. ``python benchmarks/pool.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from typing import Any

import _primitives
import _references
import numpy as np
from _cases import Case, Contender
from _layers import POOLS, Pool
from _primitives import Peers, Subject, layouts, need, own, peer, view
from _references import Array, some

DIRECTIONS: dict[str, float | None] = {"fprop": 1.2, "bprop": 1.2}
QUICK = (
    "alexnet pool1", "alexnet pool5", "overfeat pool2", "vgg_a pool3", "googlenet pool3", "googlenet 4e pool",
    "googlenet pool5", "resnet50 pool1",
)  # fmt: skip


class Problem:
    """Operands of one layer at one minibatch.

    Attributes
    ----------
    I, E : float32 arrays (C, H, W, N), (C, P, Q, N)
    """

    def __init__(self, layer: Pool, N: int, direction: str) -> None:
        self.layer, self.N, self.direction = layer, N, direction
        self.I = _primitives.values((layer.C, layer.H, layer.W, N), 1)
        self.E = _primitives.values((layer.C, layer.P, layer.Q, N), 2)

    def sample(self, maps: Array) -> list[Array]:
        """The images of maps (.., N) that are compared."""
        return [maps[..., some(self.N)]]

    def reference(self) -> list[Array]:
        """Results of the images that are compared, in float64."""
        images = some(self.N)
        if self.direction == "fprop":
            return [_references.pool_fprop(self.layer, self.I[..., images])]
        return [_references.pool_bprop(self.layer, self.I[..., images], self.E[..., images])]


def ours(be: Any, problem: Problem) -> Contender:
    """One call of the primitive; backward follows a forward call that is not timed."""
    need(be, "pool_layer", "fprop_pool", "bprop_pool")
    layer, N = problem.layer, problem.N
    window, stride, pad = layer.window, layer.stride, layer.pad
    geometry = be.pool_layer(
        np.float32, layer.op, N, layer.C, 1, layer.H, layer.W, J=1, T=1, R=window, S=window,
        pad_h=pad, pad_w=pad, str_c=1, str_d=1, str_h=stride, str_w=stride,
    )  # fmt: skip
    maps_in, maps_out = (layer.C * layer.H * layer.W, N), (layer.C * layer.P * layer.Q, N)
    I, O = be.array(problem.I.reshape(maps_in)), be.zeros(maps_out)  # noqa: E741
    argmax = be.empty(maps_out, dtype=np.uint8) if layer.op == "max" else None
    forward = lambda: be.fprop_pool(geometry, I, O, argmax=argmax)  # noqa: E731
    if problem.direction == "fprop":
        return own(forward, lambda: problem.sample(view(O, *problem.E.shape)))
    forward()
    E, delta = be.array(problem.E.reshape(maps_out)), be.zeros(maps_in)
    return own(
        lambda: be.bprop_pool(geometry, E, delta, argmax=argmax),
        lambda: problem.sample(view(delta, *problem.I.shape)),
    )


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch in the layout ``name``."""
    import torch

    layer, form, aten = problem.layer, layouts(torch)[name], torch.ops.aten
    window, stride, pad = ([n] * 2 for n in (layer.window, layer.stride, layer.pad))
    x = _primitives.to_torch(torch, problem.I, form)
    sample = lambda y: problem.sample(_primitives.from_torch(y))  # noqa: E731
    if problem.direction == "fprop":
        if layer.op == "max":
            forward = lambda: aten.max_pool2d_with_indices(x, window, stride, pad)[0]  # noqa: E731
        else:
            forward = lambda: aten.avg_pool2d(x, window, stride, pad, False, False)  # noqa: E731
        return peer(name, forward, sample)
    g = _primitives.to_torch(torch, problem.E, form)
    if layer.op == "max":
        indices = aten.max_pool2d_with_indices(x, window, stride, pad)[1]
        backward = lambda: aten.max_pool2d_with_indices_backward(  # noqa: E731
            g, x, window, stride, pad, [1, 1], False, indices
        )
    else:
        backward = lambda: aten.avg_pool2d_backward(g, x, window, stride, pad, False, False, None)  # noqa: E731
    return peer(name, backward, sample)


PEERS: Peers = {"torch NCHW": torch_peer, "torch NHWC": torch_peer}


def make_case(be: Any, layer: Pool, N: int, direction: str, peers: Peers = PEERS) -> Case:
    """The case of one direction of one layer: ours if there is a backend, and ``peers``."""
    problem = Problem(layer, N, direction)
    return _primitives.make(
        be,
        layer,
        N,
        problem,
        ours,
        peers,
        nbytes=layer.nbytes(N),
    )


SUBJECT = Subject("pool", f"{__doc__}", POOLS, make_case, PEERS, DIRECTIONS, QUICK, compute=False)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
