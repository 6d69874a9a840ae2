"""CUDA routines of compound primitives: a template, its kernel's arguments, and its compiled variants.

The counterpart of ``c/routine.py``. A call is first bound to its arguments, which compiles and loads new variants; the
bound call queues the kernel, and neither allocates nor waits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.codegen.render import TemplateSource, template_text
from neonlike.kernels.cuda.compile import headers, load_kernels
from neonlike.kernels.cuda.device import Device, Size3
from neonlike.kernels.cuda.step import Call, KernelLaunch


class CudaRoutine:
    """A CUDA kernel from a template, with variants.

    Parameters
    ----------
    template : str
        File below ``kernels/templates``, or the text of a template; its kernel is ``extern "C"`` and named ``{{ name
        }}``. It may include the headers of expression kernels.
    arguments : str
        Kernel arguments as codes of the module ``struct``: "Q" an address, "q" an integer, "d" a double.
    title : str
        Description for messages and kept sources.
    more : tuple of str
        Names of additional headers in ``kernels/templates/cuda``.
    """

    def __init__(self, template: str, arguments: str, title: str, more: tuple[str, ...] = ()) -> None:
        self.template, self.title, self.more = template, title, more
        self.pack: Callable[..., bytes] = struct.Struct("@" + arguments).pack
        self.variants: dict[Any, Any] = {}

    def bind(
        self,
        device: Device,
        grid: Size3,
        block: Size3,
        values: Sequence[int | float],
        shared: int = 0,
        keep: Any = None,
        **context: Any,
    ) -> KernelLaunch:
        """The launch of the kernel for ``context`` on ``values``; see :class:`KernelLaunch` for the others.

        Parameters
        ----------
        device : Device
        grid, block : (int, int, int)
        values : sequence of numbers
            As the codes ``arguments`` say.
        shared : int
            Bytes of dynamic shared memory.
        keep : object
            Lives as long as the launch.
        **context : objects
            For the template.

        Raises
        ------
        KernelCompileError
        """
        function = self.variant(device, **context)
        return KernelLaunch(device, function, grid, block, shared, self.pack(*values), keep)

    def bind_together(
        self, device: Device, grid: Size3, block: Size3, values: Sequence[int | float], shared: int, **context: Any
    ) -> Call:
        """Cooperative :meth:`bind`, for a kernel with a single struct parameter and blocks that synchronize.

        Parameters
        ----------
        device, grid, block, values, shared, **context
            As of :meth:`bind`.

        Raises
        ------
        KernelCompileError
        DeviceError
            If the driver lacks such launches.
        """
        function = self.variant(device, **context)
        return device.starts.together(function, grid, block, shared, self.pack(*values))

    def variant(self, device: Device, **context: Any) -> Any:
        """Loaded function for ``context``, compiled on first use."""
        key = (device, *context.items())
        if key not in self.variants:
            kernel = self.source(**context)
            (self.variants[key],) = load_kernels(device, kernel, [kernel.name])
        return self.variants[key]

    def source(self, **context: Any) -> KernelSource:
        """Source to be compiled for ``context``."""
        source = TemplateSource(self.template, context)
        more = {name: template_text(f"cuda/{name}") for name in self.more}
        return KernelSource(source, source.name, self.title, headers() | more, contracts=True)
