"""Working memory of kernels that shows what is written behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.kernels.c.routine import address
from neonlike.kernels.run.memory import aligned_empty

GUARD, MARK = 4096, 77
"""Bytes behind the memory, and what they hold."""


class GuardedMemory:
    """It stands for ``held_workspace``: memory that is held once, with marked bytes behind it."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def __call__(self, needed: int) -> tuple[Any, int, int]:
        memory = aligned_empty((needed + GUARD,), np.dtype(np.uint8))
        memory[needed:] = MARK
        self.held.append(memory)
        return memory, address(memory) or 0, needed

    def intact(self) -> bool:
        """Whether memory was held once since the last question, and nothing was written behind it."""
        (memory,), self.held = self.held, []
        return bool((memory[-GUARD:] == MARK).all())
