"""The interface of the CUDA engine to a GPU: memory, arrays, modules, launches. ``backends/gpu`` implements it.

Nothing here knows a driver's library: the kernels package plans, writes and compiles CUDA, a device runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from neonlike.errors import KernelCompileError
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape


class ModuleRefused(KernelCompileError):
    """The driver does not take a module: another compiler's may do."""


Size3: TypeAlias = tuple[int, int, int]
"""Blocks of a grid or threads of a block along x, y and z."""


class Memory(Protocol):
    """A piece of device memory, freed in the order of its stream when the object dies."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The properties of a device that planning and compiling depend on.

    Attributes
    ----------
    arch : str
        Of the compute capability, as compilers take it: "sm_90".
    multiprocessors : int
        Bounds the blocks of a launch. Never decides how a sum is split: results are the same on every device.
    threads_per_block, warp : int
    shared_bytes, shared_bytes_optin : int
        Shared memory a block has without being asked, and the most it can ask for.
    argument_bytes : int
        Most bytes of a kernel's arguments.
    """

    arch: str
    multiprocessors: int
    threads_per_block: int = 1024
    warp: int = 32
    shared_bytes: int = 48 << 10
    shared_bytes_optin: int = 48 << 10
    argument_bytes: int = 4096


class Function(Protocol):
    """A loaded kernel; only its device looks inside."""


class Starts(Protocol):
    """Launches as data, for those who start them without Python, and launches of blocks that wait for each other."""

    @property
    def can_meet(self) -> bool:
        """Whether the driver has cooperative launches: all blocks run at once, or the launch is refused."""
        ...

    def together(
        self, function: Any, grid: Size3, block: Size3, shared: int, arguments: bytes
    ) -> Callable[[], None]:
        """A callable that queues ``function``, of one parameter, as a cooperative launch.

        Raises
        ------
        DeviceError
            If the driver does not have the function.
        """
        ...

    def block(self, steps: Sequence[tuple[Any, Size3, Size3]], tail: bytes) -> Any:
        """A ctypes array that is a ``struct nl_device`` of fastpath_device.h; None if there can be none."""
        ...


class Device(Protocol):
    """A GPU with a current stream; all work is queued on that."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def starts(self) -> Starts: ...

    def allocate(self, nbytes: int) -> Memory:
        """Memory for ``nbytes`` (at least 1), aligned to 256 bytes.

        Raises
        ------
        MemoryError
            With the size asked for and what is in use.
        """
        ...

    def load(self, cubin: bytes, name: str) -> Function:
        """The kernel ``name`` of the compiled module ``cubin``, which is loaded once and kept.

        Raises
        ------
        KernelCompileError
            ``ModuleRefused`` if the driver takes no such module.
        """
        ...

    def launch(self, function: Function, grid: Size3, block: Size3, shared: int, arguments: Any) -> None:
        """Queue ``function``; returns before it ran.

        Parameters
        ----------
        function : Function
        grid, block : (x, y, z)
        shared : int
            Bytes of dynamic shared memory, which the device asks for.
        arguments : bytes-like
            All arguments one after the other, each at a multiple of its size, as in a C struct. Read before it returns.
        """
        ...

    def record(self, calls: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """A callable that queues again, as one, all that ``calls`` queue: kernels and products on fixed memory.

        They are called once now, and nothing of it runs. It keeps them, and so the memory that they keep; it may be
        called any number of times. Worth its while from some ten launches on: they cost what one does.

        Raises
        ------
        DeviceError
            If one of the calls does more than queue: it copies from or to the host, or waits.
        """
        ...

    def view(
        self, memory: Memory | None, address: int, shape: Shape, strides: Sequence[int], dtype: DType
    ) -> DeviceArray:
        """An array on memory that exists; it keeps ``memory`` (None: memory that lives elsewhere) alive."""
        ...

    def to_host(self, array: DeviceArray) -> Any:
        """A NumPy copy of ``array``, complete when it returns."""
        ...

    def from_host(self, host: Any, array: DeviceArray) -> None:
        """Copy a NumPy array of the same shape and dtype into ``array``; ``host`` may change when it returns."""
        ...

    def expect(self, text: str) -> tuple[int, int]:
        """Where a kernel may report an index out of range, and a number for what it reports.

        The kernel stores ``number << 32 | index`` there, in 64 bits. ``IndexRangeError`` is raised with ``text``, in
        which ``{}`` stands for the index, when the host next waits for the device or calls this.
        """
        ...

    def synchronize(self) -> None:
        """Wait until everything queued so far has run.

        Raises
        ------
        NeonlikeError
            If a kernel failed meanwhile.
        """
        ...


class DeviceArray(Protocol):
    """Strided elements in device memory; shapes and views as NumPy's, no arithmetic."""

    @property
    def memory(self) -> Memory | None:
        """The memory that it keeps alive."""
        ...

    @property
    def shape(self) -> Shape: ...

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""
        ...

    @property
    def dtype(self) -> DType: ...

    @property
    def itemsize(self) -> int: ...

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def address(self) -> int:
        """The address of the first element."""
        ...

    def transpose(self, axes: Sequence[int]) -> DeviceArray: ...

    def reshape(self, *shape: int) -> DeviceArray:
        """A view of another shape.

        Raises
        ------
        ShapeError
            If that takes a copy.
        """
        ...

    def __getitem__(self, key: Any) -> DeviceArray:
        """A view by integers, slices, None and ``...``."""
        ...
