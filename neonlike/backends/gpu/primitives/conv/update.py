"""The weight gradient of convolution as steps on a GPU: columns times errors, in parts that are added up in order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, round_up
from neonlike.backends.gpu.primitives.calls import Draft, Matrices, Multiplied
from neonlike.backends.gpu.primitives.conv import kernels as kernels
from neonlike.backends.gpu.primitives.conv.plan import (
    TILE,
    Band,
    bands,
    implicit_kind,
    implicit_tile,
    parts,
    phases,
    reads_in_place,
    thin,
    update_saves_columns,
)
from neonlike.backends.gpu.primitives.conv.program import may_be_implicit
from neonlike.backends.gpu.primitives.conv.winograd import chosen_edge, winograd_update
from neonlike.backends.primitives.conv.request import ConvUpdate
from neonlike.kernels.cuda.step import Place
from neonlike.optree.dtypes import DType, compute_dtype

IMAGES, ERRORS, GRADIENT = map(Place, range(3))
"""Where the tensors begin."""
MOST_GROUPS = 8
"""Groups whose products are split into parts, each by a stack of products; more are one stack."""
EVEN = 8
"""Parts of a band begin at multiples of so many columns."""


class UpdateGiven(NamedTuple):
    """The arguments of a weight gradient besides its request: dtypes of images and errors, and of the gradient."""

    dtype: DType
    gradient: DType
    aligned: bool = True
    method: str = "auto"
    winograd: int = 0
    """The largest edge of Winograd's tiles that is allowed."""


def update_program(device: Any, products: Any, request: ConvUpdate, given: UpdateGiven) -> Draft:
    """The steps of a weight gradient.

    Parameters
    ----------
    device : GpuDevice
    products : Products
    request : ConvUpdate
    given : UpdateGiven
    """
    edge = chosen_edge(products, request, given.dtype, given.method, given.winograd)
    if edge:
        return winograd_update(device, products, request, given, edge)
    made = _Update(device, products, request, given)
    kind = _implicit_kind(device, products, request.geometry, given)
    if kind is not None:
        made.build_implicit(kind)
    else:
        (made.build_direct if thin(request.geometry) else made.build)()
    return made.program


def _implicit_kind(device: Any, products: Any, g: ConvGeometry, given: UpdateGiven) -> str | None:
    """Arithmetic of the one kernel that computes the gradient, where that is set or saves traffic; None elsewhere."""
    kind = implicit_kind(given.dtype, products.blas.precision)
    may = may_be_implicit(device, g, (kind, given.method, given.aligned), (g.N,))
    takes = may is True or (may is None and update_saves_columns(g, kind, given.dtype.itemsize))  # type: ignore[arg-type]
    return kind if takes else None


class _Piece(NamedTuple):
    """A stack of products: of ``groups`` groups from ``group`` on, or of ``parts`` parts of one group's columns."""

    group: int
    groups: int
    parts: int
    columns: Band
    """Of the band, those of the first part."""
    beta: float


class _Update:
    """The steps of one request."""

    def __init__(self, device: Any, products: Any, request: ConvUpdate, given: UpdateGiven) -> None:
        self.device, self.products, self.request, self.given = device, products, request, given
        self.geometry, self.program = request.geometry, Draft(device)
        self.real = compute_dtype(given.dtype)
        self.columns = math.prod(self.geometry.dimO[1:])
        self.rows, self.maps = self.geometry.dimF2[0], self.geometry.K // self.geometry.groups
        self.in_place = reads_in_place(self.geometry)

    def build_direct(self) -> None:
        """Thin groups: one kernel makes the parts."""
        g = self.geometry
        size = g.sizeF * self.real.itemsize
        part = ceil_div(self.columns, parts(g.K * ceil_div(self.rows, kernels.ROWS), self.columns, size))
        count = ceil_div(self.columns, part)
        sums = self.program.room(count * size)
        self.program.steps.append(
            kernels.direct_update_kernel(self.device, g, self.given.dtype, (IMAGES, ERRORS, sums), part)
        )
        self._fold(sums, count)

    def build_implicit(self, kind: str) -> None:
        """One kernel gathers columns and makes the parts."""
        g, tile = self.geometry, implicit_tile(kind, self.maps, update=True)
        size = g.sizeF * self.real.itemsize
        tiles = g.groups * ceil_div(self.rows, tile.rows) * ceil_div(self.maps, tile.columns)
        part = round_up(ceil_div(self.columns, parts(tiles, self.columns, size)), tile.depth)
        count = ceil_div(self.columns, part)
        sums, how = self.program.room(count * size), (kind, tile, self.given.dtype, self.given.aligned)
        self.program.steps.append(
            kernels.implicit_update_kernel(self.device, g, how, (IMAGES, ERRORS, sums), part)
        )
        self._fold(sums, count)

    def build(self) -> None:
        """All else: products, which store to the gradient themselves if there is one part and no conversion."""
        g, alpha, beta = self.geometry, self.request.alpha, self.request.beta
        column = g.groups * self.rows * self.given.dtype.itemsize
        cut = [Band(0, self.columns)] if self.in_place else bands(self.columns, column)
        tiles = g.groups * ceil_div(self.rows, TILE) * ceil_div(self.maps, TILE)
        count = parts(tiles, cut[0].size, g.sizeF * self.real.itemsize) if g.groups <= MOST_GROUPS else 1
        directly = count == 1 and self.given.gradient == self.real and alpha != 0
        columns = IMAGES if self.in_place else self.program.room(column * cut[0].size)
        sums = GRADIENT if directly else self.program.room(count * g.sizeF * self.real.itemsize)
        first = (alpha, beta) if directly else (1.0, 0.0)
        for turn, band in enumerate(cut):
            if not self.in_place:
                self._add_columns(band, columns)
            for piece in self._pieces(band, count, 1.0 if turn else first[1]):
                self._add_product(columns, band, piece, sums, first[0])
        if not directly:
            self._fold(sums, count)

    def _add_columns(self, band: Band, place: Place) -> None:
        g, size = self.geometry, self.given.dtype.itemsize
        (phase,) = phases(g, False)
        self.program.steps.append(
            kernels.columns_kernel(self.device, g, phase, False, band, size, self.given.aligned, (IMAGES, place))
        )

    def _pieces(self, band: Band, count: int, beta: float) -> Iterator[_Piece]:
        """The products of a band: each part sums as many columns, and the first also those that are left."""
        groups = self.geometry.groups
        if count == 1:
            yield _Piece(0, groups, 1, Band(0, band.size), beta)
            return
        each = band.size // count // EVEN * EVEN
        left = Band(each * count, band.size - each * count)
        for group in range(groups):
            if each:
                yield _Piece(group, 1, count, Band(0, each), beta)
            if left.size:
                yield _Piece(group, 1, 1, left, 1.0 if each else beta)

    def _add_product(self, columns: Place, band: Band, piece: _Piece, sums: Place, alpha: float) -> None:
        g, kind, real = self.geometry, self.given.dtype, self.real
        some, stack = piece.columns, max(piece.groups, piece.parts)
        step, before = (self.columns, band.first) if self.in_place else (band.size, 0)
        next_part = (some.size, some.size, g.sizeF)
        next_group = (self.rows * step, self.maps * self.columns, self.maps)
        apart = next_part if piece.parts > 1 else next_group
        size = kind.itemsize
        a = columns + (piece.group * next_group[0] + before + some.first) * size
        b = ERRORS + (piece.group * next_group[1] + band.first + some.first) * size
        out = sums + piece.group * self.maps * real.itemsize
        factors = (
            Matrices(a, (stack, self.rows, some.size), (apart[0] * size, step * size, size), kind),
            Matrices(b, (stack, some.size, self.maps), (apart[1] * size, size, self.columns * size), kind),
            Matrices(
                out, (stack, self.rows, self.maps), (apart[2] * real.itemsize, g.K * real.itemsize, real.itemsize), real
            ),
        )
        self.program.steps.append(Multiplied(self.products, factors, real, alpha, piece.beta))

    def _fold(self, sums: Place, count: int) -> None:
        """The gradient from its parts."""
        scale, dtypes = (self.request.alpha, self.request.beta), (self.real, self.given.gradient)
        size = self.geometry.sizeF
        self.program.steps.append(kernels.fold_kernel(self.device, (sums, GRADIENT), count, size, scale, dtypes))
