"""Watches the objects that a pass of a network depends on beside the contents of tensors.

Each of these objects says itself what a pass depends on, by its method ``depends_on``: attributes whose values are
looked into, attributes whose values must stay the same objects, and attributes that passes set or never read.

Values are compared by identity. Numbers, texts, classes and tensors are constants: nothing is looked up in them. Lists,
dictionaries, tuples and the library's frozen dataclasses are looked into without a method. All other objects that are
looked into must have it, also dataclasses of users. An object without it, such as a function, may change unseen, so
that no pass that depends on it is repeated. The same holds for arrays of rank 0, whose number may be written in place,
and for objects in which a function of a user's stands in the place of a method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import is_
from types import FunctionType
from typing import Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.kernels.run.depends import ANY_VALUE, Depends
from neonlike.logger import logger
from neonlike.nervanaobject import PACKAGE, is_in_package

Watch = tuple[Any, tuple[Any, ...], tuple[Any, ...]]
"""An object, its items, and what forward passes set.

The items are those of a list; of a dictionary, keys and values in turn, or those of the object's attributes. Of a look,
the last part has the names of attributes that forward passes set; of a record, names and values in turn.
"""

CONSTANTS = (
    Tensor, np.ndarray, np.generic, np.dtype, type, bool, int, float, complex, str, bytes, type(None), range, slice,
)  # fmt: skip
"""Kinds of values of which it matters only which they are."""
MODULES = frozenset(("builtins", "nlfast"))
"""Modules whose types of callable objects are trusted as those of the library are: no user wrote what they do."""
WRAPPING = frozenset(("contextlib", "dataclasses", "functools", "reprlib"))
"""Modules of decorators: their functions may stand before those of the library."""
MOST_OBJECTS = 4096
"""Objects that one guard watches at most."""


_as_defined: dict[type, bool] = {}
"""Whether classes have the methods that they were defined with, as one look found it."""
_unchanged: dict[type, tuple[Any, ...]] = {}
"""The attributes of classes of the library, as they were when all of them were found to be its own."""


class NotWatched(Exception):
    """An object was met that may change unseen."""

    def __init__(self, thing: object) -> None:
        super().__init__(f"{type(thing).__module__}.{type(thing).__qualname__}")


def watches(roots: Iterable[Any]) -> list[Watch] | None:
    """Watches of everything that ``roots`` depend on; None if something in it may change unseen."""
    found: dict[int, Watch] = {}
    stack = list(roots)
    _as_defined.clear()  # methods may have been replaced
    try:
        while stack:
            thing = stack.pop()
            _refuse_number(thing)
            if isinstance(thing, CONSTANTS) or id(thing) in found:
                continue
            if isinstance(thing, tuple):
                stack += thing
                continue
            items, below, sets = _held(thing)
            found[id(thing)] = thing, items, sets
            if len(found) > MOST_OBJECTS:
                return None
            stack += below
    except NotWatched as met:
        logger.debug("a pass is played each time because of an object of %s, which may change unseen", met)
        return None
    return [watch for watch in found.values() if watch[1] or not _is_fixed(watch[0])]


def as_left(
    before: list[Watch], after: list[Watch], given: Iterable[Any] = (), forward: bool = False
) -> list[Watch] | None:
    """Watches for the record of a pass that finds everything as it leaves it, but for attributes that it sets.

    Parameters
    ----------
    before, after : list
        What :func:`watches` found before and after the pass.
    given : iterable of objects
        What the pass was called with.
    forward : bool
        Whether it is a forward pass. Only attributes that it gave another value are known to be set by it: a tensor, in
        memory that was there before, or a constant. What it makes anew each time cannot be set to the recorded one.

    Returns
    -------
    list or None
        None if the pass changed anything else.
    """
    if len(before) != len(after):
        return None
    known = set(_memory([given, *(items for _, items, _ in before)])) if forward else set()
    found = [left for pair in zip(before, after) if (left := _left(*pair, known, forward)) is not None]
    return found if len(found) == len(after) else None


def _memory(things: Iterable[Any]) -> Iterator[int]:
    """Identities of tensors, and of their memory, that are in tuples and lists."""
    for thing in things:
        if isinstance(thing, Tensor):
            tensor: Any = thing  # in the host's memory, which has its identity
            yield from (id(tensor), id(tensor.root))
        elif isinstance(thing, tuple | list):
            yield from _memory(thing)


def _lasts(value: Any, known: set[int]) -> bool:
    """Whether an attribute may be set to this value each time: no other pass makes another one in its place."""
    if not isinstance(value, Tensor):
        return True  # what is in lists and dictionaries is watched
    tensor: Any = value
    while tensor is not None and id(tensor) not in known and (tensor.root is None or id(tensor.root) not in known):
        tensor = tensor.base
    return tensor is not None


def _left(before: Watch, after: Watch, known: set[int], forward: bool) -> Watch | None:
    (thing, old, _), (same, new, names) = before, after
    if thing is not same or len(old) != len(new):
        return None
    changed = {k for k, pair in enumerate(zip(old, new)) if pair[0] is not pair[1]}
    apart = [k + 1 for k, name in enumerate(new) if not k % 2 and name in names] if names else []
    if not changed.issubset(apart if forward else ()) or not all(_lasts(new[k], known) for k in changed):
        return None
    apart = sorted(changed) if forward else apart
    items = [ANY_VALUE if k in apart else value for k, value in enumerate(new)]
    return thing, tuple(items), tuple(value for k in apart for value in new[k - 1 : k + 1])


def _held(thing: Any) -> tuple[tuple[Any, ...], Iterable[Any], tuple[str, ...]]:
    """The items of one object that are watched, the values among them to look into, and attributes that passes set."""
    kind = type(thing)
    if isinstance(thing, list | dict):
        if kind not in (list, dict) and (not _is_as_defined(kind) or vars(thing)):
            raise NotWatched(thing)
        return (tuple(thing), thing, ()) if isinstance(thing, list) else (_items(thing), thing.values(), ())
    if _is_fixed(thing):
        return (), vars(thing).values(), ()
    said: Depends | None = thing.depends_on() if _speaks(kind) else None
    if said is None:
        raise NotWatched(thing)
    attributes = vars(thing)
    if said.opened is not None and any(map(_is_foreign, attributes.values())):  # in the place of a method
        raise NotWatched(thing)
    kept = {name: ANY_VALUE if name in said.free else value for name, value in attributes.items()}
    for value in kept.values():
        _refuse_number(value)
    sets = tuple(said.sets.intersection(kept))
    return _items(kept), [value for name, value in attributes.items() if said.looks_into(name)], sets


def _refuse_number(value: Any) -> None:
    """Refuse a number in an array, which may be written in place."""
    if isinstance(value, np.ndarray) and not value.ndim:
        raise NotWatched(value)


def _speaks(kind: type) -> bool:
    """Whether objects of this class say what they depend on: a class of a user's must do so itself."""
    for cls in kind.__mro__:
        if "depends_on" in vars(cls):
            return _is_as_defined(kind)
        if not is_in_package(cls.__module__):
            return False
    return False


def _is_as_defined(kind: type) -> bool:
    """Whether a class has the methods that it was defined with."""
    found = _as_defined.get(kind)
    if found is None:
        found = _as_defined[kind] = all(_has_its_own(cls) for cls in kind.__mro__ if cls is not object)
    return found


def _has_its_own(cls: type) -> bool:
    """Whether each function of a class is the library's or the module's that has the class."""
    values, known = tuple(vars(cls).values()), _unchanged.get(cls)
    if known is not None and len(known) == len(values) and all(map(is_, known, values)):
        return True
    if any(_is_foreign(value, cls.__module__) for value in values):
        return False
    if is_in_package(cls.__module__):  # a user's class may go, and is not to be held
        _unchanged[cls] = values
    return True


def _is_foreign(value: Any, home: str = PACKAGE) -> bool:
    """Whether it is, or wraps, a function that neither the library nor the module ``home`` has."""
    if isinstance(value, property):
        return any(_is_foreign(part, home) for part in (value.fget, value.fset, value.fdel))
    value = getattr(value, "__func__", value)
    inner = getattr(value, "__wrapped__", None)
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__")
        if not is_in_package(module) and module not in WRAPPING and module != home:
            return True
    elif not isinstance(value, type) and isinstance(value, Callable):  # type: ignore[arg-type]
        if type(value).__module__ not in MODULES and not is_in_package(type(value).__module__):
            return True
    return inner is not None and _is_foreign(inner, home)


def _is_fixed(thing: Any) -> bool:
    """Whether it is an object of the library's whose attributes are never set again."""
    kind = type(thing)
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen and is_in_package(kind.__module__) and _is_as_defined(kind)


def _items(attributes: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(value for pair in attributes.items() for value in pair)
