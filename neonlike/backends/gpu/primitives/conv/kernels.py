"""The CUDA kernels of convolution, and what they are launched with; ``kernels/templates/cuda/conv`` has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.geometry.counts import ceil_div, power_of_two
from neonlike.backends.gpu.primitives.calls import Launched, Matrices
from neonlike.backends.gpu.primitives.conv.plan import Band, Phase, Tile, outputs_of, taps_of
from neonlike.backends.gpu.primitives.elements import is_wide, vector_length
from neonlike.backends.primitives.conv.request import ConvPass, Epilogue
from neonlike.kernels.codegen.emit import STORAGE, convert_store, load_element
from neonlike.kernels.cuda.fit import THREADS, divisors
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place
from neonlike.optree.dtypes import F32, F64, DType, compute_dtype

TIMES, ROWS = 4, 8
"""Runs of elements of a thread that finishes results; rows of one that sums gradients."""
RELU, BRELU, BETA = 1, 2, 4

COLUMNS = CudaRoutine("cuda/conv/columns.cu.j2", "2Q27q", "columns of a convolution")
FILTERS = CudaRoutine("cuda/conv/filters.cu.j2", "2Q16q", "filters of a phase of a convolution")
FINISH = CudaRoutine("cuda/conv/finish.cu.j2", "5Q3dq22q", "end of a convolution")
SUMS = CudaRoutine("cuda/conv/sums.cu.j2", "2Qq", "sums of maps")
FOLD = CudaRoutine("cuda/conv/fold.cu.j2", "2Q2d2q", "sums of parts of a gradient")
IMPLICIT = CudaRoutine("cuda/conv/implicit.cu.j2", "6Q3dq47q", "convolution in one kernel", ("ptx.h",))
IMPLICIT_UPDATE = CudaRoutine(
    "cuda/conv/implicit_update.cu.j2", "3Q38q", "gradient of filters in one kernel", ("ptx.h",)
)
TURNED = CudaRoutine("cuda/conv/turned.cu.j2", "2Q17q", "turned filters of a phase of a convolution")
DIRECT = CudaRoutine("cuda/conv/direct.cu.j2", "6Q3dq24q", "convolution of groups of few channels")
DIRECT_UPDATE = CudaRoutine("cuda/conv/direct_update.cu.j2", "3Q26q", "gradient of filters of few channels")


class Ends(NamedTuple):
    """The tensors besides those that are multiplied: where they are and of what dtype; None: there is none."""

    x: Place | None
    x_dtype: DType
    bias: Place | None
    bias_dtype: DType
    sums: Place | None
    """Of partial sums of maps, float64."""


def index_type(*sizes: int) -> str:
    """C type of places in arrays of so many elements."""
    return "int64_t" if is_wide(sizes) else "int32_t"


def numbers_of(epilogue: Epilogue) -> tuple[float, float, float, int]:
    """The numbers that ``nl_ends`` holds."""
    bits = RELU * epilogue.relu | BRELU * epilogue.brelu | BETA * (epilogue.beta != 0)
    return epilogue.alpha, epilogue.beta, epilogue.slope, bits


def stored_context(out: DType, real: DType, lanes: int, ends: Ends) -> dict[str, Any]:
    """Context of kernels that store finished results.

    Parameters
    ----------
    out, real : dtype
        Of results, and of computation.
    lanes : int
        Elements of an access.
    ends : Ends
    """
    return {
        "real": STORAGE[real.name],
        "vector": lanes,
        "x_type": STORAGE[ends.x_dtype.name],
        "x_size": lanes * ends.x_dtype.itemsize,
        "bias_type": STORAGE[ends.bias_dtype.name],
        "load_bias": load_element("g_bias[map]", ends.bias_dtype),
        "store": convert_store("a", real, out),
        "load_out": load_element("out.v[l]", out),
    }


def launched(
    device: Any,
    routine: CudaRoutine,
    blocks: int,
    places: Sequence[Place | None],
    numbers: Sequence[int | float],
    context: dict[str, Any],
) -> Launched:
    """A kernel of so many blocks of THREADS threads.

    Parameters
    ----------
    device : GpuDevice
    routine : CudaRoutine
    blocks : int
    places : sequence of Place or None
        Of the pointers.
    numbers : sequence of numbers
    context : dict
        For the template.
    """
    sizes = (blocks, 1, 1), (THREADS, 1, 1)
    return Launched(device, routine, sizes, places, numbers, {"threads": THREADS, **context})


def columns_kernel(
    device: Any, g: ConvGeometry, phase: Phase, backward: bool, band: Band, itemsize: int, aligned: bool,
    places: tuple[Place, Place],
) -> Launched:  # fmt: skip
    """Columns of a band: rows are (channel, tap) forward, (tap, channel) backward, in the order of the filters.

    Parameters
    ----------
    device : GpuDevice
    g : ConvGeometry
    phase : Phase
    backward : bool
        Whether it is the data gradient.
    band : Band
    itemsize : int
        Bytes of a number.
    aligned : bool
        Whether tensors allow accesses of 16 bytes.
    places : (Place, Place)
        Of what is read, and of the columns.
    """
    unit = math.gcd(16, g.N * itemsize) if aligned else itemsize
    each = unit // itemsize
    channels, sizes = (g.K, g.MPQ) if backward else (g.C, g.DHW)
    inner, taps = channels // g.groups, taps_of(phase)
    images, first, count = g.N // each, band.first // each, band.size // each
    across = min(THREADS, max(32, power_of_two(count)))
    tiles, down = ceil_div(count, across), THREADS // across
    steps = (1, inner) if backward else (taps, 1)
    axes = [
        number
        for size, a in zip(sizes, phase)
        for number in (size, a.outputs, a.taps, a.stride, a.offset, a.slope)
    ]  # fmt: skip
    numbers = (images, channels, inner, first, count, tiles, inner * taps, *steps, *axes)
    most = max(channels * math.prod(sizes) * images, channels * taps * count, first + count)
    sizes3 = (tiles * ceil_div(channels, down), 1, 1), (across, down, 1)
    word = min(unit, 4)
    context = {"unit": unit, "word": f"uint{8 * word}_t", "vector": unit // word, "index": index_type(most)}
    return Launched(device, COLUMNS, sizes3, places, numbers, context | {"threads": THREADS})


def filters_kernel(
    device: Any, g: ConvGeometry, phase: Phase, itemsize: int, places: tuple[Place, Place]
) -> Launched:
    """Filters of the taps of a phase, as matrices (channels, taps * maps) of each group.

    Parameters
    ----------
    device : GpuDevice
    g : ConvGeometry
    phase : Phase
    itemsize : int
        Bytes of a number.
    places : (Place, Place)
        Of the filters, and of the matrices.
    """
    elements = g.C * taps_of(phase) * (g.K // g.groups)
    axes = [number for size, a in zip(g.TRS, phase) for number in (size, a.tap, a.skip, a.taps)]
    numbers = (elements, g.groups, g.C // g.groups, g.K // g.groups, *axes)
    context = {"unit": f"uint{8 * itemsize}_t", "index": index_type(g.sizeF)}
    return launched(device, FILTERS, ceil_div(elements, THREADS), places, numbers, context)


def turned_kernel(
    device: Any, g: ConvGeometry, phase: Phase, itemsize: int, places: tuple[Place, Place]
) -> Launched:
    """Filters of the taps of a phase as (groups, maps, taps, channels), for the implicit kernel.

    Parameters
    ----------
    device, g, phase, itemsize, places
        As of :func:`filters_kernel`.
    """
    channels, maps = g.C // g.groups, g.K // g.groups
    tiles = ceil_div(maps, 32), ceil_div(channels, 32)
    axes = [number for size, a in zip(g.TRS, phase) for number in (size, a.tap, a.skip, a.taps)]
    context = {"unit": f"uint{8 * itemsize}_t", "index": index_type(g.sizeF)}
    blocks = g.groups * taps_of(phase) * math.prod(tiles)
    return launched(device, TURNED, blocks, places, (g.groups, channels, maps, *tiles, *axes), context)


class Finish(NamedTuple):
    """How finished results are stored: fixed for all bands of a call."""

    maps: int
    columns: int
    """Of the target, for each map."""
    scattered: bool
    dtype: DType
    lanes: int

    def tiles(self, band: Band) -> int:
        """Blocks for each map, each with a partial sum."""
        return ceil_div(band.size, THREADS * TIMES * self.lanes)


def finish_kernel(
    device: Any, request: ConvPass, how: Finish, ends: Ends, result: Matrices | None, step: int,
    phase: Phase, band: Band, tiles: tuple[int, int], parts: int = 1,
) -> Launched:  # fmt: skip
    """Stores a band of results, or the sum of its parts; tiles: of all bands together, and of those before this one.

    Parameters
    ----------
    device : GpuDevice
    request : ConvPass
    how : Finish
    ends : Ends
    result : Matrices or None
        The product; None: there is none.
    step : int
        Columns of a row of it.
    phase : Phase
    band : Band
    tiles : (int, int)
    parts : int
    """
    g, real = request.geometry, compute_dtype(how.dtype)
    found = how.dtype if result is None else result.dtype
    context = stored_context(how.dtype, real, how.lanes, ends) | {
        "result_type": STORAGE[found.name],
        "result_size": how.lanes * found.itemsize,
        "out_type": STORAGE[how.dtype.name],
        "out_size": how.lanes * how.dtype.itemsize,
        "load_result": load_element("result.v[l]", found),
        "load_x": load_element("x.v[l]", ends.x_dtype),
        "scattered": how.scattered,
        "times": TIMES,
        "split": parts > 1,
        "index": index_type(how.maps * how.columns, parts * how.maps * step),
    }
    axes = [
        number
        for size, a in zip(request.target_dims[1:4], phase)
        for number in (size, a.outputs, a.first, a.every)
    ]  # fmt: skip
    mine = how.tiles(band)
    numbers = (
        *numbers_of(request.epilogue), band.size, band.first, step, how.columns, mine, *tiles, g.N,
        parts, how.maps * step, *axes,
    )  # fmt: skip
    places = (None if result is None else result.place, TARGET, ends.x, ends.bias, ends.sums)
    return launched(device, FINISH, how.maps * mine, places, numbers, context)


SOURCE, WEIGHTS, TARGET, BIAS, X, BSUM = map(Place, range(6))
"""Where the tensors of forward pass and data gradient begin."""


def sums_kernel(device: Any, rows: int, count: int, parts: Place, dtype: DType) -> Launched:
    """Sums of maps from those of their tiles.

    Parameters
    ----------
    device : GpuDevice
    rows : int
        Number of maps.
    count : int
        Sums of each.
    parts : Place
    dtype : dtype
        Of the result.
    """
    context = {"out_type": STORAGE[dtype.name], "store": convert_store("x0", F64, dtype)}
    return launched(device, SUMS, rows, (parts, BSUM), (count,), context)


def fold_kernel(
    device: Any, places: tuple[Place, Place], count: int, size: int, scale: tuple[float, float], dtypes: Sequence[DType]
) -> Launched:
    """A gradient from the parts of its sums; dtypes: of the parts and of the gradient.

    Parameters
    ----------
    device : GpuDevice
    places : (Place, Place)
        Of the parts, and of the gradient.
    count, size : int
        Number of parts, and elements of each.
    scale : (float, float)
        alpha and beta.
    dtypes : (dtype, dtype)
    """
    real, out = dtypes
    context = {
        "real": STORAGE[real.name],
        "out_type": STORAGE[out.name],
        "load_out": load_element("g_out[i]", out),
        "store": convert_store("a", real, out),
    }
    return launched(device, FOLD, ceil_div(size, THREADS), places, (*scale, count, size), context)


class Implicit(NamedTuple):
    """How the implicit kernel computes: fixed for all phases of a call."""

    kind: str
    tile: Tile
    dtype: DType
    lanes: int
    scattered: bool
    aligned: bool


class Parts(NamedTuple):
    """Where the parts are into which an implicit kernel splits sums; how many; tiles of products of each."""

    place: Place
    number: int
    steps: int


def implicit_kernel(
    device: Any, request: ConvPass, how: Implicit, filters: Place, ends: Ends, phase: Phase, tiles: tuple[int, int],
    parts: Parts | None = None,
) -> Launched:  # fmt: skip
    """Forward pass, or a phase of a data gradient, finished; tiles: of columns, of all phases and of those before.

    With ``parts`` the parts of its sums, not finished.

    Parameters
    ----------
    device : GpuDevice
    request : ConvPass
    how : Implicit
    filters : Place
    ends : Ends
    phase : Phase
    tiles : (int, int)
    parts : Parts, optional
    """
    g, back, tile, size = request.geometry, request.backward, how.tile, how.dtype.itemsize
    dims, read = request.target_dims, request.source_dims
    maps, channels, taps = dims[0] // g.groups, read[0] // g.groups, taps_of(phase)
    depth, columns = channels * taps, outputs_of(phase) * g.N
    map_tiles, column_tiles = ceil_div(maps, tile.rows), ceil_div(columns, tile.columns)
    context = stored_context(how.dtype, F32, how.lanes, ends) | {
        "kind": how.kind, "tile": tile, "along": tile.along, "type": STORAGE[how.dtype.name], "itemsize": size,
        "out_size": how.lanes * size,
        "load_x": load_element("x.v[l]", ends.x_dtype),
        "filter_unit": _unit(how.dtype, maps, how.aligned), "source_unit": _unit(how.dtype, g.N, how.aligned),
        "scattered": how.scattered, "deep": max(read[1], phase[0].taps, phase[0].outputs, abs(phase[0].offset) + 1) > 1,
        "index": index_type(g.sizeI, g.sizeO, g.sizeF, parts.number * dims[0] * columns if parts else 0),
        "split": parts is not None,
    }  # fmt: skip
    by = [max(math.prod(axis.taps for axis in phase[first:]), 1) for first in range(3)]
    axes = [
        number
        for read_size, written, a in zip(read[1:4], dims[1:4], phase)
        for number in (read_size, a.outputs, a.stride, a.offset, a.slope, written, a.first, a.every)
    ]  # fmt: skip
    apart = (maps, depth * maps) if back else (g.K, maps)
    numbers = (
        *numbers_of(request.epilogue), g.N, channels, maps, depth, columns, map_tiles, column_tiles, *tiles, *apart,
        math.prod(dims[1:]), parts.steps if parts else 0, dims[0] * columns, *divisors(by, False), *axes,
    )  # fmt: skip
    places = (SOURCE, filters, *((parts.place, None, None, None) if parts else (TARGET, ends.x, ends.bias, ends.sums)))
    sizes = (g.groups * map_tiles * column_tiles, parts.number if parts else 1, 1), (THREADS, 1, 1)
    shared = tile.shared_bytes(size)
    return Launched(device, IMPLICIT, sizes, places, numbers, {"threads": THREADS, **context}, shared)


def _unit(dtype: DType, innermost: int, aligned: bool) -> int:
    """Elements of a copy to shared memory: 16 bytes, or one."""
    whole = 16 // dtype.itemsize
    return whole if vector_length(dtype, innermost, aligned) == whole else 1


def implicit_update_kernel(
    device: Any, g: ConvGeometry, how: tuple[str, Tile, DType, bool], places: Sequence[Place], part: int
) -> Launched:
    """Parts, of ``part`` outputs and images each, of a weight gradient's sums; how: kind, tile, dtype, aligned.

    Parameters
    ----------
    device : GpuDevice
    g : ConvGeometry
    how : tuple
    places : sequence of Place
        Of images, errors and parts.
    part : int
    """
    kind, tile, dtype, aligned = how
    maps, channels, rows, columns = g.K // g.groups, g.C // g.groups, g.dimF2[0], math.prod(g.dimO[1:])
    row_tiles, map_tiles, count = ceil_div(rows, tile.rows), ceil_div(maps, tile.columns), ceil_div(columns, part)
    context = {
        "threads": THREADS, "kind": kind, "tile": tile, "along": tile.along,
        "type": STORAGE[dtype.name], "itemsize": dtype.itemsize, "unit": _unit(dtype, g.N, aligned),
        "deep": max(g.DHW[0], g.TRS[0], g.MPQ[0], g.padding[0] + 1) > 1,
        "index": index_type(g.sizeI, g.sizeO, count * g.sizeF),
    }  # fmt: skip
    by = [g.N, *g.MPQ[:0:-1], *(math.prod(g.TRS[first:]) for first in range(3))]
    axes = [number for axis in zip(g.DHW, g.strides, g.padding, g.dilation) for number in axis]
    numbers = (g.groups, channels, maps, rows, columns, part, row_tiles, map_tiles, *divisors(by, False), *axes)
    sizes = (g.groups * row_tiles * map_tiles * count, 1, 1), (THREADS, 1, 1)
    return Launched(device, IMPLICIT_UPDATE, sizes, places, numbers, context, tile.shared_bytes(dtype.itemsize))


def direct_kernel(device: Any, request: ConvPass, dtype: DType, lanes: int, ends: Ends) -> Launched:
    """Forward pass or data gradient of thin groups, finished.

    Parameters
    ----------
    device : GpuDevice
    request : ConvPass
    dtype : dtype
    lanes : int
        Elements of an access.
    ends : Ends
    """
    g, back = request.geometry, request.backward
    real, dims, read = compute_dtype(dtype), request.target_dims, request.source_dims
    columns = math.prod(dims[1:])
    tiles = direct_tiles(request, lanes)
    axes = [
        number
        for numbers in zip(dims[1:4], read[1:4], g.TRS, g.padding, g.strides, g.dilation)
        for number in numbers
    ]  # fmt: skip
    context = stored_context(dtype, real, lanes, ends) | {
        "type": STORAGE[dtype.name],
        "size": lanes * dtype.itemsize,
        "load_x": load_element("old.v[l]", ends.x_dtype),
        "load_filter": load_element("filter[0]", dtype),
        "load_source": load_element("read.v[l]", dtype),
        "backward": back,
        "index": index_type(g.sizeI, g.sizeO, g.sizeF),
    }
    inner = (dims[0] // g.groups, read[0] // g.groups, g.K)
    numbers = (*numbers_of(request.epilogue), g.N, *inner, columns, tiles, *axes)
    places = (SOURCE, WEIGHTS, TARGET, ends.x, ends.bias, ends.sums)
    return launched(device, DIRECT, dims[0] * tiles, places, numbers, context)


def direct_tiles(request: ConvPass, lanes: int) -> int:
    """Blocks for each map."""
    return ceil_div(math.prod(request.target_dims[1:]), THREADS * lanes)


def direct_update_kernel(
    device: Any, g: ConvGeometry, dtype: DType, places: tuple[Place, Place, Place], part: int
) -> Launched:
    """Parts, of ``part`` outputs and images each, of the gradient's sums of thin groups.

    Parameters
    ----------
    device : GpuDevice
    g : ConvGeometry
    dtype : dtype
    places : sequence of Place
        Of images, errors and parts.
    part : int
    """
    rows, columns = g.dimF2[0], math.prod(g.dimO[1:])
    blocks, count = ceil_div(rows, ROWS), ceil_div(columns, part)
    axes = [
        number
        for numbers in zip(g.DHW, g.MPQ, g.TRS, g.padding, g.strides, g.dilation)
        for number in numbers
    ]  # fmt: skip
    context = {
        "real": STORAGE[compute_dtype(dtype).name],
        "type": STORAGE[dtype.name],
        "load_from": load_element("from[0]", dtype),
        "rows": ROWS,
        "index": index_type(g.sizeI, g.sizeO, count * g.sizeF),
    }
    numbers = (g.N, g.C // g.groups, g.K // g.groups, g.K, rows, blocks, columns, part, *axes)
    grid = g.K * blocks * count
    return launched(device, DIRECT_UPDATE, grid, places, numbers, context)
