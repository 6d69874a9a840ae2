"""Convolutions of many shapes against PyTorch: minibatches of 1 to 128, 1 to 1024 maps, 1-D to 3-D, groups, dilation.

``--list held-out`` measures the list that nothing was tuned with. ``--quick``: six shapes.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

import _primitives
import numpy as np
from _cases import Case, Contender
from _conv_shapes import HELD_OUT, SHAPES, Shape
from _primitives import Peers, Subject, layouts, need, own, peer, view
from _rates import Rates
from _references import Array, some
from _rows import geometric_mean

DIRECTIONS: dict[str, float | None] = {"fprop": 1.0, "bprop": 1.0, "update": 1.0}
LISTS = {"shapes": SHAPES, "held-out": HELD_OUT}
QUICK = (
    "one 1 64-64 56x56 3/1", "few 7 19-45 33x21 3/1", "many 128 32-32 28x28 3/1", "groups 32 64-64 56x56 3/1 g64",
    "dilated 16 64-64 28x28 3/1 d2", "1d 16 64-64 1000 9/1",
)  # fmt: skip


class Problem:
    """Operands of one shape, and which outputs are looked at.

    Attributes
    ----------
    I, F, E : float32 arrays (C, D, H, W, N), (C / groups, T, R, S, K), (K, M, P, Q, N)
    direction : str
        Of the convolution that ``shape`` is the transpose of, where it is one: that one's data gradient is forward.
    """

    def __init__(self, shape: Shape, direction: str) -> None:
        self.shape, self.direction = shape, direction
        if shape.transposed:
            self.direction = {"fprop": "bprop", "bprop": "fprop"}.get(direction, direction)
        self.I = _primitives.values((shape.C, *shape.size, shape.n), 1)
        self.F = _primitives.values(shape.filters, 2, float(np.prod(shape.filters[:-1])) ** -0.5)
        self.E = _primitives.values((shape.K, *shape.out, shape.n), 3)

    def sample(self, maps: Array) -> list[Array]:
        """Some images of maps (.., N), or filter gradients to some of the maps."""
        return [maps[..., some(self.shape.K if self.direction == "update" else self.shape.n)]]

    def reference(self) -> list[Array]:
        """The outputs that are compared, in float64, by the definition."""
        shape, update = self.shape, self.direction == "update"
        pads = ((0, 0), *((p, p) for p in shape.pad), (0, 0))
        chosen = slice(None) if update else some(shape.n)
        read = np.pad(self.I[..., chosen], pads).astype(float)
        F, E = self.F.astype(float), self.E[..., chosen].astype(float)
        dI, O, dF = np.zeros_like(read), np.zeros_like(E), np.zeros_like(F)  # noqa: E741
        channels, maps = shape.C // shape.groups, shape.K // shape.groups
        for place, at in shape.places():
            for group in range(shape.groups):
                cs, ks = slice(group * channels, (group + 1) * channels), slice(group * maps, (group + 1) * maps)
                w, there = F[(slice(None), *place, ks)], (cs, *at[1:])
                if self.direction == "fprop":
                    O[ks] += np.tensordot(w, read[there], (0, 0))
                elif self.direction == "bprop":
                    dI[there] += np.tensordot(w, E[ks], (1, 0))
                else:
                    dF[(slice(None), *place, ks)] = np.tensordot(read[there], E[ks], [(1, 2, 3, 4)] * 2)
        inner = (slice(None), *(slice(p, p + x) for p, x in zip(shape.pad, shape.size)))
        return [O if self.direction == "fprop" else dI[inner] if self.direction == "bprop" else dF[..., some(shape.K)]]


def ours(be: Any, problem: Problem) -> Contender:
    """One call of the primitive."""
    need(be, "conv_layer", f"{problem.direction}_conv")
    s = problem.shape
    more = (*s.window, *s.pad, *s.stride, *s.dilation, s.groups)
    if s.transposed:
        geometry = be.deconv_layer(np.float32, s.n, s.C, s.K, *s.out, *more)
    else:
        geometry = be.conv_layer(np.float32, s.n, s.C, s.K, *s.size, *more)
    I, F, E = (be.array(x.reshape(-1, x.shape[-1])) for x in (problem.I, problem.F, problem.E))  # noqa: E741
    calls = {
        "fprop": lambda: be.fprop_conv(geometry, I, F, E),
        "bprop": lambda: be.bprop_conv(geometry, F, E, I),
        "update": lambda: be.update_conv(geometry, I, E, F),
    }
    made, like = {"fprop": (E, problem.E), "bprop": (I, problem.I), "update": (F, problem.F)}[problem.direction]
    return own(calls[problem.direction], lambda: problem.sample(view(made, *like.shape)))


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch in the layout ``name``, with as many axes as the shape has, at least two."""
    import torch

    shape, flat = problem.shape, problem.shape.size[0] == 1
    form = layouts(torch)[name]
    if form is torch.channels_last and not flat:
        form = torch.channels_last_3d

    def tensor(maps: Array) -> Any:
        there = torch.from_numpy(maps)
        return (there[:, 0].permute(3, 0, 1, 2) if flat else there.permute(4, 0, 1, 2, 3)).clone(memory_format=form)

    def back(made: Any) -> list[Array]:
        maps = made.detach().permute(1, 2, 3, 0)[:, None] if flat else made.detach().permute(1, 2, 3, 4, 0)
        return problem.sample(maps.numpy())

    x, W, g = tensor(problem.I), tensor(problem.F), tensor(problem.E)
    at = 1 if flat else 0
    sizes = [list(t[at:]) for t in (shape.stride, shape.pad, shape.dilation)]
    if (problem.direction == "fprop") != shape.transposed and problem.direction != "update":
        return peer(name, forward(torch, shape, x, W, g, sizes), back)
    mask = [problem.direction != "update", problem.direction == "update", False]
    source, errors = (g, x) if shape.transposed else (x, g)
    none = [0] * len(sizes[0])

    def backward() -> Any:
        made = torch.ops.aten.convolution_backward(
            errors, source, W, None, *sizes, shape.transposed, none, shape.groups, mask
        )
        return made[0 if mask[0] else 1]

    return peer(name, backward, back)


def forward(torch: Any, shape: Shape, x: Any, W: Any, g: Any, sizes: list[list[int]]) -> Any:
    """The forward pass as PyTorch's users call it."""
    stride, pad, dilation = sizes
    names = torch.nn.functional
    if shape.transposed:
        transpose = names.conv_transpose2d if len(stride) == 2 else names.conv_transpose3d
        return lambda: transpose(g, W, None, stride, pad, 0, shape.groups, dilation)
    conv = names.conv2d if len(stride) == 2 else names.conv3d
    return lambda: conv(x, W, None, stride, pad, dilation, shape.groups)


PEERS: Peers = {"torch NCHW": torch_peer, "torch NHWC": torch_peer}


def make_case(be: Any, layer: Shape, N: int, direction: str, peers: Peers = PEERS) -> Case:
    """The case of one direction of one shape, whose minibatch is its own: ours if there is a backend, and ``peers``."""
    problem = Problem(layer, direction)
    return _primitives.make(
        be, layer, layer.n, problem, ours, peers, nbytes=layer.nbytes(), flops=layer.flops(), tolerance=1e-4
    )


def by_kind(rates: Rates) -> list[str]:
    """Geometric means by kind of shape, and what is under 0.8."""
    lines = []
    for kind in dict.fromkeys(row.layer.network for row in rates.rows):
        means = []
        for direction in DIRECTIONS:
            rows = [row for row in rates.rows if (row.layer.network, row.direction) == (kind, direction)]
            if found := geometric_mean(rows):
                means.append(f"{direction} {found[0]:.2f}")
        lines += [f"{kind}, PyTorch's time / ours: {', '.join(means)}"] if means else []
    slow = [row for row in rates.rows if row.ratio is not None and row.ratio < 0.8]
    lines += [f"under 0.8: {row.layer.title}, {row.direction}: {row.ratio:.2f}" for row in slow]
    return lines


SUBJECT = Subject("conv_shapes", f"{__doc__}", SHAPES, make_case, PEERS, DIRECTIONS, QUICK, (1,), remarks=by_kind)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--list", choices=LISTS, default="shapes")
    options, rest = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    if "--child" in rest:  # which answers for any of them
        return _primitives.main(replace(SUBJECT, layers=SHAPES + HELD_OUT), rest)
    return _primitives.main(SUBJECT if options.list == "shapes" else replace(SUBJECT, layers=HELD_OUT), rest)


if __name__ == "__main__":
    sys.exit(main())
