"""Knows all variables: scopes that free those made inside, and the registry of parameters and constants."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

_thread = threading.local()
watched = 0
"""Scopes that are open in any thread; while it is 0, making a variable costs nothing more."""
_lock = threading.Lock()

registered: dict[int, weakref.ref[Any]] = {}
"""Parameters and constants that are alive, by id."""


def register(variable: Any) -> None:
    """Count ``variable`` in the memory report while it lives."""
    # A builtin as callback: it runs no Python code, in which an interrupt could be raised and lost.
    registered[id(variable)] = weakref.ref(variable, partial(registered.pop, id(variable)))


def _open() -> list[list[weakref.ref[Any]]]:
    """The scopes of this thread, the innermost last."""
    found: list[list[weakref.ref[Any]]] | None = getattr(_thread, "scopes", None)
    if found is None:
        found = _thread.scopes = []
    return found


def watch(variable: Any) -> None:
    """Note that ``variable`` was made in the innermost scope."""
    scopes = _open()
    if scopes:
        scopes[-1].append(weakref.ref(variable))


class scope:  # noqa: N801
    """``with scope() as inside: ...`` frees the variables that were made inside when it ends.

    Those given to ``inside.keep(variable)`` stay, with what they depend on, and belong to the scope around. As a
    decorator, a scope opens for each call and keeps what the function returns: a variable, or a list, tuple or
    dictionary of some.

    Examples
    --------
    >>> from neonlike import autograd
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> with autograd.scope() as inside:
    ...     hidden = autograd.const([[1.0, 2.0]]) * 2
    ...     total = inside.keep(hidden + 1)
    >>> total.tolist()
    [[3.0, 5.0]]
    """

    def __init__(self) -> None:
        self._made: list[weakref.ref[Any]] = []
        self._kept: list[Any] = []

    def __enter__(self) -> scope:
        global watched
        _open().append(self._made)
        with _lock:
            watched += 1
        return self

    def __exit__(self, *exc: Any) -> None:
        global watched
        scopes = _open()
        scopes.remove(self._made)
        with _lock:
            watched -= 1
        staying = _with_parents(self._kept)
        for reference in self._made:
            variable = reference()
            if variable is None:
                continue
            if id(variable) not in staying:
                variable.free()
            elif scopes:
                scopes[-1].append(reference)
        self._made, self._kept = [], []

    def keep(self, *variables: Any) -> Any:
        """Let ``variables`` outlive the scope; returns the one, or a tuple of several.

        Examples
        --------
        >>> from neonlike import autograd
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> with autograd.scope() as inside:
        ...     kept = inside.keep(autograd.const([[1.0]]) * 2)
        >>> kept.item()
        2.0
        """
        self._kept += variables
        return variables[0] if len(variables) == 1 else variables

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def scoped(*args: Any, **options: Any) -> Any:
            with scope() as inside:
                result = function(*args, **options)
                inside._kept += _variables_in(result)
                return result

        return scoped


def recorded(function: Callable[[], Any]) -> tuple[Any, set[int]]:
    """The result of ``function``, and the ids of variables made meanwhile that are alive."""
    with scope() as inside:
        result = function()
        alive = [variable for reference in inside._made if (variable := reference()) is not None]
        inside._kept += alive
        return result, {id(variable) for variable in alive}


def _variables_in(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in _variables_in(part)]
    return [value] if hasattr(value, "partial_derivative") else []


def _with_parents(variables: list[Any]) -> set[int]:
    found: set[int] = set()
    stack = list(variables)
    while stack:
        variable = stack.pop()
        if id(variable) not in found:
            found.add(id(variable))
            stack.extend(variable.parents)
    return found
