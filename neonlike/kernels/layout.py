"""How arrays lie over a stage's space: axes of size 1 dropped, neighbours merged where every array allows it.

Fewer axes mean longer inner loops. The result also says which kernel form fits: flat, nested, rows or columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.optree.shapes import Shape


@dataclass(frozen=True, slots=True)
class Axis:
    """One merged axis: its size, whether it is reduced, and each array's step along it in elements."""

    size: int
    reduced: bool
    steps: tuple[int, ...]


def steps_over(array: np.ndarray[Any, Any], space: Shape) -> tuple[int, ...]:
    """Steps of a NumPy ``array`` along each axis of ``space``, 0 where it is broadcast."""
    missing = len(space) - array.ndim
    assert all(n in (1, wide) for n, wide in zip(array.shape, space[missing:])), (array.shape, space)
    own = [0 if size == 1 else int(stride // array.itemsize) for size, stride in zip(array.shape, array.strides)]
    return (0,) * missing + tuple(own)


def collapse(space: Shape, axes: tuple[int, ...], arrays: Sequence[Any]) -> list[Axis]:
    """Merged axes of ``space`` for ``arrays``, outermost first."""
    all_steps = [steps_over(array, space) for array in arrays]
    merged: list[Axis] = []
    for position, size in enumerate(space):
        if size == 1:
            continue
        axis = Axis(size, position in axes, tuple(steps[position] for steps in all_steps))
        if merged and merged[-1].reduced == axis.reduced:
            before = merged[-1]
            if all(outer == inner * size for outer, inner in zip(before.steps, axis.steps)):
                merged[-1] = Axis(before.size * size, axis.reduced, axis.steps)
                continue
        merged.append(axis)
    return merged
