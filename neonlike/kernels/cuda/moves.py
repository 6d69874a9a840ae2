"""Gather and scatter-add on a device: ``take`` and ``untake``.

Indices stay on the device. A kernel checks their range and reports violations without making the host wait. A
scatter-add first sorts the slices by index, so that one thread owns each element of the result and adds in the order of
the indices: no atomics, and the same sum every time.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.errors import IndexRangeError, ShapeError
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.emit import STORAGE, Array, convert_store, load_element
from neonlike.kernels.codegen.layout import Axis
from neonlike.kernels.codegen.render import TemplateSource
from neonlike.kernels.cuda import sorting
from neonlike.kernels.cuda.compile import headers, load_kernels
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.fit import THREADS, WAVES, divisors, merged, needs_wide
from neonlike.kernels.cuda.forms import Offsets
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Call, KernelLaunch
from neonlike.optree.dtypes import DType, compute_dtype, is_float
from neonlike.optree.npfuncs import out_of_range

GROUPING_THREADS = 256
"""Threads per block for checking or counting indices."""
FEWEST_INDICES, CHECKING_BLOCKS = 1 << 14, 64
"""Indices per checking block, and maximum number of such blocks."""
CHECK = CudaRoutine("cuda/indices.cu.j2", "2Q5q", "check of indices")
START = CudaRoutine("cuda/indices.cu.j2", "2Q2q", "where the slices of each index begin")
_I32 = np.dtype(np.int32)


class Moves:
    """The kernels of one stage, with variants by dtypes, rank and order of the axes."""

    def __init__(self, device: Device, comment: str) -> None:
        self.device, self.comment = device, comment
        self.variants: dict[Any, Any] = {}

    def check(self, index: Any, limit: int, wrong: Callable[[str, int], str], wraps: bool = True) -> Call:
        """Return a callable that queues a check of ``index`` against [-limit, limit) (``Device.expect``).

        ``wrong(index, limit)`` formats the report. Without ``wraps`` negative values are out of range, too.

        Parameters
        ----------
        index : DeviceArray
        limit : int
        wrong : callable
        wraps : bool

        Raises
        ------
        IndexRangeError
            If the range is empty and ``index`` is not; or if an earlier index out of range is reported now.
        """
        size = index.shape[0]
        if not limit and size:
            raise IndexRangeError(wrong("any", limit))
        blocks = max(1, min(-(-size // FEWEST_INDICES), CHECKING_BLOCKS)), 1, 1
        fault, report = self.device.expect(wrong("{}", limit))
        values = index.address, fault, size, index.strides[0] // index.itemsize, -limit * wraps, limit, report
        block, kind = (GROUPING_THREADS, 1, 1), STORAGE[index.dtype.name]
        context = {"form": "check", "threads": block[0], "index_type": kind}
        return CHECK.bind(self.device, blocks, block, values, 0, index, **context)

    def group(self, index: Any, limit: int, name: str) -> tuple[list[Call], Any, Any]:
        """Calls that queue a stable argsort of the vector ``index``, of at least one element, into ``slices``.

        Parameters
        ----------
        index : DeviceArray
        limit : int
            Number of places.
        name : str
            Operation, for the report.

        Returns
        -------
        calls : list of callable
            They also report indices out of range, as :meth:`check` does, and skip them.
        start : DeviceArray (limit + 1,), int32
            ``slices[start[p]]`` to ``slices[start[p + 1] - 1]`` are those of p.
        slices : DeviceArray (n,), int32
        """
        device, n = self.device, index.shape[0]
        if max(n, limit) >= sorting.LARGEST:
            raise ShapeError(f"{name}: {n} indices below {limit}; the GPU sorts fewer than {sorting.LARGEST}")
        room = sorting.room_for(n, limit)
        memory = device.allocate(room.size + 4 * (limit + 1))
        base, size = memory.address, _I32.itemsize
        slices = device.view(memory, base + room.numbers_at, (n,), (size,), _I32)
        start = device.view(memory, base + room.size, (limit + 1,), (size,), _I32)
        given = (index.address, index.dtype, index.strides[0] // index.itemsize), base, (n, limit)
        calls = sorting.ready_sort(device, *given, device.expect(out_of_range(name, "{}", limit)), wraps=True)
        values = base + room.keys_at, start.address, n, limit
        grid = -(-(limit + 1) // GROUPING_THREADS), 1, 1
        block, context = (GROUPING_THREADS, 1, 1), {"form": "start", "threads": GROUPING_THREADS}
        return [*calls, START.bind(device, grid, block, values, 0, (index, memory), **context)], start, slices

    def gather(self, source: Any, index: Any, out: Any, axis: int) -> Call:
        """Return a callable that queues ``out[.., j, ..] = source[.., index[j], ..]`` with checked indices.

        Parameters
        ----------
        source, index, out : DeviceArray
        axis : int
        """
        axes, at = _axes(out, source, axis, 0)
        limit, step = source.shape[axis], source.strides[axis] // source.itemsize
        head = [math.prod(a.size for a in axes), limit, index.strides[0] // index.itemsize, step]
        wide = needs_wide([*axes, Axis(max(limit, index.shape[0]), False, (step, head[2]))], 2)
        return self._on_axes("gather", [source, index, out], axes, at, head, wide)

    def scatter(self, source: Any, start: Any, slices: Any, out: Any, axis: int) -> Call:
        """Return a callable that queues the sums of ``source[.., j, ..]`` over the j of each p (:meth:`group`).

        Parameters
        ----------
        source, out : DeviceArray
        start, slices : DeviceArray
            As of :meth:`group`.
        axis : int
        """
        axes, at = _axes(out, source, axis, 0)
        step = source.strides[axis] // source.itemsize
        head = [math.prod(a.size for a in axes), step]
        wide = needs_wide([*axes, Axis(source.shape[axis], False, (step, 1))], 2)
        return self._on_axes("scatter", [source, start, slices, out], axes, at, head, wide)

    def _on_axes(self, form: str, arrays: list[Any], axes: list[Axis], at: int, head: list[int], wide: bool) -> Call:
        source, out = arrays[0], arrays[-1]
        meta = [*head, *divisors([a.size for a in axes], wide), *(a.steps[i] for i in (0, 1) for a in axes)]
        key = (form, source.dtype, arrays[1].dtype, out.dtype, len(axes), at, wide)
        function = self.variants.get(key)
        if function is None:
            kernel = self.source(*key)
            function = self.variants[key] = self._load(kernel, kernel.name)
        packing = f"={len(arrays)}Q{len(meta)}{'q' if wide else 'i'}"
        arguments = struct.pack(packing, *(a.address for a in arrays), *meta)
        blocks = min(-(-head[0] // THREADS), WAVES * self.device.capabilities.multiprocessors)
        return self._launch(function, blocks, arguments, arrays)

    def _launch(self, function: Any, blocks: int, arguments: bytes, arrays: list[Any]) -> Call:
        return KernelLaunch(self.device, function, (blocks, 1, 1), (THREADS, 1, 1), 0, arguments, arrays)

    def _load(self, kernel: KernelSource, name: str) -> Any:
        return load_kernels(self.device, kernel, [name])[0]

    def source(
        self, form: str, read: DType, place: DType, written: DType, rank: int, at: int, wide: bool
    ) -> KernelSource:
        """Kernel for arrays of these dtypes and ``rank`` axes, indexed along axis ``at``.

        Parameters
        ----------
        form : "gather" or "scatter"
        read, place, written : dtype
            Of source, indices and result.
        rank, at : int
        wide : bool
            Whether positions take 64 bits.
        """
        head = 4 if form == "gather" else 2
        names = [Array(name, "leaf", 0, read, ()) for name in ("out", "source")]
        offsets = Offsets(names, rank, head + 3 * rank, wide)
        others = [axis for axis in range(rank) if axis != at]
        value = compute_dtype(read)
        context = {
            "threads": THREADS,
            "index_type": "int64_t" if wide else "int32_t",
            "meta": offsets.size,
            "positions": offsets.positions("chunk", "i", rank, head),
            "axis": f"i{at}",
            "source_offset": "".join(f"i{axis} * {offsets.step('source', axis)} + " for axis in others),
            "out_offset": offsets.offset("out", "i", range(rank)),
            "source_type": STORAGE[read.name],
            "out_type": STORAGE[written.name],
            "value_type": STORAGE[value.name],
            "load": load_source(read),
            "result": convert_store("x" if form == "gather" else "sum", value, written),
        }
        if form == "gather":
            context["place_type"] = STORAGE[place.name]
            if read == written:  # bitwise copies, regardless of meaning
                context |= {"load": "source[0]", "result": "x", "value_type": STORAGE[read.name]}
        else:
            context["total_type"] = "double" if is_float(read) else "uint64_t"
        source = TemplateSource(f"cuda/{form}.cu.j2", context)
        return KernelSource(source, source.name, self.comment, headers())


def load_source(dtype: DType) -> str:
    """``source[0]`` converted to its compute dtype."""
    return load_element("source[0]", dtype) if is_float(dtype) else "(int64_t)source[0]"


def _axes(out: Any, source: Any, axis: int, by: int) -> tuple[list[Axis], int]:
    """Axes with the steps of ``out`` and ``source``, sorted by those of ``out`` and merged; and the indexed one.

    Along the indexed axis the step of ``source`` is 0.
    """
    pairs = []
    for k, size in enumerate(out.shape):
        steps = out.strides[k] // out.itemsize, 0 if k == axis else source.strides[k] // source.itemsize
        if size > 1 or k == axis:
            pairs.append((k, Axis(size, k == axis, steps)))
    pairs.sort(key=lambda pair: -abs(pair[1].steps[by]))
    position = next(i for i, (k, _) in enumerate(pairs) if k == axis)
    before, after = ([a for _, a in part] for part in (pairs[:position], pairs[position + 1 :]))
    before = merged(before)
    return [*before, pairs[position][1], *merged(after)], len(before)
