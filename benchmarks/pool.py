"""Pooling forward and backward against PyTorch, on the layers of five networks.

``--quick``: eight layers at N = 32, under a minute on two cores. ``python benchmarks/pool.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from _layers import POOLS, Pool
from _libraries import Array, Made, from_images, returns, writes
from _primitives import Primitives, Problem, some, values

DIRECTIONS: dict[str, float | None] = {"fprop": 1.2, "bprop": 1.2}
QUICK = (
    "alexnet pool1", "alexnet pool5", "overfeat pool2", "vgg_a pool3", "googlenet pool3", "googlenet 4e pool",
    "googlenet pool5", "resnet50 pool1",
)  # fmt: skip


class Pooling(Problem):
    """Max pooling keeps positions, mean pooling leaves the padding out.

    Attributes
    ----------
    I, E : float32 arrays (C, H, W, N), (C, P, Q, N)
    """

    needs = ("pool_layer", "fprop_pool", "bprop_pool")

    def __init__(self, layer: Pool, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        self.I, self.E = values((layer.C, layer.H, layer.W, N), 1), values((layer.C, layer.P, layer.Q, N), 2)

    def reference(self) -> list[Array]:
        """Outputs; or gradients, which go to the first largest value of a window, or to all in equal parts."""
        layer, images, pad = self.layer, some(self.N), self.layer.pad
        around = ((0, 0), (pad, pad), (pad, pad), (0, 0))
        padded = np.pad(self.I[..., images].astype(float), around, constant_values=np.nan)
        windows = np.stack([padded[at] for at in self._places()])  # (places of the window, C, P, Q, n)
        if self.direction == "fprop":
            return [np.nanmax(windows, axis=0) if layer.op == "max" else np.nanmean(windows, axis=0)]
        there = np.isfinite(windows)
        if layer.op == "max":
            shares = np.arange(len(windows))[:, None, None, None, None] == np.nanargmax(windows, axis=0)
        else:
            shares = there / there.sum(axis=0)
        gradients = np.zeros_like(padded)
        for share, at in zip(shares, self._places()):
            gradients[at] += share * self.E[..., images].astype(float)
        return [gradients[:, pad : pad + layer.H, pad : pad + layer.W]]

    def _places(self) -> Iterator[Any]:
        """The slices of padded maps that all outputs read at each place of the window."""
        layer, step = self.layer, self.layer.stride
        for r, s in np.ndindex(layer.window, layer.window):
            yield np.s_[:, r : r + step * layer.P : step, s : s + step * layer.Q : step]

    def ours(self, library: Any) -> Made:
        """One call of the primitive; backward follows a forward call that is not timed."""
        be, layer, N = library.be, self.layer, self.N
        window, stride, pad = layer.window, layer.stride, layer.pad
        geometry = be.pool_layer(
            self.I.dtype, layer.op, N, layer.C, 1, layer.H, layer.W, J=1, T=1, R=window, S=window,
            pad_h=pad, pad_w=pad, str_c=1, str_d=1, str_h=stride, str_w=stride,
        )  # fmt: skip
        I, E = (library.put(maps.reshape(-1, N)) for maps in (self.I, self.E))  # noqa: E741
        argmax = be.empty(E.shape, dtype=np.uint8) if layer.op == "max" else None
        if self.direction == "fprop":
            return writes(lambda: be.fprop_pool(geometry, I, E, argmax=argmax), E, shapes=[self.E.shape])
        be.fprop_pool(geometry, I, be.empty_like(E), argmax=argmax)
        return writes(lambda: be.bprop_pool(geometry, E, I, argmax=argmax), I, shapes=[self.I.shape])

    def peer(self, library: Any, who: str) -> Made:
        torch, layer, form = library.torch, self.layer, library.layout(who)
        aten, how = torch.ops.aten, [[n] * 2 for n in (layer.window, layer.stride, layer.pad)]
        x = library.images(self.I, form)
        if self.direction == "fprop" and layer.op == "max":
            return returns(lambda: aten.max_pool2d_with_indices(x, *how)[0], from_images)
        if self.direction == "fprop":
            return returns(lambda: aten.avg_pool2d(x, *how, False, False), from_images)
        g = library.images(self.E, form)
        if layer.op == "avg":
            return returns(lambda: aten.avg_pool2d_backward(g, x, *how, False, False, None), from_images)
        indices = aten.max_pool2d_with_indices(x, *how)[1]
        return returns(
            lambda: aten.max_pool2d_with_indices_backward(g, x, *how, [1, 1], False, indices), from_images
        )


SUITE = Primitives("pool", __doc__, Pooling, POOLS, DIRECTIONS, QUICK, compute=False)

if __name__ == "__main__":
    sys.exit(SUITE.main())
