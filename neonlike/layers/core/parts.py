"""Cached views of buffers: parts for partial batches, and other shapes.

Creating a view takes longer than a small kernel, and cached facts about a tensor, such as how to call a kernel on it,
belong to the tensor object. So a layer keeps the last view for each role, and creates a new one when the buffer or the
requested sizes change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from neonlike.backends.backend import Tensor
from neonlike.errors import NotDefined


def first_part(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """A contiguous tensor (rows, columns) in the memory of ``buffer``, or in new memory if ``buffer`` is strided.

    Parameters
    ----------
    buffer : Tensor
        Tensor of at least ``rows * columns`` elements.
    rows, columns : int
        Shape of the part.
    """
    if not buffer.is_contiguous:
        found: Tensor = buffer.backend.empty((rows, columns), dtype=buffer.dtype)
        return found
    return buffer.viewed(1, -1)[:, : rows * columns].viewed(rows, columns)


def copied(owner: Any, memo: dict[int, Any], is_set_up: bool) -> Any:
    """Deep-copy an object with tensors, unless it ``is_set_up``: its tensors then share memory, and copies would not.

    Parameters
    ----------
    owner : object
        The object to copy; its ``name`` is in the message.
    memo : dict
        Copies made so far, as of ``__deepcopy__``.
    is_set_up : bool
        Whether the object has tensors.

    Raises
    ------
    NotDefined
        If it is set up.
    """
    if is_set_up:
        raise NotDefined(
            f"{owner.name}: copy.deepcopy makes no copy once there are tensors, some of which are parts of others; "
            "copy it before, or make Model(model.serialize()), which has weights and optimizer states"
        )
    made = memo[id(owner)] = object.__new__(type(owner))
    made.__dict__.update(copy.deepcopy(owner.__dict__, memo))
    return made


def part_of(layer: Any, role: str, buffer: Tensor, columns: int) -> Tensor:
    """:func:`first_part` of a layer's ``buffer`` with all its rows, cached under ``role``.

    Parameters
    ----------
    layer : Layer
        The layer that keeps the view.
    role : str
        Name that the view is kept under.
    buffer : Tensor
        ``(rows, columns)``, or wider.
    columns : int
        Columns of the part.
    """
    return _kept(layer, role, buffer, buffer.shape[0], columns, first_part)


def reshaped(layer: Any, role: str, buffer: Tensor, rows: int) -> Tensor:
    """``buffer.viewed(rows, -1)``, cached under ``role``.

    Parameters
    ----------
    layer : Layer
        The layer that keeps the view.
    role : str
        Name that the view is kept under.
    buffer : Tensor
        A contiguous tensor.
    rows : int
        Rows of the view.
    """
    return viewed_as(layer, role, buffer, (rows, -1))


def viewed_as(layer: Any, role: str, buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``buffer.viewed(shape)``, cached under ``role``.

    Parameters
    ----------
    layer : Layer
        The layer that keeps the view.
    role : str
        Name that the view is kept under.
    buffer : Tensor
        A contiguous tensor.
    shape : tuple of int
        Shape of the view.
    """
    return _kept(layer, role, buffer, shape, -1, _viewed)


def transposed(layer: Any, role: str, buffer: Tensor) -> Tensor:
    """``buffer.T``, cached under ``role``.

    Parameters
    ----------
    layer : Layer
        The layer that keeps the view.
    role : str
        Name that the view is kept under.
    buffer : Tensor
        ``(rows, columns)``.
    """
    return _kept(layer, role, buffer, -1, -1, _transpose)


def apart(layer: Any, error: Any, *buffers: Any) -> Any:
    """Return ``error``, or a cached copy if it shares memory with one of a layer's ``buffers``."""
    root = getattr(error, "root", error)
    for buffer in buffers:
        if buffer is not None and buffer.root is root and buffer.alias_of(error):
            copy_of_it = _kept(layer, "error apart", error, -1, -1, _empty_like)
            copy_of_it[:] = error
            return copy_of_it
    return error


def _viewed(buffer: Tensor, shape: Any, _: int) -> Tensor:
    return buffer.viewed(shape)


def _transpose(buffer: Tensor, *_: int) -> Tensor:
    return buffer.T


def _empty_like(buffer: Tensor, *_: int) -> Tensor:
    made: Tensor = buffer.backend.empty_like(buffer)
    return made


class KeptViews(dict[str, tuple[Tensor, Any, int, Tensor]]):
    """Buffer, sizes and view of each role. A copy starts empty: copied views would not be views of copied buffers."""

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptViews:
        return KeptViews()

    def __reduce__(self) -> tuple[type[KeptViews], tuple[()]]:
        return KeptViews, ()


def _kept(layer: Any, role: str, buffer: Tensor, rows: Any, columns: int, make: Callable[..., Tensor]) -> Tensor:
    views = layer.__dict__.get("_kept_views")
    if views is None:
        views = layer._kept_views = KeptViews()
    kept = views.get(role)
    if kept is not None and kept[0] is buffer and kept[1] == rows and kept[2] == columns:
        known: Tensor = kept[3]
        return known
    view = make(buffer, rows, columns)
    views[role] = buffer, rows, columns, view
    return view
