"""Callables of higher packages that lower ones reach by a name: imported when they are first asked for.

A package may not import those above it. In place of that, ``neonlike/__init__.py`` registers here attributes that every
backend has from above, such as ``be.blueprints``, and classes that one package makes objects of for another.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_ATTACHED: dict[str, tuple[str, str]] = {}
"""Module and callable of an attribute of backends, by its name."""
_OFFERED: dict[str, tuple[str, str]] = {}
"""Module and callable of a role, by its name."""


def attach(name: str, module: str, maker: str) -> None:
    """Define ``be.<name>`` as ``maker(be)``, a callable of ``module``, which is imported at first use.

    Parameters
    ----------
    name : str
        Name of the attribute.
    module : str
        Dotted path of the module.
    maker : str
        Name of a callable of the module.
    """
    _ATTACHED[name] = module, maker


def attached_names() -> list[str]:
    """Names of the attached attributes."""
    return list(_ATTACHED)


def attached(backend: Any, name: str) -> Any:
    """Evaluate ``be.<name>`` at each use, so that there is no reference cycle through the backend.

    Raises
    ------
    KeyError
        If nothing is attached under this name.
    """
    return _imported(*_ATTACHED[name])(backend)


def offer(role: str, module: str, maker: str) -> None:
    """Register a callable of a higher package for a role, such as ``"report of a training"``.

    Parameters
    ----------
    role : str
        Words that the lower package asks with.
    module : str
        Dotted path of the module.
    maker : str
        Name of a callable of the module.
    """
    _OFFERED[role] = module, maker


def offered(role: str) -> Any:
    """Import the callable that was registered for a role.

    Raises
    ------
    KeyError
        If none was.
    """
    return _imported(*_OFFERED[role])


def _imported(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
