"""Pickling and deep copies of tensors: values, dtype, name and ``persist_values``; no backend, no memory.

A loaded tensor is created on the current backend, possibly in another process or of another kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.errors import BackendUnavailable, DTypeError
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.dtypes import BFLOAT16, as_dtype
from neonlike.optree.origin import computed


def reduce_tensor(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    """State for ``pickle``: :func:`restore_tensor` and its arguments, plain values and a NumPy array."""
    host = np.ascontiguousarray(tensor.asnumpyarray())
    stored = host.view(np.uint16) if tensor.dtype.name == BFLOAT16 else host
    return restore_tensor, (stored, tensor.dtype.name, tensor.name, tensor.persist_values)


def restore_tensor(values: Any, dtype: str, name: str | None, persist_values: bool) -> Any:
    """Restore a tensor on the current backend; bfloat16 is stored as the bits of its elements, uint16.

    The arguments come from files, so all of them are checked.

    Parameters
    ----------
    values : array
    dtype : str
        Name of the dtype.
    name : str or None
    persist_values : bool

    Raises
    ------
    BackendUnavailable
        If there is no backend.
    DTypeError
        If the values are not of ``dtype``.
    """
    be = NervanaObject.be
    if be is None:
        raise BackendUnavailable("unpickling a tensor: there is no backend to put it on; call gen_backend() first")
    wanted = as_dtype(dtype, "unpickling a tensor")
    stored = np.dtype(np.uint16) if dtype == BFLOAT16 else wanted
    if not isinstance(values, np.ndarray) or values.dtype != stored:
        found = getattr(values, "dtype", type(values).__name__)
        raise DTypeError(f"unpickling a tensor: needs an array of {stored}, for {wanted.name}, got {found}")
    host = values.view(wanted) if dtype == BFLOAT16 else values
    return be.array(host, dtype=wanted, name=name, persist_values=bool(persist_values))


def copy_tensor(tensor: Any) -> Any:
    """Copy a tensor on the same backend, with the same values, dtype, name and ``persist_values``.

    Gradients flow through it, see :mod:`neonlike.optree.origin`.
    """
    made = tensor.backend.fresh(tensor.shape, tensor.dtype, tensor.name, tensor.persist_values)
    return computed(made.backend.assign(made, tensor), tensor)
