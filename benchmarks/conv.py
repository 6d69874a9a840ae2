"""Convolution forward, data gradient and weight gradient against PyTorch, on the layers of five networks.

``--quick``: ten layers at N = 32, under two minutes on two cores. ``python benchmarks/conv.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from typing import Any

import _primitives
import _references
import numpy as np
from _cases import Case, Contender
from _layers import CONVOLUTIONS, Conv
from _primitives import Peers, Subject, layouts, need, own, peer, view
from _rates import Rates
from _references import Array, some
from _rows import Row, geometric_mean

DIRECTIONS: dict[str, float | None] = {"fprop": 1.0, "bprop": 1.0, "update": 1.0}
SGEMM_TARGET = 0.7
"""Least share of SGEMM's rate for 3x3 filters with at least 64 input and 64 output maps."""

MANY_MAPS = 64
QUICK = (
    "alexnet conv1", "alexnet conv2", "alexnet conv3", "overfeat conv2", "vgg_a conv7", "googlenet 3a 1x1",
    "googlenet 3b 5x5", "resnet50 res2a 3x3", "resnet50 res4a 3x3", "resnet50 res4b narrow",
)  # fmt: skip


class Problem:
    """Operands of one layer at one minibatch, and which outputs are looked at.

    Attributes
    ----------
    I, F, E : float32 arrays (C, H, W, N), (C, R, S, K), (K, P, Q, N)
    """

    def __init__(self, layer: Conv, N: int, direction: str) -> None:
        self.layer, self.N, self.direction = layer, N, direction
        fan_in = layer.C * layer.R * layer.S
        self.I = _primitives.values((layer.C, layer.H, layer.W, N), 1)
        self.F = _primitives.values((layer.C, layer.R, layer.S, layer.K), 2, fan_in**-0.5)
        self.E = _primitives.values((layer.K, layer.P, layer.Q, N), 3)

    def sample(self, maps: Array) -> list[Array]:
        """Some images of maps (.., N), or filter gradients (C, R, S, K) between some of the maps."""
        if self.direction == "update":
            return [maps[some(self.layer.C)][..., some(self.layer.K)]]
        return [maps[..., some(self.N)]]

    def reference(self) -> list[Array]:
        """The outputs that are compared, in float64."""
        layer, images = self.layer, some(self.N)
        if self.direction == "fprop":
            return [_references.conv_fprop(layer, self.I[..., images], self.F)]
        if self.direction == "bprop":
            return [_references.conv_bprop(layer, self.F, self.E[..., images])]
        return [_references.conv_update(layer, self.I[some(layer.C)], self.E[some(layer.K)])]


def ours(be: Any, problem: Problem) -> Contender:
    """One call of the primitive."""
    need(be, "conv_layer", f"{problem.direction}_conv")
    layer, N = problem.layer, problem.N
    geometry = be.conv_layer(
        np.float32, N, layer.C, layer.K, 1, layer.H, layer.W, 1, layer.R, layer.S,
        0, layer.pad, layer.pad, 1, layer.stride, layer.stride,
    )  # fmt: skip
    filters = (layer.C * layer.R * layer.S, layer.K)
    maps_in, maps_out = (layer.C * layer.H * layer.W, N), (layer.K * layer.P * layer.Q, N)
    if problem.direction == "fprop":
        I, F, O = be.array(problem.I.reshape(maps_in)), be.array(problem.F.reshape(filters)), be.zeros(maps_out)  # noqa: E741
        dims = (layer.K, layer.P, layer.Q, N)
        return own(lambda: be.fprop_conv(geometry, I, F, O), lambda: problem.sample(view(O, *dims)))
    E = be.array(problem.E.reshape(maps_out))
    if problem.direction == "bprop":
        F, dI = be.array(problem.F.reshape(filters)), be.zeros(maps_in)
        return own(lambda: be.bprop_conv(geometry, F, E, dI), lambda: problem.sample(view(dI, *problem.I.shape)))
    I, dF = be.array(problem.I.reshape(maps_in)), be.zeros(filters)  # noqa: E741
    return own(lambda: be.update_conv(geometry, I, E, dF), lambda: problem.sample(view(dF, *problem.F.shape)))


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch in the layout ``name``."""
    import torch

    layer, form = problem.layer, layouts(torch)[name]
    stride, pad = [layer.stride] * 2, [layer.pad] * 2
    W = torch.from_numpy(problem.F).permute(3, 0, 1, 2).clone(memory_format=form)
    if problem.direction == "fprop":
        x = _primitives.to_torch(torch, problem.I, form)
        forward = lambda: torch.nn.functional.conv2d(x, W, None, stride, pad)  # noqa: E731
        return peer(name, forward, lambda y: problem.sample(_primitives.from_torch(y)))
    g = _primitives.to_torch(torch, problem.E, form)
    data = problem.direction == "bprop"
    # Of the other operand only the shape is read.
    x = (
        torch.empty(problem.N, layer.C, layer.H, layer.W, memory_format=form)
        if data
        else _primitives.to_torch(torch, problem.I, form)
    )
    mask = [data, not data, False]

    def backward() -> Any:
        made = torch.ops.aten.convolution_backward(g, x, W, None, stride, pad, [1, 1], False, [0, 0], 1, mask)
        return made[0 if data else 1]

    # Filters (K, C, R, S) are permuted to (C, R, S, K) as images are to (C, H, W, N).
    return peer(name, backward, lambda d: problem.sample(_primitives.from_torch(d)))


PEERS: Peers = {"torch NCHW": torch_peer, "torch NHWC": torch_peer}


def make_case(be: Any, layer: Conv, N: int, direction: str, peers: Peers = PEERS) -> Case:
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
        flops=layer.flops(N),
        tolerance=1e-4,  # of sums of up to millions of products in float32
    )


def of_sgemm(rates: Rates) -> list[str]:
    """Whether 3x3 filters on many maps reach their share of SGEMM's rate."""
    rows = [row for row in rates.rows if _counts(row)]
    shares = sorted((share, row.layer.title, row.N, row.direction) for row in rows if (share := rates.share(row)))
    if not shares:
        return []
    under = [f"{title} {direction} at {N} {share:.0%}" for share, title, N, direction in shares if share < SGEMM_TARGET]
    shown = ", ".join(under) or f"lowest {shares[0][1]} {shares[0][3]} {shares[0][0]:.0%}"
    return [
        f"3x3 on {MANY_MAPS} maps and more, share of SGEMM's rate: {len(shares) - len(under)} of {len(shares)} reach "
        f"{SGEMM_TARGET:.0%}; {shown}: {'MISSED' if under else 'met'}"
    ]


def by_window(rates: Rates) -> list[str]:
    """Geometric means by the size of the filters: what to work on next."""
    lines = []
    for window in sorted({row.layer.R for row in rates.rows}):
        means = []
        for direction in DIRECTIONS:
            rows = [row for row in rates.rows if (row.layer.R, row.direction) == (window, direction)]
            if found := geometric_mean(rows):
                means.append(f"{direction} {found[0]:.2f}")
        lines += [f"{window}x{window} filters, PyTorch's time / ours: {', '.join(means)}"] if means else []
    return lines


def _counts(row: Row) -> bool:
    return row.layer.R == 3 and min(row.layer.C, row.layer.K) >= MANY_MAPS


SUBJECT = Subject(
    "conv", f"{__doc__}", CONVOLUTIONS, make_case, PEERS, DIRECTIONS, QUICK,
    remarks=lambda rates: [*by_window(rates), *of_sgemm(rates)],
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
