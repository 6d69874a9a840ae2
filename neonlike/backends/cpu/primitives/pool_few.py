"""Compiled kernels of pooling for few images, whose lanes are more than images, and when they are used.

``pool.py`` has the kernels for windows of any kind and any number of images, which are used where none of these fits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from neonlike.backends.geometry.counts import power_of_two
from neonlike.backends.geometry.pool import META, PoolGeometry
from neonlike.kernels.c.routine import INSTRUCTIONS, POINTER, REAL_TYPES, Routine
from neonlike.kernels.c.simd import vector_bytes
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.run.memory import LINE
from neonlike.optree.dtypes import DType

ROWS = Routine("c/pooling/rows.c.j2", [POINTER] * 5, "pooling of few images, forward", INSTRUCTIONS)
WHOLE_FORWARD = Routine("c/pooling/whole.c.j2", [POINTER] * 5, "pooling of whole channels, forward")
WHOLE_BACKWARD = Routine("c/pooling/whole.c.j2", [POINTER] * 6, "pooling of whole channels, backward")
SCATTER = Routine("c/pooling/scatter.c.j2", [POINTER] * 6, "max pooling of few images, backward")
GATHER = Routine("c/pooling/gather.c.j2", [POINTER] * 6, "pooling of few images, backward", INSTRUCTIONS)

SIZES = (
    ("first", "int64_t"),
    ("most", "int64_t"),
    ("meta", "const int64_t *"),
    ("ranges", "const int64_t *"),
    ("places", "const int32_t *"),
    ("windows", "const int64_t *"),
    ("window_places", "const struct place *"),
    ("weights", "const double *"),
    ("alpha", "double"),
    ("beta", "double"),
    ("streamed", "int64_t"),
    ("ahead", "int64_t"),
    ("each", "int64_t"),
    ("band", "int64_t"),
    ("pitch", "int64_t"),
    ("threads", "int64_t"),
)
"""Fields of the struct that kernels take, and their C types."""
ROW_BYTES = 1 << 14
"""Most bytes of the results of columns, which stay in the L1 cache."""
WHOLE_IMAGES = 16
"""Most images whose gradients of whole channels (global pooling) are stored in blocks of vectors."""
SCATTERED_IMAGES, SCATTERED_CHANNELS, SCATTERED_WINDOW = 31, 8, 16
"""Where errors are scattered to their maxima one by one: most images; fewest channels, which threads share; smallest
window with stride 1. An error takes about 8 cycles; gathering takes half a cycle for each window of a vector."""
GATHERED_IMAGES, GATHERED_WINDOW, GATHERED_SIDE, GATHERED_PHASES = 31, 16, 8, 9
"""Where gradients are gathered from the windows around a vector of elements: most images; smallest window, unless
images divide a vector evenly; widest window and most phases of the strides that loops are unrolled for."""
GATHERED_WINDOWS = 16
"""Most windows that contain an element: each takes two to five instructions for a vector of elements."""
SHARED_ROWS = 16
"""Fewest rows of windows, over all channels, for kernels that share out rows: fewer are too few for all threads."""
GATHERED_BYTES = 1 << 15
"""Most bytes of the rows of a band and of its windows, which stay in the L1 cache."""


class Kernel(NamedTuple):
    """A kernel and its workspace.

    Attributes
    ----------
    run : ctypes function or None
        None where it could not be compiled.
    each : int
        Bytes of a thread's workspace besides its list of lines.
    band : int
        Rows that are processed together.
    most : int
        Elements of a thread's buffer or list; 0: as many lines as a window has.
    pitch : int
        Values between two rows of windows.
    stored : dtype or None
        16-bit floats that it reads and writes in place; None: arrays of the compute dtype.
    """

    run: Any
    each: int = 0
    band: int = 1
    most: int = 0
    pitch: int = 0
    stored: DType | None = None


def few_forward(compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any) -> Kernel | None:
    """The kernel for few images and arrays of ``dtype``; None if none fits.

    Parameters
    ----------
    compiler : Compiler or None
    layer : PoolGeometry
    dtype : dtype
    argmax : integer tensor or None
    """
    lanes = lanes_of(compiler, dtype)
    if layer.N == 0:
        return None
    if layer.whole and layer.op != "l2" and layer.N <= lanes:
        return Kernel(_whole(WHOLE_FORWARD, compiler, layer, dtype, argmax))
    if _in_rows(layer, lanes):
        return _rows(compiler, layer, dtype, argmax)
    return None


def few_backward(
    compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any, alpha: float, beta: float
) -> Kernel | None:
    """The same for gradients.

    Parameters
    ----------
    compiler, layer, dtype, argmax
        As of :func:`few_forward`.
    alpha, beta : float
    """
    if layer.N == 0:
        return None
    if layer.whole and layer.op == "avg" and layer.N <= WHOLE_IMAGES and beta == 0:
        return Kernel(_whole(WHOLE_BACKWARD, compiler, layer, dtype, None))
    if beta != 0 or layer.op == "l2" or (layer.op == "max" and alpha != 1):
        return None
    if _gathers(layer, lanes_of(compiler, dtype)):
        return _gather(compiler, layer, dtype, argmax)
    if layer.op == "max" and _scatters(layer):
        apart = all(step >= size for step, size in zip(layer.strides, layer.JTRS))
        return Kernel(SCATTER.variant(compiler, apart=apart, lanes=1, **_types(layer, dtype, argmax)))
    return None


def lanes_of(compiler: Compiler | None, dtype: DType) -> int:
    """Values of ``dtype`` in a register; of wider vectors, compilers take comparisons apart, lane by lane."""
    return vector_bytes(compiler) // dtype.itemsize


def number_bits(layer: PoolGeometry, argmax: Any) -> int:
    """Bits of a position within a window: those of ``argmax``, or of the type used in its place."""
    if argmax is None:
        return 8
    fits = layer.window - 1 <= np.iinfo(argmax.dtype).max
    return 8 * int((argmax.dtype if fits else layer.argmax_dtype).itemsize)


def types(layer: PoolGeometry, dtype: DType, number: str) -> dict[str, Any]:
    """Template arguments of all kernels; ``number`` is the C type of a position in a window.

    Parameters
    ----------
    layer : PoolGeometry
    dtype : dtype
    number : str
    """
    bits = 8 * dtype.itemsize
    return {
        "op": layer.op,
        "real": REAL_TYPES[dtype],
        "bytes": dtype.itemsize,
        "integer": f"int{bits}_t",
        "number": number,
        "number_bytes": int(number.strip("uint_")) // 8,
        "meta": META,
        "sizes": SIZES,
    }


def _types(layer: PoolGeometry, dtype: DType, argmax: Any) -> dict[str, Any]:
    """Template arguments of the kernels for few images."""
    return types(layer, dtype, f"uint{number_bits(layer, argmax)}_t")


def _whole(routine: Routine, compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any) -> Any:
    """The kernel for channels that are one window each (global pooling)."""
    lanes = lanes_of(compiler, dtype)
    return routine.variant(
        compiler,
        backward=routine is WHOLE_BACKWARD,
        images=layer.N,
        lanes=lanes,
        vectors=math.lcm(layer.N, lanes) // lanes,
        **_types(layer, dtype, argmax),
    )


def _in_rows(layer: PoolGeometry, lanes: int) -> bool:
    """Whether a row of windows is reduced as one: its images fill no vector, or one and rows are many enough to share.

    No window may be empty.
    """
    return layer.N < lanes + (layer.K * layer.M * layer.P >= SHARED_ROWS) and bool(layer.counts.min())


def _rows(compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any) -> Kernel:
    """The kernel of windows of columns, and its workspace: the results of columns, and their numbers or counts."""
    (J, T, R, S), step, images, lanes = layer.JTRS, layer.strides[3], layer.N, lanes_of(compiler, dtype)
    padded, maxima = any(layer.padding) or layer.caffe, layer.op == "max"
    tight = S <= step and not padded
    joined = step > 1 and images <= (lanes // 2 if maxima else min(2, lanes // 2))
    group = lanes if step == 1 or joined else power_of_two(images)
    pitch = layer.Q * step * images if tight else ((layer.Q - 1) * step + S) * images
    band = max(1, ROW_BYTES // (pitch * dtype.itemsize * (2 if maxima else 1)))
    most = _rounded(band * pitch, lanes) + (step + 1) * lanes  # vectors that start in the last windows extend past them
    counts = layer.Q * images + group if padded and not maxima else 0
    run = ROWS.variant(
        compiler,
        images=images,
        lines=J * T * R,
        deep=T,
        rows=R,
        columns=S,
        step=step,
        lanes=lanes,
        group=group,
        each=group if step == 1 else group // images * images,
        joined=joined,
        tight=tight,
        padded=padded,
        **_types(layer, dtype, argmax),
    )
    return Kernel(run, _rounded((most * (2 if maxima else 1) + counts) * dtype.itemsize) + LINE, band, most, pitch)


def _gathers(layer: PoolGeometry, lanes: int) -> bool:
    """Whether gathering from the windows around vectors of elements is faster than scattering errors one by one.

    Windows have to overlap, and maxima of one image to have several phases: else scattering or the kernel for windows
    of any kind is as fast.
    """
    steps = math.prod(layer.strides)
    planar = layer.alone and layer.D == layer.M == layer.JTRS[1] == 1
    small = layer.JTRS[3] <= GATHERED_SIDE and steps <= GATHERED_PHASES
    small &= steps > 1 or layer.N > 1 or layer.op == "avg"
    overlap = steps < layer.window <= GATHERED_WINDOWS * steps
    filled = layer.window >= GATHERED_WINDOW or _side_by_side(layer, lanes)
    shared = layer.C * -(-layer.H // layer.strides[2]) >= SHARED_ROWS
    return planar and small and overlap and filled and shared and layer.N <= GATHERED_IMAGES


def _side_by_side(layer: PoolGeometry, lanes: int) -> bool:
    """Whether vectors of several phases can be interleaved into a row by shuffles of lanes alone."""
    return layer.strides[3] == 1 or lanes % layer.N == 0


def _gather(compiler: Compiler | None, layer: PoolGeometry, dtype: DType, argmax: Any) -> Kernel:
    """The kernel of bands of rows of the gradient, and its workspace: their windows, and their results by phase."""
    (_, _, high, wide), lanes, bits = layer.strides, lanes_of(compiler, dtype), number_bits(layer, argmax)
    shifts = {shift for shift, _ in _taps(layer, 3)}
    before, after = max(0, -min(shifts)), max(0, *shifts)
    pitch = max(layer.Q + before, -(-layer.W // wide) + after) * layer.N
    rows = [shift for shift, _ in _taps(layer, 2)]
    most = -(-layer.H // high)
    most = min(most, max(1, layer.C * most // SHARED_ROWS))
    band = max(1, min(most, GATHERED_BYTES // (pitch * (dtype.itemsize + bits // 8 + high * wide * dtype.itemsize))))
    held = (band + rows[-1] - rows[0]) * pitch + (after + before) * layer.N + 3 * lanes
    run = GATHER.variant(
        compiler,
        images=layer.N,
        steps=(high, wide),
        rows=(rows[0], rows[-1]),
        lanes=lanes,
        left=before * layer.N,
        window=layer.window,
        taps=_window_taps(layer),
        side_by_side=_side_by_side(layer, lanes),
        **_types(layer, dtype, argmax),
    )
    results = high * wide * _rounded(band * pitch, lanes)
    shares = 0 if layer.op == "max" else layer.Q * layer.N + lanes
    values = results + shares + 2 * before * layer.N + held
    return Kernel(run, _rounded(values * dtype.itemsize + held * bits // 8) + LINE, band, held, pitch)


def _taps(layer: PoolGeometry, axis: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """For positions ``i * stride + phase`` of an axis: the windows ``i + shift`` that contain them, and where.

    Returns
    -------
    list of (shift, [(phase, place), ...])
        Sorted by shift.
    """
    size, step, padding = layer.JTRS[axis], layer.strides[axis], layer.padding[axis]
    found: dict[int, list[tuple[int, int]]] = {}
    for phase in range(step):
        for place in range((phase + padding) % step, size, step):
            found.setdefault((phase + padding - place) // step, []).append((phase, place))
    return sorted(found.items())


def _window_taps(layer: PoolGeometry) -> tuple[Any, ...]:
    """The same of rows and columns, in the order of the windows: ((row, column), ((h, w, number of place), ...))."""
    return tuple(
        ((row, column), tuple((h, w, r * layer.JTRS[3] + s) for h, r in down for w, s in along))
        for row, down in _taps(layer, 2)
        for column, along in _taps(layer, 3)
    )


def _scatters(layer: PoolGeometry) -> bool:
    """Whether scattering errors to their maxima is faster than gathering from all windows around each element.

    It is for whole channels of any number of images: nothing but the maxima is written, after a clearing.
    """
    few = layer.N <= SCATTERED_IMAGES and layer.C >= SCATTERED_CHANNELS and layer.sizeI < 1 << 31
    sparse = layer.window >= SCATTERED_WINDOW or math.prod(layer.strides) > 1
    return layer.alone and (layer.whole or few) and sparse


def _rounded(size: int, step: int = LINE) -> int:
    """The next multiple of ``step``."""
    return -(-size // step) * step
