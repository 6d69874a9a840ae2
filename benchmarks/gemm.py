"""Matrix products against ``torch.addmm`` and NumPy: fully connected layers in three directions, square matrices.

``--quick``: six layers at N = 32 and the squares, under a minute on two cores. ``python benchmarks/gemm.py --help``
lists the options.
"""

from __future__ import annotations

import sys
from typing import Any

import _primitives
import numpy as np
from _cases import Case, Contender
from _layers import FULLY_CONNECTED, SQUARES, Product
from _primitives import Peers, Subject, need, own, peer, view
from _references import Array, some

DIRECTIONS: dict[str, float | None] = {"fprop": None, "bprop": None, "update": None}
QUICK = (
    "alexnet fc6", "alexnet fc7", "alexnet fc8", "vgg_a fc6", "googlenet fc", "resnet50 fc",
    *(layer.title for layer in SQUARES),
)  # fmt: skip


class Problem:
    """The weights and activations of one layer at one minibatch.

    Attributes
    ----------
    W, X, E : float32 arrays (m, k), (k, n), (m, n)
    factors : the two arrays whose product is wanted, views of these
    """

    def __init__(self, layer: Product, N: int, direction: str) -> None:
        n = layer.n or N
        self.direction = direction
        self.W = _primitives.values((layer.m, layer.k), 1, layer.k**-0.5)
        self.X, self.E = _primitives.values((layer.k, n), 2), _primitives.values((layer.m, n), 3)
        self.factors = self.of(self.W, self.X, self.E)

    def of(self, W: Any, X: Any, E: Any) -> tuple[Any, Any]:
        """Factors of this direction, of arrays or tensors."""
        return {"fprop": (W, X), "bprop": (W.T, E), "update": (E, X.T)}[self.direction]

    @property
    def dims(self) -> tuple[int, int]:
        """Shape of the product."""
        return self.factors[0].shape[0], self.factors[1].shape[1]

    def sample(self, product: Array) -> list[Array]:
        """The rows and columns that are compared; between them they use every part of both factors."""
        return [product[some(self.dims[0])], product[:, some(self.dims[1])]]

    def reference(self) -> list[Array]:
        """Some rows and columns, in float64."""
        rows, columns = some(self.dims[0]), some(self.dims[1])
        a, b = self.factors
        return [_product(a[rows], b), _product(a, b[:, columns])]


def _product(a: Array, b: Array) -> Array:
    wide: Array = a.astype(np.float64) @ b.astype(np.float64)
    return wide


def ours(be: Any, problem: Problem) -> Contender:
    """One call of the primitive."""
    need(be, "compound_dot")
    A, B = problem.of(*(be.array(array) for array in (problem.W, problem.X, problem.E)))
    C = be.zeros(problem.dims)
    return own(lambda: be.compound_dot(A, B, C), lambda: problem.sample(view(C, *problem.dims)))


def torch_peer(problem: Problem, name: str) -> Contender:
    """PyTorch, into an existing tensor: on our layout, and on its own, in which each image is a row."""
    import torch

    W = torch.from_numpy(problem.W)
    if name == "torch (features, N)":
        A, B = problem.of(W, torch.from_numpy(problem.X), torch.from_numpy(problem.E))
        C = torch.zeros(problem.dims)
        return peer(name, lambda: torch.addmm(C, A, B, beta=0, out=C), lambda c: problem.sample(c.numpy()))
    X, E = (torch.from_numpy(np.ascontiguousarray(array.T)) for array in (problem.X, problem.E))
    A, B = {"fprop": (X, W.T), "bprop": (E, W), "update": (E.T, X)}[problem.direction]
    C = torch.zeros(len(A), B.shape[1])
    turned = problem.direction != "update"  # of weights there is one layout
    sample = lambda c: problem.sample(c.numpy().T if turned else c.numpy())  # noqa: E731
    return peer(name, lambda: torch.addmm(C, A, B, beta=0, out=C), sample)


def numpy_peer(problem: Problem, name: str) -> Contender:
    """NumPy, into an existing array."""
    out = np.zeros(problem.dims, np.float32)
    return peer(name, lambda: np.matmul(*problem.factors, out), lambda c: problem.sample(c))


PEERS: Peers = {"torch (features, N)": torch_peer, "torch (N, features)": torch_peer, "numpy": numpy_peer}


def make_case(be: Any, layer: Product, N: int, direction: str, peers: Peers = PEERS) -> Case:
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
    )


SUBJECT = Subject(
    "gemm", f"{__doc__}", [*FULLY_CONNECTED, *SQUARES], make_case, PEERS, DIRECTIONS, QUICK,
    directions_of=lambda layer: ["fprop"] if layer.n else list(DIRECTIONS),
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    return _primitives.main(SUBJECT, argv)


if __name__ == "__main__":
    sys.exit(main())
