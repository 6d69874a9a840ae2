"""The state that a forward pass leaves in a network, so that it can be brought back for its backward pass.

A layer keeps in attributes and buffers what its backward pass needs. Where a network is called again before that,
these are put aside here: the attributes of all objects that it is made of, and the contents of their memory, but not
parameters and what was given from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from neonlike.backends.backend import Tensor
from neonlike.nervanaobject import PACKAGE, NervanaObject

LAYERS = f"{PACKAGE}.layers."

OUTSIDE = frozenset(("prev_layer", "next_layer", "deltas", "out_deltas_buffer", "states", "_calls"))
"""Attributes that lead to other layers, or are of no use to a backward pass that is still to come."""


class Snapshot:
    """Attributes and memory of ``root`` and of what it consists of.

    Parameters
    ----------
    root : Layer
    excluded : tensors
        Whose memory is to be left as it is: parameters, running statistics, inputs.
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
        """Bring all of it back."""
        for part, attributes in self._attributes:
            vars(part).clear()
            vars(part).update(attributes)
        for tensor, copy in self._memory:
            tensor[:] = copy


def _parts(root: Any) -> tuple[list[Any], list[Any]]:
    """The objects with attributes below ``root``, and the tensors that their memory belongs to, each once."""
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
    """Whether it is a layer or what one is made of, also of a class of the user's: no backend, function or module."""
    ours = isinstance(part, NervanaObject | SimpleNamespace) or type(part).__module__.startswith(LAYERS)
    return ours and hasattr(part, "__dict__") and not isinstance(part, type)


def _values(part: Any) -> Iterator[Any]:
    return (value for name, value in vars(part).items() if name not in OUTSIDE)
