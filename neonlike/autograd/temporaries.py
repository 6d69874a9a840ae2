"""Small tensors that live within a pass only, kept from one run of it to the next.

To make a tensor takes as long as to compute a small one; of a transformer's backward pass with one sample, half the
tensors are such.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

MOST_BYTES = 1 << 18
"""Bytes that a pass keeps, at most; there may be a few hundred passes."""


class Making(NamedTuple):
    """An assignment of a pass: the tensors made for it, of which shape and dtype, and those let go after it."""

    fixed: Any
    made: tuple[tuple[int, Shape, DType], ...]
    dropped: tuple[int, ...]


class Temporaries:
    """The tensors of ``steps`` that are let go before the pass is over, as far as they are small.

    One whose last reader has run and a later one of as many elements lie in the same memory.

    Parameters
    ----------
    be : Backend
    steps : sequence of Making
    """

    def __init__(self, be: Any, steps: Sequence[Making]) -> None:
        self.be = be
        self._pieces: list[tuple[int, DType]] = []  # of memory: how many elements of what type
        self._lying: dict[int, tuple[int, Shape]] = {}  # by tensor: in which piece, and its shape there
        self._spare: list[list[tuple[int, Any]]] = []  # one, or as many as threads have run the pass at a time
        let_go = {place for step in steps for place in step.dropped}
        waiting: dict[tuple[int, DType], list[int]] = {}
        left = MOST_BYTES
        for step in steps:
            for place, shape, dtype in step.made:
                unused = waiting.setdefault((math.prod(shape), dtype), [])
                size = math.prod(shape) * dtype.itemsize
                if place not in let_go or (size > left and not unused):
                    continue
                if not unused:
                    left -= size
                    unused.append(len(self._pieces))
                    self._pieces.append((math.prod(shape), dtype))
                self._lying[place] = unused.pop(), shape
            for place in self._lying.keys() & step.dropped:
                piece, _ = self._lying[place]
                waiting[self._pieces[piece]].append(piece)

    def left_to_make(self, steps: Iterable[Making]) -> list[Making]:
        """``steps`` without the tensors that :meth:`take` gives."""
        kept = self._lying
        return [
            Making(fixed, tuple(one for one in made if one[0] not in kept), tuple(p for p in dropped if p not in kept))
            for fixed, made, dropped in steps
        ]

    def take(self) -> list[tuple[int, Any]]:
        """The tensors by place, which nobody else uses before :meth:`give_back`."""
        try:
            return self._spare.pop()
        except IndexError:
            pieces = [self.be._allocate((1, count), dtype, None, True) for count, dtype in self._pieces]
            return [(place, pieces[piece].reshape(*shape)) for place, (piece, shape) in self._lying.items()]

    def give_back(self, taken: list[tuple[int, Any]]) -> None:
        """Have ``taken`` used by the next run."""
        self._spare.append(taken)
