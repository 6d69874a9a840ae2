"""The planner of temporaries: where in one arena of working memory each lies, while it is in use."""

from __future__ import annotations

from collections.abc import Iterable

from neonlike.kernels.run.memory import LINE, PAGE, PAGED_FROM

Room = tuple[int, int]
"""Where a piece of an arena begins, and its bytes."""


class Arena:
    """Rooms in working memory; one that is given back is used again by later temporaries of about its size.

    Attributes
    ----------
    nbytes : int
        Bytes of working memory so far.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._free: list[Room] = []

    def take(self, nbytes: int) -> Room:
        """A room of at least so many bytes, which no other has now."""
        unit = PAGE if nbytes >= PAGED_FROM else LINE
        fitting = [room for room in self._free if nbytes <= room[1] <= 2 * nbytes and room[0] % unit == 0]
        if fitting:
            found = min(fitting, key=lambda room: room[1])
            self._free.remove(found)
            return found
        begin = -(-self.nbytes // unit) * unit
        self.nbytes = begin + nbytes
        return begin, nbytes

    def give_back(self, rooms: Iterable[Room]) -> None:
        """Let later temporaries have these rooms."""
        self._free += rooms
