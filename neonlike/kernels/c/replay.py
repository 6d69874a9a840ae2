"""The programs of one backend that the extension finds by their keys and runs, past Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from neonlike.kernels.c import fastbuild, fastpath
from neonlike.kernels.run.calls import Recipe, recipe_of
from neonlike.kernels.run.depends import ANY_VALUE, Depends
from neonlike.kernels.run.program import Program
from neonlike.kernels.run.trace import Trace
from neonlike.kernels.run.workspace import KEPT_BYTES


class Replay:
    """Programs of one backend, for all that it does a second time.

    Parameters
    ----------
    tensor_type : type
        Class of the tensors among which the extension does it.

    Attributes
    ----------
    table : nlfast.Table or None
        Programs of assignments and of calls of primitives, by their keys. ``table.run(backend, target, value)`` and
        ``table.run_many(backend, pairs, fresh)`` make an assignment that was learned, and answer with a
        :class:`~neonlike.kernels.run.program.Replayed`. None while there is no extension, or it is paused.
    passes : dict
        By the keys of tapes of variables: the pass as a program, or how many tries to record it have failed.
    epoch : object
        A new object whenever something was forgotten; no epoch of a training. Guards watch it: a new one ends all
        records of passes. That is how another dialect ends them.
    is_paused : bool
        Whether everything is left to Python for a while. Guards watch it, so that no pass runs past a trace.
    """

    __slots__ = ("__dict__", "__weakref__", "table")  # the extension reads a slot in less time

    def __init__(self, tensor_type: type) -> None:
        self.tensor_type = tensor_type
        self.table: Any = None
        self.passes: dict[Any, Any] = {}
        self.epoch = object()
        self.wanted = False
        """Whether to ask for the extension when a plan is met again, or a primitive called a second time."""
        self._was_called = False
        self.is_paused = False
        self._extension: Any = None
        self._on = False
        self._pausing = Lock()

    def start(self) -> None:
        """Have programs learned, from when a plan is first met again."""
        self._on = self.wanted = True

    def stop(self) -> None:
        """Leave everything to Python."""
        self._on = self.wanted = False
        self._forget()
        self.table = None

    def note_call(self) -> None:
        """Note that a primitive was called: ask for the extension the second time, while it is wanted."""
        if self._was_called:
            self.request()
        self._was_called = True

    def request(self) -> None:
        """Ask for the extension, which is compiled in the background if need be."""
        self.wanted = False
        fastpath.request(self.adopt)

    def adopt(self, extension: Any) -> None:
        """Use ``extension`` from now on, unless it has become unwanted while it was compiled."""
        if not self._on:
            return
        self.wanted = False
        self._forget()
        self._extension = extension
        self.table = extension.Table(self.tensor_type)
        fastbuild.attach(extension, self.tensor_type)

    def program(self, program: Program) -> Any:
        """``program`` as the extension runs it: call it with the addresses of its operands."""
        return self._extension.Program(*program)

    def guard(self, program: Program, watches: Sequence[Any]) -> Any:
        """``program`` as long as what is watched is as it is now.

        Raises
        ------
        ValueError
            If something cannot be watched.
        """
        return self._extension.Guard(self.program(program), tuple(watches), ANY_VALUE)

    def depends_on(self) -> Depends:
        """Repeated passes end when the replay is paused or stopped, or forgets its programs."""
        return Depends(opened=frozenset())

    def learn(
        self, backend: Any, pairs: Sequence[tuple[Any, Any]], program: Program | None, fresh: bool = False
    ) -> None:
        """Have the assignments ``pairs`` made by ``program`` from now on; None: leave them to Python at once.

        ``fresh``: only where nobody will look at the targets should the run fail, for which the program was made.

        Parameters
        ----------
        backend : Backend
        pairs : sequence of (Tensor, value)
        program : Program or None
        fresh : bool
        """
        if self.table is not None:
            known = None if program is None or program.memory > KEPT_BYTES else self.program(program)
            self.table.learn(backend, pairs, known, fresh)

    def begin_call(self) -> Trace:
        """Write down a call of a primitive, which this thread makes next."""
        return Trace().enter()

    def end_call(self, trace: Trace) -> Recipe | None:
        """The call was made: how the extension repeats it; None if that was not one program on its tensors."""
        trace.leave()
        found = recipe_of(trace)
        return None if found is None else (self.program(found[0]), *found[1:])

    def clear(self) -> None:
        """Forget what was learned."""
        self._forget()
        if self.table is not None:
            self.table.clear()

    def _forget(self) -> None:
        self.passes.clear()
        self.epoch = object()

    @contextmanager
    def paused(self) -> Iterator[Callable[[], bool]]:
        """Leave everything to Python for a while; gives what says whether it was so all the time."""
        if not self._pausing.acquire(blocking=False):  # another thread has it paused, and will end that
            yield lambda: False
            return
        table, epoch = self.table, self.epoch
        self.table, self.is_paused = None, True
        try:
            yield lambda: self.epoch is epoch and self.table is None
        finally:
            self.is_paused = False
            if self.table is None and self._on:  # else it was stopped, or started anew, meanwhile
                if table is not None and self.epoch is not epoch:
                    table.clear()
                self.table = table
            self._pausing.release()
