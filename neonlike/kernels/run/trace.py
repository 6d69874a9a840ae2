"""A trace writes down the programs that one thread runs while Python does something, so that they can be run again.

While a trace is being written, the extension may be paused: then Python makes all assignments and all calls of compound
primitives, and the trace misses none. Work that is no program on the memory of tensors (NumPy's, converted copies)
leaves the trace incomplete, and nothing is repeated then; :func:`call_again` is for what may be called each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

from neonlike.kernels.run.program import Made, Program, calling

at_work: dict[int, Trace] = {}
"""Traces by the threads whose work they write down; what is on a hot path looks whether it is empty first."""


class Operands(NamedTuple):
    """The tensors of a call of a primitive, for the conditions under which its program may run on others.

    Attributes
    ----------
    tensors : tuple of Tensor or None
        In the order in which the kernel takes them.
    in_place : int
        Index of the tensor that is read and is the one written; -1: none.
    alone : bool
        Whether the kernel is all that the call does; else assignments follow, and others may not be repeated for it.
    """

    tensors: tuple[Any, ...]
    in_place: int = -1
    alone: bool = True


class Pinned(NamedTuple):
    """The tensors of a call of a primitive that is repeated for these alone."""

    tensors: tuple[Any, ...]


class Called(NamedTuple):
    """A call of a primitive that was one kernel on the memory of its tensors.

    ``launch`` is a ``calls.KernelCall``; of a call on pinned tensors a ``calls.Unrolled``.
    """

    launch: Any
    operands: Operands | Pinned
    outputs: tuple[Any, ...]


class Mark(NamedTuple):
    """A place in a trace."""

    runs: int
    calls: int
    started: int
    is_whole: bool


class Trace:
    """The programs that one thread has a backend run.

    Parameters
    ----------
    be : Backend, optional
        Backend that all tensors must belong to, for the trace to be whole; None: the extension has checked them.

    Attributes
    ----------
    runs : list of Made
    calls : list of Called
        Of primitives.
    outer : Trace or None
        The one that it interrupts.
    held : list
        Tensors, whose addresses the runs have.
    is_whole : bool
        Whether nothing was done that is not in ``runs``.
    """

    def __init__(self, be: Any = None) -> None:
        self.be = be
        self.runs: list[Made] = []
        self.calls: list[Called] = []
        self.held: list[Any] = []
        self.is_whole = True
        self.outer: Trace | None = current()
        self._started = 0  # kernels since a primitive was done

    def enter(self) -> Trace:
        """Write down what this thread does from now on."""
        at_work[get_ident()] = self
        return self

    def leave(self) -> None:
        """Write down no more. A trace that this one interrupted knows nothing of what was done."""
        del at_work[get_ident()]
        if self.outer is not None:
            self.outer.is_whole = False
            self.outer.enter()

    def kernel(self, launch: Any, addresses: Sequence[int | None]) -> None:
        """A launch (``calls.KernelCall``) is made on the memory at ``addresses``."""
        self._started += 1
        self.runs.append(Made(launch.program(), tuple(addresses)))

    def primitive(self, launch: Any, operands: Operands | Pinned | None, outputs: Sequence[Any] = ()) -> None:
        """Note that a primitive was called; the trace stays whole if the call was one kernel on its tensors' memory.

        Assignments may have been made in it besides; they have runs of their own.

        Parameters
        ----------
        launch : object or None
            The launch that the call made; None: it did something else.
        operands : Operands, Pinned or None
            The tensors of the call; None: it cannot be repeated.
        outputs : sequence of Tensor
            What it wrote.
        """
        started, self._started = self._started, 0
        queued = isinstance(operands, Pinned) and self.be is None  # the launch makes all of it again, whatever that is
        if (started != 1 and not queued) or operands is None or launch is None or not self._is_of(launch, operands):
            self.is_whole = False
            return
        self.held += operands.tensors
        self.calls.append(Called(launch, operands, tuple(outputs)))

    def _is_of(self, launch: Any, operands: Operands | Pinned) -> bool:
        """Whether ``launch`` was made on the memory of these tensors, all of this backend."""
        tensors = operands.tensors
        if self.be is not None and any(t is not None and t.backend is not self.be for t in tensors):
            return False
        if isinstance(operands, Pinned):
            return bool(launch.lasts)
        return [None if tensor is None else tensor.address for tensor in tensors] == [*launch.addresses]

    def mark(self) -> Mark:
        """Where the trace is when an assignment begins, for :meth:`assignment`."""
        return Mark(len(self.runs), len(self.calls), self._started, self.is_whole)

    def called(self, function: Callable[[], None], before: Mark) -> None:
        """A function of Python was called; what it did is not written down, but that it is to be called again."""
        self._rewind(before)
        self.runs.append(Made(calling(function), ()))

    def _rewind(self, before: Mark) -> None:
        """Forget what was written down since a mark."""
        del self.runs[before.runs :], self.calls[before.calls :]
        self._started, self.is_whole = before.started, before.is_whole

    def assignment(self, graph: Any, program: Program | None, before: Mark) -> None:
        """An assignment of leaves of ``graph`` to what it assigns was made; ``program`` makes it, None: no program.

        What was written down since it began, such as primitives in it, is in the program.

        Parameters
        ----------
        graph : Graph
        program : Program or None
        before : Mark
            State of the trace when the assignment began.
        """
        self._rewind(before)
        if program is None or not program.is_whole:
            self.is_whole = False
            return
        read, written = tuple(graph.leaves), tuple(graph.assigned)
        self.held += read + written
        addresses = tuple([tensor.address for tensor in (*read, *written)])
        self.runs.append(Made(program, addresses, tuple(graph.numbers), read, written, tuple(graph.draws)))

    def end(self, was_alone: bool) -> None:
        """The work is over; ``was_alone``: the extension ran nothing meanwhile."""
        self.is_whole = self.is_whole and was_alone and not self._started


def current() -> Trace | None:
    """The trace of this thread's work, None if there is none."""
    return at_work.get(get_ident()) if at_work else None


def call_again(function: Callable[[], None]) -> None:
    """Call a function; a pass that is being recorded will call it at this place each time, and end where it raises."""
    trace = current()
    if trace is None:
        function()
        return
    before = trace.mark()
    function()
    trace.called(function, before)


def lose() -> None:
    """Told by what reads or writes the memory of tensors on the host, or runs kernels that are not written down."""
    if (trace := current()) is not None:
        trace.is_whole = False


@contextmanager
def tracing(be: Any) -> Iterator[Trace]:
    """Write down what this thread has ``be`` do inside, while the extension runs nothing of it."""
    trace = Trace(be)
    with be.executor.replay.paused() as stays_paused:
        trace.enter()
        try:
            yield trace
            trace.end(stays_paused())
        finally:
            trace.leave()
