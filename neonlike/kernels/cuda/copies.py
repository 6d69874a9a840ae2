"""Device copies between arrays of any strides and dtypes, with optional stochastic rounding; fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.kernels.codegen.emit import Array, Kernel, Number
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.launch import CudaKernel
from neonlike.kernels.cuda.step import Call
from neonlike.kernels.planning.lower import LeafArg, NumberArg
from neonlike.optree.dtypes import DType


class Copier:
    """Elementwise kernels without an expression: one per pair of dtypes.

    Parameters
    ----------
    device : Device
    draws : callable
        See :class:`~neonlike.kernels.cuda.queue.Queue`.
    """

    def __init__(self, device: Device, draws: Callable[[int], list[int]]) -> None:
        self.device, self.draws = device, draws
        self.kernels: dict[tuple[DType | None, DType], CudaKernel] = {}

    def ready(self, source: Any, target: Any, digits: int = 0) -> Call:
        """Return a callable that queues ``target[...] = source`` with broadcasting and conversion as in assignments.

        Parameters
        ----------
        source, target : DeviceArray
            They must not overlap.
        digits : int
            Mantissa bits kept by stochastic rounding; 0: round to nearest.
        """
        draws = self.draws(1) if digits else []
        missing = len(target.shape) - len(source.shape)
        shaped = source[(None,) * missing] if missing else source
        compiled = self._kernel(source.dtype, target.dtype)
        return compiled.bind(target.shape, [shaped, target], draws, (digits,) if digits else ())

    def ready_fill(self, target: Any, value: float) -> Call:
        """Return a callable that queues ``target[...] = value``."""
        return self._kernel(None, target.dtype).bind(target.shape, [target], [value])

    def _kernel(self, source: DType | None, target: DType) -> CudaKernel:
        found = self.kernels.get((source, target))
        if found is None:
            kernel: Kernel = _copy_kernel(source, target)
            comment = f"copy {source or 'a number'} to {target}"
            found = self.kernels[source, target] = CudaKernel(self.device, kernel, None, comment)
        return found


def _copy_kernel(source: DType | None, target: DType) -> Kernel:
    """Arguments and result of a copy; ``source`` None: copy of a number."""
    kernel = Kernel(None, None, outputs=[Array("o0", "target", 0, target, ())])  # type: ignore[arg-type]
    if source is None:
        kernel.numbers.append(Number("c0", 0, "double"))
        kernel.sinks.append(NumberArg(0))
    else:
        kernel.inputs.append(Array("a0", "leaf", 0, source, ()))
        kernel.sinks.append(LeafArg(0))
    return kernel
