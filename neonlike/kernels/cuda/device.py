"""Interface of the CUDA engine to a GPU: memory, arrays, modules, launches. ``backends/gpu`` implements it.

Nothing here depends on a driver library: the kernels package plans, writes and compiles CUDA, and a device runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from neonlike.errors import KernelCompileError
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape


class ModuleRefused(KernelCompileError):
    """The driver refused a module; a module of another compiler may be accepted."""


Size3: TypeAlias = tuple[int, int, int]
"""Blocks of a grid or threads of a block along x, y and z."""


class Memory(Protocol):
    """A block of device memory, freed in stream order when the object dies."""

    @property
    def address(self) -> int:
        """Address of the first byte."""
        ...

    @property
    def nbytes(self) -> int:
        """Size in bytes, which may be more than was asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Device properties that planning and compiling depend on.

    Attributes
    ----------
    arch : str
        Architecture by compute capability, in compilers' notation: "sm_90".
    multiprocessors : int
        Bounds the blocks of a launch. It never affects how a sum is split: results are the same on every device.
    threads_per_block, warp : int
    shared_bytes, shared_bytes_optin : int
        Shared memory per block by default, and at most on request.
    argument_bytes : int
        Maximum bytes of a kernel's arguments.
    """

    arch: str
    multiprocessors: int
    threads_per_block: int = 1024
    warp: int = 32
    shared_bytes: int = 48 << 10
    shared_bytes_optin: int = 48 << 10
    argument_bytes: int = 4096


class Function(Protocol):
    """A loaded kernel, opaque to all but its device."""


class Starts(Protocol):
    """Launches as data, for execution without Python, and cooperative launches."""

    @property
    def can_meet(self) -> bool:
        """Whether the driver supports cooperative launches: all blocks run at once, or the launch is refused."""
        ...

    def together(
        self, function: Any, grid: Size3, block: Size3, shared: int, arguments: bytes
    ) -> Callable[[], None]:
        """Return a callable that queues ``function``, with one parameter, as a cooperative launch.

        Parameters
        ----------
        function : Function
        grid, block : (int, int, int)
            Blocks, and threads of a block, along x, y and z.
        shared : int
            Bytes of dynamic shared memory.
        arguments : bytes
            The kernel's parameter.

        Raises
        ------
        DeviceError
            If the driver lacks the function.
        """
        ...

    def block(self, steps: Sequence[Any], tail: bytes) -> Any:
        """These launches in the form of ``struct nl_device`` of fastpath_device.h; None if impossible."""
        ...


class Capture(Protocol):
    """Captures of graphs, one at a time."""

    @property
    def is_active(self) -> bool:
        """Whether this thread captures a graph: what it queues becomes a part of that, and runs with the graph only."""
        ...

    def graph(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """Return a callable that replays everything that ``calls`` queue: kernels and products on fixed memory.

        The calls are made once now, without executing their work. The result keeps them and their memory alive, and may
        be called any number of times. It pays off from about ten launches: all together cost as much as one.

        Raises
        ------
        DeviceError
            If the driver has no graphs; if one of the calls does more than queue: it copies from or to the host, or
            waits.
        """
        ...


class Device(Protocol):
    """A GPU with a current stream, on which all work is queued."""

    @property
    def capabilities(self) -> Capabilities:
        """Properties that planning and compiling depend on."""
        ...

    @property
    def starts(self) -> Starts:
        """Launches as data, and cooperative launches."""
        ...

    @property
    def capture(self) -> Capture:
        """Graphs of the driver."""
        ...

    def allocate(self, nbytes: int) -> Memory:
        """Memory for ``nbytes`` (at least 1), aligned to 256 bytes.

        Raises
        ------
        MemoryError
            With the requested size and the memory in use.
        """
        ...

    def load(self, cubin: bytes, name: str) -> Function:
        """Load the kernel ``name`` of the compiled module ``cubin``; modules are loaded once and kept.

        Raises
        ------
        KernelCompileError
            ``ModuleRefused`` if the driver does not accept the module.
        """
        ...

    def launch(self, function: Function, grid: Size3, block: Size3, shared: int, arguments: Any) -> None:
        """Queue ``function`` without waiting.

        Parameters
        ----------
        function : Function
        grid, block : (x, y, z)
        shared : int
            Bytes of dynamic shared memory, requested by the device.
        arguments : bytes-like
            All arguments in sequence, each aligned to its size, as in a C struct. Read before it returns.
        """
        ...

    def view(
        self, memory: Memory | None, address: int, shape: Shape, strides: Sequence[int], dtype: DType
    ) -> DeviceArray:
        """Create an array on existing memory, keeping ``memory`` (None: memory owned elsewhere) alive.

        Parameters
        ----------
        memory : Memory or None
        address : int
            Of the first element.
        shape : tuple of int
        strides : sequence of int
            In bytes.
        dtype : dtype
        """
        ...

    def to_host(self, array: DeviceArray) -> Any:
        """A NumPy copy of ``array``, complete when it returns."""
        ...

    def from_host(self, host: Any, array: DeviceArray) -> None:
        """Copy a NumPy array of the same shape and dtype into ``array``; ``host`` may change afterwards."""
        ...

    def expect(self, text: str) -> tuple[int, int]:
        """Address where a kernel may report an index out of range, and a number that identifies the report.

        The kernel stores ``number << 32 | index`` there, in 64 bits. When the host next waits for the device or calls
        this, ``IndexRangeError`` is raised with ``text``, in which ``{}`` stands for the index.
        """
        ...

    def synchronize(self) -> None:
        """Wait until all queued work is done.

        Raises
        ------
        NeonlikeError
            If a kernel failed meanwhile.
        """
        ...


class DeviceArray(Protocol):
    """Strided elements in device memory, with shapes and views as in NumPy, but without arithmetic."""

    @property
    def memory(self) -> Memory | None:
        """The memory kept alive by the array."""
        ...

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        ...

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in bytes."""
        ...

    @property
    def dtype(self) -> DType:
        """Type of the elements."""
        ...

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        ...

    @property
    def ndim(self) -> int:
        """Number of axes."""
        ...

    @property
    def size(self) -> int:
        """Number of elements."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        ...

    @property
    def address(self) -> int:
        """The address of the first element."""
        ...

    def transpose(self, axes: Sequence[int]) -> DeviceArray:
        """Create a view with the axes in the order ``axes``."""
        ...

    def reshape(self, *shape: int) -> DeviceArray:
        """Create a view of another shape.

        Raises
        ------
        ShapeError
            If that requires a copy.
        """
        ...

    def __getitem__(self, key: Any) -> DeviceArray:
        """Create a view by integers, slices, None and ``...``."""
        ...
