"""Arrays that convert to a number if they have one element, of any rank, as neon's scripts expect.

Examples are ``'%.1f' % (model.eval(...) * 100)``, and ``float(x[i])`` for a column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.optree.dialect import is_neon


class Values(np.ndarray):
    """An array that, with a single element, converts to a Python number and accepts number formats, at any rank.

    Since 2.4 NumPy converts only arrays of rank 0. It is saved as a plain array.
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
    """View ``array`` as :class:`Values`, sharing its memory."""
    return np.asarray(array).view(Values)


def fetched(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Result of a tensor's ``get``: in neon's dialect, a single element of it is also a number."""
    return values(array) if is_neon() else array
