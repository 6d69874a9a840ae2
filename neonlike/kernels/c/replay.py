"""Assignments that were seen before, started without a look at their plan by the CPython extension of ``fastpath``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from neonlike.kernels.c import fastbuild, fastpath
from neonlike.kernels.run.calls import CallCache
from neonlike.kernels.run.recipe import Recipe, Replayed


class Replay:
    """The assignments of one backend that the extension starts.

    Parameters
    ----------
    tensor_type : type
        Class of the tensors among which it does so.

    Attributes
    ----------
    run, run_many : callable or None
        ``run(backend, target, value)`` and ``run_many(backend, pairs, fresh)`` make an assignment that was learned, and
        answer with a :class:`~neonlike.kernels.run.recipe.Replayed`; None while there is no extension.
    calls : CallCache or None
        The calls of the backend's compound primitives, if the extension may repeat them.
    launches : object or None
        The extension's table, whose methods these are, see :mod:`neonlike.kernels.c.fastpath`.
    record : type or None
        Its class of passes that are repeated as a whole.
    passes : dict
        What others made of the table's assignments; forgotten with them.
    generation : object
        Another one whenever something was forgotten, for those who keep kernels elsewhere.
    """

    __slots__ = ("__dict__", "__weakref__", "run")  # the extension reads a slot in less time

    def __init__(self, tensor_type: type) -> None:
        self.tensor_type = tensor_type
        self.launches: Any = None
        self.record: Any = None
        self.passes: dict[Any, Any] = {}
        self.generation = object()
        self.calls: CallCache | None = None
        self.run: Callable[[Any, Any, Any], Replayed] | None = None
        self.run_many: Callable[[Any, Any, bool], Replayed] | None = None
        self.wanted = False
        """Whether to ask for the extension when a plan is met again."""
        self._on = False
        self._pausing = Lock()

    def start(self) -> None:
        """Have assignments learned, from when a plan is first met again."""
        self._on = self.wanted = True

    def stop(self) -> None:
        """Leave every assignment to Python."""
        self._on = self.wanted = False
        self._forget()
        self.launches = self.run = self.run_many = None
        if self.calls is not None:
            self.calls.fast = None

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
        self.launches, self.record = extension.Launches(self.tensor_type), extension.Record
        self.run, self.run_many = self.launches.run, self.launches.run_many
        if self.calls is not None:
            self.calls.fast = extension.Calls()
        fastbuild.attach(extension, self.tensor_type)

    def learn(
        self, backend: Any, pairs: Sequence[tuple[Any, Any]], recipe: Recipe | None, fresh: bool = False
    ) -> None:
        """Have ``run`` make the assignments ``pairs`` by ``recipe`` from now on; None: leave them to Python at once.

        ``fresh``: only where nobody will look at the targets should the run fail, for which the recipe was made.
        """
        if self.launches is not None:
            self.launches.learn(backend, pairs, recipe, fresh)

    def clear(self) -> None:
        """Forget what was learned."""
        self._forget()
        if self.launches is not None:
            self.launches.clear()

    def _forget(self) -> None:
        self.passes.clear()
        self.generation = object()

    @contextmanager
    def paused(self) -> Iterator[Callable[[], bool]]:
        """Leave assignments and calls to Python for a while; gives what says whether it was so all the time."""
        if not self._pausing.acquire(blocking=False):  # another thread has it paused, and will end that
            yield lambda: False
            return
        launches, run, many, calls = self.launches, self.run, self.run_many, self.calls
        fast, generation = None if calls is None else calls.fast, self.generation
        self.run = self.run_many = None
        if calls is not None:
            calls.fast = None
        try:
            yield lambda: self.generation is generation and self.run is None
        finally:
            if self.run is None and self.launches is launches:  # else it was stopped, or started anew, meanwhile
                if fast is not None and self.generation is not generation:
                    fast.clear()
                self.run, self.run_many = run, many
                if calls is not None:
                    calls.fast = fast
            self._pausing.release()
