"""Reductions with one accumulator (lane) per element of a contiguous stretch: when to use them, and their sizes.

Adjacent columns, and several rows of few columns, make one long row of lanes; at the end the lanes of a column are
reduced to one. Choice and sizes follow from shapes and strides alone, never from the number of threads, so results do
not depend on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from neonlike.kernels.c.sizes import BY_LANES
from neonlike.kernels.codegen.layout import Axis

LANES = 1024
"""Most lanes of a row (passed to the template): their accumulators stay in the L1 cache."""
LEAST = 2048
"""Elements of a block below which the set-up of lanes costs more than it saves."""
MANY_COLUMNS, MANY_BLOCKS = 64, 64
"""Columns that fill vectors, and blocks of them that occupy all threads: from there columns need no lanes."""
PACKED_COLUMNS = 128
"""Columns from which several passes over them pack them, which reads memory once (see ``packed`` in ``fit``)."""


class Lanes(NamedTuple):
    """Sizes and strides of a reduction by lanes, blocks, and the arrays that vary along lanes."""

    sizes: list[int]
    blocks: int
    along: frozenset[int]
    across: Axis


def fit_lanes(axes: list[Axis], count: int, once: bool) -> Lanes | None:
    """The sizes for ``count`` arrays over ``axes``; None where another form is as good, or lanes do not apply.

    ``once``: memory is read once, and nothing of that size is written.

    Parameters
    ----------
    axes : list of Axis
    count : int
    once : bool
    """
    along = frozenset(i for i in range(count) if any(axis.steps[i] for axis in axes if axis.reduced))
    if len(axes) < 2 or not along or any(axes[-1].steps[i] != 1 for i in along):
        return None
    last, before = axes[-1], axes[-2]
    joined = all(before.steps[i] == last.size for i in along)
    if not last.reduced:
        return _few_columns(axes, count, along, once) if before.reduced and joined else None
    outer = axes[:-1]
    if last.size > LANES // 2 or not any(axis.reduced for axis in outer):
        return None
    across = before if joined and not before.reduced else Axis(1, False, (0,) * count)
    outer = [axis for axis in outer if axis is not across]
    each = min(across.size, LANES // last.size)
    each = -(-across.size // -(-across.size // each))
    if each * last.size < MANY_COLUMNS:
        return None
    return _lanes(outer, count, along, across, each * last.size, each, 0)


def _few_columns(axes: list[Axis], count: int, along: frozenset[int], once: bool) -> Lanes | None:
    """Sizes for reduced rows of contiguous columns: several rows, or all of an inner block, make a row of lanes."""
    *outer, down, across = axes
    blocks = math.prod(axis.size for axis in outer if not axis.reduced)
    columns = across.size
    if columns > LANES // 2 or (not once and columns >= PACKED_COLUMNS):
        return None
    if any(axis.reduced for axis in outer) and down.size * columns <= LANES:
        return _lanes(outer, count, along, across, down.size * columns, columns, 1)
    if down.size * columns < LEAST or (columns >= MANY_COLUMNS and blocks >= MANY_BLOCKS):
        return None
    rows = min(_rows(columns), max(1, down.size // 4))
    steps = tuple(step * rows for step in down.steps)
    folded = Axis(-(-down.size // rows), True, steps)
    last = down.size - (folded.size - 1) * rows
    return _lanes([*outer, folded], count, along, across, rows * columns, columns, 1, last * columns)


def _rows(columns: int) -> int:
    """Rows of ``columns`` in a row of lanes: as many as fit, a number that fills whole vectors if there is one."""
    for unit in (64, 32, 16):
        step = unit // math.gcd(unit, columns)
        if LANES // columns >= step:
            return LANES // columns // step * step
    return LANES // columns


def _lanes(
    outer: list[Axis], count: int, along: frozenset[int], across: Axis, lanes: int, columns: int, inner: int,
    last: int | None = None,
) -> Lanes:  # fmt: skip
    """Sizes for rows of ``lanes`` along the last reduced axis of ``outer``, ``columns`` of the axis ``across`` each."""
    down = [axis for axis in outer if axis.reduced][-1]
    blocks = -(-across.size // columns)
    head = [down.size, lanes, columns, blocks, across.size, lanes if last is None else last, inner]
    kept = [axis for axis in outer if not axis.reduced]
    reduced = [axis for axis in outer if axis.reduced and axis is not down]
    sizes = BY_LANES.fill(head, zip(down.steps, across.steps), (kept, reduced))
    return Lanes(sizes, blocks * math.prod(axis.size for axis in kept), along, across)
