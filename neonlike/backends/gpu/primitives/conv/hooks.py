"""Convolution on a GPU, for the hooks of ``ConvFamily``: products of cuBLAS and a few kernels, or one kernel.

``conv/plan.py`` cuts the work, ``conv/program.py``, ``conv/update.py`` and for Winograd's method ``conv/winograd.py``
make steps of it, ``conv/kernels.py`` and ``conv/winograd_kernels.py`` have the kernels. Steps depend on sizes and
dtypes alone, and are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from neonlike import settings
from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.backends.gpu.primitives.calls import Draft, device_call
from neonlike.backends.gpu.primitives.conv.passes import Given
from neonlike.backends.gpu.primitives.conv.program import data_program
from neonlike.backends.gpu.primitives.conv.update import UpdateGiven, update_program
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.gpu.products.blas import Products
from neonlike.backends.primitives.conv.family import ConvFamily
from neonlike.backends.primitives.conv.request import ConvPass, ConvUpdate, Epilogue
from neonlike.errors import ArgumentError
from neonlike.kernels.run.arrays import remember
from neonlike.kernels.run.calls import KernelCall

EDGES = (0, 2, 4)
"""Of tiles that ``enable_winograd`` may allow."""


class ConvCuda(ConvFamily):
    """Overrides of ConvFamily's hooks."""

    device: GpuDevice
    products: Products
    _conv_method: str | None = None

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
        x, b, s = (None if tensor is None else tensor.dtype for tensor in (X, bias, bsum))
        given = Given(target.dtype, x, b, s, method=self.conv_method, winograd=self._largest_tiles)
        read = [None if tensor is None else plain(tensor) for tensor in (source, filters, bias, X)]
        with stored(target, reads and X is None) as out, _stored_or_none(bsum) as sums:
            return self._run_program(data_program, request, given, (*read[:2], out, *read[2:], sums))

    def _update_conv(self, request: ConvUpdate, I: Any, E: Any, grad_F: Any) -> KernelCall | None:  # noqa: E741
        with stored(grad_F, request.beta != 0) as out:
            given = UpdateGiven(I.dtype, grad_F.dtype, method=self.conv_method, winograd=self._largest_tiles)
            return self._run_program(update_program, request, given, (plain(I), plain(E), out))

    def _conv_workspace(self, request: ConvPass | ConvUpdate) -> int:
        """With any tensors besides, of the layer's dtype, and whatever ``enable_winograd`` may become."""
        kind, ways = request.geometry.dtype, [(a, self.conv_method, w) for a in (True, False) for w in EDGES]
        if isinstance(request, ConvUpdate):
            updates = (UpdateGiven(kind, kind, *way) for way in ways)
            return max(update_program(self.device, self.products, request, given).work for given in updates)
        request = ConvPass(request.geometry, request.backward, Epilogue(beta=1.0))
        ends = (None, None), (None, kind), (kind, kind)
        passes = (Given(kind, x, end, end, *way) for x, end in ends for way in ways)
        return max(data_program(self.device, self.products, request, given).work for given in passes)

    @property
    def _largest_tiles(self) -> int:
        """Edge of the largest tiles that ``enable_winograd`` allows."""
        allowed = self.enable_winograd
        if not allowed:
            return 0
        return 4 if allowed is not True and allowed == 4 else 2

    @property
    def conv_method(self) -> str:
        """How convolutions are computed: "auto", the default, "columns", "implicit" or "winograd".

        With "columns" by products of cuBLAS (groups of few channels by a kernel of their own), with "implicit" by one
        kernel that stores no columns, with "auto" by the one that is expected to be fastest; see docs/gpu.md. May
        be set; backends start from the variable ``NEONLIKE_GPU_CONV``. The implicit kernel takes float16, bfloat16 and
        float32 and GPUs from compute capability 8.0 on; all else is computed as with "columns".

        With "winograd" by transformed tiles, as large as ``enable_winograd`` allows, wherever that has a form: float32,
        unless ``product_precision`` rounds it, filters of 3 x 3 without stride, dilation and groups. All else is
        computed as with "auto", which takes this way too, where it is expected to be the fastest.
        """
        if self._conv_method is None:
            self._conv_method = settings.GPU_CONV.get()
        return self._conv_method

    @conv_method.setter
    def conv_method(self, method: str) -> None:
        if method not in settings.CONV_METHODS:
            raise ArgumentError(
                f"conv_method: got {method!r}; one of {', '.join(settings.CONV_METHODS)} is expected"
            )
        self._conv_method = method
        self.executor.replay.clear()  # calls convolve as was set when they were made

    _conv_programs: dict[Any, Draft]

    def _run_program(
        self, make: Callable[..., Draft], request: Any, given: Any, tensors: tuple[Any, ...]
    ) -> KernelCall:
        """Queue what ``make`` gives for the request; the tensors are contiguous."""
        programs = self.__dict__.setdefault("_conv_programs", {})

        def choose(aligned: bool) -> Draft:
            key = (request, given, aligned, self.products.blas.precision)
            found = programs.get(key)
            if found is None:
                made = make(self.device, self.products, request, given._replace(aligned=aligned))
                found = remember(programs, key, made)
            return found

        return device_call(choose, tensors)


def _stored_or_none(tensor: Any) -> Any:
    """As :func:`stored`, of a tensor that need not be there."""
    return nullcontext() if tensor is None else stored(tensor)
