"""Gather and scatter on a device: ``take``, and ``untake``, which adds slices up where ``take`` reads them."""

from __future__ import annotations

import math
import struct
from typing import Any

from neonlike.kernels.compile_c import KernelSource
from neonlike.kernels.compile_cuda import build_cubin, headers
from neonlike.kernels.device import Device
from neonlike.kernels.emit import STORAGE, Array, convert_store
from neonlike.kernels.fit_cuda import THREADS, WAVES, divisors, merged, needs_wide
from neonlike.kernels.forms_cuda import Offsets
from neonlike.kernels.layout import Axis
from neonlike.kernels.render import Source
from neonlike.optree.dtypes import DType, compute_dtype


class Moves:
    """The kernels of one stage, in variants by dtypes, rank and order of the axes."""

    def __init__(self, device: Device, comment: str) -> None:
        self.device, self.comment = device, comment
        self.variants: dict[Any, Any] = {}

    def gather(self, source: Any, index: Any, out: Any, axis: int) -> None:
        """Queue ``out[.., j, ..] = source[.., index[j], ..]``; the indices have been checked."""
        axes, at = _axes(out, source, axis, 0)
        limit, step = source.shape[axis], source.strides[axis] // source.itemsize
        head = [math.prod(a.size for a in axes), limit, index.strides[0] // index.itemsize, step]
        wide = needs_wide([*axes, Axis(max(limit, index.shape[0]), False, (step, head[2]))], 2)
        self._launch("gather", [source, index, out], axes, at, head, wide)

    def scatter(self, source: Any, start: Any, slices: Any, out: Any, axis: int) -> None:
        """Queue ``out[.., p, ..]`` = sum of ``source[.., slices[k], ..]`` over the k from start[p] to start[p + 1]."""
        axes, at = _axes(out, source, axis, 0)
        step = source.strides[axis] // source.itemsize
        head = [math.prod(a.size for a in axes), step]
        wide = needs_wide([*axes, Axis(source.shape[axis], False, (step, 1))], 2)
        self._launch("scatter", [source, start, slices, out], axes, at, head, wide)

    def _launch(self, form: str, arrays: list[Any], axes: list[Axis], at: int, head: list[int], wide: bool) -> None:
        source, out = arrays[0], arrays[-1]
        meta = [*head, *divisors([a.size for a in axes], wide), *(a.steps[i] for i in (0, 1) for a in axes)]
        key = (form, source.dtype, arrays[1].dtype, out.dtype, len(axes), at, wide)
        function = self.variants.get(key)
        if function is None:
            kernel = self.source(form, source.dtype, arrays[1].dtype, out.dtype, len(axes), at, wide)
            cubin = build_cubin(kernel, self.device.capabilities.arch)
            function = self.variants[key] = self.device.load(cubin, kernel.name)
        packing = f"={len(arrays)}Q{len(meta)}{'q' if wide else 'i'}"
        arguments = struct.pack(packing, *(a.address for a in arrays), *meta)
        blocks = min(-(-head[0] // THREADS), WAVES * self.device.capabilities.multiprocessors)
        self.device.launch(function, (blocks, 1, 1), (THREADS, 1, 1), 0, arguments)

    def source(
        self, form: str, read: DType, place: DType, written: DType, rank: int, at: int, wide: bool
    ) -> KernelSource:
        """The kernel for arrays of these dtypes, of ``rank`` axes of which number ``at`` is indexed."""
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
            "load": _load(read),
            "result": convert_store("x" if form == "gather" else "sum", value, written),
        }
        if form == "gather":
            context["place_type"] = STORAGE[place.name]
            if read == written:  # elements are copied as they are, whatever they stand for
                context |= {"load": "source[0]", "result": "x", "value_type": STORAGE[read.name]}
        else:
            context["total_type"] = "double" if read.kind == "f" else "uint64_t"
        source = Source(f"cuda/{form}.cu.j2", context)
        return KernelSource(source, source.name, self.comment, headers())


def _load(dtype: DType) -> str:
    if dtype.kind == "f":
        return "nl_f16_to_f32(source[0])" if dtype.itemsize == 2 else "source[0]"
    return "(int64_t)source[0]"


def _axes(out: Any, source: Any, axis: int, by: int) -> tuple[list[Axis], int]:
    """Axes with the steps of ``out`` and ``source``, along the memory of ``out``; and which one is indexed.

    Along that, the step of ``source`` is left out: 0.
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


