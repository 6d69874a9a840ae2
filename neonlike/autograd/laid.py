"""The memory of a traced pass: which tensors its joined program takes, and where all others lie in working memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neonlike.backends.objects.filemap import extent
from neonlike.kernels.run.arena import Arena, Room
from neonlike.kernels.run.memory import PAGE
from neonlike.kernels.run.program import Made, Program, Source, Word, is_repeatable, join


class Laid:
    """The tensors that the runs of a trace read and write.

    Parameters
    ----------
    given : sequence of Tensor
        The first operands of the joined program.
    runs : sequence of Made
        Of assignments.
    calls : tuple of int
        Calls of ``rand`` that the joined program is given others for.

    Attributes
    ----------
    places : dict of int to int
        Operands by the ids of tensors, those that are given and those that :meth:`stay`.
    staying : list of Tensor
    is_known : bool
        Whether each operand of a run is one of these tensors, or lies within a single one.
    """

    def __init__(self, given: Sequence[Any], runs: Sequence[Made], calls: tuple[int, ...] = ()) -> None:
        self.given, self.runs, self.calls = tuple(given), runs, calls
        self.places = {id(tensor): place for place, tensor in enumerate(self.given)}
        self.staying: list[Any] = []
        self._made: dict[int, tuple[Any, int]] = {}  # by id: what a run wrote first, and which run
        self._last: dict[int, int] = {}  # by id: the last run that uses it
        self._rooms: dict[int, Room] = {}
        self._within: dict[int, tuple[int, int]] = {}  # by id, of others: in which tensor they lie, and where
        self.is_known = is_repeatable(runs, calls) and self._look()

    def makes(self, tensor: Any) -> bool:
        """Whether ``tensor`` was made by the runs."""
        return id(tensor) in self._made

    def stay(self, tensors: Iterable[Any]) -> None:
        """Have ``tensors``, which the runs make, among the operands."""
        for tensor in tensors:
            if id(tensor) not in self.places:
                self.places[id(tensor)] = len(self.given) + len(self.staying)
                self.staying.append(tensor)

    def place_of(self, tensor: Any) -> int | None:
        """Index of the operand that ``tensor`` is; None if the runs did not make it."""
        return self.places[id(tensor)] if self.makes(tensor) else None

    def program(self) -> Program:
        """The joined program; tensors that do not stay lie in the same memory as others once they are not needed."""
        arena = Arena()
        for number in range(len(self.runs)):
            new = {key: t for key, (t, made) in self._made.items() if made == number and key not in self.places}
            self._rooms |= {key: arena.take(tensor.nbytes) for key, tensor in new.items()}
            arena.give_back(room for key, room in self._rooms.items() if self._last[key] == number)
        memory = -(-arena.nbytes // PAGE) * PAGE
        operands = len(self.given) + len(self.staying)
        return join(self.runs, None, self._word, operands, memory, calls=self.calls)

    def _look(self) -> bool:
        """Find where each operand lies; whether all were found."""
        for number, run in enumerate(self.runs):
            if not run.written or not all(map(self._finds, run.read)):
                return False
            for tensor in run.written:
                if id(tensor) not in self.places:
                    self._made.setdefault(id(tensor), (tensor, number))
            for tensor in (*run.read, *run.written):
                base, _ = self._within.get(id(tensor), (id(tensor), 0))
                self._last[base] = number
        return True

    def _finds(self, tensor: Any) -> bool:
        """Whether ``tensor`` is known, or lies within a single one that is."""
        if id(tensor) in self.places or id(tensor) in self._made or id(tensor) in self._within:
            return True
        known = [*self.given, *(made for made, _ in self._made.values())]
        around = [base for base in known if _is_within(tensor, base)]
        if len(around) == 1:
            self._within[id(tensor)] = id(around[0]), tensor.address - around[0].address
        return len(around) == 1

    def _word(self, run: Made, which: int, distance: int) -> Word:
        """Where the joined program finds an operand of a run."""
        tensor = (*run.read, *run.written)[which]
        base, before = self._within.get(id(tensor), (id(tensor), 0))
        if base in self.places:
            return Source.OPERAND, self.places[base], before + distance
        return Source.MEMORY, self._rooms[base][0] + before + distance


def _is_within(tensor: Any, base: Any) -> bool:
    """Whether all bytes of ``tensor`` are among those of ``base``."""
    (low, high), (first, last) = extent(tensor.address, tensor), extent(base.address, base)
    return first <= low and high <= last
