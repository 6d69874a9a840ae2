"""Whether an iterator shares its batches among several ranks: each reads its columns, as ``shares = True`` says."""

from __future__ import annotations

from typing import Any

from neonlike.errors import ArgumentError
from neonlike.nervanaobject import NervanaObject

MAKERS = frozenset(("__iter__", "host_batches", "synthesize"))
"""Methods that choose the samples of a batch; a class that defines one has to say that this shares them."""


def shares_batches(maker: Any) -> bool:
    """Whether batches of an iterator, or of a task, are shared among the ranks.

    The class that defines how batches are made says so by its attribute ``shares``. A subclass inherits that, unless it
    defines ``__iter__`` or ``host_batches`` (a task: ``synthesize``) itself: then its own attribute counts, and without
    one its batches are not shared.
    """
    for kind in type(maker).__mro__:
        if "shares" in vars(kind):
            return bool(maker.shares)
        if not MAKERS.isdisjoint(vars(kind)):
            return False
    return False


def require_shares(dataset: Any, who: str = "Model.fit") -> None:
    """Raise unless the ranks share the batches of an iterator; a process alone needs nothing.

    Raises
    ------
    ArgumentError
        If there are several ranks, and the iterator knows nothing of them: all would train on the same samples.
    """
    be = NervanaObject.be
    if be is None or be.num_ranks == 1 or shares_batches(dataset):
        return
    raise ArgumentError(
        f"{who}: {be.num_ranks} ranks share each batch, but {type(dataset).__name__} does not say that its batches are "
        "shared; all ranks would train on the same samples. Let it yield, of each batch of be.global_bsz="
        f"{be.global_bsz} samples, the columns of its rank alone: [be.rank * be.bsz, (be.rank + 1) * be.bsz), which is "
        "be.own_columns, with ndata and nbatches of all ranks together; then set the class attribute shares = True, in "
        "the class that defines __iter__ or host_batches"
    )
