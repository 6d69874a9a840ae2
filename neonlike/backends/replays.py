"""Passes of a network are recorded once and then repeated without Python, while nothing changes that they depend on.

Between two kernels Python plays a layer: it looks at the layer's settings, finds its tensors and calls the backend. In
small networks that takes as long as a third of the kernels, and each time it leads to the same. So the third pass is
recorded (:mod:`neonlike.kernels.run.trace`), of a chain or a cost, or of a network and its cost forward and back.
From the fourth on the extension of ``kernels/c/fastpath.py`` starts the kernels, as long as all is as it was that the
pass depends on (:mod:`.watched`): the tensors, the attributes of layers and backend, the methods of their classes. A
pass that finds anything else is played. Attributes that a forward pass sets, such as the inputs of each layer, may have
other values before: a repeated pass sets them to those of the recorded one. So a network can be trained on several
inputs in turn, or be asked between steps.

A pass is never recorded where tensors lie in a GPU's memory, where an object does not say what it depends on
(``depends_on``), or where work was done that is no kernel. It must also leave everything as it found it but the
contents of tensors, as passes do from the second on, so that nothing is missed when it is not played.

An optimizer uses a record without any kernel: it finds its parameters anew only where something has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

from neonlike.backends.watched import as_left, watches
from neonlike.kernels.run.program import is_repeatable, join
from neonlike.kernels.run.trace import tracing

FIRST_WAIT, LONGEST_WAIT = 2, 4096
"""Passes that are played before one is recorded: 2 at first; then 2, 4, 8, ..., 4096 while records are not run."""
MOST_RECORDS = 4
"""Records at most: of passes that take turns, as those of two inputs."""
STALE, LONG_STALE = 3, 16
"""Played passes since a record was run after which it is given up: with all others, and alone."""
STEADY = 64
"""A record that was run so often shows that the next is worth making soon."""


class Record:
    """A pass that can be repeated.

    Attributes
    ----------
    guard : nlfast.Guard
        The kernels of the pass, and the objects that it depends on.
    roots : tuple
        What the pass was called with.
    result : object
        What it returned, and each repetition does.
    hits, misses : int
        How often it had been run when a pass was played last, and the passes played since it was run.
    """

    __slots__ = ("guard", "hits", "misses", "result", "roots")

    def __init__(self, guard: Any, roots: tuple[Any, ...], result: Any) -> None:
        self.guard, self.roots, self.result = guard, roots, result
        self.hits = self.misses = 0


class Repeated:
    """Records one kind of call, such as a chain's forward pass, and repeats it while all it depends on stays the same.

    Calls with several inputs in turn have a record each. Deep copies have none. A shallow copy of a chain shares this
    object, and so the records of the chain. Its passes are played, or have records of their own.

    Parameters
    ----------
    forward : bool
        Whether the passes begin with the input of a network, and set the attributes that ``Depends.sets`` names.

    Attributes
    ----------
    result : object
        The result of the pass that was repeated or recorded last.
    """

    __slots__ = ("_forward", "_pause", "_records", "_wait", "result")

    def __init__(self, forward: bool = False) -> None:
        self.result: Any = None
        self._forward = forward
        self._records: list[Record] = []
        self._wait = self._pause = FIRST_WAIT

    def __deepcopy__(self, memo: dict[int, Any]) -> Repeated:
        return Repeated(self._forward)

    def __reduce__(self) -> tuple[type[Repeated], tuple[bool]]:
        return Repeated, (self._forward,)

    @property
    def guard(self) -> Any:
        """The guard of the newest record; None if there is no record."""
        return self._records[0].guard if self._records else None

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
        for record in self._records:
            known = record.roots
            if len(roots) == len(known) and all(map(is_, roots, known)) and record.guard.run():
                self.result = record.result
                return True
        return False

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
        if records := self._records:
            self._look(records)
        if self._wait > 0:
            self._wait -= 1
        elif _may_record(be):
            return self._make(be, roots, play, given)
        return play(*given)

    def _look(self, records: list[Record]) -> None:
        """A pass is played although there are records: give up those that are not run any more."""
        newest = records[0]
        if newest.guard.program.hits - newest.hits >= STEADY:
            self._pause = FIRST_WAIT
        for record in records:
            hits = record.guard.program.hits
            record.misses = 1 if hits != record.hits else record.misses + 1
            record.hits = hits
        self._records = [record for record in records if record.misses < LONG_STALE]
        if self._wait > 0 and all(record.misses >= STALE for record in records):
            self._records, self.result = [], None
            self._wait = self._pause

    def _make(self, be: Any, roots: Sequence[Any], play: Any, given: tuple[Any, ...]) -> Any:
        """Play a pass and record it, if it can be."""
        self._wait, self._pause = self._pause, min(2 * self._pause, LONGEST_WAIT)
        everything = *roots, be
        before = watches(everything)
        if before is None:
            return play(*given)
        with tracing(be) as trace:
            result = play(*given)
        after = watches(everything)
        steady = None if after is None else as_left(before, after, roots, self._forward)
        if trace.is_whole and is_repeatable(trace.runs) and steady is not None:
            try:
                program = join(trace.runs, (trace.held, roots, result))
                guard = be.executor.replay.guard(program, steady, self._forward)
            except ValueError:  # something that cannot be watched
                return result
            self._keep(Record(guard, tuple(roots), result))
        return result

    def _keep(self, record: Record) -> None:
        """Keep one more record, without those that have not been run of late and could not be."""
        kept = [known for known in self._records if known.misses < STALE or known.guard.holds()]
        if len(kept) == MOST_RECORDS:
            kept.remove(max(reversed(kept), key=lambda known: known.misses))
        self._records, self.result = [record, *kept], record.result


class Replays:
    """The records of a chain: of its forward pass in training, backward pass, and forward pass in inference.

    A cost has them too, and never uses those of inference.
    """

    def __init__(self) -> None:
        self.forward, self.backward, self.inference = Repeated(forward=True), Repeated(), Repeated(forward=True)


def _may_record(be: Any) -> bool:
    """Whether the extension starts the calls of ``be``, in the memory of the host."""
    replay = None if be is None else be.executor.replay
    return replay is not None and replay.table is not None and be.tensor_cls.live_host
