"""Parts of kernels for a step and for all steps of a recurrent layer: its arrays, and the context of templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.backends.gpu.products.blas import Products
from neonlike.backends.primitives.rnn.steps import Unroll
from neonlike.kernels.codegen.emit import STORAGE, convert_store, load_element
from neonlike.optree.dtypes import DType, compute_dtype

NUMBERS = 8
"""Most numbers in the formulas of the activations."""
THREADS = 128
"""Of a block of a kernel of one step."""


class Layer(NamedTuple):
    """The arrays of an unroll: those of each step by role, weight, and bias (None: there is none)."""

    device: GpuDevice
    products: Products
    request: Unroll
    roles: dict[str, list[DeviceArray | None]]
    weight: DeviceArray
    bias: DeviceArray | None

    def each(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """The arrays of the roles ``names``, step after step."""
        return zip(*[self.roles[name] for name in names])


def variant(dtype: DType) -> dict[str, Any]:
    """The context of templates for tensors of ``dtype``."""
    computed = compute_dtype(dtype)
    return {
        "real": STORAGE[computed.name], "stored": STORAGE[dtype.name], "load": load_element("(x)", dtype),
        "store": convert_store("(x)", computed, dtype), "real_size": computed.itemsize, "stored_size": dtype.itemsize,
        "numbers": NUMBERS, "threads": THREADS,
    }  # fmt: skip


def padded(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """``numbers`` as kernels take them."""
    return (*numbers, *[0.0] * (NUMBERS - len(numbers)))


def rows_of(array: DeviceArray | None) -> tuple[int, int]:
    """Address and elements from row to row."""
    return (0, 0) if array is None else (array.address, array.strides[0] // array.itemsize)
