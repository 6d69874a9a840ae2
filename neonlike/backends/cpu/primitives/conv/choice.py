"""Choice of a convolution's kernel: the plan that is fastest for a geometry."""

from __future__ import annotations

from typing import Any

from neonlike.backends.cpu.primitives.conv.depthwise import depthwise_plan, depthwise_update_plan
from neonlike.backends.cpu.primitives.conv.few import few_plan, few_positions
from neonlike.backends.cpu.primitives.conv.kind import ConvPlan
from neonlike.backends.cpu.primitives.conv.maps import map_lanes, maps_plan
from neonlike.backends.cpu.primitives.conv.pairs import (
    PAIRED,
    data_pairings,
    pairs_of_channels,
    pairs_of_images,
    update_pairings,
    with_pairs,
)
from neonlike.backends.cpu.primitives.conv.plan import data_plan
from neonlike.backends.cpu.primitives.conv.pointwise import pointwise, pointwise_plan
from neonlike.backends.cpu.primitives.conv.thin import thin, thin_plan, thin_update, thin_update_plan
from neonlike.backends.cpu.primitives.conv.tiles import tile_plan, tile_update_plan
from neonlike.backends.cpu.primitives.conv.update import update_plan
from neonlike.backends.cpu.primitives.conv.winograd import winograd_edge, winograd_plan
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.kernels.c.pairs import INSTRUCTION, TILES


def choose_data_plan(
    g: ConvGeometry,
    backward: bool,
    vector: int,
    itemsize: int,
    threads: int,
    winograd: Any,
    pairs: int = 0,
    stored: bool = False,
) -> ConvPlan:
    """Plan of the forward pass or data gradient for vectors of ``vector`` bytes.

    Parameters
    ----------
    g : ConvGeometry
    backward : bool
        Whether it is the data gradient.
    vector, itemsize : int
        Bytes of a vector and of a number.
    threads : int
    winograd : bool or int
        As ``enable_winograd``.
    pairs : int
        The form of pairs of bfloat16 (``pairs.h``) that kernels may multiply; 0: none. ``TILES``: by tiles where that
        pays, else by ``vdpbf16ps``.
    stored : bool
        Whether operands are bfloat16, which kernels of pairs may read as they are.
    """
    if pairs == TILES:
        if plan := tile_plan(g, backward, itemsize, threads, stored):
            return plan
        pairs = INSTRUCTION
    if pairs and (edge := winograd_edge(g, backward, vector, itemsize, winograd, True)):
        return winograd_plan(g, backward, vector, itemsize, edge, threads, pairs)
    if pairs and (words := pairs_of_channels(g, backward)):
        plan = choose_data_plan(words, backward, vector, itemsize, threads, False)
        if plan.kind in PAIRED:
            return with_pairs(plan, pairs, stored, *data_pairings(g, backward))
    if depthwise := depthwise_plan(g, backward, vector, itemsize):
        return depthwise
    if thin(g):
        return thin_plan(g, backward, vector, itemsize)
    edge = winograd_edge(g, backward, vector, itemsize, winograd)
    if edge:
        return winograd_plan(g, backward, vector, itemsize, edge, threads)
    if pointwise(g):
        return pointwise_plan(g, backward, vector, itemsize, threads)
    if few_positions(g, backward, vector, itemsize):
        return few_plan(g, vector, itemsize, threads)
    if map_lanes(g, backward, vector, itemsize):
        return maps_plan(g, backward, vector, itemsize, threads)
    return data_plan(g, backward, vector, itemsize, threads)


def choose_update_plan(
    g: ConvGeometry, vector: int, itemsize: int, pairs: int = 0, stored: bool = False
) -> ConvPlan:
    """Plan of the weight gradient for vectors of ``vector`` bytes.

    Parameters
    ----------
    g : ConvGeometry
    vector, itemsize : int
        Bytes of a vector and of a number.
    pairs, stored
        As of :func:`choose_data_plan`.
    """
    if pairs == TILES:
        if found := tile_update_plan(g, itemsize, stored):
            return found
        pairs = INSTRUCTION
    if pairs and (words := pairs_of_images(g)):
        plan = choose_update_plan(words, vector, itemsize)
        if plan.kind in PAIRED:
            return with_pairs(plan, pairs, stored, *update_pairings(g, plan.tile.lanes))
    if depthwise := depthwise_update_plan(g, vector, itemsize):
        return depthwise
    return (thin_update_plan if thin_update(g) else update_plan)(g, vector, itemsize)
