"""Time marks and execution blocks."""

from __future__ import annotations

import time
from typing import Any

from neonlike.backends.families.base import Family


class TimingFamily(Family):
    """``init_mark``, ``record_mark``, ``synchronize_mark``, ``get_time``; ``begin`` and ``end`` of blocks."""

    def init_mark(self) -> dict[str, float]:
        """A new mark."""
        return {"time": 0.0}

    def record_mark(self, marker: dict[str, float]) -> None:
        """Record now in ``marker``."""
        marker["time"] = time.perf_counter()

    def synchronize_mark(self, marker: dict[str, float]) -> None:
        """Wait until ``marker`` is reached; on the CPU work is done when a call returns."""

    def get_time(self, start: dict[str, float], end: dict[str, float]) -> float:
        """Milliseconds from ``start`` to ``end``."""
        return (end["time"] - start["time"]) * 1000.0

    def begin(self, block: Any, identifier: Any) -> None:
        """Start of a block (epoch, minibatch, ...); for backends that want to know."""

    def end(self, block: Any, identifier: Any) -> None:
        """End of a block."""
