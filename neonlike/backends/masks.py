"""Indexing by a mask of the tensor's shape: ``tensor[mask]`` and ``tensor[mask] = value``.

A mask is a comparison or a logical combination of comparisons (:mod:`neonlike.optree.truth`), a bool tensor, or a bool
array of at least two axes. The number of selected elements depends on values: ``tensor[mask]`` computes at once and
returns a tensor (n, 1) of the elements in C order. Storing is one expression, ``be.where(mask, value, tensor)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends.hostdata import host_array
from neonlike.errors import DTypeError, ShapeError
from neonlike.optree import arrange, moves
from neonlike.optree.dtypes import BOOL, is_float
from neonlike.optree.functions import F
from neonlike.optree.node import Expression, is_number


def picked(tensor: Any, mask: Any) -> Any:
    """New tensor (n, 1) of the elements of ``tensor`` selected by ``mask``, in C order. Gradients flow through it.

    Raises
    ------
    ShapeError
        If the mask has another shape.
    """
    places = np.flatnonzero(_host(tensor, mask))
    flat: Any = arrange.reshape(tensor, (tensor.size, 1))
    return flat[places] if flat.__class__ is tensor.__class__ else moves.take(flat, places, 0).astensor()


def assign(tensor: Any, mask: Any, value: Any) -> None:
    """Store ``value`` in the elements of ``tensor`` selected by ``mask``.

    The value is a number, an operand of the tensor's shape, or (n,) or (n, 1) values for the n elements, in C order.

    Parameters
    ----------
    tensor : Tensor
    mask : expression or bool array
        Of the tensor's shape.
    value : number, operand or array

    Raises
    ------
    ShapeError
        If the mask has another shape, or the value none of these forms.
    """
    be = tensor.backend
    if not isinstance(value, (int, float, Expression)):
        host = host_array("assignment", value)
        if host.ndim == 0:
            value = host.item()
        elif host.shape == tensor.shape:
            value = be.array(host, dtype=tensor.dtype)
        else:
            value = be.array(host.reshape(-1, 1) if host.ndim == 1 else host, dtype=tensor.dtype)
    shape = (1, 1) if is_number(value) or isinstance(value, (int, float)) else value.shape
    if shape not in (tensor.shape, (1, 1)):
        value = _spread(tensor, _host(tensor, mask), value)
    if not is_float(tensor.dtype) and (isinstance(value, float) or is_float(getattr(value, "dtype", tensor.dtype))):
        value = be.assign(be.fresh(shape if shape == (1, 1) else tensor.shape, tensor.dtype), value)
    where = mask if isinstance(mask, Expression) else be.array(mask, dtype=BOOL)
    _check(tensor, where)
    be.assign(tensor, F.where(where, value, tensor))


def _host(tensor: Any, mask: Any) -> npt.NDArray[Any]:
    """The values of ``mask``."""
    _check(tensor, mask)
    host = mask.asnumpyarray() if isinstance(mask, Expression) else mask
    return np.not_equal(host, 0)  # type: ignore[no-any-return]


def _check(tensor: Any, mask: Any) -> None:
    if mask.shape != tensor.shape:
        raise ShapeError(
            f"index: a mask of shape {mask.shape} does not fit a tensor of shape {tensor.shape}, it needs the same; "
            "be.where(mask, a, b) broadcasts, and a vector of positions picks rows: t[np.flatnonzero(mask)]"
        )
    if isinstance(mask, Expression) and mask.backend is not tensor.backend:
        raise DTypeError("index: the mask belongs to another backend; copy it: be.array(mask.get(), dtype=bool)")


def _spread(tensor: Any, host: npt.NDArray[Any], value: Any) -> Any:
    """An expression of the tensor's shape with the (n, 1) elements of ``value`` at the mask's positions."""
    count = int(np.count_nonzero(host))
    if value.shape != (count, 1):
        raise ShapeError(
            f"assignment: a value of shape {value.shape} fits neither the tensor, {tensor.shape}, nor the {count} "
            f"elements of the mask, ({count}, 1)"
        )
    if count == 0:
        return tensor
    order = np.maximum(np.cumsum(host.reshape(-1)) - 1, 0)
    return arrange.reshape(moves.take(value, order, 0), tensor.shape)
