"""Winograd's convolution by 3 x 3 filters as steps on a GPU: transforms, a stack of products, transforms of their sums.

F(2 x 2, 3 x 3) makes 2 x 2 results of a channel with 16 products where direct convolution takes 36, F(4 x 4, 3 x 3)
makes 4 x 4 with 36 where that takes 144 (Lavin and Gray, "Fast algorithms for convolutional neural networks",
arXiv 1509.09308). A kernel transforms tiles of the input, which overlap, to V [point][channel][lane], where a lane is a
tile and an image; another the filters to U [point][channel][map]. For each of the 16 or 36 points cuBLAS multiplies U
and V, all points in one call; a kernel transforms the sums to results and finishes them.

A data gradient is the same of errors with filters rotated by half a turn. The gradient of filters is the forward pass
differentiated: G^T [sum over lanes of (A e A^T) * (B^T d B)] G, e being tiles of errors without overlap and d of the
images that they were made of. Its long sums are split into parts of equally many lanes, the last one filled up with
zeros, which are multiplied in one stack too and added up in their order.

Lanes are cut into bands whose V and sums take COLUMN_BYTES, about. Errors of float32 are of the size that
``cpu/primitives/conv/winograd.py`` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, round_up
from neonlike.backends.gpu.primitives.calls import Draft, Matrices, Multiplied
from neonlike.backends.gpu.primitives.conv import winograd_kernels as kernels
from neonlike.backends.gpu.primitives.conv.kernels import SOURCE, WEIGHTS
from neonlike.backends.gpu.primitives.conv.passes import DataPass
from neonlike.backends.gpu.primitives.conv.plan import (
    Band,
    TileGrid,
    implicit_kind,
    tile_grid,
    winograd_bands,
    winograd_edge,
    winograd_parts,
)
from neonlike.backends.gpu.primitives.conv.winograd_kernels import Lanes
from neonlike.backends.primitives.conv.request import ConvPass, ConvUpdate
from neonlike.kernels.cuda.step import Place
from neonlike.optree.dtypes import F32, DType

IMAGES, ERRORS, GRADIENT = map(Place, range(3))
"""Where the tensors of a weight gradient begin."""
UNIT = 8
"""Rows of lanes are whole numbers of so many, so that vectors and products read aligned rows."""


def chosen_edge(products: Any, request: ConvPass | ConvUpdate, dtype: DType, method: str, allowed: int) -> int:
    """Edge of the tiles of results by which a pass is computed; 0: by another algorithm.

    Only float32 that stays float32 is computed so: rounded to TF32, transformed values would lose more than products.

    Parameters
    ----------
    products : Products
    request : ConvPass or ConvUpdate
    dtype : dtype
        Of the tensors.
    method : str
        ``be.conv_method``.
    allowed : int
        The largest edge that ``be.enable_winograd`` allows.
    """
    if method not in ("auto", "winograd") or implicit_kind(dtype, products.blas.precision) != "f32":
        return 0
    back = isinstance(request, ConvPass) and request.backward
    return winograd_edge(request.geometry, back, isinstance(request, ConvUpdate), allowed, method == "winograd")


class WinogradPass(DataPass):
    """A forward pass or data gradient; ``edge``: of the tiles of results.

    Parameters
    ----------
    device, products, request, given
        As of ``DataPass``.
    edge : int
    """

    def __init__(self, device: Any, products: Any, request: ConvPass, given: Any, edge: int) -> None:
        super().__init__(device, products, request, given)
        self.tiles = tile_grid(self.geometry, request.backward, edge)

    def build(self) -> None:
        """Append the steps."""
        g, tiles, room = self.geometry, self.tiles, self.program.room
        channels = self.request.source_dims[0]
        cut = [self._lanes(band) for band in winograd_bands(tiles, channels + self.maps)]
        size, most = tiles.points * F32.itemsize, max(lanes.part for lanes in cut)
        filters, points, sums = (room(count * size) for count in (g.C * g.K, channels * most, self.maps * most))
        vector = min(self.lanes(g.N), kernels.images_at_once(tiles, self.given.aligned))
        counts = [kernels.result_blocks(lanes.band, vector) for lanes in cut]
        ends, before = self.ends(sum(counts)), 0
        self.program.steps.append(
            kernels.filters_kernel(self.device, g, tiles, self.request.backward, (WEIGHTS, filters))
        )
        for lanes, count in zip(cut, counts):
            self._add_products(lanes, filters, points, sums)
            blocks = sum(counts), before
            self.program.steps.append(
                kernels.results_kernel(self.device, self.request, tiles, lanes, vector, sums, ends, blocks)
            )
            before += count
        self.add_sums(ends, sum(counts))

    @staticmethod
    def _lanes(band: Band) -> Lanes:
        return Lanes(band, round_up(band.size, UNIT))

    def _add_products(self, lanes: Lanes, filters: Place, points: Place, sums: Place) -> None:
        """The sums of a band, for each point."""
        g, tiles, request = self.geometry, self.tiles, self.request
        channels, maps = request.source_dims[0], self.maps
        padding = [2 - pad if request.backward else pad for pad in g.padding[1:]]
        self.program.steps.append(
            kernels.source_kernel(
                self.device, tiles, request.source_dims, (padding[0], padding[1]), lanes, self.given.aligned,
                (SOURCE, points),
            )
        )  # fmt: skip
        size = F32.itemsize
        down = (g.K * size, size) if request.backward else (size, g.K * size)  # from map to map, channel to channel
        across = lanes.part * size
        factors = (
            Matrices(filters, (tiles.points, maps, channels), (g.C * g.K * size, *down), F32),
            Matrices(points, (tiles.points, channels, lanes.band.size), (channels * across, across, size), F32),
            Matrices(sums, (tiles.points, maps, lanes.band.size), (maps * across, across, size), F32),
        )
        self.program.steps.append(Multiplied(self.products, factors, F32))


def winograd_update(device: Any, products: Any, request: ConvUpdate, given: Any, edge: int) -> Draft:
    """The steps of a weight gradient; given: an ``UpdateGiven``.

    Parameters
    ----------
    device : GpuDevice
    products : Products
    request : ConvUpdate
    given : UpdateGiven
    edge : int
        Of the tiles.
    """
    g, program = request.geometry, Draft(device)
    tiles = tile_grid(g, False, edge)
    cut = winograd_bands(tiles, g.C + g.K)
    sums = _split(cut[0], winograd_parts(g, tiles, cut[0].size)).parts
    bands = [_split(band, sums) for band in cut]
    size = tiles.points * F32.itemsize
    rooms = [rows * max(lanes.padded for lanes in bands) * size for rows in (g.C, g.K)]
    images, errors, stack = map(program.room, (*rooms, sums * g.C * g.K * size))
    for turn, lanes in enumerate(bands):
        read = (
            (g.dimI, (g.padding[1], g.padding[2]), (IMAGES, images), False),
            (g.dimO, (0, 0), (ERRORS, errors), True),
        )
        for dims, padding, places, without_edges in read:
            program.steps.append(
                kernels.source_kernel(device, tiles, dims, padding, lanes, given.aligned, places, without_edges)
            )
        factors = _gradient_factors(g, tiles, lanes, (images, errors, stack))
        program.steps.append(Multiplied(products, factors, F32, 1.0, 1.0 if turn else 0.0))
    scale = request.alpha, request.beta
    program.steps.append(
        kernels.gradient_kernel(device, g, tiles, sums, scale, given.gradient, (stack, GRADIENT))
    )
    return program


def _split(band: Band, parts: int) -> Lanes:
    """A band in so many parts, or fewer if these hold all lanes."""
    part = round_up(ceil_div(band.size, parts), UNIT)
    return Lanes(band, part, ceil_div(band.size, part))


def _gradient_factors(g: ConvGeometry, tiles: TileGrid, lanes: Lanes, places: Sequence[Place]) -> list[Matrices]:
    """For each part and point: images (channels, lanes), errors (lanes, maps) and their products."""
    images, errors, sums = places
    stack, across, size = tiles.points * lanes.parts, lanes.part * F32.itemsize, F32.itemsize
    return [
        Matrices(images, (stack, g.C, lanes.part), (g.C * across, across, size), F32),
        Matrices(errors, (stack, lanes.part, g.K), (g.K * across, size, across), F32),
        Matrices(sums, (stack, g.C, g.K), (g.C * g.K * size, g.K * size, size), F32),
    ]
