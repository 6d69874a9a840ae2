"""A stand-in for what programs of nervanagpu use of PyCUDA: events that tell times, and a context that has a name.

:mod:`neonlike.compat.neon` lets ``pycuda``, ``pycuda.driver`` and ``pycuda.autoinit`` mean it with
``NEONLIKE_BACKEND=cpu``, where all work is done when a call returns.
"""

from __future__ import annotations

import time
from typing import Any

__path__: list[str] = []  # ``pycuda`` is a package, of which the submodules are this module again
STANDS_IN = True
"""Tells this module from PyCUDA."""


class Event:
    """A point in time."""

    def __init__(self, flags: int = 0) -> None:
        self.seconds: float | None = None

    def record(self, stream: Any = None) -> Event:
        """Take the time."""
        self.seconds = time.perf_counter()
        return self

    def synchronize(self) -> Event:
        """Wait for nothing: work is done when a call returns."""
        return self

    def query(self) -> bool:
        """Whether the event has happened: always."""
        return True

    def time_since(self, event: Event) -> float:
        """Milliseconds since another event.

        Raises
        ------
        RuntimeError
            If one of the two was not recorded.
        """
        if self.seconds is None or event.seconds is None:
            raise RuntimeError("Event.time_since: an event has no time yet; call record() of both first")
        return 1000 * (self.seconds - event.seconds)

    def time_till(self, event: Event) -> float:
        """Milliseconds until another event."""
        return event.time_since(self)


class Device:
    """The CPU, by the number 0."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    @staticmethod
    def count() -> int:
        """One."""
        return 1

    def name(self) -> str:
        """``CPU``."""
        return "CPU"

    def make_context(self, flags: int = 0) -> Context:
        """A context, which does nothing."""
        return Context()


class Context:
    """A context without a GPU."""

    @staticmethod
    def get_current() -> Context:
        """The context there always is."""
        return Context()

    @staticmethod
    def get_device() -> Device:
        """The CPU."""
        return Device()

    @staticmethod
    def synchronize() -> None:
        """Wait for nothing."""

    @staticmethod
    def pop() -> None:
        """Leave nothing."""

    def push(self) -> None:
        """Enter nothing."""

    def detach(self) -> None:
        """Free nothing."""


def init(flags: int = 0) -> None:
    """Do nothing."""


device, context = Device(), Context()
