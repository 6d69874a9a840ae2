"""Launches that PyCUDA has not: started without Python by the extension that replays assignments, and cooperative ones.

PyCUDA does not show the handles of its functions, so the driver is asked again for those that are started in this way.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pycuda.driver as driver

from neonlike.backends.gpu.device import driver_calls
from neonlike.backends.gpu.device.contexts import here
from neonlike.backends.gpu.device.driver_calls import HANDLE
from neonlike.kernels.cuda.device import Size3
from neonlike.kernels.cuda.step import KernelLaunch
from neonlike.logger import logger

COOPERATIVE_LAUNCH, MAX_DYNAMIC_SHARED_SIZE_BYTES = 95, 8
"""The driver's numbers of an attribute of devices and of one of functions."""


class Starts:
    """The launches of ``device`` as data.

    Attributes
    ----------
    paused : ctypes.c_int32
        Not 0 while a graph is captured: nothing is started then.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.paused = ctypes.c_int32(0)
        self._functions: dict[tuple[bytes, str], int] = {}

    def block(self, steps: Sequence[KernelLaunch], tail: bytes) -> Any:
        """A ``struct nl_device`` (fastpath_device.h) as a ctypes array; None if the driver does not say what it takes.

        Parameters
        ----------
        steps : sequence of KernelLaunch
            Launches of kernels that take the same arguments.
        tail : bytes
            What follows addresses and numbers in the arguments of each step.
        """
        try:
            kernels = [(self._handle(step.function), *step.grid, *step.block) for step in steps]
            places = [driver_calls.place(name) for name in ("cuLaunchKernel", "cuCtxGetCurrent")]
        except driver.Error as error:
            logger.debug("Python starts all kernels on the GPU: %s", error)
            return None
        head = (
            *places, self.device.context.handle, self.device.stream.handle, ctypes.addressof(self.paused),
            len(kernels), len(tail),
        )  # fmt: skip
        words = struct.pack(f"={len(head)}Q", *head) + b"".join(struct.pack("=7Q", *kernel) for kernel in kernels)
        block = ctypes.create_string_buffer(words + tail, len(words) + len(tail))
        assert ctypes.addressof(block) % 8 == 0
        return block

    @cached_property
    def can_meet(self) -> bool:
        """Whether the driver has cooperative launches for this device."""
        number, found = ctypes.c_int(), ctypes.c_int()
        try:
            driver_calls.call("cuDeviceGet", ctypes.addressof(number), self.device.number)
            driver_calls.call("cuDeviceGetAttribute", ctypes.addressof(found), COOPERATIVE_LAUNCH, number)
        except driver.Error as error:
            logger.debug("the driver does not say whether it has cooperative launches: %s", error)
        return bool(found.value)

    def together(
        self, function: Any, grid: Size3, block: Size3, shared: int, arguments: bytes
    ) -> Callable[[], None]:
        """A callable that queues a kernel of one parameter, all blocks at once; see ``kernels/cuda/device.py``.

        It raises DeviceError if the driver cannot run so many blocks at once.

        Parameters
        ----------
        function, grid, block, shared, arguments
            As of ``Starts.together`` in ``kernels/cuda/device.py``.

        Raises
        ------
        DeviceError
            If the driver does not have such launches.
        """
        held = ctypes.create_string_buffer(arguments, len(arguments))
        pointers = (HANDLE * 1)(ctypes.addressof(held))
        doing = f"cooperative kernel {function.name} (grid {grid}, block {block}, {shared} bytes shared)"
        try:
            handle, launch = self._handle(function), driver_calls.function("cuLaunchCooperativeKernel")
            driver_calls.call("cuFuncSetAttribute", handle, MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        except driver.Error as error:
            self.device.fail(doing, error)

        def queue() -> None:
            if here.device is not self.device:
                self.device.attend()
            status = launch(handle, *grid, *block, shared, here.stream.handle, ctypes.addressof(pointers))
            if status:
                self.device.fail(doing, driver_calls.error_of("cuLaunchCooperativeKernel", status))
            assert held is not None  # which ``pointers`` point to

        return queue

    def _handle(self, function: Any) -> int:
        """The driver's handle of a loaded kernel."""
        key = function.cubin, function.name
        if key not in self._functions:
            module, found = HANDLE(), HANDLE()
            driver_calls.call("cuModuleLoadData", ctypes.addressof(module), function.cubin)
            driver_calls.call("cuModuleGetFunction", ctypes.addressof(found), module, function.name.encode())
            self._functions[key] = found.value or 0
        return self._functions[key]
