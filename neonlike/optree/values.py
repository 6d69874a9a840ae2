"""Arrays of which one element, a small result or what is cut out, still acts as a number, as in neon's scripts.

``'%.1f' % (model.eval(...) * 100)`` is such a use, and ``float(x[i])`` of a column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.optree.dialect import is_neon


class Values(np.ndarray):
    """An array that, if it has one element, converts to a Python number and takes its formats, whatever its rank.

    NumPy itself converts only arrays of rank 0 since 2.4. It is saved as a plain array.
    """

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else format(np.asarray(self).__str__(), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)


def values(array: Any) -> Values:
    """``array`` as :class:`Values`, sharing its memory."""
    return np.asarray(array).view(Values)


def fetched(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The result of ``get`` for a tensor with this content: in neon's dialect, one element of it is a number too."""
    return values(array) if is_neon() else array
