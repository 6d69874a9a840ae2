"""Compression of gradients for messages between ranks: each is rounded to 16 bits, and they are added in float32.

MPI cannot add numbers of 16 bits, and a sum rounded after each rank would lose digits. So each rank receives what all
have of its share of a large tensor, adds that in the order of the ranks, and sends the sums, which are not rounded
again, to all: three quarters of the bytes of a sum in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.checks import brief
from neonlike.distributed.ranks import Ranks, row_bounds
from neonlike.errors import ArgumentError, DTypeError
from neonlike.optree.dtypes import as_dtype

NAMES = "float16", "bfloat16"
"""Names of the dtypes that gradients may be sent in."""


def message_dtype(compression: Any) -> np.dtype[Any] | None:
    """The dtype of gradients in messages by the setting ``compression``: None, a dtype of 16 bits or its name.

    Raises
    ------
    ArgumentError
        For another one.
    DTypeError
        For bfloat16 where ml_dtypes is not installed.

    Examples
    --------
    >>> message_dtype("float16").name
    'float16'
    """
    if compression is None:
        return None
    try:
        found = as_dtype(compression)
    except DTypeError:
        if compression == "bfloat16":  # what to install
            raise
        found = None
    if found is None or found.name not in NAMES:
        raise ArgumentError(f"gradient_compression: got {brief(compression)}; expected None, {' or '.join(NAMES)}")
    return found


class CompressedSum:
    """The sum of an array over all ranks, which send it in 16 bits.

    Parameters
    ----------
    ranks : Ranks
    size : int
        Number of elements.
    message, total : dtype
        Of messages and of the sum.

    Attributes
    ----------
    nbytes : int
        Bytes of the array as it is sent.
    """

    def __init__(self, ranks: Ranks, size: int, message: np.dtype[Any], total: np.dtype[Any]) -> None:
        self._ranks, self._bounds = ranks, row_bounds(size, ranks.size)
        start, end = self._bounds[ranks.rank : ranks.rank + 2]
        self._own = slice(start, end)
        self._sent, self._sum = np.empty(size, message), np.empty(size, total)
        self.nbytes = self._sent.nbytes
        self._received = np.empty(((ranks.size - 1), end - start), message)

    def __call__(self, array: npt.NDArray[Any], op: str) -> npt.NDArray[Any]:
        """The sum or mean of ``array`` over all ranks, the same bits on each; overwritten by the next call."""
        with np.errstate(over="ignore", invalid="ignore"):  # infinite in float16, as loss scaling expects
            np.copyto(self._sent, array.reshape(-1), casting="unsafe")
            self._ranks.exchange_rows(self._sent, self._received, self._bounds)
            parts = [*self._received]
            parts.insert(self._ranks.rank, self._sent[self._own])
            total = self._sum[self._own]
            total[...] = 0
            for part in parts:
                total += part.astype(total.dtype)
            if op == "mean":
                total /= self._ranks.size
        self._ranks.gather_rows(self._sum, self._bounds)
        return self._sum.reshape(array.shape)
