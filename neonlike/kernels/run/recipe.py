"""How an assignment is run without planning: the kernels of its stages, and what the extension passes them."""

from __future__ import annotations

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
    """What the extension answers when it is asked to make an assignment."""

    DONE = "done"
    """It was made."""
    NEW = "new"
    """It was not met before: Python makes it, and may then have it learned."""
    LEFT = "left"
    """It is left to Python."""


class Source(IntEnum):
    """Where the extension finds an argument of a kernel: ``enum source`` of ``fastpath_launches.h``."""

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


Word = tuple[Source, int]
"""An argument of a kernel: where it is found, and which one, or the value."""


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
    """A run whose temporaries lie one behind the other in working memory: where each argument of its kernels is.

    Attributes
    ----------
    memory : int
        Bytes of working memory so far.
    """

    __slots__ = ("_held", "_words", "memory")

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.memory = 0
        self._held: list[Any] = [target.array for target in graph.targets]
        self._words: dict[int, Word] = {id(array): (Source.TARGET, k) for k, array in enumerate(self._held)}

    def room(self, nbytes: int) -> Word:
        """So many bytes more of working memory."""
        unit = PAGE if nbytes >= PAGED_FROM else LINE
        begin = -(-self.memory // unit) * unit
        self.memory = begin + nbytes
        return Source.MEMORY, begin

    def empty(self, shape: Shape, dtype: DType) -> ArrayLayout:
        """A temporary, in working memory."""
        found = ArrayLayout(shape, dtype)
        self._held.append(found)  # so that no other array gets its id
        self._words[id(found)] = self.room(found.nbytes)
        return found

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
