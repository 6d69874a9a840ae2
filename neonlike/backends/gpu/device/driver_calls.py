"""Functions of the CUDA driver that PyCUDA has not, through ctypes: in the library that PyCUDA loaded."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import pycuda.driver as driver

NAME = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
HANDLE = ctypes.c_void_p

_TYPES: dict[str, tuple[Any, ...]] = {
    "cuCtxGetCurrent": (HANDLE,),
    "cuDeviceGet": (HANDLE, ctypes.c_int),
    "cuDeviceGetAttribute": (HANDLE, ctypes.c_int, ctypes.c_int),
    "cuEventCreate": (HANDLE, ctypes.c_uint),
    "cuEventRecord": (HANDLE, HANDLE),
    "cuEventDestroy_v2": (HANDLE,),
    "cuStreamWaitEvent": (HANDLE, HANDLE, ctypes.c_uint),
    "cuStreamBeginCapture_v2": (HANDLE, ctypes.c_int),
    "cuStreamEndCapture": (HANDLE, HANDLE),
    "cuGraphInstantiateWithFlags": (HANDLE, HANDLE, ctypes.c_ulonglong),
    "cuGraphGetNodes": (HANDLE, HANDLE, HANDLE),
    "cuGraphLaunch": (HANDLE, HANDLE),
    "cuGraphDestroy": (HANDLE,),
    "cuGraphExecDestroy": (HANDLE,),
    "cuModuleLoadData": (HANDLE, ctypes.c_char_p),
    "cuModuleGetFunction": (HANDLE, HANDLE, ctypes.c_char_p),
    "cuFuncSetAttribute": (HANDLE, ctypes.c_int, ctypes.c_int),
    "cuLaunchCooperativeKernel": (HANDLE, *[ctypes.c_uint] * 7, HANDLE, HANDLE),
}
"""What each takes; all return a status."""


@cache
def function(name: str) -> Any:
    """The function ``name``, which returns a status; other users of the loaded library do not see its types.

    Raises
    ------
    pycuda.driver.LogicError
        If the driver is older than the function.
    """
    try:
        return ctypes.CFUNCTYPE(ctypes.c_int, *_TYPES[name])((name, ctypes.CDLL(NAME)))
    except (AttributeError, OSError) as error:
        raise driver.LogicError(f"{name}: this driver does not have it ({error})") from error


def place(name: str) -> int:
    """The address of the function ``name``, for C.

    Raises
    ------
    pycuda.driver.LogicError
        If the driver is older than the function.
    """
    try:
        return ctypes.cast(getattr(ctypes.CDLL(NAME), name), HANDLE).value or 0
    except (AttributeError, OSError) as error:
        raise driver.LogicError(f"{name}: this driver does not have it ({error})") from error


def call(name: str, *arguments: Any) -> None:
    """Call the function ``name``.

    Raises
    ------
    pycuda.driver.LogicError
        With its words, if it fails.
    """
    if status := function(name)(*arguments):
        raise error_of(name, status)


def error_of(name: str, status: int) -> driver.LogicError:
    """The error that says in the driver's words why ``name`` returned ``status``."""
    text = ctypes.c_char_p()
    ctypes.CDLL(NAME).cuGetErrorString(status, ctypes.byref(text))
    return driver.LogicError(f"{name} failed: {(text.value or b'unknown error').decode(errors='replace')}")


def current_context() -> int:
    """The context that the driver takes for current in this thread, whoever made it so; 0: none."""
    found = HANDLE()
    call("cuCtxGetCurrent", ctypes.addressof(found))
    return found.value or 0
