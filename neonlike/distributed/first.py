"""Work of rank 0 alone, such as writing a file. All ranks wait for it, and if it fails, all raise its error."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import TypeVar

from neonlike.distributed.ranks import ALONE, Ranks
from neonlike.errors import NeonlikeError, RankError
from neonlike.nervanaobject import NervanaObject

T = TypeVar("T")


def present_ranks() -> Ranks:
    """The ranks of the current backend; before there is one, this process alone."""
    be = NervanaObject.be
    ranks: Ranks = ALONE if be is None else be.ranks
    return ranks


def by_first(work: Callable[[], T], ranks: Ranks | None = None) -> T | None:
    """Call ``work`` on rank 0 alone; no rank returns before it is done. All ranks have to call this.

    Parameters
    ----------
    work : callable
        Without calls that all ranks must make: the others only wait.
    ranks : Ranks, optional
        By default those of the current backend.

    Returns
    -------
    object
        The result on rank 0, and None on the others.

    Raises
    ------
    Exception
        On every rank, what ``work`` raised on rank 0.
    """
    ranks = present_ranks() if ranks is None else ranks
    if ranks.size == 1:
        return work()
    result: T | None = None
    fault: BaseException | None = None
    if ranks.rank == 0:
        try:
            result = work()
        except BaseException as error:  # told first, because the others wait
            fault = error
    told = ranks.tell(_portable(fault), "work of rank 0")[0]
    if fault is not None:
        raise fault
    if told is not None:
        raise told
    return result


def _portable(error: BaseException | None) -> BaseException | None:
    """The error itself if another process can rebuild it, else a RankError that quotes it."""
    if error is None:
        return None
    try:
        if isinstance(error, OSError | NeonlikeError | KeyboardInterrupt):
            pickle.dumps(copy.copy(error))
            return error
    except Exception:  # any of its attributes may refuse
        pass
    return RankError(f"rank 0 failed: {type(error).__name__}: {error}")
