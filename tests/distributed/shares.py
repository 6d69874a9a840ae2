"""A data set that each rank sees its share of, for programs that tests start under mpiexec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neonlike.data import NervanaDataIterator


class Shares(NervanaDataIterator):
    """Samples in order; of each batch of all ranks, rank r has the columns from ``r * be.bsz``.

    Parameters
    ----------
    x, t : ndarray
        Inputs and targets, ``(ndata, features)`` or ``(ndata, features, steps)``.
    padded : bool
        Complete the last batch by samples from the start; otherwise it is smaller, and a rank may have none of it.
    """

    shares = True

    def __init__(self, x: Any, t: Any, padded: bool = True) -> None:
        super().__init__()
        self.x, self.t, self.padded = x, t, padded
        self.shape = x.shape[1] if x.ndim == 2 else x.shape[1:]
        self.decoder_shape = None
        self.ndata = len(x)

    @property
    def nbatches(self) -> int:
        """Batches of all ranks."""
        return -(-self.ndata // self.be.global_bsz)

    def reset(self) -> None:
        """Nothing is kept from one pass to the next."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        be = self.be
        for start in range(0, self.ndata, be.global_bsz):
            share = start + be.rank * be.bsz + np.arange(be.bsz)
            chosen = share % self.ndata if self.padded else share[share < self.ndata]
            if len(chosen):
                yield self._columns(self.x, chosen), self._columns(self.t, chosen)

    def _columns(self, values: Any, chosen: Any) -> Any:
        """The chosen samples as ``(features, n)``, or ``(features, steps * n)`` ordered by step."""
        rows = values[chosen]
        columns = rows.T if rows.ndim == 2 else rows.transpose(1, 2, 0).reshape(rows.shape[1], -1)
        return self.be.array(np.ascontiguousarray(columns))
