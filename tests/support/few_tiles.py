"""Compiled convolutions in few sizes of register tiles, each of which is a kernel that takes a second to compile.

How many maps and positions a tile has is chosen from the sizes of a layer, so tests of many sizes compile many kernels,
which differ in the lengths of unrolled loops alone. In `make test` they choose among two sizes for each width of a
vector, the largest and one of another shape. Tests that take the fixture ``all_tiles`` choose among all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from neonlike.backends.cpu.primitives.conv import few, maps, plan, pointwise, winograd

_ALL = ((plan, "TILES"), (maps, "POSITIONS"), (few, "POSITIONS"))
_FEW: tuple[dict[int, Any], ...] = (
    {64: ((12, 2), (4, 4)), 32: ((6, 2), (2, 4)), 16: ((12, 2), (4, 4))},
    {64: (14, 9), 32: (6, 4), 16: (6, 4)},
    {64: (4, 14), 32: (2, 6), 16: (2, 6)},
)
_tiles = [getattr(module, name) for module, name in _ALL]


def use_few_tiles() -> None:
    """Choose among few sizes from now on, in this process."""
    for (module, name), sizes, known in zip(_ALL, _FEW, _tiles):
        assert all(set(sizes[nbytes]) < set(known[nbytes]) for nbytes in known), "sizes that there are"
        setattr(module, name, sizes)


def forget_plans() -> None:
    """Have all layers planned anew."""
    for cached in (
        few.few_plan, maps.map_lanes, maps.maps_plan, plan.data_plan, pointwise.pointwise_plan, winograd.winograd_edge,
        winograd.winograd_plan,
    ):  # fmt: skip
        cached.cache_clear()


@pytest.fixture
def all_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Plans may choose any size, as in programs."""
    for (module, name), sizes in zip(_ALL, _tiles):
        monkeypatch.setattr(module, name, sizes)
    forget_plans()
    yield
    forget_plans()
