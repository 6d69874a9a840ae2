"""Calls that a rank waits in, and ranks that all wait for each other: what they say of where they are."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LONG_S = 4.0
"""Seconds after which a rank tells that it waits."""
AGAIN = 3
"""Times that each rank has to tell that it waits in the same call, before none is thought to go on."""
RULE = "All ranks have to make the same calls in one order, such as the steps of a training"
"""The rule that ranks have broken that wait for ever."""
PACKAGE = str(Path(__file__).parents[1]) + os.sep


class Told(NamedTuple):
    """Message of a rank about the call that it waits in: its number, its name, and where the program is."""

    number: int
    what: str
    place: str


class Left(NamedTuple):
    """Message of a rank whose program ends: the calls that it has made, and what became of it."""

    calls: int
    fate: str

    def __str__(self) -> str:
        return f"{self.fate} after call {self.calls}"


@dataclass(frozen=True)
class Call:
    """A call of all ranks that this one has begun.

    Attributes
    ----------
    number : int
        Counted from 1.
    what : str
        Its name, with what must be the same on all ranks.
    on_device : bool
        Whether a device carries it out, while this rank goes on.
    began : float
    """

    number: int
    what: str
    on_device: bool = False
    began: float = field(default_factory=time.monotonic)

    def is_long(self) -> bool:
        """Whether this rank has waited for some seconds."""
        return not self.on_device and time.monotonic() - self.began > LONG_S

    def told(self) -> Told:
        """The message about it for other ranks."""
        return Told(self.number, self.what, place_of())


class Standstill:
    """Ranks that have told that they wait: found if all do, in different calls, since then none can go on.

    Parameters
    ----------
    size : int
        Number of all ranks.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._heard: dict[int, tuple[Told, int, float]] = {}

    def hear(self, rank: int, told: Told) -> None:
        """Rank ``rank`` waits."""
        before, times, _ = self._heard.get(rank, (None, 0, 0.0))
        same = before is not None and before.number == told.number
        self._heard[rank] = told, times + 1 if same else 1, time.monotonic()

    def forget(self) -> None:
        """A rank goes on."""
        self._heard.clear()

    def found(self, left: dict[int, Left]) -> str:
        """A line for each rank, if all wait in different calls or have ``left`` after a number of them; else empty."""
        now = time.monotonic()
        late = [rank for rank, (_, times, at) in self._heard.items() if times < AGAIN or now - at > LONG_S / 2]
        everyone = self._heard.keys() | left.keys()
        if late or len(everyone) < self._size or len({told[:2] for told, _, _ in self._heard.values()}) + len(left) < 2:
            return ""
        lines = {rank: f"rank {rank} {fate}" for rank, fate in left.items()}
        for rank, (told, _, _) in self._heard.items():
            lines[rank] = f"rank {rank} waits in call {told.number}, {told.what}{told.place}"
        return "\n".join(lines[rank] for rank in sorted(lines))


def place_of() -> str:
    """Where the program is, outside of this library, and the exception that it handles there."""
    main = threading.main_thread().ident
    frame = sys._current_frames().get(main or 0)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    place = "" if frame is None else f", in {frame.f_code.co_filename}:{frame.f_lineno}"
    handled = sys._current_exceptions().get(main or 0)
    error = handled[1] if isinstance(handled, tuple) else handled
    return place if error is None else f"{place}, after {type(error).__name__}: {error}"
