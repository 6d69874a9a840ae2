"""Central differences: slopes of a number as tensors change, for tests of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def slope(value: Callable[[], Any], tensors: Any, direction: Array, step: float = 1e-6) -> float:
    """Differentiate ``value()`` along ``direction`` in one tensor, or in several with equal contents."""
    moved = tensors if isinstance(tensors, list) else [tensors]
    start = moved[0].get().copy()

    def at(values: Array) -> float:
        for tensor in moved:
            tensor[:] = values
        return float(value())

    ends = at(start + step * direction), at(start - step * direction)
    for tensor in moved:
        tensor[:] = start
    return (ends[0] - ends[1]) / (2 * step)


def slopes(value: Callable[[], Any], tensor: Any, places: Iterable[Any], step: float = 1e-5) -> list[float]:
    """Differentiate ``value()`` with respect to the elements of ``tensor`` at ``places``."""
    found = []
    for place in places:
        unit = np.zeros(tensor.shape)
        unit[place] = 1
        found.append(slope(value, tensor, unit, step))
    return found
