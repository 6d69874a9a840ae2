"""Whether a chain of layers is running: only then do layers leave work to each other (see :mod:`.folding`)."""

from __future__ import annotations

import threading
from typing import Any


class Running(threading.local):
    """The chains whose forward or backward pass runs now in this thread, one inside the other.

    Attributes
    ----------
    depth : int
        How many there are.
    """

    depth = 0

    def __enter__(self) -> None:
        """A pass of a chain begins."""
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        """It has ended, or was left by an error."""
        self.depth -= 1


running = Running()


def taken_over(layer: Any) -> tuple[Any, ...]:
    """The layers whose work ``layer`` does in this call: none if it is called on its own."""
    folded: tuple[Any, ...] = layer.folded if running.depth else ()
    return folded
