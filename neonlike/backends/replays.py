"""Passes of a network that are made again without Python: each layer's calls, recorded once.

Between two kernels Python plays a layer: it looks at the layer's settings, finds its tensors and calls the backend. In
small networks that takes as long as a third of the kernels, and each time it leads to the same. So the third pass is
recorded (:mod:`neonlike.kernels.run.trace`), of a chain or a cost, or of a network and its cost forward and back.
From the fourth on the extension of ``kernels/c/fastpath.py`` starts the kernels, as long as all is as it was that the
pass depends on (:mod:`.watched`): the tensors, the attributes of layers and backend, the methods of their classes. A
pass that finds anything else is played, and so is one that cannot be recorded, because of a layer that does not say
that it can be (``Layer.repeatable``), or of work that is no kernel.

A pass is recorded only where it leaves everything as it found it but the contents of tensors, as passes do from the
second on, so that nothing is missed when it is not played.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from neonlike.backends.watched import Watch, same, watches
from neonlike.kernels.run.program import is_repeatable, join
from neonlike.kernels.run.trace import tracing

FIRST, MOST = 2, 4096
"""Passes that are played before one is recorded: so many at first, twice as many after each time, this many at most."""
STALE = 3
"""Passes in a row that find something changed before the record is given up."""
STEADY = 64
"""A record that was run so often shows that the next is worth making soon."""


class Repeated:
    """Passes of one kind, such as those of a chain in one direction; a copy has none.

    A shallow copy of the chain has this too, but plays its own.

    Attributes
    ----------
    guard : nlfast.Guard or None
        The program of a pass, and what it depends on.
    result : object
        What that pass returned.
    """

    __slots__ = ("_alone", "_pause", "_roots", "_seen", "_stale", "_wait", "guard", "result")

    def __init__(self) -> None:
        self.guard: Any = None
        self._roots: tuple[Any, ...] = ()
        self._alone: Any = None
        self.result: Any = None
        self._wait = self._pause = FIRST
        self._stale = self._seen = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Repeated:
        return Repeated()

    def __reduce__(self) -> tuple[type[Repeated], tuple[()]]:
        return Repeated, ()

    def run(self, be: Any, roots: Sequence[Any], play: Callable[..., Any], *given: Any, alone: Any = None) -> Any:
        """The result of ``play(*given)``, by kernels alone if such a pass was recorded and nothing changed.

        Parameters
        ----------
        be : Backend
        roots : tuple
            What a pass depends on, with all that is found below: a chain, and tensors that it is given.
        alone : object, optional
            Whose attributes it depends on beside, with nothing that is below them: a cost, which knows its network.
        """
        if self.again(roots, alone):
            return self.result
        return self.played(be, roots, play, *given, alone=alone)

    def again(self, roots: Sequence[Any], alone: Any = None) -> bool:
        """Run the kernels of a pass if it was recorded and nothing has changed; whether that was done.

        If not, :meth:`played` has to follow.
        """
        guard, known = self.guard, self._roots
        if guard is None or alone is not self._alone or len(roots) != len(known) or not all(map(is_, roots, known)):
            return False
        done: bool = guard.run()
        return done

    def played(self, be: Any, roots: Sequence[Any], play: Callable[..., Any], *given: Any, alone: Any = None) -> Any:
        """``play(*given)``, recorded if it is time to."""
        guard = self.guard
        if guard is not None:
            self._look(guard)
        elif self._wait > 0:
            self._wait -= 1
        elif _may_record(be):
            return self._make(be, roots, play, given, alone)
        return play(*given)

    def _look(self, guard: Any) -> None:
        """A pass found something changed: give the record up if that has become the rule."""
        hits = guard.program.hits
        if hits != self._seen:
            if hits - self._seen >= STEADY:
                self._pause = FIRST
            self._seen, self._stale = hits, 0
        self._stale += 1
        if self._stale >= STALE:
            self._drop()

    def _drop(self) -> None:
        self.guard = self.result = self._alone = None
        self._roots = ()
        self._stale = self._seen = 0
        self._wait = self._pause

    def _make(self, be: Any, roots: Sequence[Any], play: Any, given: tuple[Any, ...], alone: Any) -> Any:
        """Play a pass and record it, if it can be."""
        self._drop()
        self._pause = min(2 * self._pause, MOST)
        before = _watched(be, roots, alone)
        if before is None:
            return play(*given)
        with tracing(be) as trace:
            result = play(*given)
        after = _watched(be, roots, alone)
        if trace.is_whole and is_repeatable(trace.runs) and after is not None and same(before, after):
            try:
                program = join(trace.runs, (trace.held, roots, result))
                self.guard = be.executor.replay.guard(program, after)
            except ValueError:  # something that cannot be watched
                return result
            self._roots, self._alone, self.result = tuple(roots), alone, result
        return result


class Replays:
    """The passes of a chain, or of a cost, in both directions, and those of a chain in inference."""

    def __init__(self) -> None:
        self.forward, self.backward, self.inference = Repeated(), Repeated(), Repeated()


def _may_record(be: Any) -> bool:
    """Whether the extension starts the calls of ``be``, in the memory of the host."""
    replay = None if be is None else be.executor.replay
    return replay is not None and replay.table is not None and be.tensor_cls.live_host


def _watched(be: Any, roots: Sequence[Any], alone: Any) -> list[Watch] | None:
    """The objects that a pass depends on, see :meth:`Repeated.run`; None if not all can be watched."""
    beside = [] if alone is None else [alone]
    parts = [part for root in (*roots, *beside) if hasattr(type(root), "repeatable") for part in _all(root)]
    if not all(vars(type(part)).get("repeatable", False) for part in parts):
        return None
    return watches(roots, (be, be.executor.replay, *beside))


def _all(layer: Any) -> list[Any]:
    """The layer, and those of a container and of containers among them."""
    return [layer, *(one for inner in getattr(layer, "layers", ()) for one in _all(inner))]
