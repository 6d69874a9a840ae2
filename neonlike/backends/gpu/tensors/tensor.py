"""Tensor in GPU memory: a :class:`DeviceArray` with neon's rules on top. The host sees only copies."""

from __future__ import annotations

import contextlib
import math
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from neonlike.backends.gpu.device.device import GpuDevice
from neonlike.backends.gpu.memory.array import DeviceArray, contiguous_array, piece_count, share_elements
from neonlike.backends.gpu.tensors import interop
from neonlike.backends.hostdata import check_fills
from neonlike.backends.tensor import Tensor, cached, put
from neonlike.backends.tensor_host import TensorHost
from neonlike.checks import checked
from neonlike.errors import DeviceMemoryError, DTypeError, ShapeError
from neonlike.kernels.run.convert import converter
from neonlike.optree import moves
from neonlike.optree.dtypes import as_dtype
from neonlike.optree.indexing import Selection, select
from neonlike.optree.origin import gathered
from neonlike.optree.shapes import Shape, ShapeTypeError, as_shape, permutation
from neonlike.optree.values import fetched

MOST_PIECES = 4
"""Maximum number of 2-D copies for fetching a strided tensor; beyond it, a kernel makes it contiguous first."""


class GpuHost(TensorHost, Protocol):
    """Additional protocol of a GPU tensor's backend."""

    @property
    def device(self) -> GpuDevice:
        """The device that holds the memory."""
        ...

    def on_device(self, value: Any) -> Any:
        """Create a tensor over ``value`` if its elements are on this GPU, else None."""
        ...


class GPUTensor(Tensor):
    """Tensor on a GPU, see :class:`Tensor`. ``array`` describes the elements; ``get()`` copies them to the host.

    CuPy, PyTorch, JAX and Numba share the memory through ``__cuda_array_interface__`` and DLPack.

    Attributes
    ----------
    is_trans, take_array, allocator
        neon's attributes, unused here: False, None and None.
    """

    live_host: ClassVar[bool] = False
    is_trans: bool = False
    take_array: Any = None
    allocator: Any = None
    backend: GpuHost
    array: DeviceArray
    root: object | None
    address: int

    def __init__(
        self,
        backend: GpuHost,
        array: DeviceArray,
        name: str | None = None,
        persist_values: bool = True,
        base: GPUTensor | None = None,
    ) -> None:
        super().__init__(backend, array.shape, array.dtype, name, persist_values, base)
        put(self, "array", array)
        memory = array.memory
        put(self, "root", memory if getattr(memory, "ours", False) else None)
        put(self, "address", array.address)

    # Memory

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides along each axis, in elements."""
        size = self.dtype.itemsize
        return tuple(step // size for step in self.array.strides)

    @cached
    def is_contiguous(self) -> bool:
        """True if elements lie in C order without gaps."""
        return self.array.c_contiguous

    @property
    def ptr(self) -> int:
        """Device address of the first element."""
        return self.address

    gpudata = ptr
    """The same address under PyCUDA's name, for its kernels and copies."""

    @cached
    def geometry(self) -> tuple[Shape, tuple[int, ...]]:
        """Shape, and strides in bytes: with ``address``, everything that a kernel depends on."""
        return self.array.shape, self.array.strides

    def raw(self) -> int:
        """Device address of the first element."""
        return self.address

    def asbuffer(self) -> Any:
        """Wrap the elements in an object with the buffer protocol of the device's address space, for PyCUDA's copies.

        Raises
        ------
        ShapeError
            If the tensor is not contiguous.
        """
        if not self.is_contiguous:
            raise ShapeError(f"asbuffer: needs a contiguous tensor, got strides {self.strides}")
        return interop.as_buffer(self.array)

    def alias_of(self, other: GPUTensor) -> int:
        """0: no shared memory, 1: exactly the same elements in the same order, 2: any other overlap."""
        if not isinstance(other, Tensor):
            raise DTypeError(f"alias_of: other must be a tensor, got {type(other).__name__}")
        if self.root is not other.root and self.root is not None and other.root is not None:
            return 0
        mine, its = self.array, other.array
        if mine.address == its.address and mine.shape == its.shape and mine.strides == its.strides:
            return 1 if mine.dtype == its.dtype else 2
        return 2 if share_elements(mine, its) else 0

    # Host access

    def get(self, stream: Any = None) -> npt.NDArray[Any]:
        """Host copy with this shape and dtype, after all queued work; ``stream`` is accepted, as in neon."""
        self.backend.check_open("get")
        array = self.array
        if not self.is_contiguous and piece_count(array) > MOST_PIECES:
            with contextlib.suppress(DeviceMemoryError):
                array = self._staging(self).array
        return fetched(self.backend.device.to_host(array))

    def _staging(self, values: Any = None) -> GPUTensor:
        """A contiguous tensor of this shape and dtype, with ``values`` assigned if given."""
        made = GPUTensor(self.backend, self.backend.device.empty(self.shape, self.dtype))
        return made if values is None else self.backend.assign(made, values)

    def set(self, ary: Any) -> Tensor:
        """See :meth:`Tensor.set`; data already on this GPU, of any library, is copied there."""
        source = self.backend.on_device(ary)
        if source is None:
            return super().set(ary)
        check_fills("set", source.shape, self.shape)
        if source.shape != self.shape:
            whole: Tensor = source if source.is_contiguous else source._staging(source)
            return self.set(whole.reshape(self.shape))
        self.backend.assign(self._unrounded(), source)
        return self

    def _unrounded(self) -> GPUTensor:
        """This tensor, or a view of all of it without stochastic rounding, as used by copies."""
        if not self.rounding:
            return self
        view = self._make_view(self.array)
        view.rounding = 0
        return view

    def _set_host(self, host: npt.NDArray[Any]) -> None:
        self.backend.check_open("set")
        if host.dtype != self.dtype:
            converted = np.empty(self.shape, self.dtype)
            with np.errstate(all="ignore"):
                converter(self.dtype)(host, converted)
            host = converted
        if not self.is_contiguous:  # copying it in pieces would wait for the device
            with contextlib.suppress(DeviceMemoryError):
                staging = self._staging()
                self.backend.device.from_host(host, staging.array)
                self.backend.assign(self._unrounded(), staging)
                return
        self.backend.device.from_host(host, self.array)

    # Other libraries

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of the interface; ``stream`` is the stream that computes the tensor's contents."""
        self.backend.check_open("__cuda_array_interface__")
        return interop.cuda_array_interface(self.backend.device, self.array)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Create a DLPack capsule over this memory; ``stream`` is the consumer's, which waits for queued work."""
        self.backend.check_open("dlpack")
        device = self.backend.device
        interop.check_device(device, dl_device)
        given = self._staging(self) if copy else self
        return interop.to_dlpack(device, given.array, given, stream, max_version, bool(copy))

    def __dlpack_device__(self) -> tuple[int, int]:
        return interop.CUDA, self.backend.device.number

    # Views

    def _make_view(self, array: DeviceArray) -> GPUTensor:
        view = GPUTensor(self.backend, array, self.name, self.persist_values, base=self)
        if self.rounding:
            view.rounding = self.rounding
        return view

    def _view(self, index: Any) -> Any:
        chosen = select(index, self.shape)
        array = self.array[chosen.basic]
        if chosen.gather is None:
            same = array.shape == self.shape and array.strides == self.array.strides
            return self if same else self._make_view(array)
        picked = moves.take(self._make_view(array), chosen.gather, chosen.gather_axis or 0)
        out = self.backend.fresh(picked.shape, self.dtype, self.name, self.persist_values)
        return gathered(self.backend.assign(out, picked), self, chosen)

    def _set_selected(self, index: Any, value: Any) -> None:
        chosen = select(index, self.shape)
        view = self._make_view(self.array[chosen.basic])
        if chosen.gather is None:
            self._assign_view(view, value)
        else:
            self._scatter(view, chosen, value)

    def _scatter(self, view: GPUTensor, chosen: Selection, value: Any) -> None:
        """Assign to the selected slices of ``view``, in order: the last assignment to a repeated slice wins."""
        axis, positions = chosen.gather_axis or 0, chosen.gather
        assert positions is not None
        shape = (*view.shape[:axis], len(positions), *view.shape[axis + 1 :])
        values = self.backend.fresh(shape, self.dtype)
        self.backend.assign(values, value)
        before = (slice(None),) * axis
        last = {int(position): source for source, position in enumerate(positions)}
        for position, source in last.items():
            target = view._make_view(view.array[(*before, slice(position, position + 1))])
            self.backend.assign(target, values._make_view(values.array[(*before, slice(source, source + 1))]))

    def permuted(self, axes: tuple[int, ...]) -> GPUTensor:
        """View with axes in the order ``axes``."""
        try:
            array = self.array.transpose(axes)
        except (ValueError, TypeError, IndexError):
            permutation("permuted", axes, len(self.shape))  # raises an error that describes the fault
            raise
        return self._make_view(array)

    def _reshaped(self, shape: Shape) -> GPUTensor | None:
        try:
            return self._make_view(self.array.reshape(shape))
        except ShapeError:
            return None

    @checked
    def share(self, shape: Any, dtype: Any = None, name: str | None = None) -> GPUTensor:
        """View of ``shape`` (and ``dtype``, else this one's) over the first bytes of this memory.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : dtype, optional
        name : str, optional
            None: that of this tensor.

        Raises
        ------
        ShapeError
            If it does not fit, or this tensor is not contiguous.
        """
        new, kind = as_shape(shape, "share"), self.dtype if dtype is None else as_dtype(dtype, "share")
        needed = math.prod(new) * kind.itemsize
        if not self.is_contiguous:
            raise ShapeTypeError(f"share: needs a contiguous tensor, got strides {self.strides}")
        if needed > self.nbytes:
            raise ShapeError(f"share: {new} of {kind.name} needs {needed} bytes, there are {self.nbytes}")
        view = self._make_view(contiguous_array(self.array.memory, self.address, new, kind))
        view.name = name or self.name
        return view
