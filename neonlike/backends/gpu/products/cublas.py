"""The cuBLAS library: its location, its binding by scikit-cuda or our own, one handle per GPU, and its errors.

``skcuda.cublas`` supports cuBLAS 10. Functions that it lacks, products of half precision and of strided stacks, are
called in the library that it loaded. It cannot be imported with setuptools 81 or later, nor without a file named
libcublas.so (NVIDIA's pip packages only have libcublas.so.13): then the library is bound here, with the same functions.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from neonlike import settings
from neonlike.backends.gpu.device import contexts
from neonlike.backends.gpu.device.contexts import here
from neonlike.backends.gpu.device.libraries import cublas_libraries
from neonlike.errors import ArgumentError, BackendUnavailable, DeviceError, DeviceMemoryError
from neonlike.logger import logger

SETTING = settings.CUBLAS.name
"""``direct``: without scikit-cuda; ``none``: disabled; a path: that library; else any available one."""

POINTER, INT, LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_ONE = (POINTER, INT, INT)  # a matrix: address, type, row stride
_MANY = (*_ONE, LONG)  # and matrix stride
GEMM_EX = (POINTER, *(INT,) * 5, POINTER, *_ONE * 2, POINTER, *_ONE, INT, INT)
GEMM_STRIDED_BATCHED_EX = (POINTER, *(INT,) * 5, POINTER, *_MANY * 2, POINTER, *_MANY, INT, INT, INT)

EXACT_REDUCTIONS = 16
"""CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: partial sums of half-precision products stay float32."""

WORKSPACE_BYTES = (4 << 20, 32 << 20)
"""The library's default workspace, before compute capability 9.0 and from there on."""

NOT_INITIALIZED, ALLOC_FAILED, EXECUTION_FAILED = 1, 3, 13
STATUSES = {
    NOT_INITIALIZED: ("NOT_INITIALIZED", "is the library newer than the driver? run `python -m neonlike doctor`"),
    ALLOC_FAILED: ("ALLOC_FAILED", "no memory for its workspace: delete tensors, or use a smaller batch"),
    7: ("INVALID_VALUE", "please report this with the call"),
    8: ("ARCH_MISMATCH", f"this GPU is too old for it; {SETTING}=none uses kernels of our own"),
    11: ("MAPPING_ERROR", "an earlier kernel may have failed; be.synchronize() after each step finds it"),
    EXECUTION_FAILED: ("EXECUTION_FAILED", "an earlier kernel may have failed; be.synchronize() finds it"),
    14: ("INTERNAL_ERROR", f"update the driver or the library; {SETTING}=none uses kernels of our own"),
    15: ("NOT_SUPPORTED", f"{SETTING}=none uses kernels of our own"),
    16: ("LICENSE_ERROR", f"{SETTING}=none uses kernels of our own"),
}
"""Status codes -> name, and remedy."""


class Refused(Exception):
    """A function of the library returned ``status``."""

    def __init__(self, status: int) -> None:
        super().__init__(describe(status))
        self.status = status


def describe(status: int) -> str:
    """Name and remedy of a status."""
    name, advice = STATUSES.get(status, (str(status), f"{SETTING}=none uses kernels of our own"))
    return f"CUBLAS_STATUS_{name}; {advice}"


class Binding:
    """The library through our own binding.

    Parameters
    ----------
    library : ctypes.CDLL
    name : str
        Name for messages.
    """

    def __init__(self, library: Any, name: str) -> None:
        self.library, self.name = library, name

    def function(self, name: str, *types: Any) -> Callable[..., int]:
        """Bind function ``name``, which returns a status; other users of the loaded library do not see ``types``."""
        function: Callable[..., int] = ctypes.CFUNCTYPE(INT, *types)((name, self.library))
        return function

    def create(self) -> int:
        """Create a handle in the current context."""
        made = POINTER()
        self.expect(self.function("cublasCreate_v2", POINTER)(ctypes.byref(made)))
        return made.value or 0

    def destroy(self, handle: int) -> None:
        """Destroy a handle, after waiting for its queued work."""
        self.expect(self.function("cublasDestroy_v2", POINTER)(handle))

    def set_stream(self, handle: int, stream: int) -> None:
        """Queue all following work on a stream."""
        self.expect(self.function("cublasSetStream_v2", POINTER, POINTER)(handle, stream))

    def version(self, handle: int) -> int:
        """The library's version, such as 130000 for 13.0.0."""
        found = INT()
        self.expect(self.function("cublasGetVersion_v2", POINTER, POINTER)(handle, ctypes.byref(found)))
        return found.value

    def expect(self, status: int) -> None:
        """Raise Refused if ``status`` is an error."""
        if status:
            raise Refused(status)


class SkcudaBinding(Binding):
    """The library as loaded by ``skcuda.cublas``; handles are scikit-cuda's."""

    def __init__(self, module: Any) -> None:
        super().__init__(module._libcublas, "scikit-cuda")
        self._module = module
        self._statuses = {kind: status for status, kind in module.cublasExceptions.items()}

    def create(self) -> int:
        """Create a handle of the library."""
        return int(self._call(self._module.cublasCreate))

    def destroy(self, handle: int) -> None:
        """Release a handle."""
        self._call(self._module.cublasDestroy, handle)

    def set_stream(self, handle: int, stream: int) -> None:
        """Let the calls of a handle go to a stream."""
        self._call(self._module.cublasSetStream, handle, stream)

    def version(self, handle: int) -> int:
        """Number of the library's version."""
        return int(self._call(self._module.cublasGetVersion, handle))

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._module.cublasError as error:
            kind = error if isinstance(error, type) else type(error)
            raise Refused(self._statuses.get(kind, -1)) from error


def bindings() -> Iterator[Binding]:
    """All bindings to a cuBLAS allowed by ``NEONLIKE_CUBLAS``, best first.

    A context must be current: scikit-cuda creates a handle when it is imported.

    Raises
    ------
    ArgumentError
        If the setting names a library that cannot be loaded.
    """
    setting = settings.CUBLAS.text
    if setting == "none":
        return
    if setting not in ("", "direct"):
        try:
            yield Binding(ctypes.CDLL(setting), setting)
        except OSError as error:
            raise ArgumentError(f"{SETTING}: cannot load it: {error}; set a path, direct, none, or nothing") from error
        return
    if not setting:
        module, reason = import_skcuda()
        if module is not None:
            yield SkcudaBinding(module)
        else:
            _say_once(f"scikit-cuda cannot be imported ({reason}): cuBLAS is called through a binding of our own")
    yield from (Binding(library, name) for name, library in cublas_libraries())


@cache
def _say_once(text: str) -> None:
    logger.info("%s", text)


def import_skcuda() -> tuple[Any, str]:
    """Import the module ``skcuda.cublas``, or return None and the reason for the failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pkg_resources, and about the handle created to query the version
            module = importlib.import_module("skcuda.cublas")
    except Exception as error:  # it may raise anything: no library, missing functions, a status
        text = str(error) or type(error).__name__
        if isinstance(error, ModuleNotFoundError) and error.name == "pkg_resources":
            text += ', which setuptools dropped: pip install "setuptools<81"'
        return None, text
    return module, ""


class Handle:
    """cuBLAS in the context of a GPU, queueing on its stream. Created by :func:`open_handle`; ends with the process.

    Attributes
    ----------
    device : GpuDevice
    binding : Binding
    value : int
        The handle itself; 0 after its destruction.
    version : int
        Version, such as 130000 for 13.0.0.
    """

    def __init__(self, device: Any, binding: Binding) -> None:
        self.device, self.binding = device, binding
        self.value = _create(binding, device.stream)
        self.version = binding.version(self.value)
        self.capturing = 0
        self._workspace: Any = None
        self.gemm = binding.function("cublasGemmEx", *GEMM_EX)
        self.gemms = binding.function("cublasGemmStridedBatchedEx", *GEMM_STRIDED_BATCHED_EX)
        contexts.remember(self)
        device.capture.prepares.append(self._prepare)

    def _prepare(self, stream: Any) -> None:
        """Create the handle for the stream that captures graphs, with a separate workspace.

        Otherwise the library would allocate memory within each graph. One is enough, because graphs run one after the
        other.
        """
        if self.capturing or not self.value:
            return
        try:
            self.capturing = self._made_for(stream)
        except Refused as error:
            doing = "matrix products in a graph"
            raise DeviceError(f"GPU {self.device.number}, {doing}: {self.binding.name}: {error}") from error

    def _made_for(self, stream: Any) -> int:
        """A handle for the capturing stream, with its workspace."""
        made = _create(self.binding, stream)
        try:
            nbytes = WORKSPACE_BYTES[self.device.compute_capability >= (9, 0)]
            self._workspace = self.device.allocate(nbytes)
            give = self.binding.function("cublasSetWorkspace_v2", POINTER, POINTER, ctypes.c_size_t)
            self.binding.expect(give(made, self._workspace.address, nbytes))
        except BaseException:
            self.binding.destroy(made)
            raise
        return made

    def call(self, function: Callable[..., int], arguments: tuple[Any, ...]) -> None:
        """Queue a product.

        Raises
        ------
        DeviceMemoryError, DeviceError
            If the library fails; the message has the name of its status.
        DeviceLost
            If an earlier kernel failed.
        """
        if here.device is not self.device:
            self.device.attend()
        value = self.value
        if here.stream is not self.device.stream:
            self._prepare(here.stream)  # the library may have been opened by a call that is being captured
            value = self.capturing
        status = function(value, *arguments)
        if status == ALLOC_FAILED and self.device.pool.release():
            status = function(value, *arguments)
        if status:
            self._fail(status)

    def _fail(self, status: int) -> None:
        if here.stream is self.device.stream:
            self.device.synchronize()  # reports a lost context
        kind = DeviceMemoryError if status == ALLOC_FAILED else DeviceError
        raise kind(f"GPU {self.device.number}, matrix product: {self.binding.name}: {describe(status)}")

    def forked(self) -> None:
        """Forget the handle in a forked child: it is the parent's."""
        self.value = self.capturing = 0

    def close(self) -> None:
        """Destroy the handle at the interpreter's exit, before the device; a lost context destroyed it already."""
        values, self.value, self.capturing = (self.value, self.capturing), 0, 0
        for value in filter(None, values):
            with contextlib.suppress(Refused, BackendUnavailable):
                self.device.attend()
                self.binding.destroy(value)


def _create(binding: Binding, stream: Any) -> int:
    """Create a handle that queues on ``stream`` and sums in its order."""
    made = binding.create()
    try:
        binding.set_stream(made, stream.handle)
        binding.expect(binding.function("cublasSetMathMode", POINTER, INT)(made, EXACT_REDUCTIONS))
    except BaseException:
        binding.destroy(made)
        raise
    return made


_handles: dict[Any, Handle | None] = {}
_opening = threading.Lock()


def open_handle(device: Any) -> Handle | None:
    """The handle of a GPU, created on first use; None if no working cuBLAS is available.

    Raises
    ------
    DeviceMemoryError
        If there is not enough memory.
    """
    with device.pool.held(), _opening:  # in this order, as while a graph is captured
        if device not in _handles:
            device.attend()
            _handles[device] = _open(device)
        return _handles[device]


def _open(device: Any) -> Handle | None:
    reasons = []
    for binding in bindings():
        try:
            handle = _make(device, binding)
        except (Refused, AttributeError) as error:  # AttributeError: an older library lacks a function
            reasons.append(f"{binding.name}: {error}")
            if getattr(error, "status", 0) == ALLOC_FAILED:
                raise DeviceMemoryError(f"GPU {device.number}, cuBLAS: {reasons[-1]}") from error
            continue
        logger.debug("matrix products: cuBLAS %d through %s", handle.version, binding.name)
        return handle
    why = "; ".join(reasons) or (f"{SETTING}=none" if settings.CUBLAS.text == "none" else "it is not installed")
    logger.warning("no cuBLAS (%s): matrix products run on kernels of our own, which are slower", why)
    return None


def _make(device: Any, binding: Binding) -> Handle:
    try:
        return Handle(device, binding)
    except Refused as error:
        if error.status != ALLOC_FAILED or not device.pool.release():
            raise
        return Handle(device, binding)
