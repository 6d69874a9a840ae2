"""Steps of programs on a GPU: launches of kernels; and their runner.

A step of a program has words, whose values are found when the program runs. Launches whose arguments are all known are
called as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from neonlike.kernels.cuda.device import Device, Function, Size3
from neonlike.kernels.run.program import Program, Source, Word

Call: TypeAlias = Callable[[], None]
"""Queues work when it is called: a step whose arguments are known, or several."""


class DeviceStep(Protocol):
    """A step of a program on a GPU."""

    @property
    def words(self) -> tuple[Word, ...]:
        """Sources of the arguments that are known only when the program runs."""
        ...

    def start(self, values: Sequence[Any]) -> None:
        """Queue the step with these values of its words."""
        ...

    def bound(self, values: Sequence[Any], keep: Any) -> Call:
        """A callable that queues the step with these values, again and again, and keeps ``keep`` alive."""
        ...


def _no_words() -> bytes:
    return b""


@dataclass(slots=True)
class KernelLaunch:
    """A launch of a kernel; calling it queues the kernel.

    Attributes
    ----------
    device : Device
    function : Function
    grid, block : (x, y, z)
    shared : int
        Bytes of dynamic shared memory.
    arguments : bytes
        Packed arguments, which follow those that ``words`` name.
    keep : object
        What must live as long, such as the memory of the arguments.
    words : tuple of Word
        Sources of the first arguments, if they are known only when a program runs.
    pack : callable
        Packs the values of ``words``.
    """

    device: Device
    function: Function
    grid: Size3
    block: Size3
    shared: int
    arguments: bytes
    keep: Any = None
    words: tuple[Word, ...] = ()
    pack: Callable[..., bytes] = _no_words

    def __call__(self) -> None:
        """Queue a launch that has no words."""
        self._queue(self.arguments)

    def start(self, values: Sequence[Any]) -> None:
        """See :class:`DeviceStep`."""
        arguments = self.pack(*values) + self.arguments
        self.device.launch(self.function, self.grid, self.block, self.shared, arguments)

    def bound(self, values: Sequence[Any], keep: Any) -> Call:
        """See :class:`DeviceStep`."""
        return partial(self._queue, self.pack(*values) + self.arguments, keep)

    def _queue(self, arguments: bytes, keep: Any = None) -> None:
        self.device.launch(self.function, self.grid, self.block, self.shared, arguments)


class Runner:
    """Queues the steps of a program, on operands and numbers given each time."""

    __slots__ = ("_device", "_memory", "_steps", "program")

    def __init__(self, device: Device, program: Program) -> None:
        self._device, self.program, self._memory = device, program, program.memory
        steps: tuple[DeviceStep, ...] = program.steps
        self._steps = [(step, _places(step.words, program)) for step in steps]

    def __call__(self, addresses: Iterable[int | None], numbers: Iterable[Any] = ()) -> None:
        """Queue the steps; the pool lends working memory until they are queued."""
        at = [*addresses, *numbers]
        if self._memory:
            room = self._device.allocate(self._memory)
            at.append(room.address)
        for step, places in self._steps:
            step.start(at if places is None else _values(at, places))

    def bind(self, addresses: Iterable[int | None], numbers: Iterable[Any] = (), keep: Any = None) -> Call:
        """A callable that queues the steps on these, again and again; working memory is allocated now."""
        at = [*addresses, *numbers]
        if self._memory:
            room = self._device.allocate(self._memory)
            at, keep = [*at, room.address], (room, keep)
        bound: list[Call] = []
        for step, places in self._steps:
            bound.append(step.bound(at if places is None else _values(at, places), keep))
        return bound[0] if len(bound) == 1 else partial(in_turn, bound)


def in_turn(calls: Sequence[Callable[[], object]], keep: Any = None) -> None:
    """Call all of ``calls``; a partial of it keeps ``keep`` alive."""
    for call in calls:
        call()


_Place = tuple[int | None, int]
"""An argument's place among addresses, numbers and working memory, and a distance; no place: the distance itself."""


def _places(words: Sequence[Word], program: Program) -> tuple[_Place, ...] | None:
    """The places of ``words``; None: they are all that there is, in its order."""
    first = {Source.OPERAND: 0, Source.WHOLE: program.operands, Source.REAL: program.operands}
    found: list[_Place] = []
    for source, which, *distance in words:
        if source is Source.PLAIN:
            found.append((None, which))
        elif source is Source.MEMORY:
            found.append((-1, which))
        else:
            found.append((first[source] + which, sum(distance)))
    count = program.operands + program.numbers
    everything = [(place, 0) for place in range(count)] + [(-1, 0)] * bool(program.memory)
    return None if found == everything else tuple(found)


def _values(at: Sequence[Any], places: Sequence[_Place]) -> list[Any]:
    return [distance if place is None else at[place] + distance for place, distance in places]
