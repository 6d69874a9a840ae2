"""How an assignment is run without planning: the kernels of its stages, and what the extension passes them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from neonlike.kernels.codegen.emit import Array, Kernel
from neonlike.kernels.codegen.layout import ArrayLayout
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.run.memory import LINE, PAGE, PAGED_FROM
from neonlike.kernels.run.stage import Input, Layouts
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape

RELEASE_WORK = 1 << 14
"""Elements times cost from which a kernel lets other Python threads run: that takes about a twentieth of a
microsecond, and a kernel of less work a few."""


class Replayed(Enum):
    """The answers of the extension when it is asked to make an assignment."""

    DONE = "done"
    """It was made."""
    NEW = "new"
    """It was not met before: Python makes it, and may then have it learned."""
    LEFT = "left"
    """It is left to Python."""


class Source(IntEnum):
    """Where the extension finds an argument of a kernel: ``enum source`` of ``fastpath_recipes.h``."""

    PLAIN = 0
    """It is the value itself, 8 bytes as they are."""
    LEAF = 1
    """The address of a leaf."""
    TARGET = 2
    """The address of a target."""
    WHOLE = 3
    """A number, as an integer."""
    REAL = 4
    """A number, as a real."""
    MEMORY = 5
    """An address in the working memory: the value is the distance from where that begins."""
    THREADS = 6
    """How many threads to run on; 1 in a forked process."""


MOST_WORDS, MOST_STEPS = 4096, 256
"""Arguments of all kernels of a recipe, and kernels, at most: as in ``fastpath_recipes.h``."""

Word = tuple[Source, int] | tuple[Source, int, int]
"""An argument of a kernel: where it is found, and which one, or the value; then bytes from where an operand begins."""


class Step(NamedTuple):
    """One kernel: the address of its packed entry, or of a ``struct nl_device``, and its arguments."""

    function: int
    words: tuple[Word, ...]


class Recipe(NamedTuple):
    """How the extension runs the kernels of an assignment, one after the other.

    Attributes
    ----------
    leaves, numbers : int
        How many the assignment has.
    steps : tuple of Step
    memory : int
        Bytes of working memory: for temporaries, and for what kernels work in.
    is_device : bool
        Whether it is one step, on a device.
    release : bool
        Whether other Python threads may run meanwhile.
    forks : bool
        Whether it may run in a forked process, where no thread may be started.
    keep : object
        What must live as long as this is used.
    """

    leaves: int
    numbers: int
    steps: tuple[Step, ...]
    memory: int
    is_device: bool
    release: bool
    forks: bool
    keep: Any


class StageSteps(NamedTuple):
    """The kernels of one stage, as :class:`Recipe` has them."""

    steps: tuple[Step, ...]
    release: bool
    forks: bool
    keep: Any


class Placing(Layouts):
    """A run whose temporaries lie in working memory: where each argument of its kernels is.

    Attributes
    ----------
    memory : int
        Bytes of working memory so far.
    """

    __slots__ = ("_free", "_held", "_rooms", "_words", "_working", "memory")

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.memory = 0
        self._held: list[Any] = [target.array for target in graph.targets]
        self._words: dict[int, Word] = {id(array): (Source.TARGET, k) for k, array in enumerate(self._held)}
        self._rooms: dict[int, tuple[int, int]] = {}  # of temporaries, and of windows of them: (begin, bytes)
        self._free: list[tuple[int, int]] = []
        self._working: list[tuple[int, int]] = []

    def _room(self, nbytes: int) -> tuple[int, int]:
        """So many bytes that no other has now: (begin, bytes)."""
        unit = PAGE if nbytes >= PAGED_FROM else LINE
        fitting = [room for room in self._free if nbytes <= room[1] <= 2 * nbytes and room[0] % unit == 0]
        if fitting:
            found = min(fitting, key=lambda room: room[1])
            self._free.remove(found)
            return found
        begin = -(-self.memory // unit) * unit
        self.memory = begin + nbytes
        return begin, nbytes

    def room(self, nbytes: int) -> Word:
        """So many bytes of working memory, until the stage ends."""
        self._working.append(self._room(nbytes))
        return Source.MEMORY, self._working[-1][0]

    def empty(self, shape: Shape, dtype: DType) -> ArrayLayout:
        """A temporary, in working memory."""
        found = ArrayLayout(shape, dtype)
        self._held.append(found)  # so that no other array gets its id
        self._rooms[id(found)] = room = self._room(found.nbytes)
        self._words[id(found)] = Source.MEMORY, room[0]
        return found

    def place(self, window: Any, one: Input, distance: int) -> None:
        """``window`` begins ``distance`` bytes after the array that a stage reads as ``one``, and is a part of it."""
        source, which, *before = self.read(one)
        self._held.append(window)
        if source is Source.MEMORY:
            self._words[id(window)] = source, which + distance
            self._rooms[id(window)] = self._rooms[id(self.temps[one.index])]
        else:
            self._words[id(window)] = source, which, sum(before) + distance

    def end_stage(self, spent: Iterable[int]) -> None:
        """No later stage reads the values ``spent``, nor what this one worked in: others may have their memory."""
        over = [self._rooms.get(id(self.temps.pop(value, None))) for value in spent]
        staying = [*self.temps.values(), *(array for results in self.results.values() for array in results)]
        in_use = {self._rooms.get(id(array)) for array in staying}
        self._free += {room for room in over if room is not None and room not in in_use} | set(self._working)
        self._working.clear()

    def written(self, array: Any) -> Word:
        """Where a target's array or a temporary begins."""
        return self._words[id(array)]

    def read(self, one: Input | Array) -> Word:
        """Where the array begins that a stage reads as ``one``."""
        return (Source.LEAF, one.index) if one.kind == "leaf" else self.written(self.temps[one.index])


def number_words(kernel: Kernel) -> tuple[Word, ...]:
    """The numbers that ``kernel`` takes."""
    kinds = [Source.REAL if number.ctype == "double" else Source.WHOLE for number in kernel.numbers]
    return tuple((kind, number.slot) for kind, number in zip(kinds, kernel.numbers))
