"""Resources of a device: loaded kernels, driver memory, and capabilities for planning."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import pycuda.driver as driver

from neonlike.backends.gpu.memory.pool import Exhausted, text
from neonlike.kernels.cuda.device import Capabilities


class Kernel:
    """A loaded kernel function.

    Attributes
    ----------
    start : callable
        PyCUDA's raw launch: (grid, block, arguments, shared bytes, stream).
    shared : int
        Permitted bytes of dynamic shared memory. By default a launch has 48 KiB, less the kernel's declared memory.
    cubin : bytes
        The kernel's module.
    """

    __slots__ = ("_function", "cubin", "name", "shared", "start")

    def __init__(self, function: Any, name: str, cubin: bytes) -> None:
        self._function, self.name, self.shared, self.cubin = function, name, 0, cubin
        self.start = function._launch_kernel

    def allow(self, shared: int) -> None:
        """Permit launches with ``shared`` bytes of dynamic shared memory."""
        self._function.set_attribute(driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        self.shared = shared


class Owner(Protocol):
    """The device that memory is allocated for."""

    def attend(self) -> None:
        """Make its context current."""
        ...

    def release_parts(self) -> int:
        """Return staging memory of copies and return its number of bytes."""
        ...

    def fail(self, doing: str, error: Any) -> NoReturn:
        """Raise this library's error for a driver error."""
        ...


class DriverMemory:
    """Driver memory as source of a device's pool."""

    def __init__(self, device: Owner) -> None:
        self._device = device

    def take(self, nbytes: int) -> Any:
        """Allocate driver memory."""
        self._device.attend()
        try:
            return driver.mem_alloc(nbytes)
        except driver.MemoryError:
            if self._device.release_parts():
                return self.take(nbytes)
            raise Exhausted from None
        except OverflowError:  # more bytes than the driver can represent
            raise Exhausted from None
        except driver.Error as error:
            self._device.fail(f"allocation of {text(nbytes)}", error)

    def give(self, handle: Any) -> None:
        """Return memory to the driver."""
        handle.free()

    def settle(self) -> None:
        """Wait for all streams of the context."""
        self._device.attend()
        try:
            driver.Context.synchronize()
        except driver.Error as error:
            self._device.fail("synchronize", error)

    def room(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = driver.mem_get_info()
        return int(free), int(total)


def load_module(cubin: bytes, device: Any) -> Any:
    """Load a driver module; unused memory is returned to the driver if it has too little."""
    try:
        return driver.module_from_buffer(cubin)
    except driver.MemoryError:
        if device.capture.is_active or not device.release():
            raise
    return driver.module_from_buffer(cubin)


def capabilities(device: Any) -> Capabilities:
    """Capabilities of a ``pycuda.driver.Device``."""
    attribute = driver.device_attribute
    major, minor = device.compute_capability()
    shared = device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK)
    optin = getattr(attribute, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", None)
    return Capabilities(
        arch=f"sm_{major}{minor}",
        multiprocessors=device.get_attribute(attribute.MULTIPROCESSOR_COUNT),
        threads_per_block=device.get_attribute(attribute.MAX_THREADS_PER_BLOCK),
        warp=device.get_attribute(attribute.WARP_SIZE),
        shared_bytes=shared,
        shared_bytes_optin=shared if optin is None else device.get_attribute(optin),
    )
