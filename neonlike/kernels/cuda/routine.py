"""CUDA of compound primitives: a template, what its kernel takes, and the variants asked for so far.

What ``c/routine.py`` is for C. A call is bound to its arguments first, which compiles and loads what is new; what that
returns queues the kernel, and neither allocates nor waits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.render import TemplateSource, template_text
from neonlike.kernels.cuda.compile import headers, load_kernels
from neonlike.kernels.cuda.device import Device, Size3


class CudaRoutine:
    """The CUDA kernel that a template defines, in variants.

    Parameters
    ----------
    template : str
        File below ``kernels/templates``, or the text of one; its kernel is ``extern "C"`` and called ``{{ name }}``.
        It may include the headers of the kernels of expressions.
    arguments : str
        What the kernel takes, as codes of the module ``struct``: "Q" an address, "q" a whole number, "d" a double.
    title : str
        What it computes, for messages and kept sources.
    more : tuple of str
        Names of headers in ``kernels/templates/cuda`` that it includes besides.
    """

    def __init__(self, template: str, arguments: str, title: str, more: tuple[str, ...] = ()) -> None:
        self.template, self.title, self.more = template, title, more
        self.pack: Callable[..., bytes] = struct.Struct("@" + arguments).pack
        self.variants: dict[Any, Any] = {}

    def bind(
        self, device: Device, grid: Size3, block: Size3, values: Sequence[int | float], shared: int = 0, **context: Any
    ) -> Callable[[], None]:
        """A callable that queues the kernel for ``context`` on ``values``; see ``Device.launch`` for the sizes.

        Raises
        ------
        KernelCompileError
        """
        function = self.variant(device, **context)
        return partial(device.launch, function, grid, block, shared, self.pack(*values))

    def bind_together(
        self, device: Device, grid: Size3, block: Size3, values: Sequence[int | float], shared: int, **context: Any
    ) -> Callable[[], None]:
        """As :meth:`bind`, for a kernel of one parameter, a struct of all values, whose blocks wait for each other.

        Raises
        ------
        KernelCompileError
        DeviceError
            If the driver has no such launches.
        """
        function = self.variant(device, **context)
        return device.starts.together(function, grid, block, shared, self.pack(*values))

    def variant(self, device: Device, **context: Any) -> Any:
        """The loaded function for ``context``, compiled when it is first asked for."""
        key = (device, *context.items())
        if key not in self.variants:
            kernel = self.source(**context)
            (self.variants[key],) = load_kernels(device, kernel, [kernel.name])
        return self.variants[key]

    def source(self, **context: Any) -> KernelSource:
        """The source that is compiled for ``context``."""
        source = TemplateSource(self.template, context)
        more = {name: template_text(f"cuda/{name}") for name in self.more}
        return KernelSource(source, source.name, self.title, headers() | more, contracts=True)
