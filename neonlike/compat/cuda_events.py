"""Stand-in for the parts of PyCUDA used by nervanagpu programs: timing events and a named context.

:mod:`neonlike.compat.neon` substitutes it for ``pycuda``, ``pycuda.driver`` and ``pycuda.autoinit`` if
``NEONLIKE_BACKEND=cpu``, where all work is done when a call returns.
"""

from __future__ import annotations

import time
from typing import Any

__path__: list[str] = []  # ``pycuda`` is a package whose submodules are this module again
STANDS_IN = True
"""Marker that distinguishes this module from PyCUDA."""


class Event:
    """A point in time."""

    def __init__(self, flags: int = 0) -> None:
        self.seconds: float | None = None

    def record(self, stream: Any = None) -> Event:
        """Record the time."""
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
    """The CPU, as device 0."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    @staticmethod
    def count() -> int:
        """Return 1."""
        return 1

    def name(self) -> str:
        """Return ``CPU``."""
        return "CPU"

    def make_context(self, flags: int = 0) -> Context:
        """Create a context without effect."""
        return Context()


class Context:
    """A context without a GPU."""

    @staticmethod
    def get_current() -> Context:
        """Return the only context."""
        return Context()

    @staticmethod
    def get_device() -> Device:
        """Return the CPU."""
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
