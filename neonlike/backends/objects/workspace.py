"""``Workspace``: memory for several layers to use in turn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.geometry.counts import round_up
from neonlike.backends.tensors.scratch import GRANULE, ScratchTooSmall
from neonlike.errors import ArgumentError
from neonlike.optree.arrange import whole_number
from neonlike.optree.shapes import as_shape


class Workspace:
    """Memory of a backend without a shape; the result of ``be.workspace(nbytes)``.

    All layers of a network can share one, with the size that the largest needs: its tensors share memory, so each layer
    may overwrite the data of another.

    Parameters
    ----------
    be : Backend
    nbytes : int

    Attributes
    ----------
    nbytes : int

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> work = be.workspace(64)
    >>> work.tensor((2, 4)).shape, work.nbytes
    ((2, 4), 64)
    """

    def __init__(self, be: Any, nbytes: Any) -> None:
        self.nbytes = whole_number("workspace", "nbytes", nbytes)
        if self.nbytes < 0:
            raise ArgumentError(f"workspace: nbytes must not be negative, got {self.nbytes}")
        self.backend = be
        self._memory = be.fresh((self.nbytes, 1), np.uint8)

    def __repr__(self) -> str:
        return f"<Workspace of {self.nbytes:,} bytes on {self.backend!r}>"

    def tensor(self, shape: Any, dtype: Any = None, offset: int = 0) -> Any:
        """Create a tensor over the bytes from ``offset`` on, with their current contents.

        Parameters
        ----------
        shape : TensorDesc, or int or sequence of int
        dtype : dtype, optional
            Default: the dtype of the descriptor, else the backend's.
        offset : int
            Offset in bytes; a multiple of the element size.

        Raises
        ------
        ScratchTooSmall
            If it exceeds the workspace (a RuntimeError, too).
        ArgumentError
            If ``offset`` is negative or misaligned for the dtype.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.workspace(64).tensor((2, 2), "float64", offset=16).dtype.name
        'float64'
        """
        desc = shape if isinstance(shape, TensorDesc) else None
        sizes = as_shape(shape if desc is None else desc.shape, "workspace")
        kind = self.backend._dtype(desc.dtype if desc is not None and dtype is None else dtype, "workspace")
        start, needed = whole_number("workspace", "offset", offset), math.prod(sizes) * kind.itemsize
        if start < 0 or start % kind.itemsize:
            raise ArgumentError(
                f"workspace: offset must be a multiple of {kind.itemsize}, the bytes of {kind.name}, got {start}"
            )
        if start + needed > self.nbytes:
            raise ScratchTooSmall(
                f"workspace: {sizes} of {kind.name} takes {needed} bytes from {start} on, there are {self.nbytes}; "
                "make a larger one with be.workspace(nbytes)"
            )
        made = self._memory[start : start + needed].share(sizes, kind)
        if desc is not None:
            made.desc = desc.with_dtype(kind)
        return made

    def tensors(self, *descs: TensorDesc) -> list[Any]:
        """Create adjacent tensors from the start, one per descriptor, each aligned to 128 bytes.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.backends.descriptors import TensorDesc
        >>> a, b = be.workspace(256).tensors(TensorDesc((2, 2)), TensorDesc((3, 3)))
        >>> b.ptr - a.ptr
        128
        """
        starts, end = [], 0
        for desc in descs:
            starts.append(end)
            end += round_up(TensorDesc.of(desc).nbytes, GRANULE)
        return [self.tensor(desc, offset=start) for desc, start in zip(descs, starts)]
