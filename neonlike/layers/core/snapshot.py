"""Snapshot of the state after a forward pass, to be restored for the backward pass.

A layer keeps state for its backward pass in attributes and buffers. Before another call of the network, a snapshot
saves this state: the attributes of all objects of the network, and the contents of their memory, except for parameters
and the caller's tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from neonlike.backends.backend import Tensor
from neonlike.nervanaobject import PACKAGE, NervanaObject

LAYERS = f"{PACKAGE}.layers."

OUTSIDE = frozenset(("prev_layer", "next_layer", "deltas", "out_deltas_buffer", "states", "_calls"))
"""Attributes that refer to other layers, or are not used by a later backward pass."""


class Snapshot:
    """Attributes and memory of ``root`` and of its parts.

    Parameters
    ----------
    root : Layer
        The layer or container.
    excluded : tensors
        Tensors with memory to be left alone: parameters, running statistics, inputs.
    """

    def __init__(self, root: Any, excluded: Iterable[Any]) -> None:
        left_out = {id(tensor._original_base) for tensor in excluded}
        objects, tensors = _parts(root)
        self._attributes = [(part, dict(vars(part))) for part in objects]
        self._memory = []
        for tensor in tensors:
            if id(tensor) not in left_out:
                copy = tensor.backend.fresh(tensor.shape, tensor.dtype)
                copy[:] = tensor
                self._memory.append((tensor, copy))

    def restore(self) -> None:
        """Restore all attributes and memory."""
        for part, attributes in self._attributes:
            vars(part).clear()
            vars(part).update(attributes)
        for tensor, copy in self._memory:
            tensor[:] = copy


def _parts(root: Any) -> tuple[list[Any], list[Any]]:
    """The objects with attributes below ``root``, and the base tensors of their memory, each once."""
    objects: dict[int, Any] = {}
    tensors: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    stack = [root]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen[id(part)] = part
        if isinstance(part, Tensor):
            tensors[id(part._original_base)] = part._original_base
        elif isinstance(part, dict | list | tuple | set):
            stack += part.values() if isinstance(part, dict) else part
        elif _has_state(part):
            objects[id(part)] = part
            stack += _values(part)
    return list(objects.values()), list(tensors.values())


def _has_state(part: Any) -> bool:
    """Whether ``part`` is a layer or a part of one, also of a user's class; not a backend, function or module."""
    ours = isinstance(part, NervanaObject | SimpleNamespace) or type(part).__module__.startswith(LAYERS)
    return ours and hasattr(part, "__dict__") and not isinstance(part, type)


def _values(part: Any) -> Iterator[Any]:
    return (value for name, value in vars(part).items() if name not in OUTSIDE)
