"""Matrix products against ``torch.addmm`` and NumPy: fully connected layers in three directions, square matrices.

``--quick``: six layers at N = 32 and the squares, under a minute on two cores. ``python benchmarks/gemm.py --help``
lists the options.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _layers import FULLY_CONNECTED, SQUARES, Product
from _libraries import AUTOCAST, Array, Made, returns, writes
from _precision import PRECISIONS
from _primitives import Primitives, Problem, some, values

DIRECTIONS: dict[str, float | None] = {"fprop": None, "bprop": None, "update": None}
QUICK = (
    "alexnet fc6", "alexnet fc7", "alexnet fc8", "vgg_a fc6", "googlenet fc", "resnet50 fc",
    *(layer.title for layer in SQUARES),
)  # fmt: skip
PEERS = ("torch (features, N)", "torch (N, features)", "numpy")


class Multiplication(Problem):
    """The weights and activations of a fully connected layer.

    Attributes
    ----------
    W, X, E : float32 arrays (m, k), (k, n), (m, n)
    """

    needs = ("compound_dot",)

    def __init__(self, layer: Product, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        n, self.flops = layer.n or N, layer.flops(N)
        self.W = values((layer.m, layer.k), 1, layer.k**-0.5)
        self.X, self.E = values((layer.k, n), 2), values((layer.m, n), 3)

    def of(self, W: Any, X: Any, E: Any) -> tuple[Any, Any]:
        """Factors of this direction, of arrays or tensors."""
        return {"fprop": (W, X), "bprop": (W.T, E), "update": (E, X.T)}[self.direction]

    @property
    def factors(self) -> tuple[Array, Array]:
        """The two arrays that are multiplied."""
        return self.of(self.W, self.X, self.E)

    @property
    def dims(self) -> tuple[int, int]:
        """Shape of the product."""
        return self.factors[0].shape[0], self.factors[1].shape[1]

    def sample(self, *made: Array) -> list[Array]:
        """Rows and columns that use every part of both factors."""
        (product,) = made
        return [product[some(self.dims[0])], product[:, some(self.dims[1])]]

    def reference(self) -> list[Array]:
        a, b = (factor.astype(float) for factor in self.factors)
        return [a[some(len(a))] @ b, a @ b[:, some(b.shape[1])]]

    def ours(self, library: Any) -> Made:
        """One call of the primitive."""
        A, B = self.of(*(library.put(array) for array in (self.W, self.X, self.E)))
        C = library.be.zeros(self.dims, dtype=self.W.dtype)
        return writes(lambda: library.be.compound_dot(A, B, C), C)

    def peer(self, library: Any, who: str) -> Made:
        """Into an existing tensor, but for autocast: on our layout, and on PyTorch's own, each image a row."""
        if who == "numpy":
            out = np.zeros(self.dims, np.float32)
            return writes(lambda: np.matmul(*self.factors, out), out)
        W, X, E = (library.put(array) for array in (self.W, self.X, self.E))
        if not who.endswith("(N, features)"):
            return self._product(library, *self.of(W, X, E))
        X, E = library.put(self.X.T), library.put(self.E.T)
        made = self._product(library, *{"fprop": (X, W.T), "bprop": (E, W), "update": (E.T, X)}[self.direction])
        turned = self.direction != "update"  # of weights there is one layout
        return Made(made.run, made.results, lambda c: [c.T if turned else c])

    def _product(self, library: Any, A: Any, B: Any) -> Made:
        torch = library.torch
        if library.way == AUTOCAST:
            if self.direction == "fprop":
                product = library.autocast(torch.mm)
                return returns(lambda: product(A, B))
            A, B = library.kept(A, B)
            return returns(library.to_leaves(lambda: torch.mm(A, B)))
        C = torch.zeros(len(A), B.shape[1], dtype=A.dtype, device=A.device)
        return writes(lambda: torch.addmm(C, A, B, beta=0, out=C), C)


SUITE = Primitives(
    "gemm", __doc__, Multiplication, [*FULLY_CONNECTED, *SQUARES], DIRECTIONS, QUICK, peers=PEERS,
    directions_of=lambda layer: ["fprop"] if layer.n else DIRECTIONS, precisions=PRECISIONS,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(SUITE.main())
