"""Minibatches of NumPy's copied into tensors (features, N), against PyTorch: stored feature by feature or by sample.

Data sets have a sample in each row, so that a batch is the transpose of some rows: ``x.set(rows.T)``. The directions
are of float32 in the tensor's order, and of float32 and of bytes by sample. ``--quick``: two sizes, seconds. ``python
benchmarks/batches.py --help`` lists the options.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from _layers import Layer
from _libraries import Array, Made, writes
from _primitives import Primitives, Problem, values

DIRECTIONS: dict[str, float | None] = {"in order": None, "by sample": 1.0, "bytes by sample": 1.0}
PEERS = ("torch",)


@dataclass(frozen=True)
class Samples(Layer):
    """Samples of so many features."""

    features: int = 1

    @property
    def text(self) -> str:
        """For a table."""
        return f"{self.features} features"

    def nbytes(self, N: int) -> int:
        """Bytes that a copy of N of them in float32 reads and writes."""
        return 8 * self.features * N


class Batch(Problem):
    """A batch of samples on the host.

    Attributes
    ----------
    rows : array (N, features)
    """

    needs = ("empty",)

    def __init__(self, layer: Samples, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        rows = values((N, layer.features), 1)
        if direction == "bytes by sample":
            rows, self.nbytes = (100 * rows).astype(np.int64).astype(np.uint8), self.nbytes * 5 // 8
        self.rows = rows if direction != "in order" else np.ascontiguousarray(rows.T).T

    def reference(self) -> list[Array]:
        return [self.rows.astype(float).T]

    def sample(self, *made: Array) -> list[Array]:
        return list(made)

    def ours(self, library: Any) -> Made:
        x = library.be.empty(self.rows.T.shape)
        return writes(lambda: x.set(self.rows.T), x)

    def peer(self, library: Any, who: str) -> Made:
        torch = library.torch
        x = torch.empty(self.rows.T.shape)
        return writes(lambda: x.copy_(torch.from_numpy(self.rows.T)), x)


SIZES = [
    Samples("digits", "8x8", features=64), Samples("mnist", "28x28", features=784),
    Samples("odd", "1001", features=1001), Samples("cifar", "32x32x3", features=3072),
    Samples("spectra", "4096", features=4096), Samples("imagenet", "64x64x3", features=12288),
]  # fmt: skip
QUICK = ["mnist 28x28", "cifar 32x32x3"]
SUITE = Primitives("batches", __doc__, Batch, SIZES, DIRECTIONS, QUICK, (100, 128, 512), PEERS, compute=False)

if __name__ == "__main__":
    sys.exit(SUITE.main())
