"""CUDA kernels with variants per layout: selection, compilation, loading, and their programs.

Arguments are packed into one buffer: addresses, numbers, working memory, then sizes and steps. The latter depend on the
layout alone; a program has them packed, with the loaded functions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.emit import Kernel, Writer
from neonlike.kernels.codegen.layout import Counter, element_strides
from neonlike.kernels.cuda import forms as forms_cuda
from neonlike.kernels.cuda.compile import load_kernels
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.fit import ALIGNMENT, Fit, MapKey, ReduceKey, fit_map, fit_reduce
from neonlike.kernels.cuda.forms import Rounded
from neonlike.kernels.cuda.step import Call, KernelLaunch, Runner
from neonlike.kernels.cuda.tickets import tickets_of
from neonlike.kernels.planning.lower import NumberArg
from neonlike.kernels.run.arrays import remember
from neonlike.kernels.run.program import Program
from neonlike.optree.shapes import Shape

CELL = 8
"""Bytes per partial result."""


class TooManyArguments(KernelCompileError):
    """A kernel exceeds the device's argument size; its stage runs by the fallback."""


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

    Attributes
    ----------
    runners : dict
        Runners of its programs, by keys of layouts.
    """

    def __init__(self, device: Device, kernel: Kernel, axes: tuple[int, ...] | None, comment: str) -> None:
        self.device, self.kernel, self.axes, self.comment = device, kernel, axes, comment
        self.runners: dict[Any, Runner] = {}
        self.variants: dict[Any, tuple[list[Any], bool]] = {}
        self._forms: dict[tuple[int, ...], tuple[Kernel, dict[str, Rounded]]] = {(): (kernel, {})}

    def bind(
        self, shape: Shape, arrays: Sequence[Any], numbers: Sequence[Any], digits: tuple[int, ...] = ()
    ) -> Call:
        """A callable that queues the kernel on ``arrays``, which it keeps alive; workspace is allocated now.

        Parameters
        ----------
        shape : tuple of int
            Of the space.
        arrays : sequence
            Arrays and counters: inputs, then outputs.
        numbers : sequence of numbers
        digits : tuple of int
            As of :meth:`program`.
        """
        addresses = [array.address for array in arrays if not isinstance(array, Counter)]
        aligned = are_aligned(addresses)
        key = (aligned, digits, shape, *[(a.shape, a.strides) for a in arrays])
        found = self.runners.get(key) or self.learn(key, shape, arrays, aligned, digits)
        return found.bind(addresses, numbers, arrays)

    def learn(
        self, key: Any, shape: Shape, arrays: Sequence[Any], aligned: bool, digits: tuple[int, ...] = ()
    ) -> Runner:
        """The runner of :meth:`program`, remembered as ``key``.

        Parameters
        ----------
        key : hashable
        shape, arrays, aligned, digits
            As of :meth:`program`.
        """
        return remember(self.runners, key, Runner(self.device, self.program(shape, arrays, aligned, digits)))

    def program(self, shape: Shape, arrays: Sequence[Any], aligned: bool, digits: tuple[int, ...] = ()) -> Program:
        """The program for ``arrays`` (inputs, then outputs) over the space ``shape``: its operands, in their order.

        Parameters
        ----------
        shape : tuple of int
        arrays : sequence of arrays and counters
        aligned : bool
            Whether all arrays start at multiples of ``ALIGNMENT`` bytes.
        digits : tuple of int, optional
            Mantissa bits of stochastic rounding for each output (0: round to nearest).

        Raises
        ------
        KernelCompileError
        """
        if 0 in shape:
            return Program((), 0, 0, on_device=True)
        kernel, rounded = self._form(digits)
        fit = self.fit(shape, arrays, aligned, digits)
        index = "q" if fit.key.wide else "i"
        tail = struct.pack(f"={len(fit.meta)}{index}", *fit.meta)
        room = fit.cells * CELL * forms_cuda.cells_of(kernel) if self._is_split(fit) else 0
        pointers, numbers = self._codes(kernel, rounded)
        head = struct.Struct(f"={pointers}Q{numbers}{'Q' if room else ''}")
        if head.size + len(tail) > self.device.capabilities.argument_bytes:
            raise TooManyArguments(f"{self.comment}: more arguments than a CUDA kernel takes", expression=self.comment)
        functions, counts = self._variant(fit.key, digits)
        if counts:
            tail = struct.pack("=Q", tickets_of(self.device)) + tail
        last = (fit.grid[0], 1, 1)
        grids = [last if name.endswith("_rows") else fit.grid for name, _ in functions]
        steps = [
            KernelLaunch(self.device, function, grid, fit.block, 0, tail, None, None, head.pack)
            for grid, (_, function) in zip(grids, functions)
        ]
        return Program(tuple(steps), pointers, len(numbers), room, on_device=True)

    def fit(self, shape: Shape, arrays: Sequence[Any], aligned: bool, digits: tuple[int, ...] = ()) -> Fit:
        """The form for ``arrays``.

        Parameters
        ----------
        shape, arrays, aligned, digits
            As of :meth:`program`.
        """
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

    def _codes(self, kernel: Kernel, rounded: dict[str, Rounded]) -> tuple[int, str]:
        """The number of addresses, and the codes of numbers as ``struct`` packs them."""
        pointers = sum(array.kind != "counter" for array in [*kernel.inputs, *kernel.outputs])
        seeds = {arg.slot for v in kernel.values if v.spec.name == "rand" if isinstance(arg := v.args[0], NumberArg)}
        unsigned = seeds | {number.slot for number in kernel.numbers if number.ctype == "uint64_t"}
        whole = {number.slot: "Q" if number.slot in unsigned else "q" for number in kernel.numbers}
        numbers = "".join("d" if number.ctype == "double" else whole[number.slot] for number in kernel.numbers)
        draws = "Q" + "q" * len(rounded) if rounded else ""
        return pointers, numbers + draws

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
