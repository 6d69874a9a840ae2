"""Steps of programs on a GPU: launches of kernels; and their runners.

A step of a program names the places of its arguments, whose values are known when the program runs. The steps of a
program whose arguments are all known are called as they are, or all at once as a graph of the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from neonlike import settings
from neonlike.errors import DeviceError, OutOfMemory
from neonlike.kernels.cuda.device import Device, Function, Size3
from neonlike.kernels.run.program import Program
from neonlike.logger import logger

Call: TypeAlias = Callable[[], None]
"""Queues work when it is called: a step whose arguments are known, or several."""
GRAPH_FROM = 10
"""Steps from which on a graph of them pays."""


class Place(NamedTuple):
    """An argument's slot among the addresses, numbers and working memory (-1) of a run, and an offset from there.

    No slot: the offset itself.
    """

    slot: int | None
    offset: int = 0

    def __add__(self, nbytes: int) -> Place:  # type: ignore[override]
        return Place(self.slot, self.offset + nbytes)


NOWHERE, WORK = Place(None), Place(-1)
"""The address 0, and the start of working memory."""


def _nothing() -> bytes:
    return b""


@dataclass(slots=True, eq=False)
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
        Packed arguments, which follow those at ``places``.
    keep : object
        What must live as long, such as the memory of the arguments.
    places : sequence of Place or None
        Of the first arguments, if they are known only when a program runs; None: all that there is, in its order.
    pack : callable
        Packs the arguments at ``places``.
    """

    device: Device
    function: Function
    grid: Size3
    block: Size3
    shared: int
    arguments: bytes
    keep: Any = None
    places: Sequence[Place] | None = ()
    pack: Callable[..., bytes] = _nothing

    def __call__(self) -> None:
        """Queue a launch whose arguments are all known."""
        self.device.launch(self.function, self.grid, self.block, self.shared, self.arguments)

    def start(self, values: Sequence[Any]) -> None:
        """Queue it with these values of the arguments at ``places``."""
        arguments = self.pack(*values) + self.arguments
        self.device.launch(self.function, self.grid, self.block, self.shared, arguments)

    def bound(self, values: Sequence[Any], keep: Any) -> KernelLaunch:
        """The launch with these values, to be called again and again; it keeps ``keep`` alive."""
        known = self.pack(*values) + self.arguments
        return KernelLaunch(self.device, self.function, self.grid, self.block, self.shared, known, keep)


class Runner:
    """Queues the steps of a program, on operands and numbers given each time; each has ``places`` and ``start``."""

    __slots__ = ("_device", "_memory", "_steps", "program")

    def __init__(self, device: Device, program: Program) -> None:
        self._device, self.program, self._memory = device, program, program.memory
        self._steps: tuple[Any, ...] = program.steps

    def __call__(self, addresses: Iterable[int | None], numbers: Iterable[Any] = ()) -> None:
        """Queue the steps; the pool lends working memory until they are queued."""
        at = [*addresses, *numbers]
        if self._memory:
            room = self._device.allocate(self._memory)
            at.append(room.address)
        for step in self._steps:
            step.start(at if step.places is None else _values(at, step.places))

    def bind(self, addresses: Iterable[int | None], numbers: Iterable[Any] = (), keep: Any = None) -> Call:
        """A callable that queues the launches on these, again and again; working memory is allocated now.

        ``keep`` lives as long; all steps are launches.

        Parameters
        ----------
        addresses : iterable of int or None
            Of the operands.
        numbers : iterable of numbers
        keep : object
        """
        at = [*addresses, *numbers]
        if self._memory:
            room = self._device.allocate(self._memory)
            at, keep = [*at, room.address], (room, keep)
        bound: list[Call] = []
        for step in self._steps:
            bound.append(step.bound(at if step.places is None else _values(at, step.places), keep))
        return bound[0] if len(bound) == 1 else partial(in_turn, bound)


class FixedRunner:
    """Queues a program whose arguments are all known: each of its steps is a callable that queues it.

    From its second run on, a program of many steps is one graph of the driver, if the driver has graphs. While a graph
    is captured, the program's steps become a part of that.
    """

    __slots__ = ("_capture", "_graph", "_has_run", "_may_capture", "program")

    def __init__(self, device: Device, program: Program) -> None:
        self.program, self._capture = program, device.capture
        self._graph: Call | None = None
        self._has_run, self._may_capture = False, True

    def __call__(self) -> None:
        """Queue the steps, or their graph."""
        if not self._capture.is_active:
            if self._graph is None and self._has_run and self._may_capture:
                self._graph = self._captured()
            if self._graph is not None:
                self._graph()
                return
        in_turn(self.program.steps)
        self._has_run = True

    def _captured(self) -> Call | None:
        """The graph of all steps; None if it does not pay, or the driver has no graphs: that is asked once."""
        steps = self.program.steps
        self._may_capture = settings.GPU_GRAPHS.get() and len(steps) >= GRAPH_FROM
        if not self._may_capture:
            return None
        try:
            return self._capture.graph(steps)
        except (DeviceError, OutOfMemory) as error:
            logger.info("a program of %d steps is queued step by step, not as a graph: %s", len(steps), error)
            self._may_capture = False
            return None


def in_turn(calls: Sequence[Callable[[], object]], keep: Any = None) -> None:
    """Call all of ``calls``; a partial of it keeps ``keep`` alive."""
    for call in calls:
        call()


def _values(at: Sequence[Any], places: Sequence[Place]) -> list[Any]:
    return [offset if slot is None else at[slot] + offset for slot, offset in places]
