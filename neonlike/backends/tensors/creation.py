"""Creation of tensors: from shapes, from host data, from memory of other libraries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends.dlpack import import_bfloat16
from neonlike.backends.family import Family
from neonlike.backends.hostdata import as_column, host_array
from neonlike.backends.tensor import Tensor
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, MissingArgument, ShapeError
from neonlike.optree.dtypes import DType, as_dtype, is_float
from neonlike.optree.node import Expression
from neonlike.optree.origin import computed
from neonlike.optree.shapes import Shape, as_shape


class CreationFamily(Family):
    """``empty``, ``zeros``, ``ones``, ``array``, ``*_like``, ``iobuf``.

    ``parallel``, ``distributed`` and ``allocator`` are neon's arguments, accepted but ignored.

    Attributes
    ----------
    num_dev : int
        Number of devices that share a buffer, settable for scripts with several.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.array([1, 2]).shape, be.zeros((2, 3)).dtype.name
    ((2, 1), 'float32')
    """

    num_dev = 1
    default_np_dtype: DType

    @property
    def default_dtype(self) -> Any:
        """Default element type of tensors as a NumPy type; may be set to another dtype.

        Raises
        ------
        BadDefaultDType
            If it is set to anything but a float; it then stays unchanged.
        """
        return self.default_np_dtype.type

    @default_dtype.setter
    def default_dtype(self, value: Any) -> None:
        self.default_np_dtype = checked_default_dtype("default_dtype", value)

    def _allocate(self, shape: Shape, dtype: DType, name: str | None, persist_values: bool) -> Any:
        """Hook: create a tensor with undefined contents."""
        raise NotImplementedError

    def _allocate_for_users(
        self, shape: Shape, dtype: DType, name: str | None, persist_values: bool, cleared: bool
    ) -> Any:
        """Hook: create a tensor on a user's request; not ``cleared``: it is filled at once."""
        return self._allocate(shape, dtype, name, persist_values)

    def fresh(self, shape: Any, dtype: Any = None, name: str | None = None, persist_values: bool = True) -> Any:
        """As :meth:`empty`, with undefined contents on every backend: for tensors that are written at once.

        Parameters
        ----------
        shape, dtype, name, persist_values
            As in :meth:`empty`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.fresh((2, 3)).fill(7).tolist()
        [[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]]
        """
        self.check_open("empty")
        return self._allocate(as_shape(shape, "empty"), self._dtype(dtype, "empty"), name, persist_values)

    def _new(self, shape: Any, dtype: Any, name: str | None, persist_values: bool, cleared: bool = False) -> Any:
        """Create a tensor for a user."""
        self.check_open("empty")
        kind = self._dtype(dtype, "empty")
        return self._allocate_for_users(as_shape(shape, "empty"), kind, name, persist_values, cleared)

    def _dtype(self, dtype: Any, operation: str) -> DType:
        return self.default_np_dtype if dtype is None else as_dtype(dtype, operation)

    def empty(
        self,
        shape: Any,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        parallel: bool = False,
        distributed: bool = False,
        allocator: Any = None,
    ) -> Any:
        """New tensor of ``shape`` (int or sequence; one dimension becomes (n, 1)).

        Contents are zeros on the CPU, as in neon, and undefined on a GPU.

        Parameters
        ----------
        shape : int or sequence of int
            An int, or a sequence of one, becomes (n, 1).
        dtype : dtype, optional
            None: the backend's default.
        name : str, optional
            Shown by ``repr`` and in reports.
        persist_values : bool
            neon's mark of a buffer whose values have to survive; kept as an attribute.
        parallel, distributed, allocator
            neon's arguments, without effect.

        Raises
        ------
        ShapeError
            For negative or non-integer sizes.
        DTypeError
            For a dtype that tensors cannot hold.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.empty(3).shape, be.empty((2, 3, 4), dtype="int8").dtype.name
        ((3, 1), 'int8')
        """
        return self._new(shape, dtype, name, persist_values, cleared=True)

    def zeros(
        self,
        shape: Any,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        parallel: bool = False,
        distributed: bool = False,
        allocator: Any = None,
    ) -> Any:
        """New tensor of zeros; arguments as :meth:`empty`.

        Parameters
        ----------
        shape, dtype, name, persist_values, parallel, distributed, allocator
            As in :meth:`empty`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.zeros((2, 2)).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        return self._new(shape, dtype, name, persist_values).fill(0)

    def ones(
        self,
        shape: Any,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        parallel: bool = False,
        distributed: bool = False,
        allocator: Any = None,
    ) -> Any:
        """New tensor of ones; arguments as :meth:`empty`.

        Parameters
        ----------
        shape, dtype, name, persist_values, parallel, distributed, allocator
            As in :meth:`empty`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.ones((1, 2), dtype="int32").tolist()
        [[1, 1]]
        """
        return self._new(shape, dtype, name, persist_values).fill(1)

    def array(
        self,
        ary: Any,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        parallel: bool = False,
        distributed: bool = False,
        allocator: Any = None,
    ) -> Any:
        """Create a tensor from a copy of data (array, nested lists, number, tensor, array of another library).

        ``dtype`` defaults to the backend's, not to the data's. Conversion to integers rounds and saturates, see
        ``Tensor.astype``. Data of one dimension make a column (n, 1).

        Parameters
        ----------
        ary : array, nested lists, number, tensor or expression
            Any real numbers.
        dtype : dtype, optional
            None: the backend's default.
        name, persist_values, parallel, distributed, allocator
            As in :meth:`empty`.

        Raises
        ------
        DTypeError
            If the data are not a regular array of real numbers.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.array([1, 2, 3]).shape
        (3, 1)
        """
        self.check_open("array")
        data = self.on_device(ary)
        if data is None:
            data = host_array("array", ary)
        shape = as_shape(data.shape or (1, 1), "array")
        return computed(self._new(shape, dtype, name, persist_values).set(data), ary)

    def _like(self, operation: str, *given: Any) -> tuple[Shape, Any]:
        """Shape and dtype of the single value in ``given`` that is not None."""
        sources = [source for source in given if source is not None]
        if len(sources) != 1:
            raise MissingArgument(f"{operation}: needs one tensor or array to be like, got {len(sources)}")
        other = sources[0] if isinstance(sources[0], Expression) else host_array(operation, sources[0])
        return other.shape, other.dtype

    def empty_like(
        self,
        other: Any = None,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        *,
        ary: Any = None,
        other_ary: Any = None,
    ) -> Any:
        """New tensor in the shape of ``other`` (tensor or array), by default of its dtype; see :meth:`empty`.

        ``ary`` and ``other_ary`` are neon's names of ``other``.

        Parameters
        ----------
        other : tensor, expression or array
        dtype : dtype, optional
            None: the dtype of ``other``.
        name, persist_values
            As in :meth:`empty`.
        ary, other_ary
            neon's names of ``other``.

        Raises
        ------
        MissingArgument
            If none or several of the names are given.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.empty_like(be.ones((2, 3), dtype="int8")).dtype.name
        'int8'
        """
        shape, own = self._like("empty_like", other, ary, other_ary)
        return self.empty(shape, own if dtype is None else dtype, name, persist_values)

    def zeros_like(
        self,
        other: Any = None,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        *,
        ary: Any = None,
        other_ary: Any = None,
    ) -> Any:
        """New tensor of zeros; arguments as :meth:`empty_like`.

        Parameters
        ----------
        other, dtype, name, persist_values, ary, other_ary
            As in :meth:`empty_like`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.zeros_like(be.ones((1, 3))).tolist()
        [[0.0, 0.0, 0.0]]
        """
        shape, own = self._like("zeros_like", other, ary, other_ary)
        return self.zeros(shape, own if dtype is None else dtype, name, persist_values)

    def ones_like(
        self,
        other: Any = None,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        *,
        ary: Any = None,
        other_ary: Any = None,
    ) -> Any:
        """New tensor of ones; arguments as :meth:`empty_like`.

        Parameters
        ----------
        other, dtype, name, persist_values, ary, other_ary
            As in :meth:`empty_like`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.ones_like(be.zeros((1, 3))).tolist()
        [[1.0, 1.0, 1.0]]
        """
        shape, own = self._like("ones_like", other, ary, other_ary)
        return self.ones(shape, own if dtype is None else dtype, name, persist_values)

    def wrap(self, host: npt.NDArray[Any]) -> Any:
        """Hook: create a tensor over the memory of a NumPy array, without a copy if possible.

        Examples
        --------
        >>> import numpy as np
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> host = np.zeros((1, 2), np.float32)
        >>> be.wrap(host)[:] = 5
        >>> host.tolist()
        [[5.0, 5.0]]
        """
        raise NotImplementedError

    def on_device(self, value: Any) -> Any:
        """Hook: create a tensor over ``value``, not a NumPy array, if it is in the backend's memory; else None.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.on_device([1, 2]) is None
        True
        """
        return None

    def from_dlpack(self, other: Any) -> Any:
        """Create a tensor over the memory of another library's array (anything with ``__dlpack__``), without a copy.

        A 1-D array becomes a column (n, 1). Changes are visible in both.

        Raises
        ------
        DTypeError
            If ``other`` has no such memory, or its dtype or device is not supported.

        Examples
        --------
        >>> import numpy as np
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> host = np.zeros((1, 2), np.float32)
        >>> t = be.from_dlpack(host)
        >>> host[0, 1] = 5
        >>> t.tolist()
        [[0.0, 5.0]]
        """
        self.check_open("from_dlpack")
        try:
            array = np.from_dlpack(other)
        except (AttributeError, TypeError, RuntimeError, BufferError) as error:
            found = import_bfloat16(other)
            if found is None:
                raise DTypeError(
                    f"from_dlpack: cannot share the memory of {type(other).__name__}: {error}; copy with be.array"
                ) from None
            array = found
        if not array.flags.writeable:  # NumPy before 2.1 exports everything as read-only
            alternative = np.asarray(other)
            array = alternative if np.shares_memory(alternative, array) else array
        return self.wrap(as_column(array))

    def iobuf(
        self,
        dim0: Any,
        x: Any = None,
        dtype: Any = None,
        name: str | None = None,
        persist_values: bool = True,
        shared: Tensor | None = None,
        parallelism: Any = None,
    ) -> Any:
        """Create a zeroed activation buffer with the minibatch as last axis; ``x`` itself if given.

        Shape is (dim0, bsz) for an int, (d0, d1*bsz) for a pair (features, steps), (prod, bsz) for longer shapes.
        With ``shared``, that tensor if it has the shape, else a view of its memory; zeroed too.

        Parameters
        ----------
        dim0 : int or sequence of int
            Size of a sample, without the batch.
        x : tensor, optional
            Returned as it is, if given.
        dtype, name, persist_values
            As in :meth:`empty`.
        shared : tensor, optional
            Memory to use, of at least as many bytes.
        parallelism
            neon's argument, without effect.

        Raises
        ------
        ShapeError
            If the batch size is not set, or ``shared`` is too small.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", batch_size=4)
        >>> be.iobuf(3).shape, be.iobuf((3, 2)).shape, be.iobuf((3, 2, 2)).shape
        ((3, 4), (3, 8), (12, 4))
        """
        if x is not None:
            return x
        if not self.bsz:
            raise ShapeError("iobuf: the batch size is not set; set be.bsz or pass batch_size to gen_backend")
        sizes = as_shape(dim0, "iobuf")
        shape = (sizes[0], sizes[1] * self.bsz) if len(sizes) == 2 else (math.prod(sizes), self.bsz)
        if shared is None:
            buffer = self._new(shape, dtype, name, persist_values)
        elif shared.shape == shape and dtype in (None, shared.dtype):
            buffer = shared
        else:
            buffer = shared.share(shape, dtype, name)  # type: ignore[attr-defined]
        return buffer.fill(0)

    def consume(self, buf_index: int, hostlist: list[Any], devlist: list[Any]) -> None:
        """Copy host batches transposed to tensors: ``devlist[i]``, created if None, receives ``hostlist[i].T``.

        Parameters
        ----------
        buf_index : 0 or 1
            The position i to transfer, of a double buffer.
        hostlist : list of arrays (N, features)
        devlist : list of tensors (features, N) or None; None is replaced in the list

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> loaded = [None, None]
        >>> be.consume(0, [[[1., 2.]], [[3., 4.]]], loaded)
        >>> loaded[0].tolist()
        [[1.0], [2.0]]
        """
        if buf_index not in (0, 1):
            raise ArgumentError(f"consume: buf_index must be 0 or 1, got {brief(buf_index)}")
        if not (isinstance(devlist, list) and buf_index < min(len(hostlist), len(devlist))):
            raise ArgumentError(
                f"consume: hostlist and devlist must be lists with a position {buf_index}, "
                f"got {brief(hostlist)} and {brief(devlist)}"
            )
        host, target = host_array("consume", hostlist[buf_index]), devlist[buf_index]
        if target is None:
            target = devlist[buf_index] = self.fresh(host.T.shape, host.dtype)
        self._check_target(target)
        target.set(host.T)

    def shared_iobuf_size(self, shape: Any, parallelism: str | None = None) -> int:
        """Elements of a buffer shared by layers of ``shape``.

        It is for ``be.num_dev`` devices, settable by scripts, unless ``parallelism`` is "Data" or "Model", which splits
        the layers over them.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.shared_iobuf_size((3, 4))
        12
        """
        size = math.prod(as_shape(shape, "shared_iobuf_size"))
        return size if parallelism in ("Data", "Model") else size * int(self.num_dev)


class BadDefaultDType(DTypeError, ValueError):
    """A default dtype that is not a float.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> try:
    ...     gen_backend("cpu", datatype="int32")
    ... except BadDefaultDType:
    ...     print("a float is needed")
    a float is needed
    """


def checked_default_dtype(name: str, value: npt.DTypeLike) -> DType:
    """Return ``value`` as a default dtype; raise BadDefaultDType if it is not a float."""
    if value is None:
        raise BadDefaultDType(f"{name}: default_dtype must be float16, bfloat16, float32 or float64, got None")
    try:
        dtype = as_dtype(value, name)
    except DTypeError as error:
        raise BadDefaultDType(str(error)) from None
    if not is_float(dtype):
        raise BadDefaultDType(f"{name}: default_dtype must be float16, bfloat16, float32 or float64, got {dtype.name}")
    return dtype
