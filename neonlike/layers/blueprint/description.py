"""Descriptors as blueprints take and give them: the batch is the last axis, and sizes are checked by name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.backends.descriptors import TensorDesc
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.core.base import require_size
from neonlike.optree.dtypes import is_float

SEQUENCE = "CTN"
"""The layout of sequences: features, steps, samples."""
LAYOUTS = {3: SEQUENCE}
"""Of shapes with so many axes; of others neon's."""


@contextmanager
def named(where: str) -> Iterator[None]:
    """Let errors about shapes, dtypes and arguments name the blueprint ``where``, too."""
    try:
        yield
    except (ShapeError, DTypeError, ArgumentError) as error:
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from None


def is_count(value: Any) -> bool:
    """Whether an output is given by its number of features."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def described(be: Any, where: str, given: Any) -> TensorDesc:
    """The descriptor that ``given`` says: one, a blueprint's output, a tensor's, or a shape in the backend's dtype.

    Raises
    ------
    DTypeError
        If it is none of these, or holds no floats.
    ShapeError
        If it has several outputs, another number of axes than 2 to 5, or an axis without elements.
    ArgumentError
        If the batch is not its last axis.
    """
    found = getattr(given, "train_desc", given)
    if isinstance(found, (tuple, list)) and any(isinstance(one, TensorDesc) for one in found):
        raise ShapeError(f"{where}: takes one input, but {given} has {len(found)} outputs; put concat or sum after it")
    if isinstance(found, (tuple, list)):
        with named(where):
            desc = of_shape(tuple(found), be.default_dtype)
    elif isinstance(found, (TensorDesc, Tensor)):
        desc = TensorDesc.of(found)
    else:
        raise DTypeError(f"{where}: expected a TensorDesc, a shape, a blueprint or a tensor, got {shown(given)}")
    if desc.batch_axis != desc.ndim - 1:
        raise ArgumentError(
            f"{where}: blueprints compute with the batch as the last axis, got {desc}; be.transformer brings tensors "
            "into another layout"
        )
    if not is_float(desc.dtype):
        raise DTypeError(f"{where}: needs floats, got {desc}")
    if not desc.size:
        raise ShapeError(f"{where}: an axis of {desc.shape} has no elements")
    return of_shape(desc.shape, desc.dtype)


def of_shape(shape: tuple[int, ...], dtype: Any) -> TensorDesc:
    """The descriptor of a shape, with the names that blueprints call axes by."""
    return TensorDesc(shape, dtype, LAYOUTS.get(len(shape), ""))


def fitting(where: str, desc: TensorDesc, tensor: Any) -> Any:
    """``tensor`` in the shape of ``desc``, whatever its axes are called as long as the batch is the last.

    Raises
    ------
    ShapeError, DTypeError, ArgumentError
        If it is no tensor, or has another shape, dtype or order of axes.
    """
    own = getattr(tensor, "desc", None)
    if isinstance(own, TensorDesc) and own.ndim == desc.ndim and own.batch_axis == desc.batch_axis:
        desc = TensorDesc(desc.shape, desc.dtype, own.layout)
    return desc.view(tensor, "the tensor", where)


def several(be: Any, where: str, given: Any, least: int = 1) -> tuple[TensorDesc, ...]:
    """The descriptors of several inputs: a list, or what has several outputs."""
    found = getattr(given, "train_desc", given)
    if not isinstance(found, (tuple, list)) or len(found) < least or not all(map(_is_described, found)):
        raise DTypeError(
            f"{where}: expected a list of {least} or more descriptors, shapes or blueprints, got {brief(given)}"
        )
    return tuple(described(be, where, one) for one in found)


def _is_described(one: Any) -> bool:
    return isinstance(one, (TensorDesc, Tensor, tuple, list)) or hasattr(one, "train_desc")


def features(desc: TensorDesc) -> int:
    """Elements of a sample."""
    return math.prod(desc.shape[:-1])


def output_of(be: Any, where: str, src: TensorDesc, dst: Any, shape: tuple[int, ...] | None = None) -> TensorDesc:
    """The descriptor of an output, which is ``dst`` if that fits the input and ``shape``.

    Parameters
    ----------
    dst : None, int, shape or TensorDesc
        None: the output is of ``shape``. An integer is the first size of it.
    shape : tuple, optional
        What the output must be; without it that is for ``dst`` to say, all but the batch and the dtype.

    Raises
    ------
    ShapeError, DTypeError
        If ``dst`` has another shape or dtype.
    """
    if dst is None and shape is None:
        raise ShapeError(f"{where}: needs the shape of its output, for an input {src.shape}")
    if dst is None or is_count(dst):
        sizes = shape or (require_size(dst, f"{where}: the output"), src.shape[-1])
        if dst is not None and sizes[0] != dst:
            raise ShapeError(f"{where}: {dst} rows were asked for, an input {src.shape} gives {sizes}")
        return of_shape(sizes, src.dtype)
    found = described(be, where, dst)
    if found.shape[-1] != src.shape[-1]:
        raise ShapeError(
            f"{where}: the output {found.shape} has {found.shape[-1]} samples, the input {src.shape} has "
            f"{src.shape[-1]}"
        )
    if shape is not None and found.shape != tuple(shape):
        raise ShapeError(f"{where}: an input {src.shape} gives {tuple(shape)}, not the output {found.shape}")
    if found.dtype != src.dtype:
        raise DTypeError(f"{where}: the output holds {found.dtype.name}, the input {src.dtype.name}; use one dtype")
    return found


def same_type(where: str, src: TensorDesc, weights_type: Any) -> None:
    """Raise DTypeError unless ``weights_type`` is None or the dtype of the input."""
    if weights_type is not None and src.with_dtype(weights_type).dtype != src.dtype:
        raise DTypeError(
            f"{where}: weights of {src.with_dtype(weights_type).dtype.name} cannot be multiplied with data of "
            f"{src.dtype.name}; use one dtype"
        )


def axis_of(where: str, desc: TensorDesc, axis: Any) -> int:
    """``axis``, a number or the letter of a layout, as the number of an axis that is not the batch.

    Raises
    ------
    ShapeError
        If there is none such.
    """
    if isinstance(axis, str):
        found = desc.axis(axis)
    elif isinstance(axis, bool) or not isinstance(axis, int) or not -desc.ndim <= axis < desc.ndim:
        raise ShapeError(f"{where}: axis {brief(axis)} is none of {desc.shape}, whose layout is {desc.layout}")
    else:
        found = axis % desc.ndim
    if found == desc.batch_axis:
        raise ShapeError(f"{where}: axis {brief(axis)} of {desc.shape} is the batch, which cannot be cut")
    return found


def resized(desc: TensorDesc, axis: int, size: int) -> TensorDesc:
    """``desc`` with another size of one axis."""
    return TensorDesc((*desc.shape[:axis], size, *desc.shape[axis + 1 :]), desc.dtype, desc.layout)
