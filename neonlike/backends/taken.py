"""``t.take(indices, axis)`` in neon's dialect: as on neon's GPU, writes to the result also go to ``t``."""

from __future__ import annotations

from typing import Any

_classes: dict[type[Any], type[Any]] = {}


def _storing_class(cls: type[Any]) -> type[Any]:
    """Create a subclass of ``cls`` whose assignments also write to the source tensor."""

    def store(self: Any, index: Any, value: Any) -> None:
        cls.__setitem__(self, index, value)
        tensor, chosen = self.taken_from
        tensor[chosen] = self

    return type(cls.__name__, (cls,), {"__setitem__": store, "__module__": cls.__module__, "__doc__": cls.__doc__})


def written_through(picked: Any, tensor: Any, chosen: Any) -> Any:
    """Make assignments to ``picked``, a copy of the elements of ``tensor`` at ``chosen``, write to ``tensor``, too.

    Parameters
    ----------
    picked : Tensor
        The copy.
    tensor : Tensor
    chosen : index
        Where in ``tensor`` the copy comes from.
    """
    cls = type(picked)
    if cls not in _classes:
        _classes[cls] = _storing_class(cls)
    picked.__class__ = _classes[cls]
    picked.taken_from = tensor, chosen
    return picked
