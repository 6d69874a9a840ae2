"""Forward pass and data gradient of convolution as steps on a GPU: columns, products, ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div
from neonlike.backends.gpu.primitives.calls import Draft, Matrices, Multiplied
from neonlike.backends.gpu.primitives.conv import kernels as kernels
from neonlike.backends.gpu.primitives.conv.kernels import SOURCE, TARGET, WEIGHTS, Ends, Finish, Parts
from neonlike.backends.gpu.primitives.conv.passes import DataPass, Given
from neonlike.backends.gpu.primitives.conv.plan import (
    Band,
    Phase,
    Tile,
    bands,
    data_parts,
    implicit_kind,
    implicit_tile,
    outputs_of,
    phases,
    reads_in_place,
    saves_columns,
    taps_of,
    thin,
)
from neonlike.backends.gpu.primitives.conv.winograd import WinogradPass, chosen_edge
from neonlike.backends.gpu.primitives.elements import is_wide
from neonlike.backends.primitives.conv.request import ConvPass
from neonlike.optree.dtypes import F32

MOST_LANES = 4
"""Elements that a thread of the implicit kernel stores at once: a warp stores a row of a tile."""


def data_program(device: Any, products: Any, request: ConvPass, given: Given) -> Draft:
    """The steps of a forward pass or data gradient.

    Parameters
    ----------
    device : GpuDevice
    products : Products
    request : ConvPass
    given : Given
    """
    edge = chosen_edge(products, request, given.dtype, given.method, given.winograd)
    if edge:
        made: DataPass = WinogradPass(device, products, request, given, edge)
    elif _is_implicit(device, products, request, given):
        made = _Implicit(device, products, request, given)
    else:
        made = (_Direct if thin(request.geometry) else _Products)(device, products, request, given)
    made.build()
    return made.program


def _is_implicit(device: Any, products: Any, request: ConvPass, given: Given) -> bool:
    """Whether one kernel convolves: where it is told to, or saves memory traffic, and has a form for the tensors."""
    g, back, kind = request.geometry, request.backward, implicit_kind(given.dtype, products.blas.precision)
    maps = request.target_dims[0] // request.geometry.groups
    may = may_be_implicit(device, g, (kind, given.method, given.aligned), (g.N, maps))
    return may is True or (may is None and saves_columns(g, phases(g, back), back, kind, given.dtype.itemsize))  # type: ignore[arg-type]


def may_be_implicit(
    device: Any, g: ConvGeometry, how: tuple[str | None, str, bool], innermost: Sequence[int]
) -> bool | None:
    """Whether an implicit kernel takes a pass; None where that depends on what it saves.

    how: what it multiplies (:func:`implicit_kind`), the method that is set, whether tensors are aligned; innermost:
    sizes of which whole copies of 16 bytes are wanted.

    Parameters
    ----------
    device : GpuDevice
    g : ConvGeometry
    how : (str or None, str, bool)
    innermost : sequence of int
    """
    kind, method, aligned = how
    if method == "columns" or kind is None or not has_copies(device) or is_wide([g.sizeF]):
        return False
    if method == "implicit":
        return True
    lanes = 4 if kind in ("f32", "tf32") else 8
    if not aligned or any(size % lanes for size in innermost) or thin(g) or reads_in_place(g):
        return False
    return None


def has_copies(device: Any) -> bool:
    """Whether the GPU copies to shared memory asynchronously, and its tensor cores know all types: sm_80 or later."""
    return int("".join(filter(str.isdigit, device.capabilities.arch))) >= 80


class _Direct(DataPass):
    """Groups of few channels: one kernel, and one that adds up sums."""

    def build(self) -> None:
        lanes = self.lanes(self.geometry.N)
        tiles = kernels.direct_tiles(self.request, lanes)
        ends = self.ends(tiles)
        step = kernels.direct_kernel(self.device, self.request, self.given.dtype, lanes, ends)
        self.program.steps.append(step)
        self.add_sums(ends, tiles)


class _Implicit(DataPass):
    """One kernel for each phase, which multiplies and finishes, and one that adds up sums.

    A phase of few tiles has its sums split into parts, which the kernel that finishes adds up in their order.
    """

    def build(self) -> None:
        g, back, given = self.geometry, self.request.backward, self.given
        found, kind = phases(g, back), implicit_kind(given.dtype, self.products.blas.precision)
        assert kind is not None
        tile, scattered = implicit_tile(kind, self.maps // g.groups), len(found) > 1
        lanes = min(self.lanes(g.N if scattered else self.columns), MOST_LANES)
        how = kernels.Implicit(kind, tile, given.dtype, lanes, scattered, given.aligned)
        split = [self._parts(phase, tile) for phase in found]
        self.finish = self._finish(scattered)
        counts = [
            ceil_div(outputs_of(phase) * g.N, tile.columns) if parts is None else self.finish.tiles(self._all(phase))
            for phase, parts in zip(found, split)
        ]
        ends, before = self.ends(sum(counts)), 0
        filters = WEIGHTS
        if back:
            most = max(map(taps_of, found))
            filters = self.program.room(most * g.sizeF // math.prod(g.TRS) * given.dtype.itemsize)
        for phase, count, parts in zip(found, counts, split):
            if back and taps_of(phase):
                places = WEIGHTS, filters
                self.program.steps.append(
                    kernels.turned_kernel(self.device, g, phase, given.dtype.itemsize, places)
                )
            tiles = sum(counts), before
            self.program.steps.append(
                kernels.implicit_kernel(self.device, self.request, how, filters, ends, phase, tiles, parts)
            )
            if parts is not None:
                self._add_parts(phase, parts, ends, tiles)
            before += count
        self.add_sums(ends, sum(counts))


    def _all(self, phase: Phase) -> Band:
        """The columns of a phase."""
        return Band(0, outputs_of(phase) * self.geometry.N)

    def _finish(self, scattered: bool) -> Finish:
        """How parts are finished."""
        lanes = self.lanes(self.geometry.N if scattered else self.columns, F32)
        return Finish(self.maps, self.columns, scattered, self.given.dtype, lanes)

    def _parts(self, phase: Phase, tile: Tile) -> Parts | None:
        """How the sums of a phase are split, if they are."""
        g, count = self.geometry, outputs_of(phase) * self.geometry.N
        depth = self.request.source_dims[0] // g.groups * taps_of(phase)
        tiles = g.groups * ceil_div(self.maps // g.groups, tile.rows) * ceil_div(count, tile.columns)
        steps = ceil_div(ceil_div(depth, tile.depth), data_parts(tiles, depth, self.maps * count * F32.itemsize))
        made = ceil_div(ceil_div(depth, tile.depth), max(steps, 1))
        if made <= 1:
            return None
        return Parts(self.program.room(made * self.maps * count * F32.itemsize), made, steps)

    def _add_parts(self, phase: Phase, parts: Parts, ends: Ends, tiles: tuple[int, int]) -> None:
        """Append the kernel that finishes a phase."""
        band = self._all(phase)
        result = Matrices(parts.place, (1, self.maps, band.size), (0, band.size * F32.itemsize, F32.itemsize), F32)
        self.program.steps.append(
            kernels.finish_kernel(
                self.device, self.request, self.finish, ends, result, band.size, phase, band, tiles, parts.number
            )
        )


class _Products(DataPass):
    """Products of filters and columns. With nothing to do at the end they store to the target themselves."""

    def build(self) -> None:
        g, back = self.geometry, self.request.backward
        self.in_place = reads_in_place(g)
        found = phases(g, back and not self.in_place)
        self.scattered = len(found) > 1
        self.plain = self._is_plain(found)
        old = self.request.epilogue.reads_x and self.given.x is None
        self.apart = not self.plain and (self.scattered or old or self.given.dtype != self.real)
        cut = [(phase, band) for phase in found for band in self._bands(phase)]
        lanes = self.lanes(g.N if self.scattered else self.columns, *([self.real] if self.apart else []))
        self.finish = Finish(self.maps, self.columns, self.scattered, self.given.dtype, lanes)
        self._take_rooms(cut)
        counts = [self.finish.tiles(self._finished(band)) for _, band in cut]
        ends, before = self.ends(sum(counts)), 0
        packed: Phase | None = None
        for (phase, band), tiles in zip(cut, counts):
            if back and phase is not packed and self._packs(phase):
                self._pack(packed := phase)
            result = self._add_band(phase, band)
            if not self.plain:
                self._add_finish(phase, band, result, ends, (sum(counts), before))
            before += tiles
        self.add_sums(ends, sum(counts))

    def _is_plain(self, found: list[Phase]) -> bool:
        """Whether products can do all that the epilogue asks for: alpha, and beta on the old values.

        With alpha 0 they give 0 even where factors are nan.
        """
        e, given = self.request.epilogue, self.given
        ends = e.relu or e.brelu or given.bias is not None or given.bsum is not None
        scaled = e.alpha != 0 and (e.beta == 0 or given.x is None)
        return len(found) == 1 and taps_of(found[0]) > 0 and scaled and not ends

    def _rows(self, phase: Phase) -> int:
        """Rows of a group's columns: what each sum is over."""
        channels = self.geometry.K if self.request.backward else self.geometry.C
        return channels // self.geometry.groups * (1 if self.in_place and self.request.backward else taps_of(phase))

    def _outputs(self) -> int:
        """Rows of a group's results."""
        g = self.geometry
        if not self.request.backward:
            return g.K // g.groups
        return g.C // g.groups * (math.prod(g.TRS) if self.in_place else 1)

    def _count(self, phase: Phase) -> int:
        """Columns of a phase."""
        return outputs_of(phase) * self.geometry.N

    def _bands(self, phase: Phase) -> list[Band]:
        g, count = self.geometry, self._count(phase)
        if self.in_place and self.request.backward and math.prod(g.TRS) > 1:
            return [Band(0, count)]  # rows of a map are next to each other in the target only if they are whole
        nbytes = 0 if self.in_place else g.groups * self._rows(phase) * self.given.dtype.itemsize
        nbytes += g.groups * self._outputs() * self.real.itemsize if self.apart else 0
        return bands(count, nbytes) if nbytes else [Band(0, count)]

    def _take_rooms(self, cut: list[tuple[Phase, Band]]) -> None:
        """Working memory that all phases and bands use in turn: of columns, results and packed filters."""
        g, size, room = self.geometry, self.given.dtype.itemsize, self.program.room
        if not self.in_place:
            self.columns_at = room(max(g.groups * self._rows(phase) * band.size for phase, band in cut) * size)
        if self.apart:
            results = max(g.groups * self._outputs() * band.size for _, band in cut)
            self.results_at = room(results * self.real.itemsize)
        packed = [taps_of(phase) for phase, _ in cut if self.request.backward and self._packs(phase)]
        if packed:
            self.filters_at = room(max(packed) * g.sizeF // math.prod(g.TRS) * size)

    def _packs(self, phase: Phase) -> bool:
        """Whether the filters of a data gradient's phase are copied: they are no matrix where they lie."""
        all_taps = taps_of(phase) == math.prod(self.geometry.TRS)
        return not self.in_place and taps_of(phase) > 0 and not (all_taps and self.geometry.groups == 1)

    def _pack(self, phase: Phase) -> None:
        places = WEIGHTS, self.filters_at
        self.program.steps.append(
            kernels.filters_kernel(self.device, self.geometry, phase, self.given.dtype.itemsize, places)
        )

    def _filters(self, phase: Phase) -> Matrices:
        """The filters of a phase: (results, rows) of each group."""
        g, kind = self.geometry, self.given.dtype
        size, maps = kind.itemsize, g.K // g.groups
        shape = (g.groups, self._outputs(), self._rows(phase))
        if not self.request.backward:
            return Matrices(WEIGHTS, shape, (maps * size, size, g.K * size), kind)
        if self._packs(phase):
            row = shape[2] * size
            return Matrices(self.filters_at, shape, (shape[1] * row, row, size), kind)
        if self.in_place:
            return Matrices(WEIGHTS, shape, (maps * size, g.K * size, size), kind)
        row = math.prod(g.TRS) * g.K * size
        return Matrices(WEIGHTS, shape, (0, row, size), kind)

    def _add_band(self, phase: Phase, band: Band) -> Matrices | None:
        """Append the product of a band; where its results are, if there are any."""
        if not taps_of(phase):
            return None
        columns, result = self._columns(phase, band), self._result(band)
        e = self.request.epilogue
        scale = (e.alpha, e.beta) if self.plain else (1.0, 0.0)
        self.program.steps.append(
            Multiplied(self.products, (self._filters(phase), columns, result), self.real, *scale)
        )
        return result

    def _columns(self, phase: Phase, band: Band) -> Matrices:
        """The columns of a band, made by a step that is appended unless they are the input itself."""
        g, kind, rows = self.geometry, self.given.dtype, self._rows(phase)
        size, step = kind.itemsize, self._count(phase) if self.in_place else band.size
        place = SOURCE + band.first * size if self.in_place else self.columns_at
        if not self.in_place:
            places, back = (SOURCE, place), self.request.backward
            self.program.steps.append(
                kernels.columns_kernel(self.device, g, phase, back, band, size, self.given.aligned, places)
            )
        strides = (rows * step * size, step * size, size)
        return Matrices(place, (g.groups, rows, band.size), strides, kind)

    def _result(self, band: Band) -> Matrices:
        """Where the product of a band is stored: apart, or in the target."""
        kind = self.real if self.apart else self.given.dtype
        size, outputs = kind.itemsize, self._outputs()
        step = band.size if self.apart else self.maps * self.columns // (outputs * self.geometry.groups)
        place = self.results_at if self.apart else TARGET + band.first * size
        strides = (outputs * step * size, step * size, size)
        return Matrices(place, (self.geometry.groups, outputs, band.size), strides, kind)

    def _finished(self, band: Band) -> Band:
        """The columns of a map that a band of results is."""
        per_map = self._outputs() * self.geometry.groups // self.maps
        return Band(band.first, band.size * per_map)

    def _add_finish(
        self, phase: Phase, band: Band, result: Matrices | None, ends: Ends, tiles: tuple[int, int]
    ) -> None:
        band = self._finished(band)
        step = band.size if self.apart or result is None else self.columns
        self.program.steps.append(
            kernels.finish_kernel(
                self.device, self.request, self.finish, ends, result, step, phase, band, tiles
            )
        )  # fmt: skip
