"""Tensor in host memory: a NumPy array with neon's rules on top."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends.dlpack import export_bfloat16
from neonlike.backends.objects.filemap import alias_in_files
from neonlike.backends.tensor import Tensor, cached, put
from neonlike.backends.tensor_host import TensorHost
from neonlike.checks import checked
from neonlike.errors import DTypeError, ShapeError
from neonlike.kernels.run.convert import converter
from neonlike.kernels.run.trace import lose
from neonlike.optree.dtypes import as_dtype, holds
from neonlike.optree.forms import mark, owner
from neonlike.optree.indexing import Selection, basic_index, select
from neonlike.optree.origin import gathered
from neonlike.optree.shapes import Shape, ShapeTypeError, as_shape, permutation
from neonlike.optree.values import fetched

SCATTERED, IN_ORDER = 1 << 17, 1 << 20
"""Bytes from which a kernel copies host arrays whose elements are in another order than C, and those in C order.

A kernel works on several threads. Of other orders NumPy takes one element after the other, to or from addresses that a
cache has few places for; a kernel works in tiles: a batch of 3072 x 128 that was stored sample by sample took a
fifteenth of the time.
"""


@owner
class CPUTensor(Tensor):
    """See :class:`Tensor`. ``array`` is the NumPy array; ``np.asarray(t)`` and DLPack share its memory.

    Parameters
    ----------
    backend : Backend
    array : ndarray with at least two axes
    name : str, optional
    persist_values : bool
    base : CPUTensor, optional
        The tensor that this one is a view of.
    owned : bool
        Whether the memory is ours.
    root : object
        Identity of the allocation; views have their base's. None for memory that is not ours, which may overlap
        with any other.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> t = gen_backend("cpu").ones((1, 2))
    >>> t.array[0, 0] = 5
    >>> t.tolist()
    [[5.0, 1.0]]
    """

    array: npt.NDArray[Any]
    root: object | None

    def __init__(
        self,
        backend: TensorHost,
        array: npt.NDArray[Any],
        name: str | None = None,
        persist_values: bool = True,
        base: CPUTensor | None = None,
        owned: bool = True,
    ) -> None:
        super().__init__(backend, array.shape, array.dtype, name, persist_values, base)
        put(self, "array", array)
        put(self, "root", base.root if base is not None else (object() if owned else None))

    # Memory

    @property
    def _tensor(self) -> npt.NDArray[Any]:
        return self.array

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps between neighbours along each axis, in elements."""
        return tuple(step // self.dtype.itemsize for step in self.array.strides)

    @property
    def is_contiguous(self) -> bool:
        """True if elements lie in C order without gaps."""
        return self.array.flags.c_contiguous

    @property
    def ptr(self) -> int:
        """Host address of the first element."""
        return int(self.array.__array_interface__["data"][0])

    @cached
    def address(self) -> int:
        """``ptr``, looked up once: what kernels are called with."""
        return self.ptr

    @cached
    def geometry(self) -> tuple[Shape, tuple[int, ...]]:
        """Shape, and steps in bytes: with ``address``, all that a kernel depends on."""
        return self.array.shape, self.array.strides

    def raw(self) -> int:
        """Host address of the first element."""
        return self.ptr

    def alias_of(self, other: CPUTensor) -> int:
        """0: no shared memory, 1: exactly the same elements in the same order, 2: any other overlap."""
        if not isinstance(other, Tensor):
            raise DTypeError(f"alias_of: other must be a tensor, got {type(other).__name__}")
        if self.root is not other.root and self.root is not None and other.root is not None:
            return 0
        mine, its = self.array, other.array
        if mine.shape == its.shape and mine.strides == its.strides and self.ptr == other.ptr:
            return 1 if self.dtype == other.dtype else 2
        if not np.may_share_memory(mine, its):
            return alias_in_files(self, other) if self.root is None and other.root is None else 0
        try:
            return 2 if np.shares_memory(mine, its, max_work=100_000) else 0  # type: ignore[arg-type]
        except np.exceptions.TooHardError:
            return 2

    # Host access

    @property
    def _host(self) -> npt.NDArray[Any]:
        """The memory, to be read or written by other means than programs: no pass that does so is repeated."""
        lose()
        return self.array

    def get(self, stream: Any = None) -> npt.NDArray[Any]:
        """Host copy with this shape and dtype."""
        self.backend.check_open("get")
        source = self._host
        if not self._copied_by_kernel(source):
            return fetched(source.copy())
        made = np.empty(self.shape, self.dtype)
        self.backend.assign(CPUTensor(self.backend, made, owned=False), self)
        return fetched(made)

    def asnumpyarray(self) -> npt.NDArray[Any]:
        """The live array: changes to it change the tensor."""
        self.backend.check_open("asnumpyarray")
        return fetched(self.array)  # primitives take it for their kernels, and say themselves what they did

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        self.backend.check_open("np.asarray")
        host = self._host
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if copy is False:
                raise ValueError(f"np.asarray: {self.dtype.name} to {np.dtype(dtype).name} needs a copy")
            return host.astype(dtype)
        return host.copy() if copy else host

    def __dlpack__(self, **options: Any) -> Any:
        self.backend.check_open("dlpack")
        host = self._host
        return export_bfloat16(host, **options) if self.dtype.kind == "V" else host.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def _set_host(self, host: npt.NDArray[Any]) -> None:
        self.backend.check_open("set")
        own = self._host
        if self._copied_by_kernel(host):
            self.backend.assign(self, CPUTensor(self.backend, host, owned=False))
            return
        if host.dtype == own.dtype:
            np.copyto(own, host)
            return
        with np.errstate(all="ignore"):
            converter(self.dtype)(host.copy() if np.may_share_memory(host, own) else host, own)

    def _copied_by_kernel(self, host: npt.NDArray[Any]) -> bool:
        """Whether a kernel is to read ``host``, as a tensor over it; not where NumPy is as fast, or has to."""
        if host.nbytes < SCATTERED or (host.nbytes < IN_ORDER and host.flags.c_contiguous):
            return False
        size = host.dtype.itemsize
        if not host.flags.aligned or any(step <= 0 or step % size for step in host.strides) or not holds(host.dtype):
            return False
        return self.backend.executor.replay.table is not None

    # Views

    def _make_view(self, array: npt.NDArray[Any]) -> CPUTensor:
        return CPUTensor(self.backend, array, self.name, self.persist_values, base=self)

    mark(_make_view, "view")

    def _part(self, index: Any) -> tuple[npt.NDArray[Any], Selection | None]:
        """The part of the array that an index selects, and the selection if slices of it are to be gathered."""
        basic = basic_index(index, self.shape)
        if basic is not None:
            try:
                return self.array[basic], None
            except (TypeError, ValueError):  # ends of slices that are no integers, or a step of 0: select() says so
                pass
        chosen = select(index, self.shape)
        return self.array[chosen.basic], None if chosen.gather is None else chosen

    def _view(self, index: Any) -> Any:
        array, chosen = self._part(index)
        if chosen is None:
            return self if array.shape == self.shape and array.strides == self.array.strides else self._make_view(array)
        picked = np.take(self._host[chosen.basic], chosen.gather, axis=chosen.gather_axis)  # type: ignore[arg-type]
        return gathered(CPUTensor(self.backend, picked, self.name, self.persist_values), self, chosen)

    def _set_selected(self, index: Any, value: Any) -> None:
        array, chosen = self._part(index)
        if chosen is None or chosen.gather is None:
            self._assign_view(self._make_view(array), value)
            return
        self.check_writeable("assignment")
        axis = chosen.gather_axis or 0
        shape = (*array.shape[:axis], len(chosen.gather), *array.shape[axis + 1 :])
        values = CPUTensor(self.backend, np.empty(shape, self.dtype))
        self.backend.assign(values, value)
        self._host[chosen.basic][(*[slice(None)] * axis, chosen.gather)] = values.array

    def permuted(self, axes: tuple[int, ...]) -> CPUTensor:
        """View with axes in the order ``axes``."""
        try:
            array = self.array.transpose(axes)
        except (ValueError, TypeError, IndexError):
            permutation("permuted", axes, len(self.shape))  # says what is wrong
            raise
        return self._make_view(array)

    def _reshaped(self, shape: Shape) -> CPUTensor | None:
        own = self.array
        array = own.reshape(shape)
        is_view = own.flags.c_contiguous or not own.size or np.may_share_memory(array, own)
        return self._make_view(array) if is_view else None

    @checked
    def share(self, shape: Any, dtype: Any = None, name: str | None = None) -> CPUTensor:
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

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> memory = gen_backend("cpu").zeros((4, 4))
        >>> memory.share((2, 3)).fill(1).shape, memory.tolist()[0]
        ((2, 3), [1.0, 1.0, 1.0, 1.0])
        """
        new, kind = as_shape(shape, "share"), self.dtype if dtype is None else as_dtype(dtype, "share")
        count = math.prod(new)
        if not self.is_contiguous:
            raise ShapeTypeError(f"share: needs a contiguous tensor, got strides {self.strides}")
        if count * kind.itemsize > self.nbytes:
            needed = count * kind.itemsize
            raise ShapeError(f"share: {new} of {kind.name} needs {needed} bytes, there are {self.nbytes}")
        view = self._make_view(self.array.reshape(-1).view(np.uint8)[: count * kind.itemsize].view(kind).reshape(new))
        view.name = name or self.name
        return view
