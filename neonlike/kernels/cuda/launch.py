"""CUDA kernels with variants per layout: selection, compilation, loading and launch.

Arguments are packed into one buffer: addresses, numbers, then sizes and steps. The latter depend on the layout alone,
and are cached with the loaded function as a :class:`Launch`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.emit import Kernel, Writer
from neonlike.kernels.codegen.layout import Counter, element_strides
from neonlike.kernels.cuda import forms as forms_cuda
from neonlike.kernels.cuda.compile import load_kernels
from neonlike.kernels.cuda.device import Device, Size3
from neonlike.kernels.cuda.fit import ALIGNMENT, Fit, MapKey, ReduceKey, fit_map, fit_reduce
from neonlike.kernels.cuda.forms import Rounded
from neonlike.kernels.cuda.tickets import tickets_of
from neonlike.kernels.planning.lower import NumberArg
from neonlike.kernels.run.arrays import remember
from neonlike.optree.shapes import Shape

CELL = 8
"""Bytes per partial result."""


class TooManyArguments(KernelCompileError):
    """A kernel exceeds the device's argument size; its stage runs by the fallback."""


class Launch(NamedTuple):
    """Loaded functions with grid and block, launched in order; packing of addresses and numbers; and the rest."""

    steps: tuple[tuple[Any, Size3, Size3], ...]
    pack: Callable[..., bytes]
    tail: bytes
    room: int
    """Bytes of workspace; its address follows the numbers."""


class CudaKernel:
    """The kernel of a stage with its variants.

    Parameters
    ----------
    device : Device
    kernel : Kernel
    axes : tuple of int or None
        Reduced axes; None: elementwise.
    comment : str
        The expression, for messages and kept sources.
    """

    def __init__(self, device: Device, kernel: Kernel, axes: tuple[int, ...] | None, comment: str) -> None:
        self.device, self.kernel, self.axes, self.comment = device, kernel, axes, comment
        self.variants: dict[Any, tuple[list[Any], bool]] = {}
        self._forms: dict[tuple[int, ...], tuple[Kernel, dict[str, Rounded]]] = {(): (kernel, {})}

    def launch_for(self, shape: Shape, arrays: Sequence[Any], aligned: bool, digits: tuple[int, ...] = ()) -> Launch:
        """Launch for ``arrays`` (inputs, then outputs) over the space ``shape``.

        Parameters
        ----------
        aligned : bool
            Whether all arrays start at multiples of ``ALIGNMENT`` bytes.
        digits : tuple of int, optional
            Mantissa bits of stochastic rounding for each output (0: round to nearest).

        Raises
        ------
        KernelCompileError
        """
        if 0 in shape:
            return Launch((), _pack_nothing, b"", 0)
        kernel, rounded = self._form(digits)
        fit = self.fit(shape, arrays, aligned, digits)
        index = "q" if fit.key.wide else "i"
        tail = struct.pack(f"={len(fit.meta)}{index}", *fit.meta)
        room = fit.cells * CELL * forms_cuda.cells_of(kernel) if self._is_split(fit) else 0
        pack = struct.Struct("=" + self._format(kernel, rounded, bool(room))).pack
        if pack.__self__.size + len(tail) > self.device.capabilities.argument_bytes:  # type: ignore[attr-defined]
            raise TooManyArguments(f"{self.comment}: more arguments than a CUDA kernel takes", expression=self.comment)
        functions, counts = self._variant(fit.key, digits)
        if counts:
            tail = struct.pack("=Q", tickets_of(self.device)) + tail
        last = (fit.grid[0], 1, 1)
        steps = [(f, last if name.endswith("_rows") else fit.grid, fit.block) for name, f in functions]
        return Launch(tuple(steps), pack, tail, room)

    def call(
        self, launch: Launch, addresses: Sequence[int], numbers: Sequence[Any], keep: Any = None
    ) -> Callable[[], None]:
        """Return a callable that queues ``launch`` and keeps ``keep`` alive; workspace is allocated now."""
        room = self.device.allocate(launch.room) if launch.room else None
        given = numbers if room is None else (*numbers, room.address)
        arguments = launch.pack(*addresses, *given) + launch.tail
        return partial(self._start, launch.steps, arguments, (room, keep))

    def _start(self, steps: tuple[tuple[Any, Size3, Size3], ...], arguments: bytes, keep: Any) -> None:
        for function, grid, block in steps:
            self.device.launch(function, grid, block, 0, arguments)

    def fit(self, shape: Shape, arrays: Sequence[Any], aligned: bool, digits: tuple[int, ...] = ()) -> Fit:
        """The form for ``arrays``."""
        kernel, rounded = self._form(digits)
        inputs, outputs = arrays[: len(self.kernel.inputs)], arrays[len(self.kernel.inputs) :]
        if self.axes is not None:
            return fit_reduce(shape, self.axes, arrays, len(inputs), aligned)
        counters = [Counter(shape, element_strides(shape, None)) for _ in rounded]
        everything = [*inputs, *counters, *outputs]
        return fit_map(shape, everything, len(kernel.inputs), aligned, self.device.capabilities)

    def source(self, fit: Fit, digits: tuple[int, ...] = ()) -> KernelSource:
        """Source to be compiled for ``fit``."""
        kernel, rounded = self._form(digits)
        if isinstance(fit.key, MapKey):
            source = forms_cuda.elementwise(kernel, fit.key, rounded)
        else:
            source = forms_cuda.reduction(kernel, fit.key)
        return KernelSource(source, source.name, self.comment, source.headers)

    def _form(self, digits: tuple[int, ...]) -> tuple[Kernel, dict[str, Rounded]]:
        form = self._forms.get(digits)
        if form is None:
            named = {output.name: n for output, n in zip(self.kernel.outputs, digits) if n}
            form = self._forms[digits] = forms_cuda.with_rounding(self.kernel, named)
        return form

    def _is_split(self, fit: Fit) -> bool:
        return isinstance(fit.key, ReduceKey) and fit.key.split

    def _format(self, kernel: Kernel, rounded: dict[str, Rounded], room: bool) -> str:
        pointers = sum(array.kind != "counter" for array in [*kernel.inputs, *kernel.outputs])
        seeds = {arg.slot for v in kernel.values if v.spec.name == "rand" if isinstance(arg := v.args[0], NumberArg)}
        unsigned = seeds | {number.slot for number in kernel.numbers if number.ctype == "uint64_t"}
        whole = {number.slot: "Q" if number.slot in unsigned else "q" for number in kernel.numbers}
        numbers = "".join("d" if number.ctype == "double" else whole[number.slot] for number in kernel.numbers)
        draws = f"Q{len(rounded)}q" if rounded else ""
        return f"{pointers}Q{numbers}{draws}{'Q' if room else ''}"

    def _variant(self, key: MapKey | ReduceKey, digits: tuple[int, ...]) -> tuple[list[Any], bool]:
        """Names and loaded functions of a form, compiled on first use; and whether they count blocks."""
        found = self.variants.get((key, digits))
        if found is None:
            kernel = self.source(Fit(key, [], (1, 1, 1), (1, 1, 1)), digits)
            names, counts = [kernel.name], False
            if isinstance(key, ReduceKey) and key.split:
                context = kernel.source.context  # type: ignore[union-attr]
                names = [f"{kernel.name}_pass{i + 1}" for i in range(len(context["levels"]))]
                names += [f"{kernel.name}_finish"] if context["final"].stores else []
                counts = context["tickets"]
                names += [f"{kernel.name}_rows"] if context["row_stores"] and not counts else []
            found = list(zip(names, load_kernels(self.device, kernel, names))), counts
            self.variants[key, digits] = found
        return found


def _pack_nothing(*values: Any) -> bytes:
    return b""


def are_aligned(addresses: Sequence[int]) -> bool:
    """Whether all of ``addresses`` are multiples of ``ALIGNMENT``."""
    bits = 0
    for address in addresses:
        bits |= address
    return not bits & (ALIGNMENT - 1)


def widened(kernel: Kernel, outputs: Sequence[int]) -> Kernel:
    """Copy ``kernel`` with the outputs at these positions stored in their compute dtype."""
    writer = Writer(kernel, "cuda")
    found = list(kernel.outputs)
    for position in outputs:
        found[position] = replace(found[position], dtype=writer.operand(kernel.sinks[position])[1])
    return replace(kernel, outputs=found)


def call_on(
    compiled: CudaKernel,
    launches: dict[Any, Launch],
    shape: Shape,
    arrays: Sequence[Any],
    numbers: Sequence[Any],
    digits: tuple[int, ...] = (),
) -> Callable[[], None]:
    """Return a callable that queues ``compiled`` on ``arrays``; ``launches`` caches launches by layout."""
    addresses = [array.address for array in arrays if not isinstance(array, Counter)]
    aligned = are_aligned(addresses)
    key = (aligned, digits, shape, *[(a.shape, a.strides) for a in arrays])
    launch = launches.get(key)
    if launch is None:
        launch = remember(launches, key, compiled.launch_for(shape, arrays, aligned, digits))
    return compiled.call(launch, addresses, numbers, arrays)
