"""Watches the things that a pass of a network depends on beside the contents of tensors.

That is which values the attributes of its layers and of the objects below these have, the lists and dictionaries among
them, and the methods of their classes. All of it is compared by identity: numbers, texts and functions are constants,
and of a tensor only which one it is. Where something is found that may change in another way, such as an object of
a user's class, nothing can be said; nor where a function of a user's was put in the place of a method, which may do
anything beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.nervanaobject import PACKAGE

Watch = tuple[Any, tuple[Any, ...]]
"""An object and its items: of a list; of a dictionary keys and values in turn, or those of the object's attributes."""

CONSTANTS = (
    Tensor, np.ndarray, np.generic, np.dtype, type, bool, int, float, complex, str, bytes, type(None), range, slice,
)  # fmt: skip
"""Kinds of values of which it matters only which they are."""
UNREAD = frozenset(("init", "bias", "_desc", "replays"))
"""Attributes whose insides passes do not read, so that they may be objects of the user's."""
MODULES = frozenset(("builtins", "nlfast"))
"""Of the types of callable objects that are no functions of a user's, beside the library."""
WRAPPING = frozenset(("contextlib", "dataclasses", "functools", "reprlib"))
"""Modules whose functions stand before those of the library."""
SLOTS = frozenset(("__dict__", "__weakref__", "_replay", "table", "cost", "t", "t_left"))
"""Slots that need no watch: ``Backend._replay`` stays, and ``Replay.table`` changes with ``Replay.epoch``; passes
depend on neither the ``cost`` that they left last nor the numbers ``t`` of steps of an optimizer."""
MOST = 4096
"""Objects that are watched at most."""


_ours: dict[type, bool] = {}
"""Which classes were found to be the library's during a look."""


class NotWatched(Exception):
    """Something was met that may change unseen."""


def watches(roots: Iterable[Any], shallow: Iterable[Any] = ()) -> list[Watch] | None:
    """All below ``roots``, and the attributes alone of objects that are ``shallow``; None if some is unknown."""
    found: dict[int, Watch] = {id(thing): (thing, _items(vars(thing))) for thing in shallow}
    stack = list(roots)
    _ours.clear()  # methods may have been replaced
    try:
        for thing, items in found.values():
            if not _is_ours(type(thing)) or any(_is_foreign(value) for value in items[1::2]):
                raise NotWatched
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
    """Contents of one object, to be watched."""
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
    """Whether a class is the library's with its methods, and keeps what its objects hold in their ``__dict__``."""
    found = _ours.get(kind)
    if found is None:
        found = _ours[kind] = _is_wholly_ours(kind)
    return found


def _is_wholly_ours(kind: type) -> bool:
    slots = (name for cls in kind.__mro__ for name in (getattr(cls, "__slots__", ()) or ()))
    if not _is_in_package(kind.__module__) or not SLOTS.issuperset(slots):
        return False
    return not any(_is_foreign(value) for cls in kind.__mro__ if cls is not object for value in vars(cls).values())


def _is_in_package(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == PACKAGE


def _is_foreign(value: Any) -> bool:
    """Whether it is, or wraps, a function that the library does not have, in the place of one or of an attribute."""
    if isinstance(value, property):
        return any(_is_foreign(part) for part in (value.fget, value.fset, value.fdel))
    value = getattr(value, "__func__", value)
    inner = getattr(value, "__wrapped__", None)
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__")
        if not _is_in_package(module) and module not in WRAPPING:
            return True
    elif not isinstance(value, type) and isinstance(value, Callable):  # type: ignore[arg-type]
        if type(value).__module__ not in MODULES and not _is_in_package(type(value).__module__):
            return True
    return inner is not None and _is_foreign(inner)


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
