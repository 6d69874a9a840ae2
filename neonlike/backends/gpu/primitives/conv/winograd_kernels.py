"""The CUDA kernels of Winograd's convolution, and what they are launched with; see ``conv/winograd.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from neonlike.backends.geometry.conv import ConvGeometry, Five
from neonlike.backends.geometry.counts import ceil_div
from neonlike.backends.gpu.primitives.calls import Launched
from neonlike.backends.gpu.primitives.conv.kernels import TARGET, Ends, index_type, launched, numbers_of, stored_context
from neonlike.backends.gpu.primitives.conv.plan import Band, TileGrid
from neonlike.backends.gpu.primitives.elements import vector_length
from neonlike.backends.primitives.conv.request import ConvPass
from neonlike.kernels.codegen.emit import STORAGE, convert_store, load_element
from neonlike.kernels.cuda.fit import THREADS
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place
from neonlike.optree.dtypes import F32, DType

MOST_IMAGES = {2: 4, 4: 2}
"""Images that a thread transforms at once, by the edge of a tile's results: as many as its registers hold."""

SOURCE_POINTS = CudaRoutine("cuda/conv/winograd_source.cu.j2", "2Q14q", "transformed tiles of a convolution")
FILTER_POINTS = CudaRoutine("cuda/conv/winograd_filters.cu.j2", "2Q2q", "transformed filters of a convolution")
RESULTS = CudaRoutine("cuda/conv/winograd_results.cu.j2", "5Q3dq13q", "end of a Winograd convolution")
GRADIENT = CudaRoutine("cuda/conv/winograd_gradient.cu.j2", "2Q2d3q", "gradient of filters from transformed tiles")


class Lanes(NamedTuple):
    """Lanes of a band, as they lie in memory: ``part`` of them in a row, then the next part's points."""

    band: Band
    part: int
    parts: int = 1

    @property
    def padded(self) -> int:
        """With those that fill up the last part, which are zeros."""
        return self.part * self.parts


def images_at_once(tiles: TileGrid, aligned: bool) -> int:
    """Elements of an access of kernels that read and write float32."""
    return min(vector_length(F32, tiles.images, aligned), MOST_IMAGES[tiles.edge])


def source_kernel(
    device: Any, tiles: TileGrid, dims: Five, padding: tuple[int, int], lanes: Lanes, aligned: bool,
    places: Sequence[Place], errors: bool = False,
) -> Launched:  # fmt: skip
    """Transformed tiles of a band; dims: of what is read; errors: as a gradient of filters takes them.

    Parameters
    ----------
    device : GpuDevice
    tiles : TileGrid
    dims : tuple of int
    padding : (int, int)
    lanes : Lanes
    aligned : bool
        Whether tensors allow accesses of 16 bytes.
    places : sequence of Place
        Of what is read, and of the points.
    errors : bool
    """
    vector, channels = images_at_once(tiles, aligned), dims[0]
    blocks = ceil_div(lanes.padded, THREADS * vector)
    numbers = (
        channels, tiles.images, *lanes.band, lanes.part, lanes.padded, blocks, *dims[1:4], *padding,
        tiles.height, tiles.width,
    )  # fmt: skip
    sizes = tiles.points * channels * lanes.padded, channels * dims[1] * dims[2] * dims[3] * tiles.images
    wide = index_type(*sizes, lanes.band.first + blocks * THREADS * vector)
    context = {"edge": tiles.edge, "errors": errors, "vector": vector, "index": wide}
    return launched(device, SOURCE_POINTS, channels * blocks, places, numbers, context)


def filters_kernel(
    device: Any, g: ConvGeometry, tiles: TileGrid, turned: bool, places: Sequence[Place]
) -> Launched:
    """Transformed filters; turned: for a data gradient.

    Parameters
    ----------
    device : GpuDevice
    g : ConvGeometry
    tiles : TileGrid
    turned : bool
    places : sequence of Place
        Of the filters, and of the points.
    """
    context = {"edge": tiles.edge, "turned": turned, "index": index_type(tiles.points * g.C * g.K)}
    return launched(device, FILTER_POINTS, ceil_div(g.C * g.K, THREADS), places, (g.C, g.K), context)


def result_blocks(band: Band, vector: int) -> int:
    """Blocks for each map, each with a partial sum."""
    return ceil_div(band.size, THREADS * vector)


def results_kernel(
    device: Any, request: ConvPass, tiles: TileGrid, lanes: Lanes, vector: int, points: Place, ends: Ends,
    blocks: tuple[int, int],
) -> Launched:  # fmt: skip
    """Stores a band of results, finished; blocks: of a map, in all bands together and in those before this one.

    Parameters
    ----------
    device : GpuDevice
    request : ConvPass
    tiles : TileGrid
    lanes : Lanes
    vector : int
        Elements of an access.
    points : Place
    ends : Ends
    blocks : (int, int)
    """
    dims, mine = request.target_dims, result_blocks(lanes.band, vector)
    context = stored_context(F32, F32, vector, ends) | {
        "edge": tiles.edge,
        "load_x": load_element("x[j].v[l]", ends.x_dtype),
        "index": index_type(
            request.geometry.sizeI,
            request.geometry.sizeO,
            tiles.points * dims[0] * lanes.part,
            lanes.band.first + mine * THREADS * vector,
        ),
    }
    numbers = (
        *numbers_of(request.epilogue), dims[0], tiles.images, *lanes.band, lanes.part, mine, *blocks, *dims[1:4],
        tiles.height, tiles.width,
    )  # fmt: skip
    places = (points, TARGET, ends.x, ends.bias, ends.sums)
    return launched(device, RESULTS, dims[0] * mine, places, numbers, context)


def gradient_kernel(
    device: Any, g: ConvGeometry, tiles: TileGrid, parts: int, scale: tuple[float, float], dtype: DType,
    places: Sequence[Place],
) -> Launched:  # fmt: skip
    """The gradient, of ``dtype``, from the parts of transformed sums.

    Parameters
    ----------
    device : GpuDevice
    g : ConvGeometry
    tiles : TileGrid
    parts : int
    scale : (float, float)
        alpha and beta.
    dtype : dtype
    places : sequence of Place
        Of the sums, and of the gradient.
    """
    context = {
        "edge": tiles.edge,
        "out_type": STORAGE[dtype.name],
        "load_out": load_element("to[i]", dtype),
        "store": convert_store("a", F32, dtype),
        "index": index_type(parts * tiles.points * g.C * g.K),
    }
    numbers = (*scale, g.C, g.K, parts)
    return launched(device, GRADIENT, ceil_div(g.C * g.K, THREADS), places, numbers, context)
