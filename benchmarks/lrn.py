"""Local response normalisation forward and backward against PyTorch, on the layers of AlexNet and GoogLeNet.

``--quick``: all four layers at N = 32, under a minute on two cores. ``python benchmarks/lrn.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _layers import LRNS, Maps
from _libraries import Array, Made, from_images, returns, writes
from _primitives import Primitives, Problem, some, values

DIRECTIONS: dict[str, float | None] = {"fprop": 4.0, "bprop": 4.0}
ASCALE, BPOWER = 0.5, 0.75
"""alpha is larger than the networks' 1e-4, with which the output would be the input and nothing would be checked."""


class Lrn(Problem):
    """Over ``layer.window`` channels.

    Attributes
    ----------
    I, E : float32 arrays (C, H, W, N)
    """

    needs = ("lrn_layer", "fprop_lrn", "bprop_lrn")

    def __init__(self, layer: Maps, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        self.I, self.E = (values((layer.C, layer.H, layer.W, N), seed) for seed in (1, 2))
        # Forward: maps in, out and denominators; backward: those, errors and gradients.
        self.nbytes = (3 if direction == "fprop" else 5) * self.I.nbytes

    def reference(self) -> list[Array]:
        J, x = self.layer.window, self.I[..., some(self.N)].astype(float)
        denom = 1 + ASCALE / J * channel_sums(x * x, J)
        out = x * denom**-BPOWER
        if self.direction == "fprop":
            return [out]
        E = self.E[..., some(self.N)].astype(float)
        return [E * denom**-BPOWER - 2 * BPOWER * ASCALE / J * x * channel_sums(out * E / denom, J)]

    def ours(self, library: Any) -> Made:
        """One call of the primitive; backward follows a forward call that is not timed."""
        be, layer, how = library.be, self.layer, {"ascale": ASCALE, "bpower": BPOWER}
        geometry = be.lrn_layer(self.I.dtype, self.N, layer.C, 1, layer.H, layer.W, layer.window)
        I, E = (library.put(maps.reshape(-1, self.N)) for maps in (self.I, self.E))  # noqa: E741
        O, denom = be.empty_like(I), be.empty_like(I)  # noqa: E741
        forward = lambda: be.fprop_lrn(geometry, I, O, denom, **how)  # noqa: E731
        if self.direction == "fprop":
            return writes(forward, O, shapes=[self.I.shape])
        forward()
        delta = be.empty_like(I)
        return writes(lambda: be.bprop_lrn(geometry, I, O, E, delta, denom, **how), delta, shapes=[self.I.shape])

    def peer(self, library: Any, who: str) -> Made:
        """Backward through its graph, which is kept."""
        torch, form, backward = library.torch, library.layout(who), self.direction == "bprop"
        with library.gradients(backward):
            x = library.images(self.I, form).requires_grad_(backward)
            forward = lambda: torch.nn.functional.local_response_norm(x, self.layer.window, ASCALE, BPOWER, 1.0)  # noqa: E731
            if not backward:
                return returns(forward, from_images)
            y, g = forward(), library.images(self.E, form)
        return returns(lambda: torch.autograd.grad(y, x, g, retain_graph=True), from_images)


def channel_sums(maps: Array, J: int) -> Array:
    """Sums over J channels around each."""
    padded = np.pad(maps, ((J // 2, J // 2), *((0, 0),) * (maps.ndim - 1)))
    return np.sum([padded[j : j + len(maps)] for j in range(J)], axis=0)


QUICK = [layer.title for layer in LRNS]
SUITE = Primitives("lrn", __doc__, Lrn, LRNS, DIRECTIONS, QUICK, compute=False)

if __name__ == "__main__":
    sys.exit(SUITE.main())
