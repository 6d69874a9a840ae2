"""Links between the devices of the ranks, over which tensors go without the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Links(Protocol):
    """The devices of all ranks. All ranks must make the same calls in the same order, on tensors of the same shapes.

    A call queues its work on the device and does not wait for it.
    """

    def reduces(self, dtype: Any) -> bool:
        """Whether tensors of ``dtype`` can be reduced."""
        ...

    def reduce(self, tensors: Sequence[Any], op: str = "sum") -> None:
        """Replace each tensor on every rank by its sum, mean, min, max or product over all ranks."""
        ...

    def broadcast(self, tensor: Any, root: int = 0) -> None:
        """Replace ``tensor`` on every rank by that of rank ``root``."""
        ...
