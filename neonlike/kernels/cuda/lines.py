"""Device ops along one axis: scans, sorts, and gathers and scatters with one index per element.

A line is the elements along that axis at one position of the others.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.emit import STORAGE, Array, convert_store
from neonlike.kernels.codegen.layout import Axis
from neonlike.kernels.codegen.line_texts import RUNNING_TOTALS, key_texts
from neonlike.kernels.codegen.render import TemplateSource
from neonlike.kernels.cuda.compile import headers
from neonlike.kernels.cuda.fit import THREADS, WAVES, divisors, merged, needs_wide
from neonlike.kernels.cuda.forms import Offsets
from neonlike.kernels.cuda.moves import Moves, load_source
from neonlike.kernels.cuda.step import Call
from neonlike.optree.dtypes import DType, compute_dtype, is_float

ENOUGH_LINES = 1 << 12
"""Number of lines from which each is scanned by a thread; fewer, unless shorter than ``SHORT``, by a block each."""
SHORT = 64


class Lines(Moves):
    """The kernels of one stage, with variants by dtypes, rank and form."""

    def scan(self, name: str, source: Any, out: Any, axis: int) -> Call:
        """Return a callable that queues ``out`` = running totals of ``source`` along ``axis``.

        Parameters
        ----------
        name : "cumsum" or "cumprod"
        source, out : DeviceArray
        axis : int
        """
        lines = math.prod(out.shape) // out.shape[axis]
        form = "block" if lines < ENOUGH_LINES and out.shape[axis] >= SHORT else "thread"
        return self._on_lines(form, RUNNING_TOTALS[name], [out, source], axis)

    def untake(self, source: Any, index: Any, total: Any, out: Any, axis: int) -> Call:
        """Return a callable that queues the scatter-add of ``source`` by ``index`` into ``out``.

        Parameters
        ----------
        source : DeviceArray
            What is added.
        index : DeviceArray
            Places along ``axis``.
        total : DeviceArray
            Sums in their wide dtype.
        out : DeviceArray
        axis : int
        """
        return self._on_lines("untake", ("0", "+"), [out, source, index], axis, total)

    def along(self, source: Any, index: Any, out: Any, axis: int, scatters: bool) -> Call:
        """Return a callable that queues ``out[.., j, ..] = source[.., index[.., j, ..], ..]``.

        With ``scatters``, it queues ``out[.., index[.., j, ..], ..] = source[.., j, ..]`` for distinct indices.

        Parameters
        ----------
        source, index, out : DeviceArray
        axis : int
        scatters : bool
        """
        arrays = [out, source, index]
        far = 0 if scatters else 1  # the array that the indices point into
        axes = _merged_axes(arrays, range(out.ndim), index.shape, lambda i, k: i == far and k == axis)
        head = [index.size, arrays[far].shape[axis], arrays[far].strides[axis] // arrays[far].itemsize]
        wide = needs_wide([*axes, Axis(max(head[1], 1), False, (head[2],) * 3)], 3)
        key = ("scatter" if scatters else "gather", source.dtype, index.dtype, out.dtype, len(axes), wide, None)
        blocks = min(-(-head[0] // THREADS), WAVES * self.device.capabilities.multiprocessors)
        return self._queue(key, [source, index, out], head, axes, 3, blocks)

    def _on_lines(self, form: str, texts: tuple[str, str], arrays: list[Any], axis: int, total: Any = None) -> Call:
        out, source = arrays[:2]
        others = [k for k in range(out.ndim) if k != axis]
        axes = _merged_axes(arrays, others, out.shape, lambda i, k: False)
        steps = [a.strides[axis] // a.itemsize for a in arrays]
        lines = math.prod(axis.size for axis in axes)
        head = [lines, source.shape[axis], out.shape[axis], *steps, *[0] * (3 - len(arrays))]
        longest = Axis(max(head[1], head[2]), False, tuple(steps))
        wide = needs_wide([*axes, longest], len(arrays)) or lines * longest.size >= 1 << 30
        index = arrays[2].dtype if len(arrays) > 2 else None
        key = (form, source.dtype, index, out.dtype, len(axes), wide, texts)
        most = WAVES * self.device.capabilities.multiprocessors
        blocks = min(lines if form == "block" else -(-lines // THREADS), most)
        given = [source, out] if total is None else [source, arrays[2], total, out]
        return self._queue(key, given, head, axes, len(arrays), blocks)

    def _queue(
        self, key: tuple[Any, ...], arrays: list[Any], head: list[int], axes: list[Axis], stepped: int, blocks: int
    ) -> Call:
        wide = key[5]
        function = self.variants.get(key)
        if function is None:
            kernel = self.line_source(*key)
            function = self.variants[key] = self._load(kernel, kernel.name)
        meta = [*head, *divisors([a.size for a in axes], wide), *(a.steps[i] for i in range(stepped) for a in axes)]
        packing = f"={len(arrays)}Q{len(meta)}{'q' if wide else 'i'}"
        arguments = struct.pack(packing, *(a.address for a in arrays), *meta)
        return self._launch(function, blocks, arguments, arrays)

    def line_source(
        self, form: str, read: DType, place: DType | None, written: DType, rank: int, wide: bool, texts: Any
    ) -> KernelSource:
        """Kernel of a form (see the templates) for arrays of these dtypes and ``rank`` axes.

        Parameters
        ----------
        form : str
        read, written : dtype
            Of source and result.
        place : dtype or None
            Of indices; None: there are none.
        rank : int
        wide : bool
            Whether positions take 64 bits.
        texts : (str, str) or None
            Start and sign of forms that work on whole lines.
        """
        on_lines = texts is not None
        names = [Array(name, "leaf", 0, read, ()) for name in ("out", "source", "index")][: 3 if place else 2]
        first = 6 if on_lines else 3
        offsets = Offsets(names, rank, first + 3 * rank, wide)
        value = compute_dtype(read)
        copies = read == written and not on_lines  # bitwise copies, regardless of meaning
        context = {
            "form": form,
            "threads": THREADS,
            "scatters": form == "scatter",
            "index_type": "int64_t" if wide else "int32_t",
            "meta": offsets.size,
            "positions": offsets.positions("line" if on_lines else "chunk", "i", rank, first),
            **{f"{array.name}_offset": offsets.offset(array.name, "i", range(rank)) or "0" for array in names},
            "source_type": STORAGE[read.name],
            "out_type": STORAGE[written.name],
            "place_type": "" if place is None else STORAGE[place.name],
            "value_type": STORAGE[read.name if copies else value.name],
            "total_type": "double" if is_float(read) else "uint64_t",
            "load": "source[0]" if copies else load_source(read),
            "result": "x" if copies else convert_store("sum" if on_lines else "x", value, written),
            "start": texts[0] if on_lines else "",
            "sign": texts[1] if on_lines else "",
        }
        source = TemplateSource("cuda/lines.cu.j2" if on_lines else "cuda/along.cu.j2", context)
        return KernelSource(source, source.name, self.comment, headers())

    # Sorting

    def merges(self, bits: Any, buffers: tuple[Any, Any], descending: bool) -> tuple[list[Call], Any]:
        """Calls that queue a merge sort of the last axis of contiguous ``bits``; and the buffer with the result.

        Parameters
        ----------
        bits : DeviceArray
            The values.
        buffers : two contiguous DeviceArrays of int32, of the shape of ``bits``
        descending : bool
        """
        calls: list[Call] = []
        n = bits.shape[-1]
        function = self.variants.get(("merge", bits.dtype, descending))
        if function is None:
            kernel = self.merge_source(bits.dtype, descending)
            function = self.variants["merge", bits.dtype, descending] = self._load(kernel, kernel.name)
        blocks = min(-(-bits.size // THREADS), WAVES * self.device.capabilities.multiprocessors)
        before, after = buffers
        run = 1
        while run < n:
            arguments = struct.pack("=3Q3q", bits.address, before.address, after.address, bits.size, n, run)
            calls.append(self._launch(function, blocks, arguments, [bits, before, after]))
            before, after = after, before
            run *= 2
        return calls, before

    def merge_source(self, dtype: DType, descending: bool) -> KernelSource:
        """Kernel that merges runs of elements of ``dtype``."""
        source = TemplateSource("cuda/merge.cu.j2", {"threads": THREADS, **key_texts(dtype, descending)})
        return KernelSource(source, source.name, self.comment, headers())


def _merged_axes(arrays: list[Any], which: Any, shape: Any, left_out: Callable[[int, int], bool]) -> list[Axis]:
    """Axes of ``which`` with the steps of ``arrays``, sorted by the first array's steps and merged where possible."""
    axes = []
    for k in which:
        if shape[k] > 1:
            steps = [0 if left_out(i, k) else a.strides[k] // a.itemsize for i, a in enumerate(arrays)]
            axes.append(Axis(shape[k], False, tuple(steps)))
    axes.sort(key=lambda axis: -abs(axis.steps[0] or axis.steps[-1]))
    return merged(axes)


I32 = np.dtype(np.int32)
