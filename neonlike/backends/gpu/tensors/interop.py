"""Sharing of device memory with CuPy, PyTorch, JAX, Numba without copies, by ``__cuda_array_interface__`` and DLPack.

The specifications: https://numba.readthedocs.io (CUDA Array Interface, version 3) and https://dmlc.github.io/dlpack.
The driver orders our stream and its default stream: each waits for work queued earlier on the other. Streams created
not to synchronize with the default stream, such as XLA's, are ordered by events: where a library names its stream, and
by ``be.wait_for``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pycuda.driver as driver

from neonlike.backends.dlpack import (
    BFLOAT,
    BOOL,
    CUDA,
    FLOAT,
    IS_COPIED,
    READ_ONLY,
    SIGNED,
    UNSIGNED,
    DataType,
    Exported,
    export,
    layout_of,
    pointed_to,
)
from neonlike.backends.gpu.device import driver_calls
from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.backends.gpu.memory.foreign import ForeignMemory
from neonlike.checks import brief
from neonlike.errors import DTypeError
from neonlike.optree.dtypes import BFLOAT16, DType, as_dtype
from neonlike.optree.shapes import contiguous_strides

LEGACY_STREAM = 1
"""Value of both protocols for the driver's default stream, which waits for ours; in DLPack None means the same."""

DISABLE_TIMING = 2
"""CU_EVENT_DISABLE_TIMING: the event is for ordering streams only."""

_CODES = {"f": FLOAT, "i": SIGNED, "u": UNSIGNED, "b": BOOL, "V": BFLOAT}
_KINDS = {code: kind for kind, code in _CODES.items()}


class _Holder(driver.PointerHolderBase):  # type: ignore[misc]
    """An address in PyCUDA's form."""

    def __init__(self, array: DeviceArray) -> None:
        super().__init__()
        self.array = array

    def get_pointer(self) -> int:
        """Address for PyCUDA."""
        return self.array.address


def as_buffer(array: DeviceArray) -> Any:
    """Wrap the memory of a contiguous array in a buffer of device addresses."""
    return _Holder(array).as_buffer(array.nbytes)


def stream_of(other: Any) -> int:
    """Driver handle of a stream from PyTorch, CuPy, Numba or PyCUDA, one with ``__cuda_stream__``, or a number.

    Raises
    ------
    DTypeError
        If it is not a stream.
    """
    found = other
    if callable(protocol := getattr(other, "__cuda_stream__", None)):
        found = protocol()[1]
    else:
        for name in ("cuda_stream", "ptr", "handle"):
            found = getattr(found, name, found)
        found = getattr(found, "value", found)  # Numba's is a ctypes.c_void_p
        found = 0 if found is None and other is not None else found  # None for the default stream
    if isinstance(found, bool) or not isinstance(found, (int, np.integer)) or found < 0:
        raise DTypeError(
            f"wait_for: a stream is that of PyTorch, CuPy, Numba or PyCUDA, or the driver's handle, got {brief(other)}"
        )
    return int(found)


def follow(device: GpuDevice, first: int, then: int) -> None:
    """Make work queued on the stream ``then`` from now on run after work queued so far on ``first``.

    Parameters
    ----------
    device : GpuDevice
    first, then : int
        Driver handles of streams of the device, ours or another library's (0: the default stream).
    """
    device.attend_uncaptured("wait for a stream")
    event = driver_calls.HANDLE()
    try:
        driver_calls.call("cuEventCreate", ctypes.addressof(event), DISABLE_TIMING)
        try:
            driver_calls.call("cuEventRecord", event, first)
            driver_calls.call("cuStreamWaitEvent", then, event, 0)
        finally:
            driver_calls.call("cuEventDestroy_v2", event)  # the driver frees it after it was reached
    except driver.Error as error:
        device.fail("wait for a stream", error)


# Export -------------------------------------------------------------------------------------------------------------


def lend(array: DeviceArray) -> None:
    """Make the pool wait for all streams before it reuses this memory."""
    memory = array.memory
    if memory is not None and getattr(memory, "ours", False):
        memory.lent = True  # type: ignore[attr-defined]


def cuda_array_interface(device: GpuDevice, array: DeviceArray) -> dict[str, Any]:
    """The ``__cuda_array_interface__`` of a tensor with the elements ``array``.

    Raises
    ------
    DTypeError
        If it holds bfloat16.
    """
    if array.dtype.kind == "V":
        raise DTypeError("__cuda_array_interface__ has no type for bfloat16; use DLPack: from_dlpack(t) of the library")
    lend(array)
    return {
        "version": 3,
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.address if array.size else 0, False),
        "strides": None if array.c_contiguous else array.strides,
        "stream": device.stream.handle,
    }


def check_device(device: GpuDevice, where: Any) -> None:
    """Raise BufferError if DLPack requests memory on a device other than ``device``; None: any device."""
    if where is not None and tuple(where) != (CUDA, device.number):
        raise BufferError(f"dlpack: the tensor is on GPU {device.number}, not on device {tuple(where)}; use get()")


def to_dlpack(device: GpuDevice, array: DeviceArray, owner: Any, stream: Any, version: Any, copied: bool) -> Any:
    """Create a DLPack capsule over ``array``.

    Parameters
    ----------
    device : GpuDevice
    array : DeviceArray
    owner : object
        Keeps the memory alive; lives as long as the capsule.
    stream : int or None
        The consumer's stream, which waits for queued work.
    version : tuple of int or None
        The newest version that the consumer supports.
    copied : bool
        Whether the memory is a copy for the consumer.
    """
    lend(array)
    if stream not in (None, -1, LEGACY_STREAM, device.stream.handle):
        follow(device, device.stream.handle, int(stream))
    size = array.dtype.itemsize
    what = Exported(
        owner=owner,
        address=array.address,
        device=device.number,
        dtype=DataType(_CODES[array.dtype.kind], 8 * size, 1),
        shape=array.shape,
        strides=tuple(step // size for step in array.strides),
        flags=IS_COPIED if copied else 0,
    )
    return export(what, versioned=version is not None and tuple(version) >= (1, 0))


# Import -------------------------------------------------------------------------------------------------------------


def from_dlpack(device: GpuDevice, other: Any) -> tuple[DeviceArray, bool]:
    """Memory of an object with ``__dlpack__``, and whether it is read-only.

    Raises
    ------
    DTypeError
        If it is not on ``device``, or of a dtype that tensors cannot hold.
    """
    name = type(other).__name__
    where = tuple(int(part) for part in other.__dlpack_device__())
    if where != (CUDA, device.number):
        raise DTypeError(f"from_dlpack: {name} is on device {where}, not on GPU {device.number}; copy with be.array")
    device.attend()
    stream = device.stream.handle
    try:
        capsule = other.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:  # an older producer
        capsule = other.__dlpack__(stream=stream)
    tensor, flags = pointed_to(capsule)
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    if code not in _KINDS or lanes != 1 or bits % 8:
        raise DTypeError(f"from_dlpack: tensors cannot hold what {name} does: DLPack's type ({code}, {bits}, {lanes})")
    name_of = BFLOAT16 if (code, bits) == (BFLOAT, 16) else f"{_KINDS[code]}{bits // 8}"
    dtype = as_dtype(name_of, "from_dlpack")
    address, shape, steps = layout_of(tensor)
    size = dtype.itemsize
    strides = contiguous_strides(shape, size) if steps is None else tuple(step * size for step in steps)
    return _foreign(device, address, shape, strides, dtype, capsule), bool(flags & READ_ONLY)


def from_cuda_array(device: GpuDevice, other: Any) -> tuple[DeviceArray, bool]:
    """Memory of an object with ``__cuda_array_interface__``, and whether it is read-only.

    Raises
    ------
    DTypeError
        If it is masked, or of a dtype that tensors cannot hold.
    """
    given = other.__cuda_array_interface__
    if given.get("mask") is not None:
        raise DTypeError(f"wrap: {type(other).__name__} is masked; fill in its values first")
    if given["typestr"][1:] == "V2":
        raise DTypeError("wrap: elements of two bytes and no type, as bfloat16 is given out; use be.from_dlpack")
    dtype = as_dtype(given["typestr"], "wrap")
    if not np.dtype(given["typestr"]).isnative:
        raise DTypeError(f"wrap: {type(other).__name__} has elements of another byte order, {given['typestr']}")
    shape = tuple(given["shape"])
    address, read_only = given["data"]
    device.attend()
    if given.get("stream") not in (None, LEGACY_STREAM, device.stream.handle):
        follow(device, int(given["stream"]), device.stream.handle)
    strides = given.get("strides")
    steps = contiguous_strides(shape, dtype.itemsize) if strides is None else tuple(strides)
    return _foreign(device, int(address), shape, steps, dtype, other), bool(read_only)


def _foreign(
    device: GpuDevice, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, owner: Any
) -> DeviceArray:
    array = DeviceArray(None, address, shape, strides, dtype)
    low, high = array.bounds
    if address % dtype.itemsize or any(step % dtype.itemsize for step in strides):
        raise DTypeError(f"the elements of {array} do not lie at multiples of their size; copy it first")
    array.memory = ForeignMemory(device, low, high - low, owner)
    return array
