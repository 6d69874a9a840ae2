"""``GpuDevice``: one GPU as this process uses it. Its primary context, its stream, modules, launches, memory, errors.

There is one object a GPU and process, shared by all backends and threads. Everything is queued on one stream, so that
memory can be used again at once (see ``memory``). That stream and the driver's default stream, which other libraries
use unless they are told otherwise, wait for each other.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import pycuda.driver as driver

from neonlike import settings
from neonlike.backends.gpu.device import contexts, driver_calls
from neonlike.backends.gpu.device.contexts import here
from neonlike.backends.gpu.device.faults import Faults, is_fatal
from neonlike.backends.gpu.device.graphs import Capture
from neonlike.backends.gpu.device.starts import Starts
from neonlike.backends.gpu.memory.array import DeviceArray, contiguous_array
from neonlike.backends.gpu.memory.foreign import Parting
from neonlike.backends.gpu.memory.pool import MemoryBlock, Pool, text
from neonlike.backends.gpu.memory.resources import DriverMemory, Kernel, capabilities, load_module
from neonlike.backends.gpu.memory.transfer import Transfer
from neonlike.errors import (
    ArgumentError,
    BackendUnavailable,
    DeviceError,
    DeviceLost,
    DeviceMemoryError,
    IndexRangeError,
    KernelCompileError,
)
from neonlike.kernels.cuda.compile import expect_driver
from neonlike.kernels.cuda.device import Memory, ModuleRefused, Size3
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape


class GpuDevice:
    """A GPU; see :class:`neonlike.kernels.cuda.device.Device`. Made by :func:`open_device`.

    Attributes
    ----------
    number : int
        As the driver counts the devices that ``CUDA_VISIBLE_DEVICES`` leaves.
    name : str
    compute_capability : (int, int)
    capabilities : Capabilities
    memory_size : int
        Bytes of the device.
    context, stream : pycuda.driver.Context, pycuda.driver.Stream
    capture : Capture
    pool : Pool
    identity : tuple of str
        Which GPU of which kind it is, with which driver.
    tested : bool
        Whether it passed its self-test, or need not take it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._fault: tuple[type[BackendUnavailable], str] | None = None
        self._lock = threading.RLock()
        self._modules: dict[bytes, Any] = {}
        self._kernels: dict[tuple[bytes, str], Kernel] = {}
        self.device = driver.Device(number)
        self.name = str(self.device.name())
        self.compute_capability: tuple[int, int] = self.device.compute_capability()
        self.memory_size = int(self.device.total_memory())
        self.capabilities = capabilities(self.device)
        self.identity = (self.name, str(self.device.pci_bus_id()), str(driver.get_driver_version()))
        self.tested = False
        expect_driver(driver.get_driver_version())
        try:
            self.context = self.device.retain_primary_context()
            self._handle = self.context.handle
            contexts.enter(self, self.context)
            self.stream = here.stream = driver.Stream()
            self.starts = Starts(self)
            self.capture = Capture(self)
        except driver.Error as error:
            contexts.leave()
            raise BackendUnavailable(f"GPU {number}, {self.name}, cannot be used: {error}") from error
        self.pool = Pool(DriverMemory(self), f"GPU {number}", settings.GPU_POOL.get())
        self.transfer, self.faults = Transfer(self.stream, self.attend), Faults(self.attend)
        self.expect, self.parting = self.faults.expect, Parting(self)
        contexts.remember(self)

    def __repr__(self) -> str:
        return f"<GpuDevice {self.number} {self.name}>"

    # What the kernels package uses

    def allocate(self, nbytes: int) -> MemoryBlock:
        """Memory for ``nbytes``; see :meth:`Pool.allocate`."""
        if here.device is not self:
            self.attend()
        return self.pool.allocate(nbytes)

    def load(self, cubin: bytes, name: str) -> Kernel:
        """The kernel ``name`` of the compiled module ``cubin``; both are kept.

        Raises
        ------
        KernelCompileError
            ``ModuleRefused`` if the driver does not take the module; else it has no such kernel.
        """
        kernel = self._kernels.get((cubin, name))
        if kernel is not None:
            return kernel
        with self._lock:
            self.attend()
            try:
                module = self._modules.get(cubin)
                if module is None:
                    module = self._modules[cubin] = load_module(cubin, self)
                kernel = Kernel(module.get_function(name), name, cubin)
            except driver.MemoryError as error:
                self.fail(f"load of kernel {name}, {text(len(cubin))}", error)
            except driver.Error as error:
                self._note(error)
                refused = cubin not in self._modules and self.usable
                raise (ModuleRefused if refused else KernelCompileError)(
                    f"load: {self} does not take kernel {name}: {error}; was it compiled by a newer CUDA than the "
                    "driver's? python -m neonlike doctor shows both"
                ) from error
            self._kernels[cubin, name] = kernel
        return kernel

    def launch(self, function: Any, grid: Size3, block: Size3, shared: int, arguments: Any) -> None:
        """Queue a kernel; see :class:`neonlike.kernels.cuda.device.Device`.

        Parameters
        ----------
        function : Function
        grid, block : (int, int, int)
            Blocks, and threads of a block, along x, y and z.
        shared : int
            Bytes of dynamic shared memory.
        arguments : bytes

        Raises
        ------
        DeviceError, DeviceLost
            If the driver refuses the launch; if this or an earlier kernel failed.
        """
        if here.device is not self:
            self.attend()
        try:
            if shared > function.shared:
                function.allow(shared)
            function.start(grid, block, arguments, shared, here.stream)
        except driver.Error as error:
            self.fail(f"kernel {function.name} (grid {grid}, block {block}, {shared} bytes shared)", error)

    def view(
        self, memory: Memory | None, address: int, shape: Shape, strides: Sequence[int], dtype: DType
    ) -> DeviceArray:
        """An array on memory that exists.

        Parameters
        ----------
        memory, address, shape, strides, dtype
            As of ``Device.view`` in ``kernels/cuda/device.py``.
        """
        return DeviceArray(memory, address, shape, tuple(strides), dtype)

    def empty(self, shape: Shape, dtype: DType) -> DeviceArray:
        """A contiguous array in new memory, its contents undefined."""
        block = self.allocate(math.prod(shape) * dtype.itemsize or 1)
        return contiguous_array(block, block.address, shape, dtype)

    def to_host(self, array: Any) -> Any:
        """A contiguous NumPy copy of ``array``, complete when it returns."""
        host = np.empty(array.shape, array.dtype)
        if host.size:
            self.attend_uncaptured("copy to the host")
            try:
                self.transfer.down(array, host)
            except driver.Error as error:
                self.fail("copy to the host", error)
            self.faults.check()
        return host

    def from_host(self, host: Any, array: Any) -> None:
        """Copy ``host``, a NumPy array of the shape and dtype of ``array``, into it; ``host`` may change afterwards."""
        assert host.shape == array.shape and host.dtype == array.dtype
        if host.size:
            self.attend_uncaptured("copy to the device")
            try:
                self.transfer.up(np.ascontiguousarray(host), array)
            except driver.Error as error:
                self.fail("copy to the device", error)

    def synchronize(self) -> None:
        """Wait until everything queued so far has run.

        Raises
        ------
        DeviceLost, IndexRangeError
            If a kernel failed meanwhile, or met an index out of range.
        """
        self.attend_uncaptured("synchronize")
        try:
            self.stream.synchronize()
        except driver.Error as error:
            self.fail("synchronize", error)
        self.parting.collect()
        self.faults.check()

    # Errors, and the life of the context

    @property
    def usable(self) -> bool:
        """False once the context is lost, in a forked child, and when the interpreter exits."""
        return self._fault is None

    def attend(self) -> None:
        """Make this device's context the current one of this thread.

        Raises
        ------
        BackendUnavailable
            If the device cannot be used any more.
        DeviceError
            If another context was made current in its place.
        """
        if self._fault is not None:
            kind, reason = self._fault
            raise kind(reason)
        if here.device is self and (current := driver_calls.current_context()):
            if current != self._handle:
                raise DeviceError(
                    f"GPU {self.number}: another context is current in this thread, which cannot reach this backend's "
                    "memory. One of PyCUDA's (pycuda.autoinit?): pop it, and run your kernels in be.ctx, or import "
                    "pycuda.autoprimaryctx instead. Another library's, on another GPU: have it go back to this one, "
                    f"as torch.cuda.set_device({self.number}) does"
                )
            return
        contexts.enter(self, self.context, self.stream)

    def attend_uncaptured(self, doing: str) -> None:
        """As ``attend``, for what cannot be part of a graph."""
        self.attend()
        if here.stream is not self.stream:
            raise DeviceError(f"GPU {self.number}, {doing}: a graph is being captured, which holds kernels only")

    def fail(self, doing: str, error: driver.Error) -> NoReturn:
        """Raise the error of this library for one of the driver's."""
        if self._fault is None:
            self.attend()  # the reason may be that another context is current
        self._note(error)
        if self._fault is not None:
            kind, reason = self._fault
            raise kind(reason) from error
        if isinstance(error, driver.MemoryError):
            raise DeviceMemoryError(self.pool.exhausted(doing)) from error
        raise DeviceError(f"GPU {self.number}, {doing}: {error}") from error

    def _note(self, error: driver.Error) -> None:
        """Mark the device as lost if its context is unusable after ``error``."""
        first = str(error)
        if not is_fatal(first):
            if isinstance(error, driver.MemoryError):
                return
            try:
                driver.Context.synchronize()
                return
            except driver.Error as deeper:
                first = str(deeper)
        self._give_up(
            DeviceLost,
            f"GPU {self.number} was lost: {first}. What kernels wrote last is undefined, and the driver answers "
            "nothing else any more: start the program again from a checkpoint; compute-sanitizer finds the cause",
        )

    def _give_up(self, kind: type[BackendUnavailable], reason: str) -> None:
        """Raise ``kind(reason)`` from now on; objects of the context are never freed, since that would fail, too."""
        if self._fault is None:
            self._fault = (kind, reason)
            loaded = self._modules, self._kernels
            for thing in (self.context, self.stream, self.capture, *loaded, self.transfer, self.faults, self.pool):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # PyCUDA would warn as each one is freed
        if here.device is self:
            here.device = None

    def forked(self) -> None:
        """Called in the child of a fork, where the driver does not work."""
        self._give_up(
            BackendUnavailable,
            f"GPU {self.number} cannot be used in a process forked from one that used it; start it afresh: "
            'multiprocessing.get_context("spawn")',
        )

    def release(self) -> int:
        """Give memory that no tensor uses back to the driver; the number of bytes."""
        return self.release_parts() + self.pool.release()

    def release_parts(self) -> int:
        """Free the staging memory of copies from the host; the number of bytes."""
        self.attend()
        try:
            return self.transfer.release()
        except driver.Error as error:
            self.fail("release of memory", error)

    def relax(self) -> None:
        """Free cached memory, if the device still works."""
        if self._fault is None:
            with contextlib.suppress(DeviceError, BackendUnavailable):
                self.release()

    def close(self) -> None:
        """Called when the interpreter exits: wait for what is queued, and free cached memory."""
        if self._fault is not None:
            return
        with contextlib.suppress(DeviceError, BackendUnavailable, IndexRangeError):
            self.transfer.close()
            self.synchronize()
        self.relax()
        self._fault = self._fault or (BackendUnavailable, f"GPU {self.number}: the interpreter is exiting")


@functools.lru_cache(maxsize=1)
def _initialize() -> None:
    driver.init()


def device_count() -> int:
    """GPUs that this process sees.

    Raises
    ------
    BackendUnavailable
        If there is none, or its driver does not start.
    """
    try:
        _initialize()
        count = int(driver.Device.count())
    except driver.Error as error:
        raise BackendUnavailable(
            f"the backend 'gpu' finds no GPU: {error}; run `python -m neonlike doctor` for what is missing"
        ) from error
    if not count:
        raise BackendUnavailable(
            "the backend 'gpu' finds no GPU: the driver knows none (CUDA_VISIBLE_DEVICES?); run `python -m neonlike "
            "doctor` for what is missing"
        )
    return count


def compute_capability(number: int) -> tuple[int, int]:
    """The compute capability of the GPU ``number``, which there is; it is not opened."""
    major, minor = driver.Device(number).compute_capability()
    return int(major), int(minor)


_opened: dict[int, GpuDevice] = {}
_opening = threading.Lock()


def open_device(number: int = 0, most: int | None = None) -> GpuDevice:
    """The GPU ``number``, opened now or before.

    Parameters
    ----------
    number : int
    most : int, optional
        Use only so many devices, the first ones.

    Raises
    ------
    BackendUnavailable
        If there is no GPU, or it cannot be used any more.
    ArgumentError
        If there are GPUs, but none of that number.
    """
    for device in _opened.values():
        if device.number == number:
            device.attend()  # in a fork, that says so; the driver would only answer that it is not initialized
    count = device_count()
    usable = count if most is None else min(count, most)
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 0 <= number < usable:
        limit = "" if usable == count else f", of which max_devices={most} leaves {usable}"
        raise ArgumentError(
            f"device_id: there is no GPU {number!r}; there are {count}{limit}, numbered from 0; set device_id"
        )
    with _opening:
        if number not in _opened:
            _opened[int(number)] = GpuDevice(int(number))
    _opened[number].attend()
    return _opened[number]
