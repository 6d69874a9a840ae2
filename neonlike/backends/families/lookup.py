"""Index operations: gather and one-hot."""

from __future__ import annotations

from typing import Any

from neonlike.backends.families.base import Family
from neonlike.optree import functions
from neonlike.optree.node import expression


class LookupFamily(Family):
    """``take`` and ``onehot``; indices are integer tensors, arrays or lists."""

    def take(self, a: Any, indices: Any, axis: int, out: Any = None) -> Any:
        """Slices of ``a`` along ``axis`` picked by ``indices``; result has ``len(indices)`` there. Differentiable.

        Raises
        ------
        IndexRangeError
            If an index is out of range: at once for host indices, when computed for tensors.
        """
        return self._finish(functions.take(expression("take", a, self), indices, axis), out)

    def onehot(self, indices: Any, axis: int, out: Any = None) -> Any:
        """1 where the position along ``axis`` equals the index, else 0; takes the shape it is used at.

        Parameters
        ----------
        indices : integer vector of shape (1, n) or (n, 1)
        axis : int
            0: ``out[indices[j], j] = 1`` for a target (classes, n); 1: its transpose.
        """
        return self._finish(functions.onehot(indices, axis, self), out)
