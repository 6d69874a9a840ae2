"""Whether a chain of layers is running: only then do layers leave work to each other (see :mod:`.folding`)."""

from __future__ import annotations

from typing import Any


class Chain:
    """The chains whose forward or backward pass runs now, one inside the other."""

    running = 0


def taken_over(layer: Any) -> tuple[Any, ...]:
    """The layers whose work ``layer`` does in this call: none if it is called on its own."""
    folded: tuple[Any, ...] = layer.folded if Chain.running else ()
    return folded
