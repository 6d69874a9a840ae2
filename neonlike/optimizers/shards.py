"""Updates of large parameters that the ranks share: each sums the gradients of its rows, and updates these alone.

Then it sends the rows to all others. That is as much to send as sums for all of them, and each rank does its part of
the update only, whose time is that of its memory. Optimizer states of a rank are up to date in its rows; before they
are saved, :func:`gather_states` completes them.

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models" (2020), stage 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from neonlike.distributed.gradients import LARGE_BYTES
from neonlike.distributed.ranks import Ranks
from neonlike.optimizers.step import Parameter


class Shard:
    """The rows of a parameter that this rank updates, and the sum of their gradients over all ranks.

    Attributes
    ----------
    param, grad : Tensor
        The whole parameter, and the gradient by this rank's samples.
    own_param, own_grad : Tensor
        The rows, a view; and the sum for them.
    """

    def __init__(self, ranks: Ranks, param: Any, grad: Any) -> None:
        self._ranks, self.param, self.grad = ranks, param, grad
        self.bounds = row_bounds(param, ranks.size)
        self.rows = slice(*self.bounds[ranks.rank : ranks.rank + 2])
        self.own_param = param[self.rows]
        self.own_grad = param.backend.empty(self.own_param.shape, dtype=grad.dtype)

    def sum(self) -> None:
        """Sum the gradients of the rows."""
        self._ranks.reduce_rows(np.asarray(self.grad), np.asarray(self.own_grad), self.bounds)

    def gather(self) -> None:
        """Send the updated rows to all ranks, and receive theirs."""
        self._ranks.gather_rows(np.asarray(self.param), self.bounds)

    def entry(self, states: Sequence[Any]) -> Parameter:
        """The parameter as a step of this rank takes it."""
        self.own_param.rounding = self.param.rounding
        return (self.own_param, self.own_grad), [state[self.rows] for state in states]


def row_bounds(tensor: Any, ranks: int) -> list[int]:
    """The first row of each rank's, and the number of rows."""
    rows = tensor.shape[0]
    return [rank * rows // ranks for rank in range(ranks + 1)]


def can_be_shared(param: Any, grad: Any, ranks: int) -> bool:
    """Whether ranks may update rows of a parameter each: its memory is on the host and contiguous, and it is large."""
    if not (param.live_host and grad.live_host) or param.shape != grad.shape or param.dtype != grad.dtype:
        return False
    fits = param.dtype in (np.float32, np.float64) and param.nbytes >= LARGE_BYTES and param.shape[0] >= ranks
    return bool(fits and param.is_contiguous and grad.is_contiguous)


def gather_states(ranks: Ranks, param_list: Iterable[Parameter]) -> None:
    """Complete the optimizer states of parameters whose rows the ranks update; all ranks have to call this."""
    for (param, grad), states in param_list:
        for state in states if can_be_shared(param, grad, ranks.size) else ():
            if state.shape == param.shape and state.is_contiguous and state.live_host:
                ranks.gather_rows(np.asarray(state), row_bounds(param, ranks.size))
