"""How an assignment that is one kernel is started without planning: what the CPython extension needs of it."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

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


class Recipe(NamedTuple):
    """How the extension starts a kernel.

    Attributes
    ----------
    function : int
        Address of the kernel's packed entry; of kernels of a device anything but 0.
    leaves, numbers : int
        How many the assignment has.
    inputs, outputs : tuple of int
        Leaves and targets that the kernel takes, in its order.
    values : tuple of int
        Numbers that it takes: twice the slot, and 1 if it takes the number as a real.
    meta, extent, threads : int
        Its last arguments. Of kernels of a device the address of a ``struct nl_device``, 0 and 0.
    release : bool
        Whether other Python threads may run meanwhile.
    keep : object
        What must live as long as this is used.
    """

    function: int
    leaves: int
    numbers: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    values: tuple[int, ...]
    meta: int
    extent: int
    threads: int
    release: bool
    keep: Any
