"""What a pass of a network depends on beside the contents of tensors, as things to be watched one by one.

That is which values the attributes of its layers and of the objects below these have, the lists and dictionaries among
them, and the methods of their classes. All of it is compared by identity: numbers, texts and functions are constants,
and of a tensor only which one it is. Where something is found that may change in another way, such as an object of
a user's class, nothing can be said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.nervanaobject import PACKAGE

Watch = tuple[Any, tuple[Any, ...]]
"""An object and its items: of a list; of a dictionary keys and values in turn, or those of the object's attributes."""

CONSTANTS = (Tensor, np.ndarray, np.generic, np.dtype, type, bool, int, float, complex, str, bytes, type(None), range)
"""Kinds of values of which it matters only which they are."""
UNREAD = frozenset(("init", "bias", "_desc", "replays"))
"""Attributes whose insides passes do not read, so that they may be objects of the user's."""
MOST = 4096
"""Objects that are watched at most."""


class NotWatched(Exception):
    """Something was met that may change unseen."""


def watches(roots: Iterable[Any], shallow: Iterable[Any] = ()) -> list[Watch] | None:
    """All below ``roots``, and the attributes alone of objects that are ``shallow``; None if some is unknown."""
    found: dict[int, Watch] = {id(thing): (thing, _items(vars(thing))) for thing in shallow}
    stack = list(roots)
    try:
        while stack:
            thing = stack.pop()
            if isinstance(thing, CONSTANTS) or id(thing) in found:
                continue
            if isinstance(thing, tuple):
                stack += thing
                continue
            watch = found[id(thing)] = thing, _held(thing)
            if len(found) > MOST:
                return None
            stack += _below(watch)
    except NotWatched:
        return None
    return [watch for watch in found.values() if watch[1] or not _is_fixed(watch[0])]


def same(one: list[Watch], other: list[Watch]) -> bool:
    """Whether two looks found the same."""
    return [*map(_identity, one)] == [*map(_identity, other)]


def _identity(watch: Watch) -> tuple[int, ...]:
    return (id(watch[0]), *map(id, watch[1]))


def _held(thing: Any) -> tuple[Any, ...]:
    """What is to be watched of one thing."""
    kind = type(thing)
    if isinstance(thing, list | dict):
        if kind not in (list, dict) and (not _is_ours(kind) or vars(thing)):
            raise NotWatched
        return tuple(thing) if isinstance(thing, list) else _items(thing)
    if _is_fixed(thing):
        return ()
    if not _is_ours(kind) or not hasattr(thing, "__dict__"):
        raise NotWatched
    return _items(vars(thing))


def _is_ours(kind: type) -> bool:
    """Whether a class is the library's, and keeps what its objects hold in their ``__dict__``."""
    slots = (name for cls in kind.__mro__ for name in (getattr(cls, "__slots__", ()) or ()))
    return kind.__module__.partition(".")[0] == PACKAGE and all(name in ("__dict__", "__weakref__") for name in slots)


def _is_fixed(thing: Any) -> bool:
    """Whether it is an object whose attributes are never set again."""
    parameters = getattr(type(thing), "__dataclass_params__", None)
    return parameters is not None and parameters.frozen and _is_ours(type(thing))


def _items(attributes: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(value for pair in attributes.items() for value in pair)


def _below(watch: Watch) -> Iterator[Any]:
    """The values to look into."""
    thing, items = watch
    if isinstance(thing, list):
        yield from items
        return
    for name, value in zip(items[::2], items[1::2]):
        if isinstance(thing, dict) or name not in UNREAD:
            yield value
