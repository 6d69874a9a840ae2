"""``DeviceArray``: address, shape and strides of elements in device memory, with NumPy-like views."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from neonlike.errors import IndexRangeError, ShapeError
from neonlike.kernels.cuda.device import Memory
from neonlike.optree.dtypes import DType
from neonlike.optree.shapes import Shape, contiguous_strides

Strides = tuple[int, ...]


class DeviceArray:
    """Elements of ``dtype`` at ``address``, ``strides`` bytes apart; keeps ``memory`` alive.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        Strides in bytes; may be negative or 0.
    dtype : numpy.dtype
    address : int
        Address of the element at index (0, 0, ...).
    memory : Memory or None
        None for memory owned elsewhere.
    """

    __slots__ = ("address", "dtype", "memory", "shape", "strides")

    def __init__(self, memory: Memory | None, address: int, shape: Shape, strides: Strides, dtype: DType) -> None:
        self.memory = memory
        self.address = address
        self.shape = shape
        self.strides = strides
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"DeviceArray(0x{self.address:x}, {self.shape}, strides={self.strides}, {self.dtype.name})"

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.itemsize

    @property
    def c_contiguous(self) -> bool:
        """True if elements lie in C order without gaps."""
        step = self.dtype.itemsize
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size == 0:
                return True
            if size != 1:
                if stride != step:
                    return 0 in self.shape
                step *= size
        return True

    @property
    def bounds(self) -> tuple[int, int]:
        """Addresses of the first byte and after the last one; equal if there are no elements."""
        if 0 in self.shape:
            return self.address, self.address
        ends = [(size - 1) * stride for size, stride in zip(self.shape, self.strides)]
        low = self.address + sum(end for end in ends if end < 0)
        return low, self.address + sum(end for end in ends if end > 0) + self.itemsize

    # Views

    def transpose(self, *axes: Any) -> DeviceArray:
        """View with axes in the order ``axes``; by default reversed."""
        order: Sequence[int] = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        order = order or range(self.ndim)[::-1]
        shape, strides = tuple(self.shape[a] for a in order), tuple(self.strides[a] for a in order)
        return DeviceArray(self.memory, self.address, shape, strides, self.dtype)

    def reshape(self, *shape: Any) -> DeviceArray:
        """View of another shape with as many elements; one size may be -1.

        Raises
        ------
        ShapeError
            If the number of elements differs, or no strides give that order.
        """
        wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else tuple(shape)
        if wanted.count(-1) == 1:
            known = math.prod(n for n in wanted if n != -1)
            rest = self.size // known if known else 0
            wanted = tuple(rest if n == -1 else n for n in wanted)
        if math.prod(wanted) != self.size or any(n < 0 for n in wanted):
            raise ShapeError(f"reshape: cannot make {wanted} of {self.shape}; sizes must multiply to {self.size}")
        strides = view_strides(self.shape, self.strides, wanted, self.itemsize)
        if strides is None:
            raise ShapeError(f"reshape: {self.shape} with strides {self.strides} has no view of shape {wanted}; copy")
        return DeviceArray(self.memory, self.address, wanted, strides, self.dtype)

    def view(self, dtype: DType) -> DeviceArray:
        """The same bytes as elements of ``dtype``, along the last axis.

        Raises
        ------
        ShapeError
            If the last axis has gaps or its bytes do not divide evenly, and the sizes differ.
        """
        old, new = self.itemsize, int(dtype.itemsize)
        if old == new:
            return DeviceArray(self.memory, self.address, self.shape, self.strides, dtype)
        length = self.shape[-1] * old if self.shape else 0
        if not self.shape or (self.shape[-1] != 1 and self.strides[-1] != old) or length % new:
            raise ShapeError(f"view: {self} has no view of {dtype.name}; its last axis must have no gaps and fit")
        shape = (*self.shape[:-1], length // new)
        return DeviceArray(self.memory, self.address, shape, (*self.strides[:-1], new), dtype)

    def __getitem__(self, key: Any) -> DeviceArray:
        """View by integers, slices, None and ``...``."""
        address = self.address
        shape: list[int] = []
        strides: list[int] = []
        axis = 0
        for item in _expanded(key, self.ndim):
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            size, stride = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(item, slice):
                start, stop, step = item.indices(size)
                count = len(range(start, stop, step))
                address += start * stride if count else 0
                shape.append(count)
                strides.append(stride * step)
                continue
            position = operator.index(item)
            if not -size <= position < size:
                raise IndexRangeError(f"index {position} is out of range for axis {axis - 1} of shape {self.shape}")
            address += position % size * stride
        return DeviceArray(self.memory, address, tuple(shape), tuple(strides), self.dtype)


def _expanded(key: Any, ndim: int) -> list[Any]:
    """One item per axis, and Nones."""
    items = list(key) if isinstance(key, tuple) else [key]
    used = sum(item is not None and item is not Ellipsis for item in items)
    if used > ndim or sum(item is Ellipsis for item in items) > 1:
        raise IndexRangeError(f"index {key!r}: too many indices for {ndim} axes")
    full = [slice(None)] * (ndim - used)
    for place, item in enumerate(items):
        if item is Ellipsis:
            return items[:place] + full + items[place + 1 :]
    return items + full


def contiguous_array(memory: Memory | None, address: int, shape: Shape, dtype: DType) -> DeviceArray:
    """Contiguous elements in C order from ``address`` on.

    Parameters
    ----------
    memory : Memory or None
        Kept alive by the array.
    address : int
    shape : tuple of int
    dtype : dtype
    """
    return DeviceArray(memory, address, shape, contiguous_strides(shape, int(dtype.itemsize)), dtype)


def collapsed(shape: Shape, strides: Strides) -> tuple[Shape, Strides]:
    """Merge axes as far as possible, keeping elements and order; axes of size 1 are dropped."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, stride in zip(shape, strides):
        if size == 1:
            continue
        if sizes and steps[-1] == stride * size:
            sizes[-1] *= size
            steps[-1] = stride
        else:
            sizes.append(size)
            steps.append(stride)
    return tuple(sizes), tuple(steps)


def view_strides(shape: Shape, strides: Strides, wanted: Shape, itemsize: int) -> Strides | None:
    """Strides for the elements of (``shape``, ``strides``) in C order as ``wanted``; None if impossible.

    The numbers of elements must be equal.

    Parameters
    ----------
    shape, wanted : tuple of int
    strides : tuple of int
        In bytes.
    itemsize : int
    """
    if 0 in shape:
        return contiguous_strides(wanted, itemsize)
    sizes, steps = collapsed(shape, strides)
    found: list[int] = [0] * len(wanted)
    axis, left = len(sizes) - 1, 0  # left: the unused part of the source axis being split
    step = itemsize
    for place in range(len(wanted) - 1, -1, -1):
        size = wanted[place]
        if size > 1 and left <= 1:
            step, left = steps[axis], sizes[axis]
            axis -= 1
        found[place] = step
        if size > 1:
            if left % size:
                return None
            left //= size
            step *= size
    return tuple(found)


def share_elements(a: DeviceArray, b: DeviceArray) -> bool:
    """True if some byte belongs to both, or if the exact test would take too long."""
    (a_low, a_high), (b_low, b_high) = a.bounds, b.bounds
    if a_low == a_high or b_low == b_high or a_low >= b_high or b_low >= a_high:
        return False
    if a.c_contiguous and b.c_contiguous:
        return True
    try:
        # NumPy solves for equal addresses from these arrays' shapes and strides, and never reads an element.
        return bool(np.shares_memory(_Places(a).array(), _Places(b).array(), max_work=100_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class _Places:
    """Presents device addresses to NumPy as host memory, for its overlap test."""

    def __init__(self, array: DeviceArray) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.itemsize}",
            "data": (array.address, False),
        }

    def array(self) -> Any:
        """An array that must not be read or written."""
        return np.asarray(self)


# Rectangles

LARGEST_PITCH = 2**31 - 1
"""Maximum bytes between rows in a 2-D copy of the driver."""


class Piece(NamedTuple):
    """``height`` runs of ``width`` bytes, ``pitch`` bytes apart on the device, adjacent on the host."""

    address: int
    offset: int
    width: int
    height: int
    pitch: int


def ascending(array: DeviceArray) -> tuple[DeviceArray, tuple[int, ...]]:
    """Reverse the axes of negative stride in ``array``, and return which axes these are."""
    axes = tuple(axis for axis, stride in enumerate(array.strides) if stride < 0)
    flips = tuple(slice(None, None, -1) if axis in axes else slice(None) for axis in range(array.ndim))
    return array[flips], axes


def _rectangle(array: DeviceArray) -> tuple[int, int, int, Shape, Strides]:
    """Width, height and pitch of the rectangles in ``array``, and the axes along which they are arranged."""
    shape, strides = collapsed(array.shape, array.strides)
    width = array.itemsize
    if shape and strides[-1] == width:
        width, shape, strides = shape[-1] * width, shape[:-1], strides[:-1]
    if shape and width <= strides[-1] <= LARGEST_PITCH:
        return width, shape[-1], strides[-1], shape[:-1], strides[:-1]
    return width, 1, width, shape, strides


def piece_count(array: DeviceArray) -> int:
    """Number of rectangles from :func:`pieces`."""
    return math.prod(_rectangle(ascending(array)[0])[3])


def pieces(array: DeviceArray) -> Iterator[Piece]:
    """Elements of ``array``, without negative strides, in C order as rectangles of bytes."""
    width, height, pitch, shape, strides = _rectangle(array)
    offsets = (
        sum(position * stride for position, stride in zip(place, strides))
        for place in itertools.product(*(range(size) for size in shape))
    )
    for number, offset in enumerate(offsets):
        yield Piece(array.address + offset, number * width * height, width, height, pitch)
