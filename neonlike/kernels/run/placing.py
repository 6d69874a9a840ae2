"""The program of a plan: where each argument of its kernels is found, temporaries in working memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neonlike.kernels.codegen.emit import Array, Kernel
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.run.arena import Arena, Room
from neonlike.kernels.run.program import Fragment, Program, Source, Step, Word
from neonlike.kernels.run.stage import Input, Layouts
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape


class Placing(Layouts):
    """A run whose temporaries lie in working memory; its operands are the leaves of its graph, then what it assigns.

    Attributes
    ----------
    arena : Arena
        The working memory.
    """

    __slots__ = ("_held", "_rooms", "_words", "_working", "arena")

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.arena = Arena()
        self._held: list[Any] = [target.array for target in graph.targets]
        self._words: dict[int, Word] = dict(zip(map(id, self._held), _targets(graph), strict=True))
        self._rooms: dict[int, Room] = {}  # of temporaries, and of windows of them
        self._working: list[Room] = []

    def room(self, nbytes: int) -> Word:
        """So many bytes of working memory, until the stage ends."""
        self._working.append(self.arena.take(nbytes))
        return Source.MEMORY, self._working[-1][0]

    def empty(self, shape: Shape, dtype: DType) -> ArrayLayout:
        """A temporary, in working memory."""
        found = ArrayLayout(shape, dtype)
        self._held.append(found)  # so that no other array gets its id
        self._rooms[id(found)] = room = self.arena.take(found.nbytes)
        self._words[id(found)] = Source.MEMORY, room[0]
        return found

    def place(self, window: Any, one: Input, distance: int) -> None:
        """``window`` begins ``distance`` bytes after the array that a stage reads as ``one``, and is a part of it.

        Parameters
        ----------
        window : array
        one : Input
        distance : int
            In bytes.
        """
        self._held.append(window)
        self._words[id(window)] = word = after(self.read(one), distance)
        if word[0] is Source.MEMORY:
            self._rooms[id(window)] = self._rooms[id(self.temps[one.index])]

    def end_stage(self, spent: Iterable[int]) -> None:
        """No later stage reads the values ``spent``, nor what this one worked in: others may have their memory."""
        over = [self._rooms.get(id(self.temps.pop(value, None))) for value in spent]
        staying = [*self.temps.values(), *(array for results in self.results.values() for array in results)]
        in_use = {self._rooms.get(id(array)) for array in staying}
        self.arena.give_back({room for room in over if room is not None and room not in in_use} | set(self._working))
        self._working.clear()

    def written(self, array: Any) -> Word:
        """Where a target's array or a temporary begins."""
        return self._words[id(array)]

    def read(self, one: Input | Array) -> Word:
        """Where the array begins that a stage reads as ``one``."""
        return (Source.OPERAND, one.index) if one.kind == "leaf" else self.written(self.temps[one.index])


def after(place: Word, distance: int) -> Word:
    """``distance`` bytes after ``place``."""
    source, which, *before = place
    return (source, which + distance) if source is Source.MEMORY else (source, which, sum(before) + distance)


def fragment_of(program: Program, operands: Sequence[Word], run: Placing, keep: Any) -> Fragment:
    """The kernels of a program, on operands that are found at these words, for the program of a plan.

    Parameters
    ----------
    program : Program
    operands : sequence of Word
    run : Placing
    keep : object
        Lives as long as the fragment.
    """
    room = run.room(program.memory) if program.memory else (Source.MEMORY, 0)

    def placed(word: Word) -> Word:
        source, which, *before = word
        if source is Source.OPERAND:
            return after(operands[which], sum(before))
        return after(room, which) if source is Source.MEMORY else word

    steps = [Step(step.entry, tuple(map(placed, step.words))) for step in program.steps]
    return Fragment(tuple(steps), program.release, program.forks, keep)


def number_words(kernel: Kernel) -> tuple[Word, ...]:
    """The numbers that ``kernel`` takes."""
    kinds = [Source.REAL if number.ctype == "double" else Source.WHOLE for number in kernel.numbers]
    return tuple((kind, number.slot) for kind, number in zip(kinds, kernel.numbers))


def _targets(graph: Graph) -> list[Word]:
    """Where each target begins: an operand, or a window of one."""
    first, assigned = len(graph.leaves), graph.assigned
    if not graph.windows:
        return [(Source.OPERAND, first + place) for place in range(len(assigned))]
    return [
        (Source.OPERAND, first + number, window.address - assigned[number].address)
        for window, number in zip(graph.targets, graph.windows, strict=True)
    ]
