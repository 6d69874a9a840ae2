"""Unrolls that were made before, on the same tensors: what was checked and set up then holds.

An unroll is given hundreds of tensors, and looking at each takes as long as computing small ones. Layers give it the
same tensors at each pass. So a call that ran as one kernel is kept under the identities of its tensors (of weight and
bias: where they lie in which tensor), which are never those of others while the call is kept: it is forgotten when one
of its tensors is deleted.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from neonlike.backends.tensor import Tensor
from neonlike.kernels.run.calls import parameters_of
from neonlike.kernels.run.recorded import recorder

MOST_UNROLLS = 128
Method = TypeVar("Method", bound=Callable[..., Any])


class KnownUnroll(Protocol):
    """An unroll on tensors that were looked at; the functions may be others each time.

    Attributes
    ----------
    lasts : bool
        Whether it reads and writes these tensors alone, no copies of what they held.
    """

    @property
    def lasts(self) -> bool: ...

    def again(self, backend: Any, functions: tuple[Any, ...]) -> bool:
        """Run it with these activations; False, and nothing is done, if it cannot."""
        ...


class Asked(NamedTuple):
    """The request of a call: its key, its arguments, and the functions in it, which are not part of the key."""

    key: tuple[Any, ...]
    arguments: tuple[Any, ...]
    functions: tuple[Any, ...]

    def tensors(self) -> Iterator[Any]:
        """Those that the key stands for: all in lists, and those that weight and bias are views of."""
        for value in self.arguments:
            if isinstance(value, (list, tuple)):
                yield from (one for one in value if one is not None)
            elif isinstance(value, Tensor):
                yield value._original_base


class KnownUnrolls:
    """The unrolls that a backend made."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[KnownUnroll, list[weakref.ref[Any]]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forget all unrolls."""
        self._known.clear()

    def repeat(self, backend: Any, asked: Asked) -> bool:
        """Make the unroll as one before was made; False, and nothing is done, if there was none."""
        known = self._known.get(asked.key)
        return known is not None and known[0].again(backend, asked.functions)

    def keep(self, asked: Asked, launch: KnownUnroll) -> None:
        """Have the unroll repeated by ``launch`` while its tensors live."""
        if len(self._known) >= MOST_UNROLLS:
            self._known.clear()
        forget = functools.partial(_forget, self._known, asked.key)
        alive = {id(tensor): tensor for tensor in asked.tensors()}
        self._known[asked.key] = launch, [weakref.ref(tensor, forget) for tensor in alive.values()]


def _forget(known: dict[tuple[Any, ...], Any], key: tuple[Any, ...], _: object) -> None:
    known.pop(key, None)


def asked_for(name: str, arguments: tuple[Any, ...]) -> Asked | None:
    """The request of a call with ``arguments``; None if one is of a kind that unrolls do not take."""
    key: list[Any] = [name]
    functions: list[Any] = []
    for value in arguments:
        if isinstance(value, (list, tuple)):
            key.append(tuple(map(id, value)))
        elif isinstance(value, Tensor):
            view: Any = value  # weights come as views made anew, such as W.T
            key.append((id(view._original_base), view.address, view.geometry, view.dtype))
        elif value is None or isinstance(value, int):
            key.append(value)
        elif callable(value):
            functions.append(value)
            key.append(callable)
        else:
            return None
    return Asked(tuple(key), arguments, tuple(functions))


def repeated(method: Method) -> Method:
    """``method`` of a backend, which returns a :class:`KnownUnroll` or None, as a method that returns nothing."""

    names, _ = parameters_of(method)
    defaults = method.__defaults__ or ()
    defaulted = dict(zip(names[len(names) - len(defaults) :], defaults))

    @functools.wraps(method)
    def unroll(self: Any, *args: Any, **kwargs: Any) -> None:
        known: KnownUnrolls | None = self._unrolls
        if kwargs:
            given = defaulted | kwargs
            rest = names[len(args) :]
            if kwargs.keys() <= set(rest) <= given.keys():  # else the method says what is wrong
                args, kwargs = (*args, *[given[name] for name in rest]), {}
        if known is None or kwargs or self.executor.bench is not None:
            method(self, *args, **kwargs)
            return
        asked = asked_for(method.__name__, args)
        lasts = asked is not None and known.repeat(self, asked)
        if not lasts:
            launch = method(self, *args)
            if lasts := launch is not None and asked is not None and launch.lasts:
                known.keep(asked, launch)
        if (writes := recorder()) is not None:
            tensors = [] if asked is None else [*asked.tensors()]
            writes.primitive(tensors, [tensor.address for tensor in tensors] if lasts else None)

    return unroll  # type: ignore[return-value]
