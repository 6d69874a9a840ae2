"""Convolutions whose products Intel's tiles (AMX) compute: where tiles are filled, and the plans.

In ``conv/direct.c.j2`` and ``conv/pointwise.c.j2`` a tile of inputs has 16 pairs of channels by 16 lanes, and a tile of
filters 16 maps by as many pairs. In ``conv/update.c.j2`` a tile of inputs has 16 channels by 16 pairs of images, and a
tile of errors as many pairs by 16 maps.
"""

from __future__ import annotations

from dataclasses import replace

from neonlike.backends.cpu.primitives.conv.few import few_positions
from neonlike.backends.cpu.primitives.conv.kind import ConvPlan
from neonlike.backends.cpu.primitives.conv.pairs import (
    data_pairings,
    pairs_of_channels,
    pairs_of_images,
    update_pairings,
    with_pairs,
)
from neonlike.backends.cpu.primitives.conv.plan import OF_TILES, TILE_SIDE, data_phases, data_plan, flat_phases
from neonlike.backends.cpu.primitives.conv.pointwise import flattened, pointwise, pointwise_plan
from neonlike.backends.cpu.primitives.conv.update import update_plan
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.kernels.c.gemm import NARROWEST_BY_TILES
from neonlike.kernels.c.pairs import TILES


def fills_tiles(g: ConvGeometry, backward: bool) -> bool:
    """Whether a group's channels and maps, and the outputs that are computed side by side, fill enough of the tiles.

    As of matrix products, from 16 numbers along each dimension on. Winograd's method is not used then: it saves 20 of
    36 products, of which tiles compute many at once, and transforms in float32. This is by reasoning, not measured.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    """
    if min(g.C, g.K) // g.groups < NARROWEST_BY_TILES:
        return False
    phases = data_phases(flattened(g), backward)
    rows, shortest = (min(phase[axis].length for phase in phases) for axis in (1, 2))
    flat = flat_phases(phases, g.N, OF_TILES.width * OF_TILES.lanes)
    return shortest * g.N * (rows if flat else 1) >= NARROWEST_BY_TILES


def tile_plan(g: ConvGeometry, backward: bool, itemsize: int, threads: int, stored: bool) -> ConvPlan | None:
    """Plan of a forward pass or data gradient by tiles; None where other kernels are used.

    These are ``conv/few.py`` and all where pairs do not pay.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    itemsize : int
        Bytes of a number.
    threads : int
    stored : bool
        Whether operands are bfloat16.
    """
    words, vector = pairs_of_channels(g, backward), OF_TILES.lanes * itemsize
    if words is None or not fills_tiles(g, backward):
        return None
    if pointwise(g):
        plan = pointwise_plan(words, backward, vector, itemsize, threads, True)
    elif few_positions(words, backward, vector, itemsize):
        return None
    else:
        plan = data_plan(words, backward, vector, itemsize, threads, True)
    return with_pairs(plan, TILES, stored, *data_pairings(g, backward))


def tile_update_plan(g: ConvGeometry, itemsize: int, stored: bool) -> ConvPlan | None:
    """Plan of a weight gradient by tiles; None where other kernels are used.

    Pairs of images have to fill tiles: those of a position end where the next one begins, which a tap may not read.

    Parameters
    ----------
    g, itemsize, stored
        As of :func:`tile_plan`.
    """
    if min(g.C, g.K) // g.groups < NARROWEST_BY_TILES or g.N % (2 * TILE_SIDE) or pairs_of_images(g) is None:
        return None
    plan = update_plan(replace(g, N=g.N // 2), OF_TILES.lanes * itemsize, itemsize, True)
    return with_pairs(plan, TILES, stored, *update_pairings(g, OF_TILES.lanes))
