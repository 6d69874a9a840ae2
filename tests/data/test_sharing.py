"""Iterators that do not share their batches are refused where there are several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.data import ArrayIterator, CopyTask, HostIterator, NervanaDataIterator, Prefetch, Text, Ticker
from neonlike.data.dataloader_transformers import DataLoaderTransformer, Retuple
from neonlike.data.sharing import require_shares, shares_batches
from neonlike.errors import ArgumentError
from tests.data.rank_cases import Loader, story
from tests.support.ranks import OneOf

pytestmark = pytest.mark.engines("any", batch_size=6)


class Plain:
    """An iterator that knows nothing of the library."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Sharing(Plain):
    """One that says what it does."""

    shares = True


class Again(Sharing):
    """One that makes its batches in a way of its own."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Numbers(HostIterator):
    """Batches without a word on ranks."""

    def host_batches(self) -> Iterator[Any]:
        yield np.zeros((1, 6))


class Halves(ArrayIterator):
    """Batches of :class:`ArrayIterator`, changed where they are loaded."""

    def reset(self) -> None:
        """Restart at the third sample."""
        self.start = 2


class Twice(ArrayIterator):
    """Each batch twice."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield from (batch, batch)


class Reversed(Text):
    """Batches in another order."""

    def host_batches(self) -> Iterator[Any]:
        return iter(list(super().host_batches())[::-1])


class Drawn(CopyTask):
    """A task that draws in a way of its own."""

    def synthesize(self, in_tensor: Any, out_tensor: Any, mask: Any) -> None:
        """Draw a minibatch."""


class Said(Drawn):
    """One that says what it does."""

    shares = True


class Split(DataLoaderTransformer):
    """A wrapper with batches of its own."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def vectors() -> ArrayIterator:
    return ArrayIterator(np.zeros((6, 1)))


SHARED: list[Any] = [
    lambda path: vectors(),
    lambda path: Halves(np.zeros((6, 1))),
    lambda path: Sharing(),
    lambda path: Ticker(Said(2, 2)),
    lambda path: Retuple(vectors()),
    lambda path: Retuple(Sharing()),
    lambda path: Prefetch(Text(2, story(path))),
]
REFUSED: list[Any] = [
    lambda path: Plain(),
    lambda path: Again(),
    lambda path: Numbers(),
    lambda path: Twice(np.zeros((6, 1))),
    lambda path: Reversed(2, story(path)),
    lambda path: Ticker(Drawn(2, 2)),
    lambda path: Prefetch(Numbers()),
    lambda path: Retuple(Prefetch(Numbers())),
    lambda path: Retuple(Plain()),
    lambda path: Split(vectors()),
    lambda path: NervanaDataIterator(),
    lambda path: [(1, 2)],
    lambda path: Loader(),
]


@pytest.mark.parametrize("make", SHARED)
def test_what_shares_is_taken(be: Any, tmp_path: Any, make: Any) -> None:
    be.ranks = OneOf(1, 2)
    data = make(tmp_path)
    require_shares(data)
    assert shares_batches(data)


@pytest.mark.parametrize("make", REFUSED)
def test_what_knows_nothing_of_ranks_is_refused(be: Any, tmp_path: Any, make: Any) -> None:
    data = make(tmp_path)
    require_shares(data)  # a process alone needs nothing
    be.ranks, be.bsz = OneOf(1, 2), 3
    with pytest.raises(ArgumentError) as refused:
        require_shares(data, "Model.eval")
    message = str(refused.value)
    assert message.startswith(f"Model.eval: 2 ranks share each batch, but {type(data).__name__} does not say")
    assert "be.global_bsz=6" in message and "be.own_columns" in message and "shares = True" in message
