"""Work queue of an engine: a device with its memory, and calls shared by stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from neonlike.kernels.cuda.copies import Copier
from neonlike.kernels.cuda.device import Device
from neonlike.kernels.cuda.gemm import Gemm
from neonlike.kernels.cuda.step import Call
from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.run.stage import Run
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape, contiguous_strides


class Multiplier(Protocol):
    """A matrix multiplier: a library's, or our own (see :class:`~neonlike.kernels.cuda.gemm.Gemm`)."""

    def ready(self, a: Any, b: Any, out: Any, dtype: DType) -> Call | None:
        """Return a callable that queues ``out[...] = a @ b``, summed in ``dtype``; None for unsupported arrays.

        Parameters
        ----------
        a, b, out : DeviceArray (m, k), (k, n), (m, n)
        dtype : dtype
        """
        ...


class Queue:
    """The stream of a device, which runs work in queueing order; each engine has one.

    Parameters
    ----------
    device : Device
    draws : callable
        ``draws(n)`` returns the key of the random stream and n unused call numbers.
    product : Multiplier, optional
        Used first for each matrix product; our own kernel handles unsupported arrays.
    """

    def __init__(self, device: Device, draws: Callable[[int], list[int]], product: Multiplier | None = None) -> None:
        self.device, self.draws = device, draws
        self.copier = Copier(device, draws)
        self.gemm = Gemm(device)
        self.products: list[Multiplier] = [self.gemm] if product is None else [product, self.gemm]

    def empty(self, shape: Shape, dtype: DType) -> Any:
        """Allocate a contiguous array with undefined contents."""
        strides = contiguous_strides(shape, dtype.itemsize)
        size = shape[0] * strides[0] if shape else dtype.itemsize
        memory = self.device.allocate(max(size, 1))
        return self.device.view(memory, memory.address, shape, strides, dtype)

    def copy(self, source: Any, target: Any, digits: int = 0) -> Call:
        """Return a callable that queues ``target[...] = source``; see :meth:`Copier.ready`.

        Parameters
        ----------
        source, target : DeviceArray
        digits : int
            Mantissa bits of stochastic rounding; 0: to nearest.
        """
        return self.copier.ready(source, target, digits)

    def fill(self, target: Any, value: float) -> Call:
        """Return a callable that queues ``target[...] = value``."""
        return self.copier.ready_fill(target, value)

    def product(self, a: Any, b: Any, out: Any, dtype: DType) -> Call:
        """Return a callable that queues ``out[...] = a @ b``, summed in ``dtype``.

        Parameters
        ----------
        a, b, out : DeviceArray (m, k), (k, n), (m, n)
        dtype : dtype
        """
        for product in self.products:
            call = product.ready(a, b, out, dtype)
            if call is not None:
                return call
        raise AssertionError("our own kernel takes every product")


class DeviceRun(Run):
    """A run with temporaries on a device."""

    __slots__ = ("queue",)

    def __init__(self, graph: Graph, queue: Queue) -> None:
        super().__init__(graph)
        self.queue = queue

    def empty(self, shape: Shape, dtype: DType) -> Any:
        """Allocate a temporary on the device; see ``Run.empty``."""
        return self.queue.empty(shape, dtype)
