"""Passes of a network that are made again without Python: each layer's calls, recorded once.

Between two kernels Python plays a layer: it looks at the layer's settings, finds its tensors and calls the backend. In
small networks that takes as long as a third of the kernels, and each time it leads to the same. So a chain's third pass
is recorded (:mod:`neonlike.kernels.run.recorded`), and from the fourth on the extension of ``kernels/c/fastpath.py``
starts the kernels, as long as all is as it was that the pass depends on (:mod:`.watched`): the tensors, the attributes
of layers and backend, the methods of their classes. A pass that finds anything else is played, and so is one that
cannot be recorded, because of a layer that does not say that it can be (``Layer.repeatable``), or of work that is no
kernel.

A pass is recorded only where it leaves everything as it found it but the contents of tensors, as passes do from the
second on, so that nothing is missed when it is not played.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.kernels.run.recorded import recording
from neonlike.layers.core.watched import Watch, same, watches

FIRST, MOST = 2, 4096
"""Passes that are played before one is recorded: so many at first, twice as many after each time, this many at most."""
STALE = 3
"""Passes in a row that find something changed before the record is given up."""
STEADY = 64
"""A record that was run so often shows that the next is worth making soon."""

Play = Callable[[Any], Any]


class Repeated:
    """The passes of a chain in one direction; a shallow copy has this too, but plays its own.

    Attributes
    ----------
    record : nlfast.Record or None
        The kernels of a pass, and what it depends on.
    """

    __slots__ = ("_chain", "_given", "_pause", "_result", "_seen", "_stale", "_wait", "record")

    def __init__(self) -> None:
        self.record: Any = None
        self._chain: Any = None
        self._given: Any = None
        self._result: Any = None
        self._wait = self._pause = FIRST
        self._stale = self._seen = 0

    def run(self, chain: Any, given: Any, play: Play) -> Any:
        """What ``play(given)`` returns, by kernels alone if such a pass was recorded and nothing has changed."""
        record = self.record
        if record is not None:
            if given is self._given and chain is self._chain and record.run():
                return self._result
            self._look(record)
        elif self._wait > 0:
            self._wait -= 1
        elif _may_record(chain.be):
            return self._make(chain, given, play)
        return play(given)

    def _look(self, record: Any) -> None:
        """A pass found something changed: give the record up if that has become the rule."""
        if record.hits != self._seen:
            if record.hits - self._seen >= STEADY:
                self._pause = FIRST
            self._seen, self._stale = record.hits, 0
        self._stale += 1
        if self._stale >= STALE:
            self._drop()

    def _drop(self) -> None:
        self.record = self._chain = self._given = self._result = None
        self._stale = self._seen = 0
        self._wait = self._pause

    def _make(self, chain: Any, given: Any, play: Play) -> Any:
        """Play a pass and record it, if it can be."""
        self._drop()
        self._pause = min(2 * self._pause, MOST)
        be = chain.be
        before = _watched(chain, given)
        if before is None:
            return play(given)
        with recording(be) as made:
            result = play(given)
        after = _watched(chain, given)
        if made.is_whole and after is not None and same(before, after):
            try:
                self.record = be.executor.replay.record(tuple(made.kernels), tuple(after), (made.held, given, result))
            except ValueError:  # something that cannot be watched
                return result
            self._chain, self._given, self._result = chain, given, result
        return result


class Replays:
    """The passes of a chain that were recorded; a copy has none."""

    def __init__(self) -> None:
        self.forward, self.backward = Repeated(), Repeated()

    def __deepcopy__(self, memo: dict[int, Any]) -> Replays:
        return Replays()

    def __reduce__(self) -> tuple[type[Replays], tuple[()]]:
        return Replays, ()


def _may_record(be: Any) -> bool:
    """Whether the extension starts the calls of ``be``, in the memory of the host."""
    replay = None if be is None else be.executor.replay
    return replay is not None and replay.run is not None and replay.calls is not None


def _watched(chain: Any, given: Any) -> list[Watch] | None:
    """What a pass of ``chain`` depends on; None if not all of it can be watched."""
    layers = [*_all(chain)]
    if not all(vars(type(layer)).get("repeatable", False) for layer in layers):
        return None
    be = chain.be
    return watches([chain, given], (be, be.executor.replay))


def _all(chain: Any) -> list[Any]:
    """The chain, its layers, and those of containers among them."""
    return [chain, *(one for layer in getattr(chain, "layers", ()) for one in _all(layer))]
