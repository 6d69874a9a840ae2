"""DLPack's structures and capsules, by ctypes: https://dmlc.github.io/dlpack/latest/c_api.html, version 1.0 and before.

A capsule holds the address of a structure that describes memory and has a deleter. A consumer renames the capsule and
calls the deleter when it no longer needs the memory; an unconsumed capsule calls it when it is freed.

That may happen while an exception propagates, when no Python code can run: so NumPy creates our capsules, whose
deleters
are C. We write into them what NumPy does not support: memory on a GPU, and bfloat16.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.optree.dtypes import bfloat16
from neonlike.optree.shapes import Shape

CPU, CUDA = 1, 2
"""DLPack codes of device kinds."""
SIGNED, UNSIGNED, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6
"""DLPack codes of element kinds."""
READ_ONLY, IS_COPIED = 1, 2
"""Flags of a versioned structure."""

PLAIN_NAME, VERSIONED_NAME = b"dltensor", b"dltensor_versioned"


class Device(Structure):
    """The structure DLDevice."""

    _fields_ = (("kind", c_int32), ("number", c_int32))


class DataType(Structure):
    """The structure DLDataType."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class TensorStruct(Structure):
    """The structure DLTensor; strides are in elements."""

    _fields_ = (
        ("data", c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


Deleter = ctypes.CFUNCTYPE(None, c_void_p)


class Plain(Structure):
    """The structure DLManagedTensor."""

    _fields_ = (("tensor", TensorStruct), ("context", c_void_p), ("deleter", Deleter))


class Versioned(Structure):
    """The structure DLManagedTensorVersioned."""

    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", Deleter),
        ("flags", c_uint64),
        ("tensor", TensorStruct),
    )


@dataclass(frozen=True)
class Exported:
    """Contents of a capsule: memory on a GPU, and the object that keeps it alive."""

    owner: Any
    address: int
    device: int
    dtype: DataType
    shape: Shape
    strides: Shape
    flags: int


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of Python's C API with a private prototype, since others may have set that of the shared library."""
    found: Callable[..., Any] = ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))
    return found


_valid = _function("PyCapsule_IsValid", c_int32, c_void_p, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", c_void_p, c_void_p, ctypes.c_char_p)

NUMPY_KNOWS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class _Memory:
    """Elements of ``size`` bytes, presented to NumPy as integers; an array of them keeps ``owner`` alive."""

    def __init__(
        self, owner: Any, address: int, size: int, shape: Shape, strides: Shape | None, read_only: bool = False
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(f"u{size}").str,
            "shape": shape,
            "strides": strides and tuple(size * step for step in strides),
            "data": (address, read_only),
        }


def _structure(capsule: Any) -> Plain | Versioned:
    for name, kind in ((VERSIONED_NAME, Versioned), (PLAIN_NAME, Plain)):
        if _valid(id(capsule), name):
            struct: Plain | Versioned = kind.from_address(_pointer(id(capsule), name))
            return struct
    raise BufferError("from_dlpack: expected a fresh capsule, named dltensor or dltensor_versioned")


def export(what: Exported, versioned: bool) -> Any:
    """Create a capsule over ``what``; NumPy before 2.1 creates none with a version."""
    array = np.asarray(_Memory(what.owner, what.address, what.dtype.bits // 8, what.shape, what.strides))
    options: dict[str, Any] = {"max_version": (1, 0)} if versioned and NUMPY_KNOWS_VERSIONS else {}
    capsule = array.__dlpack__(**options)
    struct = _structure(capsule)
    tensor = struct.tensor
    tensor.data, tensor.byte_offset = what.address, 0  # NumPy substitutes the address of an array without elements
    tensor.device, tensor.dtype = Device(CUDA, what.device), what.dtype
    if isinstance(struct, Versioned):
        struct.flags = what.flags
    return capsule


def pointed_to(capsule: Any) -> tuple[TensorStruct, int]:
    """Return the structure and the flags of an unconsumed capsule; valid as long as the capsule lives.

    Keeping the capsule keeps the memory alive: it calls the deleter when it is freed.
    """
    struct = _structure(capsule)
    return struct.tensor, int(getattr(struct, "flags", 0))


def layout_of(tensor: TensorStruct) -> tuple[int, Shape, Shape | None]:
    """Address of the first element, shape, and strides in elements (None in C order)."""
    axes = range(tensor.ndim)
    strides = tuple(tensor.strides[axis] for axis in axes) if tensor.strides else None
    return (tensor.data or 0) + tensor.byte_offset, tuple(tensor.shape[axis] for axis in axes), strides


# bfloat16 on the host ---------------------------------------------------------------------------------------------


_BFLOAT16 = (BFLOAT, 16, 1)


def export_bfloat16(array: npt.NDArray[Any], **options: Any) -> Any:
    """Create a capsule over ``array`` of bfloat16, by NumPy's for another type; options are those of ``__dlpack__``."""
    capsule = array.view(np.uint16).__dlpack__(**options)
    pointed_to(capsule)[0].dtype = DataType(*_BFLOAT16)
    return capsule


def import_bfloat16(other: Any) -> npt.NDArray[Any] | None:
    """Memory of an object with ``__dlpack__`` as a bfloat16 array; None unless it holds bfloat16 in host memory."""
    for options in ({"max_version": (1, 0)}, {}):  # older producers do not know the option
        with contextlib.suppress(AttributeError, TypeError, RuntimeError, BufferError):
            capsule = other.__dlpack__(**options)
            tensor, flags = pointed_to(capsule)
            break
    else:
        return None
    if tensor.device.kind != CPU or (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) != _BFLOAT16:
        return None
    address, shape, strides = layout_of(tensor)
    return np.asarray(_Memory(capsule, address, 2, shape, strides, bool(flags & READ_ONLY))).view(bfloat16())
