"""Descriptors of inputs and outputs, checked: the batch is the last axis, and errors name the blueprint.

The functions raise ShapeError, DTypeError or ArgumentError for what does not fit, with ``where``, the blueprint's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.primitives.lazy.family import per_axis
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.core.base import require_size
from neonlike.optree.dtypes import is_float

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend
    from neonlike.transforms.transform import Transform

class HasOutput(Protocol):
    """A blueprint, whose output can be the input of another one."""

    @property
    def train_desc(self) -> Any:
        """Descriptor of the output in training; a tuple of them for several outputs."""
        ...


Input: TypeAlias = "TensorDesc | Tensor | HasOutput | tuple[int, ...] | list[int]"
"""An input of a blueprint: a descriptor, a tensor, the blueprint that computes it, or a shape, with the batch last."""
Output: TypeAlias = "TensorDesc | tuple[int, ...] | list[int] | int"
"""An output of a blueprint: its descriptor, its shape, or its number of features."""
Function: TypeAlias = "Transform | str | None"
"""The function behind a layer: a transform, the name of one, or none."""

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


def described(be: Backend, where: str, given: Any) -> TensorDesc:
    """The descriptor of ``given``: a descriptor, a blueprint's output, a tensor or a shape in the backend's dtype.

    Parameters
    ----------
    be : Backend
        The backend, whose dtype shapes get.
    where : str
        Subject of the messages.
    given : TensorDesc, Blueprint, Tensor or tuple of int
        An input, with the batch as its last axis.

    Raises
    ------
    ShapeError
        If it has several outputs, or an axis without elements.
    DTypeError
        If it is none of these, or has no floats.
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
    """``tensor``, checked to have the shape and dtype of ``desc``; its axes may have other names.

    Parameters
    ----------
    where : str
        Subject of the messages.
    desc : TensorDesc
        The shape and dtype that are expected.
    tensor : Tensor
        The tensor to check.
    """
    own = getattr(tensor, "desc", None)
    if isinstance(own, TensorDesc) and own.ndim == desc.ndim and own.batch_axis == desc.batch_axis:
        desc = TensorDesc(desc.shape, desc.dtype, own.layout)
    return desc.view(tensor, "the tensor", where)


def several(be: Backend, where: str, given: Any) -> tuple[TensorDesc, ...]:
    """The descriptors of several inputs: of a list, or of the outputs of a blueprint.

    Parameters
    ----------
    be : Backend
        The backend, whose dtype shapes get.
    where : str
        Subject of the messages.
    given : list or Blueprint
        Inputs as :func:`described` takes them, or a blueprint with several outputs.
    """
    found = getattr(given, "train_desc", given)
    if not isinstance(found, (tuple, list)) or not found or not all(map(_is_described, found)):
        raise DTypeError(f"{where}: expected a list of 1 or more descriptors, shapes or blueprints, got {brief(given)}")
    return tuple(described(be, where, one) for one in found)


def _is_described(one: Any) -> bool:
    return isinstance(one, (TensorDesc, Tensor, tuple, list)) or hasattr(one, "train_desc")


def features(desc: TensorDesc) -> int:
    """Elements of a sample."""
    return math.prod(desc.shape[:-1])


def output_of(be: Backend, where: str, src: TensorDesc, dst: Any, shape: tuple[int, ...] | None = None) -> TensorDesc:
    """The descriptor of an output from ``dst``: None, its first size, a shape or a descriptor.

    Parameters
    ----------
    be : Backend
        The backend, whose dtype shapes get.
    where : str
        Subject of the messages.
    src : TensorDesc
        The input.
    dst : None, int, tuple of int or TensorDesc
        The output.
    shape : tuple, optional
        The shape that the output must have; by default only its batch and dtype must be those of ``src``.
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
    """Raise DTypeError unless ``weights_type`` is None or the dtype of the input.

    Parameters
    ----------
    where : str
        Subject of the message.
    src : TensorDesc
        The input.
    weights_type : dtype or None
        The dtype asked for.
    """
    if weights_type is not None and src.with_dtype(weights_type).dtype != src.dtype:
        raise DTypeError(
            f"{where}: weights of {src.with_dtype(weights_type).dtype.name} cannot be multiplied with data of "
            f"{src.dtype.name}; use one dtype"
        )


def axis_of(where: str, desc: TensorDesc, axis: Any) -> int:
    """The number of an axis other than the batch, of its number or its letter in the layout.

    Parameters
    ----------
    where : str
        Subject of the messages.
    desc : TensorDesc
        The descriptor that has the axis.
    axis : int or str
        Number, also from the end, or letter of the layout.

    Raises
    ------
    ShapeError
        If there is no such axis, or it is the batch.
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
    """``desc`` with another size of one axis.

    Parameters
    ----------
    desc : TensorDesc
        A descriptor.
    axis : int
        Number of the axis.
    size : int
        Its new size.
    """
    return TensorDesc((*desc.shape[:axis], size, *desc.shape[axis + 1 :]), desc.dtype, desc.layout)


def window_sizes(where: str, src: TensorDesc, **given: Any) -> dict[str, dict[str, int]]:
    """The sizes of windows on images (C, H, W, N) or volumes (C, D, H, W, N), by the names of layers' arguments.

    Parameters
    ----------
    where : str
        Subject of the message.
    src : TensorDesc
        The input.
    given : int or tuple of int
        ``kernel``, ``strides``, ``padding``, ``dilation``: for all axes, or for each.
    """
    if src.ndim not in (4, 5):
        raise ShapeError(f"{where}: needs images (C, H, W, N) or volumes (C, D, H, W, N), got {src.shape}")
    found = {}
    for name, value in given.items():
        each = per_axis(where, name, value, src.ndim - 2, int(name != "padding"))
        found[name] = dict(zip("TRS" if name == "kernel" else [f"{name[:3]}_{axis}" for axis in "dhw"], each))
    return found


def listed(desc: Any) -> str:
    """Shapes and dtypes of descriptors, for messages."""
    return ", ".join(f"{one.shape} of {one.dtype.name}" for one in (desc if isinstance(desc, tuple) else (desc,)))
