"""Scaled dot-product attention on a GPU, for the hooks of ``AttentionFamily``.

Forward, a block has some queries of a head and goes over the keys; what it remembers of them is a sum and a maximum a
query. Backward there are two kernels, which compute the weights again: one of blocks of queries, for their gradient,
and one of blocks of keys, for those of keys and values. So no gradient is added up by several blocks, no sum is atomic,
and memory grows with the queries alone. How sums are ordered follows from sizes, dtype and ``product_precision``.

float16, bfloat16 and, where ``product_precision`` allows it, TF32 are multiplied by tensor cores; then weights, and
gradients of scores, are rounded to that type as factors. Nothing of this has been timed.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

from neonlike import settings
from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.backends.gpu.primitives.attention_plan import DECLARED, LINED, LSE, Lines, attention_program, form
from neonlike.backends.gpu.primitives.calls import Draft, device_call
from neonlike.backends.gpu.primitives.conv.program import has_copies
from neonlike.backends.gpu.primitives.operands import plain, stored
from neonlike.backends.gpu.products.blas import Products
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.backends.primitives.attention.family import AttentionFamily
from neonlike.kernels.cuda.fit import ALIGNMENT
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import DType


class AttentionCuda(AttentionFamily):
    """Overrides of AttentionFamily's hooks."""

    device: GpuDevice
    products: Products

    def _fprop_attention(
        self, request: AttentionPass, Q: Any, K: Any, V: Any, O: Any, lse: Any  # noqa: E741
    ) -> KernelCall | None:
        if not self._has_attention(request, Q.dtype):
            return super()._fprop_attention(request, Q, K, V, O, lse)
        with ExitStack() as ends:
            operands = [*map(_lined, (Q, K, V)), ends.enter_context(_lined_to_store(O))]
            sums = None if lse is None else ends.enter_context(stored(lse))
            return self._attend(request, (*operands, sums), (Q, K, V, O))

    def _bprop_attention(
        self,
        request: AttentionPass,
        Q: Any,
        K: Any,
        V: Any,
        O: Any,  # noqa: E741
        lse: Any,
        E: Any,
        dQ: Any,
        dK: Any,
        dV: Any,
    ) -> KernelCall | None:
        if not self._has_attention(request, Q.dtype):
            return super()._bprop_attention(request, Q, K, V, O, lse, E, dQ, dK, dV)
        with ExitStack() as ends:
            results = [ends.enter_context(_lined_to_store(tensor)) for tensor in (dQ, dK, dV)]
            operands = (*map(_lined, (Q, K, V, O)), plain(lse), _lined(E), *results)
            return self._attend(request, operands, (Q, K, V, O, E, dQ, dK, dV))

    def _attention_workspace(self, request: AttentionPass) -> int:
        if not self._has_attention(request, request.layer.dtype):
            return super()._attention_workspace(request)
        count = len(LINED[request.backward])
        precision = self.products.blas.precision
        return attention_program(self.device, precision, request, request.layer.dtype, [(0, 0, 0)] * count).work

    def _has_attention(self, request: AttentionPass, dtype: DType) -> bool:
        """Whether there are kernels for it that this GPU can run."""
        forms = [form(request, dtype, self.products.blas.precision, own) for own in ("queries", "keys")]
        most = self.device.capabilities.shared_bytes_optin - DECLARED
        able = has_copies(self.device) and settings.GPU_ATTENTION.get()
        return able and all(found is not None and found.shared <= most for found in forms)

    def _attend(
        self, request: AttentionPass, operands: tuple[Any, ...], tensors: tuple[Any, ...]
    ) -> KernelCall | None:
        """Queue the kernels; returns what may be kept, of tensors without gaps, of which their bytes tell the end."""
        lined = [operands[slot] for slot in LINED[request.backward]]
        dtype, steps = lined[0].dtype, [_steps(tensor) for tensor in lined]
        whole = ALIGNMENT // dtype.itemsize
        layer = request.layer
        even = not any(n % whole for n in (layer.size, layer.value_size, *(n for each in steps for n in each)))

        def choose(aligned: bool) -> Draft:
            wide, sums = aligned and even, operands[LSE] is not None
            return attention_program(self.device, self.products.blas.precision, request, dtype, steps, wide, sums)

        call = device_call(choose, operands)
        return call if all(tensor.is_contiguous for tensor in tensors) else None

def _is_lined(tensor: Any) -> bool:
    """Whether the elements of a line follow each other."""
    return bool(tensor.shape[-1] == 1 or tensor.array.strides[-1] == tensor.dtype.itemsize)


def _lined(tensor: Any) -> Any:
    """``tensor``, or a copy with lines of elements that follow each other; to be read."""
    return tensor if _is_lined(tensor) else plain(tensor)


def _lined_to_store(tensor: Any) -> Any:
    """The same to be written; a context, as :func:`stored`."""
    return nullcontext(tensor) if _is_lined(tensor) else stored(tensor)


def _steps(tensor: Any) -> Lines:
    """Distances between the lines of ``tensor``."""
    strides = [stride // tensor.dtype.itemsize for stride in tensor.array.strides]
    outer, inner, line = [0, 0, *strides[:-1]][-3:]
    return outer, inner, line
