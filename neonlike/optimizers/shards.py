"""Updates of large parameters that the ranks share: each gets all gradients of its rows, and updates these alone.

Then it sends the rows to all others. That is as much to send as sums for all of them; the update adds the gradients on
the way, and each rank does its part only, as an update takes the time of its memory. Optimizer states of a rank are up
to date in its rows; before they are saved, :func:`gather_states` completes them.

Source: Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models" (2020), stage 1.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from neonlike.distributed.gradients import LARGE_BYTES, RankSum
from neonlike.distributed.ranks import Ranks, row_bounds
from neonlike.kernels.run.trace import call_again
from neonlike.optimizers.step import Parameter
from neonlike.optree.builders import cast


class Shard:
    """The rows of a parameter that this rank updates, and their gradients by the samples of all ranks.

    Parameters
    ----------
    ranks : Ranks
        The processes that train together.
    param, grad : Tensor
        The whole parameter, and the gradient by this rank's samples.
    compression : str or None
        Name of a dtype of 16 bits in which the gradient is sent.

    Attributes
    ----------
    param, grad : Tensor
        The whole parameter, and the gradient by this rank's samples.
    own_param : Tensor
        The rows, a view.
    own_grad : OpTreeNode
        The sum of their gradients over the ranks, in the order of these, which the update computes.
    nbytes : int
        Bytes of the gradient as it is sent.
    """

    def __init__(self, ranks: Ranks, param: Any, grad: Any, compression: Any) -> None:
        be, dtype = param.backend, grad.dtype
        self._ranks, self.param, self.grad = ranks, param, grad
        self._sent = grad if compression is None else be.empty(grad.shape, dtype=compression)
        self._compress = None if compression is None else be.prepare(self._sent, grad)
        self._wait: Callable[[], None] | None = None
        self.nbytes = self._sent.nbytes
        self.bounds = row_bounds(len(param), ranks.size)
        start, end = self.bounds[ranks.rank : ranks.rank + 2]
        self.rows = slice(start, end)
        self.own_param = param[self.rows]
        count = end - start
        self._received = be.empty(((ranks.size - 1) * count, *param.shape[1:]), dtype=self._sent.dtype)
        parts = [self._received[place * count : (place + 1) * count] for place in range(ranks.size - 1)]
        parts.insert(ranks.rank, self._sent[self.rows])  # as the others would receive it
        self.own_grad = functools.reduce(operator.add, [cast(part, dtype) for part in parts])

    def begin(self) -> None:
        """Begin :meth:`exchange` in a backward pass that has computed the gradient; if it is repeated, each time."""
        if self._sent is not self.grad:
            self._sent[...] = self.grad
        call_again(self._send)

    def _send(self) -> None:
        """Begin to send; an error is raised where the end is waited for."""
        try:
            if self._wait is not None:  # an error of all ranks has ended the step before
                self._wait()
            self._wait = self._ranks.begin_exchange_rows(
                np.asarray(self._sent), np.asarray(self._received), self.bounds
            )
        except BaseException as error:
            self._wait = functools.partial(_fail, error)

    def exchange(self) -> None:
        """Send each rank the gradients of its rows, and receive those of one's own; if that has begun, end it."""
        if self._wait is not None:
            wait, self._wait = self._wait, None
            wait()
            return
        if self._compress is not None:
            self._compress()
        self._ranks.exchange_rows(np.asarray(self._sent), np.asarray(self._received), self.bounds)

    def gather(self) -> None:
        """Send the updated rows to all ranks, and receive theirs."""
        self._ranks.gather_rows(np.asarray(self.param), self.bounds)

    def entry(self, states: Sequence[Any]) -> Parameter:
        """The parameter as a step of this rank takes it."""
        self.own_param.rounding = self.param.rounding
        return (self.own_param, self.own_grad), [state[self.rows] for state in states]


def _fail(error: BaseException) -> NoReturn:
    raise error


class Exchange:
    """Exchange of the gradients and updates of some parameters between the ranks.

    Parameters
    ----------
    ranks : Ranks
        The processes that train together.
    pairs : sequence of (Tensor, Tensor)
        Parameters and their gradients.
    shared : bool
        Whether the ranks may update rows of large parameters each; else all gradients are summed.
    compression : str or None
        Name of a dtype of 16 bits in which large gradients are sent.

    Attributes
    ----------
    shards : dict
        Id of a gradient -> :class:`Shard`.
    summed, sent : tuple
        Shapes and bytes of all gradients as they are sent, and of the parameters of shards.
    """

    def __init__(self, ranks: Ranks, pairs: Sequence[tuple[Any, Any]], shared: bool, compression: Any) -> None:
        large = [pair for pair in pairs if shared and can_be_shared(*pair, ranks.size)]
        self.shards = {id(grad): Shard(ranks, param, grad, compression) for param, grad in large}
        whole = [grad for _, grad in pairs if id(grad) not in self.shards]
        self._sum = RankSum(ranks, whole, compression=compression)
        nbytes = self._sum.nbytes + sum(shard.nbytes for shard in self.shards.values())
        self.summed = [grad.shape for _, grad in pairs], nbytes
        self.sent = [param.shape for param, _ in large], sum(param.nbytes for param, _ in large)

    def before(self) -> None:
        """Sum the gradients, those of shards as far as this rank needs them."""
        for shard in self.shards.values():
            shard.exchange()
        self._sum()

    def after(self) -> None:
        """Give all ranks the updated rows."""
        for shard in self.shards.values():
            shard.gather()


def can_be_shared(param: Any, grad: Any, ranks: int) -> bool:
    """Whether ranks may update rows of a parameter each: its memory is on the host and contiguous, and it is large.

    Parameters
    ----------
    param, grad : Tensor
        A parameter and its gradient.
    ranks : int
        Number of processes.
    """
    if not (param.live_host and grad.live_host) or param.shape != grad.shape or param.dtype != grad.dtype:
        return False
    fits = param.dtype in (np.float32, np.float64) and param.nbytes >= LARGE_BYTES and param.shape[0] >= ranks
    return bool(fits and param.is_contiguous and grad.is_contiguous)


def gather_states(ranks: Ranks, param_list: Iterable[Parameter]) -> None:
    """Complete the optimizer states of parameters whose rows the ranks update; all ranks have to call this."""
    for (param, grad), states in param_list:
        for state in states if can_be_shared(param, grad, ranks.size) else ():
            if state.shape == param.shape and state.is_contiguous and state.live_host:
                ranks.gather_rows(np.asarray(state), row_bounds(len(param), ranks.size))
