"""Convolution on a GPU, for the hooks of ``families/conv.py``: products of cuBLAS, and a few kernels around them.

``conv/plan.py`` cuts the work, ``conv/program.py`` and ``conv/update.py`` make steps of it, ``conv/kernels.py`` has the
kernels. Steps depend on sizes and dtypes alone, and are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from neonlike.backends.families.conv import ConvFamily
from neonlike.backends.families.conv_request import ConvPass, ConvUpdate, Epilogue
from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.backends.gpu.primitives.calls import Program, device_call
from neonlike.backends.gpu.primitives.conv.program import Given, data_program
from neonlike.backends.gpu.primitives.conv.update import UpdateGiven, update_program
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.gpu.products.blas import Products
from neonlike.kernels.run.arrays import remember
from neonlike.kernels.run.calls import KernelCall


class ConvCuda(ConvFamily):
    """Overrides of ConvFamily's hooks."""

    device: GpuDevice
    products: Products

    def _conv(
        self,
        request: ConvPass,
        source: Any,
        filters: Any,
        target: Any,
        bias: Any = None,
        X: Any = None,
        bsum: Any = None,
    ) -> KernelCall | None:
        reads = request.epilogue.reads_x
        if X is not None and (not reads or X.alias_of(target) == 1):
            X = None
        given = Given(target.dtype, *(None if tensor is None else tensor.dtype for tensor in (X, bias, bsum)))  # type: ignore[arg-type]
        read = [None if tensor is None else plain(tensor) for tensor in (source, filters, bias, X)]
        with stored(target, reads and X is None) as out, _stored_or_none(bsum) as sums:
            return self._run_program(data_program, request, given, (*read[:2], out, *read[2:], sums))

    def _update_conv(self, request: ConvUpdate, I: Any, E: Any, grad_F: Any) -> KernelCall | None:  # noqa: E741
        with stored(grad_F, request.beta != 0) as out:
            given = UpdateGiven(I.dtype, grad_F.dtype)
            return self._run_program(update_program, request, given, (plain(I), plain(E), out))

    def _conv_workspace(self, request: ConvPass | ConvUpdate) -> int:
        """With any tensors besides, of the layer's dtype."""
        kind = request.geometry.dtype
        if isinstance(request, ConvUpdate):
            return update_program(self.device, self.products, request, UpdateGiven(kind, kind)).work
        request = ConvPass(request.geometry, request.backward, Epilogue(beta=1.0))
        givens = Given(kind), Given(kind, None, kind, kind), Given(kind, kind, kind, kind)
        return max(data_program(self.device, self.products, request, given).work for given in givens)

    _conv_programs: dict[Any, Program]

    def _run_program(
        self, make: Callable[..., Program], request: Any, given: Any, tensors: tuple[Any, ...]
    ) -> KernelCall:
        """Queue what ``make`` gives for the request; the tensors are contiguous."""
        programs = self.__dict__.setdefault("_conv_programs", {})

        def choose(aligned: bool) -> Program:
            key = (request, given, aligned, self.products.blas.precision)
            found = programs.get(key)
            if found is None:
                made = make(self.device, self.products, request, given._replace(aligned=aligned))
                found = remember(programs, key, made.ready())
            return found

        return device_call(choose, tensors)


def _stored_or_none(tensor: Any) -> Any:
    """As :func:`stored`, of a tensor that need not be there."""
    return nullcontext() if tensor is None else stored(tensor)
