"""A replay keeps the programs of one backend, which are found by keys and run by the extension in place of Python."""

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
    """A replay keeps what one backend repeats by a key: assignments, calls of primitives, and passes of variables.

    Prepared assignments and passes of networks keep their programs themselves.

    In a process that starts fresh the fourth run of a line is the first from a program. The first run makes a plan; the
    second meets the plan again and asks for the extension, which is there at once if it is in the cache on disk; the
    third learns the program. Calls of primitives go the same way. Once the extension is there, the first run of another
    line learns its program, and the second run uses it.

    Parameters
    ----------
    tensor_type : type
        Class of the backend's tensors; the extension leaves operands of other classes to Python.

    Attributes
    ----------
    table : nlfast.Table or None
        Programs of assignments and of calls of primitives, by their keys. ``table.run(backend, target, value)`` and
        ``table.run_many(backend, pairs, fresh)`` make an assignment that was learned, and answer with a
        :class:`~neonlike.kernels.run.program.Replayed`. None while there is no extension, or it is paused.
    passes : dict
        By the keys of tapes of variables: the pass as a program, or how many tries to record it have failed. Python
        searches it (``autograd/passes.py``).
    epoch : object
        A new object whenever something was forgotten; no epoch of a training. Guards watch it: a new one ends all
        records of passes. That is how another dialect ends them.
    is_paused : bool
        Whether everything is left to Python for a while. Guards watch it, so that a trace misses no pass.
    """

    __slots__ = ("__dict__", "__weakref__", "table")  # the extension reads a slot in less time

    def __init__(self, tensor_type: type) -> None:
        self.tensor_type = tensor_type
        self.table: Any = None
        self.passes: dict[Any, Any] = {}
        self.epoch = object()
        self.to_ask = False
        """Whether the extension is still to be asked for: when a plan is met again, or a second primitive is called."""
        self._was_called = False
        self.is_paused = False
        self._extension: Any = None
        self._is_wanted = False  # whether the backend repeats anything: not in bench mode, nor without compiled kernels
        self._pausing = Lock()

    def start(self) -> None:
        """Have programs learned as soon as a plan is met again, or a second primitive is called."""
        self._is_wanted = self.to_ask = True

    def stop(self) -> None:
        """Leave everything to Python."""
        self._is_wanted = self.to_ask = False
        self._forget()
        self.table = None

    def note_call(self) -> None:
        """Note that a primitive was called; the second call asks for the extension. Only while ``to_ask``."""
        if self._was_called:
            self.request()
        self._was_called = True

    def request(self) -> None:
        """Ask for the extension, which is compiled in the background if need be."""
        self.to_ask = False
        fastpath.request(self.adopt)

    def adopt(self, extension: Any) -> None:
        """Use ``extension`` from now on, unless it has become unwanted while it was compiled."""
        if not self._is_wanted:
            return
        self.to_ask = False
        self._forget()
        self._extension = extension
        self.table = extension.Table(self.tensor_type)
        fastbuild.attach(extension, self.tensor_type)

    def program(self, program: Program) -> Any:
        """``program`` as the extension runs it: call it with the addresses of its operands."""
        return self._extension.Program(*program)

    def guard(self, program: Program, watches: Sequence[Any], forward: bool = False) -> Any:
        """``program`` as long as what is watched is as it is now; ``forward``: it sets what forward passes do.

        Raises
        ------
        ValueError
            If something cannot be watched.
        """
        return self._extension.Guard(self.program(program), tuple(watches), ANY_VALUE, forward)

    def depends_on(self) -> Depends:
        """Repeated passes end when the replay is paused or stopped, or forgets its programs."""
        return Depends(opened=frozenset())

    def learn(
        self, backend: Any, pairs: Sequence[tuple[Any, Any]], program: Program | None, fresh: bool = False
    ) -> None:
        """Have ``program`` make the assignments ``pairs`` from now on; None: they are left to Python without a search.

        Assignments that need more than ``KEPT_BYTES`` (64 MiB) of working memory are left to Python too.

        Parameters
        ----------
        backend : Backend
        pairs : sequence of (Tensor, value)
        program : Program or None
        fresh : bool
            As of ``Executor.run``: whether the targets are discarded should the run fail. It is a part of the key.
        """
        if self.table is not None:
            known = None if program is None or program.memory > KEPT_BYTES else self.program(program)
            self.table.learn(backend, pairs, known, fresh)

    def begin_call(self) -> Trace:
        """Write down a call of a primitive, which this thread makes next."""
        return Trace().enter()

    def end_call(self, trace: Trace) -> Recipe | None:
        """The call was made: return how the extension repeats it; None if it was not one program on its tensors.

        Any amount of working memory will do: the kernel needs as much when Python runs it.
        """
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
            if self.table is None and self._is_wanted:  # else it was stopped, or started anew, meanwhile
                if table is not None and self.epoch is not epoch:
                    table.clear()
                self.table = table
            self._pausing.release()
