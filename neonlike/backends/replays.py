"""Passes of a network are recorded once and then repeated without Python, while nothing changes that they depend on.

Between two kernels Python plays a layer: it looks at the layer's settings, finds its tensors and calls the backend. In
small networks that takes as long as a third of the kernels, and each time it leads to the same. So the third pass is
recorded (:mod:`neonlike.kernels.run.trace`), of a chain or a cost, or of a network and its cost forward and back.
From the fourth on the extension of ``kernels/c/fastpath.py`` starts the kernels, as long as all is as it was that the
pass depends on (:mod:`.watched`): the tensors, the attributes of layers and backend, the methods of their classes. A
pass that finds anything else is played.

A pass is never recorded where tensors lie in a GPU's memory, where an object does not say what it depends on
(``depends_on``), or where work was done that is no kernel. It must also leave everything as it found it but the
contents of tensors, as passes do from the second on, so that nothing is missed when it is not played.

An optimizer uses a record without any kernel: it finds its parameters anew only where something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from neonlike.backends.watched import same, watches
from neonlike.kernels.run.program import is_repeatable, join
from neonlike.kernels.run.trace import tracing

FIRST_WAIT, LONGEST_WAIT = 2, 4096
"""Passes that are played before one is recorded: 2 at first; then 2, 4, 8, ..., 4096 while recording fails."""
STALE = 3
"""Passes in a row that find something changed before the record is given up."""
STEADY = 64
"""A record that was run so often shows that the next is worth making soon."""


class Repeated:
    """Records one kind of call, such as a chain's forward pass, and repeats it while all it depends on stays the same.

    Deep copies have no record. A shallow copy of a chain shares this object, and so the record of the chain that was
    recorded first. Passes of the other chain are played, and count as passes that find something changed.

    Attributes
    ----------
    guard : nlfast.Guard or None
        The kernels of a call, and the objects that it depends on; None: there is no record.
    result : object
        The result of the recorded call, which each repeated one returns.
    """

    __slots__ = ("_pause", "_roots", "_seen", "_stale", "_wait", "guard", "result")

    def __init__(self) -> None:
        self.guard: Any = None
        self._roots: tuple[Any, ...] = ()
        self.result: Any = None
        self._wait = self._pause = FIRST_WAIT
        self._stale = self._seen = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Repeated:
        return Repeated()

    def __reduce__(self) -> tuple[type[Repeated], tuple[()]]:
        return Repeated, ()

    def run(self, be: Any, roots: Sequence[Any], play: Callable[..., Any], *given: Any) -> Any:
        """The result of ``play(*given)``, by kernels alone if such a pass was recorded and nothing changed.

        Parameters
        ----------
        be : Backend
        roots : tuple
            What a pass depends on, with all that these objects depend on: a chain, and tensors that it is given.
        play : callable
            Computes a pass.
        *given : objects
            Arguments of ``play``.
        """
        if self.again(roots):
            return self.result
        return self.played(be, roots, play, *given)

    def again(self, roots: Sequence[Any]) -> bool:
        """Run the kernels of a pass if it was recorded and nothing has changed; whether that was done.

        If not, :meth:`played` has to follow, which also says which index it is that the first kernels did not take.
        """
        guard, known = self.guard, self._roots
        if guard is None or len(roots) != len(known) or not all(map(is_, roots, known)):
            return False
        done: bool = guard.run()
        return done

    def played(self, be: Any, roots: Sequence[Any], play: Callable[..., Any], *given: Any) -> Any:
        """``play(*given)``, recorded if it is time to.

        Parameters
        ----------
        be : Backend
        roots : sequence
            What the pass depends on.
        play : callable
        *given : objects
            Arguments of ``play``.
        """
        guard = self.guard
        if guard is not None:
            self._look(guard)
        elif self._wait > 0:
            self._wait -= 1
        elif _may_record(be):
            return self._make(be, roots, play, given)
        return play(*given)

    def _look(self, guard: Any) -> None:
        """A pass found something changed: give the record up if that has become the rule."""
        hits = guard.program.hits
        if hits != self._seen:
            if hits - self._seen >= STEADY:
                self._pause = FIRST_WAIT
            self._seen, self._stale = hits, 0
        self._stale += 1
        if self._stale >= STALE:
            self._drop()

    def _drop(self) -> None:
        self.guard = self.result = None
        self._roots = ()
        self._stale = self._seen = 0
        self._wait = self._pause

    def _make(self, be: Any, roots: Sequence[Any], play: Any, given: tuple[Any, ...]) -> Any:
        """Play a pass and record it, if it can be."""
        self._drop()  # there is no record: this starts the wait for the next try
        self._pause = min(2 * self._pause, LONGEST_WAIT)
        everything = *roots, be
        before = watches(everything)
        if before is None:
            return play(*given)
        with tracing(be) as trace:
            result = play(*given)
        after = watches(everything)
        if trace.is_whole and is_repeatable(trace.runs) and after is not None and same(before, after):
            try:
                program = join(trace.runs, (trace.held, roots, result))
                self.guard = be.executor.replay.guard(program, after)
            except ValueError:  # something that cannot be watched
                return result
            self._roots, self.result = tuple(roots), result
        return result


class Replays:
    """The records of a chain: of its forward pass in training, backward pass, and forward pass in inference.

    A cost has them too, and never uses that of inference.
    """

    def __init__(self) -> None:
        self.forward, self.backward, self.inference = Repeated(), Repeated(), Repeated()


def _may_record(be: Any) -> bool:
    """Whether the extension starts the calls of ``be``, in the memory of the host."""
    replay = None if be is None else be.executor.replay
    return replay is not None and replay.table is not None and be.tensor_cls.live_host
