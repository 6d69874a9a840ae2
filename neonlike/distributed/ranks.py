"""The ranks of a program, and what they compute together. This module knows of one process only; see ``mpi.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neonlike.checks import brief
from neonlike.errors import ArgumentError

OPERATIONS: Final = ("sum", "mean", "min", "max", "prod")
"""Operations of :meth:`Ranks.reduce`."""


class Ranks:
    """The processes that run a program together, as one of them sees them. This class: a process alone.

    All ranks must make the same calls in the same order. Arrays are contiguous and on the host.

    Attributes
    ----------
    rank, size : int
        Number of this process, from 0, and of all.
    local_rank : int
        Number of this process among those of its machine.
    cores : int or None
        Cores of its machine that this process has; None: all.

    Examples
    --------
    >>> from neonlike.distributed import ALONE
    >>> ALONE.rank, ALONE.size, ALONE.tell("hello")
    (0, 1, ['hello'])
    """

    rank = 0
    size = 1
    local_rank = 0
    cores: int | None = None

    def reduce(self, array: npt.NDArray[Any], op: str = "sum") -> None:
        """Replace ``array`` on every rank by the sum, mean, min, max or product over all ranks.

        Parameters
        ----------
        array : array
            Contiguous; overwritten.
        op : "sum", "mean", "min", "max" or "prod"

        Examples
        --------
        >>> import numpy as np
        >>> array = np.ones(3)
        >>> ALONE.reduce(array, "mean")
        >>> array.tolist()
        [1.0, 1.0, 1.0]
        """
        check_operation("reduce", op)

    def broadcast(self, array: npt.NDArray[Any], root: int = 0) -> None:
        """Replace ``array`` on every rank by that of rank ``root``.

        Parameters
        ----------
        array : array
            Contiguous; overwritten on the other ranks.
        root : int
            Rank whose array all others receive.

        Examples
        --------
        >>> import numpy as np
        >>> ALONE.broadcast(np.ones(3), root=0)
        """

    def gather(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The arrays of all ranks, which have one shape: ``(size, *shape)``.

        Examples
        --------
        >>> import numpy as np
        >>> ALONE.gather(np.ones(3)).shape
        (1, 3)
        """
        return array[np.newaxis].copy()

    def exchange_rows(self, array: npt.NDArray[Any], received: npt.NDArray[Any], bounds: list[int]) -> None:
        """Send each other rank its rows of ``array``; write this rank's rows of the others to ``received``, by rank.

        ``bounds`` has the first row of each rank, and the number of rows.

        Parameters
        ----------
        array : array
            What is sent, the same number of rows on all ranks.
        received : array
            ``(size - 1, own rows, ...)``; written.
        bounds : list of int
            As :func:`row_bounds` gives them.

        Examples
        --------
        >>> import numpy as np
        >>> ALONE.exchange_rows(np.ones((4, 2)), np.empty((0, 4, 2)), row_bounds(4, 1))
        """

    def begin_exchange_rows(
        self, array: npt.NDArray[Any], received: npt.NDArray[Any], bounds: list[int]
    ) -> Callable[[], None]:
        """Begin :meth:`exchange_rows`, and return a function that waits for its end; both arrays are in use until then.

        All ranks begin these in the same order; other calls may be made before one is waited for.

        Parameters
        ----------
        array, received, bounds
            As of :meth:`exchange_rows`.

        Returns
        -------
        callable
            Without arguments; it returns when ``received`` is whole.

        Examples
        --------
        >>> import numpy as np
        >>> wait = ALONE.begin_exchange_rows(np.ones((4, 2)), np.empty((0, 4, 2)), row_bounds(4, 1))
        >>> wait()
        """
        self.exchange_rows(array, received, bounds)
        return _nothing

    def gather_rows(self, array: npt.NDArray[Any], bounds: list[int]) -> None:
        """Replace the rows of each rank in ``array``, see :meth:`exchange_rows`, by what that rank has there.

        Examples
        --------
        >>> import numpy as np
        >>> ALONE.gather_rows(np.ones((4, 2)), row_bounds(4, 1))
        """

    def tell(self, thing: Any, what: str = "") -> list[Any]:
        """Exchange objects that can be pickled; returns those of all ranks, by rank.

        ``what`` names them, and is compared: a rank that tells something else than the others is an error.

        Examples
        --------
        >>> ALONE.tell({"loss": 0.5}, "the loss")
        [{'loss': 0.5}]
        """
        return [thing]

    def barrier(self) -> None:
        """Wait until all ranks are here.

        Examples
        --------
        >>> ALONE.barrier()
        """

    def queueing(self, what: str) -> None:
        """Count ``what``, a call of all ranks that their devices are about to carry out (``links.py``)."""


def _nothing() -> None:
    """Wait for what is done."""


ALONE: Final = Ranks()


def row_bounds(rows: int, ranks: int) -> list[int]:
    """The first row of each rank's share of ``rows``, and their number.

    Examples
    --------
    >>> row_bounds(10, 4)
    [0, 2, 5, 7, 10]
    """
    return [rank * rows // ranks for rank in range(ranks + 1)]


def check_operation(who: str, op: Any) -> None:
    """Raise ArgumentError unless ``op`` is one of :data:`OPERATIONS`."""
    if op not in OPERATIONS:
        raise ArgumentError(f"{who}: op={brief(op)}; expected one of {', '.join(OPERATIONS)}")
