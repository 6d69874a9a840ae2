"""Records the calls of a pass while it is made: each kernel, with all its arguments, in turn.

While a :class:`Recorder` is at work in a thread, the extension starts nothing, so that all goes by way of Python and
past the recorder: calls of compound primitives, and assignments. What cannot be written down as kernels on the memory
of tensors (NumPy's work, converted copies, random numbers) makes the recorder *lose* the pass.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, TypeVar

Value = TypeVar("Value")

at_work: dict[int, Recorder] = {}
"""Recorders by the threads whose calls they write down; what is on a hot path looks whether it is empty first."""


class Recorder:
    """Writes down what one thread has a backend do.

    Parameters
    ----------
    be : Backend
    launches : object
        The extension's table of assignments.

    Attributes
    ----------
    kernels : list of tuple
        As the extension's ``Record`` takes them.
    held : list
        Tensors and launches, whose addresses the kernels have.
    is_whole : bool
        Whether nothing was done that is not in ``kernels``.
    """

    def __init__(self, be: Any, launches: Any) -> None:
        self.be, self.launches = be, launches
        self.kernels: list[tuple[Any, ...]] = []
        self.held: list[Any] = []
        self.is_whole = True
        self._started = 0  # kernels since a primitive was done

    def kernel(self, launch: Any, addresses: Sequence[int | None]) -> None:
        """A launch (``calls.KernelCall``) is made on the memory at ``addresses``."""
        self._started += 1
        placed = launch.placed()
        if placed is None:
            self.is_whole = False
            return
        words = bytearray(placed.given)
        for place, address in zip(placed.places, addresses):
            struct.pack_into("=q", words, 8 * place, address or 0)
        self.held.append(launch)
        self.kernels.append((placed.entry, bytes(words), placed.work_at, placed.work))

    def primitive(self, tensors: Sequence[Any], addresses: Sequence[int | None] | None) -> None:
        """A primitive was called that started a kernel at ``addresses``; None: something else.

        Beside assignments it did nothing else if that was one kernel, on the memory of its ``tensors``.
        """
        started, self._started = self._started, 0
        self.held += tensors
        ours = all(tensor is None or tensor.backend is self.be for tensor in tensors)
        memory = [None if tensor is None else tensor.address for tensor in tensors]
        if addresses is None or started != 1 or not ours or memory != [*addresses]:
            self.is_whole = False

    def end(self, was_alone: bool) -> None:
        """The pass is over; ``was_alone``: the extension started nothing meanwhile."""
        self.is_whole = self.is_whole and was_alone and not self._started

    def assignment(self, pairs: Sequence[tuple[Any, Any]], graph: Any, before: int) -> None:
        """An assignment was made, whose leaves and targets are those of ``graph``.

        There were ``before`` kernels when it began: those of primitives in it came since, and are its own.
        """
        del self.kernels[before:]
        tensors = list({id(tensor): tensor for tensor in (*graph.targets, *graph.leaves)}.values())
        fixed = self.launches.fixed(self.be, pairs, tensors, graph.fresh)
        if fixed is None:
            self.is_whole = False
            return
        self.held += tensors
        self.kernels.append((fixed, tensors))


def recorder() -> Recorder | None:
    """The recorder of this thread's calls, None if there is none."""
    return at_work.get(get_ident()) if at_work else None


def lose() -> None:
    """Told by what reads or writes the memory of tensors on the host, or runs kernels that are not written down."""
    if (writes := recorder()) is not None:
        writes.is_whole = False


def beside(read: Callable[[], Value]) -> Value:
    """The result of ``read``: of no account to the pass that is written down, which is told apart from it each time."""
    writes = recorder()
    whole = writes is None or writes.is_whole
    found = read()
    if writes is not None:
        writes.is_whole = whole
    return found


@contextmanager
def recording(be: Any) -> Iterator[Recorder]:
    """Write down what this thread has ``be`` do inside, where its ``replay`` has the extension."""
    replay = be.executor.replay
    made = Recorder(be, replay.launches)
    at_work[get_ident()] = made
    try:
        with replay.paused() as stays_paused:
            yield made
            made.end(stays_paused())
    finally:
        del at_work[get_ident()]
